import { createHash } from 'node:crypto';
import {
  stableJson,
  type Amounts,
  type Grant,
  type Memory,
  type Message,
  type Rules,
  type RunFacts,
  type ToolFacts,
} from '@treadle/core';
import type { PolicyRules } from '@treadle/core/policy';
import fc, { type Arbitrary } from 'fast-check';
import type { Act, Fate, Move, Reply, World } from '../world.ts';
import { handoff, touch } from './calls.ts';
import { agents, withAnswers } from './agents.ts';
import { mostly, optionally, rarely } from './chance.ts';
import { answers, askingReplies, turnScript, longReplies, parkedReplies, queuedReplies, replies } from './replies.ts';
import { compactions, NAMES, narrowing, rules, toolset } from './rules.ts';

/*
 * The generator of worlds. Names, arguments, results and call ids come from small pools, and limits are low, so that
 * repetitions, conflicts and limits are frequent. Events that end a run early are rare, so that runs get far.
 */

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

const initialMemory = fc.constantFrom<Memory>({ run: { seen: 0 } }, { run: { seen: 0 }, attempt: { tried: 0 } });
const budget: Arbitrary<Amounts> = fc.record({
  tokens: fc.constantFrom(100, 300, 800, 10_000),
  calls: fc.constantFrom(1, 3, 8, 1_000),
});

const facts: Arbitrary<RunFacts> = fc
  .tuple(
    optionally('session', 15, fc.constant('s-1')),
    optionally('task', 15, fc.constant('t-1')),
    optionally('trace', 15, fc.constant('00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01')),
    optionally('labels', 15, fc.constantFrom({}, { team: 'sales' })),
  )
  .map((given) => Object.assign({}, ...given) as RunFacts);

/** What people have allowed of tools by their names. Some of them have changed since. */
const grants = fc.array(
  fc.record({
    tool: fc.constantFrom(...NAMES),
    touches: fc.oneof(fc.constant([{ type: 'unknown' as const }]), fc.array(touch, { maxLength: 2 })),
    by: fc.subarray(['ann', 'bob']),
    hasChanged: rarely(20),
  }),
  { minLength: 1, maxLength: 3 },
);

function grantsOf(
  tools: readonly ToolFacts[],
  given: typeof grants extends Arbitrary<infer T> ? T : never,
): readonly Grant[] {
  return given.map(({ tool, touches, by, hasChanged }) => {
    const facts = tools.find(({ name }) => name === tool) ?? null;
    const definition = createHash('sha256')
      .update(hasChanged ? '' : stableJson(facts))
      .digest('hex');
    return { tool, touches, definition, by };
  });
}

const USUAL: Readonly<Record<Act, number>> = {
  settle: 150,
  repeat: 6,
  foreign: 6,
  mistake: 6,
  policy: 7,
  rejudge: 4,
  program: 5,
  input: 6,
  tools: 6,
  lift: 14,
  open: 8,
  close: 7,
  fork: 4,
  deadline: 12,
  lose: 4,
  restart: 3,
  refuse: 4,
  cancel: 3,
};

function movesOf(weights: typeof USUAL): Arbitrary<readonly Move[]> {
  const acts = Object.entries(weights).map(([act, weight]) => ({ weight, arbitrary: fc.constant(act as Act) }));
  const move = fc.record({
    act: fc.oneof(...acts),
    pick: fc.nat(9_999),
    delay: mostly(1, 50, fc.constantFrom(-3, 0, 2, 5, 20)),
  });
  return fc.array(move, { maxLength: 50, size: 'max' });
}

export const moves: Arbitrary<readonly Move[]> = movesOf(USUAL);

/** More disturbances, for phases that are short. */
const restless = movesOf({ ...USUAL, input: 12, fork: 8, deadline: 20, lose: 12, restart: 12, refuse: 10, cancel: 10 });

type Ruled = Pick<World, 'rules' | 'replies'>;

/** Rules of `policy()`. Approvals are as short as in the scripts. */
const policyRules: Arbitrary<PolicyRules> = fc.record({
  autonomy: fc.constantFrom(1, 2, 3, 3),
  tools: fc.dictionary(fc.constantFrom(...NAMES, '*'), fc.constantFrom('allow', 'allow', 'ask', 'deny')),
  approvals: fc.constantFrom({ minutes: 0.001 }, { required: 2 }, { approvers: ['ann', 'bob'] }),
  rate: fc.constantFrom({ second: 1000, minute: 1000 }, { second: 2, minute: 1000 }),
});

