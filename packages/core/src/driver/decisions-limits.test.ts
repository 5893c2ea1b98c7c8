import { expect, test } from 'vitest';
import { textOf, userText, type Message } from '../messages.ts';
import type { Usage } from '../model.ts';
import { manualClock, scriptedModel, type ScriptedReply } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { LoopOptions, LoopResult } from './options.ts';
import { runLoop } from './run.ts';

/** Says its number; what it ran with is in `ran`. */
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

const calling = (name: string, args: unknown = {}): ScriptedReply => ({ calls: [{ name, arguments: args }] });
const counting = (n: number): ScriptedReply => calling('count', { n });

/** The words of all results, turn by turn. */
const resultsOf = ({ messages }: LoopResult): readonly string[][] =>
  messages.flatMap((message) =>
    message.role === 'tool' ? [message.content.map(({ content }) => textOf(content))] : [],
  );

const lastOf = (messages: readonly Message[] | undefined): string => {
  const last = messages?.at(-1);
  return last?.role === 'user' ? textOf(last.content) : `no user message, but ${last?.role}`;
};

// ── turn limit ───────────────────────────────────────────────────────────────────────────────────────────────────────

test('turn limit: the calls of the last reply are executed and recorded, then the run ends', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([counting(1), counting(2)]);
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
    turns: 2,
    calls: 2,
    durationMs: 0,
  });
  expect(ran).toEqual([1, 2]);
});

test('turn limit: the last turn may be the answer', async () => {
  const { count } = counter();
  using model = scriptedModel([counting(1), 'One.']);
  const result = await runLoop({ model, tools: [count], input: 'Count.', maxTurns: 2 });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'One.', turns: 2 });
});

test('turn limit: it is 20 if nobody says otherwise', async () => {
  const { count, ran } = counter();
  using model = scriptedModel(Array.from({ length: 20 }, (_, n) => counting(n)));
  const result = await runLoop({ model, tools: [count], input: 'Count.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 20, calls: 20 });
  expect(ran).toHaveLength(20);
});

// ── at a limit ───────────────────────────────────────────────────────────────────────────────────────────────────────

type Case = readonly [limit: string, options: Partial<LoopOptions>, script: readonly ScriptedReply[], words: string];

const CLOSING: readonly Case[] = [
  ['turns', { maxTurns: 1 }, [counting(1)], 'its limit of turns'],
  ['calls', { limits: { calls: 0 } }, [counting(1), counting(2)], 'its limit of tool calls'],
  ['errors', { errorLimit: 1 }, [calling('broken')], 'its limit of errors in a row'],
  ['repetition', { repeatLimit: 1 }, [counting(1), counting(1), counting(1)], 'its limit of repeated calls'],
];

test.each(CLOSING)('at a limit of %s: exhausted, with everything done so far', async (limit, options, script) => {
  const { count } = counter();
  using model = scriptedModel(script);
  const result = await runLoop({ model, tools: [count, broken], input: 'Go.', ...options });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit }, turns: script.length });
  expect(result.messages).toHaveLength(1 + 2 * script.length);
  expect(result.usage).toEqual({ inputTokens: 10 * script.length, outputTokens: 5 * script.length, cost: 0 });
});

test.each(CLOSING)('at a limit of %s: closingTurn asks for one last answer', async (limit, options, script, words) => {
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
  expect(lastOf(last.messages)).toContain(words);
});

test('at a limit: a call in the closing turn is answered and not executed, and that is the end', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([counting(1), counting(2)]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', closingTurn: true, maxTurns: 1 });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'turns' }, turns: 2, calls: 1 });
  expect(ran).toEqual([1]);
  expect(resultsOf(result)).toEqual([['counted 1'], ['Tools may not be called now. Answer with what you have.']]);
});

test.each<Case>([
  ['tokens', { limits: { tokens: 1 } }, [counting(1)], ''],
  ['cost', { limits: { cost: 0.5 } }, [{ ...counting(1), usage: { inputTokens: 1, outputTokens: 1, cost: 1 } }], ''],
])('at a limit of %s: no closing turn, since it would spend more of it', async (limit, options, script) => {
  const { count, ran } = counter();
  using model = scriptedModel(script);
  const result = await runLoop({ model, tools: [count], input: 'Go.', closingTurn: true, ...options });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit }, turns: 1, calls: 1 });
  expect(ran).toEqual([1]);
});

test('at a limit of turns: no closing turn if the tokens are spent as well', async () => {
  const { count } = counter();
  using model = scriptedModel([counting(1)]);
  const options = { tools: [count], input: 'Go.', closingTurn: true, maxTurns: 1, limits: { tokens: 15 } };
  expect((await runLoop({ model, ...options })).outcome).toEqual({ type: 'exhausted', limit: 'turns' });
});

