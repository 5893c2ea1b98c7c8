import path from 'node:path';
import type * as core from '@treadle/core';
import type { Event, JournalEntry, Next } from '@treadle/core';

/** What is tested: the loop as it is, or a mutant of it. */
export type Core = typeof core & Inner;

/** The one inner part that is needed: it makes a journal without a shell. */
interface Inner {
  readonly entryOf: (seq: number, event: Event, next: Next) => JournalEntry;
}

export const SOURCES: string = path.resolve(import.meta.dirname, '../../packages/core/src');

/** Loads the loop from a folder of sources. */
export async function loadCore(folder: string = SOURCES): Promise<Core> {
  const load = async <T>(file: string): Promise<T> => import(/* @vite-ignore */ path.join(folder, file));
  const { entryOf } = await load<Inner>('loop/replay.ts');
  return { ...(await load<typeof core>('index.ts')), entryOf };
}
