import { ttlOf } from '../policy/applied.ts';
import { approvalDigest, askingSlot, type AskingSlot } from './approvals.ts';
import type { Event } from './events.ts';
import type { Phase, Slot, State } from './state.ts';

/*
 * Effects that need more than their budgets have left, and that people may allow all the same (`budget-escalated`). A call
 * becomes an ask. A model call or a summary becomes the phase `raising`, in which the run is paused on a question. An
 * approval names the run whose reservation it raises, so that it does not count in a fork.
 */

type Escalated = Extract<Event, { type: 'budget-escalated' }>;

export type RaisingPhase = Extract<Phase, { type: 'raising' }>;

/** What a call has begun, asked or parked on would be lost with an ask. */
export function fitsEscalation(phase: Phase, slot: Slot | undefined, { effect, question }: Escalated): boolean {
  if (phase.type === 'model' || phase.type === 'compacting') {
    return phase.effect === effect && Array.isArray(question?.choices);
  }
  return slot?.type === 'running' && !slot.begun && !slot.parked && !slot.asked;
}

/** A call that people may allow to exceed its budgets. What they have allowed before does not answer it. */
export function escalatedSlot(state: State, { call }: Slot, event: Escalated): AskingSlot {
  const asking = askingSlot(state, call, { ...event, type: 'ask', rule: 'budget', eachTime: true }, event.at);
  const raising = { ...asking, onlyThisCall: true, raises: true } as const;
  return { ...raising, digest: approvalDigest(state.tools, call, raising) };
}

export function raisingPhase(of: RaisingPhase['of'], event: Escalated): RaisingPhase {
  return { type: 'raising', of, question: event.question!, expiresAt: event.at + ttlOf(event) };
}

/** The effect after an approval; undefined if nobody gave one in time. Only the first choice is one. */
export function raisedPhase({ of, question, expiresAt }: RaisingPhase, event: Event): RaisingPhase['of'] | undefined {
  if (event.type !== 'question-answered' || event.at >= expiresAt || event.value !== question.choices![0]) {
    return undefined;
  }
  return { ...of, raised: event.raises };
}
