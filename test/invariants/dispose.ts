import type { Rules, ToolChoice } from '@treadle/core';
import type { Claim } from './attempts.ts';
import type { Disposition } from './disposition.ts';
import type { Tally } from './tally.ts';
import { capOf, type CallRecord } from './turns.ts';

/** Where a reply finds the run. */
export interface Situation {
  readonly rules: Rules;
  readonly demanded: ToolChoice;
  readonly isAllowed: (name: string) => boolean;
  /** It is asked for a last answer. */
  readonly closing: boolean;
  /** Calls that were let through so far. */
  readonly admitted: number;
  readonly claims: ReadonlyMap<CallRecord, Claim>;
  readonly tally: Pick<Tally, 'spent' | 'isFull'>;
}

/** What must become of the calls of a reply. */
export function disposed(calls: readonly CallRecord[], situation: Situation): ReadonlyMap<CallRecord, Disposition> {
  const dispositions = new Map<CallRecord, Disposition>();
  for (const call of calls) {
    const before = calls.slice(0, call.index);
    const running = before.filter((one) => dispositions.get(one) === 'runs' && !situation.claims.has(one)).length;
    const onlyRepeated = before.every((one) => dispositions.get(one) === 'repeated');
    dispositions.set(call, ownOf(call, situation) ?? dispositionOf(call, running, onlyRepeated, situation));
  }
  return dispositions;
}

/** Of a typed agent's own calls. Neither a limit nor a choice concerns them. */
function ownOf(call: CallRecord, { claims }: Situation): Disposition | undefined {
  const claim = claims.get(call);
  if (claim !== 'shown') return claim;
  return call.check && call.check.problem === undefined ? 'runs' : 'faulty';
}

function dispositionOf(call: CallRecord, running: number, onlyRepeated: boolean, situation: Situation): Disposition {
  const { index, part, facts, check } = call;
  const { rules, demanded, isAllowed, closing, admitted, tally } = situation;
  if (index >= capOf(rules) || closing) return 'capped';
  if (tally.spent() > 0) return 'spent';
  if (demanded === 'none' || (typeof demanded === 'object' && demanded.tool !== part.name)) return 'refused';
  if (!facts || !isAllowed(part.name) || !check || check.problem !== undefined) return 'refused';
  if (admitted + running >= (rules.limits.calls ?? Infinity)) return 'spent';
  return onlyRepeated && !facts.polling && tally.isFull(call, rules.repeatLimit) ? 'repeated' : 'runs';
}