/** `narrowed`: the percentage of runs that are narrowed from the beginning. */
function worldsOf(given: Arbitrary<Ruled>, happening = moves, narrowed = 8): Arbitrary<World> {
  return fc
    .tuple(
      given,
      fc.record({
        tools: toolset,
        otherTools: toolset,
        input,
        memory: mostly(undefined, 70, initialMemory),
        narrow: mostly(undefined, narrowed, fc.oneof(narrowing, fc.array(narrowing, { minLength: 1, maxLength: 3 }))),
        budget,
        facts,
        turnScripts: fc.array(turnScript, { minLength: 1, maxLength: 5, size: 'max' }),
        moves: happening,
      }),
      optionally('policy', 35, fc.oneof(fc.constantFrom({ level: 0 }, { level: 1 }), policyRules)),
      optionally('program', 15, fc.constantFrom({ version: 1 }, 'a text')),
      mostly(undefined, 25, grants),
      mostly(undefined, 10, fc.constant([{ runId: 'run', name: 'shell', process: { pid: 7 } }])),
    )
    .map(([ruled, { tools, otherTools, memory, narrow, ...others }, policy, program, allowed, taken]) => ({
      ...ruled,
      ...policy,
      ...program,
      ...(memory && !ruled.rules.agent && { memory }),
      ...(narrow && { narrow }),
      ...(taken && { taken }),
      ...(allowed && { grants: grantsOf(withAnswers(tools, ruled.rules), allowed) }),
      tools: withAnswers(tools, ruled.rules),
      otherTools: withAnswers(otherTools, ruled.rules),
      ...others,
    }));
}

/** Long conversations that are compacted. */
const long: Arbitrary<Ruled> = fc
  .tuple(rules, compactions(60), longReplies)
  .map(([some, given, said]) => ({ rules: { ...unlimited(some), compaction: given }, replies: said }));

/** Answers that are validated. */
const typed: Arbitrary<Ruled> = fc
  .tuple(rules, optionally('guardrails', 70, fc.constant({ output: true as const })), answers)
  .map(([some, guardrails, said]) => ({
    rules: { ...unlimited(some), ...guardrails, output: { type: 'object' } },
    replies: said,
  }));

/** Texts that guardrails check. */
const guarded: Arbitrary<Ruled> = fc.tuple(rules, answers).map(([some, said]) => {
  const { output: _, ...others } = unlimited(some);
  return { rules: { ...others, guardrails: { output: true } }, replies: said };
});

/** Calls that run when their process dies, again and again. */
const crashing: Arbitrary<Ruled> = fc
  .tuple(rules, fc.constantFrom(1, 2, 2, 3), replies)
  .map(([some, crashLimit, said]) => ({ rules: { ...unlimited(some), judged: false, crashLimit }, replies: said }));

/** Runs that get far, while their tools change and they are narrowed. */
const carrying: Arbitrary<Ruled> = fc
  .tuple(rules, replies, fc.array(mostly(undefined, 60, handoff), { minLength: 3, maxLength: 5 }))
  .map(([some, given, handoffs]) => [some, given.map((said) => handingOver(said, handoffs))] as const)
  .map(([some, said]) => ({ rules: { ...unlimited(some), toolChoice: some.toolChoice, limits: {} }, replies: said }));

/** Several calls of a reply hand the run over. */
function handingOver(said: Reply, handoffs: readonly Fate['handoff'][]): Reply {
  if (said.type !== 'reply') return said;
  const parts = said.parts.map((part, index) => {
    const given = handoffs[index % handoffs.length];
    return part.type === 'call' && given ? { ...part, fate: { ...part.fate, handoff: given } } : part;
  });
  return { ...said, parts };
}

const changing = movesOf({ ...USUAL, tools: 25, fork: 15, lift: 25, cancel: 1 });

/** Calls that people have to approve, some of them for the rest of the run. */
const asking: Arbitrary<Ruled> = fc
  .tuple(rules, askingReplies)
  .map(([some, said]) => ({ rules: { ...unlimited(some), judged: true, limits: {} }, replies: said }));

/** Calls that wait outside of the run. One tool must not run twice, one may, and one is executed by the client. */
const parking: Arbitrary<Ruled> = fc
  .tuple(rules, parkedReplies)
  .map(([{ allowedTools: _, prepared: __, guardrails: ___, ...some }, said]) => ({
    rules: { ...unlimited(some), judged: false, limits: {} },
    replies: said,
  }));

