import type { AssistantPart, Call, Effect, Event, SettledResult } from '@treadle/core';
import type { Open } from './books.ts';
import { callsOf, type Fate, type Reply, type ScriptedCall, type World } from './world.ts';

type Of<Type extends Effect['type']> = Extract<Effect, { type: Type }>;

/** What the world has done already. */
export interface Past {
  /** How often an effect was lost, by id. */
  readonly lost: ReadonlyMap<string, number>;
  readonly parked: ReadonlySet<string>;
  /** Model calls that failed, by id. */
  readonly failed: ReadonlySet<string>;
}

/**
 * The fact with which the world meets an effect, the same in whatever order it is asked; undefined if it never will.
 * `calm`: whoever approves does so in time, whatever the clock says.
 */
export function answerOf(
  world: World,
  { effect, parked }: Open,
  past: Past,
  now: number,
  calm: boolean,
): Event | undefined {
  const { id } = effect;
  switch (effect.type) {
    case 'call-model':
      return spoken(replyOf(world, turnOf(id), past.failed.has(id)), id, now);
    case 'judge-calls':
      return judged(world, effect, now);
    case 'verify-tool':
      return { type: 'tool-settled', at: now, effect: id, result: fateOf(world, effect.call).verified };
    case 'call-tool': {
      const fate = fateOf(world, effect.call);
      const cause = fate.lost[past.lost.get(id) ?? 0];
      if (cause) return { type: 'effect-lost', at: now, effect: id, cause };
      if (fate.parked && !past.parked.has(id)) return { type: 'tool-parked', at: now, effect: id, on: 'device' };
      if (parked && fate.answer === 'never') return undefined;
      return { type: 'tool-settled', at: now, effect: id, result: resultOf(fate) };
    }
    case 'await-client': {
      const { answer, content, isError } = fateOf(world, effect.call);
      return answer === 'never' ? undefined : { type: 'client-result-given', at: now, effect: id, content, isError };
    }
    case 'ask-approval':
      return decided(fateOf(world, effect.call), effect, calm ? effect.expiresAt - 1 : now);
    default:
      return effect satisfies never;
  }
}

/** The turn that an effect's id names. */
export function turnOf(id: string): number {
  return Number(/^t(\d+)\./.exec(id)?.[1]);
}

/** What the model says in a turn; if it fails, what it says when it is asked `again`. */
export function replyOf({ replies }: World, turn: number, again = true): Reply {
  const reply = replies[turn - 1] ?? DONE;
  if (reply.type === 'reply' || !again) return reply;
  return replies.slice(turn).find(({ type }) => type === 'reply') ?? DONE;
}

const DONE: Reply = {
  type: 'reply',
  parts: [{ type: 'text', text: 'done' }],
  finish: 'stop',
  usage: { inputTokens: 1, outputTokens: 1, cost: 0 },
  unchecked: 0,
  unjudged: 0,
  steered: false,
};

function scriptOf(world: World, { turn, index }: Pick<Call, 'turn' | 'index'>): ScriptedCall | undefined {
  return callsOf(replyOf(world, turn))[index];
}

export function fateOf(world: World, call: Pick<Call, 'turn' | 'index'>): Fate {
  return scriptOf(world, call)?.fate ?? FINE;
}

const FINE: Fate = {
  content: [],
  isError: false,
  parked: false,
  lost: [],
  verified: { type: 'unknown' },
  answer: 'given',
};

function resultOf({ content, isError }: Fate): SettledResult {
  return { type: 'result', content, isError };
}

export function spoken(reply: Reply, effect: string, at: number): Event {
  if (reply.type === 'failure') {
    return { type: 'model-failed', at, effect, error: { code: reply.code, message: 'it failed', retryable: false } };
  }
  const calls = callsOf(reply);
  return {
    type: 'model-replied',
    at,
    effect,
    content: reply.parts.flatMap((part): AssistantPart[] => {
      if (part.type !== 'call') return [part];
      const { id, name, arguments: text } = part;
      return Array.from({ length: part.copies }, () => ({ type: 'tool-call', id, name, arguments: text }));
    }),
    finish: reply.finish,
    usage: reply.usage,
    model: 'simulated',
    checks: calls.slice(0, calls.length - reply.unchecked).map(({ check }) => check),
  };
}

function judged(world: World, { id, calls }: Of<'judge-calls'>, at: number): Event {
  const reply = replyOf(world, turnOf(id));
  const missing = reply.type === 'reply' ? reply.unjudged : 0;
  const verdicts = calls.map((call) => scriptOf(world, call)?.verdict ?? ({ type: 'allow' } as const));
  return { type: 'calls-judged', at, effect: id, verdicts: verdicts.slice(0, calls.length - missing) };
}

function decided({ answer }: Fate, { id, digest, expiresAt }: Of<'ask-approval'>, now: number): Event | undefined {
  switch (answer) {
    case 'never':
      return undefined;
    case 'expired':
      return { type: 'deadline-passed', at: Math.max(now, expiresAt), effect: id };
    case 'given':
    case 'refused':
      return { type: 'approval-given', at: now, effect: id, digest, approved: answer === 'given' };
    case 'late':
      return { type: 'approval-given', at: Math.max(now, expiresAt), effect: id, digest, approved: true };
    default:
      return answer satisfies never;
  }
}
