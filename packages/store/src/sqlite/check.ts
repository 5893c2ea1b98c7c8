import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { Worker } from 'node:worker_threads';
import { messageOf, replay, summaryOf, TreadleError, type JournalEntry, type RunSummary } from '@treadle/core';
import { versionOf, VERSION } from './database.ts';
import { isCorrupt, storeError } from './failure.ts';
import { DatabaseSync } from './node-sqlite.ts';
import { MESSAGE, RESPONSE, RUN, textIdsIn } from './shared-texts.ts';
import { sqliteStore, storeOn, thisMachine, type SqliteStore } from './store.ts';

/** What `checkStore` found. */
export interface StoreReport {
  /** The numbers of runs, entries, snapshots, long results and responses that were checked. */
  readonly runs: number;
  readonly entries: number;
  readonly snapshots: number;
  readonly blobs: number;
  readonly responses: number;
  /** Empty if everything is intact. */
  readonly problems: readonly StoreProblem[];
}

export interface StoreProblem {
  /**
   * What is damaged. `file`: the database. `entries`: the run cannot be read. `replay`: its entries are intact, but this
   * version of Treadle cannot resume it. `summary`: it is listed with wrong data. `snapshot`: it opens more slowly.
   */
  readonly part: 'file' | 'entries' | 'replay' | 'summary' | 'snapshot' | 'blob' | 'response';
  readonly runId?: string;
  /** The id of the response. */
  readonly response?: string;
  /** What is wrong, and what to do. */
  readonly message: string;
}

/** How far a long operation is. */
export interface StoreProgress {
  /** `keep` copies the store that `restoreStore` replaces. */
  readonly step: 'copy' | 'check' | 'keep' | 'replace';
  /** For `check` the number of runs and responses, for the other steps the number of bytes. */
  readonly done: number;
  readonly total: number;
}

export interface ProgressOptions {
  readonly onProgress?: (progress: StoreProgress) => void;
  /** Stops the operation, which then changes nothing and rejects with the reason. */
  readonly signal?: AbortSignal;
}

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
    await checkContent({ ...options, store, db, file, found, intactBlobs: new Set() });
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

