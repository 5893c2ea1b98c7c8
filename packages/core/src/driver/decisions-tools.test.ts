import { expect, test } from 'vitest';
import { z } from 'zod';
import { resultsOf, resultTexts } from '../../test/results.ts';
import { textOf, type ResultBlock, type ToolResult } from '../messages.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from '../journal/items.ts';
import type { LoopOptions } from './options.ts';
import { runLoop } from './run.ts';

/** Runs one call of a tool, and returns its result. Expects that the run continues and completes. */
async function resultOf(execute: () => unknown, options: Partial<LoopOptions> = {}): Promise<ToolResult> {
  using model = scriptedModel([{ calls: [{ name: 'x' }] }, 'Continued.']);
  const result = await runLoop({
    model,
    tools: [tool({ name: 'x', description: 'x', execute })],
    input: 'Go.',
    ...options,
  });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Continued.', turns: 2 });
  return resultsOf(result)[0]!;
}

const failed = (text: string): ToolResult => ({
  type: 'tool-result',
  callId: 'call_0_0',
  name: 'x',
  content: [{ type: 'error', text }],
  isError: true,
  errorType: 'execution_failed',
});

// ── bad arguments ────────────────────────────────────────────────────────────────────────────────────────────────────

/** Calls `write` with these raw arguments. Returns the inputs of the tool, and the text of the result. */
async function write(
  raw: string,
  finish: 'tool-calls' | 'length' = 'tool-calls',
): Promise<{ inputs: unknown[]; text: string }> {
  const inputs: unknown[] = [];
  const writeTool = tool({
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
    execute: (input) => (inputs.push(input), 'written'),
  });
  using model = scriptedModel([{ calls: [{ name: 'write', arguments: raw }], finish }, 'Continued.']);
  const result = await runLoop({ model, tools: [writeTool], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Continued.' });
  expect(result.messages[1]).toMatchObject({ role: 'assistant', content: [{ type: 'tool-call', arguments: raw }] });
  return { inputs, text: resultTexts(result)[0]! };
}

test.each([
  ['a code fence', '```json\n{"path": "a"}\n```', { path: 'a' }],
  ['a bare code fence', '```\n{"path": "a"}```', { path: 'a' }],
  ['a BOM', '\uFEFF{"path": "a"}', { path: 'a' }],
  ['trailing commas', '{"path": "a", "lines": ["b", "c",],\n}', { path: 'a', lines: ['b', 'c'] }],
  ['bare control characters in a string', '{"path": "a\nb\tc\u0001"}', { path: 'a\nb\tc\u0001' }],
  ['all of these at once', '\uFEFF```json\n{"path": "a,]\n",}\n```', { path: 'a,]\n' }],
])('bad arguments: repairs %s', async (_, raw, input) => {
  expect(await write(raw)).toEqual({ inputs: [input], text: 'written' });
});

test.each([
  ['an unclosed object', '{"path": "a"'],
  ['an unclosed string', '{"path": "a'],
  ['an unclosed string in a closed object', '{"path": "a}'],
  ['an unclosed array', '{"path": "a", "lines": ["b"'],
  ['an unclosed array in a closed object', '{"path": "a", "lines": ["b"}'],
  ['an unclosed fence around an unclosed object', '```json\n{"path": "a"'],
  ['a missing value', '{"path": }'],
  ['a missing comma', '{"path": "a" "mode": "b"}'],
  ['single quotes', "{'path': 'a'}"],
  ['text before the object', 'Sure: {"path": "a"}'],
  ['two objects', '{"path": "a"}{"path": "b"}'],
])('bad arguments: does not repair %s, and does not run the call', async (_, raw) => {
  const { inputs, text } = await write(raw);
  expect(inputs).toEqual([]);
  expect(text).toMatch(
    /^The tool "write" was not called\. Its arguments are not valid JSON: .+ Send them again in full\.$/s,
  );
});

test.each([
  ['an array', '["a"]', 'Its arguments are an array, and must be a JSON object.'],
  ['a string', '"a"', 'Its arguments are a string, and must be a JSON object.'],
  ['null', 'null', 'Its arguments are null, and must be a JSON object.'],
])('bad arguments: does not run a call with %s instead of an object', async (_, raw, problem) => {
  expect(await write(raw)).toEqual({ inputs: [], text: `The tool "write" was not called. ${problem}` });
});

test('bad arguments: the error result names each problem, and the required and optional properties', async () => {
  const { inputs, text } = await write('{"lines": ["a", 1], "mode": 2, "colour": "red"}');
  expect(inputs).toEqual([]);
  expect(text).toMatch(/^The tool "write" was not called\. Its arguments are not valid: /);
  for (const part of ['path', 'lines.1', 'mode', 'colour']) expect(text).toContain(part);
  expect(text).toMatch(/Required: path\. Optional: lines, mode\.$/);
});

test('bad arguments: treats missing arguments as an empty object, and validates it', async () => {
  const { inputs, text } = await write('');
  expect(inputs).toEqual([]);
  expect(text).toContain('Required: path');
  expect(await resultOf(() => 'ran')).toMatchObject({ isError: false });
});

test('bad arguments: the policy and the tool get the value that the schema returns', async () => {
  const inputs: unknown[] = [];
  const add = tool({
    name: 'add',
    description: 'Adds',
    input: z.object({ n: z.coerce.number(), by: z.number().default(1) }),
    execute: ({ n, by }) => (inputs.push({ n, by }), n + by),
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
  expect([inputs, judged]).toEqual([[{ n: 41, by: 1 }], [{ n: 41, by: 1 }]]);
  expect(resultTexts(result)).toEqual(['42', expect.stringMatching(/^The tool "add" was not called\. .*n: /)]);
});

test.each(['{"path": "a"', '{"path": "a",}', '```json\n{"path": "a"}\n```', ''])(
  'bad arguments: does not repair or run %j in a reply that was cut off',
  async (raw) => {
    expect(await write(raw, 'length')).toEqual({
      inputs: [],
      text: 'The tool "write" was not called. The reply was cut off in the middle of the call. Make the call shorter.',
    });
  },
);

// ── tool throws, times out, returns an invalid value ─────────────────────────────────────────────────────────────────

test.each([
  ['an Error', new Error('no such city'), 'no such city'],
  ['an Error without a message', new TypeError(), 'TypeError'],
  ['a string', 'no such city', 'no such city'],
  ['an object', { status: 500 }, '{"status":500}'],
  ['undefined', undefined, 'undefined'],
])('tool throws %s: the call gets an error result, and the loop continues', async (_, thrown, message) => {
  const expected = failed(`The tool "x" failed: ${message}`);
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
])('tool returns %s: the call gets an error result, and the loop continues', async (_, value) => {
  for (const execute of [() => value, async () => value]) {
    const { isError, content } = await resultOf(execute);
    expect(isError).toBe(true);
    expect(textOf(content)).toMatch(
      /^The tool "x" returned something that has no JSON form \(.+\)\. Its result is lost\.$/s,
    );
  }
});

test.each([
  ['undefined', undefined, [{ type: 'text', text: '(no output)' }]],
  ['null', null, [{ type: 'text', text: 'null' }]],
  ['an object', { temp: 3 }, [{ type: 'text', text: '{"temp":3}' }]],
  ['content blocks', { content: [{ type: 'text', text: 'a' }] }, [{ type: 'text', text: 'a' }]],
])('tool returns %s: the call gets a result', async (_, value, content) => {
  expect(await resultOf(() => value)).toMatchObject({ isError: false, content });
});

test('tool returns isError: the call gets an error result', async () => {
  const content: ResultBlock[] = [{ type: 'text', text: 'not found' }];
  expect(await resultOf(() => ({ content, isError: true }))).toMatchObject({ content, isError: true });
});

test('tool returns a value that does not match its output schema: the error result names the problem', async () => {
  const mistyped = tool({
    name: 'x',
    description: 'x',
    output: z.object({ temp: z.number() }),
    execute: () => ({ temp: 'warm' }),
  });
  const { isError, content } = await resultOf(() => {}, { tools: [mistyped] });
  expect(isError).toBe(true);
  expect(textOf(content)).toMatch(/^The tool "x" returned a value that does not match its output schema: temp: /);
});

const TIMED_OUT =
  'timed out after 60000 ms, and it is not known whether it took effect. Find out before you call it again.';

test('tool times out: the turn continues although the tool ignores its signal, and a late result is ignored', async () => {
  const clock = manualClock();
  const late = Promise.withResolvers<string>();
  const items: Item[] = [];
  let context: { readonly signal: AbortSignal; readonly report: (progress: unknown) => void } | undefined;
  const slow = tool({
    name: 'slow',
    description: 'Slow',
    execute: (_, toolContext) => {
      context = toolContext;
      return late.promise;
    },
  });
  const reply = Promise.withResolvers<string>();
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, () => reply.promise]);
  const run = runLoop({ model, tools: [slow], input: 'Go.', clock, onItem: (item) => items.push(item) });
  await clock.advance(59_999);
  expect(context!.signal.aborted).toBe(false);
  expect(model.requests).toHaveLength(1);
  await clock.advance(1);
  expect(context!.signal.aborted).toBe(true);
  expect(model.requests).toHaveLength(2);
  context!.report('late progress');
  late.resolve('late');
  await clock.advance(0);
  reply.resolve('Continued.');
  const result = await run;
  expect(resultTexts(result)).toEqual([`The tool "slow" ${TIMED_OUT}`]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, durationMs: 60_000 });
  expect(items.map(({ type }) => type)).not.toContain('tool-report');
  expect(items.filter(({ type }) => type === 'call-answered')).toHaveLength(1);
  expect(clock.pending).toBe(0);
});

test('tool times out: the timeout of the tool overrides that of the run, which overrides the default', async () => {
  const clock = manualClock();
  const hang = (name: string, timeoutMs?: number) =>
    tool({ name, description: name, ...(timeoutMs && { timeoutMs }), execute: () => new Promise(() => {}) });
  using model = scriptedModel([{ calls: [{ name: 'own' }, { name: 'other' }] }, 'Done.']);
  const run = runLoop({ model, tools: [hang('own', 100), hang('other')], input: 'Go.', toolTimeoutMs: 300, clock });
  await clock.advance(300);
  const result = await run;
  expect(resultTexts(result)).toEqual([
    expect.stringContaining('after 100 ms'),
    expect.stringContaining('after 300 ms'),
  ]);
  expect(result.durationMs).toBe(300);
});

test('tool times out: time spent waiting for an approval does not count', async () => {
  const clock = manualClock();
  const journal = memoryJournal();
  const started = Promise.withResolvers<void>();
  const slow = tool({
    name: 'slow',
    description: 'Takes 90 ms',
    timeoutMs: 100,
    execute: () => {
      started.resolve();
      return new Promise((resolve) => clock.timer(90, () => resolve('in time')));
    },
  });
  const policy = { judge: () => [{ type: 'ask' } as const] };
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
  const options = { model, tools: [slow], policy, journal, runId: 'run', clock };
  const { waiting } = await runLoop({ ...options, input: 'Go.' });
  await clock.advance(3_600_000);
  const [approval] = waiting;
  if (approval?.type !== 'approval') throw new Error('the run does not wait for an approval');
  const { effect, digest } = approval;
  const run = runLoop({ ...options, answers: [{ type: 'approval', effect, digest, approved: true }] });
  await started.promise;
  await clock.advance(90);
  expect(resultTexts(await run)).toEqual(['in time']);
});

test('a tool that returns in time leaves no timer', async () => {
  const clock = manualClock();
  await resultOf(async () => 'quick', { clock });
  expect(clock.pending).toBe(0);
});

// ── size ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

const long = `${'a'.repeat(600)}${'b'.repeat(600)}`;
const truncated = `${'a'.repeat(75)}\n[… 1,100 of 1,200 characters left out …]\n${'b'.repeat(25)}`;

test('size: cuts a result over maxResultChars to its head and tail', async () => {
  expect(await resultOf(() => long, { maxResultChars: 100 })).toMatchObject({
    content: [{ type: 'text', text: truncated }],
    isError: false,
  });
  expect(await resultOf(() => long, { maxResultChars: 1_200 })).toMatchObject({
    content: [{ type: 'text', text: long }],
  });
});

test('size: maxResultChars is 15,000 by default', async () => {
  const textFrom = async (length: number): Promise<string> =>
    textOf((await resultOf(() => 'x'.repeat(length))).content);
  expect(await textFrom(15_000)).toBe('x'.repeat(15_000));
  expect(await textFrom(15_001)).toContain('[… 1 of 15,001 characters left out …]');
});

test('size: cuts errors too, but not images', async () => {
  const image: ResultBlock = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'A'.repeat(500) } };
  expect(await resultOf(() => ({ content: [image] }), { maxResultChars: 10 })).toMatchObject({ content: [image] });
  const thrown = await resultOf(() => Promise.reject(new Error(long)), { maxResultChars: 100 });
  expect(thrown.isError).toBe(true);
  expect(textOf(thrown.content)).toContain('characters left out');
});

