import { effectOf } from './outstanding.ts';
import type { Effect } from './effects.ts';
import type { Rules } from './pinned.ts';
import type { Call, Slot } from './state.ts';

export interface Scheduled {
  readonly slots: readonly Slot[];
  readonly effects: readonly Effect[];
}

/**
 * Starts the queued calls that may run now.
 *
 * 1. At most `maxParallel` run at once; what waits for a person, a client or a device takes no place.
 * 2. An exclusive call runs alone, and those after it wait until it has begun.
 * 3. Calls that share a resource run in call order, also past one that waits for somebody.
 * 4. `parallel: false`: a call starts when all before it are answered.
 */
export function schedule(slots: readonly Slot[], rules: Rules): Scheduled {
  const effects: Effect[] = [];
  let next: Slot[] | undefined;
  let running = 0;
  let closed = false;
  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (!isRunning(slot)) continue;
    running++;
    closed ||= slot.call.exclusive;
  }

  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (slot.type === 'settled' || slot.type === 'held') continue;
    const { call } = slot;
    if (slot.type === 'queued' && !sharesResource(call, slots)) {
      const free = call.client || (!closed && running < rules.maxParallel && (!call.exclusive || running === 0));
      if (free) {
        const begun = begin(slot);
        (next ??= slots.slice())[index] = begun;
        effects.push(effectOf(begun)!);
        if (!call.client) running++;
      }
      closed ||= call.exclusive && !call.client;
    }
    if (!rules.parallel) break;
  }
  return { slots: next ?? slots, effects };
}

function isRunning({ type }: Slot): boolean {
  return type === 'running' || type === 'verifying';
}

/** With a call before it that has no result yet. One that is held waits for all others, so it keeps nothing back. */
function sharesResource({ index, resources }: Call, slots: readonly Slot[]): boolean {
  if (resources.length === 0) return false;
  return slots.some(
    ({ type, call }) =>
      call.index < index &&
      type !== 'settled' &&
      type !== 'held' &&
      call.resources.some((one) => resources.includes(one)),
  );
}

function begin({ call, verify }: Extract<Slot, { type: 'queued' }>): Slot {
  if (call.client) return { type: 'client', call };
  return { type: verify ? 'verifying' : 'running', call };
}
