import { crc32 } from 'node:zlib';
import type { JournalEntry, RunFacts } from '@treadle/core';

/**
 * A name to search for. In UTF-8, unpaired surrogates become U+FFFD, so a name that has one would match another one. Null matches
 * nothing.
 */
export function nameKey(name: string): string | null {
  return name.isWellFormed() ? name : null;
}

/** JSON with a checksum that reveals damage. */
export interface ChecksummedJson {
  readonly text: string;
  readonly sum: number;
}

export function withChecksum(value: unknown): ChecksummedJson {
  const text = JSON.stringify(value);
  return { text, sum: crc32(text) };
}

/** Undefined if the text is damaged. */
export function parseChecked(text: string, sum: number): unknown {
  return crc32(text) === sum ? parseJson(text) : undefined;
}

/** Undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

type FactColumns = readonly [session: string | null, task: string | null, labels: string | null];

/** The columns for what a run belongs to. What is not a text, in a damaged entry, is left out. */
export function factColumns({ session, task, labels }: Pick<RunFacts, 'session' | 'task' | 'labels'>): FactColumns {
  const textOr = (value: unknown): string | null => (typeof value === 'string' ? value : null);
  return [textOr(session), textOr(task), labels ? JSON.stringify(labels) : null];
}

/** The input in the first entry of a run. */
export function inputOf(entry: unknown): readonly unknown[] {
  const event = (entry as Partial<JournalEntry> | null | undefined)?.event;
  return event?.type === 'run-started' && Array.isArray(event.input) ? event.input : [];
}
