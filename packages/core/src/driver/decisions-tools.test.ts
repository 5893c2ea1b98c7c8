import { expect, test } from 'vitest';
import { z } from 'zod';
import { textOf, type ResultBlock, type ToolResult } from '../messages.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop } from './run.ts';

const resultsOf = ({ messages }: LoopResult): readonly ToolResult[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
const wordsOf = (result: LoopResult): readonly string[] => resultsOf(result).map(({ content }) => textOf(content));

/** Runs one tool with one call, answers after it, and gives the call's result. */
async function resultOf(execute: () => unknown, options: Partial<LoopOptions> = {}): Promise<ToolResult> {
  using model = scriptedModel([{ calls: [{ name: 'x' }] }, 'Went on.']);
  const result = await runLoop({
    model,
    tools: [tool({ name: 'x', description: 'x', execute })],
    input: 'Go.',
    ...options,
  });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Went on.', turns: 2 });
  return resultsOf(result)[0]!;
}

const failed = (text: string): ToolResult => ({
  type: 'tool-result',
  callId: 'call_0_0',
  name: 'x',
  content: [{ type: 'error', text }],
  isError: true,
});

// ── bad arguments ────────────────────────────────────────────────────────────────────────────────────────────────────

/** Calls `write` with these raw arguments; what the tool got, and the words of the result. */
async function write(
  raw: string,
  finish: 'tool-calls' | 'length' = 'tool-calls',
): Promise<{ got: unknown[]; words: string }> {
  const got: unknown[] = [];
  const writing = tool({
    name: 'write',
    description: 'Writes',
    input: {
      type: 'object',
      properties: {
        path: { type: 'string' },
        lines: { type: 'array', items: { type: 'string' } },
        mode: { type: 'string' },
      },
      required: ['path'],
      additionalProperties: false,
    },
    execute: (input) => (got.push(input), 'written'),
  });
  using model = scriptedModel([{ calls: [{ name: 'write', arguments: raw }], finish }, 'Went on.']);
  const result = await runLoop({ model, tools: [writing], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Went on.' });
  expect(result.messages[1]).toMatchObject({ role: 'assistant', content: [{ type: 'tool-call', arguments: raw }] });
  return { got, words: wordsOf(result)[0]! };
}

test.each([
  ['a code fence', '```json\n{"path": "a"}\n```', { path: 'a' }],
  ['a bare code fence', '```\n{"path": "a"}```', { path: 'a' }],
  ['a BOM', '\uFEFF{"path": "a"}', { path: 'a' }],
  ['trailing commas', '{"path": "a", "lines": ["b", "c",],\n}', { path: 'a', lines: ['b', 'c'] }],
  ['bare control characters in a string', '{"path": "a\nb\tc\u0001"}', { path: 'a\nb\tc\u0001' }],
  ['all at once', '\uFEFF```json\n{"path": "a,]\n",}\n```', { path: 'a,]\n' }],
])('bad arguments: %s is repaired', async (_, raw, input) => {
  expect(await write(raw)).toEqual({ got: [input], words: 'written' });
});

test.each([
  ['an open object', '{"path": "a"'],
  ['an open string', '{"path": "a'],
  ['an open string in a closed object', '{"path": "a}'],
  ['an open array', '{"path": "a", "lines": ["b"'],
  ['an open array in a closed object', '{"path": "a", "lines": ["b"}'],
  ['an open fence around an open object', '```json\n{"path": "a"'],
  ['a missing value', '{"path": }'],
  ['a missing comma', '{"path": "a" "mode": "b"}'],
  ['single quotes', "{'path': 'a'}"],
  ['words before it', 'Sure: {"path": "a"}'],
  ['two objects', '{"path": "a"}{"path": "b"}'],
])('bad arguments: nothing is guessed: %s does not run', async (_, raw) => {
  const { got, words } = await write(raw);
  expect(got).toEqual([]);
  expect(words).toMatch(
    /^The tool "write" was not called\. Its arguments are not valid JSON: .+ Send them again in full\.$/s,
  );
});

test.each([
  ['a list', '["a"]', 'Its arguments are an array, and must be a JSON object.'],
  ['a text', '"a"', 'Its arguments are a string, and must be a JSON object.'],
  ['null', 'null', 'Its arguments are null, and must be a JSON object.'],
])('bad arguments: %s instead of an object does not run', async (_, raw, words) => {
  expect(await write(raw)).toEqual({ got: [], words: `The tool "write" was not called. ${words}` });
});

test('bad arguments: the error names each problem, and what is required and optional', async () => {
  const { got, words } = await write('{"lines": ["a", 1], "mode": 2, "colour": "red"}');
  expect(got).toEqual([]);
  expect(words).toMatch(/^The tool "write" was not called\. Its arguments are not valid: /);
  for (const part of ['path', 'lines.1', 'mode', 'colour']) expect(words).toContain(part);
  expect(words).toMatch(/Required: path\. Optional: lines, mode\.$/);
});

test('bad arguments: no arguments at all are an empty object, which is checked like any other', async () => {
  const { got, words } = await write('');
  expect(got).toEqual([]);
  expect(words).toContain('Required: path');
  expect(await resultOf(() => 'ran')).toMatchObject({ isError: false });
});

test('bad arguments: what a schema makes of them is what the policy and the tool get', async () => {
  const got: unknown[] = [];
  const add = tool({
    name: 'add',
    description: 'Adds',
    input: z.object({ n: z.coerce.number(), by: z.number().default(1) }),
    execute: ({ n, by }) => (got.push({ n, by }), n + by),
  });
  const judged: unknown[] = [];
  using model = scriptedModel([
    {
      calls: [
        { name: 'add', arguments: { n: '41' } },
        { name: 'add', arguments: { n: 'x' } },
      ],
    },
    'Done.',
  ]);
  const policy = {
    judge: (calls: readonly { input: unknown }[]) =>
      calls.map(({ input }) => (judged.push(input), { type: 'allow' as const })),
  };
  const result = await runLoop({ model, tools: [add], input: 'Go.', policy });
  expect([got, judged]).toEqual([[{ n: 41, by: 1 }], [{ n: 41, by: 1 }]]);
  expect(wordsOf(result)).toEqual(['42', expect.stringMatching(/^The tool "add" was not called\. .*n: /)]);
});

test.each(['{"path": "a"', '{"path": "a",}', '```json\n{"path": "a"}\n```', ''])(
  'bad arguments: after finish length there is no repair: %j does not run',
  async (raw) => {
    expect(await write(raw, 'length')).toEqual({
      got: [],
      words: 'The tool "write" was not called. The reply was cut off in the middle of the call. Make the call shorter.',
    });
  },
);

// ── tool throws, times out, returns garbage ──────────────────────────────────────────────────────────────────────────

test.each([
  ['an Error', new Error('no such city'), 'no such city'],
  ['an Error without words', new TypeError(), 'TypeError'],
  ['a text', 'no such city', 'no such city'],
  ['an object', { status: 500 }, '{"status":500}'],
  ['undefined', undefined, 'undefined'],
])('tool throws %s: an error result, and the loop goes on', async (_, thrown, words) => {
  const expected = failed(`The tool "x" failed: ${words}`);
  const throwing = (): never => {
    throw thrown;
  };
  expect(await resultOf(throwing)).toEqual(expected);
  expect(await resultOf(async () => throwing())).toEqual(expected);
});

const cycle: { self?: unknown } = {};
cycle.self = cycle;

test.each([
  ['a function', () => {}],
  ['a symbol', Symbol('x')],
  ['a cycle', cycle],
  ['a big integer', { n: 1n }],
])('tool returns %s: an error result, and the loop goes on', async (_, value) => {
  for (const execute of [() => value, async () => value]) {
    const { isError, content } = await resultOf(execute);
    expect(isError).toBe(true);
    expect(textOf(content)).toMatch(
      /^The tool "x" returned something that has no JSON form \(.+\)\. Its result is lost\.$/s,
    );
  }
});

test.each([
  ['nothing', undefined, [{ type: 'text', text: '(no output)' }]],
  ['null', null, [{ type: 'text', text: 'null' }]],
  ['an object', { temp: 3 }, [{ type: 'text', text: '{"temp":3}' }]],
  ['blocks', { content: [{ type: 'text', text: 'a' }] }, [{ type: 'text', text: 'a' }]],
])('tool returns %s: that is a result', async (_, value, content) => {
  expect(await resultOf(() => value)).toMatchObject({ isError: false, content });
});

test('tool returns an error of its own: it is one', async () => {
  const content: ResultBlock[] = [{ type: 'text', text: 'not found' }];
  expect(await resultOf(() => ({ content, isError: true }))).toMatchObject({ content, isError: true });
});

test('tool returns a value that does not match its output schema: an error result that says what', async () => {
  const lying = tool({
    name: 'x',
    description: 'x',
    output: z.object({ temp: z.number() }),
    execute: () => ({ temp: 'warm' }),
  });
  const { isError, content } = await resultOf(() => {}, { tools: [lying] });
  expect(isError).toBe(true);
  expect(textOf(content)).toMatch(/^The tool "x" returned a value that does not match its output schema: temp: /);
});

const TIMED_OUT = 'timed out after 60000 ms. Ask for less, or try something else.';

test('tool times out: the turn goes on though the tool ignores its signal, and what it gives later is nobody’s', async () => {
  const clock = manualClock();
  const late = Promise.withResolvers<string>();
  const items: Item[] = [];
  let context: { readonly signal: AbortSignal; readonly report: (progress: unknown) => void } | undefined;
  const slow = tool({
    name: 'slow',
    description: 'Slow',
    execute: (_, given) => {
      context = given;
      return late.promise;
    },
  });
  const answering = Promise.withResolvers<string>();
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, () => answering.promise]);
  const run = runLoop({ model, tools: [slow], input: 'Go.', clock, onItem: (item) => items.push(item) });
  await clock.advance(59_999);
  expect(context!.signal.aborted).toBe(false);
  expect(model.requests).toHaveLength(1);
  await clock.advance(1);
  expect(context!.signal.aborted).toBe(true);
  expect(model.requests).toHaveLength(2);
  context!.report('still here');
  late.resolve('late');
  await clock.advance(0);
  answering.resolve('Went on.');
  const result = await run;
  expect(wordsOf(result)).toEqual([`The tool "slow" ${TIMED_OUT}`]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, durationMs: 60_000 });
  expect(items.map(({ type }) => type)).not.toContain('tool-report');
  expect(items.filter(({ type }) => type === 'call-answered')).toHaveLength(1);
  expect(clock.pending).toBe(0);
});

