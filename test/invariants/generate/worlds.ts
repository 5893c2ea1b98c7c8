import type { Memory, Message, Rules } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { Act, Fate, Move, Reply, World } from '../world.ts';
import { handoff } from './calls.ts';
import { agents, withAnswers } from './agents.ts';
import { mostly, optionally } from './chance.ts';
import { answers, turnScript, longReplies, replies } from './replies.ts';
import { compactions, narrowing, rules, toolset } from './rules.ts';

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

const USUAL: Readonly<Record<Act, number>> = {
  settle: 150,
  repeat: 6,
  foreign: 6,
  mistake: 4,
  input: 6,
  tools: 6,
  lift: 8,
  fork: 4,
  deadline: 12,
  lose: 4,
  restart: 3,
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
const restless = movesOf({ ...USUAL, input: 12, fork: 8, deadline: 20, lose: 12, restart: 12, cancel: 10 });

type Ruled = Pick<World, 'rules' | 'replies'>;

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
        narrow: mostly(undefined, narrowed, narrowing),
        turnScripts: fc.array(turnScript, { minLength: 1, maxLength: 5, size: 'max' }),
        moves: happening,
      }),
    )
    .map(([ruled, { tools, otherTools, memory, narrow, ...others }]) => ({
      ...ruled,
      ...(memory && !ruled.rules.agent && { memory }),
      ...(narrow && { narrow }),
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
  .tuple(rules, optionally('guardrails', 50, fc.constant({ output: true as const })), answers)
  .map(([some, guardrails, said]) => ({
    rules: { ...unlimited(some), ...guardrails, output: { type: 'object' } },
    replies: said,
  }));

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

const dying = movesOf({ ...USUAL, settle: 30, input: 25, restart: 40 });

/** Fewer limits, so that runs get further. */
function unlimited({ guardrails: _, ...some }: Rules): Rules {
  return { ...some, maxTurns: 9, errorLimit: 0, repeatLimit: 0, toolChoice: 'auto' };
}

export const worlds: Arbitrary<World> = fc.oneof(
  { weight: 10, arbitrary: worldsOf(fc.record({ rules, replies })) },
  { weight: 3, arbitrary: worldsOf(long, restless) },
  { weight: 2, arbitrary: worldsOf(typed, restless) },
  { weight: 2, arbitrary: worldsOf(crashing, dying) },
  { weight: 3, arbitrary: worldsOf(carrying, changing, 60) },
  { weight: 4, arbitrary: worldsOf(agents) },
  { weight: 1, arbitrary: worldsOf(agents, restless) },
);
