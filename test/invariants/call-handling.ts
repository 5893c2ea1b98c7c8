import type { Rules, ToolChoice } from '@treadle/core';
import type { Claim } from './agent-attempts.ts';
import type { Counts } from './counts.ts';
import { capOf, type CallRecord } from './turns.ts';

/** The state of a run when a reply arrives. */
export interface Situation {
  readonly rules: Rules;
  readonly required: ToolChoice;
  readonly isAllowed: (name: string) => boolean;
  /** The reply is that of the closing turn. */
  readonly closing: boolean;
  /** Calls that were admitted so far. */
  readonly admitted: number;
  readonly claims: ReadonlyMap<CallRecord, Claim>;
  readonly counters: Pick<Counts, 'spent' | 'isFull'>;
}

/** How the loop must handle the calls of a reply. */
export function handlingsOf(calls: readonly CallRecord[], situation: Situation): ReadonlyMap<CallRecord, Handling> {
  const handlings = new Map<CallRecord, Handling>();
  for (const call of calls) {
    const before = calls.slice(0, call.index);
    const running = before.filter((one) => handlings.get(one) === 'runs' && !situation.claims.has(one)).length;
    const onlyRepeated = before.every((one) => handlings.get(one) === 'repeated');
    handlings.set(call, claimedHandling(call, situation) ?? handlingOf(call, running, onlyRepeated, situation));
  }
  return handlings;
}

/** For calls that a typed agent claims: no limit and no tool choice applies to them. */
function claimedHandling(call: CallRecord, { claims }: Situation): Handling | undefined {
  const claim = claims.get(call);
  if (claim !== 'shown') return claim;
  return call.check && call.check.problem === undefined ? 'runs' : 'faulty';
}

function handlingOf(call: CallRecord, running: number, onlyRepeated: boolean, situation: Situation): Handling {
  const { index, part, facts, check } = call;
  const { rules, required, isAllowed, closing, admitted, counters } = situation;
  if (index >= capOf(rules) || closing) return 'capped';
  if (counters.spent() > 0) return 'spent';
  if (required === 'none' || (typeof required === 'object' && required.tool !== part.name)) return 'refused';
  if (!facts || !isAllowed(part.name) || !check || check.problem !== undefined) return 'refused';
  if (admitted + running >= (rules.limits.calls ?? Infinity)) return 'spent';
  return onlyRepeated && !facts.polling && counters.isFull(call, rules.repeatLimit) ? 'repeated' : 'runs';
}

/**
 * How the loop must handle a call. `refused`: with an error that the model can correct. `capped` and `spent`: by limits
 * of the loop, which do not count as errors of the model. `repeated`: the same call once too often. Claimed by a typed
 * agent: `held` until its output is validated; `superseded`, `early` and `faulty` (bad arguments) are answered at once.
 * None of these count as errors of the model.
 */
export type Handling =
  | 'runs'
  | 'refused'
  | 'capped'
  | 'spent'
  | 'repeated'
  | 'held'
  | 'superseded'
  | 'early'
  | 'faulty';