interface Checking extends ProgressOptions {
  readonly store: SqliteStore;
  /** For what the store does not list. */
  readonly db: DatabaseSync;
  readonly file: string;
  readonly found: { -readonly [Key in keyof StoreReport]: StoreReport[Key] } & { readonly problems: StoreProblem[] };
  /** Several runs can have the same one. */
  readonly intactBlobs: Set<string>;
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

async function checkContent(checking: Checking): Promise<void> {
  const { store, db, found, onProgress, signal } = checking;
  const names = (await readable(checking, () => db.prepare('SELECT run FROM runs').all())) ?? [];
  const runs = (await readable(checking, () => store.list({ limit: Infinity }))) ?? [];
  const responses = (await readable(checking, () => db.prepare('SELECT response, tenant FROM requests').all())) ?? [];
  const total = runs.length + responses.length;
  let done = 0;
  const advance = async (): Promise<void> => {
    onProgress?.({ step: 'check', done: ++done, total });
    // Lets other work of this process continue.
    await setImmediate();
    signal?.throwIfAborted();
  };
  for (const run of runs) {
    await checkRun(checking, run);
    await advance();
  }
  const listed = new Set(runs.map(({ runId }) => runId));
  for (const { run } of names) if (!listed.has(run as string)) await checkUnlisted(checking, run as string);
  for (const { response, tenant } of responses) {
    found.responses++;
    await reported(checking, { part: 'response', response: response as string }, () =>
      store.requests.get(tenant as string, response as string),
    );
    await advance();
  }
  const orphans = await readable(checking, () =>
    db.prepare('SELECT DISTINCT run FROM entries WHERE run NOT IN (SELECT id FROM runs)').all(),
  );
  for (const { run } of orphans ?? []) {
    const message = `There are entries of a run that is not in the list of runs (number ${run}). Restore a backup if a run is missing.`;
    found.problems.push({ part: 'file', message });
  }
  await readable(checking, () => checkTextUses(checking));
}

/** A use that is not recorded loses its text when another one ends. Missing and changed texts were found with their users. */
async function checkTextUses({ db, found, signal }: Checking): Promise<void> {
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
  for (const id of lost) {
    const message = `A use of text ${id} is not recorded, so the text can be deleted too early. Restore a backup.`;
    found.problems.push({ part: 'file', message });
  }
}

async function checkRun(checking: Checking, summary: RunSummary): Promise<void> {
  const { store, found } = checking;
  const { runId } = summary;
  const entries = await reported(checking, { part: 'entries', runId }, () => store.read(runId));
  // The run was deleted since it was listed.
  if (entries?.length === 0) return;
  found.runs++;
  if (entries) {
    found.entries += entries.length;
    const problem = replayProblem(runId, entries) ?? summaryProblem(summary, entries);
    if (problem) found.problems.push(problem);
    // The sum of a snapshot depends on the entries.
    await checkSnapshot(checking, runId);
  }
  await checkBlobs(checking, runId);
}

async function checkUnlisted(checking: Checking, runId: string): Promise<void> {
  const entries = await reported(checking, { part: 'entries', runId }, () => checking.store.read(runId));
  // Empty: the run was deleted before the others were listed.
  if (!entries || entries.length === 0) return;
  const message = `Run "${runId}" is not listed, because its status or its time is damaged. Its entries are intact: export it, delete it, and import it again.`;
  checking.found.problems.push({ part: 'summary', runId, message });
}

function replayProblem(runId: string, entries: readonly JournalEntry[]): StoreProblem | undefined {
  const reason = divergenceOf(entries);
  if (reason === undefined) return undefined;
  const message = `Run "${runId}" cannot be resumed with this version of Treadle: ${reason}. Resume it with the version that wrote it, restore a backup, or delete the run.`;
  return { part: 'replay', runId, message };
}

function divergenceOf(entries: readonly JournalEntry[]): string | undefined {
  try {
    const replayed = replay(entries);
    return replayed.type === 'replayed' ? undefined : `at entry ${replayed.seq}, ${replayed.difference}`;
  } catch (error) {
    // An event without the fields of its type. It must not end the check of the other runs, nor a backup.
    return `its events cannot be read (${messageOf(error)})`;
  }
}

function summaryProblem(summary: RunSummary, entries: readonly JournalEntry[]): StoreProblem | undefined {
  const { runId } = summary;
  // An entry was appended since the run was listed.
  if (summary.entries !== entries.length) return undefined;
  const expected = summaryOf(runId, entries[0]!, entries.at(-1)!);
  const { recovered: _, ...derived } = summary;
  const names = Object.keys({ ...expected, ...derived }) as (keyof RunSummary)[];
  const wrong = names.find((name) => !isDeepStrictEqual(summary[name], expected[name]));
  if (!wrong) return undefined;
  const message = `Run "${runId}" is listed with a wrong ${wrong}. Its entries are intact: export it, delete it, and import it again.`;
  return { part: 'summary', runId, message };
}

async function checkSnapshot({ store, db, found }: Checking, runId: string): Promise<void> {
  const exists = (): boolean => findSnapshot.get(runId) !== undefined;
  const findSnapshot = db.prepare('SELECT 1 FROM snapshots JOIN runs ON runs.id = snapshots.run WHERE runs.run = ?');
  if (!exists()) return;
  found.snapshots++;
  // Looks again, because the run may have been deleted.
  if ((await store.readSnapshot(runId)) || !exists()) return;
  const message = `The snapshot of run "${runId}" is damaged. Nothing is lost, and nothing has to be done: the run is opened from its entries.`;
  found.problems.push({ part: 'snapshot', runId, message });
}

async function checkBlobs(checking: Checking, runId: string): Promise<void> {
  const { store, found, intactBlobs } = checking;
  const ids = await reported(checking, { part: 'blob', runId }, () => store.blobs.list(runId));
  for (const id of ids ?? []) {
    if (intactBlobs.has(id)) continue;
    found.blobs++;
    const blob = await reported(checking, { part: 'blob', runId }, () => store.blobs.read(runId, id, 0, Infinity));
    if (blob) intactBlobs.add(id);
  }
}

/** Undefined, and a problem of the file, if it is on a damaged page. */
async function readable<T>({ found, file }: Checking, read: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (!isCorrupt(error) && !isCorrupt((error as Error).cause)) throw error;
    found.problems.push({ part: 'file', message: messageOf(storeError(error, path.resolve(file))) });
    return undefined;
  }
}

/** Undefined, and a problem, if it is damaged. */
async function reported<T>(
  { found }: Checking,
  problem: Omit<StoreProblem, 'message'>,
  read: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    const isDamage =
      error instanceof TreadleError && (error.code === 'journal-damaged' || error.code === 'store-failed');
    if (!isDamage) throw error;
    found.problems.push({ ...problem, message: error.message });
    return undefined;
  }
}
