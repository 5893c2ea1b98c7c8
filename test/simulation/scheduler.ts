import { AsyncLocalStorage } from 'node:async_hooks';
import { crc32 } from 'node:zlib';
import { NODE } from './node-timers.ts';

/** All randomness of a schedule. The same seed gives the same numbers. */
export interface Random {
  /** At least 0, and less than 1. */
  readonly next: () => number;
  /** A whole number from `least` to `most`. */
  readonly between: (least: number, most: number) => number;
  readonly chance: (probability: number) => boolean;
  readonly pick: <T>(list: readonly T[]) => T;
}

/** Mulberry32, after mixing the seed: neighbouring seeds give unrelated schedules. */
function seededRandom(seed: number): Random {
  let state = Math.imul(seed ^ 0x9e37_79b9, 0x85eb_ca6b) ^ (seed >>> 16);
  const next = (): number => {
    state = (state + 0x6d2b_79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (least: number, most: number): number => least + Math.floor(next() * (most - least + 1));
  return {
    next,
    between,
    chance: (probability) => next() < probability,
    pick: (list) => list[between(0, list.length - 1)]!,
  };
}

/** Whoever callbacks belong to. */
export interface Owner {
  readonly name: string;
  /** False: its callbacks never run any more. */
  readonly alive: boolean;
  /** None of its callbacks run before this time. */
  readonly stalledUntil: number;
}

/** The outside world: whatever it has scheduled happens. */
export const OUTSIDE: Owner = { name: 'world', alive: true, stalledUntil: 0 };

/** Promise callbacks belong to the owner of the callback that has created them. */
const owners = new AsyncLocalStorage<Owner>();

interface Callback {
  at: number;
  readonly owner: Owner;
  readonly label: string;
  readonly run: () => void;
}

/**
 * The only source of time and order. Callbacks run one after another, each at its time. Latencies are random, so the order
 * of what happens at about the same time is random too.
 */
export interface Scheduler {
  readonly random: Random;
  /** Milliseconds since the schedule started. */
  readonly now: () => number;
  /** Runs `run` after `ms`, unless the owner dies before. The returned function cancels it. */
  readonly after: (owner: Owner, ms: number, label: string, run: () => void) => () => void;
  /** Runs the next callback, and all promise callbacks that follow from it. False if there is none. */
  readonly step: () => boolean;
  /** Runs only the callbacks of the outside world, until there are none, when the schedule is over. */
  readonly settle: () => void;
  /** Whoever the callback belongs to that runs now, with all promise callbacks that follow from it. */
  readonly current: () => Owner;
  /** Runs `act` as a part of another owner: timers that it sets belong to that one. */
  readonly within: <T>(owner: Owner, act: () => T) => T;
  /** Adds a line to the trace. */
  readonly log: (line: string) => void;
  /** A digest of all lines. */
  readonly digest: () => number;
}

export function startScheduler(seed: number, print?: (line: string) => void): Scheduler {
  const random = seededRandom(seed);
  /** Sorted, the next one last. */
  const queue: Callback[] = [];
  let now = 0;
  let lines = '';

  function insert(callback: Callback): void {
    let place = queue.length;
    while (place > 0 && queue[place - 1]!.at <= callback.at) place--;
    queue.splice(place, 0, callback);
  }

  function log(line: string): void {
    lines += line;
    print?.(`${now.toFixed(2).padStart(12)}  ${line}`);
  }

  function step(): boolean {
    for (;;) {
      const callback = queue.pop();
      if (!callback) return false;
      const { owner, label, run } = callback;
      if (!owner.alive) continue;
      if (owner.stalledUntil > callback.at) {
        callback.at = owner.stalledUntil;
        insert(callback);
        continue;
      }
      now = Math.max(now, callback.at);
      log(`${owner.name}: ${label}`);
      owners.run(owner, run);
      settlePromises();
      return true;
    }
  }

  return {
    random,
    now: () => now,
    after(owner, ms, label, run) {
      const callback: Callback = { at: now + ms, owner, label, run };
      insert(callback);
      return () => {
        const place = queue.indexOf(callback);
        if (place >= 0) queue.splice(place, 1);
      };
    },
    step,
    settle() {
      for (let steps = 0; steps < 1_000; steps++) {
        const place = queue.findLastIndex(({ owner }) => owner === OUTSIDE);
        const [callback] = place < 0 ? [] : queue.splice(place, 1);
        if (!callback) return;
        callback.run();
        settlePromises();
      }
    },
    current: () => owners.getStore() ?? OUTSIDE,
    within: (owner, act) => owners.run(owner, act),
    log,
    digest: () => crc32(lines),
  };
}

/** Node's own function for the end of a callback, which it keeps for native modules. */
const { _tickCallback: settlePromises } = process as unknown as {
  /** Runs all callbacks of promises and of `process.nextTick`, unless the caller is one of them. */
  readonly _tickCallback: () => void;
};

/** Calls `act` where `step` can be called: not in a promise callback. */
export function outsideOfPromises<T>(act: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    NODE.setImmediate(() => {
      try {
        resolve(act());
      } catch (error) {
        reject(error as Error);
      }
    });
  });
}
