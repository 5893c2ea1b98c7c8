import { appendFile, chmod, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf } from '@treadle/core';
import { createStoreFolder, type StoreLocation } from '../config/store.ts';

/** What the user has entered, for the line editor. */
export interface ChatHistory {
  /** The newest is the last. */
  readonly entries: readonly string[];
  add(text: string): void;
  /** Waits until everything is written. Why something was not. */
  saved(): Promise<string | undefined>;
}

export const MAX_ENTRIES = 500;
/** A pasted file is not something that one wants to edit in a line. */
const MAX_ENTRY_CHARS = 10_000;

export const NO_HISTORY: ChatHistory = { entries: [], add() {}, saved: async () => undefined };

/**
 * The history of a store: a file beside it with one JSON string per line that only this user can read. The policy denies tools
 * to read it, as all files beside a store that begin with its name. A memory: store has none.
 */
export async function openHistory(store: StoreLocation): Promise<ChatHistory> {
  if (store.type === 'memory') return NO_HISTORY;
  const file = `${store.file}.chat-history`;
  if (store.type === 'postgres') await createStoreFolder(dirname(file));
  const all = await readEntries(file);
  const entries = all.slice(-MAX_ENTRIES);
  let problem: string | undefined;
  const failed = (error: unknown): void => {
    problem = `The history of the chat cannot be saved: ${messageOf(error)}.`;
  };
  let last: Promise<unknown> = Promise.resolve();
  if (all.length > 2 * MAX_ENTRIES) last = replaceFile(file, entries).catch(failed);
  return {
    entries,
    add(text) {
      if (text.length > MAX_ENTRY_CHARS) return;
      last = last.then(() => appendFile(file, lineOf(text), { mode: 0o600 })).catch(failed);
    },
    async saved() {
      await last;
      return problem;
    },
  };
}

function lineOf(text: string): string {
  return `${JSON.stringify(text)}\n`;
}

/** Lines that are not a string are ignored: another program may have changed the file. */
async function readEntries(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '');
  if (text !== '') await chmod(file, 0o600).catch(() => {});
  return text.split('\n').flatMap((line) => {
    try {
      const entry: unknown = JSON.parse(line);
      return typeof entry === 'string' ? [entry] : [];
    } catch {
      return [];
    }
  });
}

async function replaceFile(file: string, entries: readonly string[]): Promise<void> {
  const next = `${file}.${process.pid}`;
  await writeFile(next, entries.map(lineOf).join(''), { mode: 0o600 });
  await rename(next, file);
}
