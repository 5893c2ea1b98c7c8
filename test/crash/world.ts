import type { JournalEntry, LiveRun, ModelRequest, RunStore, ToolEffect } from '@treadle/core';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import type { Logged } from './logged-store.ts';

/** An action of a tool, with the key of its call. */
export interface Action {
  readonly key: string;
  readonly tool: string;
  readonly effect: ToolEffect;
}

/** Everything outside of the process, which outlives it. */
export interface World {
  readonly runId: string;
  /** Everything durable, in the order in which it became durable. */
  readonly log: readonly Logged[];
  readonly store: RunStore;
  /** Wraps every store of this world. */
  readonly wrap: (store: RunStore) => RunStore;
  readonly clock: ManualClock;
  /** The ledger of the tools. */
  readonly actions: Action[];
  /** The final results of a typed agent. */
  readonly given: unknown[];
  /** The requests to models by key, as JSON. */
  readonly requests: Map<string, string>;
  /** Whether a fault of the scenario occurs: each does so once. */
  readonly fault: (name: string) => boolean;
}

export const RUN = 'run';

export interface WorldOptions {
  readonly runId?: string;
  readonly log: readonly Logged[];
  readonly store: RunStore;
  readonly wrap?: (store: RunStore) => RunStore;
  readonly now?: number;
  readonly actions?: readonly Action[];
  readonly faults?: boolean;
}

export function world(options: WorldOptions): World {
  const { runId = RUN, log, store, wrap = (same) => same, now = 1_000, actions = [], faults = false } = options;
  const happened = new Set<string>();
  return {
    runId,
    log,
    store,
    wrap,
    clock: manualClock(now),
    actions: [...actions],
    given: [],
    requests: new Map(),
    fault: (name) => faults && !happened.has(name) && happened.add(name).has(name),
  };
}

/** One simulated process: the code of a run, and the run that it drives. After its end it has no effect any more. */
export interface Life {
  readonly world: World;
  readonly alive: () => boolean;
  readonly end: () => void;
  /** The entries of the journal when it started. */
  readonly entries: readonly JournalEntry[];
  /** Resolves when the process is killed. */
  readonly killed: Promise<void>;
  readonly kill: () => void;
  live?: LiveRun;
}

export function life(world: World, entries: readonly JournalEntry[]): Life {
  const { promise, resolve } = Promise.withResolvers<void>();
  let alive = true;
  return { world, entries, alive: () => alive, end: () => void (alive = false), killed: promise, kill: resolve };
}

export function recordRequest(
  { alive, world }: Life,
  { messages, tools, toolChoice, instructions, key }: ModelRequest,
): void {
  if (!alive()) return;
  const request = JSON.stringify({ messages, tools, toolChoice, instructions });
  const before = world.requests.get(key);
  if (before !== undefined && before !== request)
    throw new Error(`the request of ${key} changed: it was ${before}, and is ${request}`);
  world.requests.set(key, request);
}

/** Never settles, as in a process that has ended. */
export function never<T>(): Promise<T> {
  return new Promise(() => {});
}
