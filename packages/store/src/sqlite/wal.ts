import { closeSync, fdatasync, fstatSync, fsync, openSync } from 'node:fs';
import path from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { Worker } from 'node:worker_threads';
import { TreadleError } from '@treadle/core';
import { othersCommits } from './database.ts';
import { filesOf } from './files.ts';
import type { Disk, Until } from './group-commit.ts';

/**
 * The write-ahead log of an SQLite file, whose commits are synced here and not by SQLite (`synchronous = NORMAL`).
 *
 * 1. A commit appends to the log. After a power failure SQLite reads the log up to the first frame that is damaged, so what
 *    remains is everything up to some commit, at least up to the last one that was synced.
 * 2. All who wait for a sync share it. A sync that started before a commit does not cover it.
 * 3. After a failed sync nobody knows what is durable, and repeating the sync would not find out: the system may have dropped
 *    the pages. So every sync from then on fails, and nothing that has to be durable is written.
 * 4. A commit that nobody waits for is synced after a short time.
 * 5. What a reader is shown may be of another process, which alone knows whether it has synced it. So a sync for readers also
 *    covers the commits of others: if something was read, and there were any since the last one, it syncs the log, which is the
 *    same file for all.
 * 6. A worker thread moves the log into the database (a checkpoint), because that waits for the disk. If the log grows faster
 *    than it is moved, commits wait for one checkpoint, so that SQLite can start the log from its beginning.
 *    The commit that does so syncs the new header: the only sync in the thread of the store, after several megabytes.
 * 7. A sync counts only if the files are still those that SQLite opened (`files.ts`). Otherwise nothing is written any more, and
 *    readers are told nothing. They look at the files if there is nothing to sync.
 * 8. Nothing here opens the database file or its -shm file: closing any descriptor of them would drop SQLite's locks.
 */
export interface Wal extends Required<Disk> {
  /** Syncs what is not synced yet, and ends the worker. Never rejects. */
  readonly close: () => Promise<void>;
}

const SYNC_WITHIN_MS = 100;
/** How often readers look at the files: it takes some microseconds. */
const CHECK_MS = 100;
/** Frames are pages of 4 kB. */
const CHECKPOINT_FRAMES = 1_000;
const CHECKPOINT_BYTES = 4_000_000;
/** The size of the log is looked at after so many commits. */
const SIZE_CHECK_COMMITS = 8;
/** Commits wait for a checkpoint if the log is longer. */
const LONGEST_LOG_FRAMES = 4_000;
const LONGEST_LOG_BYTES = 16_000_000;

/** What tests replace. */
export interface WalSystem {
  /** Syncs the content of an open file. */
  readonly syncFile: (descriptor: number) => Promise<void>;
  /** Starts the thread for checkpoints of the database at this path. Throws if there can be none. */
  readonly startWorker: (location: string) => Worker;
}

export const SYSTEM: WalSystem = {
  syncFile: (descriptor) => whenDone((done) => fdatasync(descriptor, done)),
  startWorker: (location) =>
    new Worker(WORKER, { eval: true, workerData: location, execArgv: QUIET, name: 'checkpoint' }),
};

