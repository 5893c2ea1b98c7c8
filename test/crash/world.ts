import type { JournalEntry, LiveRun, ModelRequest, RunStore, ToolEffect } from '@treadle/core';
import { manualClock, type ManualClock } from '@treadle/core/testing';
import type { Logged } from './logged-store.ts';

/** Something that a tool did to the world, under the key that it was given. */
export interface Deed {
  readonly key: string;
  readonly tool: string;
  readonly effect: ToolEffect;
}

/** What is outside of the process that runs, and outlives it. */
export interface World {
  readonly runId: string;
  /** All that is durable, in the order in which it became so. */
  readonly log: readonly Logged[];
  readonly store: RunStore;
  /** What every store of it goes through. */
  readonly wrap: (store: RunStore) => RunStore;
  readonly clock: ManualClock;
  /** The tools' own ledger. */
  readonly deeds: Deed[];
  /** What executing a typed agent gave in the end. */
  readonly given: unknown[];
  /** What models were asked, by key: each request as JSON. */
  readonly asked: Map<string, string>;
  /** Faults that the scenario itself has, each for the first time. */
  readonly fault: (name: string) => boolean;
}

export const RUN = 'run';

export interface WorldOptions {
  readonly runId?: string;
  readonly log: readonly Logged[];
  readonly store: RunStore;
  readonly wrap?: (store: RunStore) => RunStore;
  readonly now?: number;
  readonly deeds?: readonly Deed[];
  readonly faults?: boolean;
}

export function world(options: WorldOptions): World {
  const { runId = RUN, log, store, wrap = (same) => same, now = 1_000, deeds = [], faults = false } = options;
  const happened = new Set<string>();
  return {
    runId,
    log,
    store,
    wrap,
    clock: manualClock(now),
    deeds: [...deeds],
    given: [],
    asked: new Map(),
    fault: (name) => faults && !happened.has(name) && happened.add(name).has(name),
  };
}

/** One process: the code of a run, made anew, and the run that it drives. After its end nothing of it counts. */
export interface Life {
  readonly world: World;
  readonly alive: () => boolean;
  readonly end: () => void;
  /** What the journal had when it began. */
  readonly entries: readonly JournalEntry[];
  /** Resolves if it is to be killed. */
  readonly killed: Promise<void>;
  readonly kill: () => void;
  live?: LiveRun;
}

export function life(world: World, entries: readonly JournalEntry[]): Life {
  const { promise, resolve } = Promise.withResolvers<void>();
  let alive = true;
  return { world, entries, alive: () => alive, end: () => void (alive = false), killed: promise, kill: resolve };
}

export function noteAsked(
  { alive, world }: Life,
  { messages, tools, toolChoice, instructions, key }: ModelRequest,
): void {
  if (!alive()) return;
  const request = JSON.stringify({ messages, tools, toolChoice, instructions });
  const before = world.asked.get(key);
  if (before !== undefined && before !== request)
    throw new Error(`${key} was asked otherwise: ${before}, now ${request}`);
  world.asked.set(key, request);
}

/** What never ends, in a process that has ended. */
export function never<T>(): Promise<T> {
  return new Promise(() => {});
}
