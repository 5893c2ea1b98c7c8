import {
  messagesOf,
  outstanding,
  requestOf,
  statusOf,
  waiting,
  type Call,
  type Effect,
  type Event,
  type Message,
  type ModelRequest,
  type RecordedVerdict,
  type RunStatus,
  type State,
  type ToolResult,
  type Usage,
  type UserMessage,
  type Waiting,
} from '@treadle/core';
import { isRefused } from '@treadle/core/trace';
import type { RunModel } from './run-model.ts';

/** The exact state of a run after one of its entries. */
export interface Moment {
  readonly seq: number;
  readonly event: Event;
  readonly status: RunStatus;
  readonly turn: number;
  readonly conversation: readonly Message[];
  /** Results of the turn that are not part of the conversation yet. */
  readonly settled: readonly ToolResult[];
  /** Input that waits for the next turn. */
  readonly pending: readonly UserMessage[];
  /** The last request to the model so far. */
  readonly request: SentRequest | undefined;
  /** The reply to it, if it has come. */
  readonly reply: Reply | undefined;
  readonly outstanding: readonly OpenEffect[];
  readonly waiting: readonly Waiting[];
  readonly limits: readonly UsedLimit[];
  /** The verdicts are those of the turn that the entry belongs to. A denial may be the end of its turn. */
  readonly judgedTurn: number;
  readonly verdicts: readonly JudgedCall[];
  readonly usage: Usage;
  /** The milliseconds in which the run was active. */
  readonly activeMs: number;
}

export interface SentRequest {
  /** The entry that issued it. */
  readonly seq: number;
  readonly effect: string;
  readonly model: string;
  readonly request: ModelRequest;
}

export interface Reply {
  readonly seq: number;
  readonly event: Extract<Event, { type: 'model-replied' | 'model-failed' }>;
}

export interface OpenEffect {
  readonly effect: Effect;
  /** The entry that issued it. */
  readonly since: number;
  readonly waits: boolean;
}

export interface UsedLimit {
  readonly name: 'turns' | 'calls' | 'tokens' | 'cost' | 'duration';
  readonly used: number;
  readonly limit: number;
}

/** A call of the turn, and what was decided about it. */
export interface JudgedCall {
  readonly call: Call;
  readonly verdict: RecordedVerdict;
  /** The entry with the verdict. */
  readonly seq: number;
  /** What people have said about it. */
  readonly approvals: readonly Extract<Event, { type: 'approval-given' }>[];
}

/** Undefined for an entry that does not replay. */
export function momentAt(model: RunModel, seq: number): Moment | undefined {
  const state = model.stateAt(seq);
  const entry = model.entries[seq];
  if (!state || !entry) return undefined;
  const request = lastRequest(model, seq);
  const slots = 'slots' in state.phase ? (state.phase.slots ?? []) : [];
  const judgedTurn = model.shown[seq]!.states?.before?.turn || state.turn;
  return {
    seq,
    event: entry.event,
    status: statusOf(state),
    turn: state.turn,
    conversation: messagesOf(state.history),
    settled: slots.flatMap((slot) => (slot.type === 'settled' ? slot.result : [])),
    pending: state.pending,
    request,
    reply: request && replyTo(model, request, seq),
    outstanding: openEffects(model, state, seq),
    waiting: waiting(state),
    limits: usedLimits(state),
    judgedTurn,
    verdicts: judgedCalls(model, judgedTurn, seq),
    usage: state.usage,
    activeMs: state.activeMs,
  };
}

function lastRequest(model: RunModel, seq: number): SentRequest | undefined {
  for (let at = seq; at >= 0; at--) {
    if (!model.entries[at]!.issued.some((id) => id.includes('.model.'))) continue;
    const state = model.stateAt(at);
    const effect = state && outstanding(state).find((one) => one.type === 'call-model');
    if (!state || effect?.type !== 'call-model') continue;
    // The array of the history goes on, so the messages of that time are copied.
    const request = {
      ...requestOf(effect, state.rules, state.settings, state.runId),
      messages: messagesOf(effect.history),
    };
    return { seq: at, effect: effect.id, model: effect.model ?? state.model, request };
  }
  return undefined;
}

