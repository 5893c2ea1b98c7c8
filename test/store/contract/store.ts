import { describe } from 'vitest';
import { accountsContract } from './accounts.ts';
import { appendsContract } from './appends.ts';
import { budgetsContract } from './budgets.ts';
import { conversationsContract } from './conversations.ts';
import { damageContract } from './damage.ts';
import { inboxContract } from './inbox.ts';
import { leasesContract } from './leases.ts';
import { memoryContract } from './memory.ts';
import { metricsContract } from './metrics.ts';
import { noticesContract } from './notices.ts';
import { orderContract } from './order.ts';
import { pagesContract } from './pages.ts';
import { quotasContract } from './quotas.ts';
import { ratesContract } from './rates.ts';
import { requestRunsContract } from './request-runs.ts';
import { requestsContract } from './requests.ts';
import { schedulesContract } from './schedules.ts';
import { streamsContract } from './streams.ts';
import { textsContract } from './texts.ts';
import type { TempStores } from './temp-stores.ts';

/** The tests that every store has to pass, besides those of its journal (`test/journal/contract`). `cases`: how many times as many cases of properties as the fewest. */
export function storeContract(name: string, tempStore: () => Promise<TempStores>, cases: number): void {
  describe(`${name}: leases`, () => void leasesContract(tempStore));
  describe(`${name}: accepted entries`, () => void appendsContract(tempStore));
  describe(`${name}: damage`, () => void damageContract(tempStore));
  describe(`${name}: texts`, () => void textsContract(tempStore, cases));
  describe(`${name}: requests`, () => void requestsContract(tempStore));
  describe(`${name}: requests and runs`, () => void requestRunsContract(tempStore));
  describe(`${name}: order`, () => void orderContract(tempStore));
  describe(`${name}: accounts`, () => void accountsContract(tempStore));
  describe(`${name}: conversations`, () => void conversationsContract(tempStore));
  describe(`${name}: streams`, () => void streamsContract(tempStore));
  describe(`${name}: pages`, () => void pagesContract(tempStore));
  describe(`${name}: metrics`, () => void metricsContract(tempStore));
  describe(`${name}: memory`, () => void memoryContract(tempStore));
  describe(`${name}: notices`, () => void noticesContract(tempStore));
  describe(`${name}: inbox`, () => void inboxContract(tempStore));
  describe(`${name}: budgets`, () => void budgetsContract(tempStore));
  describe(`${name}: rates`, () => void ratesContract(tempStore));
  describe(`${name}: schedules`, () => void schedulesContract(tempStore));
  describe(`${name}: quotas`, () => void quotasContract(tempStore));
}
