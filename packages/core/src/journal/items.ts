import { outcomeProblem } from '../errors.ts';
import type { BudgetLevel } from '../ledger/port.ts';
import type { Event, RunStarted } from '../machine/events.ts';
import type { Call, Outcome, Slot, State, Waiting } from '../machine/state.ts';
import type { Next } from '../machine/step.ts';
import type { AssistantMessage, ToolCall, ToolResult } from '../messages.ts';
import type { ModelDelta } from '../model.ts';

/** What a listener receives: signals as they happen, facts once they are durable, and what follows from facts. */
export type Item =
  | ModelDelta
  | Report
  | ResourceProblem
  | BudgetWarning
  | Fact
  | TurnStarted
  | CallStarted
  | CallAnswered
  | RunWaiting
  | RunFailed;

/** Progress of a running tool. */
export interface Report {
  readonly type: 'tool-report';
  readonly call: ToolCall;
  readonly progress: unknown;
}

/** A resource that a tool held could not be closed. */
export interface ResourceProblem {
  readonly type: 'resource-problem';
  readonly name: string;
  readonly problem: string;
}

/** A budget of the run has little left. Once for each budget and kind of amount, in each process that drives the run. */
export interface BudgetWarning extends BudgetLevel {
  readonly type: 'budget-warning';
  /** The effect that was reserved. */
  readonly effect: string;
}

export interface Fact {
  readonly type: 'fact';
  readonly seq: number;
  readonly event: Event;
}

export interface TurnStarted {
  readonly type: 'turn-started';
  readonly turn: number;
  /** Set for a typed agent. */
  readonly attempt?: number;
}

/**
 * A tool starts to run, or the validation that answers the output call of a typed agent. Emitted again for a call that
 * was lost and runs again, and for one that has the answers to its questions.
 */
export interface CallStarted {
  readonly type: 'call-started';
  /** The position of the call in its reply, from 0. */
  readonly index: number;
  readonly call: ToolCall;
}

/** A call has its result, also if it never ran. Emitted once per call. */
export interface CallAnswered {
  readonly type: 'call-answered';
  /** The position of the call in its reply, from 0. */
  readonly index: number;
  readonly call: ToolCall;
  readonly result: ToolResult;
  /** The rule of the policy that decided the verdict on the call. */
  readonly rule?: string;
}

/** The run has ended without an answer: it failed, reached a limit or was cancelled. The last item of the run. */
export interface RunFailed {
  readonly type: 'run-failed';
  /** The code of the failure, such as `auth`; `exhausted` at a limit, `cancelled` after a cancel. */
  readonly code: string;
  readonly message: string;
  readonly outcome: Outcome;
}

/** The run has paused: it needs answers, or has to be resumed later. The last item until then. */
export interface RunWaiting {
  readonly type: 'waiting';
  readonly waiting: readonly Waiting[];
  /** When the run should be resumed without an answer. */
  readonly wakeAt?: number;
}

/**
 * The items that follow from an event, derived from the states before and after it. Not every result has an event of its
 * own (refused calls have none), and not every event is a result. Without the event, calls that are denied have no `rule`.
 */
export function itemsBetween(before: State, { state: after, effects }: Next, event?: Event): readonly Item[] {
  const items: Item[] = [];
  const slotsBefore = slotsOf(before);
  const slots = slotsOf(after);
  const given = event?.type === 'run-started' ? event.answered : undefined;
  const givenIds = given && new Set(given.map(({ callId }) => callId));
  const recorded = recordedBetween(before, after, given && (event as RunStarted).input.length);
  const count = recorded ? recorded.length : slots.length;
  const verdicts = event?.type === 'calls-judged' ? event.verdicts : undefined;
  let reply: AssistantMessage['content'] | undefined;
  /** The part of the reply with the call number `calls - 1`, and how many calls have verdicts. */
  let at = -1;
  let calls = 0;
  let judged = 0;
  for (let index = 0; index < count; index++) {
    const slot = slotsBefore[index];
    const verdict = slot?.type === 'queued' ? verdicts?.[judged++] : undefined;
    const result = recorded ? recorded[index] : resultIn(slots[index]!);
    if (!result || slot?.type === 'settled' || givenIds?.has(result.callId)) continue;
    reply ??= lastReply(after);
    while (calls <= index) if (reply[++at]!.type === 'tool-call') calls++;
    const rule = verdicts ? verdict?.rule : slot?.call.rule;
    const item: Item = { type: 'call-answered', index, call: reply[at] as ToolCall, result };
    items.push(rule === undefined ? item : { ...item, rule });
  }
  for (let i = 0; i < effects.length; i++) {
    const effect = effects[i]!;
    if (effect.type === 'call-model') items.push(turnStarted(after));
    else if (effect.type === 'call-tool') items.push(callStartedItem(effect.call));
    else if (effect.type === 'validate-output') items.push(...heldCallsStarted(after));
  }
  if (after.phase.type === 'ended' && before.phase.type !== 'ended' && after.phase.outcome.type !== 'completed') {
    items.push(runFailedItem(after.phase.outcome));
  }
  return items;
}

function runFailedItem(outcome: Outcome): Item {
  const { code, message } = outcomeProblem(outcome)!;
  return { type: 'run-failed', code, message, outcome };
}

function callStartedItem(call: Call): Item {
  return { type: 'call-started', index: call.index, call: partOf(call) };
}

/** Held calls start with the validation that answers them. */
function heldCallsStarted(state: State): readonly Item[] {
  return slotsOf(state).flatMap(({ type, call }) => (type === 'held' ? callStartedItem(call) : []));
}

function turnStarted({ turn, agent }: State): Item {
  return { type: 'turn-started', turn, ...(agent && { attempt: agent.attempt }) };
}

export function partOf({ id, name, arguments: text }: Call): ToolCall {
  return { type: 'tool-call', id, name, arguments: text };
}

/**
 * The results of the turn if the event recorded them in the history; until then they are in the slots. `from`: the length of
 * the input of a run that begins with calls.
 */
function recordedBetween(before: State, after: State, from?: number): readonly ToolResult[] | undefined {
  if (before.phase.type === 'new' && from === undefined) return undefined;
  for (let index = from ?? before.history.length; index < after.history.length; index++) {
    const message = after.history.items[index]!;
    if (message.role === 'tool') return message.content;
  }
  return undefined;
}

function resultIn(slot: Slot): ToolResult | undefined {
  return slot.type === 'settled' ? slot.result : undefined;
}

const NO_SLOTS: readonly Slot[] = [];

function slotsOf({ phase }: State): readonly Slot[] {
  return ('slots' in phase && phase.slots) || NO_SLOTS;
}

function lastReply({ history }: State): AssistantMessage['content'] {
  let last = history.length - 1;
  while (history.items[last]!.role !== 'assistant') last--;
  return (history.items[last] as AssistantMessage).content;
}