function parkingTools(world: World): World {
  const tools = world.tools.map(({ needsApproval: _, share: __, ...facts }) => ({
    ...facts,
    ...(facts.name === 'edit' ? { client: true, ttlMs: facts.ttlMs ?? 20 } : { client: false }),
    ...(facts.name === 'read' && { effect: 'once' as const, verifiable: true }),
  }));
  return { ...world, tools };
}

/** Calls that wait for each other while the rules change. */
const rejudged: Arbitrary<Ruled> = fc
  .tuple(rules, queuedReplies)
  .map(([some, said]) => ({ rules: { ...unlimited(some), maxParallel: 1, limits: {} }, replies: said }));

const ruling = movesOf({ ...USUAL, settle: 100, policy: 90, rejudge: 20 });

const dying = movesOf({ ...USUAL, settle: 30, input: 25, restart: 40, refuse: 0 });

/** Runs that draw on a budget, with model calls that fail. */
const spending: Arbitrary<Ruled> = long.map(({ rules: some, replies: said }) => ({
  rules: { ...some, budgeted: true },
  replies: said,
}));

const lifting = movesOf({ ...USUAL, lift: 16, lose: 12 });

/** Programs: replies without tokens, results and calls by reference, child runs that draw on a ledger. */
const programmed: Arbitrary<Ruled> = fc
  .tuple(rules, replies, fc.constantFrom(1, 5, 20, 60), fc.boolean(), rarely(30))
  .map(([some, said, tokens, budgeted, ends]) => {
    const { output: _, compaction: __, budgeted: ___, ...others } = unlimited(some);
    const last: readonly Reply[] = ends
      ? [{ type: 'failure', code: 'program-failed', stubborn: false, endsWith: 'out-of-stock' }]
      : [];
    return {
      rules: {
        ...others,
        ...(some.guardrails && { guardrails: some.guardrails }),
        judged: false,
        ...(tokens < 60 && { references: true }),
        ...(budgeted && { budgeted }),
        limits: { ...some.limits, tokens },
      },
      replies: [...said.map(withoutTokens).slice(0, ends ? 3 : undefined), ...last],
    };
  });

/** A reply of a program. Some are of another model, which reports no usage. */
function withoutTokens(said: Reply, index: number): Reply {
  if (said.type !== 'reply') return said;
  const parts = said.parts.map((part) =>
    part.type === 'call' && part.copies === 1 && part.id < 'f'
      ? { ...part, references: ['a'], fate: { ...part.fate, blob: `blob ${part.id}` } }
      : part,
  );
  const isUnknown = index > 0 && said.parts.length === 3;
  return { ...said, parts, usage: NO_USAGE, ...(!isUnknown && { usesTokens: false }) };
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0, cost: 0 };

/** Runs that are out of time when a tool returns that blocked the event loop. */
const late: Arbitrary<Ruled> = fc.tuple(rules, fc.constantFrom(3, 10, 20), replies).map(([some, durationMs, said]) => {
  const { budgeted: _, ...others } = unlimited(some);
  return { rules: { ...others, judged: false, limits: { durationMs } }, replies: said };
});

/** Fewer limits, so that runs get further. */
function unlimited({ guardrails: _, ...some }: Rules): Rules {
  return { ...some, maxTurns: 9, errorLimit: 0, repeatLimit: 0, toolChoice: 'auto' };
}

export const worlds: Arbitrary<World> = fc.oneof(
  { weight: 8, arbitrary: worldsOf(fc.record({ rules, replies })) },
  { weight: 3, arbitrary: worldsOf(long, restless) },
  { weight: 1, arbitrary: worldsOf(typed, restless) },
  { weight: 2, arbitrary: worldsOf(guarded, restless) },
  { weight: 2, arbitrary: worldsOf(crashing, dying) },
  { weight: 1, arbitrary: worldsOf(spending, restless) },
  { weight: 1, arbitrary: worldsOf(late) },
  { weight: 15, arbitrary: worldsOf(programmed, lifting) },
  { weight: 5, arbitrary: worldsOf(carrying, changing, 60) },
  { weight: 12, arbitrary: worldsOf(asking) },
  { weight: 4, arbitrary: worldsOf(asking, ruling) },
  { weight: 13, arbitrary: worldsOf(rejudged, ruling) },
  { weight: 16, arbitrary: worldsOf(parking).map(parkingTools) },
  { weight: 4, arbitrary: worldsOf(agents) },
  { weight: 1, arbitrary: worldsOf(agents, restless) },
);
