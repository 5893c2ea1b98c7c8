import { expect, test } from 'vitest';
import { textOf, userText, type Message } from '../messages.ts';
import type { Usage } from '../model.ts';
import { manualClock, scriptedModel, type ScriptedReply } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop } from './run.ts';

/** A tool that returns its number. `ran` has the numbers of all calls. */
function counter(): { readonly count: Tool; readonly ran: unknown[] } {
  const ran: unknown[] = [];
  const count = tool({
    name: 'count',
    description: 'Counts',
    input: { type: 'object', properties: { n: { type: 'number' } } },
    execute: ({ n }) => `counted ${ran.push(n) && n}`,
  });
  return { count, ran };
}

const broken = tool({
  name: 'broken',
  description: 'Always fails',
  execute: () => {
    throw new Error('it is broken');
  },
});

const callTool = (name: string, args: unknown = {}): ScriptedReply => ({ calls: [{ name, arguments: args }] });
const callCount = (n: number): ScriptedReply => callTool('count', { n });

/** The texts of all results, one array for each turn. */
const textsByTurn = ({ messages }: LoopResult): readonly string[][] =>
  messages.flatMap((message) =>
    message.role === 'tool' ? [message.content.map(({ content }) => textOf(content))] : [],
  );

const lastUserText = (messages: readonly Message[] | undefined): string => {
  const last = messages?.at(-1);
  return last?.role === 'user' ? textOf(last.content) : `not a user message: ${last?.role}`;
};

// ── turn limit ───────────────────────────────────────────────────────────────────────────────────────────────────────

test('turn limit: the calls of the last reply are executed and recorded, then the run ends', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([callCount(1), callCount(2)]);
  const clock = manualClock();
  const result = await runLoop({ model, tools: [count], input: 'Count.', maxTurns: 2, runId: 'run', clock });
  const turn = (index: number, n: number): Message[] => [
    {
      role: 'assistant',
      content: [{ type: 'tool-call', id: `call_${index}_0`, name: 'count', arguments: `{"n":${n}}` }],
    },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: `call_${index}_0`,
          name: 'count',
          content: [{ type: 'text', text: `counted ${n}` }],
          isError: false,
        },
      ],
    },
  ];
  expect(result).toStrictEqual({
    runId: 'run',
    outcome: { type: 'exhausted', limit: 'turns' },
    waiting: [],
    text: '',
    messages: [userText('Count.'), ...turn(0, 1), ...turn(1, 2)],
    usage: { inputTokens: 20, outputTokens: 10, cost: 0 },
    model: 'scripted',
    toolsUsed: ['count'],
    turns: 2,
    calls: 2,
    durationMs: 0,
  });
  expect(ran).toEqual([1, 2]);
});

test('turn limit: the last turn may be the answer', async () => {
  const { count } = counter();
  using model = scriptedModel([callCount(1), 'One.']);
  const result = await runLoop({ model, tools: [count], input: 'Count.', maxTurns: 2 });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'One.', turns: 2 });
});

