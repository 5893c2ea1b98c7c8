import { expect, test } from 'vitest';
import { resultsOf, resultTexts } from '../../test/results.ts';
import type { ToolResult } from '../messages.ts';
import type { JudgedCall, Policy, Verdict } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptedCall } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import { runLoop } from './run.ts';

/** A tool whose calls run until the test ends them, and the calls that have started so far. */
function controlledTool(definition: Partial<ToolDefinition> = {}): ControlledTool {
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  const work = tool({
    name: 'work',
    description: 'Works until the test ends it',
    input: { type: 'object', properties: { id: { type: 'string' }, path: { type: 'string' } }, required: ['id'] },
    ...definition,
    execute: ({ id }) => {
      started.push(String(id));
      return new Promise((resolve) => ends.set(String(id), () => resolve(`${String(id)} done`)));
    },
  });
  return { work, started, end: (id) => ends.get(id)!() };
}

interface ControlledTool {
  readonly work: Tool;
  readonly started: readonly string[];
  readonly end: (id: string) => void;
}

const callWork = (id: string, path?: string): ScriptedCall => ({
  name: 'work',
  arguments: path ? { id, path } : { id },
});

const quick = tool({
  name: 'quick',
  description: 'Echoes',
  input: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
  execute: ({ id }) => `${String(id)} done`,
});

const clock = manualClock();
/** Waits until nothing more happens without time passing. */
const idle = (): Promise<void> => clock.advance(0);

// ── several calls in one reply ───────────────────────────────────────────────────────────────────────────────────────