function replyTo({ entries }: RunModel, { seq: sent, effect }: SentRequest, seq: number): Reply | undefined {
  for (let at = sent + 1; at <= seq; at++) {
    const { event } = entries[at]!;
    if ((event.type === 'model-replied' || event.type === 'model-failed') && event.effect === effect)
      return { seq: at, event };
  }
  return undefined;
}

function openEffects({ spans }: RunModel, state: State, seq: number): readonly OpenEffect[] {
  return outstanding(state).map((effect) => {
    const span = spans.findLast(({ effect: id, start }) => id === effect.id && start <= seq);
    return { effect, since: span?.start ?? seq, waits: span?.kind === 'wait' };
  });
}

function usedLimits({ rules, policyLimits, turn, calls, usage, activeMs, agent }: State): readonly UsedLimit[] {
  const { limits, maxTurns } = rules;
  const all: readonly (
    | UsedLimit
    | { readonly name: UsedLimit['name']; readonly used: number; readonly limit: undefined }
  )[] = [
    { name: 'turns', used: turn - (agent?.from ?? 0), limit: Math.min(maxTurns, policyLimits?.turns ?? Infinity) },
    { name: 'calls', used: calls, limit: least(limits.calls, policyLimits?.calls) },
    { name: 'tokens', used: usage.inputTokens + usage.outputTokens, limit: limits.tokens },
    { name: 'cost', used: usage.cost ?? 0, limit: limits.cost },
    { name: 'duration', used: activeMs, limit: limits.durationMs },
  ];
  return all.filter((one): one is UsedLimit => one.limit !== undefined && Number.isFinite(one.limit));
}

