import { hash } from 'node:crypto';
import type { ToolContext } from '@treadle/core';
import type { FileStatus } from '../ops.ts';
import type { Workspace } from './workspace.ts';

/** The key of the run's memory for a file, for `remembers` of a tool. Calls that name the same file run in call order. */
export function fileKey({ normalized }: Pick<Workspace, 'normalized'>, path: unknown): string {
  return `files_read:${normalized(String(path))}`;
}

/** Which content of which files the run has seen or written, by path: a file with two paths has to be read by each. */
export interface ReadFiles {
  /** `unread`: not by this run. `changed`: somebody else changed it since. */
  compare(path: string, version: string): 'same' | 'changed' | 'unread';
  note(path: string, version: string): void;
  forget(path: string): void;
}

/** What is recorded in the memory of the run. Without a run, nothing is. */
export function readFiles(
  space: Pick<Workspace, 'normalized'>,
  { memory = {} }: Pick<ToolContext, 'memory'>,
): ReadFiles {
  return {
    compare(path, version) {
      const seen = memory[fileKey(space, path)];
      return seen === undefined ? 'unread' : seen === version ? 'same' : 'changed';
    },
    note(path, version) {
      memory[fileKey(space, path)] = version;
    },
    forget(path) {
      delete memory[fileKey(space, path)];
    },
  };
}

/** A short hash of the content; for a file that is too large to be read, of its size and time. */
export function versionOf(content: string | Uint8Array | Pick<FileStatus, 'size' | 'modifiedMs'>): string {
  const hashed =
    typeof content === 'string' || content instanceof Uint8Array ? content : `${content.size} ${content.modifiedMs}`;
  return hash('sha256', hashed, 'base64url').slice(0, 12);
}
