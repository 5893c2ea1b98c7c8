/** Judges calls of one subject until the rate denies one, and sends how many it allowed. */
import { policy, type JudgedCall } from '@treadle/core/policy';
import { sqliteStore } from '../src/index.ts';

const [file] = process.argv.slice(2);
const store = sqliteStore(file!);
/** Processes read the clock before they write, so times do not arrive in order. */
let reads = 0;
const clock = { now: () => (reads++ * 7919) % 5000 };
const shared = policy({ rate: { second: 1000, minute: 50 } }, { rates: store.rates, clock });
const call: JudgedCall = {
  id: 'c',
  name: 'look',
  input: {},
  effect: 'pure',
  client: false,
  touches: [],
  permissions: [],
  operation: undefined,
};
const principal = { subject: 'ann', tenant: 'acme', scopes: ['tools:execute'] };
const { signal } = new AbortController();
let allowed = 0;
for (;;) {
  const [verdict] = await shared.judge([call], { runId: 'r', turn: 1, principal, context: undefined, signal });
  if (verdict?.type !== 'allow') break;
  allowed++;
}
await store.close();
process.send!(allowed, () => process.disconnect());
