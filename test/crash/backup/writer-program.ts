/**
 * Writes to a store under load: `node --conditions=treadle-source writer-program.ts FILE NAME`. Starts a run that never
 * ends, and then one run after the other. Sends the id of each run that has ended to its parent, until it is killed.
 */
import { runLoop, startLoop } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { MODEL, TOOLS } from './runs.ts';

const [file, name] = process.argv.slice(2);
const journal = sqliteStore(file!);
startLoop({ model: MODEL, tools: TOOLS, journal, runId: `${name}-waiting`, input: 'wait' });
for (let count = 0; ; count++) {
  const runId = `${name}-${count}`;
  await runLoop({ model: MODEL, tools: TOOLS, journal, runId, input: `go ${runId}` });
  process.send!(runId);
}
