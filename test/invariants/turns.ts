import type { CallCheck, Effect, Event, Rules, ToolCall, ToolFacts, ToolResult } from '@treadle/core';
import { turnOf } from './answers.ts';
import { permissionsOf, type Permission } from './permissions.ts';
import { handoffIn, parkingAfter } from './observed.ts';
import type { Moment, Trace } from './trace.ts';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** One turn, derived from events and effects. */
export interface Turn {
  readonly number: number;
  readonly reply: Of<'model-replied'>;
  /** The index of the moment at which the reply was applied. */
  readonly repliedAt: number;
  /** The position of its message in the history, if it has one. */
  readonly position: number;
  readonly calls: readonly CallRecord[];
}

export interface CallRecord {
  readonly index: number;
  /** The call as the model made it. */
  readonly part: ToolCall;
  readonly check: CallCheck | undefined;
  /** The tool when the reply arrived. */
  readonly facts: ToolFacts | undefined;
  /** Every effect that was issued for it and every event about it that was applied, in order. */
  readonly log: readonly CallEvent[];
  /** Whether it may run, with the moment from which on. Empty: it has not been judged. */
  readonly permissions: readonly { readonly at: number; readonly permission: Permission }[];
  /** It has to be judged: the run has a policy, or its tool needs approvals. */
  readonly mustBeJudged: boolean;
}

export type CallEvent =
  | { readonly type: 'issued'; readonly at: number; readonly effect: Effect }
  | {
      readonly type: 'reported';
      readonly at: number;
      readonly event: Event;
      /** What the event does to a parked call. */
      readonly parking: 'parked' | 'expired' | undefined;
    };

/** The turns of a trace to which the model replied, in order. */
export function turnsOf({ moments }: Trace): readonly Turn[] {
  const turns: Turn[] = [];
  const byEffect = new Map<string, CallEvent[]>();
  let tools: readonly ToolFacts[] = [];
  /** The tools from the next turn on, and the number of the turn. */
  let later: readonly ToolFacts[] | undefined;
  let last = 0;
  /** The index of the call that handed the run over in this turn. */
  let handedBy = -1;
  let judging: Extract<Effect, { type: 'judge-calls' }> | undefined;
  const permissions = permissionsOf(() => tools);

  for (const [at, { applied, event, effects, before, observed }] of moments.entries()) {
    if (!applied) continue;
    if (event.type === 'tools-changed' && event.from) later = event.tools;
    else if (event.type === 'run-started' || event.type === 'tools-changed') tools = event.tools;
    permissions.follow(event);
    if (event.type === 'run-forked' && event.tools) [tools, later] = [event.tools, undefined];
    const handoff = handoffIn(event);
    if (handoff && handoff.index > handedBy) [later, handedBy] = [handoff.tools, handoff.index];
    if (event.type === 'model-replied') {
      const calls = event.content
        .filter((part): part is ToolCall => part.type === 'tool-call')
        .map((part, index) => {
          const facts = tools.find(({ name }) => name === part.name);
          const isNarrowed = before.narrowed?.some(({ ask, rules }) => ask ?? rules) === true;
          const mustBeJudged = permissions.isJudged() || isNarrowed || facts?.needsApproval === true;
          return { index, part, check: event.checks[index], facts, log: [], permissions: [], mustBeJudged };
        });
      turns.push({
        number: turnOf(event.effect),
        reply: event,
        repliedAt: at,
        position: before.history.length,
        calls,
      });
    } else if (event.type === 'calls-judged') {
      const asked = judging!;
      judging = undefined;
      for (const [place, { index }] of asked.calls.entries()) {
        permissions.judge(turns.at(-1)!.calls[index]!, event.verdicts[place], event.at, at);
      }
    } else if (event.type === 'policy-changed') {
      for (const call of (!judging && turns.at(-1)?.calls) || []) {
        if (!isUnstarted(call, permissions.last(call))) continue;
        permissions.judge(call, event.verdicts?.[`t${turns.at(-1)!.number}.tool.${call.index}`], event.at, at);
      }
    } else if (event.type === 'call-rejudged') {
      const log = byEffect.get(event.effect)!;
      log.push({ type: 'reported', at, event, parking: undefined });
      const { begun, asked } = observed.before;
      const judge = begun.has(event.effect) || asked.has(event.effect) ? permissions.judgeBegun : permissions.judge;
      judge(
        turns.at(-1)!.calls.find((call) => call.log === log)!,
        event.verdict,
        event.at,
        at,
      );
    } else if ('effect' in event && event.effect !== undefined) {
      const after = parkingAfter(observed.before, event);
      const parking = typeof after === 'object' ? 'parked' : after;
      byEffect.get(event.effect)?.push({ type: 'reported', at, event, parking });
      const call = turns.at(-1)?.calls.find(({ log }) => log === byEffect.get(event.effect!));
      if (call && event.type === 'approval-given') permissions.decide(call, event, at);
      if (call && event.type === 'budget-escalated') permissions.escalate(call, event, at);
    }
    for (const effect of effects) {
      if ('turn' in effect && effect.turn > last) {
        last = effect.turn;
        [tools, later, handedBy] = [later ?? tools, undefined, -1];
      }
      if (effect.type === 'judge-calls') judging = effect;
      else if ('call' in effect) {
        const log = logOf(turns, effect.call.index) ?? [];
        log.push({ type: 'issued', at, effect });
        byEffect.set(effect.id, log);
      }
    }
  }
  return turns;
}

