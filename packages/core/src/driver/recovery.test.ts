import { expect, test } from 'vitest';
import { agentTool, forkRun, Parked, runLoop, streamLoop, tool, type Tool } from '../index.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';

const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const calling = (name: string, input = {}): { calls: { name: string; arguments: unknown }[] } => ({
  calls: [{ name, arguments: input }],
});
const hanging = (name: string): Tool =>
  tool({ name, description: '', effect: 'pure', execute: () => new Promise(() => {}) });

test('the time that nobody drove a run is not counted, also when it goes on with other tools', async () => {
  const journal = memoryJournal();
  const clock = manualClock(1_000);
  const options = { journal, runId: 'r', clock, limits: { durationMs: 60_000 } };
  const run = streamLoop({ ...options, model: scriptedModel([calling('old')]), tools: [hanging('old')], input: 'go' });
  await clock.advance(500);
  await run.detach();
  await clock.advance(3_600_000);
  const model = scriptedModel(['Done.']);
  const result = await runLoop({ ...options, model, tools: [], acceptChangedTools: true });
  expect(result).toMatchObject({ outcome: { type: 'completed' } });
  expect(result.durationMs).toBeLessThanOrEqual(500);
});

test('a call that goes on elsewhere is taken up whenever its run goes on', async () => {
  const journal = memoryJournal();
  const keys: string[] = [];
  let ready = false;
  const job = tool({
    name: 'job',
    description: '',
    effect: 'idempotent',
    execute: (_, { key }) => (keys.push(key), ready ? 'printed' : new Parked('printer/7')),
  });
  const options = { journal, runId: 'r', tools: [job] };
  const paused = await runLoop({ ...options, model: scriptedModel([calling('job')]), input: 'go' });
  expect(paused.waiting).toMatchObject([{ type: 'parked', on: 'printer/7' }]);
  expect((await runLoop({ ...options, model: scriptedModel([]) })).waiting).toMatchObject([{ type: 'parked' }]);
  ready = true;
  expect(await runLoop({ ...options, model: scriptedModel(['Done.']) })).toMatchObject({ text: 'Done.' });
  expect(keys).toEqual(['r/t1.tool.0', 'r/t1.tool.0', 'r/t1.tool.0']);
});

test('a call that goes on elsewhere and acts once is left alone', async () => {
  const journal = memoryJournal();
  const job = tool({ name: 'job', description: '', execute: () => new Parked('printer/7') });
  const options = { journal, runId: 'r', tools: [job] };
  await runLoop({ ...options, model: scriptedModel([calling('job')]), input: 'go' });
  const again = await runLoop({ ...options, model: scriptedModel([]) });
  expect(again.waiting).toMatchObject([{ type: 'parked', on: 'printer/7' }]);
  expect(await journal.read('r')).toHaveLength(3);
});

test('a child that was under way when its parent was left is cancelled with it, though it has not begun again', async () => {
  const journal = memoryJournal();
  const child = (): Tool =>
    agentTool({ name: 'helper', description: '', model: scriptedModel([calling('hang')]), tools: [hanging('hang')] });
  const options = { journal, runId: 'p' };
  const model = scriptedModel([calling('helper', { task: 'help' })]);
  const run = streamLoop({ ...options, model, tools: [child()], input: 'go' });
  await settled();
  await run.detach();
  await settled();
  expect((await journal.list()).map(({ status }) => status)).toEqual(['running', 'running']);
  await runLoop({ ...options, model: scriptedModel([]), tools: [child()], signal: AbortSignal.abort() });
  expect((await journal.list()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled']);
});

test('a child that has not begun when its parent is cancelled never does', async () => {
  const journal = memoryJournal();
  const child = agentTool({ name: 'helper', description: '', model: scriptedModel([]) });
  const run = streamLoop({
    journal,
    runId: 'p',
    model: scriptedModel([calling('helper', { task: 'help' })]),
    tools: [child],
    policy: { judge: (calls) => (run.cancel(), calls.map(() => ({ type: 'allow' }))) },
    input: 'go',
  });
  expect((await run.result).outcome).toMatchObject({ type: 'cancelled' });
  expect(await journal.list()).toHaveLength(1);
});

test('a journal that fails for a run does not cancel its child', async () => {
  const journal = memoryJournal();
  let gone = false;
  const failing: typeof journal = {
    ...journal,
    append(runId, entries, lease) {
      if (gone && runId === 'p') throw new Error('the disk is gone');
      return journal.append(runId, entries, lease);
    },
  };
  const model = scriptedModel([calling('hang')]);
  const child = agentTool({ name: 'helper', description: '', model, tools: [hanging('hang')] });
  const look = tool({
    name: 'look',
    description: '',
    execute: async () => {
      await settled();
      gone = true;
    },
  });
  const both = { calls: [{ name: 'helper', arguments: { task: 'help' } }, { name: 'look' }] };
  const run = runLoop({
    journal: failing,
    runId: 'p',
    model: scriptedModel([both]),
    tools: [child, look],
    input: 'go',
  });
  await expect(run).rejects.toMatchObject({ code: 'journal-failed' });
  await settled();
  expect(await journal.list({ parent: 'p' })).toMatchObject([{ status: 'running', entries: 2 }]);
});

test('a fork that takes over a result which was too long has the tool to read it', async () => {
  const journal = memoryJournal();
  const big = tool({ name: 'big', description: '', effect: 'pure', execute: () => 'x'.repeat(50) });
  const options = { journal, tools: [big], maxResultChars: 20 };
  await runLoop({ ...options, runId: 'r', model: scriptedModel([calling('big'), 'Done.']), input: 'go' });
  const names = async (runId: string): Promise<readonly string[]> => {
    const model = scriptedModel(['Done.']);
    await runLoop({ journal, runId, model, tools: [big] });
    return model.requests[0]!.tools.map(({ name }) => name);
  };
  const entries = await journal.read('r');
  expect(entries.map(({ event }) => event.type).slice(1, 4)).toEqual([
    'model-replied',
    'tools-changed',
    'tool-settled',
  ]);
  expect(await names(await forkRun({ journal, runId: 'r', at: 1, changes: { model: 'other' } }))).toEqual([
    'big',
    'read_result',
  ]);
  expect(await names(await forkRun({ journal, runId: 'r', at: 3, changes: { tools: [big] } }))).toEqual([
    'big',
    'read_result',
  ]);
});
