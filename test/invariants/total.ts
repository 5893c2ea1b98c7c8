import type { CallCheck, Event, ToolChoice, ToolFacts, TurnDecision, Usage, Verdict } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { Core } from './core.ts';
import { ensure, type Trace } from './trace.ts';

/** An event with unusual values, and the moment at which it is fed. */
export interface Stray {
  readonly event: Event;
  /** The index of the moment. */
  readonly moment: number;
  /** The index of the outstanding effect whose id it gets; beyond the last one it keeps its own. */
  readonly open: number;
}

const number = fc.constantFrom(0, -1, 0.5, NaN, Infinity, -Infinity, Number.MAX_SAFE_INTEGER, 1_010);
const word = fc.constantFrom(
  '',
  ' ',
  'read',
  '__proto__',
  'constructor',
  't1.tool.0',
  '\u0000',
  '\ud800',
  'x'.repeat(500),
);
const blocks = fc.array(fc.record({ type: fc.constantFrom('text', 'error'), text: word }), { maxLength: 2 });
const usage: Arbitrary<Usage> = fc.record(
  { inputTokens: number, outputTokens: number, cost: number },
  { requiredKeys: ['inputTokens', 'outputTokens'] },
);
const memory = fc.oneof(
  fc.record({ run: fc.oneof(word, number), attempt: fc.oneof(word, number) }, { requiredKeys: [] }),
  fc.dictionary(word, fc.oneof(word, fc.constant(null)), { maxKeys: 2 }),
  word,
);
const names = fc.oneof(word, fc.array(fc.oneof(word, number), { maxLength: 2 }));
const narrow = fc.oneof(
  fc.record(
    {
      tools: names,
      without: names,
      ask: names,
      autonomy: number,
      source: fc.oneof(word, number),
      rules: word,
      fixed: fc.oneof(word, fc.constant(true)),
    },
    { requiredKeys: [] },
  ),
  word,
  fc.array(fc.oneof(word, fc.constant(null), fc.record({ without: names })), { maxLength: 2 }),
);
const check: Arbitrary<CallCheck> = fc.record(
  { problem: word, errorType: fc.constant('not_found'), arguments: word, resources: fc.array(word, { maxLength: 2 }) },
  { requiredKeys: [] },
);
const tool: Arbitrary<ToolFacts> = fc.record(
  {
    name: word,
    description: word,
    parameters: fc.constant({}),
    effect: fc.constantFrom('pure', 'idempotent', 'once'),
    exclusive: fc.boolean(),
    polling: fc.boolean(),
    client: fc.boolean(),
    verifiable: fc.boolean(),
    share: number,
    unnarrowed: fc.constant(true as const),
  },
  { requiredKeys: ['name', 'description', 'parameters', 'effect', 'exclusive', 'polling', 'client', 'verifiable'] },
);
const handoff = fc.oneof(
  fc.record(
    { agent: word, model: word, instructions: word, tools: fc.array(tool, { maxLength: 2 }) },
    { requiredKeys: [] },
  ),
  word,
);
const choice: Arbitrary<ToolChoice> = fc.oneof(
  fc.constantFrom('auto', 'required', 'none'),
  word.map((named) => ({ tool: named })),
);
const decision: Arbitrary<TurnDecision> = fc.record(
  { model: word, tools: fc.array(word, { maxLength: 2 }), toolChoice: choice, instructions: word },
  { requiredKeys: [] },
);
/** Touches of a journal with damaged places. */
const placed = fc.record({
  type: fc.constantFrom('write', 'read'),
  path: word,
  on: fc.oneof(word, fc.constant(null), fc.record({ type: word })),
});
const verdict: Arbitrary<Verdict> = fc.oneof(
  fc.record({ type: fc.constant('allow' as const) }),
  fc.record({ type: fc.constant('deny' as const), reason: word }),
  fc.record(
    {
      type: fc.constant('ask' as const),
      reason: word,
      ttlMs: number,
      required: number,
      approvers: fc.oneof(fc.array(word, { maxLength: 2 }), word) as Arbitrary<readonly string[]>,
      touches: fc.oneof(fc.array(word, { maxLength: 2 }), fc.array(placed, { maxLength: 2 }), word, number),
      sandbox: fc.oneof(fc.array(word, { maxLength: 2 }), word, number),
      shown: word,
    },
    { requiredKeys: ['type'] },
  ),
);
const part = fc.oneof(
  fc.record({ type: fc.constant('text' as const), text: word }),
  fc.record({ type: fc.constant('reasoning' as const), text: word }),
  fc.record({ type: fc.constant('tool-call' as const), id: word, name: word, arguments: word }),
);