/** Whether a call waits to start, or for an approval. */
function isUnstarted({ log, facts }: CallRecord, permission: Permission | undefined): boolean {
  if (permission?.type === 'asking' || permission?.type === 'denied') return permission.type === 'asking';
  let waits = true;
  let begun = false;
  for (const record of log) {
    if (record.type === 'issued') waits = record.effect.type === 'ask-approval' && waits;
    else if (record.event.type === 'questions-asked') return false;
    else if (record.event.type === 'budget-escalated') waits = true;
    else if (record.event.type === 'child-started' || record.event.type === 'tool-parked') begun = true;
    else if (record.parking) waits = false;
    else if (record.event.type === 'call-rejudged') waits = true;
    else if (record.event.type === 'effect-lost') waits = facts?.effect !== 'once';
    else if (record.event.type === 'tool-settled') {
      waits = record.event.result.type === 'not-done';
      begun = false;
    }
  }
  return waits && !begun;
}

function logOf(turns: readonly Turn[], index: number): CallEvent[] | undefined {
  return turns.at(-1)?.calls[index]?.log as CallEvent[] | undefined;
}

/** The event that reported the result of the call; undefined if the loop answered it, or it has no result. */
export function answerIn({ log }: CallRecord): Of<'tool-settled' | 'client-result-given'> | undefined {
  const reported = log.findLast((record) => record.type === 'reported')?.event;
  if (reported?.type === 'client-result-given') return reported;
  return reported?.type === 'tool-settled' && reported.result.type === 'result' ? reported : undefined;
}

/** The arguments that the tool receives: those of the model, or the repaired ones. */
export function argumentsOf({ part, check }: CallRecord): string {
  return check?.arguments ?? part.arguments;
}

/** The results of a turn in the history. */
export function resultsOf({ position }: Turn, { after }: Moment): readonly ToolResult[] | undefined {
  const message = position + 1 < after.history.length ? after.history.items[position + 1] : undefined;
  return message?.role === 'tool' ? message.content : undefined;
}

export function capOf({ maxCallsPerTurn = 128 }: Rules): number {
  return Math.min(maxCallsPerTurn, 128);
}

/** Whether two calls use the same resource. */
export function shares(one: CallRecord, other: CallRecord): boolean {
  return one.check?.resources?.some((resource) => other.check?.resources?.includes(resource)) ?? false;
}

/** Whether a call that may run has its result at a moment, derived from the events. */
export function isAnswered(call: CallRecord, at: number): boolean {
  return (
    permissionAt(call, at)?.type === 'denied' || call.log.some((record) => record.at <= at && answers(call, record))
  );
}

function answers(call: CallRecord, record: CallEvent): boolean {
  if (record.type !== 'reported') return false;
  return record.parking ? record.parking === 'expired' : settles(call, record.event);
}

/** The permission of a call at a moment; undefined if it was not judged. */
export function permissionAt({ permissions }: CallRecord, at: number): Permission | undefined {
  return permissions.findLast((one) => one.at <= at)?.permission;
}

function settles(call: CallRecord, event: Event): boolean {
  switch (event.type) {
    case 'tool-settled':
      return event.result.type !== 'not-done';
    case 'client-result-given':
      return true;
    case 'deadline-passed':
      return event.question === undefined;
    case 'effect-lost':
      return call.facts?.effect === 'once' && !call.facts.verifiable;
    default:
      return false;
  }
}
