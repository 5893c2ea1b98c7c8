import type {
  AssistantPart,
  Ask,
  Call,
  Effect,
  Event,
  Handoff,
  RecordedVerdict,
  SettledResult,
  Waiting,
} from '@treadle/core';
import { expiryOf, isAnswerable, isVerified, openQuestions, type Observed, type Open } from './observed.ts';
import {
  callsOf,
  type TurnScript,
  type Fate,
  type Reply,
  type ScriptedCall,
  type ScriptedQuestion,
  type World,
} from './world.ts';

type Of<Type extends Effect['type']> = Extract<Effect, { type: Type }>;

/** What has already happened in the world. */
export interface Past {
  /** How often an effect was lost, by id. */
  readonly lost: ReadonlyMap<string, number>;
  /** Calls whose child run has started. */
  readonly begun: ReadonlySet<string>;
  readonly parked: ReadonlySet<string>;
  /** How often a call has asked, by id, and what is observed now. */
  readonly asks: ReadonlyMap<string, number>;
  readonly observed: Observed;
  /** Model calls that failed, by id. */
  readonly failed: ReadonlySet<string>;
}

/**
 * The event with which the world settles an effect. It does not depend on the order in which effects settle. Undefined
 * if the effect never settles. `calm`: approvals are given in time, independently of the clock.
 */
export function answerOf(world: World, open: Open, past: Past, now: number, calm: boolean): Event | undefined {
  const { effect, parked } = open;
  const { id } = effect;
  const expiry = expiryOf(open);
  switch (effect.type) {
    case 'call-model':
      return modelEvent(
        past.failed.has(id) && !failsAgain(world, id) ? replyOf(world, effect.turn) : firstReplyOf(world, id),
        id,
        now,
      );
    case 'prepare-turn':
      return prepared(turnScriptOf(world, effect.turn), id, now);
    case 'compact-history':
      return summarised(turnScriptOf(world, turnOf(id)), id, now);
    case 'validate-output':
      return checked(turnScriptOf(world, turnOf(id)), effect, now);
    case 'check-guardrails':
      return { type: 'guardrails-checked', at: now, effect: id, verdicts: turnScriptOf(world, turnOf(id)).guards };
    case 'judge-calls':
      return judged(world, effect, now);
    case 'verify-tool': {
      const { verified, verifyParks } = fateOf(world, effect.call);
      const carried = past.observed.parkings.get(id.replace('.verify.', '.tool.'))?.expiresAt ?? Infinity;
      const at = calm ? Math.min(now, carried - 1) : now;
      if (verifyParks && !past.parked.has(id)) return { type: 'tool-parked', at, effect: id, on: 'offline' };
      return { type: 'tool-settled', at, effect: id, result: exposing(verified, id) };
    }
    case 'call-tool': {
      const fate = fateOf(world, effect.call);
      const [question] = openQuestions(past.observed, id);
      if (question) return questionSettled(fate, question, { id, now, calm });
      if (fate.child && !parked && !past.begun.has(id)) return { type: 'child-started', at: now, effect: id };
      const asks = parked ? undefined : fate.asks[past.asks.get(id) ?? 0];
      if (asks) return { type: 'questions-asked', at: now, effect: id, questions: asks.map(asAsked(now)) };
      const planned = fate.lost[past.lost.get(id) ?? 0];
      const cause = planned === 'parked' && !(parked && isVerified(effect)) ? undefined : planned;
      if (cause) return { type: 'effect-lost', at: now, effect: id, cause };
      if (fate.parked && !past.parked.has(id)) {
        const times = {
          ...(fate.ttl !== undefined && { expiresAt: now + fate.ttl }),
          ...(fate.wake !== undefined && { wakeAt: now + fate.wake }),
        };
        return { type: 'tool-parked', at: now, effect: id, on: 'device', waiting: waitsIn(fate), ...times };
      }
      if (parked && fate.answer === 'never') return undefined;
      if (parked && expiry !== undefined && !calm && isLate(fate)) {
        return { type: 'deadline-passed', at: Math.max(now, expiry), effect: id };
      }
      if (fate.outside && isAnswerable(open)) return resultGiven(fate, id, now, expiry, calm);
      return { type: 'tool-settled', at: now, effect: id, result: exposing(resultOf(world, fate), id) };
    }
    case 'await-client': {
      const fate = fateOf(world, effect.call);
      if (fate.answer === 'never') return undefined;
      if (expiry !== undefined && !calm && isLate(fate)) {
        return { type: 'deadline-passed', at: Math.max(now, expiry), effect: id };
      }
      return resultGiven(fate, id, now, expiry, calm);
    }
    case 'ask-approval':
      return decided(fateOf(world, effect.call), effect, calm ? effect.expiresAt - 1 : now);
    default:
      return effect satisfies never;
  }
}

