import { registerHooks } from 'node:module';
import type { Clock } from '@treadle/core';
import type { Owner, Scheduler } from './scheduler.ts';

/*
 * Node, as the code under test sees it: while a schedule runs, timers and clocks are those of the simulated process whose
 * callback runs, and some modules are replaced for the files that use them. It has to be evaluated before those are loaded.
 */

/** An owner that has a clock of its own. */
interface TimedOwner extends Owner {
  readonly clock?: Clock;
}

/** The functions of Node itself. */
export const NODE = { setTimeout, setInterval, setImmediate, clearTimeout, clearInterval, clearImmediate };
const realNow = Date.now.bind(Date);
const realMonotonic = performance.now.bind(performance);

let scheduler: Scheduler | undefined;

/** The wall clock when a schedule starts. */
export const EPOCH = 1_700_000_000_000;

/** From now on, everything belongs to this schedule. Without one, Node is as usual. */
export function useScheduler(used: Scheduler | undefined): void {
  scheduler = used;
}

/** The schedule in which the caller runs. */
export function activeScheduler(): Scheduler {
  return scheduler!;
}

class Timer {
  cancel: () => void = () => {};

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  hasRef(): boolean {
    return true;
  }
}

function start(ms: number, label: string, fire: () => void): Timer {
  const { current, after } = scheduler!;
  const owner: TimedOwner = current();
  const timer = new Timer();
  timer.cancel = owner.clock ? owner.clock.timer(ms, fire) : after(owner, ms, label, fire);
  return timer;
}

function startInterval(ms: number, fire: () => void): Timer {
  const timer = new Timer();
  const next = (): void => {
    const { cancel } = start(ms, 'interval', () => {
      next();
      fire();
    });
    timer.cancel = cancel;
  };
  next();
  return timer;
}

/** Callbacks of one turn of the event loop can be delayed by others. */
function startImmediate(fire: () => void): Timer {
  const { current, after, random } = scheduler!;
  const timer = new Timer();
  timer.cancel = after(current(), random.next() / 10, 'next turn', fire);
  return timer;
}

function clear(timer: unknown, realClear: (timer: never) => void): void {
  if (timer instanceof Timer) timer.cancel();
  else realClear(timer as never);
}

type Fire = (...args: unknown[]) => void;

Object.assign(globalThis, {
  setTimeout: (fire: Fire, ms = 0, ...args: unknown[]) =>
    scheduler ? start(ms, 'timer', () => fire(...args)) : NODE.setTimeout(fire, ms, ...args),
  setInterval: (fire: Fire, ms = 0, ...args: unknown[]) =>
    scheduler ? startInterval(ms, () => fire(...args)) : NODE.setInterval(fire, ms, ...args),
  setImmediate: (fire: Fire, ...args: unknown[]) =>
    scheduler ? startImmediate(() => fire(...args)) : NODE.setImmediate(fire, ...args),
  clearTimeout: (timer: unknown) => clear(timer, NODE.clearTimeout),
  clearInterval: (timer: unknown) => clear(timer, NODE.clearInterval),
  clearImmediate: (timer: unknown) => clear(timer, NODE.clearImmediate),
});

Date.now = () => {
  if (!scheduler) return realNow();
  const owner: TimedOwner = scheduler.current();
  return owner.clock?.now() ?? Math.floor(EPOCH + scheduler.now());
};

performance.now = () => {
  if (!scheduler) return realMonotonic();
  const owner: TimedOwner = scheduler.current();
  return owner.clock?.monotonic?.() ?? scheduler.now();
};

/** Modules that files below `packages` get instead of those of Node: the end of the path of the file, the module, its replacement. */
const REPLACED: readonly (readonly [string, string, string])[] = [
  ['/store/src/sqlite/wal.ts', 'node:fs', './replaced/fs.ts'],
];

registerHooks({
  resolve(specifier, context, nextResolve) {
    const found = REPLACED.find(
      ([file, module]) => module === specifier && context.parentURL?.split('?')[0]!.endsWith(file) === true,
    );
    return found
      ? { url: new URL(found[2], import.meta.url).href, shortCircuit: true }
      : nextResolve(specifier, context);
  },
});
