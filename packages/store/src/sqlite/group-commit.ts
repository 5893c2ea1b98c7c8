import type { DatabaseSync } from 'node:sqlite';
import type { Stored, TreadleError } from '@treadle/core';
import type { CommitListener } from '../ports/store.ts';
import { isBusy } from './failure.ts';

/**
 * Writes of one turn of the event loop share one transaction, and so one sync of the disk.
 *
 * 1. Writes are performed in the order of the calls. Each promise resolves when the write is durable, or with
 *    `until: 'written'` when it is committed. A commit is never durable before those before it.
 * 2. A write that throws is rolled back and rejects alone; the rest of its transaction is committed.
 * 3. If the transaction fails, all of its writes reject and nothing is written. The next transaction is not affected.
 * 4. While another process writes, the writes wait. The event loop is not blocked.
 * 5. A transaction ends after the write with which it has `BATCH_CHARS`. The event loop turns before the next one.
 * 6. A write that is accepted starts no transaction of its own for `ACCEPT_MS`. It shares that of the next write, in order.
 */
export interface GroupCommit {
  /** `work` is synchronous and runs some time after the call. `chars`: how much it writes, if it can be much. */
  readonly write: <T>(work: () => T, until?: Until, chars?: number) => Promise<T>;
  /** The writes that `work` adds before it first waits share a transaction. */
  readonly together: <T>(work: () => T) => T;
  /**
   * Performs `work` within `ACCEPT_MS`. Nobody waits for it: if it fails, `failed` is called. The returned function tells that
   * it will write more characters.
   */
  readonly accept: (work: () => void, failed: (error: TreadleError) => void, chars: number) => (more: number) => void;
  /** False while much has been accepted, or another process writes: then callers have to wait. */
  readonly canAccept: () => boolean;
  /** Resolves when what was accepted is committed or has failed; nothing if it already is. */
  readonly accepted: () => void | Promise<void>;
  /** Resolves when all writes so far are durable. */
  readonly sync: () => Promise<void>;
  /** Resolves when everything that was read is durable, also what others have committed; nothing if it already is. */
  readonly syncShown: () => void | Promise<void>;
  /** To be called when something is read outside of writes. */
  readonly noteRead: () => void;
  /** Commits all waiting writes now, unless another process writes. */
  readonly flush: () => void;
  /** Resolves when all writes so far have settled. */
  readonly drain: () => Promise<void>;
  /** Sets who is told of transactions. */
  readonly onCommit: (listener: CommitListener) => void;
}

/** `hidden`: as `written`, and clients are shown nothing of it, so readers do not wait until it is durable. */
export type Until = Stored | 'hidden';

/** The file that the transactions are committed to. */
export interface Disk {
  /** Makes everything committed durable. If nothing is returned, it already is. */
  readonly sync: () => void | Promise<void>;
  /**
   * The same for everything that was read; default: `sync`. Not for what is hidden. `hasRead`: it may be of other processes, and
   * nothing that is shown has been committed here since.
   */
  readonly syncShown?: (hasRead: boolean) => void | Promise<void>;
  /** Throws if a sync has failed, so that nothing can become durable any more, or if nothing can be written any more. */
  readonly check?: (until: Until) => void;
  /** Called after each commit. `isShown`: not all of it is hidden. */
  readonly committed?: (isShown: boolean) => void;
  /** Returns a promise if nothing may be committed until it resolves. It never rejects. */
  readonly ready?: () => void | Promise<void>;
}

export interface CommitOptions extends Disk {
  /** Calls `act` after the callbacks of this turn of the event loop, or after so many milliseconds. */
  readonly defer: (act: () => void, ms?: number) => void;
  /** How long to retry while another process has the lock. */
  readonly busyTimeoutMs: number;
  readonly toStoreError: (error: unknown) => TreadleError;
}

interface Write {
  readonly work: () => unknown;
  readonly until: Until;
  chars: number;
  /** It is in the transaction of the one before. */
  readonly isJoined?: boolean;
  readonly resolve: (value: never) => void;
  readonly reject: (error: TreadleError) => void;
}

/** A write whose transaction is not committed yet. */
interface Done {
  readonly write: Write;
  /** False: it threw, and was rolled back. */
  readonly isWritten: boolean;
  readonly settle: () => void;
}

