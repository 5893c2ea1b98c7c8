import type { Message, ResultBlock, Rules, SettledResult, ToolFacts, Usage, Verdict } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { Fate, Move, Part, Reply, ScriptedCall, World } from './world.ts';

/*
 * The one generator of worlds. Names, arguments, results and call ids come from small pools, and limits are low, so
 * that repetitions, clashes and limits are met often; what ends a run early is rare, so that runs get somewhere.
 */

const NAMES = ['read', 'write', 'edit', 'wait'] as const;

const rarely = (percent: number): Arbitrary<boolean> =>
  fc.oneof({ weight: 100 - percent, arbitrary: fc.constant(false) }, { weight: percent, arbitrary: fc.constant(true) });

function mostly<T, U>(usual: T, percent: number, other: Arbitrary<U>): Arbitrary<T | U> {
  return fc.oneof(
    { weight: 100 - percent, arbitrary: fc.constant(usual) },
    { weight: percent, arbitrary: other as Arbitrary<T | U> },
  );
}

/** A record whose field is there in so many percent of the cases. */
function optionally<K extends string, T>(name: K, percent: number, value: Arbitrary<T>): Arbitrary<{ [key in K]?: T }> {
  return mostly(
    {},
    percent,
    value.map((given) => ({ [name]: given }) as { [key in K]?: T }),
  );
}

const facts = (name: string): Arbitrary<ToolFacts> =>
  fc.record({
    name: fc.constant(name),
    description: fc.constant(''),
    parameters: fc.constant({ type: 'object' }),
    effect: fc.constantFrom('pure', 'idempotent', 'once'),
    exclusive: rarely(15),
    polling: rarely(15),
    client: rarely(15),
    verifiable: rarely(40),
  });

const toolset: Arbitrary<readonly ToolFacts[]> = fc
  .tuple(fc.tuple(...NAMES.map(facts)), mostly(NAMES, 30, fc.subarray([...NAMES], { minLength: 1 })))
  .map(([all, kept]) => all.filter(({ name }) => kept.includes(name as (typeof NAMES)[number])));

const limits: Arbitrary<Rules['limits']> = fc
  .tuple(
    optionally('calls', 18, fc.constantFrom(0, 1, 2, 3, 4, 6)),
    optionally('tokens', 10, fc.constantFrom(0, 40, 80, 120, 160, 200)),
    optionally('cost', 10, fc.constantFrom(0, 2, 4, 6, 8, 10)),
    optionally('durationMs', 30, fc.constantFrom(3, 10, 20, 40)),
  )
  .map((given) => Object.assign({}, ...given));

const rules: Arbitrary<Rules> = fc
  .tuple(
    fc.record({
      wording: fc.constant(1 as const),
      finish: mostly('plain' as const, 25, fc.constant('confirm' as const)),
      maxTurns: mostly(9, 30, fc.constantFrom(1, 2, 3, 4, 5, 6)),
      maxParallel: fc.constantFrom(1, 2, 3, 5),
      parallel: mostly(true, 20, fc.constant(false)),
      errorLimit: mostly(0, 55, fc.constantFrom(1, 2, 2, 3, 4)),
      repeatLimit: mostly(0, 75, fc.constantFrom(1, 2, 3)),
      maxResultChars: fc.constant(1_000),
      toolTimeoutMs: fc.constant(1_000),
      limits,
      closingTurn: fc.boolean(),
      toolChoice: mostly(
        'auto' as const,
        20,
        fc.oneof(
          fc.constantFrom('required', 'none'),
          fc.constantFrom(...NAMES).map((tool) => ({ tool })),
        ),
      ),
      judged: fc.boolean(),
    }),
    optionally('maxCallsPerTurn', 20, fc.constantFrom(1, 2, 3)),
    optionally('allowedTools', 20, fc.subarray([...NAMES], { minLength: 1 })),
  )
  .map(([always, cap, allowed]) => ({ ...always, ...cap, ...allowed }));

const usage: Arbitrary<Usage> = fc
  .tuple(fc.nat(40), fc.nat(20), optionally('cost', 95, fc.nat(3)))
  .map(([inputTokens, outputTokens, cost]) => ({ inputTokens, outputTokens, ...cost }));

const content: Arbitrary<readonly ResultBlock[]> = fc.constantFrom(
  [{ type: 'text', text: 'yes' }],
  [{ type: 'text', text: 'no' }],
  [{ type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'about:blank' } }],
  [],
);

const verified: Arbitrary<SettledResult> = fc.oneof(
  fc.constantFrom({ type: 'not-done' } as const, { type: 'unknown' } as const),
  fc.record({ type: fc.constant('result' as const), content, isError: fc.boolean() }),
);

const fate: Arbitrary<Fate> = fc.record({
  content,
  isError: mostly(false, 28, fc.constant(true)),
  parked: rarely(10),
  lost: mostly([], 15, fc.array(fc.constantFrom('restart', 'device'), { minLength: 1, maxLength: 2 })),
  verified,
  answer: mostly('given' as const, 30, fc.constantFrom('refused', 'expired', 'late', 'never')),
});

const verdict: Arbitrary<Verdict> = fc.oneof(
  { weight: 6, arbitrary: fc.constant({ type: 'allow' as const }) },
  { weight: 1, arbitrary: fc.constant({ type: 'deny' as const, reason: 'no' }) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(optionally('ttlMs', 70, fc.nat(60)), optionally('reason', 30, fc.constant('may I?')))
      .map((given) => ({ type: 'ask' as const, ...given[0], ...given[1] })),
  },
);

