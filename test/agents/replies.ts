import type { ScriptStep } from '@treadle/core/testing';
import fc from 'fast-check';

/** A test case: the limits of an agent and the replies of the model. */
export interface World {
  readonly reflection: boolean;
  readonly maxAttempts: number;
  readonly maxIterations: number;
  readonly textOnly: 'fail' | 'feedback';
  readonly earlySubmit: 'fail' | 'feedback';
  readonly limits: { readonly tokens?: number; readonly calls?: number };
  readonly replies: readonly Reply[];
}

/** `tokens` is the number of input tokens; the output has one more. */
export type Reply = { readonly tokens: number } & (
  | { readonly type: 'calls'; readonly calls: readonly Called[]; readonly text?: string }
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'failure' }
  | { readonly type: 'abort' }
);

/** An output is `good`, rejected by a validator (`odd`) or by the schema (`bad`), or not JSON (`cut`). */
export type Called = keyof typeof CALLS;

export const CALLS = {
  look: ['look', { at: 'a' }],
  'look wrongly': ['look', { at: 1 }],
  broken: ['broken', {}],
  stop: ['stop', {}],
  unknown: ['nothing', {}],
  good: ['answer', { total: 2 }],
  odd: ['answer', { total: 3 }],
  bad: ['answer', { total: 'x' }],
  cut: ['answer', '{"total":'],
  submit: ['submit', {}],
} as const;

const called: fc.Arbitrary<Called> = fc.oneof(
  { weight: 40, arbitrary: fc.constant<Called>('look') },
  { weight: 40, arbitrary: fc.constantFrom<Called>('odd', 'bad', 'cut') },
  { weight: 10, arbitrary: fc.constant<Called>('good') },
  { weight: 30, arbitrary: fc.constant<Called>('submit') },
  { weight: 20, arbitrary: fc.constantFrom<Called>('look wrongly', 'broken', 'unknown') },
  { weight: 2, arbitrary: fc.constant<Called>('stop') },
);

const tokens = fc.integer({ min: 0, max: 20 });

const reply: fc.Arbitrary<Reply> = fc.oneof(
  {
    weight: 160,
    arbitrary: fc.record(
      {
        type: fc.constant('calls' as const),
        calls: fc.array(called, { minLength: 1, maxLength: 4 }),
        text: fc.constantFrom('', 'So:'),
        tokens,
      },
      { requiredKeys: ['type', 'calls', 'tokens'] },
    ),
  },
  {
    weight: 20,
    arbitrary: fc.record({ type: fc.constant('text' as const), text: fc.constantFrom('Hm', '', ' '), tokens }),
  },
  { weight: 3, arbitrary: fc.record({ type: fc.constant('failure' as const), tokens }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('abort' as const), tokens }) },
);

const leniency = fc.constantFrom('fail' as const, 'feedback' as const);

/** Each has as many replies as its limits allow. */
export const worlds: fc.Arbitrary<World> = fc
  .record({
    reflection: fc.boolean(),
    maxAttempts: fc.integer({ min: 1, max: 3 }),
    maxIterations: fc.integer({ min: 1, max: 4 }),
    textOnly: leniency,
    earlySubmit: leniency,
    limits: fc.oneof(
      { weight: 30, arbitrary: fc.constant({}) },
      { weight: 10, arbitrary: fc.record({ tokens: fc.integer({ min: 1, max: 200 }) }) },
      { weight: 10, arbitrary: fc.record({ calls: fc.integer({ min: 1, max: 4 }) }) },
    ),
  })
  .chain((rules) =>
    fc
      .array(reply, {
        minLength: rules.maxAttempts * rules.maxIterations,
        maxLength: rules.maxAttempts * rules.maxIterations,
      })
      .map((replies) => ({ ...rules, replies })),
  );

/** The script of the model; `abort` cancels the execution. */
export function scriptOf(replies: readonly Reply[], abort: () => void): readonly ScriptStep[] {
  return replies.map((one): ScriptStep => {
    const usage = {
      inputTokens: one.tokens,
      outputTokens: one.tokens === 0 ? 0 : one.tokens + 1,
      cost: one.tokens / 4,
    };
    switch (one.type) {
      case 'failure':
        return { type: 'failure', error: { code: 'overloaded', message: 'Too busy', retryable: true } };
      case 'abort':
        return () => {
          abort();
          return 'too late';
        };
      case 'text':
        return { text: one.text, usage };
      case 'calls': {
        const calls = one.calls.map((name) => ({ name: CALLS[name][0], arguments: CALLS[name][1] }));
        return { calls, usage, ...(one.text !== undefined && { text: one.text }) };
      }
      default:
        return one satisfies never;
    }
  });
}
