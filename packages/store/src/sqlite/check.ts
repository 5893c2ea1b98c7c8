import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { messageOf, TreadleError } from '@treadle/core';
import {
  checkContent,
  entriesWithoutRun,
  textUseLost,
  type Found,
  type ProgressOptions,
  type StoredContent,
  type StoreProblem,
  type StoreReport,
} from '../check.ts';
import { versionOf, VERSION } from './database.ts';
import { isCorrupt, storeError } from './failure.ts';
import { DatabaseSync } from './node-sqlite.ts';
import { sqliteRows } from './rows.ts';
import { MESSAGE, RESPONSE, RUN, textIdsIn } from './shared-texts.ts';
import { sqliteStore, storeOn, thisMachine, type SqliteStore } from './store.ts';

/**
 * Checks the file with SQLite's integrity check, then reads everything that is stored in it: entries, snapshots and long
 * results of every run, and all responses. Replays each run. Runs may be driven at the same time. Changes nothing, except
 * that opening a store of an earlier version migrates it.
 */
export async function checkStore(file: string, options: ProgressOptions = {}): Promise<StoreReport> {
  requireStore(file);
  const store = openBackup(file) ?? sqliteStore(file);
  const db = new DatabaseSync(file, { readOnly: true, timeout: 5_000 });
  try {
    const found = { runs: 0, entries: 0, snapshots: 0, blobs: 0, responses: 0, problems: await fileProblems(file) };
    await checkContent({ ...options, store, content: contentOf(db, file, { found, signal: options.signal }), found });
    // The report tells what other processes have written.
    await store.durable();
    return found;
  } catch (error) {
    throw options.signal?.aborted ? error : storeError(error, path.resolve(file));
  } finally {
    db.close();
    await store.close();
  }
}

/** A backup has no log. Opening it as a store would add one, and fails on a read-only disk. Undefined for other files. */
function openBackup(file: string): SqliteStore | undefined {
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(file, { readOnly: true });
    const { journal_mode: mode } = db.prepare('PRAGMA journal_mode').get()!;
    if (mode !== 'wal' && versionOf(db, file) === VERSION) {
      return storeOn(db, { ...thisMachine(path.resolve(file)), sync() {} });
    }
  } catch {
    // Opening it as a store reports what is wrong.
  }
  db?.close();
  return undefined;
}

/** Throws if there is no such file: SQLite would create it. */
export function requireStore(file: string): void {
  if (existsSync(file)) return;
  throw new TreadleError('store-failed', `There is no store ${path.resolve(file)}. Check the path.`);
}

/** In a thread of its own, because it can take minutes. */
async function fileProblems(file: string): Promise<StoreProblem[]> {
  const execArgv = ['--disable-warning=ExperimentalWarning'];
  const worker = new Worker(INTEGRITY_CHECK, { eval: true, workerData: file, execArgv });
  const [lines] = (await once(worker, 'message')) as [readonly string[]];
  return lines.map((line) => ({
    part: 'file',
    message: `SQLite reports: ${line}. Copy the file, then restore a backup; without one, "sqlite3 FILE .recover" saves what can be read.`,
  }));
}

const INTEGRITY_CHECK = `
  const { parentPort, workerData } = require('node:worker_threads');
  const { DatabaseSync } = require('node:sqlite');
  const db = new DatabaseSync(workerData, { readOnly: true, timeout: 5_000 });
  let lines;
  try {
    lines = db.prepare('PRAGMA integrity_check').all().map((row) => row.integrity_check).filter((line) => line !== 'ok');
  } catch (error) {
    lines = [error.message];
  }
  db.close();
  parentPort.postMessage(lines);
`;

interface ContentParts {
  readonly found: Found;
  readonly signal: AbortSignal | undefined;
}

/** What the store does not list. */
function contentOf(db: DatabaseSync, file: string, { found, signal }: ContentParts): StoredContent {
  const findSnapshot = (): ReturnType<DatabaseSync['prepare']> =>
    db.prepare('SELECT 1 FROM snapshots JOIN runs ON runs.id = snapshots.run WHERE runs.run = ?');

  /** Undefined, and a problem of the file, if it is on a damaged page. */
  async function readable<T>(read: () => T | Promise<T>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      if (!isCorrupt(error) && !isCorrupt((error as Error).cause)) throw error;
      found.problems.push({ part: 'file', message: messageOf(storeError(error, path.resolve(file))) });
      return undefined;
    }
  }

  return {
    readable,
    runNames: async () =>
      ((await readable(() => db.prepare('SELECT run FROM runs').all())) ?? []).map(({ run }) => run as string),
    requests: async () =>
      ((await readable(() => db.prepare('SELECT response, tenant FROM requests').all())) ?? []).map((row) => ({
        id: row['response'] as string,
        tenant: row['tenant'] as string,
      })),
    hasSnapshot: async (runId) => findSnapshot().get(runId) !== undefined,
    rows: sqliteRows(db).rows,
    async checkRest() {
      const orphans = await readable(() =>
        db.prepare('SELECT DISTINCT run FROM entries WHERE run NOT IN (SELECT id FROM runs)').all(),
      );
      for (const { run } of orphans ?? []) found.problems.push(entriesWithoutRun(run as number));
      await readable(() => checkTextUses(db, { found, signal }));
    },
  };
}

/** A use that is not recorded loses its text when another one ends. Missing and changed texts were found with their users. */
async function checkTextUses(db: DatabaseSync, { found, signal }: ContentParts): Promise<void> {
  const findUse = db.prepare('SELECT 1 FROM text_uses WHERE kind = ? AND user = ? AND text = ?');
  const stored = db.prepare(
    `SELECT ${RUN} AS kind, run AS user, entry AS json FROM entries WHERE instr(entry, char(1)) > 0
     UNION ALL SELECT ${MESSAGE}, id, text FROM messages WHERE instr(text, char(1)) > 0
     UNION ALL SELECT ${RESPONSE}, id, request FROM requests WHERE instr(request, char(1)) > 0
     UNION ALL SELECT ${RESPONSE}, id, answer FROM requests WHERE instr(answer, char(1)) > 0`,
  );
  const lost = new Set<number>();
  let rows = 0;
  for (const { kind, user, json } of stored.iterate()) {
    for (const id of textIdsIn(json as string)) if (!findUse.get(kind!, user!, id)) lost.add(id);
    if (++rows % 1_000 !== 0) continue;
    await setImmediate();
    signal?.throwIfAborted();
  }
  for (const id of lost) found.problems.push(textUseLost(id));
}