test('turn limit: maxTurns is 20 by default', async () => {
  const { count, ran } = counter();
  using model = scriptedModel(Array.from({ length: 20 }, (_, n) => callCount(n)));
  const result = await runLoop({ model, tools: [count], input: 'Count.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 20, calls: 20 });
  expect(ran).toHaveLength(20);
});

// ── at a limit ───────────────────────────────────────────────────────────────────────────────────────────────────────

type Case = readonly [limit: string, options: Partial<LoopOptions>, script: readonly ScriptedReply[], request: string];

const CLOSING: readonly Case[] = [
  ['turns', { maxTurns: 1 }, [callCount(1)], 'its limit of turns'],
  ['calls', { limits: { calls: 0 } }, [callCount(1), callCount(2)], 'its limit of tool calls'],
  ['errors', { errorLimit: 1 }, [callTool('broken')], 'its limit of errors in a row'],
  ['repetition', { repeatLimit: 1 }, [callCount(1), callCount(1), callCount(1)], 'its limit of repeated calls'],
];

test.each(CLOSING)(
  'at the limit of %s: the run is exhausted, with everything done so far',
  async (limit, options, script) => {
    const { count } = counter();
    using model = scriptedModel(script);
    const result = await runLoop({ model, tools: [count, broken], input: 'Go.', ...options });
    expect(result).toMatchObject({ outcome: { type: 'exhausted', limit }, turns: script.length });
    expect(result.messages).toHaveLength(1 + 2 * script.length);
    expect(result.usage).toEqual({ inputTokens: 10 * script.length, outputTokens: 5 * script.length, cost: 0 });
  },
);

test.each(CLOSING)(
  'at the limit of %s: closingTurn asks for a final answer',
  async (limit, options, script, request) => {
    const { count } = counter();
    using model = scriptedModel([...script, 'This is how far I got.']);
    const result = await runLoop({ model, tools: [count, broken], input: 'Go.', closingTurn: true, ...options });
    expect(result).toMatchObject({
      outcome: { type: 'exhausted', limit },
      text: 'This is how far I got.',
      turns: script.length + 1,
    });
    const last = model.requests.at(-1)!;
    expect(last).toMatchObject({ toolChoice: 'none', tools: [{ name: 'count' }, { name: 'broken' }] });
    expect(lastUserText(last.messages)).toContain(request);
  },
);

test('at a limit: a call in the closing turn gets an error result, and the run ends', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([callCount(1), callCount(2)]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', closingTurn: true, maxTurns: 1 });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 2, calls: 1 });
  expect(ran).toEqual([1]);
  expect(textsByTurn(result)).toEqual([['counted 1'], ['Tools may not be called now. Answer with what you have.']]);
});

test.each<Case>([
  ['tokens', { limits: { tokens: 1 } }, [callCount(1)], ''],
  ['cost', { limits: { cost: 0.5 } }, [{ ...callCount(1), usage: { inputTokens: 1, outputTokens: 1, cost: 1 } }], ''],
])('at the limit of %s: no closing turn, because it would exceed the limit', async (limit, options, script) => {
  const { count, ran } = counter();
  using model = scriptedModel(script);
  const result = await runLoop({ model, tools: [count], input: 'Go.', closingTurn: true, ...options });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit }, turns: 1, calls: 1 });
  expect(ran).toEqual([1]);
});

test('at the limit of turns: no closing turn if the tokens are used up too', async () => {
  const { count } = counter();
  using model = scriptedModel([callCount(1)]);
  const options = { tools: [count], input: 'Go.', closingTurn: true, maxTurns: 1, limits: { tokens: 15 } };
  expect((await runLoop({ model, ...options })).outcome).toEqual({ type: 'exhausted', limit: 'turns' });
});

test('at the limit of time: no closing turn', async () => {
  const clock = manualClock();
  using model = scriptedModel([() => new Promise<never>(() => {})]);
  const run = runLoop({ model, input: 'Go.', closingTurn: true, limits: { durationMs: 500 }, clock });
  await clock.advance(500);
  expect(await run).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, turns: 1, durationMs: 500 });
});

// ── limits of calls, tokens and cost ─────────────────────────────────────────────────────────────────────────────────

test('calls limit: refuses calls when it is reached, and asks for an answer', async () => {
  const { count, ran } = counter();
  const three = { calls: [1, 2, 3].map((n) => ({ name: 'count', arguments: { n } })) };
  using model = scriptedModel([three, 'Two of three.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { calls: 2 } });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Two of three.', calls: 2 });
  expect(ran).toEqual([1, 2]);
  const refusal = 'Not executed: all 2 tool calls of this run are used up. Answer with what you have.';
  expect(textsByTurn(result)).toEqual([['counted 1', 'counted 2', refusal]]);
  expect(model.requests.map(({ toolChoice }) => toolChoice)).toEqual(['auto', 'none']);
});

test('calls limit: ends the run only if the model calls again', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([callCount(1), callCount(2), callCount(3)]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { calls: 1 } });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'calls' }, turns: 3, calls: 1 });
  expect(ran).toEqual([1]);
});

test('tokens limit: checked between turns, so an answer is never discarded', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([callCount(1), callCount(2)]);
  const over = await runLoop({ model, tools: [count], input: 'Go.', limits: { tokens: 16 } });
  expect(over).toMatchObject({ outcome: { type: 'exhausted', limit: 'tokens' }, turns: 2, calls: 2 });
  expect(ran).toEqual([1, 2]);

  using answering = scriptedModel(['Done.']);
  const done = await runLoop({ model: answering, input: 'Go.', limits: { tokens: 1 } });
  expect(done).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
});