/** `location` names the store in errors. The database is open and in WAL mode. */
export function openWal(db: DatabaseSync, location: string, system: WalSystem = SYSTEM): Wal {
  const files = filesOf(db, location);
  /** Of the log; opened when there is a commit. */
  let descriptor: number | undefined;
  /** Numbers of commits. */
  let [last, durable, covered] = [0, 0, 0];
  /** The last one that readers can be shown. */
  let shown = 0;
  /** SQLite's counter of the commits of other connections, when readers were last waited for. Undefined: unknown. */
  let version: unknown;
  const readVersion = othersCommits(db);
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;
  let failure: TreadleError | undefined;
  /** The files are not those that were opened. */
  let isGone = false;
  /** When readers last looked at the files. */
  let checkedAt = 0;
  let isFolderSynced = false;
  let timer: NodeJS.Timeout | undefined;
  const checkpoints = checkpointer(db, () => system.startWorker(files.database));

  function committed(isShown = true): void {
    last++;
    if (isShown) shown = last;
    timer ??= setTimeout(syncInBackground, SYNC_WITHIN_MS).unref();
    checkpoints.committed(openLog());
  }

  /** Undefined if the log cannot be opened now. Then a sync fails. */
  function openLog(): number | undefined {
    try {
      return (descriptor ??= openToSync(files.log));
    } catch {
      return undefined;
    }
  }

  function syncInBackground(): void {
    timer = undefined;
    sync()?.catch(() => {}); // the next one reports it
  }

  function sync(): void | Promise<void> {
    return failure ? Promise.reject(failure) : syncUpTo(last);
  }

  function syncShown(hasRead: boolean): void | Promise<void> {
    if (hasRead || version === undefined) showOthers();
    if (shown <= durable) checkNowAndThen();
    return failure && (isGone || shown > durable) ? Promise.reject(failure) : syncUpTo(shown);
  }

  function showOthers(): void {
    const current = readVersion();
    if (current === undefined || current !== version) {
      version = current;
      shown = ++last;
    }
  }

  function checkNowAndThen(): void {
    const now = performance.now();
    if (failure || now - checkedAt < CHECK_MS) return;
    checkedAt = now;
    try {
      checkFiles();
    } catch (error) {
      failure = error as TreadleError;
    }
  }

  function syncUpTo(commit: number): void | Promise<void> {
    if (durable >= commit) return undefined;
    if (!running) return startSync();
    return covered >= commit ? running : (next ??= running.then(startSync));
  }

  function check(until: Until): void {
    if (failure && (isGone || until === 'durable')) throw failure;
  }

  function startSync(): Promise<void> {
    next = undefined;
    const upTo = last;
    covered = upTo;
    running = syncFiles().then(
      () => {
        running = undefined;
        durable = upTo;
      },
      (error: unknown) => {
        failure = isGone ? (error as TreadleError) : syncFailed(location, error);
        throw failure;
      },
    );
    return running;
  }

  async function syncFiles(): Promise<void> {
    try {
      await system.syncFile((descriptor ??= openToSync(files.log)));
      // The log is a new file.
      if (!isFolderSynced) await syncFolder(path.dirname(files.log));
      isFolderSynced = true;
    } finally {
      // Also after an error, which may come from that.
      checkFiles();
    }
  }

  function checkFiles(): void {
    try {
      files.check();
    } catch (error) {
      isGone = true;
      throw error;
    }
  }

  return {
    committed,
    sync,
    syncShown,
    check,
    ready: checkpoints.ready,
    async close() {
      clearTimeout(timer);
      await Promise.resolve(sync()).catch(() => {});
      await checkpoints.close();
      clearTimeout(timer);
      if (descriptor !== undefined) closeSync(descriptor);
    },
  };
}

/** A user who may only read a file can sync it, except on Windows. */
function openToSync(file: string): number {
  try {
    return openSync(file, 'r+');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
    return openSync(file, 'r');
  }
}

async function syncFolder(folder: string): Promise<void> {
  // Windows cannot open a folder, and has no need to sync it.
  if (process.platform === 'win32') return;
  const descriptor = openSync(folder, 'r');
  try {
    await whenDone((done) => fsync(descriptor, done));
  } finally {
    closeSync(descriptor);
  }
}

function whenDone(start: (done: (error: Error | null) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => start((error) => (error ? reject(error) : resolve())));
}

function syncFailed(location: string, cause: unknown): TreadleError {
  return new TreadleError(
    'store-failed',
    `The store ${location} could not be synced to the disk (${(cause as Error).message}), so the last entries may be lost in a power failure. Check the disk, then close the store and open it again.`,
    { cause },
  );
}

/* Checkpoints */

/** What SQLite reports of a checkpoint: the length of the log in frames, or -1 if it failed. */
interface Checkpoint {
  readonly log: number;
}

const FAILED: Checkpoint = { log: -1 };

interface Checkpointer {
  /** `log`: its descriptor. */
  readonly committed: (log: number | undefined) => void;
  readonly ready: () => void | Promise<void>;
  readonly close: () => Promise<void>;
}

