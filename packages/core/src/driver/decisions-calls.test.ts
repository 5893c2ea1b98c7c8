import { expect, test } from 'vitest';
import { textOf, type ToolResult } from '../messages.ts';
import type { JudgedCall, Policy, Verdict } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptedCall } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { LoopResult } from './options.ts';
import { runLoop } from './run.ts';

/** A tool whose calls run until the test ends them, and what has begun so far. */
function workshop(definition: Partial<ToolDefinition> = {}): Workshop {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const work = tool({
    name: 'work',
    description: 'Works until told otherwise',
    input: { type: 'object', properties: { id: { type: 'string' }, path: { type: 'string' } }, required: ['id'] },
    ...definition,
    execute: ({ id }) => {
      begun.push(String(id));
      return new Promise((resolve) => ends.set(String(id), () => resolve(`${String(id)} done`)));
    },
  });
  return { work, begun, end: (id) => ends.get(id)!() };
}

interface Workshop {
  readonly work: Tool;
  readonly begun: readonly string[];
  readonly end: (id: string) => void;
}

const working = (id: string, path?: string): ScriptedCall => ({
  name: 'work',
  arguments: path ? { id, path } : { id },
});

/** Works at once. */
const quick = tool({
  name: 'quick',
  description: 'Echoes',
  input: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] },
  execute: ({ id }) => `${String(id)} done`,
});

const resultsOf = ({ messages }: LoopResult): readonly ToolResult[] =>
  messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
const wordsOf = (result: LoopResult): readonly string[] => resultsOf(result).map(({ content }) => textOf(content));

const clock = manualClock();
/** Lets everything go on that can go on without time. */
const settle = (): Promise<void> => clock.advance(0);

// ── several calls in one reply ───────────────────────────────────────────────────────────────────────────────────────