test('cost limit: the run fails if the model does not report a cost', async () => {
  const { count } = counter();
  using model = scriptedModel([{ ...callCount(1), usage: { inputTokens: 1, outputTokens: 1 } }]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { cost: 1 } });
  const message =
    'limits.cost is set, but the model does not report a cost, so the limit cannot be enforced. ' +
    'Set a price for the model, or limit tokens instead.';
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'cost-unknown', message } });
  expect(textsByTurn(result)).toEqual([['counted 1']]);
});

test('tokens limit: the run fails if the model does not report token usage', async () => {
  const usage = { inputTokens: 0, outputTokens: 0 };
  const echo = tool({ name: 'echo', description: 'x', effect: 'pure', execute: () => 'ok' });
  const model = scriptedModel([{ calls: [{ name: 'echo' }], usage }]);
  const result = await runLoop({ model, tools: [echo], input: 'go', limits: { tokens: 100 } });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'tokens-unknown' } });
});

// ── consecutive errors ───────────────────────────────────────────────────────────────────────────────────────────────

const FAILED = 'The tool "broken" failed: it is broken';
const both: ScriptedReply = { calls: [{ name: 'broken' }, { name: 'count', arguments: { n: 1 } }] };

test('consecutive errors: three turns with only errors end the run, and their results are recorded', async () => {
  const two = { calls: [{ name: 'broken' }, { name: 'nothing' }] };
  using model = scriptedModel([callTool('broken', { a: 1 }), two, callTool('broken', { a: 2 })]);
  const result = await runLoop({ model, tools: [broken], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 3 });
  expect(textsByTurn(result)).toEqual([[FAILED], [FAILED, expect.stringContaining('no tool "nothing"')], [FAILED]]);
});

test.each([
  ['a success', callCount(1)],
  ['one success beside an error', both],
])('consecutive errors: %s resets the count', async (_, reply) => {
  const { count } = counter();
  const error = (a: number): ScriptedReply => callTool('broken', { a });
  using model = scriptedModel([error(1), error(2), reply, error(3), error(4), 'I give up.']);
  const result = await runLoop({ model, tools: [count, broken], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 6 });
});

test.each([
  ['a call of an unknown tool', callTool('nothing')],
  ['a call with invalid arguments', callTool('count', { n: 'one' })],
  ['a denied call', callCount(13)],
])('consecutive errors: %s counts', async (_, reply) => {
  const { count, ran } = counter();
  using model = scriptedModel([reply]);
  const policy = { judge: () => [{ type: 'deny', reason: 'unlucky' } as const] };
  const result = await runLoop({ model, tools: [count], input: 'Go.', errorLimit: 1, policy });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 1 });
  expect(ran).toEqual([]);
});

test('consecutive errors: calls refused by a limit of the loop do not count', async () => {
  const { count } = counter();
  using spent = scriptedModel([callCount(1), 'Fine.']);
  const refused = await runLoop({ model: spent, tools: [count], input: 'Go.', errorLimit: 1, limits: { calls: 0 } });
  expect(refused.outcome).toEqual({ type: 'completed' });

  const beyond: ScriptedReply = { calls: [{ name: 'count', arguments: { n: 1 } }, { name: 'count' }] };
  using model = scriptedModel([beyond, 'Fine.']);
  const capped = await runLoop({ model, tools: [count], input: 'Go.', errorLimit: 1, maxCallsPerTurn: 1 });
  expect(capped.outcome).toEqual({ type: 'completed' });
});

test('consecutive errors: an error counts beside calls refused by a limit', async () => {
  using model = scriptedModel([{ calls: [{ name: 'broken' }, { name: 'broken' }] }]);
  const result = await runLoop({ model, tools: [broken], input: 'Go.', errorLimit: 1, maxCallsPerTurn: 1 });
  expect(result.outcome).toEqual({ type: 'exhausted', limit: 'errors' });
});

test('consecutive errors: a turn with only calls refused by a limit neither adds nor resets', async () => {
  const { count } = counter();
  using model = scriptedModel([callTool('broken'), callCount(1), 'Fine.']);
  const options = { tools: [count, broken], input: 'Go.', errorLimit: 2, limits: { calls: 1 } };
  expect((await runLoop({ model, ...options })).outcome).toEqual({ type: 'completed' });
});

