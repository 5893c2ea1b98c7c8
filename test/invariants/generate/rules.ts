import type { Autonomy, Narrowing, Rules, ToolChoice, ToolFacts } from '@treadle/core';
import type { PolicyRules } from '@treadle/core/policy';
import fc, { type Arbitrary } from 'fast-check';
import { mostly, optionally, rarely } from './chance.ts';

export const NAMES = ['read', 'write', 'edit', 'question'] as const;

const facts = (name: string): Arbitrary<ToolFacts> =>
  fc
    .tuple(
      fc.record({
        name: fc.constant(name),
        description: fc.constant(''),
        parameters: fc.constant({ type: 'object' }),
        effect: fc.constantFrom('pure', 'idempotent', 'once'),
        exclusive: rarely(15),
        polling: rarely(15),
        client: rarely(15),
        verifiable: rarely(40),
      }),
      optionally('share', 20, fc.constantFrom(0.25, 0.5, 0.9, 1)),
      optionally('needsApproval', 25, fc.constant(true as const)),
      optionally('ttlMs', 30, fc.nat(60)),
      optionally('drawsOnLedger', 50, fc.constant(true as const)),
      optionally('unnarrowed', 12, fc.constant(true as const)),
    )
    .map(([always, ...others]) => Object.assign({}, always, ...others) as ToolFacts);

export const toolset: Arbitrary<readonly ToolFacts[]> = fc
  .tuple(fc.tuple(...NAMES.map(facts)), mostly(NAMES, 30, fc.subarray([...NAMES], { minLength: 1 })))
  .map(([all, kept]) => all.filter(({ name }) => kept.includes(name as (typeof NAMES)[number])));

const limits: Arbitrary<Rules['limits']> = fc
  .tuple(
    optionally('calls', 24, fc.constantFrom(0, 1, 2, 3, 4, 6)),
    optionally('tokens', 10, fc.constantFrom(0, 40, 80, 120, 160, 200)),
    optionally('cost', 14, fc.constantFrom(0, 2, 4, 6, 8, 10)),
    optionally('durationMs', 30, fc.constantFrom(3, 10, 20, 40)),
  )
  .map((given) => Object.assign({}, ...given));

export const someChoice: Arbitrary<ToolChoice> = fc.oneof(
  fc.constantFrom('required', 'none'),
  fc.constantFrom(...NAMES).map((tool) => ({ tool })),
);

/** Who narrows. */
export const SOURCES = ['plan', 'skill:x'] as const;

export const narrowing: Arbitrary<Narrowing> = fc
  .tuple(
    optionally('tools', 60, fc.subarray([...NAMES, 'nothing'], { minLength: 0 })),
    optionally('without', 20, fc.subarray([...NAMES, 'nothing'], { minLength: 1 })),
    optionally('ask', 15, fc.subarray([...NAMES, 'nothing'], { minLength: 1 })),
    optionally('autonomy', 50, fc.constantFrom<Autonomy>(0, 1, 2, 3)),
    optionally('source', 50, fc.constantFrom(...SOURCES)),
    optionally(
      'rules',
      8,
      fc.constantFrom<PolicyRules>({ tools: { edit: 'deny' } }, { tools: { read: 'ask', write: 'allow' } }),
    ),
  )
  .map((given): Narrowing => Object.assign({}, ...given))
  .map((given) => (Object.keys(given).length > 0 ? given : { autonomy: 3 as const }))
  .map((given) => (given.source === 'plan' && given.autonomy === 2 ? { ...given, fixed: true } : given));

/** `early`: the percentage with a threshold that applies before the model rejects the conversation. */
export function compactions(early: number): Arbitrary<NonNullable<Rules['compaction']>> {
  return fc
    .tuple(fc.constantFrom(1, 1, 2, 3), optionally('tokens', early, fc.constantFrom(1, 20, 21, 40, 41, 60)))
    .map(([keepTurns, tokens]) => ({ keepTurns, ...tokens }));
}

export const rules: Arbitrary<Rules> = fc
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
      toolChoice: mostly('auto' as const, 20, someChoice),
      judged: fc.boolean(),
    }),
    optionally('maxCallsPerTurn', 20, fc.constantFrom(1, 2, 3)),
    optionally('allowedTools', 20, fc.subarray([...NAMES], { minLength: 1 })),
    optionally('errorTypes', 80, fc.constant(true as const)),
    optionally('marks', 80, fc.constant(true as const)),
    optionally('budgeted', 20, fc.constant(true as const)),
    optionally('retryLater', 97, fc.constantFrom(1, 1, 2)),
    optionally('prepared', 30, fc.constant(true as const)),
    optionally('output', 30, fc.constant({ type: 'object' })),
    optionally('compaction', 45, compactions(75)),
    optionally(
      'guardrails',
      25,
      fc.constantFrom<NonNullable<Rules['guardrails']>>(
        { input: true },
        { output: true },
        { input: true, output: true },
      ),
    ),
    optionally('crashLimit', 15, fc.constantFrom(0, 1, 2, 5)),
  )
  .map((given) => Object.assign({}, ...given) as Rules);