test('tool times out: the tool’s own time goes before the run’s, and the run’s before the default', async () => {
  const clock = manualClock();
  const hang = (name: string, timeoutMs?: number) =>
    tool({ name, description: name, ...(timeoutMs && { timeoutMs }), execute: () => new Promise(() => {}) });
  using model = scriptedModel([{ calls: [{ name: 'own' }, { name: 'other' }] }, 'Done.']);
  const run = runLoop({ model, tools: [hang('own', 100), hang('other')], input: 'Go.', toolTimeoutMs: 300, clock });
  await clock.advance(300);
  const result = await run;
  expect(wordsOf(result)).toEqual([expect.stringContaining('after 100 ms'), expect.stringContaining('after 300 ms')]);
  expect(result.durationMs).toBe(300);
});

test('tool times out: time spent waiting for an approval is not counted', async () => {
  const clock = manualClock();
  const journal = memoryJournal();
  const slow = tool({
    name: 'slow',
    description: 'Takes 90 ms',
    timeoutMs: 100,
    execute: () => new Promise((resolve) => clock.timer(90, () => resolve('in time'))),
  });
  const policy = { judge: () => [{ type: 'ask' } as const] };
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
  const options = { model, tools: [slow], policy, journal, runId: 'run', clock };
  const { waiting } = await runLoop({ ...options, input: 'Go.' });
  await clock.advance(3_600_000);
  const [asked] = waiting;
  if (asked?.type !== 'approval') throw new Error('it does not wait for an approval');
  const { effect, digest } = asked;
  const run = runLoop({ ...options, answers: [{ type: 'approval', effect, digest, approved: true }] });
  await clock.advance(90);
  expect(wordsOf(await run)).toEqual(['in time']);
});

