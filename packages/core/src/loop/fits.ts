import { hasFinish } from './finish/finish.ts';
import { isPaused, slotIndexOf } from './outstanding.ts';
import type { Event } from './events.ts';
import type { Rules } from './pinned.ts';
import type { Slot, State } from './state.ts';
import { hasWording } from './wording.ts';

/**
 * Whether an event applies to a state. The one guard of `step`: an event that settles something must bear the id of an
 * outstanding effect of its own kind, so that duplicate, late and foreign events change nothing.
 */
export function fits(state: State, event: Event): boolean {
  const { phase } = state;
  switch (event.type) {
    case 'run-started':
      return phase.type === 'new' && isKnown(event.rules);
    case 'input-added':
      return isLive(state) && event.messages.length > 0;
    case 'tools-changed':
      return canGoOn(state);
    case 'run-forked':
    case 'cancel-requested':
      return isLive(state);
    case 'model-replied':
    case 'model-failed':
      return phase.type === 'model' && phase.effect === event.effect;
    case 'turn-prepared':
      return phase.type === 'preparing' && phase.effect === event.effect;
    case 'history-compacted':
      return phase.type === 'compacting' && phase.effect === event.effect;
    case 'output-checked':
      return phase.type === 'validating' && phase.effect === event.effect;
    case 'calls-judged':
      return phase.type === 'judging' && phase.effect === event.effect;
    case 'tool-settled': {
      const type = slotOf(state, event.effect)?.type;
      if (type === 'verifying') return true;
      return (type === 'running' || type === 'parked') && event.result.type === 'result';
    }
    case 'tool-parked':
      return slotOf(state, event.effect)?.type === 'running';
    case 'approval-given': {
      const slot = slotOf(state, event.effect);
      return slot?.type === 'asking' && slot.digest === event.digest;
    }
    case 'client-result-given':
      return slotOf(state, event.effect)?.type === 'client';
    case 'effect-lost': {
      if (phase.type !== 'tools') return 'effect' in phase && phase.effect === event.effect;
      const type = slotOf(state, event.effect)?.type;
      return type === 'running' || type === 'verifying' || type === 'parked';
    }
    case 'deadline-passed': {
      if (event.effect === undefined) return isLive(state) && isOverdue(state, event.at);
      const slot = slotOf(state, event.effect);
      return slot?.type === 'asking' && event.at >= slot.expiresAt;
    }
    default:
      event satisfies never;
      return false; // in the journal of a later version
  }
}

/** Whether this code can go by them: those of a later version may name what it does not have. */
export function isKnown(rules: Rules): boolean {
  return hasWording(rules) && hasFinish(rules) && (rules.finish === 'output') === (rules.agent !== undefined);
}

/** It has not ended, or only because the model failed, which can be asked again. */
export function canGoOn(state: State): boolean {
  const { phase } = state;
  return isLive(state) || (phase.type === 'ended' && phase.effect !== undefined);
}

function isLive({ phase }: State): boolean {
  return phase.type !== 'new' && phase.type !== 'ended';
}

function isOverdue(state: State, at: number): boolean {
  const { durationMs } = state.rules.limits;
  return durationMs !== undefined && activeMsAt(state, at) >= durationMs;
}

/** How long the run has worked when it is `at`. Clocks may go back; work does not. */
export function activeMsAt(state: State, at: number): number {
  const idle = state.phase.type === 'ended' || isPaused(state);
  return state.activeMs + (idle ? 0 : Math.max(0, at - state.at));
}

function slotOf({ phase }: State, effect: string): Slot | undefined {
  return phase.type === 'tools' ? phase.slots[slotIndexOf(phase.slots, effect)] : undefined;
}
