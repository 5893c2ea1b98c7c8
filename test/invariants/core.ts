import { createRequire } from 'node:module';
import path from 'node:path';
import type * as core from '@treadle/core';
import type { Event, JournalEntry, Next, Snapshot, State } from '@treadle/core';

/** What is tested: the loop as it is, or a mutant of it. */
export type Core = typeof core & Inner;

/** The inner parts that are needed: they make a journal without a shell. */
interface Inner {
  readonly entryOf: (seq: number, event: Event, next: Next) => JournalEntry;
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restored: (snapshot: Snapshot) => State | undefined;
}

export const SOURCES: string = path.resolve(import.meta.dirname, '../../packages/core/src');

const require = createRequire(import.meta.url);

/** Loads the loop from a folder of sources: by Node itself, which takes a tenth of the time that Vitest does. */
export function loadCore(folder: string = SOURCES): Core {
  const load = <T>(file: string): T => require(path.join(folder, file)) as T;
  const { entryOf } = load<Inner>('loop/replay.ts');
  const { snapshotOf, restored } = load<Inner>('loop/snapshot.ts');
  return { ...load<typeof core>('index.ts'), entryOf, snapshotOf, restored };
}
