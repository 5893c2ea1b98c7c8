import type { Memory, Rules, ToolChoice, ToolFacts } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { Part, Reply, ScriptedCall, World } from '../world.ts';
import { call } from './calls.ts';
import { mostly, optionally, rarely } from './chance.ts';
import { answering, calling, reply } from './replies.ts';
import { compactions, NAMES, rules } from './rules.ts';

/** The output tool and the submit tool of a typed agent. */
const [OUTPUT, SUBMIT] = ['answer', 'submit'] as const;

const leniency = fc.constantFrom('fail' as const, 'feedback' as const, 'feedback' as const);

const memory: Arbitrary<Memory> = fc.constantFrom<Memory>(
  { run: { seen: 0 }, attempt: { tried: 0 } },
  { run: { seen: 0 } },
  { attempt: { tried: 0 } },
);

const agent: Arbitrary<NonNullable<Rules['agent']>> = fc
  .tuple(
    fc.record({
      name: fc.constant('analyst'),
      output: fc.constant(OUTPUT),
      maxAttempts: fc.constantFrom(1, 2, 2, 3, 3),
      textOnly: leniency,
      earlySubmit: leniency,
    }),
    optionally('submit', 60, fc.constant(SUBMIT)),
    optionally('memory', 60, memory),
  )
  .map((given) => Object.assign({}, ...given));

/** They include limits that `defineAgent` never sets, because a run must respect any rules. */
const agentRules: Arbitrary<Rules> = fc
  .tuple(
    rules,
    agent,
    fc.record({
      maxTurns: mostly(6, 50, fc.constantFrom(1, 2, 3, 4)),
      errorLimit: mostly(0, 30, fc.constantFrom(1, 2, 3)),
      repeatLimit: mostly(0, 20, fc.constantFrom(1, 2)),
      toolChoice: mostly<ToolChoice, ToolChoice>(
        'required',
        30,
        fc.constantFrom<ToolChoice>('auto', 'none', { tool: OUTPUT }, { tool: NAMES[0] }),
      ),
    }),
    optionally('calls', 30, fc.constantFrom(0, 1, 1, 2, 3)),
    optionally('compaction', 10, compactions(75)),
  )
  .map(([{ output: _, compaction: __, limits, ...some }, given, others, calls, compaction]) => ({
    ...some,
    ...others,
    ...compaction,
    limits: { ...limits, ...calls },
    finish: 'output',
    agent: given,
  }));

/** Adds the output tool and the submit tool. They run in this process and are not child runs. */
export function withAnswers(tools: readonly ToolFacts[], { agent: given }: Rules): readonly ToolFacts[] {
  const names = [given?.output, given?.submit].filter((name) => name !== undefined);
  const [like] = tools;
  return [
    ...tools,
    ...names.map((name): ToolFacts => {
      const { share: _, ...facts } = like!;
      return { ...facts, name, client: false };
    }),
  ];
}

const own: Arbitrary<ScriptedCall> = fc
  .tuple(
    call,
    mostly(OUTPUT, 45, fc.constant(SUBMIT)),
    fc.constantFrom('{"a":1}', '{"a":2}', '{}', '0', '""', 'null', '{"a":'),
  )
  .map(([some, name, text]) => ({ ...some, name, arguments: text }));

const mixed: Arbitrary<readonly ScriptedCall[]> = fc.array(
  fc.oneof({ weight: 3, arbitrary: own }, { weight: 2, arbitrary: call }),
  { minLength: 1, maxLength: 5, size: 'max' },
);

/** So many calls that the last ones are over the cap. */
const crowded: Arbitrary<readonly ScriptedCall[]> = fc.tuple(own, call, own).map(([first, filler, last]) => [
  { ...first, name: OUTPUT },
  { ...filler, copies: 128 },
  { ...last, name: OUTPUT, arguments: '{"a":3}' },
]);

const answeringByCalls: Arbitrary<Reply> = fc
  .tuple(calling, mostly(undefined, 5, crowded), mixed, rarely(15))
  .map(([like, many, calls, more]) => {
    const parts: Part[] = [...(many ?? calls), ...(more ? [{ type: 'text' as const, text: 'so' }] : [])];
    return { ...like, parts } as Reply;
  });

/** Repeats the same helper call, and then combines it with an output. */
const insisting: Arbitrary<readonly Reply[]> = fc
  .tuple(calling, call, own, fc.constantFrom(1, 2, 3), fc.boolean())
  .map(([like, same, answer, times, first]) => {
    const again = { ...same, check: {}, copies: 1 };
    const beside = first ? [answer, again] : [again, answer];
    const said = [...Array.from({ length: times }, () => [again]), beside, [again], beside];
    return said.map((parts) => ({ ...like, parts }) as Reply);
  });

/** Helpers, outputs and submits in any order, and sometimes no call at all. */
const varied: Arbitrary<readonly Reply[]> = fc.array(
  fc.oneof(
    { weight: 10, arbitrary: answeringByCalls },
    { weight: 3, arbitrary: reply },
    { weight: 2, arbitrary: answering },
  ),
  { minLength: 2, maxLength: 9, size: 'max' },
);

/** With few limits except attempts and turns. */
const patient: Arbitrary<Pick<World, 'rules' | 'replies'>> = fc
  .tuple(agentRules, fc.array(answeringByCalls, { minLength: 4, maxLength: 9, size: 'max' }))
  .map(([{ limits, prepared: _, ...some }, replies]) => ({
    rules: {
      ...some,
      limits: limits.calls === undefined ? {} : { calls: limits.calls },
      maxTurns: 6,
      errorLimit: 0,
      agent: { ...some.agent!, earlySubmit: 'feedback' },
    },
    replies,
  }));

export const agents: Arbitrary<Pick<World, 'rules' | 'replies'>> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ rules: agentRules, replies: varied }) },
  { weight: 3, arbitrary: patient },
  {
    weight: 1,
    arbitrary: fc
      .tuple(agentRules, fc.constantFrom(1, 2), insisting)
      .map(([some, repeatLimit, replies]) => ({ rules: { ...some, repeatLimit }, replies })),
  },
);
