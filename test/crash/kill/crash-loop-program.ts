/**
 * Starts or resumes the run `run` in a store. Its tool ends the process: `die` kills it when the call is
 * written, `die-at-once` does not wait for that, and `detach` detaches cleanly. Prints the outcome if the run ends.
 */
import { appendFileSync } from 'node:fs';
import { streamLoop, tool } from '@treadle/core';
import { openStore } from '@treadle/store';
import { keyedModel } from '../keyed-model.ts';

const [url, attempts, how] = process.argv.slice(2) as [string, string, 'die' | 'die-at-once' | 'detach'];
const store = await openStore(url);
const act = tool({
  name: 'act',
  description: 'Ends the process',
  effect: 'pure',
  async execute() {
    appendFileSync(attempts, `${how}\n`);
    if (how === 'die-at-once') process.kill(process.pid, 'SIGKILL');
    await store.read('run'); // writes what is accepted
    if (how === 'die') process.kill(process.pid, 'SIGKILL');
    void run.detach();
    return new Promise(() => {});
  },
});
const model = keyedModel({ 't1.model.0': { calls: [['act', {}]] } });
const crashLimit = how === 'die-at-once' ? 2 : 5;
const run = streamLoop({ model, tools: [act], journal: store, runId: 'run', input: 'Go.', resume: 'auto', crashLimit });
const { outcome } = await run.result;
await store.close();
process.stdout.write(JSON.stringify(outcome ?? { type: 'detached' }));
