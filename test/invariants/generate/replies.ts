import type { GuardrailVerdict, TurnDecision } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { TurnScript, Part, Reply } from '../world.ts';
import { askedCall, call, parkedCall, usage } from './calls.ts';
import { mostly, optionally, rarely } from './chance.ts';
import { NAMES, someChoice } from './rules.ts';

const text: Arbitrary<Part> = fc.constantFrom('a text', 'another').map((words) => ({ type: 'text', text: words }));
const reasoning: Arbitrary<Part> = fc.constant({ type: 'reasoning', text: 'hm', signature: 's' });
const blank: Arbitrary<Part> = fc.constant({ type: 'text', text: ' \n' });

const details = {
  usage,
  unchecked: mostly(0, 6, fc.constant(1)),
  unjudged: mostly(0, 10, fc.constant(1)),
  steered: rarely(12),
};

export const calling: Arbitrary<Reply> = fc.record({
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

export const answering: Arbitrary<Reply> = fc.record({
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

const waitFirst = optionally('retryAfterMs', 95, fc.nat(50));

const failing: Arbitrary<Reply> = fc
  .tuple(
    fc.record({
      type: fc.constant('failure' as const),
      code: fc.constantFrom('auth', 'overloaded', 'context-length', 'context-length'),
      stubborn: rarely(30),
    }),
    waitFirst,
  )
  .map(([failure, wait]) => ({ ...failure, ...wait }));

export const reply: Arbitrary<Reply> = fc.oneof(
  { weight: 175, arbitrary: calling },
  { weight: 16, arbitrary: answering },
  { weight: 1, arbitrary: filtered },
  { weight: 16, arbitrary: failing },
);

/** The model repeats the same reply. */
const repeating: Arbitrary<readonly Reply[]> = fc
  .tuple(fc.array(reply, { maxLength: 1 }), calling, fc.constantFrom(3, 4, 5, 6), fc.array(reply, { maxLength: 2 }))
  .map(([first, same, times, last]) => [...first, ...Array.from({ length: times }, () => same), ...last]);

/** The model repeats the same call, with others in between. */
const insisting: Arbitrary<readonly Reply[]> = fc
  .tuple(
    calling,
    call,
    call,
    fc.constantFrom(1, 2, 3, 4),
    fc.array(fc.array(fc.boolean(), { minLength: 1, maxLength: 3 })),
  )
  .map(([like, same, other, times, mixtures]) => {
    const [again, between] = [same, other].map((one) => ({ ...one, check: {}, copies: 1 }));
    const alone = Array.from({ length: times }, () => [again!]);
    const mixed = mixtures.map((mixture) => mixture.map((first) => (first ? again! : between!)));
    return [...alone, ...mixed].map((parts) => ({ ...like, parts }) as Reply);
  });

export const replies: Arbitrary<readonly Reply[]> = fc.oneof(
  { weight: 6, arbitrary: fc.array(reply, { minLength: 2, maxLength: 9, size: 'max' }) },
  { weight: 1, arbitrary: repeating },
  { weight: 2, arbitrary: insisting },
);

/** Calls that people have to approve. */
export const askingReplies: Arbitrary<readonly Reply[]> = fc.array(
  fc
    .tuple(
      calling,
      fc.array(fc.oneof({ weight: 3, arbitrary: askedCall }, { weight: 1, arbitrary: call }), {
        minLength: 1,
        maxLength: 3,
      }),
    )
    .map(([like, parts]) => ({ ...like, parts }) as Reply),
  { minLength: 3, maxLength: 7, size: 'max' },
);

/** Calls that are parked or executed by the client. */
export const parkedReplies: Arbitrary<readonly Reply[]> = fc.array(
  fc
    .tuple(calling, fc.array(parkedCall, { minLength: 1, maxLength: 3 }))
    .map(([like, parts]) => ({ ...like, parts, unchecked: 0, finish: 'tool-calls' }) as Reply),
  { minLength: 3, maxLength: 6, size: 'max' },
);

/** Several calls at once that are mostly allowed. */
export const queuedReplies: Arbitrary<readonly Reply[]> = fc.array(
  fc.tuple(calling, fc.array(call, { minLength: 3, maxLength: 4 }), rarely(20)).map(([like, calls, judged]) => {
    const parts = calls.map((one) => ({
      ...one,
      name: one.name === 'nothing' || one.name === 'no such' ? 'read' : one.name,
      check: {},
      copies: 1,
      ...(!judged && { verdict: { type: 'allow' as const } }),
    }));
    return { ...like, parts } as Reply;
  }),
  { minLength: 2, maxLength: 6, size: 'max' },
);

const tooLong: Arbitrary<Reply> = fc
  .tuple(
    fc.record({
      type: fc.constant('failure' as const),
      code: mostly('context-length' as const, 55, fc.constant('overloaded' as const)),
      stubborn: rarely(30),
    }),
    waitFirst,
  )
  .map(([failure, wait]) => ({ ...failure, ...wait }));

/** The replies of a long conversation. */
export const longReplies: Arbitrary<readonly Reply[]> = fc.array(
  fc.oneof({ weight: 8, arbitrary: calling }, { weight: 1, arbitrary: answering }, { weight: 4, arbitrary: tooLong }),
  { minLength: 4, maxLength: 9, size: 'max' },
);

/** Answers during whose validation input is added. */
const interrupted: Arbitrary<Reply> = answering.map((given) => ({ ...given, steered: true }) as Reply);

export const answers: Arbitrary<readonly Reply[]> = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: answering },
    { weight: 2, arbitrary: interrupted },
    { weight: 3, arbitrary: calling },
  ),
  { minLength: 1, maxLength: 6, size: 'max' },
);

const decision: Arbitrary<TurnDecision> = fc
  .tuple(
    optionally('model', 20, fc.constant('other')),
    optionally('tools', 30, fc.subarray([...NAMES], { minLength: 1 })),
    optionally('toolChoice', 30, mostly('auto' as const, 50, someChoice)),
    optionally('instructions', 30, fc.constantFrom('today', 'tomorrow')),
  )
  .map((given) => Object.assign({}, ...given) as TurnDecision);

export const turnScript: Arbitrary<TurnScript> = fc.record({
  decision,
  unprepared: rarely(5),
  summary: mostly(
    { type: 'failure' as const },
    75,
    usage.map((used) => ({ type: 'summary' as const, usage: used })),
  ),
  guards: mostly<GuardrailVerdict[], GuardrailVerdict[]>(
    [{ type: 'pass' }],
    35,
    fc.constantFrom<GuardrailVerdict[]>(
      [],
      [{ type: 'stop', reason: 'not this' }],
      [{ type: 'pass' }, { type: 'pass' }],
      [{ type: 'pass' }, { type: 'stop', reason: 'not that' }],
    ),
  ),
  valid: mostly(false, 40, fc.constant(true)),
  /** Also falsy values, which must not count as missing. */
  value: mostly({ a: 1 }, 30, fc.constantFrom(0, '', false, null)),
  rejection: fc
    .tuple(
      optionally('validator', 40, fc.constant('plausible')),
      optionally('prompt', 50, fc.constant('look again')),
      optionally('promptProblem', 20, fc.constant('no words')),
    )
    .map((given) => Object.assign({}, ...given) as TurnScript['rejection']),
});
