import type { DatabaseSync, FunctionOptions, SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';

/**
 * The file that all processes share, with synced and unsynced writes.
 *
 * 1. One SQLite database in memory, which has the schema. A schedule is one transaction, which is rolled back when the schedule is over.
 * 2. Each transaction of a store is a savepoint that stays open until a sync covers it.
 * 3. A power failure rolls back a part of the transactions that are not synced: what remains is a prefix.
 */
export interface Disk {
  /** The database as one process sees it. */
  readonly open: (onCommit: () => void) => DatabaseSync;
  /** For damage and checks: every change is written and durable at once. */
  readonly prepare: (sql: string) => StatementSync;
  /** The number of transactions since the start of the schedule, without those that a power failure undid. */
  readonly commits: () => number;
  /** How many of them are durable. */
  readonly durable: () => number;
  /** Makes the first `commits` transactions durable. */
  readonly synced: (commits: number) => void;
  /** The size of the write-ahead log. */
  readonly logBytes: () => number;
  /** Moves the log into the database, which syncs it first. Returns the number of its frames, as SQLite does. */
  readonly checkpoint: () => { readonly log: number };
  /** How many frames of the log a transaction takes. */
  framesPerCommit: number;
  /** Undoes all transactions but the first `commits`. */
  readonly rollBackTo: (commits: number) => void;
  /** How writes fail at present. */
  fault: DiskFault | undefined;
  /** How many statements a disk that is full still stores, so that it can be full in the middle of a transaction. */
  room: number;
  /** Starts a new schedule with an empty store. */
  readonly reset: () => void;
}

/**
 * `statement`: a full disk, found by a statement. `rolled back`: the same, and SQLite has rolled back the transaction.
 * `commit`: a full disk, found by the commit. `locked`: another program has the write lock. `sync`: syncs fail.
 */
export type DiskFault = 'statement' | 'rolled back' | 'commit' | 'locked' | 'sync';

const FRAME_BYTES = 4_096;

type Aggregate = Parameters<DatabaseSync['aggregate']>[1];

export function createDisk(db: DatabaseSync): Disk {
  const statements = new Map<string, StatementSync>();
  const prepare = (sql: string): StatementSync => {
    let statement = statements.get(sql);
    if (!statement) statements.set(sql, (statement = db.prepare(sql)));
    return statement;
  };
  /** SQLite has one function of a name, and each store registers its own: that of the calling process is used. */
  let aggregates = new Map<string, Aggregate>();
  const registered = new Set<string>();
  let commits = 0;
  let durable = 0;
  /** Open savepoints of committed transactions. */
  let savepoints = 0;
  /** Frames in the log, and the most that it ever had: its file does not shrink. */
  let [frames, mostFrames] = [0, 0];
  let isMoved = false;
  /** Of all transactions, also those that were undone. */
  let version = 0;

  const begin = prepare('SAVEPOINT store');
  const release = prepare('RELEASE store');
  const rollBack = prepare('ROLLBACK TO store');

  const disk: Disk = {
    open,
    prepare,
    commits: () => commits,
    durable: () => durable,
    synced(upTo) {
      durable = Math.max(durable, Math.min(upTo, commits));
      if (durable < commits) return;
      for (; savepoints > 0; savepoints--) release.run();
    },
    rollBackTo(upTo) {
      for (; commits > upTo; commits--, savepoints--) {
        rollBack.run();
        release.run();
      }
      disk.synced(commits);
    },
    logBytes: () => mostFrames * FRAME_BYTES,
    checkpoint() {
      if (disk.fault === 'commit' || disk.fault === 'sync') throw sqliteError(13, 'database or disk is full');
      disk.synced(commits);
      isMoved = true;
      return { log: frames };
    },
    framesPerCommit: 1,
    fault: undefined,
    room: 0,
    reset() {
      db.exec('ROLLBACK; BEGIN');
      [commits, durable, savepoints, frames, mostFrames] = [0, 0, 0, 0, 0];
      isMoved = false;
      disk.fault = undefined;
    },
  };
  db.exec('BEGIN');
  return disk;

  /** A transaction after a checkpoint starts the log from its beginning. */
  function addFrames(): void {
    frames = isMoved ? disk.framesPerCommit : frames + disk.framesPerCommit;
    mostFrames = Math.max(mostFrames, frames);
    isMoved = false;
  }

  function open(onCommit: () => void): DatabaseSync {
    const own = new Map<string, Aggregate>();
    let others = 0;
    let writing = false;
    let changed = false;

    function exec(sql: string): void {
      switch (sql) {
        case 'BEGIN IMMEDIATE':
          if (disk.fault === 'locked') throw sqliteError(5, 'database is locked');
          begin.run();
          writing = true;
          changed = false;
          return;
        case 'COMMIT':
          if (!writing) return;
          if (disk.fault === 'commit' && changed) throw sqliteError(13, 'database or disk is full');
          writing = false;
          if (!changed) return void release.run();
          commits++;
          savepoints++;
          addFrames();
          version++;
          others--;
          return onCommit();
        case 'ROLLBACK':
          return undo();
        // A transaction that only reads: nothing happens between its statements.
        case 'BEGIN':
          return;
        default:
          db.exec(sql);
      }
    }

    function undo(): void {
      if (!writing) return;
      writing = false;
      rollBack.run();
      release.run();
    }

    function beforeWrite(): void {
      const isFull = disk.fault === 'rolled back' || disk.fault === 'statement';
      if (isFull && disk.room-- <= 0) {
        if (disk.fault === 'rolled back') undo();
        throw sqliteError(13, 'database or disk is full');
      }
      changed = true;
    }

    /** What SQLite reports about commits of other connections, and about the log. */
    const pragmas: Readonly<Record<string, () => object>> = {
      'PRAGMA data_version': () => ({ data_version: version + others }),
      'PRAGMA wal_checkpoint(PASSIVE)': disk.checkpoint,
    };

    function prepareOwn(sql: string): StatementSync {
      if (Object.hasOwn(pragmas, sql)) return { get: pragmas[sql] } as unknown as StatementSync;
      const statement = prepare(sql);
      const writes = /^\s*(INSERT|UPDATE|DELETE|REPLACE)\b/i.test(sql);
      const calling =
        <Args extends unknown[], T>(call: (...args: Args) => T) =>
        (...args: Args): T => {
          if (writes) beforeWrite();
          aggregates = own;
          return call(...args);
        };
      return {
        run: calling(statement.run.bind(statement)),
        get: calling(statement.get.bind(statement)),
        all: calling(statement.all.bind(statement)),
        iterate: calling(statement.iterate.bind(statement)),
      } as unknown as StatementSync;
    }

    return {
      exec,
      prepare: prepareOwn,
      close() {},
      get isTransaction() {
        return writing;
      },
      // It depends only on what the database contains, so all connections can use that of the first one.
      function(name: string, options: FunctionOptions, act: (...args: SQLOutputValue[]) => SQLInputValue) {
        if (registered.has(name)) return;
        registered.add(name);
        const called = (...args: SQLOutputValue[]): SQLInputValue => {
          const caller = aggregates;
          try {
            return act(...args);
          } finally {
            aggregates = caller;
          }
        };
        Object.defineProperty(called, 'length', { value: act.length });
        db.function(name, options, called);
      },
      aggregate(name: string, options: Aggregate) {
        own.set(name, options);
        if (registered.has(name)) return;
        registered.add(name);
        const step: Aggregate['step'] = (...args) => aggregates.get(name)!.step(...args);
        // SQLite takes the number of arguments from the function.
        Object.defineProperty(step, 'length', { value: options.step.length });
        db.aggregate(name, { ...options, step });
      },
    } as unknown as DatabaseSync;
  }
}

/** As node:sqlite reports it. */
function sqliteError(errcode: number, errstr: string): Error {
  return Object.assign(new Error(errstr), { code: 'ERR_SQLITE_ERROR', errcode, errstr });
}