function isLate({ answer }: Fate): boolean {
  return answer === 'expired' || answer === 'late';
}

/** A result from outside, or the deadline if it has passed. */
function resultGiven(
  { content, isError, facts }: Fate,
  effect: string,
  now: number,
  expiry: number | undefined,
  calm: boolean,
): Event {
  const at = calm ? Math.min(now, (expiry ?? Infinity) - 1) : now;
  if (expiry !== undefined && at >= expiry) return { type: 'deadline-passed', at, effect };
  const given = { type: 'client-result-given', at, effect, content, isError, ...(isError && facts) } as const;
  return exposing(given, effect);
}

/** What a result has exposes the run, so that no script has to say it: a text is from outside or private, an image both. */
function exposing<R extends SettledResult | Extract<Event, { type: 'client-result-given' }>>(result: R, id: string): R {
  const [block] = 'content' in result ? result.content : [];
  if (!block) return result;
  const cause = { effect: id.replace(/verify|client/, 'tool'), what: block.type };
  const isOutside = block.type === 'image' || ('text' in block && block.text === 'yes');
  const isPrivate = block.type === 'image' || !isOutside;
  return { ...result, exposes: { ...(isOutside && { outside: cause }), ...(isPrivate && { private: cause }) } };
}

function asAsked(now: number) {
  return ({ prompt, ttlMs }: ScriptedQuestion, index: number): AskedNow => {
    return { key: `#${index}`, question: { prompt }, ...(ttlMs !== undefined && { expiresAt: now + ttlMs }) };
  };
}

type AskedNow = Extract<Event, { type: 'questions-asked' }>['questions'][number];

/** What happens to a question. One without a deadline is answered, or stays open; "when?" is not answered in time. */
function questionSettled(
  { answer }: Fate,
  { index, question, expiresAt }: ReturnType<typeof openQuestions>[number],
  { id, now, calm }: { readonly id: string; readonly now: number; readonly calm: boolean },
): Event | undefined {
  if (answer === 'never') return undefined;
  const about = { effect: id, question: index };
  const end = Math.max(now, expiresAt ?? 0);
  const expires = answer === 'expired' || question.prompt === 'when?';
  if (expires && expiresAt !== undefined) return { type: 'deadline-passed', at: end, ...about };
  const at = answer === 'late' ? end : calm && expiresAt !== undefined ? expiresAt - 1 : now;
  return { type: 'question-answered', at, ...about, value: 'that', ...(index % 2 === 0 && { by: 'ann' }) };
}

/** The turn in the id of an effect. */
export function turnOf(id: string): number {
  return Number(/^t(\d+)\./.exec(id)?.[1]);
}

/** The reply to a turn after all failures of the model. */
export function replyOf({ replies }: World, turn: number): Reply {
  return replies.slice(turn - 1).find(({ type }) => type === 'reply') ?? DONE;
}

/** The first reply to a model call: with the whole conversation, or with the compacted one. */
export function firstReplyOf(world: World, id: string): Reply {
  const reply = world.replies[turnOf(id) - 1];
  const fails = reply?.type === 'failure' && (id.endsWith('.model.0') || reply.stubborn);
  return fails ? reply : replyOf(world, turnOf(id));
}

/** A stubborn model that asks to wait does so whenever it is called. */
function failsAgain(world: World, id: string): boolean {
  const reply = firstReplyOf(world, id);
  return reply.type === 'failure' && reply.stubborn && reply.retryAfterMs !== undefined;
}

export function turnScriptOf({ turnScripts }: World, turn: number): TurnScript {
  return turnScripts[turn % turnScripts.length]!;
}

function prepared({ decision, unprepared }: TurnScript, effect: string, at: number): Event {
  if (unprepared) return { type: 'turn-prepared', at, effect, decision: {}, problem: 'it went wrong' };
  return { type: 'turn-prepared', at, effect, decision };
}

export const SUMMARY = 'what was done, in short';

function summarised({ summary }: TurnScript, effect: string, at: number): Event {
  const error = { code: 'overloaded', message: 'no summary', retryable: true } as const;
  const result =
    summary.type === 'failure'
      ? ({ type: 'failure', error } as const)
      : ({ type: 'summary', summary: SUMMARY, model: 'simulated', usage: summary.usage } as const);
  return { type: 'history-compacted', at, effect, result };
}

function checked(turnScript: TurnScript, { id, text, attempt }: Of<'validate-output'>, at: number): Event {
  const result = attempt === undefined ? verdictOn(turnScript, { text }) : outputVerdict(turnScript);
  return { type: 'output-checked', at, effect: id, result };
}

type Verdict = Extract<Event, { type: 'output-checked' }>['result'];

