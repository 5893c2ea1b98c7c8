import type { AssistantPart, Item, ReasoningPart, TokenLogprob, ToolCall } from '@treadle/core';
import { itemOrigin } from '../ids.ts';
import type { FinalEnd } from './requests.ts';
import type { ResumedRun } from './run.ts';

/*
 * What clients get of a run. An API has one projection: it makes events, and a result, from the items of a run. All of them
 * are walked in the same way, live and when a run is resumed.
 *
 * 1. A projection is the mirror image of a wire protocol in `models`: it does no I/O and uses neither clock nor randomness. So
 *    the same items make the same events.
 * 2. Its state is a plain value, without functions. It belongs to one walk and is changed in place, for linear time.
 * 3. The events that were sent before a crash are read back here, for all APIs (`Sent`). The journal has no deltas, so it alone
 *    does not tell what readers already have. What was sent is not sent again, and nothing is left out.
 */

export interface Projection<State, E, Result> {
  readonly start: (begun: Begun<E>) => State;
  /** The events before the first item. */
  readonly open?: (state: State) => readonly E[];
  readonly project: (state: State, item: RunItem) => readonly E[];
  /** The run has ended: the events that can be sent before the end is stored. */
  readonly end?: (state: State, end: FinalEnd) => readonly E[];
  /** The result so far, or at the end. */
  readonly result: (state: State) => Result;
  /** The events that are sent when the end is stored. `stored`: the result that is stored, if another process was first. */
  readonly last?: (state: State, stored: Result | undefined) => readonly E[];
}

/** The events that a projection has made of an item, while it makes them. A part of its state. */
export interface Outbox<E> {
  events: E[];
  /** Nobody gets the events, so that those of deltas need not be made. */
  readonly isSilent: boolean;
}

/** An array with one event is made at its size: one that grows from nothing costs more than the event of a delta. */
export function addEvent<E>(out: Outbox<E>, event: E): void {
  if (out.events.length === 0) out.events = [event];
  else out.events.push(event);
}

export function takeEvents<E>(out: Outbox<E>): readonly E[] {
  const { events } = out;
  if (events.length > 0) out.events = NONE;
  return events;
}

export interface Begun<E> {
  /** The events of the run that were sent before it was resumed. */
  readonly sent: readonly E[];
  /** Nobody gets the events. */
  readonly isSilent: boolean;
}

/**
 * `resumed`: the items before it are from the journal, and those after it are new. A reply that is not among them was lost. `isOver`:
 * the model is not called again.
 */
export type RunItem = Item | { readonly type: 'resumed'; readonly isOver: boolean };

/** A projection of one run on its way to the client. */
export interface Walk<State, E, Result> {
  readonly state: State;
  open(): void;
  /** Adds the items of a run that is resumed, before any other. Undefined: it has not started. */
  replay(resumed: Pick<ResumedRun, 'items' | 'isOver'> | undefined): void;
  /** Adds the next item of the run. Returns the promise of `emit`, if it returned one. */
  add(item: Item): void | Promise<void>;
  end(end: FinalEnd): Result;
  result(): Result;
  last(stored?: Result): void;
  send(events: readonly E[]): void | Promise<void>;
}

export interface WalkOptions<E> {
  /** Takes an event. Returns a promise while the client is slow. Absent: only the result is needed. */
  readonly emit?: ((event: E) => void | Promise<void>) | undefined;
  /** The events that were sent before. Absent: all of those that the replayed items make. */
  readonly sent?: readonly E[] | undefined;
}

export function walkRun<State, E, Result>(
  projection: Projection<State, E, Result>,
  { emit, sent }: WalkOptions<E> = {},
): Walk<State, E, Result> {
  const { open, project, end, result, last } = projection;
  const state = projection.start({ sent: sent ?? NONE, isSilent: emit === undefined });

  function send(events: readonly E[]): void | Promise<void> {
    if (!emit) return;
    let room: void | Promise<void> = undefined;
    for (const event of events) room = emit(event) ?? room;
    return room;
  }

  return {
    state,
    open() {
      if (open && !sent?.length) void send(open(state));
    },
    replay(resumed) {
      // A run that has not started may have events of a reply that was lost with its start.
      if (!resumed && !sent) return;
      const { items, isOver = false } = resumed ?? { items: NONE };
      for (const item of [...items, { type: 'resumed', isOver } as const]) {
        const events = project(state, item);
        if (sent) void send(events);
      }
    },
    add: (item) => send(project(state, item)),
    end(how) {
      if (end) void send(end(state, how));
      return result(state);
    },
    result: () => result(state),
    last(stored) {
      if (last) void send(last(state, stored));
    },
    send,
  };
}