function least(...values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function judgedCalls(model: RunModel, turn: number, seq: number): readonly JudgedCall[] {
  const judged = new Map<string, JudgedCall>();
  for (let at = turnBegin(model, seq, turn); at <= seq; at++) {
    const { event } = model.entries[at]!;
    const before = model.shown[at]!.states?.before;
    if (event.type === 'calls-judged' && before?.phase.type === 'judging') {
      const queued = before.phase.slots.filter(({ type }) => type === 'queued');
      for (const [index, { call }] of queued.entries()) {
        const verdict = event.verdicts[index] ?? NO_VERDICT;
        judged.set(toolEffect(call), { call, verdict, seq: at, approvals: [] });
      }
    } else if (event.type === 'policy-changed' && before?.phase.type === 'tools') {
      for (const { call } of before.phase.slots) {
        const verdict = event.verdicts?.[toolEffect(call)];
        if (verdict) judged.set(toolEffect(call), { call, verdict, seq: at, approvals: [] });
      }
    } else if (event.type === 'call-rejudged' && before?.phase.type === 'tools') {
      const effect = event.effect.replace('.approval.', '.tool.');
      const slot = before.phase.slots.find(({ call }) => toolEffect(call) === effect);
      const { verdict = NO_VERDICT } = event;
      if (slot) judged.set(effect, { call: slot.call, verdict, seq: at, approvals: [] });
    } else if (event.type === 'approval-given') {
      const effect = event.effect.replace('.approval.', '.tool.');
      const one = judged.get(effect);
      if (one) judged.set(effect, { ...one, approvals: [...one.approvals, event] });
    }
  }
  return [...judged.values()];
}

const NO_VERDICT: RecordedVerdict = { type: 'deny', reason: 'The policy returned no verdict.' };

function toolEffect({ turn, index }: Call): string {
  return `t${turn}.tool.${index}`;
}

/** The first entry of the turn: the one before it has begun the turn. */
function turnBegin(model: RunModel, seq: number, turn: number): number {
  let at = seq;
  while (at > 0 && model.shown[at - 1]!.states?.before.turn === turn) at--;
  return at;
}

/** Entries that somebody who examines a run looks for. */
export interface Landmarks {
  readonly errors: readonly number[];
  readonly denials: readonly number[];
  /** The reply of the turn that cost most, with its child runs, or used most tokens if no price is known. */
  readonly mostExpensive: number | undefined;
}

export function landmarksOf({ entries, shown }: RunModel): Landmarks {
  const errors: number[] = [];
  const denials: number[] = [];
  const turns = new Map<number, TurnUsage>();
  for (const [seq, { event, status }] of entries.entries()) {
    const results = shown[seq]!.items.flatMap((item) => (item.type === 'call-answered' ? item.result : []));
    const isDenied = results.some(({ isError, errorType }) => isError && errorType === 'denied') || isDenial(event);
    const isFailed =
      results.some(({ isError, errorType }) => isError && errorType !== 'denied') ||
      isFailure(event) ||
      shown[seq]!.loss === 'stopped';
    if (isDenied) denials.push(seq);
    if (isFailed || status === 'failed') errors.push(seq);
    const { before, state } = shown[seq]!.states ?? {};
    if (!before || !state || before.usage === state.usage) continue;
    const turn = turns.get(before.turn) ?? { seq: undefined, cost: 0, tokens: 0 };
    turns.set(before.turn, turn);
    if (event.type === 'model-replied') turn.seq ??= seq;
    turn.cost += (state.usage.cost ?? 0) - (before.usage.cost ?? 0);
    turn.tokens += totalOf(state.usage) - totalOf(before.usage);
  }
  const [most] = [...turns.values()]
    .filter((turn) => turn.seq !== undefined)
    .toSorted((a, b) => b.cost - a.cost || b.tokens - a.tokens);
  return { errors, denials, mostExpensive: most?.seq };
}

interface TurnUsage {
  /** The first reply of the turn. */
  seq: number | undefined;
  cost: number;
  tokens: number;
}

function totalOf({ inputTokens, outputTokens }: Usage): number {
  return inputTokens + outputTokens;
}

function isDenial(event: Event): boolean {
  return isRefused(event) || (event.type === 'approval-given' && !event.approved);
}

function isFailure(event: Event): boolean {
  switch (event.type) {
    case 'model-failed':
    case 'budget-refused':
    case 'deadline-passed':
      return true;
    case 'output-checked':
      return event.result.type === 'invalid';
    case 'turn-prepared':
      return event.problem !== undefined;
    case 'history-compacted':
      return event.result.type === 'failure';
    default:
      return false;
  }
}

/** Calls and model calls of the original after an entry, that a fork there may perform again. */
export interface LaterWork {
  readonly modelCalls: number;
  readonly calls: readonly { readonly tool: string; readonly effect: Call['effect']; readonly count: number }[];
}

/** `copied`: the entries that the fork takes over. */
export function laterWork({ entries, shown }: RunModel, at: number, copied: readonly number[]): LaterWork {
  const taken = new Set(copied);
  const calls = new Map<string, { tool: string; effect: Call['effect']; count: number }>();
  let modelCalls = 0;
  for (let seq = at + 1; seq < entries.length; seq++) {
    if (taken.has(seq)) continue;
    const { event } = entries[seq]!;
    if (event.type === 'model-replied' || event.type === 'model-failed') modelCalls++;
    if (event.type !== 'tool-settled') continue;
    const phase = shown[seq]!.states?.before.phase;
    const slot = phase && 'slots' in phase ? phase.slots?.[Number(event.effect.split('.').at(-1))] : undefined;
    if (!slot) continue;
    const { name: tool, effect } = slot.call;
    const known = calls.get(tool) ?? { tool, effect, count: 0 };
    calls.set(tool, { ...known, count: known.count + 1 });
  }
  return { modelCalls, calls: [...calls.values()] };
}
