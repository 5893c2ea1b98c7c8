import { hash } from 'node:crypto';
import type { ToolContext } from '@treadle/core';
import type { FileStatus } from '../ops.ts';

/** The key of the run's memory, for `remembers` of a tool. Calls of such tools run in call order. */
export const FILES_READ = 'files_read';

const MAX_FILES = 100;

/** Which content of which files the run has seen or written. Paths are those that `Located.shown` has. */
export interface ReadFiles {
  /** `unread`: not by this run, or so long ago that it is forgotten. `changed`: somebody else changed it since. */
  compare(path: string, version: string): 'same' | 'changed' | 'unread';
  note(path: string, version: string): void;
  forget(path: string): void;
}

/** What is recorded in the memory of the run. Without a run, nothing is. */
export function readFiles({ memory = {} }: Pick<ToolContext, 'memory'>): ReadFiles {
  // Pairs, because the keys of an object would not keep their order.
  const known = new Map(isPairs(memory[FILES_READ]) ? memory[FILES_READ] : []);
  const store = (): void => void (memory[FILES_READ] = [...known].slice(-MAX_FILES));
  return {
    compare(path, version) {
      const seen = known.get(path);
      return seen === undefined ? 'unread' : seen === version ? 'same' : 'changed';
    },
    note(path, version) {
      // The order stays the same if nothing is new, so that nothing has to be recorded.
      if (known.get(path) === version) return;
      known.delete(path);
      known.set(path, version);
      store();
    },
    forget(path) {
      if (known.delete(path)) store();
    },
  };
}

/** A short hash of the content; for a file that is too large to be read, of its size and time. */
export function versionOf(content: string | Uint8Array | Pick<FileStatus, 'size' | 'modifiedMs'>): string {
  const hashed =
    typeof content === 'string' || content instanceof Uint8Array ? content : `${content.size} ${content.modifiedMs}`;
  return hash('sha256', hashed, 'base64url').slice(0, 12);
}

function isPairs(value: unknown): value is [string, string][] {
  return (
    Array.isArray(value) &&
    value.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((one) => typeof one === 'string'))
  );
}