function verdictOn({ valid }: TurnScript, value: unknown): Verdict {
  return valid ? { type: 'valid', value } : { type: 'invalid', problems: ['it is wrong'] };
}

/** The verdict on the output of a typed agent. */
export function outputVerdict(turnScript: TurnScript): Verdict {
  const verdict = verdictOn(turnScript, turnScript.value);
  return verdict.type === 'valid' ? verdict : { ...verdict, ...turnScript.rejection };
}

/** What the child run waits for on which a call is parked. */
export function waitsIn({ inside }: Fate): readonly Waiting[] {
  return inside.map((type, index): Waiting => {
    const call = { ...NO_CALL, index };
    if (type === 'client') return { type, effect: `t1.client.${index}`, call };
    if (type === 'parked') return { type, effect: `t1.tool.${index}/t2.tool.0`, call, on: 'elsewhere' };
    return { type, effect: `t1.approval.${index}`, call, digest: 'of the call', expiresAt: 2_000 };
  });
}

const NO_CALL: Call = {
  turn: 1,
  index: 0,
  id: 'a',
  name: 'read',
  arguments: '{}',
  resources: [],
  effect: 'pure',
  exclusive: false,
  client: false,
  verifiable: false,
};

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
  child: false,
  parked: false,
  inside: [],
  asks: [],
  lost: [],
  verified: { type: 'unknown' },
  answer: 'given',
  forRun: [],
};

function resultOf({ tools, otherTools }: World, fate: Fate): SettledResult {
  const { content, isError, facts, usage, memory, narrow, blob } = fate;
  const { other, ...agent } = fate.handoff ?? {};
  const handoff = fate.handoff && { handoff: { ...(agent as Handoff), tools: other ? otherTools : tools } };
  const more = {
    ...(usage && { usage }),
    ...(memory && { memory }),
    ...(narrow && { narrow }),
    ...(blob !== undefined && { blob }),
  };
  return { type: 'result', content, isError, ...facts, ...more, ...handoff };
}

export function modelEvent(reply: Reply, effect: string, at: number): Event {
  if (reply.type === 'failure') {
    const { code, endsWith, retryAfterMs } = reply;
    const retry = retryAfterMs === undefined ? { retryable: false } : { retryable: true, retryAfterMs };
    const error = { code, message: 'it failed', ...retry, ...(endsWith !== undefined && { endsWith }) };
    return { type: 'model-failed', at, effect, error };
  }
  const calls = callsOf(reply);
  return {
    type: 'model-replied',
    at,
    effect,
    content: reply.parts.flatMap((part): AssistantPart[] => {
      if (part.type !== 'call') return [part];
      const { id, name, arguments: text, provider, references } = part;
      const more = { ...(provider && { provider }), ...(references && { references }) };
      const call = { type: 'tool-call', id, name, arguments: text, ...more } as const;
      return Array.from({ length: part.copies }, () => call);
    }),
    finish: reply.finish,
    usage: reply.usage,
    ...(reply.usesTokens === false && { usesTokens: false as const }),
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

export const PEOPLE = ['ann', 'bob', 'cid'];

/** The next person who may answer. Undefined if there is nobody. */
export function nextApprover({ approvers = PEOPLE, approvedBy = [] }: Ask): string | undefined {
  return approvers.find((one) => !approvedBy.includes(one));
}

/** New verdicts for the calls of a turn, by effect. */
export function rejudgedIn(world: World, turn: number): Readonly<Record<string, RecordedVerdict>> {
  const verdicts = callsOf(replyOf(world, turn)).map(({ rejudged }, index) => [`t${turn}.tool.${index}`, rejudged]);
  return Object.fromEntries(verdicts.filter(([, verdict]) => verdict)) as Record<string, RecordedVerdict>;
}

function decided({ answer, forRun }: Fate, ask: Of<'ask-approval'>, now: number): Event | undefined {
  const { id, digest, expiresAt } = ask;
  const by = nextApprover(ask);
  if (by === undefined && answer !== 'never')
    return { type: 'deadline-passed', at: Math.max(now, expiresAt), effect: id };
  const said = {
    effect: id,
    digest,
    ...(by !== undefined && { by }),
    ...(ask.raises && { raises: 'run' }),
    ...(forRun[ask.approvedBy?.length ?? 0] && { forRun: true as const }),
  };
  switch (answer) {
    case 'never':
      return undefined;
    case 'expired':
      return { type: 'deadline-passed', at: Math.max(now, expiresAt), effect: id };
    case 'given':
    case 'refused':
      return { type: 'approval-given', at: now, ...said, approved: answer === 'given' };
    case 'late':
      return { type: 'approval-given', at: Math.max(now, expiresAt), ...said, approved: true };
    default:
      return answer satisfies never;
  }
}
