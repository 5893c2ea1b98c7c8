import { closeSync, existsSync, linkSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { TreadleError } from '@treadle/core';
import { createFolder } from '../folders.ts';
import type { ProgressOptions, StoreProblem, StoreProgress, StoreReport } from '../check.ts';
import { checkStore, requireStore } from './check.ts';
import { inTransaction, pragma, versionOf, type VersionOptions } from './database.ts';
import { isBusy, isCorrupt, storeError } from './failure.ts';
import { fileBehind, requireOneName, temporaryName } from './files.ts';
import { backup, DatabaseSync } from './node-sqlite.ts';

/**
 * Copies of a store, and their way back.
 *
 * 1. A copy is one transaction of the store: SQLite copies the pages that one read transaction sees. Writers continue, and
 *    what they commit meanwhile is not in the copy. Without the transaction, each write of another process would start the
 *    copy again, and a busy store would never be copied.
 * 2. A file gets its final name only when it is complete, checked and synced. It has no additional files: all of its content
 *    is in it, and nothing is read from a `-wal` file that lies beside it.
 * 3. A store is replaced by one transaction that writes all pages of the backup, under the locks of SQLite. A process that is
 *    killed leaves the old content or the new one, and a process that opens the store meanwhile sees one of them. A file
 *    that is renamed in place could be combined with the `-wal` file of the old one.
 * 4. Nothing is replaced that has no copy: the transaction is rolled back if somebody wrote to the store after the copy.
 * 5. A restored store has no leases. Its next token is higher than all tokens of the backup, of the replaced store, and than
 *    the time in microseconds. No store issues a million tokens per second, so it is also higher than the tokens of any
 *    store that was lost, also after several restores, as long as the clock of the machine is right.
 */
export interface BackupOptions extends ProgressOptions {
  /** Replaces an existing file. */
  readonly force?: boolean;
}

export interface RestoreOptions extends ProgressOptions {
  /** Restores the backup even if parts of it are damaged. */
  readonly force?: boolean;
}

export interface Restored {
  /** The content of the backup. */
  readonly report: StoreReport;
  /** The file with the content that was replaced; absent if there was no store. */
  readonly replaced?: string;
}

/**
 * Copies a store to a file, while other processes use the store, and checks the copy. A store in which something is damaged
 * is copied as it is: `problems` of the report lists what. Rejects if the file exists; `force` replaces it, but only if it
 * is a store or a backup that nobody uses.
 */
export async function backupStore(store: string, target: string, options: BackupOptions = {}): Promise<StoreReport> {
  const { force = false } = options;
  const file = fileBehind(target);
  requireStore(store);
  requireOneName(store);
  requireContent(store);
  rejectSameFile(store, file);
  if (!force && existsSync(file)) throw fileExists(file);
  const source = connect(store);
  const copy = temporaryName(file);
  try {
    await copyPages(source, copy, { ...options, step: 'copy' });
    const report = await checkStore(copy, options);
    if (force && existsSync(file)) requireUnused(file);
    await publish(copy, file, { force });
    return report;
  } catch (error) {
    throw options.signal?.aborted ? error : storeError(error, path.resolve(file));
  } finally {
    source.close();
    removeDatabase(copy);
  }
}

/**
 * Replaces a store by a backup, or creates the store. The replaced content is kept in a file beside it. Rejects with
 * `store-locked` while another process has the store open, and with `store-failed` if something in the backup is damaged.
 */
export async function restoreStore(store: string, file: string, options: RestoreOptions = {}): Promise<Restored> {
  requireContent(file);
  rejectSameFile(store, file);
  const location = fileBehind(store);
  try {
    createFolder(path.dirname(location));
  } catch (error) {
    throw storeError(error, location);
  }
  const exists = existsSync(location) && statSync(location).size > 0;
  if (exists) {
    requireOneName(location);
    requireUnused(location);
  } else rejectLeftWal(location);
  const copy = temporaryName(`${location}.restore`);
  const source = connect(file);
  try {
    await copyPages(source, copy, { ...options, step: 'copy' });
    const report = await checkStore(copy, options);
    if (report.problems.length > 0 && !options.force) throw backupDamaged(file, report.problems);
    if (exists) return { report, replaced: await replaceContent(location, copy, options) };
    resetLeases(copy, 0);
    await publish(copy, location, { force: existsSync(location) });
    return { report };
  } catch (error) {
    throw options.signal?.aborted ? error : storeError(error, location);
  } finally {
    source.close();
    removeDatabase(copy);
  }
}

/** Returns the file that has the replaced content. */
async function replaceContent(location: string, copy: string, options: RestoreOptions): Promise<string> {
  requireUnused(location);
  const old = connect(location);
  const kept = `${location}.replaced-${new Date().toISOString().replaceAll(/[:.]/g, '-')}`;
  const keeping = temporaryName(kept);
  let refused: TreadleError | undefined;
  try {
    const version = await copyPages(old, keeping, { ...options, step: 'keep' });
    resetLeases(copy, lastToken(keeping));
    await publish(keeping, kept);
    await overwrite(copy, location, { ...options, step: 'replace' }, () => {
      // The transaction that overwrites the store has begun, so nobody can write to it any more.
      if (pragma(old, 'data_version') !== version) refused = storeInUse(location);
      if (refused) throw refused;
    });
    return kept;
  } catch (error) {
    // After any other error, the store may have been replaced.
    if (error === refused || error === options.signal?.reason) rmSync(kept, { force: true });
    throw error;
  } finally {
    old.close();
    removeDatabase(keeping);
  }
}

/** Waits for locks of other processes, which are short. */
function connect(file: string): DatabaseSync {
  return new DatabaseSync(file, { timeout: 5_000 });
}

interface CopyOptions extends ProgressOptions {
  readonly step: StoreProgress['step'];
}

/** Returns the version of the data that was copied, as this connection counts. */
async function copyPages(source: DatabaseSync, target: string, options: CopyOptions): Promise<number> {
  closeSync(openSync(target, 'wx', 0o600));
  source.exec('BEGIN');
  try {
    // The transaction begins with the first read.
    const version = pragma(source, 'data_version');
    await writePages(source, target, options);
    return version;
  } finally {
    if (source.isTransaction) source.exec('ROLLBACK');
  }
}

/** `check` is called at least once while the store is locked for writing. If it throws, nothing is changed. */
async function overwrite(from: string, location: string, options: CopyOptions, check: () => void): Promise<void> {
  const source = connect(from);
  try {
    await writePages(source, location, options, check);
  } finally {
    source.close();
  }
  const db = connect(location);
  try {
    db.exec('PRAGMA checkpoint_fullfsync = ON; PRAGMA wal_checkpoint(TRUNCATE)');
  } finally {
    db.close();
  }
}

const PAGES_PER_STEP = 1_000;

async function writePages(
  source: DatabaseSync,
  target: string,
  { step, onProgress, signal }: CopyOptions,
  check?: () => void,
): Promise<void> {
  signal?.throwIfAborted();
  const bytes = pragma(source, 'page_size');
  const pages = pragma(source, 'page_count');
  const report = (done: number): void => onProgress?.({ step, done: done * bytes, total: pages * bytes });
  await backup(source, target, {
    // At least two steps: SQLite locks the target in the first one, and `progress` is called between two.
    rate: Math.max(1, Math.min(PAGES_PER_STEP, pages - 1)),
    progress({ remainingPages }) {
      signal?.throwIfAborted();
      check?.();
      report(pages - remainingPages);
    },
  });
  report(pages);
}

/** Gives a complete database its final name. Without `force`, it replaces nothing. */
async function publish(copy: string, file: string, { force = false }: { force?: boolean } = {}): Promise<void> {
  const db = connect(copy);
  try {
    // One file without a -wal, which can also be read from a read-only disk.
    db.exec('PRAGMA journal_mode = DELETE');
  } finally {
    db.close();
  }
  await sync(copy);
  rejectLeftWal(file);
  if (force || !linked(copy, file)) renameSync(copy, file);
  await sync(path.dirname(path.resolve(file))).catch(() => {
    // Not every system can sync a folder.
  });
}

/** False if the file system has no links. */
function linked(copy: string, file: string): boolean {
  try {
    linkSync(copy, file);
    return true;
  } catch {
    if (existsSync(file)) throw fileExists(file);
    return false;
  }
}

async function sync(file: string): Promise<void> {
  const handle = await open(file);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function resetLeases(file: string, replacedToken: number): void {
  const db = connect(file);
  try {
    const token = Math.max(lastToken(file), replacedToken, Date.now() * 1_000);
    inTransaction(db, 'BEGIN IMMEDIATE', () => {
      db.exec("DELETE FROM leases; DELETE FROM sqlite_sequence WHERE name = 'leases'");
      db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('leases', ?)").run(token);
    });
  } finally {
    db.close();
  }
}

/** 0 if no lease was ever acquired, or if that cannot be read. */
function lastToken(file: string): number {
  const db = connect(file);
  try {
    const row = db.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'leases'").get();
    return (row?.['seq'] as number | undefined) ?? 0;
  } catch (error) {
    if (!isCorrupt(error)) throw error;
    return 0;
  } finally {
    db.close();
  }
}

/** Throws unless the file is a store of this or an earlier version. */
function requireContent(file: string): void {
  requireStore(file);
  let version: number;
  try {
    const db = connect(file);
    try {
      version = versionOf(db, file);
    } finally {
      db.close();
    }
  } catch (error) {
    throw storeError(error, path.resolve(file));
  }
  if (version === 0) throw new TreadleError('store-failed', `${path.resolve(file)} is empty. Choose another file.`);
}

/** Every connection of a store in WAL mode has a shared lock, so an exclusive one shows that there is none. */
export function requireUnused(file: string, options: VersionOptions = {}): void {
  try {
    const db = new DatabaseSync(file, { timeout: 0 });
    try {
      db.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
      versionOf(db, file, options);
    } finally {
      db.close();
    }
  } catch (error) {
    if (isBusy(error)) throw storeInUse(file);
    throw isCorrupt(error) ? cannotLock(file, error) : storeError(error, path.resolve(file));
  }
}

function rejectSameFile(store: string, file: string): void {
  const [a, b] = [store, file].map((one) => statSync(one, { throwIfNoEntry: false }));
  const isSame = a && b ? a.ino === b.ino && a.dev === b.dev : path.resolve(store) === path.resolve(file);
  if (isSame)
    throw new TreadleError('invalid-options', `${path.resolve(file)} is the store itself. Choose another file.`);
}

/** SQLite would apply it to the new file. */
function rejectLeftWal(file: string): void {
  if (!existsSync(`${file}-wal`)) return;
  throw new TreadleError(
    'store-locked',
    `${path.resolve(file)}-wal belongs to another database of that name, and may contain the only copy of its last changes. ` +
      'Move it away, or choose another path.',
  );
}

function removeDatabase(file: string): void {
  for (const suffix of ['', '-wal', '-shm', '-journal']) rmSync(file + suffix, { force: true });
}

function fileExists(file: string): TreadleError {
  const message = `${path.resolve(file)} exists. Choose another name, or replace it with force (--force).`;
  return new TreadleError('invalid-options', message);
}

function storeInUse(file: string): TreadleError {
  return new TreadleError(
    'store-locked',
    `The store ${path.resolve(file)} is open in another process, so nothing was replaced. Stop all processes that use it, and retry.`,
  );
}

function cannotLock(file: string, cause: unknown): TreadleError {
  return new TreadleError(
    'store-failed',
    `${path.resolve(file)} is so damaged that it cannot be locked, so nothing was replaced. Stop all processes that use it, ` +
      'move it away together with its -wal and -shm files, and retry.',
    { cause },
  );
}

const MAX_LISTED = 5;

function backupDamaged(file: string, problems: readonly StoreProblem[]): TreadleError {
  const listed = problems.slice(0, MAX_LISTED).map(({ message }) => `\n  ${message}`);
  const more = problems.length > MAX_LISTED ? `\n  and ${problems.length - MAX_LISTED} more` : '';
  return new TreadleError(
    'store-failed',
    `The backup ${path.resolve(file)} is damaged, so nothing was replaced. Choose another backup, or restore what is intact with force (--force):${listed.join('')}${more}`,
  );
}