test('at a limit of time: no closing turn either', async () => {
  const clock = manualClock();
  using model = scriptedModel([() => new Promise<never>(() => {})]);
  const run = runLoop({ model, input: 'Go.', closingTurn: true, limits: { durationMs: 500 }, clock });
  await clock.advance(500);
  expect(await run).toMatchObject({ outcome: { type: 'exhausted', limit: 'duration' }, turns: 1, durationMs: 500 });
});

// ── limits of calls, tokens and cost ─────────────────────────────────────────────────────────────────────────────────

test('a spent calls limit refuses calls and asks for an answer', async () => {
  const { count, ran } = counter();
  const three = { calls: [1, 2, 3].map((n) => ({ name: 'count', arguments: { n } })) };
  using model = scriptedModel([three, 'Two of three.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { calls: 2 } });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Two of three.', calls: 2 });
  expect(ran).toEqual([1, 2]);
  const refusal = 'Not executed: all 2 tool calls of this run are used up. Answer with what you have.';
  expect(resultsOf(result)).toEqual([['counted 1', 'counted 2', refusal]]);
  expect(model.requests.map(({ toolChoice }) => toolChoice)).toEqual(['auto', 'none']);
});

test('a spent calls limit ends the run only if the model insists', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([counting(1), counting(2), counting(3)]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { calls: 1 } });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'calls' }, turns: 3, calls: 1 });
  expect(ran).toEqual([1]);
});

test('a token limit is looked at between turns: an answer is never thrown away for it', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([counting(1), counting(2)]);
  const over = await runLoop({ model, tools: [count], input: 'Go.', limits: { tokens: 16 } });
  expect(over).toMatchObject({ outcome: { type: 'exhausted', limit: 'tokens' }, turns: 2, calls: 2 });
  expect(ran).toEqual([1, 2]);

  using answering = scriptedModel(['Done.']);
  const done = await runLoop({ model: answering, input: 'Go.', limits: { tokens: 1 } });
  expect(done).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
});

test('a cost limit without a known cost fails and says what to do', async () => {
  const { count } = counter();
  using model = scriptedModel([{ ...counting(1), usage: { inputTokens: 1, outputTokens: 1 } }]);
  const result = await runLoop({ model, tools: [count], input: 'Go.', limits: { cost: 1 } });
  const message =
    'limits.cost is set, but the model does not report a cost, so the limit cannot be enforced. ' +
    'Set a price for the model, or limit tokens instead.';
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'cost-unknown', message } });
  expect(resultsOf(result)).toEqual([['counted 1']]);
});

// ── consecutive errors ───────────────────────────────────────────────────────────────────────────────────────────────

const FAILED = 'The tool "broken" failed: it is broken';
const both: ScriptedReply = { calls: [{ name: 'broken' }, { name: 'count', arguments: { n: 1 } }] };

test('consecutive errors: three turns with nothing but errors end the run, with their results recorded', async () => {
  const two = { calls: [{ name: 'broken' }, { name: 'nothing' }] };
  using model = scriptedModel([calling('broken', { a: 1 }), two, calling('broken', { a: 2 })]);
  const result = await runLoop({ model, tools: [broken], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 3 });
  expect(resultsOf(result)).toEqual([[FAILED], [FAILED, expect.stringContaining('no tool "nothing"')], [FAILED]]);
});

test.each([
  ['a success', counting(1)],
  ['one success beside an error', both],
])('consecutive errors: %s resets the count', async (_, reply) => {
  const { count } = counter();
  const error = (a: number): ScriptedReply => calling('broken', { a });
  using model = scriptedModel([error(1), error(2), reply, error(3), error(4), 'I give up.']);
  const result = await runLoop({ model, tools: [count, broken], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 6 });
});

test.each([
  ['an unknown tool', calling('nothing')],
  ['bad arguments', calling('count', { n: 'one' })],
  ['a denied call', counting(13)],
])('consecutive errors: %s counts', async (_, reply) => {
  const { count, ran } = counter();
  using model = scriptedModel([reply]);
  const policy = { judge: () => [{ type: 'deny', reason: 'unlucky' } as const] };
  const result = await runLoop({ model, tools: [count], input: 'Go.', errorLimit: 1, policy });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'errors' }, turns: 1 });
  expect(ran).toEqual([]);
});

test('consecutive errors: results over a cap of the loop do not count', async () => {
  const { count } = counter();
  using spent = scriptedModel([counting(1), 'Fine.']);
  const refused = await runLoop({ model: spent, tools: [count], input: 'Go.', errorLimit: 1, limits: { calls: 0 } });
  expect(refused.outcome).toEqual({ type: 'completed' });

  const beyond: ScriptedReply = { calls: [{ name: 'count', arguments: { n: 1 } }, { name: 'count' }] };
  using model = scriptedModel([beyond, 'Fine.']);
  const capped = await runLoop({ model, tools: [count], input: 'Go.', errorLimit: 1, maxCallsPerTurn: 1 });
  expect(capped.outcome).toEqual({ type: 'completed' });
});

