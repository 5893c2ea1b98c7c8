import { registerHooks } from 'node:module';
import type { Clock } from '@treadle/core';
import { NODE } from './node-timers.ts';
import { OUTSIDE, type Owner, type Scheduler } from './scheduler.ts';

/*
 * Node, as the code under test sees it: while a schedule runs, timers and clocks are those of the simulated process whose
 * callback runs, and some modules are replaced for the files that use them. It has to be evaluated before those are loaded.
 */

/** An owner that has a clock of its own. */
interface TimedOwner extends Owner {
  readonly clock?: Clock;
}

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

/** Many callbacks that do nothing cost time, and a busy process is late. */
const LEAST_INTERVAL_MS = 1_000;

function startInterval(given: number, fire: () => void): Timer {
  const ms = Math.max(LEAST_INTERVAL_MS, given);
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

/**
 * It happens although its process has died: modules of the server have queues that all processes of a schedule share. The
 * dead do nothing with it, because they cannot write.
 */
function startImmediate(fire: () => void): Timer {
  const { current, after, random, within } = scheduler!;
  const owner = current();
  const timer = new Timer();
  timer.cancel = after(OUTSIDE, random.next() / 10, `${owner.name}: next turn`, () => within(owner, fire));
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

/** Node keeps such a signal for ever if it has listeners and nothing aborts it, and with it the whole schedule. */
AbortSignal.any = (signals) => {
  const either = new AbortController();
  for (const signal of signals) {
    if (signal.aborted) either.abort(signal.reason);
    else signal.addEventListener('abort', () => either.abort(signal.reason), { once: true });
  }
  return either.signal;
};

/** Modules that files in a folder get replacements for. */
const REPLACED: readonly { readonly folder: string; readonly modules: Readonly<Record<string, string>> }[] = [
  { folder: '/packages/store/src/sqlite/wal.ts', modules: { 'node:fs': 'fs', './files.ts': 'files' } },
  {
    folder: '/packages/server/src/',
    modules: {
      'node:http': 'http',
      'node:dns/promises': 'dns',
      'node:timers/promises': 'timers',
      'node:perf_hooks': 'perf-hooks',
      'node:crypto': 'crypto',
    },
  },
];

/** Texts in source files that are changed, so that no randomness of one schedule is left for the next one. */
const UNPOOLED = { file: '/packages/server/src/ids.ts', from: 'if (used === pool.length) {', to: 'if (used > 0) {' };

registerHooks({
  resolve(specifier, context, nextResolve) {
    const found = REPLACED.find(({ folder }) => context.parentURL?.includes(folder))?.modules[specifier];
    if (found === undefined) return nextResolve(specifier, context);
    return { url: new URL(`./replaced/${found}.ts`, import.meta.url).href, shortCircuit: true };
  },
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.endsWith(UNPOOLED.file)) return loaded;
    const source = Buffer.from(loaded.source as Uint8Array).toString();
    return { ...loaded, source: source.replace(UNPOOLED.from, UNPOOLED.to) };
  },
});
