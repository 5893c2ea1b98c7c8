import type { Event } from './events.ts';
import { isPaused } from './effects.ts';
import { openQuestions, type AskedQuestion } from './questions.ts';
import type { Call, Parking, Slot, State, Waiting } from './state.ts';

/*
 * Calls that wait outside of the run: parked calls, and calls that the client executes. Both may have a deadline, and both
 * can be answered from outside. `step` decides when a call is parked and what settles it (`slotAfter`).
 */

type ToolParked = Extract<Event, { type: 'tool-parked' }>;

type ParkedSlot = Extract<Slot, { type: 'parked' }>;

/** A call that its tool parks. Without a new deadline it keeps the one that it has. */
export function parkedSlot(slot: Slot, event: ToolParked): ParkedSlot {
  const { on, waiting = [], expiresAt = parkingIn(slot)?.expiresAt, wakeAt } = event;
  return {
    type: 'parked',
    call: slot.call,
    on,
    waiting,
    ...(expiresAt !== undefined && { expiresAt }),
    ...(wakeAt !== undefined && { wakeAt }),
    ...askedIn(slot),
  };
}

/** How long a call waits that wanted to be asked again, and whose `verify` gave no time for the next one. */
const ASK_AGAIN_MS = 300_000;

/** A parked call that was verified without a result: it is parked as before, but is not asked at once again. */
export function parkedAgain(slot: Slot, at: number): ParkedSlot | undefined {
  const parking = parkingIn(slot);
  if (!parking) return undefined;
  const { wakeAt } = parking;
  const later = wakeAt !== undefined && wakeAt <= at && { wakeAt: at + ASK_AGAIN_MS };
  return { type: 'parked', call: slot.call, ...parking, ...later, ...askedIn(slot) };
}

/** What a call was parked with, for the slot that follows. */
export function parkingOf(slot: Slot): { readonly parked?: Parking } {
  const parked = parkingIn(slot);
  return parked ? { parked } : NOT_PARKED;
}

const NOT_PARKED = {};

/** What the tool of a call has asked, for the slot that follows. */
export function askedIn(slot: Slot): { readonly asked?: readonly AskedQuestion[] } | undefined {
  return 'asked' in slot && slot.asked ? { asked: slot.asked } : undefined;
}

function parkingIn(slot: Slot): Parking | undefined {
  if (slot.type !== 'parked') return 'parked' in slot ? slot.parked : undefined;
  const { type: _, call: __, asked: ___, ...parking } = slot;
  return parking;
}

/** A call that the client executes. */
export function clientSlot(call: Call, at: number): Slot {
  return call.ttlMs === undefined ? { type: 'client', call } : { type: 'client', call, expiresAt: at + call.ttlMs };
}

/** When a call that waits outside fails, if it does. */
export function deadlineOf(slot: Slot | undefined): number | undefined {
  return slot && 'expiresAt' in slot ? slot.expiresAt : undefined;
}

/** Whether a result from outside can settle the call at time `at`. A call that is a child run gets it from that run. */
export function isAnswerable(slot: Slot, at: number): boolean {
  if (slot.type === 'parked' && (slot.waiting.length > 0 || slot.call.limits !== undefined)) return false;
  return (slot.type === 'client' || slot.type === 'parked') && at < (slot.expiresAt ?? Infinity);
}

/** Whether the tool of a parked call is asked what became of it when the run is resumed. */
export function isAskedAgain({ type, call }: Slot | Waiting): boolean {
  return type === 'parked' && (call.effect !== 'once' || call.verifiable);
}

/**
 * The earliest time at which a run that nobody drives has something to do: something that it waits for fails, a tool wants
 * to be asked again about a parked call, or its model may be called again. Undefined if the run is not paused, only waits
 * for answers, or has ended for good.
 */
export function wakeAtOf(state: State): number | undefined {
  if (state.phase.type === 'ended') return state.phase.wakeAt;
  if (state.phase.type === 'raising') return timeOf(state.phase.expiresAt);
  if (state.phase.type !== 'tools' || !isPaused(state)) return undefined;
  const earliest = state.phase.slots.reduce((time, slot) => Math.min(time, wakeTimeOf(slot)), Infinity);
  return Number.isFinite(earliest) ? earliest : undefined;
}

/** A tool that is not asked again when the run is resumed does not wake it, and neither does its child run. */
function wakeTimeOf(slot: Slot): number {
  if (slot.type === 'questioning') return earliestOf(openQuestions(slot));
  const deadline = timeOf(deadlineOf(slot));
  if (slot.type !== 'parked' || !isAskedAgain(slot)) return deadline;
  return Math.min(deadline, timeOf(slot.wakeAt), earliestOf(slot.waiting));
}

function earliestOf(waiting: readonly Waiting[]): number {
  const times = waiting.map((wait) =>
    Math.min(timeOf(wait.expiresAt), 'wakeAt' in wait && isAskedAgain(wait) ? timeOf(wait.wakeAt) : Infinity),
  );
  return Math.min(...times);
}

/** A journal may contain anything. */
function timeOf(time: unknown): number {
  return typeof time === 'number' && Number.isFinite(time) ? time : Infinity;
}