test('consecutive errors: over-cap results beside an error do not hide it', async () => {
  using model = scriptedModel([{ calls: [{ name: 'broken' }, { name: 'broken' }] }]);
  const result = await runLoop({ model, tools: [broken], input: 'Go.', errorLimit: 1, maxCallsPerTurn: 1 });
  expect(result.outcome).toEqual({ type: 'exhausted', limit: 'errors' });
});

test('consecutive errors: a turn of over-cap results neither adds nor resets', async () => {
  const { count } = counter();
  using model = scriptedModel([calling('broken'), counting(1), 'Fine.']);
  const options = { tools: [count, broken], input: 'Go.', errorLimit: 2, limits: { calls: 1 } };
  expect((await runLoop({ model, ...options })).outcome).toEqual({ type: 'completed' });
});

test('consecutive errors: 0 is off', async () => {
  using model = scriptedModel([...Array.from({ length: 5 }, (_, a) => calling('broken', { a })), 'I give up.']);
  const result = await runLoop({ model, tools: [broken], input: 'Go.', errorLimit: 0 });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 6 });
});

// ── repetition ───────────────────────────────────────────────────────────────────────────────────────────────────────

const REFUSED =
  'Not executed: "count" was called 3 times in a row with the same arguments and returned the same result. ' +
  'Do something else, or answer with what you have.';
const same = counting(7);

test('repetition: after three identical calls with identical results the next is refused, and the run goes on', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([same, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 5, calls: 3 });
  expect(ran).toEqual([7, 7, 7]);
  expect(resultsOf(result)).toEqual([['counted 7'], ['counted 7'], ['counted 7'], [REFUSED]]);
});

test('repetition: the second refusal ends the run', async () => {
  const { count, ran } = counter();
  using model = scriptedModel([same, same, same, same, same]);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'exhausted', limit: 'repetition' }, turns: 5, calls: 3 });
  expect(ran).toEqual([7, 7, 7]);
  expect(resultsOf(result).slice(3)).toEqual([[REFUSED], [REFUSED]]);
});

test('repetition: other results are no repetition', async () => {
  let n = 0;
  const next = tool({ name: 'next', description: 'The next number', execute: () => `${n++}` });
  using model = scriptedModel([...Array.from({ length: 6 }, () => calling('next')), 'Six.']);
  expect(await runLoop({ model, tools: [next], input: 'Go.' })).toMatchObject({
    outcome: { type: 'completed' },
    calls: 6,
  });
});

test.each([
  ['a call of another tool', calling('other')],
  ['other arguments', counting(8)],
])('repetition: %s in between resets it', async (_, between) => {
  const { count } = counter();
  const other = tool({ name: 'other', description: 'Another', execute: () => 'other' });
  using model = scriptedModel([same, same, same, between, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count, other], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 7 });
});

test('repetition: a refusal is forgotten after something else', async () => {
  const { count } = counter();
  using model = scriptedModel([same, same, same, same, counting(8), same, same, same, same, 'Seven.']);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result).toMatchObject({ outcome: { type: 'completed' }, turns: 10, calls: 7 });
});

test('repetition: a polling tool is exempt', async () => {
  const poll = tool({ name: 'poll', description: 'Ready?', polling: true, execute: () => 'not yet' });
  using model = scriptedModel([...Array.from({ length: 9 }, () => calling('poll')), 'Still not.']);
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

const used = (usage: Usage, n: number): ScriptedReply => ({ ...counting(n), usage });
const FULL: Usage = {
  inputTokens: 100,
  outputTokens: 20,
  cachedTokens: 80,
  cacheWriteTokens: 5,
  reasoningTokens: 10,
  cost: 0.25,
};

test('usage: everything is summed over turns', async () => {
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

test('usage: also on failure', async () => {
  const { count } = counter();
  const failure = { type: 'failure', error: { code: 'network', message: 'gone', retryable: true } } as const;
  using model = scriptedModel([used(FULL, 1), failure]);
  const result = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(result.outcome).toEqual({ type: 'failed', error: { code: 'network', message: 'gone' } });
  expect(result.usage).toEqual(FULL);
});

test('usage: an unknown cost stays unknown, whatever comes after it', async () => {
  const { count } = counter();
  const unpriced: Usage = { inputTokens: 1, outputTokens: 1 };
  using model = scriptedModel([used(FULL, 1), used(unpriced, 2), { text: 'x', usage: FULL }]);
  const { usage } = await runLoop({ model, tools: [count], input: 'Go.' });
  expect(usage).toMatchObject({ inputTokens: 201, outputTokens: 41 });
  expect(usage).not.toHaveProperty('cost');
});
