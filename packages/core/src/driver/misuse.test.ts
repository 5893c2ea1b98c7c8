import { describe, expect, test } from 'vitest';
import { runLoop, tool, TreadleError, type LoopOptions, type ToolDefinition } from '../index.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';

const good = { model: scriptedModel([]), input: 'go' };

/** What only a program without types can do. */
const start = (options: unknown): Promise<unknown> => runLoop(options as LoopOptions);

describe('options that can never work are refused at once, with a code and what to do', () => {
  test.each([
    ['nothing at all', undefined, 'There is no model'],
    ['tools that are no list', { ...good, tools: {} }, 'Give an array'],
    ['a tool that is missing', { ...good, tools: [undefined] }, 'tools[0] is not a tool'],
    ['a tool not made by tool()', { ...good, tools: [{ name: 'raw', description: 'x' }] }, 'Make it with tool('],
    ['a signal that is none', { ...good, signal: {} }, 'AbortController'],
    ['a choice that is none', { ...good, toolChoice: 'sometimes' }, 'Use auto, required, none'],
    ['a choice without a name', { ...good, toolChoice: {} }, '{ tool: name }'],
    ['an empty task', { ...good, input: ' ' }, 'Pass a text'],
    ['a call in the mouth of the user', { ...good, input: [{ role: 'user', content: [call()] }] }, 'message 0'],
    ['a picture from nowhere', { ...good, input: [{ role: 'user', content: [picture()] }] }, 'message 0'],
  ])('%s', async (_, options, remedy) => {
    const error = await start(options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(TreadleError);
    expect((error as TreadleError).message).toContain(remedy);
  });

  test.each([
    ['null', null, 'is not accepted by providers'],
    ['an execute that is no function', { execute: 'ls' }, 'Give a function'],
    ['an input that is no object', { input: { type: 'string' } }, 'define its properties'],
    ['a timeout without end', { timeoutMs: Infinity }, 'Give a number above 0'],
    ['an effect that is none', { effect: 'twice' }, 'Use pure, idempotent, once'],
  ])('tool(): %s', (_, definition, remedy) => {
    const make = (): unknown => tool((definition && { name: 'a', description: 'a', ...definition }) as ToolDefinition);
    expect(make).toThrow(TreadleError);
    expect(make).toThrow(remedy);
  });
});

function call(): unknown {
  return { type: 'tool-call', id: 'a', name: 'a', arguments: '{}' };
}

function picture(): unknown {
  return { type: 'image', mediaType: 'image/png' };
}

test('what was given to a run is its own from then on', async () => {
  const journal = memoryJournal();
  const part = { type: 'text' as const, text: 'go' };
  const change = tool({ name: 'change', description: 'x', execute: () => ((part.text = 'changed'), 'done') });
  const model = scriptedModel([{ calls: [{ name: 'change' }] }, 'Done.']);
  const input = [{ role: 'user' as const, content: [part] }];
  const result = await runLoop({ model, tools: [change], input, journal, runId: 'r' });
  expect(result.messages[0]).toEqual({ role: 'user', content: [{ type: 'text', text: 'go' }] });
  expect((await runLoop({ model, tools: [change], journal, runId: 'r' })).outcome).toEqual({ type: 'completed' });
});

test('a policy says whether a call runs, and cannot change what runs', async () => {
  const seen: unknown[] = [];
  const count = tool({
    name: 'count',
    description: 'x',
    input: { type: 'object', properties: { n: { type: 'number' } } },
    execute: ({ n }) => (seen.push(n), 'ok'),
  });
  const judge = (calls: readonly { input: unknown }[]): { type: 'allow' }[] => {
    (calls[0]!.input as { n: number }).n = 99;
    return [{ type: 'allow' }];
  };
  const model = scriptedModel([{ calls: [{ name: 'count', arguments: { n: 1 } }] }, 'Done.']);
  await runLoop({ model, tools: [count], input: 'go', policy: { judge } });
  expect(seen).toEqual([1]);
});

test('an approval that is not plainly a yes is a no', async () => {
  const journal = memoryJournal();
  let ran = 0;
  const act = tool({ name: 'act', description: 'x', execute: () => `${++ran}` });
  const policy = { judge: () => [{ type: 'ask' as const }] };
  const model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
  const options = { model, tools: [act], policy, journal, runId: 'r' };
  const [wait] = (await runLoop({ ...options, input: 'go' })).waiting;
  if (wait?.type !== 'approval') throw new Error('it should ask');
  const { effect, digest } = wait;
  await runLoop({ ...options, answers: [{ type: 'approval', effect, digest, approved: 'no' as never }] });
  expect(ran).toBe(0);
});

test('names that no provider would take back are made ones that they do', async () => {
  const names = ['', 'read file!', 'x'.repeat(80), 'ünï'];
  const model = scriptedModel([{ calls: names.map((name) => ({ name })) }, 'Done.']);
  const result = await runLoop({ model, input: 'go' });
  const called = result.messages.flatMap(({ role, content }) =>
    role === 'assistant' ? content.flatMap((part) => (part.type === 'tool-call' ? part.name : [])) : [],
  );
  expect(called).toEqual(['unnamed', 'read_file_', 'x'.repeat(64), '_n_']);
});

test('arguments of nothing but white space cost what their length is', async () => {
  const { parseArguments } = await import('../tools/execute.ts');
  const parsed = parseArguments(`{"a":${'\n'.repeat(1_000_000)}x}`, false);
  expect(parsed.type).toBe('problem');
  expect(parseArguments('```json\n{"a":1}\n```', false)).toMatchObject({ type: 'parsed', value: { a: 1 } });
});

test('a limit of tokens on a model that tells of none cannot be held, and says so', async () => {
  const usage = { inputTokens: 0, outputTokens: 0 };
  const echo = tool({ name: 'echo', description: 'x', effect: 'pure', execute: () => 'ok' });
  const model = scriptedModel([{ calls: [{ name: 'echo' }], usage }]);
  const result = await runLoop({ model, tools: [echo], input: 'go', limits: { tokens: 100 } });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'tokens-unknown' } });
});
