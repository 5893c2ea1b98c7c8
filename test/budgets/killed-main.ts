/** Drives a run with a journal and a budget in a store, and kills itself in the middle of an effect. */
import { runLoop, tool, type Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { openStore } from '@treadle/store';

const [url, where] = process.argv.slice(2);

function die(): never {
  process.kill(process.pid, 'SIGKILL');
  throw new Error('still alive');
}

const store = await openStore(url!);
const scripted = scriptedModel([{ calls: [{ name: 'pay' }] }]);
const model: Model = where === 'model' ? { ...scripted, reply: die } : scripted;
const pay = tool({ name: 'pay', description: 'Pays', effect: 'idempotent', execute: die });
await runLoop({
  model,
  tools: [pay],
  ledger: store.budgets.ledger(['acme']),
  settings: { maxOutputTokens: 100 },
  journal: store,
  runId: 'bill',
  input: 'Pay.',
});