test('several calls in one reply: five run at once, and the results are in call order', async () => {
  const { work, begun, end } = workshop();
  using model = scriptedModel([{ calls: [...'abcdefg'].map((id) => working(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', clock });
  await settle();
  expect(begun).toEqual(['a', 'b', 'c', 'd', 'e']);
  end('d');
  await settle();
  expect(begun).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
  end('f');
  await settle();
  expect(begun).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g']);
  for (const id of 'gebca') end(id);
  const result = await run;
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 7 });
  expect(wordsOf(result)).toEqual([...'abcdefg'].map((id) => `${id} done`));
  expect(resultsOf(result).map(({ callId }) => callId)).toEqual([0, 1, 2, 3, 4, 5, 6].map((n) => `call_0_${n}`));
});

test('several calls in one reply: maxParallel is the caller’s to set', async () => {
  const { work, begun, end } = workshop();
  using model = scriptedModel([{ calls: [...'abc'].map((id) => working(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', maxParallel: 2, clock });
  await settle();
  expect(begun).toEqual(['a', 'b']);
  end('b');
  await settle();
  expect(begun).toEqual(['a', 'b', 'c']);
  end('a');
  end('c');
  expect((await run).outcome).toEqual({ type: 'completed' });
});

test('several calls in one reply: parallel false runs them one by one, and the model is told', async () => {
  const { work, begun, end } = workshop();
  using model = scriptedModel([{ calls: [...'abc'].map((id) => working(id)) }, 'All done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', parallel: false, clock });
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await settle();
    expect(begun).toEqual(['a', 'b', 'c'].slice(0, index + 1));
    end(id);
  }
  expect(wordsOf(await run)).toEqual(['a done', 'b done', 'c done']);
  expect(model.requests.map(({ parallel }) => parallel)).toEqual([false, false]);
});

test('several calls in one reply: an exclusive tool runs alone', async () => {
  const { work, begun, end } = workshop();
  const alone = workshop({ name: 'alone', exclusive: true });
  const exclusive = { name: 'alone', arguments: { id: 'x' } };
  using model = scriptedModel([{ calls: [working('a'), exclusive, working('b'), working('c')] }, 'All done.']);
  const run = runLoop({ model, tools: [work, alone.work], input: 'Go.', clock });
  await settle();
  expect([begun, alone.begun]).toEqual([['a'], []]);
  end('a');
  await settle();
  expect([begun, alone.begun]).toEqual([['a'], ['x']]);
  alone.end('x');
  await settle();
  expect(begun).toEqual(['a', 'b', 'c']);
  end('c');
  end('b');
  expect(wordsOf(await run)).toEqual(['a done', 'x done', 'b done', 'c done']);
});

test('several calls in one reply: calls that share a resource run in call order, others beside them', async () => {
  const { work, begun, end } = workshop({ resources: (input) => [String((input as { path: string }).path)] });
  using model = scriptedModel([
    { calls: [working('a', 'x'), working('b', 'x'), working('c', 'y'), working('d', 'x')] },
    'Done.',
  ]);
  const run = runLoop({ model, tools: [work], input: 'Go.', clock });
  await settle();
  expect(begun).toEqual(['a', 'c']);
  end('a');
  await settle();
  expect(begun).toEqual(['a', 'c', 'b']);
  end('b');
  await settle();
  expect(begun).toEqual(['a', 'c', 'b', 'd']);
  end('d');
  end('c');
  expect(wordsOf(await run)).toEqual(['a done', 'b done', 'c done', 'd done']);
});

test('several calls in one reply: all are judged at once, before any of them runs', async () => {
  const { work, begun, end } = workshop();
  const asked: (readonly JudgedCall[])[] = [];
  const verdicts = Promise.withResolvers<readonly Verdict[]>();
  const policy: Policy = { judge: (calls) => (asked.push(calls), verdicts.promise) };
  using model = scriptedModel([{ calls: [working('a'), { name: 'nothing' }, working('b')] }, 'Done.']);
  const run = runLoop({ model, tools: [work], input: 'Go.', policy, clock });
  await settle();
  expect(begun).toEqual([]);
  expect(asked).toEqual([
    [
      { id: 'call_0_0', name: 'work', input: { id: 'a' }, effect: 'once' },
      { id: 'call_0_2', name: 'work', input: { id: 'b' }, effect: 'once' },
    ],
  ]);
  verdicts.resolve([{ type: 'allow' }, { type: 'allow' }]);
  await settle();
  expect(begun).toEqual(['a', 'b']);
  end('a');
  end('b');
  expect((await run).outcome).toEqual({ type: 'completed' });
});

const ask = tool({ name: 'ask', description: 'The client answers' });
const first: Policy = { judge: (calls) => calls.map((_, index) => ({ type: index === 0 ? 'ask' : 'allow' })) };

test.each([
  ['a client', [ask, quick], { name: 'ask' }, undefined],
  ['a person', [quick], { name: 'quick', arguments: { id: 'p' } }, first],
  ['a client with an exclusive tool', [tool({ ...ask, exclusive: true }), quick], { name: 'ask' }, undefined],
])(
  'several calls in one reply: one that waits for %s does not hold the others back',
  async (_, tools, call, policy) => {
    const begun: string[] = [];
    using model = scriptedModel([{ calls: [call, ...[...'abc'].map((id) => ({ name: 'quick', arguments: { id } }))] }]);
    const result = await runLoop({
      model,
      tools,
      input: 'Go.',
      maxParallel: 1,
      ...(policy && { policy }),
      onItem: (item) => item.type === 'call-answered' && begun.push(item.call.arguments),
    });
    expect(result.outcome).toBeUndefined();
    expect(result.waiting).toHaveLength(1);
    expect(begun).toEqual(['{"id":"a"}', '{"id":"b"}', '{"id":"c"}']);
  },
);

test('several calls in one reply: with parallel false the others wait for it', async () => {
  const journal = memoryJournal();
  const ran: string[] = [];
  const onItem = (item: { readonly type: string }): unknown => item.type === 'call-started' && ran.push(item.type);
  using model = scriptedModel([{ calls: [{ name: 'ask' }, { name: 'quick', arguments: { id: 'a' } }] }, 'Done.']);
  const tools = [ask, quick];
  const paused = await runLoop({ model, tools, input: 'Go.', parallel: false, journal, runId: 'run', onItem });
  expect(paused.waiting).toMatchObject([{ type: 'client', effect: 't1.client.0', call: { name: 'ask' } }]);
  expect(ran).toEqual([]);
  const answers = [{ type: 'client-result', effect: 't1.client.0', content: 'yes' }] as const;
  const result = await runLoop({ model, tools, journal, runId: 'run', answers, onItem });
  expect(wordsOf(result)).toEqual(['yes', 'a done']);
  expect(ran).toEqual(['call-started']);
});

// ── more calls than maxCallsPerTurn ──────────────────────────────────────────────────────────────────────────────────

test('more calls than maxCallsPerTurn: the extra ones get an error result that says so', async () => {
  using model = scriptedModel([{ calls: [...'abcd'].map((id) => ({ name: 'quick', arguments: { id } })) }, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', maxCallsPerTurn: 2 });
  const text = 'Not executed: at most 2 calls are taken from one reply. Call it again if it is still needed.';
  const extra = (index: number): ToolResult => ({
    type: 'tool-result',
    callId: `call_0_${index}`,
    name: 'quick',
    content: [{ type: 'error', text }],
    isError: true,
  });
  expect(wordsOf(result).slice(0, 2)).toEqual(['a done', 'b done']);
  expect(resultsOf(result).slice(2)).toEqual([extra(2), extra(3)]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 2 });
});

test.each([undefined, 500])('more than 128 calls in one reply are refused, with maxCallsPerTurn %s', async (cap) => {
  const calls = Array.from({ length: 130 }, (_, n) => ({ name: 'quick', arguments: { id: String(n) } }));
  using model = scriptedModel([{ calls }, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', ...(cap && { maxCallsPerTurn: cap }) });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 128 });
  expect(wordsOf(result)).toHaveLength(130);
  expect(wordsOf(result)[127]).toBe('127 done');
  expect(wordsOf(result).slice(128)).toEqual([
    expect.stringContaining('at most 128 calls'),
    expect.stringContaining('at most 128 calls'),
  ]);
});

// ── unknown tool ─────────────────────────────────────────────────────────────────────────────────────────────────────

test('unknown tool: the error lists the tools that there are', async () => {
  using model = scriptedModel([{ calls: [{ name: 'quikc', arguments: 'not even JSON' }] }, 'Sorry.']);
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
    },
  ]);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Sorry.', calls: 0 });
});

test('unknown tool: where there are none, it says so', async () => {
  using model = scriptedModel([{ calls: [{ name: 'quick' }] }, 'Sorry.']);
  expect(wordsOf(await runLoop({ model, input: 'Go.' }))).toEqual([
    'There is no tool "quick". Available tools: none. Use one of them, or answer without a tool.',
  ]);
});

// ── denied, not allowed, over a limit ────────────────────────────────────────────────────────────────────────────────

const three = { calls: [...'abc'].map((id) => ({ name: 'quick', arguments: { id } })) };

test('denied, not allowed, over a limit: error results with the reason, in order, beside what ran', async () => {
  const judge = (calls: readonly JudgedCall[]): Verdict[] =>
    calls.map(({ input }) =>
      (input as { id: string }).id === 'b' ? { type: 'deny', reason: 'b is out of bounds.' } : { type: 'allow' },
    );
  const calls = [{ name: 'ask' }, ...three.calls, { name: 'quick', arguments: { id: 'd' } }];
  using model = scriptedModel([{ calls }, 'Done.']);
  const result = await runLoop({
    model,
    tools: [quick, ask],
    allowedTools: ['quick'],
    input: 'Go.',
    maxCallsPerTurn: 4,
    policy: { judge },
  });
  expect(wordsOf(result)).toEqual([
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
  ['gives too few verdicts', () => [{ type: 'allow' }], ['a done', 'no verdict', 'no verdict']],
  [
    'gives something that is no verdict',
    () => [null, { type: 'sure' }, 1] as never,
    ['no verdict', 'no verdict', 'no verdict'],
  ],
  ['gives nothing at all', () => undefined as never, ['policy failed', 'policy failed', 'policy failed']],
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

test.each(policies)('denied: a policy that %s lets nothing through by it', async (_, judge, words) => {
  using model = scriptedModel([three, 'Done.']);
  const result = await runLoop({ model, tools: [quick], input: 'Go.', policy: { judge } });
  expect(wordsOf(result)).toEqual(words.map((word) => expect.stringContaining(word)));
  expect(result.outcome).toEqual({ type: 'completed' });
});

test('denied: the policy is told who asks, in which run and turn, and with what', async () => {
  const seen: unknown[] = [];
  const principal = { subject: 'ada', tenant: 'acme', scopes: ['tools:execute'] };
  const judge: Policy['judge'] = (calls, { signal, ...about }) => {
    seen.push({ ...about, aborted: signal.aborted });
    return calls.map(() => ({ type: 'allow' }));
  };
  using model = scriptedModel(['No tools yet.', three, 'Done.']);
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