export function groupCommit(db: DatabaseSync, options: CommitOptions): GroupCommit {
  const { defer, busyTimeoutMs, sync, syncShown = sync, committed, ready, toStoreError } = options;
  const { performAlone, performWrite, rollBack } = performer(db, options);
  const queue = writeQueue(flushNextTurn);
  const { write } = queue;
  /** The next attempt is scheduled. */
  let isDelayed = false;
  let retries: Iterator<number> | undefined;
  let listener: CommitListener | undefined;
  /** The next turn of the event loop commits what is waiting. */
  let isDue = false;
  /** Something was read since readers last waited. A commit follows what was read before it, so it counts for that, too. */
  let hasRead = true;

  function flush(): void {
    if (queue.isEmpty() || isDelayed) return;
    const opening = ready?.();
    if (opening) return delay((retry) => void opening.then(retry));
    try {
      db.exec('BEGIN IMMEDIATE');
    } catch (error) {
      return retryOrReject(error);
    }
    retries = undefined;
    hasRead = true;
    const since = queue.since();
    const writes = queue.takeBatch();
    let done: readonly Done[];
    try {
      done = writes.length === 1 ? [performAlone(writes[0]!)] : writes.map(performWrite);
      if (db.isTransaction) db.exec('COMMIT');
    } catch (error) {
      rollBack();
      return rejectAll(writes, error);
    }
    settleAll(done, since);
  }

  function delay(schedule: (retry: () => void) => void): void {
    isDelayed = true;
    schedule(() => {
      isDelayed = false;
      flush();
    });
  }

  function retryOrReject(error: unknown): void {
    retries ??= pauses(busyTimeoutMs);
    const pause = isBusy(error) ? retries.next() : DONE;
    if (!pause.done) return delay((retry) => defer(retry, pause.value));
    retries = undefined;
    rejectAll(queue.takeAll(), error);
  }

  /** Settles writes that have to be durable after a sync, and the others at once. */
  function settleAll(done: readonly Done[], since: number): void {
    const areShown = done.some(isShown);
    if (areShown) hasRead = false;
    if (areShown || done.some(({ isWritten }) => isWritten)) committed?.(areShown);
    const syncing = done.some(mustBeSynced) ? sync() : undefined;
    for (const one of done) if (!syncing || !mustBeSynced(one)) one.settle();
    if (!syncing) return listener?.(performance.now() - since, done.length);
    const unsynced = done.filter(mustBeSynced);
    syncing.then(
      () => {
        listener?.(performance.now() - since, done.length);
        unsynced.forEach(({ settle }) => settle());
      },
      (error: unknown) => unsynced.forEach(({ write }) => write.reject(toStoreError(error))),
    );
  }

  function rejectAll(writes: readonly Write[], error: unknown): void {
    const failure = toStoreError(error);
    for (const { reject } of writes) reject(failure);
  }

  async function synced(syncing: void | Promise<void>): Promise<void> {
    try {
      await syncing;
    } catch (error) {
      throw toStoreError(error);
    }
  }

  /** After the callbacks of this turn, so replies that arrived together are committed together. */
  function flushNextTurn(): void {
    if (isDue) return;
    isDue = true;
    defer(() => {
      isDue = false;
      flush();
    });
  }

  const acceptance = acceptedWrites({
    add(accepted) {
      queue.add(accepted);
      flushSoon();
    },
    settled: queue.settled,
  });

  /** The timer commits what is waiting. */
  let isTimed = false;

  function flushSoon(): void {
    if (isTimed) return;
    isTimed = true;
    defer(() => {
      isTimed = false;
      if (!isDue) flush();
    }, ACCEPT_MS);
  }

  return {
    write,
    together: queue.together,
    accept: acceptance.accept,
    canAccept: () => !isDelayed && acceptance.chars() < MOST_ACCEPTED_CHARS,
    accepted: () => (acceptance.count() > 0 ? write(() => {}, 'written').catch(() => {}) : undefined),
    // Without a transaction, if nothing is waiting.
    sync: () => (!queue.isEmpty() ? write(() => {}) : synced(sync())),
    syncShown() {
      // Rejects. The descriptor of the log may belong to another file by now.
      if (!db.isOpen) return write(() => {});
      const syncing = syncShown(hasRead);
      hasRead = false;
      return syncing && synced(syncing);
    },
    noteRead: () => void (hasRead = true),
    flush() {
      do flush();
      while (!queue.isEmpty() && !isDelayed);
    },
    async drain() {
      flush();
      // It is durable only after all writes before it.
      if (queue.open() > 0) await write(() => {}).catch(() => {});
    },
    onCommit(told) {
      listener = told;
    },
  };
}

interface WriteQueue extends Pick<GroupCommit, 'write' | 'together'> {
  readonly add: (write: Write) => void;
  /** One that was added, not by `write`, has settled. */
  readonly settled: () => void;
  /** How many have not settled yet. */
  readonly open: () => number;
  readonly isEmpty: () => boolean;
  /** When the first of those that wait was added, by `performance.now()`. */
  readonly since: () => number;
  /** Takes what fits into a transaction out of the queue. */
  readonly takeBatch: () => readonly Write[];
  readonly takeAll: () => readonly Write[];
}