test('a tool that answers in time leaves no timer behind', async () => {
  const clock = manualClock();
  await resultOf(async () => 'quick', { clock });
  expect(clock.pending).toBe(0);
});

// ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

const long = `${'a'.repeat(600)}${'b'.repeat(600)}`;
const kept = `${'a'.repeat(75)}\n[… 1,100 of 1,200 characters left out …]\n${'b'.repeat(25)}`;

test('size: a result over maxResultChars keeps head and tail', async () => {
  expect(await resultOf(() => long, { maxResultChars: 100 })).toMatchObject({
    content: [{ type: 'text', text: kept }],
    isError: false,
  });
  expect(await resultOf(() => long, { maxResultChars: 1_200 })).toMatchObject({
    content: [{ type: 'text', text: long }],
  });
});

test('size: it is 15,000 if nobody says otherwise', async () => {
  const textFrom = async (length: number): Promise<string> =>
    textOf((await resultOf(() => 'x'.repeat(length))).content);
  expect(await textFrom(15_000)).toBe('x'.repeat(15_000));
  expect(await textFrom(15_001)).toContain('[… 1 of 15,001 characters left out …]');
});

test('size: errors are held to it as well, and what is not text is left alone', async () => {
  const image: ResultBlock = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'A'.repeat(500) } };
  expect(await resultOf(() => ({ content: [image] }), { maxResultChars: 10 })).toMatchObject({ content: [image] });
  const thrown = await resultOf(() => Promise.reject(new Error(long)), { maxResultChars: 100 });
  expect(thrown.isError).toBe(true);
  expect(textOf(thrown.content)).toContain('characters left out');
});

test('size: a client’s result is held to it too', async () => {
  const journal = memoryJournal();
  const pick = tool({ name: 'pick', description: 'The client picks' });
  using model = scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']);
  const options = { model, tools: [pick], journal, runId: 'run' };
  await runLoop({ ...options, input: 'Go.', maxResultChars: 100 });
  const answers = [{ type: 'client-result', effect: 't1.client.0', content: long }] as const;
  expect(wordsOf(await runLoop({ ...options, answers }))).toEqual([kept]);
});
