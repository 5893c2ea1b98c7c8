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
  /** For checks. */
  readonly prepare: (sql: string) => StatementSync;
  /** For damage: written and durable at once. Returns the number of changed rows. */
  readonly change: (sql: string, parameters: Readonly<Record<string, SQLInputValue>>) => number;
  /** Whether the last transaction can have changed this table. */
  readonly wrote: (table: string) => boolean;
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

/** So often, a transaction counts as one that has changed all tables: checks look at everything then. */
const ALL_TABLES_COMMITS = 16;

/** The table that a statement writes. There are no triggers. */
const WRITTEN = /^\s*(?:INSERT|UPDATE|DELETE|REPLACE)\b(?:\s+(?:OR\s+\w+|INTO|FROM))*\s+(\w+)/i;

interface Shared {
  readonly statement: StatementSync;
  /** Undefined if the statement only reads. */
  readonly table: string | undefined;
}

type Aggregate = Parameters<DatabaseSync['aggregate']>[1];

export function createDisk(db: DatabaseSync): Disk {
  const statements = new Map<string, Shared>();
  const shared = (sql: string): Shared => {
    let found = statements.get(sql);
    if (!found) statements.set(sql, (found = { statement: db.prepare(sql), table: WRITTEN.exec(sql)?.[1] }));
    return found;
  };
  const prepare = (sql: string): StatementSync => shared(sql).statement;
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
  /** Since the last transaction. */
  const written = new Set<string>();
  let isAllWritten = false;

  const begin = prepare('SAVEPOINT store');
  const release = prepare('RELEASE store');
  const rollBack = prepare('ROLLBACK TO store');

  const disk: Disk = {
    open,
    prepare,
    change(sql, parameters) {
      isAllWritten = true;
      return Number(prepare(sql).run(parameters).changes);
    },
    wrote: (table) => isAllWritten || written.has(table),
    commits: () => commits,
    durable: () => durable,
    synced(upTo) {
      durable = Math.max(durable, Math.min(upTo, commits));
      if (durable < commits) return;
      for (; savepoints > 0; savepoints--) release.run();
    },
    rollBackTo(upTo) {
      isAllWritten = true;
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
      isAllWritten = true;
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

  function open(checkCommit: () => void): DatabaseSync {
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

    function onCommit(): void {
      if (commits % ALL_TABLES_COMMITS === 0) isAllWritten = true;
      checkCommit();
      written.clear();
      isAllWritten = false;
    }

    function undo(): void {
      if (!writing) return;
      writing = false;
      rollBack.run();
      release.run();
    }

    function beforeWrite(table: string): void {
      const isFull = disk.fault === 'rolled back' || disk.fault === 'statement';
      if (isFull && disk.room-- <= 0) {
        if (disk.fault === 'rolled back') undo();
        throw sqliteError(13, 'database or disk is full');
      }
      changed = true;
      written.add(table);
    }

    /** What SQLite reports about commits of other connections, and about the log. */
    const pragmas: Readonly<Record<string, () => object>> = {
      'PRAGMA data_version': () => ({ data_version: version + others }),
      'PRAGMA wal_checkpoint(PASSIVE)': disk.checkpoint,
    };

    function prepareOwn(sql: string): StatementSync {
      if (Object.hasOwn(pragmas, sql)) return { get: pragmas[sql] } as unknown as StatementSync;
      const { statement, table } = shared(sql);
      return new OwnStatement(statement, () => {
        if (table !== undefined) beforeWrite(table);
        aggregates = own;
      }) as unknown as StatementSync;
    }

    return {
      exec,
      prepare: prepareOwn,
      close() {},
      isOpen: true,
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

/** A statement that all processes share, as one of them uses it. */
class OwnStatement {
  readonly #statement: StatementSync;
  readonly #before: () => void;

  constructor(statement: StatementSync, before: () => void) {
    this.#statement = statement;
    this.#before = before;
  }

  run(...args: Parameters<StatementSync['run']>): unknown {
    this.#before();
    return this.#statement.run(...args);
  }

  get(...args: Parameters<StatementSync['get']>): unknown {
    this.#before();
    return this.#statement.get(...args);
  }

  all(...args: Parameters<StatementSync['all']>): unknown {
    this.#before();
    return this.#statement.all(...args);
  }

  iterate(...args: Parameters<StatementSync['iterate']>): unknown {
    this.#before();
    return this.#statement.iterate(...args);
  }
}

/** As node:sqlite reports it. */
function sqliteError(errcode: number, errstr: string): Error {
  return Object.assign(new Error(errstr), { code: 'ERR_SQLITE_ERROR', errcode, errstr });
}