/** The writes that wait for a transaction, in the order of the calls. */
function writeQueue(flushNextTurn: () => void): WriteQueue {
  let waiting: Write[] = [];
  let open = 0;
  let waitingSince = 0;
  /** How many writes of `together` were added. */
  let joining = -Infinity;

  function takeBatch(): readonly Write[] {
    let chars = 0;
    let last = waiting.findIndex((write) => (chars += write.chars) >= BATCH_CHARS);
    while (last >= 0 && waiting[last + 1]?.isJoined) last++;
    if (last === -1 || last === waiting.length - 1) return takeAll();
    const writes = waiting.slice(0, last + 1);
    waiting = waiting.slice(last + 1);
    flushNextTurn();
    return writes;
  }

  function takeAll(): readonly Write[] {
    const writes = waiting;
    waiting = [];
    return writes;
  }

  function write<T>(work: () => T, until: Until = 'durable', chars = 0): Promise<T> {
    flushNextTurn();
    return new Promise<T>((resolve, reject) => {
      add({
        work,
        until,
        chars,
        isJoined: joining++ > 0,
        resolve(value) {
          open--;
          resolve(value);
        },
        reject(error) {
          open--;
          reject(error);
        },
      });
    });
  }

  function add(write: Write): void {
    if (waiting.length === 0) waitingSince = performance.now();
    open++;
    waiting.push(write);
  }

  function together<T>(work: () => T): T {
    joining = 0;
    try {
      return work();
    } finally {
      joining = -Infinity;
    }
  }

  return {
    write,
    together,
    add,
    settled: () => void open--,
    open: () => open,
    isEmpty: () => waiting.length === 0,
    since: () => waitingSince,
    takeBatch,
    takeAll,
  };
}

interface Acceptance extends Pick<GroupCommit, 'accept'> {
  /** Accepted writes that have not settled yet, and their characters. */
  readonly count: () => number;
  readonly chars: () => number;
}

interface AcceptanceParts {
  readonly add: (write: Write) => void;
  readonly settled: () => void;
}

/** Writes that nobody waits for. */
function acceptedWrites({ add, settled }: AcceptanceParts): Acceptance {
  let [acceptedCount, acceptedChars] = [0, 0];

  function accept(work: () => void, failed: (error: TreadleError) => void, chars: number): (more: number) => void {
    const settle = (): void => {
      settled();
      acceptedCount--;
      acceptedChars -= accepted.chars;
    };
    const accepted: Write = {
      work,
      until: 'written',
      chars: 0,
      resolve: settle,
      reject(error) {
        settle();
        failed(error);
      },
    };
    const grow = (more: number): void => {
      accepted.chars += more;
      acceptedChars += more;
    };
    grow(chars);
    acceptedCount++;
    add(accepted);
    return grow;
  }

  return { accept, count: () => acceptedCount, chars: () => acceptedChars };
}

interface Performer {
  /** Without a savepoint: if it throws, the whole transaction is rolled back. */
  readonly performAlone: (write: Write) => Done;
  readonly performWrite: (write: Write) => Done;
  readonly rollBack: () => void;
}

/** Performs writes inside of a transaction. */
function performer(
  db: DatabaseSync,
  { check, toStoreError }: Pick<CommitOptions, 'check' | 'toStoreError'>,
): Performer {
  const savepoint = db.prepare('SAVEPOINT job');
  const release = db.prepare('RELEASE job');

  function performAlone(write: Write): Done {
    try {
      const value = perform(write) as never;
      return { write, isWritten: true, settle: () => write.resolve(value) };
    } catch (error) {
      rollBack();
      return { write, isWritten: false, settle: () => write.reject(toStoreError(error)) };
    }
  }

  function performWrite(write: Write): Done {
    const { resolve, reject } = write;
    savepoint.run();
    try {
      const value = perform(write) as never;
      release.run();
      return { write, isWritten: true, settle: () => resolve(value) };
    } catch (error) {
      // After some errors, such as a full disk, SQLite has rolled back the whole transaction.
      if (!db.isTransaction) throw error;
      db.exec('ROLLBACK TO job; RELEASE job');
      return { write, isWritten: false, settle: () => reject(toStoreError(error)) };
    }
  }

  /** A write that cannot become durable is rejected, so it must not be found later. */
  function perform({ work, until }: Write): unknown {
    check?.(until);
    return work();
  }

  function rollBack(): void {
    try {
      if (db.isTransaction) db.exec('ROLLBACK');
    } catch {
      // The transaction has ended in any case; the first error is the one to report.
    }
  }

  return { performAlone, performWrite, rollBack };
}

function mustBeSynced({ write, isWritten }: Done): boolean {
  return isWritten && write.until === 'durable';
}

function isShown({ write, isWritten }: Done): boolean {
  return isWritten && write.until !== 'hidden';
}

const DONE = { done: true, value: undefined } as const;

/** The pauses between attempts to get a lock, in milliseconds, until `timeoutMs` have passed. */
export function* pauses(timeoutMs: number): Generator<number, undefined> {
  let waited = 0;
  for (let ms = 1; waited < timeoutMs; ms = Math.min(2 * ms, LONGEST_PAUSE_MS)) {
    waited += ms;
    yield ms;
  }
}

const LONGEST_PAUSE_MS = 50;

/** The longest time for which an accepted write is only in memory, in milliseconds. */
export const ACCEPT_MS = 5;
const MOST_ACCEPTED_CHARS = 100_000;

/** Writing this many characters takes some milliseconds. */
const BATCH_CHARS = 1_000_000;
