import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import { runLoop, streamLoop, tool } from '../index.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { diffRuns } from './diff.ts';
import { forkRun } from './fork.ts';

describe('forkRun', () => {
  const script = [callEcho('a'), callEcho('b'), 'Done.'];

  async function original(): Promise<ReturnType<typeof memoryJournal>> {
    const journal = memoryJournal();
    await runLoop({ model: scriptedModel(script), tools: [echo], input: 'go', journal, runId: 'r' });
    return journal;
  }

  test('creates a run that ends the same with the same replies, at any entry', async () => {
    const journal = await original();
    const entries = await journal.read('r');
    for (const { seq } of entries) {
      const fork = await forkRun({ journal, runId: 'r', at: seq });
      const replies = (await journal.read(fork)).filter(({ event }) => event.type === 'model-replied').length;
      using model = scriptedModel(script.slice(replies));
      const result = await runLoop({ model, tools: [echo], journal, runId: fork });
      expect(result, `at ${seq}`).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 3 });
      expect((await journal.read(fork))[0]!.event).toMatchObject({ parent: { runId: 'r', seq } });
    }
  });

  test('applies changes of model, instructions and tools, and a replaced result', async () => {
    const journal = await original();
    const results = { 't1.tool.0': 'something else' };
    const changes = { model: 'scripted', instructions: 'Anew.', tools: [], results };
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes });
    using model = scriptedModel(['Another answer.']);
    const result = await runLoop({ model, journal, runId: fork });
    expect(result.text).toBe('Another answer.');
    expect(model.requests[0]).toMatchObject({ instructions: 'Anew.', tools: [] });
    expect(JSON.stringify(result.messages)).toContain('something else');
    const { same, rest } = diffRuns(await journal.read('r'), await journal.read(fork));
    expect(same).toBe(2);
    expect(rest[0]).toMatchObject({ a: { event: { type: 'tool-settled' } }, b: { event: { type: 'tool-settled' } } });
  });

  test('calls the model again after a replaced result, and copies the other results of the turn', async () => {
    const journal = memoryJournal();
    const both = { calls: [...callEcho('a').calls, ...callEcho('b').calls] };
    await runLoop({ model: scriptedModel([both, 'Done.']), tools: [echo], input: 'go', journal, runId: 'r' });
    const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { results: { 't1.tool.0': 'c' } } });
    using model = scriptedModel(['Another answer.']);
    const result = await runLoop({ model, tools: [echo], journal, runId: fork });
    expect(result.text).toBe('Another answer.');
    expect(result.messages[2]).toMatchObject({ content: [{ content: [{ text: 'c' }] }, { content: [{ text: 'b' }] }] });
  });

  test('copies the blobs of the original run', async () => {
    const journal = memoryJournal();
    const model = scriptedModel([callEcho('x'.repeat(50)), 'Done.']);
    await runLoop({ model, tools: [echo], input: 'go', journal, runId: 'r', maxResultChars: 20 });
    const ids = await journal.blobs.list('r');
    expect(ids).toHaveLength(1);
    const fork = await forkRun({ journal, runId: 'r', at: 1 });
    expect(await journal.blobs.read(fork, ids[0]!, 0, 50)).toMatchObject({ length: 50 });
  });

  test('replaces the result of a client tool', async () => {
    const journal = memoryJournal();
    const ask = tool({ name: 'ask', description: 'Asks the client' });
    const options = { tools: [ask], journal };
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
    await runLoop({ ...options, model, runId: 'c', input: 'go' });
    const effect = 't1.client.0';
    await runLoop({ ...options, model, runId: 'c', answers: [{ type: 'client-result', effect, content: 'no' }] });
    const fork = await forkRun({ journal, runId: 'c', at: 2, changes: { results: { [effect]: 'yes' } } });
    const result = await runLoop({ ...options, model: scriptedModel(['Anew.']), runId: fork });
    expect(result.text).toBe('Anew.');
    expect(JSON.stringify(result.messages)).toContain('"yes"');
  });

  test('truncates a replaced result, and rejects changes after the end of the run', async () => {
    const journal = await original();
    const fork = await forkRun({
      journal,
      runId: 'r',
      at: 2,
      changes: { results: { 't1.tool.0': 'x'.repeat(99_999) } },
    });
    const [, , settled] = await journal.read(fork);
    expect(JSON.stringify(settled).length).toBeLessThan(16_000);
    await expect(forkRun({ journal, runId: 'r', at: 5, changes: { instructions: 'Anew.' } })).rejects.toThrow(
      'has ended',
    );
  });

  test('rejects unknown runs, entries and results, and reports why', async () => {
    const journal = await original();
    const fork = (at: number, changes = {}): Promise<string> => forkRun({ journal, runId: 'r', at, changes });
    await expect(fork(99)).rejects.toThrow('it has the entries 0 to 5, not 99');
    await expect(fork(1, { results: { 't1.tool.0': 'x' } })).rejects.toThrow('no call "t1.tool.0"');
    await expect(forkRun({ journal, runId: 'none', at: 0 })).rejects.toMatchObject({ code: 'unknown-run' });
  });
});

describe('forkRun does not run a call twice', () => {
  test('rejects a fork while an idempotent or verifiable call is outstanding', async () => {
    const journal = memoryJournal();
    const never = new Promise<string>(() => {});
    const calls = ['idempotent', 'verifiable', 'once', 'pure'].map((name) => ({ name }));
    const tools = calls.map(({ name }) =>
      tool({
        name,
        description: '',
        effect: name === 'verifiable' ? 'once' : (name as 'once'),
        execute: () => never,
        ...(name === 'verifiable' && { verify: () => ({ type: 'not-done' as const }) }),
      }),
    );
    for (const call of calls) {
      const run = streamLoop({
        model: scriptedModel([{ calls: [call] }]),
        tools,
        input: 'go',
        journal,
        runId: call.name,
      });
      await new Promise((resolve) => void setImmediate(resolve));
      await run.detach();
    }
    const fork = (runId: string): Promise<string> => forkRun({ journal, runId, at: 1 });
    const why = '"t1.tool.0" is outstanding and has no result that the fork could use';
    await expect(fork('idempotent')).rejects.toThrow(why);
    await expect(fork('verifiable')).rejects.toThrow(`${why}. Resume the run until it has one, or fork before entry 1`);
    await expect(fork('once')).resolves.toBeDefined();
    await expect(fork('pure')).resolves.toBeDefined();
  });
});

test('a fork that copies a truncated result offers read_result', async () => {
  const journal = memoryJournal();
  const big = tool({ name: 'big', description: '', effect: 'pure', execute: () => 'x'.repeat(50) });
  const options = { journal, tools: [big], maxResultChars: 20 };
  await runLoop({ ...options, runId: 'r', model: scriptedModel([{ calls: [{ name: 'big' }] }, 'Done.']), input: 'go' });
  const toolNames = async (runId: string): Promise<readonly string[]> => {
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
  expect(await toolNames(await forkRun({ journal, runId: 'r', at: 1, changes: { model: 'other' } }))).toEqual([
    'big',
    'read_result',
  ]);
  expect(await toolNames(await forkRun({ journal, runId: 'r', at: 3, changes: { tools: [big] } }))).toEqual([
    'big',
    'read_result',
  ]);
});