const of = <Type extends Event['type']>(type: Type, fields: object): Arbitrary<Event> =>
  fc.record({ type: fc.constant(type), at: number, effect: word, ...fields }) as Arbitrary<unknown> as Arbitrary<Event>;

const event: Arbitrary<Event> = fc.oneof(
  of('input-added', {
    messages: fc.array(fc.record({ role: fc.constant('user'), content: blocks }), { maxLength: 2 }),
  }),
  of('tools-changed', { tools: fc.array(tool, { maxLength: 3 }) }),
  of('tools-changed', { tools: fc.array(tool, { maxLength: 3 }), from: fc.constant('next-turn') }),
  of('narrowing-lifted', { source: fc.oneof(word, fc.constant(undefined)) }),
  of('resource-opened', {
    runId: word,
    name: fc.oneof(word, number),
    process: fc.oneof(fc.record({ pid: number }), word, fc.constant(null)),
  }),
  of('resource-closed', { name: fc.oneof(word, fc.constant(undefined)) }),
  of('run-forked', { model: word, instructions: word, tools: fc.array(tool, { maxLength: 3 }) }),
  of('turn-prepared', { decision }),
  of('turn-prepared', { decision, problem: word }),
  of('output-checked', {
    result: fc.oneof(
      fc.record({ type: fc.constant('valid'), value: fc.oneof(word, number, fc.constant(undefined)) }),
      fc.record(
        {
          type: fc.constant('invalid'),
          problems: fc.array(word, { maxLength: 2 }),
          validator: word,
          prompt: word,
          promptProblem: word,
        },
        { requiredKeys: ['type', 'problems'] },
      ),
    ),
  }),
  of('history-compacted', {
    result: fc.oneof(
      fc.record({ type: fc.constant('summary'), summary: word, model: word, usage }),
      fc.record({
        type: fc.constant('failure'),
        error: fc.record({ code: word, message: word, retryable: fc.boolean() }),
      }),
    ),
  }),
  of('model-replied', {
    content: fc.array(part, { maxLength: 4 }),
    finish: fc.constantFrom('stop', 'tool-calls', 'length', 'content-filter'),
    usage,
    model: word,
    checks: fc.array(check, { maxLength: 5 }),
  }),
  of('model-failed', {
    error: fc.record({ code: word, message: word, retryable: fc.boolean(), endsWith: word }),
  }),
  of('program-changed', { program: fc.oneof(word, number, fc.constant(undefined)) }),
  of('model-failed', {
    error: fc.record({
      code: fc.oneof(word, fc.constant('context-length')),
      message: word,
      retryable: fc.boolean(),
    }),
  }),
  of('calls-judged', { verdicts: fc.array(verdict, { maxLength: 5 }) }),
  of('call-rejudged', { verdict: fc.option(verdict, { nil: undefined }) }),
  of('policy-changed', { rules: word, verdicts: fc.dictionary(fc.constantFrom('t1.tool.0', 't2.tool.0'), verdict) }),
  of('policy-changed', { rules: fc.constant(undefined), limits: fc.record({ turns: number, calls: number }) }),
  of('tool-settled', {
    result: fc.oneof(
      fc.record({ type: fc.constant('result'), content: blocks, isError: fc.boolean() }),
      fc.record({ type: fc.constant('result'), content: blocks, isError: fc.boolean(), usage }),
      fc.record({ type: fc.constant('result'), content: blocks, isError: fc.boolean(), memory }),
      fc.record({
        type: fc.constant('result'),
        content: blocks,
        isError: fc.boolean(),
        errorType: word,
        exitCode: number,
        stderr: word,
        httpStatus: number,
        protocolCode: number,
        narrow,
      }),
      fc.record({ type: fc.constant('result'), content: blocks, isError: fc.boolean(), handoff }),
      fc.record({ type: fc.constantFrom('not-done', 'unknown') }),
    ),
  }),
  of('guardrails-checked', {
    verdicts: fc.array(fc.record({ type: fc.constantFrom('pass', 'stop'), reason: word }), { maxLength: 2 }),
  }),
  of('child-started', {}),
  of('tool-parked', { on: word }),
  of('tool-parked', { on: word, expiresAt: fc.oneof(number, word), wakeAt: fc.oneof(number, word) }),
  of('tool-parked', {
    on: word,
    waiting: fc.array(fc.record({ type: fc.constantFrom('approval', 'client', 'parked'), effect: word }), {
      maxLength: 2,
    }),
  }),
  of('questions-asked', {
    questions: fc.oneof(
      fc.array(
        fc.oneof(
          fc.record(
            { key: word, question: fc.oneof(word, fc.record({ prompt: word })), expiresAt: number },
            { requiredKeys: [] },
          ),
          fc.constant(null),
        ),
        { maxLength: 2 },
      ),
      word,
    ),
  }),
  of('question-answered', { question: fc.oneof(number, word), value: fc.oneof(word, fc.constant(undefined)) }),
  of('deadline-passed', { question: fc.oneof(number, word) }),
  of('approval-given', { digest: word, approved: fc.boolean(), reason: word }),
  of('approval-given', { digest: word, approved: fc.boolean(), by: fc.oneof(word, number), forRun: fc.boolean() }),
  of('client-result-given', { content: blocks, isError: fc.boolean(), exitCode: number, stderr: word }),
  of('effect-lost', { cause: fc.constantFrom('restart', 'device', 'parked') }),
  of('effect-lost', { cause: fc.constant('restart'), died: fc.constant(true) }),
  of('budget-refused', { reason: word }),
  of('budget-escalated', { reason: word, ttlMs: number }),
  of('budget-escalated', {
    reason: word,
    question: fc.record({ prompt: word, choices: fc.oneof(fc.array(word, { maxLength: 2 }), word) }),
  }),
  of('deadline-passed', {}),
  of('deadline-passed', { effect: fc.constant(undefined) }),
  of('cancel-requested', {}),
  // An event of a later version.
  of('history-turned-over' as Event['type'], {}),
);

