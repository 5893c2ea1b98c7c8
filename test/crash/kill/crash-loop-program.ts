/**
 * Drives the run `run` in the store of a folder. Its tool ends the process: `die` kills it, `detach` detaches cleanly.
 * Prints the outcome if the run ends.
 */
import { appendFileSync } from 'node:fs';
import path from 'node:path';
import { streamLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';

const [folder, how, resumed] = process.argv.slice(2) as [string, 'die' | 'detach', string?];
const store = sqliteStore(path.join(folder, 'runs.db'));
const act = tool({
  name: 'act',
  description: 'Ends the process',
  effect: 'pure',
  execute() {
    appendFileSync(path.join(folder, 'attempts'), `${how}\n`);
    if (how === 'die') process.kill(process.pid, 'SIGKILL');
    void run.detach();
    return new Promise(() => {});
  },
});
const code = { tools: [act], journal: store, runId: 'run' };
const run = streamLoop(
  resumed === undefined
    ? { ...code, model: scriptedModel([{ calls: [{ name: 'act' }] }]), input: 'Go.' }
    : { ...code, model: scriptedModel([]) },
);
const { outcome } = await run.result;
await store.close();
process.stdout.write(JSON.stringify(outcome ?? { type: 'detached' }));
