import { effectOf } from './outstanding.ts';
import type { Effect, Rules, Slot } from './types.ts';

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
  const started: Effect[] = [];
  const next = slots.slice();
  const held = new Set<string>();
  let running = slots.filter(isRunning).length;
  let closed = slots.some((slot) => isRunning(slot) && slot.call.exclusive);

  for (const [index, slot] of slots.entries()) {
    if (slot.type === 'settled') continue;
    const { call } = slot;
    if (slot.type === 'queued' && !call.resources.some((resource) => held.has(resource))) {
      const free = call.client || (!closed && running < rules.maxParallel && (!call.exclusive || running === 0));
      if (free) {
        const begun = begin(slot);
        next[index] = begun;
        started.push(effectOf(begun)!);
        if (!call.client) running++;
        if (call.exclusive) closed = true;
      } else if (call.exclusive) closed = true;
    }
    if (!rules.parallel) break;
    for (const resource of call.resources) held.add(resource);
  }
  return { slots: started.length > 0 ? next : slots, effects: started };
}

function isRunning({ type }: Slot): boolean {
  return type === 'running' || type === 'verifying';
}

function begin({ call, verify }: Extract<Slot, { type: 'queued' }>): Slot {
  if (call.client) return { type: 'client', call };
  return { type: verify ? 'verifying' : 'running', call };
}