export const strays: Arbitrary<readonly Stray[]> = fc.array(fc.record({ event, moment: fc.nat(60), open: fc.nat(5) }), {
  minLength: 5,
  maxLength: 20,
  size: 'max',
});

/** `step` is total: for any event in any state it returns a state and effects. */
export function checkTotal(
  { NEW, step }: Pick<Core, 'NEW' | 'step'>,
  { moments }: Trace,
  stray: readonly Stray[],
): void {
  for (const { event: given, moment, open } of stray) {
    const { after, observed } = moments[moment % moments.length]!;
    const id = [...observed.after.open.keys()][open];
    const event =
      id === undefined || !('effect' in given) || given.effect === undefined ? given : { ...given, effect: id };
    const next = step(after, event as Event);
    ensure(PHASES.includes(next.state?.phase?.type), () => `${event.type} resulted in no state`);
    ensure(Array.isArray(next.effects), () => `${event.type} resulted in no effects`);
    ensure(!UNKNOWN.includes(event.type) || next.state === after, () => `${event.type} is unknown and was applied`);
    ensure(step(NEW, event as Event).state === NEW, () => `${event.type} started a run`);
  }
}

const UNKNOWN: readonly string[] = ['history-turned-over'];
const PHASES: readonly (string | undefined)[] = [
  'preparing',
  'model',
  'compacting',
  'raising',
  'validating',
  'judging',
  'guarding',
  'tools',
  'ended',
];
