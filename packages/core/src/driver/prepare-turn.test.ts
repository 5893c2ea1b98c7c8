import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

describe('prepareTurn', () => {
  test('changes model, tools, tool choice and instructions of one turn, and is journaled', async () => {
    const journal = memoryJournal();
    const other = { ...scriptedModel(['From the other model.']), id: 'other' };
    using model = scriptedModel([callEcho('a')]);
    const result = await runLoop({
      model,
      models: [other],
      tools: [echo],
      input: 'go',
      journal,
      runId: 'r',
      prepareTurn: ({ turn }) =>
        turn === 1 ? { instructions: 'Be brief.', toolChoice: 'required' } : { model: 'other', tools: [] },
    });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'From the other model.' });
    expect(model.requests[0]).toMatchObject({ instructions: 'Be brief.', toolChoice: 'required' });
    expect(other.requests[0]).toMatchObject({ tools: [], toolChoice: 'auto' });
    const entries = await journal.read('r');
    expect(entries.flatMap(({ event }) => (event.type === 'turn-prepared' ? event.decision : []))).toEqual([
      { instructions: 'Be brief.', toolChoice: 'required' },
      { model: 'other', tools: [] },
    ]);
  });

  test.each([
    [() => ({ tools: ['none'] }), 'there is no tool "none"'],
    [() => ({ model: 'none' }), 'not in "models"'],
    [() => ({ toolChoice: 'bogus' as never }), 'is not a toolChoice'],
    [() => ({ tools: 'echo' as never }), 'not an array of names'],
    [() => Promise.reject(new Error('not prepared')), 'not prepared'],
  ])('fails the run if it throws or returns an invalid value: $1', async (prepareTurn, problem) => {
    const result = await runLoop({ model: scriptedModel([]), tools: [echo], input: 'go', prepareTurn });
    expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'prepare-failed' } });
    expect(JSON.stringify(result.outcome)).toContain(JSON.stringify(problem).slice(1, -1));
  });

  test('does not run a call of a tool that it removed from the turn', async () => {
    using model = scriptedModel([callEcho('a'), 'Done.']);
    const result = await runLoop({ model, tools: [echo], input: 'go', prepareTurn: () => ({ tools: [] }) });
    expect(result).toMatchObject({ calls: 0, outcome: { type: 'completed' } });
  });
});

test('rejects resuming without prepareTurn a run that was started with it', async () => {
  const journal = memoryJournal();
  const ask = tool({ name: 'ask', description: 'Asks the client' });
  const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
  const options = { model, tools: [ask], journal, runId: 'r' };
  await runLoop({ ...options, prepareTurn: () => ({}), input: 'go' });
  const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;
  await expect(runLoop({ ...options, answers })).rejects.toThrow('Pass prepareTurn to resume');
  expect((await runLoop({ ...options, answers, prepareTurn: () => ({}) })).text).toBe('Done.');
});