/** The result of a projection of the items of a stored run. */
export function projected<State, E, Result>(projection: Projection<State, E, Result>, items: readonly Item[]): Result {
  const walk = walkRun(projection);
  for (const item of items) void walk.add(item);
  return walk.result();
}

const NONE: never[] = [];

/** The events of a run that were sent before, by what they are about. */
export interface Sent<E> {
  readonly count: number;
  /** By the id of an item, a call or a question. */
  readonly items: Map<string, E[]>;
  /** The ids of a turn of the run, in the order in which they were first sent. */
  readonly turns: Map<number, string[]>;
}

/** `idOf`: what an event is about. Undefined for the others. */
export function sentBefore<E>(events: readonly E[], idOf: (event: E) => string | undefined): Sent<E> {
  const sent: Sent<E> = { count: events.length, items: new Map(), turns: new Map() };
  for (const event of events) {
    const id = idOf(event);
    if (id !== undefined) addSent(sent, id, event);
  }
  return sent;
}

export function addSent<E>({ items, turns }: Sent<E>, id: string, event: E): void {
  const known = items.get(id);
  if (known) return void known.push(event);
  items.set(id, [event]);
  const { turn } = itemOrigin(id) ?? {};
  if (turn === undefined) return;
  const ids = turns.get(turn);
  if (ids) ids.push(id);
  else turns.set(turn, [id]);
}

/**
 * What the text of a part is. The first two are messages. `reasoning` is the reasoning itself, `summary` a summary of it that the
 * provider made.
 */
export type TextKind = 'message' | 'refusal' | 'reasoning' | 'summary';

function textKindOf(part: Exclude<AssistantPart, ToolCall>): TextKind {
  if (part.type === 'text') return part.refusal ? 'refusal' : 'message';
  return part.summary ? 'summary' : 'reasoning';
}

/**
 * The parts of a reply that clients see, in order. Deltas do not mark where one text ends and the next begins, so
 * consecutive texts are one part, and so is consecutive reasoning. Parts without text are not shown and do not separate
 * others. `asSummary`: the reasoning itself is shown as a summary of it.
 */
export type ShownPart = ShownText | { readonly type: 'call'; readonly index: number; readonly call: ToolCall };

export interface ShownText {
  readonly type: TextKind;
  readonly text: string;
  readonly logprobs?: readonly TokenLogprob[];
  /** The first reasoning part that it consists of. Absent for messages. */
  readonly first?: ReasoningPart;
}

interface ShownReply {
  readonly parts: readonly ShownPart[];
  readonly calls: readonly ToolCall[];
  /** Reasoning that is not the first of a shown part, but that the model has to get back. */
  readonly hidden: readonly HiddenReasoning[];
}

export interface HiddenReasoning {
  readonly part: ReasoningPart;
  /** How many shown parts come before it. */
  readonly after: number;
}

export function shownReply(
  content: readonly AssistantPart[],
  { asSummary = false }: { readonly asSummary?: boolean } = {},
): ShownReply {
  const parts: ShownPart[] = [];
  const calls: ToolCall[] = [];
  const hidden: HiddenReasoning[] = [];
  for (const part of content) {
    if (part.type === 'tool-call') {
      parts.push({ type: 'call', index: calls.length, call: part });
      calls.push(part);
      continue;
    }
    const last = parts.at(-1);
    const isReasoning = part.type === 'reasoning';
    const type = isReasoning && asSummary ? 'summary' : textKindOf(part);
    const extended = last?.type === type ? (last as ShownText) : undefined;
    if (isReasoning && (extended || part.text === '') && (part.text || part.signature))
      hidden.push({ part, after: parts.length });
    if (part.text === '') continue;
    const logprobs = isReasoning ? undefined : part.logprobs;
    if (extended) {
      const tokens = logprobs && { logprobs: [...(extended.logprobs ?? []), ...logprobs] };
      parts[parts.length - 1] = { ...extended, text: extended.text + part.text, ...tokens };
    } else parts.push({ type, text: part.text, ...(logprobs && { logprobs }), ...(isReasoning && { first: part }) });
  }
  return { parts, calls, hidden };
}
