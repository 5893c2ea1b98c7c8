import type { Verdict } from '../policy/port.ts';
import { sha256 } from './digest.ts';
import { effectOf, indexIn } from './outstanding.ts';
import { admitted, refuse, settle } from './plan.ts';
import { advance, enter, NO_EFFECTS, type Next } from './turn.ts';
import type { Event } from './events.ts';
import type { CancelPhase, Slot, State } from './state.ts';
import { addUsage } from './usage.ts';
import { wordingOf } from './wording.ts';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** What the policy's verdicts lead to: calls are queued, refused, or put before a person. */
export function judged(state: State, { verdicts, at }: Of<'calls-judged'>): Next {
  if (state.phase.type !== 'judging') return { state, effects: NO_EFFECTS };
  let judgedSoFar = 0;
  const slots = state.phase.slots.map((slot) =>
    slot.type === 'queued' ? underVerdict(state, slot, verdicts[judgedSoFar++], at) : slot,
  );
  const next = advance({ ...state, calls: state.calls + admitted(slots) }, slots);
  const asked = slots.flatMap((slot) => (slot.type === 'asking' ? effectOf(slot)! : []));
  return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };
}

const DAY = 86_400_000;

function underVerdict({ rules }: State, slot: Slot, verdict: Verdict | undefined, at: number): Slot {
  const { call } = slot;
  const words = wordingOf(rules);
  switch (verdict?.type) {
    case 'allow':
      return slot;
    case 'ask': {
      const { reason } = verdict;
      // What is no number dies in JSON, and would be another time when the run is replayed.
      const ttlMs = Number.isFinite(verdict.ttlMs) ? verdict.ttlMs! : DAY;
      const digest = sha256(`${call.name}\n${call.arguments}`);
      return { type: 'asking', call, digest, expiresAt: at + ttlMs, ...(reason !== undefined && { reason }) };
    }
    case 'deny':
      return refuse(call, words.denied(call.name, verdict.reason));
    default:
      return refuse(call, words.denied(call.name, words.noVerdict));
  }
}

type SlotEvent = Of<'tool-settled' | 'tool-parked' | 'approval-given' | 'client-result-given' | 'deadline-passed'>;

/** What has happened to one call. */
export function changed(state: State, effect: string, event: SlotEvent): Next {
  return changeSlot(charged(state, event), effect, (slot) => moved(state, slot, event));
}

/** What a run inside this one has used counts here too, and what a helper has left to remember is kept. */
function charged(state: State, event: SlotEvent): State {
  if (event.type !== 'tool-settled' || event.result.type !== 'result') return state;
  const { usage, calls = 0, memory } = event.result;
  const remembering =
    memory && state.agent
      ? { ...state, agent: { ...state.agent, memory: { ...state.agent.memory, ...memory } } }
      : state;
  if (!usage) return remembering;
  return { ...remembering, usage: addUsage(state.usage, usage), calls: state.calls + calls };
}

function changeSlot(state: State, effect: string, change: (slot: Slot) => Slot): Next {
  if (state.phase.type !== 'tools') return { state, effects: NO_EFFECTS };
  const { slots } = state.phase;
  const index = indexIn(slots, effect);
  const slot = slots[index]!;
  const next = change(slot);
  const approved = slot.type === 'asking' && next.type === 'queued' && !slot.call.claimed;
  const others = slots.slice();
  others[index] = next;
  return advance(approved ? { ...state, calls: state.calls + 1 } : state, others);
}

function moved({ rules }: State, slot: Slot, event: SlotEvent): Slot {
  const { call } = slot;
  const words = wordingOf(rules);
  switch (event.type) {
    case 'tool-settled': {
      const { result } = event;
      if (result.type === 'result') return settle(call, result.content, result.isError);
      return result.type === 'not-done' ? { type: 'queued', call } : refuse(call, words.interrupted(call.name));
    }
    case 'tool-parked':
      return { type: 'parked', call, on: event.on, waiting: event.waiting ?? [] };
    case 'approval-given':
      if (slot.type === 'asking' && event.at >= slot.expiresAt) return refuse(call, words.approvalExpired(call.name));
      return event.approved === true
        ? { type: 'queued', call }
        : refuse(call, words.notApproved(call.name, event.reason));
    case 'client-result-given':
      return settle(call, event.content, event.isError);
    case 'deadline-passed':
      return refuse(call, words.approvalExpired(call.name));
    default:
      return event satisfies never;
  }
}

/** Issues again what is gone, under the same id; but a tool that acts once and had begun is not run blindly again. */
export function lost(state: State, effect: string): Next {
  const { phase } = state;
  if (phase.type === 'ended') return enter(state, { type: 'model', effect });
  if (phase.type !== 'tools') return phase.type === 'new' ? { state, effects: NO_EFFECTS } : enter(state, phase);
  return changeSlot(state, effect, ({ type, call }) => {
    const harmless = call.effect === 'pure' || call.effect === 'idempotent';
    if (type !== 'verifying' && harmless) return { type: 'queued', call };
    if (call.verifiable) return { type: 'queued', call, verify: true };
    return refuse(call, wordingOf(state.rules).interrupted(call.name));
  });
}

export function cancelPhase({ phase }: State): CancelPhase {
  if (phase.type === 'validating') return 'validation';
  if (phase.type === 'judging') return 'tool';
  if (phase.type !== 'tools') return 'model';
  const has = (type: Slot['type']): boolean => phase.slots.some((slot) => slot.type === type);
  if (has('running') || has('verifying') || has('parked')) return 'tool';
  return has('asking') ? 'approval' : 'client';
}