test('consecutive errors: 0 is off', async () => {
  using model = scriptedModel([...Array.from({ length: 5 }, (_, a) => callTool('broken', { a })), 'I give up.']);
  const result = await runLoop({ model, tools: [broken], input: 'Go.', errorLimit: 0 });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 6 });
});

// ── repetition ───────────────────────────────────────────────────────────────────────────────────────────────────────

const REFUSED =
  'Not executed: "count" was called 3 times in a row with the same arguments and returned the same result. ' +
  'Do something else, or answer with what you have.';
const same = callCount(7);

test('repetition: refuses the next call after three identical calls with identical results, and continues', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([same, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 5, calls: 3 });
  expect(ran).toEqual([7, 7, 7]);
  expect(textsByTurn(result)).toEqual([['counted 7'], ['counted 7'], ['counted 7'], [REFUSED]]);
});

test('repetition: the second refusal ends the run', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([same, same, same, same, same]);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'repetition' }, turns: 5, calls: 3 });
  expect(ran).toEqual([7, 7, 7]);
  expect(textsByTurn(result).slice(3)).toEqual([[REFUSED], [REFUSED]]);
});

test('repetition: does not count calls with different results', async () => {
  let n = 0;
  const next = tool({ name: 'next', description: 'The next number', execute: () => `${n++}` });
  using model = scriptedModel([...Array.from({ length: 6 }, () => callTool('next')), 'Six.']);
  expect(await runLoop({ model, tools: [next], input: 'Go.' })).toMatchObject({
    outcome: { type: 'completed' },
    calls: 6,
  });
});

test.each([
  ['a call of another tool', callTool('other')],
  ['a call with other arguments', callCount(8)],
])('repetition: %s in between resets the count', async (_, between) => {
  const { count } = counter();
  const other = tool({ name: 'other', description: 'Another', execute: () => 'other' });
  using model = scriptedModel([same, same, same, between, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count, other], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 7 });
});

test('repetition: another call resets the refusals too', async () => {
  const { count } = counter();
  using model = scriptedModel([same, same, same, same, callCount(8), same, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 10, calls: 7 });
});

test('repetition: does not count calls of a polling tool', async () => {
  const poll = tool({ name: 'poll', description: 'Ready?', polling: true, execute: () => 'not yet' });
  using model = scriptedModel([...Array.from({ length: 9 }, () => callTool('poll')), 'Still not.']);
  expect(await runLoop({ model, tools: [poll], input: 'Go.' })).toMatchObject({
    outcome: { type: 'completed' },
    calls: 9,
  });
});

test('repetition: 0 is off', async () => {
  const { count } = counter();
  using model = scriptedModel([...Array.from({ length: 9 }, () => same), 'Seven.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.', repeatLimit: 0 });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 9 });
});

// ── usage ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const used = (usage: Usage, n: number): ScriptedReply => ({ ...callCount(n), usage });
const FULL: Usage = {
  inputTokens: 100,
  outputTokens: 20,
  cachedTokens: 80,
  cacheWriteTokens: 5,
  reasoningTokens: 10,
  cost: 0.25,
};

test('usage: all fields are summed over turns', async () => {
  const { count } = counter();
  using model = scriptedModel([
    used(FULL, 1),
    used({ inputTokens: 1, outputTokens: 2, cost: 0.5 }, 2),
    { text: 'x', usage: FULL },
  ]);
  const { usage } = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(usage).toEqual({
    inputTokens: 201,
    outputTokens: 42,
    cachedTokens: 160,
    cacheWriteTokens: 10,
    reasoningTokens: 20,
    cost: 1,
  });
});

test('usage: the result of a failed run has it too', async () => {
  const { count } = counter();
  const failure = { type: 'failure', error: { code: 'network', message: 'closed', retryable: true } } as const;
  using model = scriptedModel([used(FULL, 1), failure]);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'network', message: 'closed' } });
  expect(result.usage).toEqual(FULL);
});

test('usage: a reply without cost makes the cost of the run unknown', async () => {
  const { count } = counter();
  const unpriced: Usage = { inputTokens: 1, outputTokens: 1 };
  using model = scriptedModel([used(FULL, 1), used(unpriced, 2), { text: 'x', usage: FULL }]);
  const { usage } = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(usage).toMatchObject({ inputTokens: 201, outputTokens: 41 });
  expect(usage).not.toHaveProperty('cost');
});
