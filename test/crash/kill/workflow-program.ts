/**
 * The workflow of examples/workflow.ts in a process that is killed: `node --conditions=treadle-source workflow-program.ts
 * FOLDER STORE LINES`. What it does outside is one write under the key of the call, so it is done or not, and never unknown.
 */
import { replay, runLoop, waiting } from '@treadle/core';
import { openStore } from '@treadle/store';
import { approvals, workflow } from '../../../examples/workflow.ts';
import { report, reportingStore, storeUrl, toolLedger } from './reporting.ts';

const done = new Set(toolLedger.read().map(({ key }) => key));
const { model, tools } = workflow({
  isDone: (key) => done.has(key),
  act(key, what) {
    // Few lines are about the 500 calls of the map, so that the other steps are killed as often.
    const isReported = what !== 'reserve_item' || key.endsWith('0');
    if (isReported) report(`before ${what} ${key}`);
    const effect = what === 'charge' ? 'once' : 'idempotent';
    // The outside system accepts each key once. It would also record a second charge.
    if (effect === 'idempotent' && done.has(key)) return;
    toolLedger.write({ type: 'end', effect, key });
    done.add(key);
    if (isReported) report(`after ${what} ${key}`);
  },
});

const store = await openStore(storeUrl);
const reporting = reportingStore(store);
const journal: typeof reporting = {
  ...reporting,
  append(runId, entries, ...rest) {
    const isOfMap = entries.every(({ seq, event }) => {
      return event.type === 'tool-settled' && runId === 'run' && /^t[2-6]\./.test(event.effect) && seq % 25 > 0;
    });
    return (isOfMap ? store : reporting).append(runId, entries, ...rest);
  },
};
const run = { model, tools, journal, runId: 'run' };
const entries = await store.read('run');
const answers = approvals({ waiting: waiting(replay(entries).state) });
const input = JSON.stringify({ order: '7' });
const result = await runLoop(entries.length === 0 ? { ...run, input } : { ...run, answers });
await store.close();
report(result.outcome ? 'ended' : 'paused');
