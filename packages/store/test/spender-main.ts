/** Reserves calls of a budget until it is refused. Settles every other one, and sends how many it got. */
import { sqliteStore } from '../src/index.ts';

const [file, run] = process.argv.slice(2);
const store = sqliteStore(file!);
const ledger = store.budgets.ledger(['acme']);
let granted = 0;
for (;;) {
  const key = `${run}/t1.tool.${granted}`;
  const about = { runId: run!, effect: 'call-tool', name: 'spend', context: undefined } as const;
  const { type } = await ledger.reserve(key, { calls: 1 }, about);
  if (type === 'refused') break;
  if (granted++ % 2 === 0) await ledger.settle(key, {});
}
await store.close();
process.send!(granted, () => process.disconnect());