function checkpointer(db: DatabaseSync, newWorker: () => Worker): Checkpointer {
  let worker: Worker | undefined;
  let isUnavailable = false;
  /** Since the last checkpoint started. */
  let commits = 0;
  let commitsUntilCheckpoint = 200;
  let checkpointedBytes = 0;
  let lastLog = 0;
  /** A checkpoint is in progress. */
  let isBusy = false;
  /** Commits wait for it. */
  let held: PromiseWithResolvers<void> | undefined;
  /** Commits have waited since before it started. */
  let isLast = false;
  let commitsAtStart = 0;

  function committed(log: number | undefined): void {
    commits++;
    // Not after each commit, because it costs a few microseconds.
    if (commits % SIZE_CHECK_COMMITS !== 0) return;
    const bytes = log === undefined ? 0 : fstatSync(log).size;
    if (isBusy) {
      if (bytes - checkpointedBytes > LONGEST_LOG_BYTES) hold();
      return;
    }
    if (commits < commitsUntilCheckpoint && bytes - checkpointedBytes < CHECKPOINT_BYTES) return;
    checkpointedBytes = bytes;
    start();
  }

  function start(): void {
    commitsAtStart = commits;
    commits = 0;
    isBusy = true;
    worker ??= startWorker();
    if (worker) return worker.postMessage('checkpoint', NOTHING_TO_TRANSFER);
    try {
      finished(db.prepare('PRAGMA wal_checkpoint(PASSIVE)').get() as unknown as Checkpoint);
    } catch {
      finished(FAILED);
    }
  }

  /** The process must not end while commits wait. */
  function hold(): void {
    held ??= Promise.withResolvers();
    worker?.ref();
  }

  /** Undefined if there can be none, for example because the permission model of Node forbids it. */
  function startWorker(): Worker | undefined {
    if (isUnavailable) return undefined;
    try {
      const started = newWorker();
      started.unref();
      started.on('message', finished);
      started.on('error', abandon);
      return started;
    } catch {
      isUnavailable = true;
      return undefined;
    }
  }

  function abandon(): void {
    worker = undefined;
    isUnavailable = true;
    if (isBusy) finished(FAILED);
  }

  function finished({ log }: Checkpoint): void {
    isBusy = false;
    const wasLast = isLast;
    isLast = false;
    if (log > lastLog) {
      const perCommit = (log - lastLog) / Math.max(1, commitsAtStart);
      commitsUntilCheckpoint = Math.max(10, Math.round(CHECKPOINT_FRAMES / perCommit));
    }
    lastLog = Math.max(0, log);
    // What was committed meanwhile is not moved yet. One more, without commits, moves it unless somebody still reads it.
    const isLong = held !== undefined || log > LONGEST_LOG_FRAMES;
    if (log >= 0 && isLong && commits > 0 && !wasLast) {
      isLast = true;
      hold();
      return start();
    }
    held?.resolve();
    held = undefined;
    worker?.unref();
  }

  return {
    committed,
    ready: () => held?.promise,
    async close() {
      const closing = worker;
      if (!closing) return;
      // The end of a checkpoint would unref the worker, and the process could end before the store is closed.
      closing.off('message', finished);
      held?.resolve();
      held = undefined;
      const ended = new Promise((resolve) => void closing.once('exit', resolve));
      closing.ref();
      closing.postMessage('close', NOTHING_TO_TRANSFER);
      await ended;
    },
  };
}

const NOTHING_TO_TRANSFER: readonly [] = [];
const QUIET = ['--disable-warning=ExperimentalWarning'];

/** A text, so that it works from a bundle too. */
const WORKER = `
const { parentPort, workerData } = require('node:worker_threads');
const { DatabaseSync } = require('node:sqlite');
const { pathToFileURL } = require('node:url');
// Not created if it was deleted.
const db = new DatabaseSync(pathToFileURL(workerData).href + '?mode=rw');
db.exec('PRAGMA synchronous = NORMAL; PRAGMA fullfsync = ON; PRAGMA wal_autocheckpoint = 0');
const checkpoint = db.prepare('PRAGMA wal_checkpoint(PASSIVE)');
parentPort.on('message', (message) => {
  if (message === 'close') {
    db.close();
    parentPort.close();
    return;
  }
  let log = -1;
  try {
    log = checkpoint.get().log;
  } catch {}
  parentPort.postMessage({ log });
});
`;
