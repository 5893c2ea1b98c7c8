import path from 'node:path';
import type { Snapshot, State } from '@treadle/core';
import { SOURCES } from '../invariants/core.ts';

/** What the core keeps to itself. */
interface Inside {
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restoredState: (snapshot: Snapshot) => State | undefined;
}

export const { snapshotOf, restoredState: restored }: Inside = await import(
  /* @vite-ignore */ path.join(SOURCES, 'journal/snapshot.ts')
);
