import { expect, test } from 'vitest';
import { runLoop } from '../driver/run.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { TreadleError } from '../errors.ts';
import { scriptedModel } from '../testing/index.ts';
import { childRuns } from './family.ts';
import { forkRun } from './fork.ts';
import { memoryJournal } from './memory.ts';

test('a damaged fork does not hide the child runs of the original', async () => {
  const journal = memoryJournal();
  const child = agentTool({ name: 'child', description: 'works', model: scriptedModel(['Done.']) });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'Go.' } }] }, 'Done.']);
  await runLoop({ model, tools: [child], journal, runId: 'run', input: 'Go.' });
  await forkRun({ journal, runId: 'run', at: 0, newRunId: 'fork' });
  const damaged = new TreadleError('journal-damaged', 'The fork is damaged.');
  const store = {
    list: journal.list,
    read: (runId: string) => (runId === 'fork' ? Promise.reject(damaged) : journal.read(runId)),
  };
  expect(await childRuns(store, 'run')).toMatchObject([{ runId: 'run.t1.tool.0', status: 'completed' }]);
});