const call: Arbitrary<ScriptedCall> = fc.record({
  type: fc.constant('call' as const),
  id: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', '', 'call_t2_0', 'call_t3_1'),
  name: mostly('read', 50, fc.constantFrom(...NAMES, ...NAMES, 'nothing')),
  arguments: mostly('{}', 50, fc.constantFrom('{"a":1}', '{"a":2}', '{"a":')),
  copies: mostly(1, 1, mostly(1, 30, fc.constant(130))),
  check: fc
    .tuple(
      optionally('problem', 6, fc.constant('It is wrong.')),
      optionally('arguments', 8, fc.constant('{"a":1}')),
      optionally('resources', 40, fc.subarray(['x', 'y', 'z'])),
    )
    .map((found) => Object.assign({}, ...found)),
  verdict,
  fate,
});

const text: Arbitrary<Part> = fc.constantFrom('a text', 'another').map((words) => ({ type: 'text', text: words }));
const reasoning: Arbitrary<Part> = fc.constant({ type: 'reasoning', text: 'hm', signature: 's' });
const blank: Arbitrary<Part> = fc.constant({ type: 'text', text: ' \n' });

const details = {
  usage,
  unchecked: mostly(0, 6, fc.constant(1)),
  unjudged: mostly(0, 10, fc.constant(1)),
  steered: rarely(12),
};

const calling: Arbitrary<Reply> = fc.record({
  type: fc.constant('reply' as const),
  parts: fc
    .tuple(
      fc.array(fc.oneof(text, reasoning), { maxLength: 1 }),
      fc.array(call, { minLength: 1, maxLength: 4, size: 'max' }),
      rarely(20),
    )
    .map(([before, calls, more]): Part[] => [
      ...before,
      ...calls,
      ...(more ? [{ type: 'text' as const, text: 'so' }] : []),
    ]),
  finish: mostly('tool-calls' as const, 25, fc.constantFrom('stop', 'length')),
  ...details,
});

const answering: Arbitrary<Reply> = fc.record({
  type: fc.constant('reply' as const),
  parts: fc.oneof(
    fc.array(fc.oneof(text, reasoning), { minLength: 1, maxLength: 2 }),
    fc.array(fc.oneof(blank, reasoning), { maxLength: 1 }),
  ),
  finish: mostly('stop' as const, 25, fc.constant('length' as const)),
  ...details,
});

const filtered: Arbitrary<Reply> = fc.record({
  type: fc.constant('reply' as const),
  parts: fc.array(fc.oneof(text, call, reasoning), { maxLength: 2 }),
  finish: fc.constant('content-filter' as const),
  ...details,
});

const failing: Arbitrary<Reply> = fc
  .constantFrom('auth', 'overloaded', 'context-length')
  .map((code) => ({ type: 'failure', code }));

const reply: Arbitrary<Reply> = fc.oneof(
  { weight: 175, arbitrary: calling },
  { weight: 16, arbitrary: answering },
  { weight: 1, arbitrary: filtered },
  { weight: 8, arbitrary: failing },
);

/** Some models do the same again and again. */
const alone: Arbitrary<Reply> = fc
  .tuple(calling, call)
  .map(([reply, only]) => ({ ...reply, parts: [{ ...only, check: {}, copies: 1 }] }) as Reply);

const replies: Arbitrary<readonly Reply[]> = fc.oneof(
  { weight: 3, arbitrary: fc.array(reply, { minLength: 2, maxLength: 9, size: 'max' }) },
  {
    weight: 1,
    arbitrary: fc
      .tuple(
        fc.array(reply, { maxLength: 1 }),
        fc.oneof(alone, calling),
        fc.constantFrom(3, 4, 5, 6),
        fc.array(reply, { maxLength: 2 }),
      )
      .map(([first, same, times, last]) => [...first, ...Array.from({ length: times }, () => same), ...last]),
  },
);

const input: Arbitrary<readonly Message[]> = fc.constantFrom<readonly Message[]>(
  [{ role: 'user', content: [{ type: 'text', text: 'do it' }] }],
  [
    { role: 'user', content: [{ type: 'text', text: 'do it' }] },
    { role: 'assistant', content: [{ type: 'tool-call', id: 'a', name: 'read', arguments: '{}' }] },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', callId: 'a', name: 'read', content: [{ type: 'text', text: 'yes' }], isError: false },
      ],
    },
  ],
);

const move: Arbitrary<Move> = fc.record({
  act: fc.oneof(
    { weight: 76, arbitrary: fc.constant('settle' as const) },
    { weight: 8, arbitrary: fc.constantFrom('repeat', 'foreign', 'mistake') },
    { weight: 3, arbitrary: fc.constant('input' as const) },
    { weight: 3, arbitrary: fc.constant('tools' as const) },
    { weight: 6, arbitrary: fc.constant('deadline' as const) },
    { weight: 2, arbitrary: fc.constant('lose' as const) },
    { weight: 3, arbitrary: fc.constantFrom('restart', 'cancel') },
  ),
  pick: fc.nat(9_999),
  delay: mostly(1, 50, fc.constantFrom(-3, 0, 2, 5, 20)),
});

export const moves: Arbitrary<readonly Move[]> = fc.array(move, { maxLength: 50, size: 'max' });

export const worlds: Arbitrary<World> = fc.record({
  rules,
  tools: toolset,
  otherTools: toolset,
  input,
  replies,
  moves,
});