test('size: cuts the result of a client tool too', async () => {
  const journal = memoryJournal();
  const pick = tool({ name: 'pick', description: 'The client picks' });
  using model = scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']);
  const options = { model, tools: [pick], journal, runId: 'run' };
  await runLoop({ ...options, input: 'Go.', maxResultChars: 100 });
  const answers = [{ type: 'result', effect: 't1.client.0', content: long }] as const;
  expect(resultTexts(await runLoop({ ...options, answers }))).toEqual([truncated]);
});

test('size: stores a long result in a journal with blobs, and offers read_result to page through it', async () => {
  const whole = Array.from({ length: 500 }, (_, index) => `line ${index}`).join('\n');
  const big = tool({ name: 'big', description: 'Returns many lines', effect: 'pure', execute: () => whole });
  let id = '';
  let read = '';
  using model = scriptedModel([
    { calls: [{ name: 'big' }] },
    ({ messages }) => {
      id = /read_result: \{"id":"([^"]+)"/.exec(JSON.stringify(messages).replaceAll('\\', ''))![1]!;
      return { calls: [{ name: 'read_result', arguments: { id, offset: 0 } }] };
    },
    ({ messages }) => {
      read = JSON.stringify(messages.at(-1));
      return 'Done.';
    },
  ]);
  const result = await runLoop({ model, tools: [big], input: 'go', journal: memoryJournal(), maxResultChars: 1_000 });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(model.requests.map(({ tools }) => tools.length)).toEqual([1, 2, 2]);
  expect(read).toContain('line 60');
  expect(read).toContain('offset');
});