test('several calls in one reply: five run at once, and the results are in call order', async () => {
  const { work, started, end } = controlledTool();
  using model = scriptedModel([{ calls: [...'abcdefg'].map((id) => callWork(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', clock });
  await idle();
  expect(started).toEqual(['a', 'b', 'c', 'd', 'e']);
  end('d');
  await idle();
  expect(started).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  end('f');
  await idle();
  expect(started).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g']);
  for (const id of 'gebca') end(id);
  const result = await run;
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 7 });
  expect(resultTexts(result)).toEqual([...'abcdefg'].map((id) => `${id} done`));
  expect(resultsOf(result).map(({ callId }) => callId)).toEqual([0, 1, 2, 3, 4, 5, 6].map((n) => `call_0_${n}`));
});

test('several calls in one reply: at most maxParallel run at once', async () => {
  const { work, started, end } = controlledTool();
  using model = scriptedModel([{ calls: [...'abc'].map((id) => callWork(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', maxParallel: 2, clock });
  await idle();
  expect(started).toEqual(['a', 'b']);
  end('b');
  await idle();
  expect(started).toEqual(['a', 'b', 'c']);
  end('a');
  end('c');
  expect((await run).outcome).toEqual({ type: 'completed' });
});

test('several calls in one reply: parallel false runs them one by one, and is part of the model request', async () => {
  const { work, started, end } = controlledTool();
  using model = scriptedModel([{ calls: [...'abc'].map((id) => callWork(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', parallel: false, clock });
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await idle();
    expect(started).toEqual(['a', 'b', 'c'].slice(0, index + 1));
    end(id);
  }
  expect(resultTexts(await run)).toEqual(['a done', 'b done', 'c done']);
  expect(model.requests.map(({ parallel }) => parallel)).toEqual([false, false]);
});

test('several calls in one reply: an exclusive tool runs alone', async () => {
  const { work, started, end } = controlledTool();
  const alone = controlledTool({ name: 'alone', exclusive: true });
  const exclusive = { name: 'alone', arguments: { id: 'x' } };
  using model = scriptedModel([{ calls: [callWork('a'), exclusive, callWork('b'), callWork('c')] }, 'All done.']);
  const run = runLoop({ model, tools: [work, alone.work], input: 'Go.', clock });
  await idle();
  expect([started, alone.started]).toEqual([['a'], []]);
  end('a');
  await idle();
  expect([started, alone.started]).toEqual([['a'], ['x']]);
  alone.end('x');
  await idle();
  expect(started).toEqual(['a', 'b', 'c']);
  end('c');
  end('b');
  expect(resultTexts(await run)).toEqual(['a done', 'x done', 'b done', 'c done']);
});

test('several calls in one reply: calls that share a resource run in call order, others in parallel', async () => {
  const { work, started, end } = controlledTool({ resources: (input) => [String((input as { path: string }).path)] });
  using model = scriptedModel([
    { calls: [callWork('a', 'x'), callWork('b', 'x'), callWork('c', 'y'), callWork('d', 'x')] },
    'Done.',
  ]);
  const run = runLoop({ model, tools: [work], input: 'Go.', clock });
  await idle();
  expect(started).toEqual(['a', 'c']);
  end('a');
  await idle();
  expect(started).toEqual(['a', 'c', 'b']);
  end('b');
  await idle();
  expect(started).toEqual(['a', 'c', 'b', 'd']);
  end('d');
  end('c');
  expect(resultTexts(await run)).toEqual(['a done', 'b done', 'c done', 'd done']);
});

test('several calls in one reply: all are judged at once, before any of them runs', async () => {
  const { work, started, end } = controlledTool();
  const judged: (readonly JudgedCall[])[] = [];
  const verdicts = Promise.withResolvers<readonly Verdict[]>();
  const policy: Policy = { judge: (calls) => (judged.push(calls), verdicts.promise) };
  using model = scriptedModel([{ calls: [callWork('a'), { name: 'nothing' }, callWork('b')] }, 'Done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', policy, clock });
  await expect.poll(() => judged).toHaveLength(1);
  expect(started).toEqual([]);
  const undeclared = { client: false, touches: [{ type: 'unknown' }], permissions: [], operation: undefined };
  expect(judged).toEqual([
    [
      { id: 'call_0_0', name: 'work', input: { id: 'a' }, effect: 'once', ...undeclared },
      { id: 'call_0_2', name: 'work', input: { id: 'b' }, effect: 'once', ...undeclared },
    ],
  ]);
  verdicts.resolve([{ type: 'allow' }, { type: 'allow' }]);
  await idle();
  expect(started).toEqual(['a', 'b']);
  end('a');
  end('b');
  expect((await run).outcome).toEqual({ type: 'completed' });
});

const ask = tool({ name: 'ask', description: 'The client answers' });
const askForFirst: Policy = { judge: (calls) => calls.map((_, index) => ({ type: index === 0 ? 'ask' : 'allow' })) };

test.each([
  ['a client', [ask, quick], { name: 'ask' }, undefined],
  ['a person', [quick], { name: 'quick', arguments: { id: 'p' } }, askForFirst],
  ['a client with an exclusive tool', [tool({ ...ask, exclusive: true }), quick], { name: 'ask' }, undefined],
])('several calls in one reply: one that waits for %s does not block the others', async (_, tools, call, policy) => {
  const answered: string[] = [];
  using model = scriptedModel([{ calls: [call, ...[...'abc'].map((id) => ({ name: 'quick', arguments: { id } }))] }]);
  const result = await runLoop({
    model,
    tools,
    input: 'Go.',
    maxParallel: 1,
    ...(policy && { policy }),
    onItem: (item) => item.type === 'call-answered' && answered.push(item.call.arguments),
  });
  expect(result.outcome).toBeUndefined();
  expect(result.waiting).toHaveLength(1);
  expect(answered).toEqual(['{"id":"a"}', '{"id":"b"}', '{"id":"c"}']);
});

test('several calls in one reply: with parallel false the others wait for the client', async () => {
  const journal = memoryJournal();
  const ran: string[] = [];
  const onItem = (item: { readonly type: string }): unknown => item.type === 'call-started' && ran.push(item.type);
  using model = scriptedModel([{ calls: [{ name: 'ask' }, { name: 'quick', arguments: { id: 'a' } }] }, 'Done.']);
  const tools = [ask, quick];
  const paused = await runLoop({ model, tools, input: 'Go.', parallel: false, journal, runId: 'run', onItem });
  expect(paused.waiting).toMatchObject([{ type: 'client', effect: 't1.client.0', call: { name: 'ask' } }]);
  expect(ran).toEqual([]);
  const answers = [{ type: 'result', effect: 't1.client.0', content: 'yes' }] as const;
  const result = await runLoop({ model, tools, journal, runId: 'run', answers, onItem });
  expect(resultTexts(result)).toEqual(['yes', 'a done']);
  expect(ran).toEqual(['call-started']);
});

// ── more calls than maxCallsPerTurn ──────────────────────────────────────────────────────────────────────────────────

test('more calls than maxCallsPerTurn: the extra calls get an error result with the limit', async () => {
  using model = scriptedModel([{ calls: [...'abcd'].map((id) => ({ name: 'quick', arguments: { id } })) }, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', maxCallsPerTurn: 2 });
  const text = 'Not executed: at most 2 calls are taken from one reply. Call it again if it is still needed.';
  const extra = (index: number): ToolResult => ({
    type: 'tool-result',
    callId: `call_0_${index}`,
    name: 'quick',
    content: [{ type: 'error', text }],
    isError: true,
    errorType: 'denied',
  });
  expect(resultTexts(result).slice(0, 2)).toEqual(['a done', 'b done']);
  expect(resultsOf(result).slice(2)).toEqual([extra(2), extra(3)]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 2 });
});

test.each([undefined, 500])('refuses calls after the 128th of a reply, with maxCallsPerTurn %s', async (cap) => {
  const calls = Array.from({ length: 130 }, (_, n) => ({ name: 'quick', arguments: { id: String(n) } }));
  using model = scriptedModel([{ calls }, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', ...(cap && { maxCallsPerTurn: cap }) });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 128 });
  expect(resultTexts(result)).toHaveLength(130);
  expect(resultTexts(result)[127]).toBe('127 done');
  expect(resultTexts(result).slice(128)).toEqual([
    expect.stringContaining('at most 128 calls'),
    expect.stringContaining('at most 128 calls'),
  ]);
});

// ── unknown tool ─────────────────────────────────────────────────────────────────────────────────────────────────────

test('unknown tool: the error result lists the available tools', async () => {
  using model = scriptedModel([{ calls: [{ name: 'quikc', arguments: 'not JSON' }] }, 'Sorry.']);
  const result = await runLoop({ model, tools: [quick, ask], input: 'Go.' });
  expect(resultsOf(result)).toEqual([
    {
      type: 'tool-result',
      callId: 'call_0_0',
      name: 'quikc',
      content: [
        {
          type: 'error',
          text: 'There is no tool "quikc". Available tools: quick, ask. Use one of them, or answer without a tool.',
        },
      ],
      isError: true,
      errorType: 'not_found',
    },
  ]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Sorry.', calls: 0 });
});

test('unknown tool: the error result reports that no tools are available', async () => {
  using model = scriptedModel([{ calls: [{ name: 'quick' }] }, 'Sorry.']);
  expect(resultTexts(await runLoop({ model, input: 'Go.' }))).toEqual([
    'There is no tool "quick". Available tools: none. Use one of them, or answer without a tool.',
  ]);
});

// ── denied, not allowed, over a limit ────────────────────────────────────────────────────────────────────────────────

const threeCalls = { calls: [...'abc'].map((id) => ({ name: 'quick', arguments: { id } })) };

test('denied, not allowed, over a limit: error results with the reason, in call order with the other results', async () => {
  const judge = (calls: readonly JudgedCall[]): Verdict[] =>
    calls.map(({ input }) =>
      (input as { id: string }).id === 'b' ? { type: 'deny', reason: 'b is out of bounds.' } : { type: 'allow' },
    );
  const calls = [{ name: 'ask' }, ...threeCalls.calls, { name: 'quick', arguments: { id: 'd' } }];
  using model = scriptedModel([{ calls }, 'Done.']);
  const result = await runLoop({
    model,
    tools: [quick, ask],
    allowedTools: ['quick'],
    input: 'Go.',
    maxCallsPerTurn: 4,
    policy: { judge },
  });
  expect(resultTexts(result)).toEqual([
    'The tool "ask" is not allowed here. Allowed tools: quick. Use one of them, or answer without a tool.',
    'a done',
    'The call of "quick" was denied: b is out of bounds.',
    'c done',
    expect.stringContaining('at most 4 calls'),
  ]);
  expect(resultsOf(result).map(({ isError }) => isError)).toEqual([true, false, true, false, true]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 2 });
});

const policies: readonly (readonly [string, Policy['judge'], readonly string[]])[] = [
  ['returns too few verdicts', () => [{ type: 'allow' }], ['a done', 'no verdict', 'no verdict']],
  ['returns invalid verdicts', () => [null, { type: 'sure' }, 1] as never, ['no verdict', 'no verdict', 'no verdict']],
  ['returns undefined', () => undefined as never, ['policy failed', 'policy failed', 'policy failed']],
  [
    'rejects',
    () => Promise.reject(new Error('no database')),
    Array.from({ length: 3 }, () => 'the policy failed: no database'),
  ],
  [
    'throws',
    () => {
      throw new Error('no database');
    },
    Array.from({ length: 3 }, () => 'the policy failed: no database'),
  ],
];

test.each(policies)('denied: a policy that %s allows no call without a verdict', async (_, judge, reasons) => {
  using model = scriptedModel([threeCalls, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', policy: { judge } });
  expect(resultTexts(result)).toEqual(reasons.map((reason) => expect.stringContaining(reason)));
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('denied: the policy gets the principal, the run, the turn and the context', async () => {
  const seen: unknown[] = [];
  const principal = { subject: 'ada', tenant: 'acme', scopes: ['tools:execute'] };
  const judge: Policy['judge'] = (calls, { signal, ...about }) => {
    seen.push({ ...about, aborted: signal.aborted });
    return calls.map(() => ({ type: 'allow' }));
  };
  using model = scriptedModel(['No tools yet.', threeCalls, 'Done.']);
  const options = {
    model,
    tools: [quick],
    finish: 'confirm',
    policy: { judge },
    principal,
    context: { db: 1 },
  } as const;
  await runLoop({ ...options, input: 'Go.', runId: 'run' });
  expect(seen).toEqual([{ runId: 'run', turn: 2, principal, context: { db: 1 }, aborted: false }]);
});

test('denied: a policy cannot change the input of the tool', async () => {
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
