import { TreadleError } from '@treadle/core';
import type * as PgModule from 'pg';
import { isConflict, isDisconnected, storeError } from './failure.ts';
import { openPools, type DatabaseOptions, type Query } from './pools.ts';

export type { Query } from './pools.ts';

/**
 * The connections to a database.
 *
 * 1. A connection that is lost is replaced. What was being read is read again, and a transaction that was not being committed is
 *    repeated, for up to `retryMs`: so a restart of the database is a pause.
 * 2. If the connection is lost while a transaction is committed, nobody can say whether it was. The call rejects and says so.
 * 3. A database that does not answer is recognised: while a statement takes long, a new connection asks whether anybody does. If not,
 *    all connections count as lost.
 * 4. Nothing depends on the state of a session, except prepared statements and limits of time. Those are not used behind a pooler,
 *    which is recognised by its answer: the number of the process that it names is not that of the server.
 * 5. A commit waits for the disk, also where the database has another default, unless the caller says that it need not.
 */
export interface Database {
  /** Names the store in errors, without the password. */
  readonly location: string;
  /**
   * Performs statements on one connection, without a transaction. They only read, or can be repeated. What they find may change in
   * between. So if `work` throws a `TreadleError`, such as that something is damaged, it is performed again and finds what one moment
   * shows, as it always does with `isAtOnce`.
   */
  readonly read: <T>(work: (query: Query) => Promise<T>, options?: { readonly isAtOnce?: boolean }) => Promise<T>;
  /**
   * Performs a transaction, which conflicts can repeat. Without `durable`, the commit does not wait for the disk. Those of one tick
   * are performed in their order, because callers write what belongs together without waiting in between. `repeated`: one whose commit
   * may have succeeded is performed again, because twice does no harm.
   */
  readonly write: <T>(
    work: (query: Query) => Promise<T>,
    until?: 'durable' | 'written',
    unknown?: 'repeated',
  ) => Promise<T>;
  /**
   * Calls `work`. The writes that it asks for before it first waits are one transaction. One of them that throws is rolled back and
   * rejects alone.
   */
  readonly together: <T>(work: () => T) => T;
  /** Whether `work` of `together` is being called. */
  readonly isGathering: () => boolean;
  /**
   * Performs one statement, a transaction of its own, once. If the connection is lost, it may have been performed: rejects with the
   * error of the connection (`isDisconnected`).
   */
  readonly once: Query;
  /** The same on a connection of its own, which waits for nothing else, and for a limited time. */
  readonly urgent: Query;
  /** Whether sessions belong to this process. Undefined: there was no connection yet. */
  readonly isDirect: () => boolean | undefined;
  /** A connection of its own, for notifications. The caller ends it. `isPatient`: statements may take as long as they need. */
  readonly connectAlone: (options?: { readonly isPatient?: boolean }) => Promise<PgModule.Client>;
  readonly close: () => Promise<void>;
}

const MOST_CONFLICTS = 20;

export async function openConnections(options: DatabaseOptions): Promise<Database> {
  const { retryMs } = options;
  const pools = await openPools(options);
  const { location, isClosed } = pools;

  async function retried<T>(attempt: () => Promise<T>): Promise<T> {
    const until = performance.now() + retryMs;
    let conflicts = 0;
    for (let pause = 10; ; pause = Math.min(2 * pause, 500)) {
      try {
        return await attempt();
      } catch (error) {
        const isOver = isClosed() || error instanceof UnknownOutcome || error instanceof TreadleError;
        const again = isDisconnected(error)
          ? performance.now() + pause < until
          : isConflict(error) && ++conflicts < MOST_CONFLICTS;
        if (isOver || !again) throw storeError(error instanceof UnknownOutcome ? error.cause : error, location);
        await new Promise((resolve) => setTimeout(resolve, pause * Math.random()));
      }
    }
  }

  async function transaction<T>(
    work: (query: Query) => Promise<T>,
    until: 'durable' | 'written',
    unknown?: 'repeated',
  ): Promise<T> {
    return pools.use(async (query) => {
      await query(until === 'written' ? 'BEGIN; SET LOCAL synchronous_commit = off' : 'BEGIN');
      let value: T;
      try {
        value = await work(query);
      } catch (error) {
        if (!isDisconnected(error)) await query('ROLLBACK');
        throw error;
      }
      try {
        await query('COMMIT');
      } catch (error) {
        throw isDisconnected(error) && unknown !== 'repeated' ? new UnknownOutcome(error, location) : error;
      }
      return value;
    });
  }

  /** The last transaction that was asked for in this tick of the event loop. */
  let last: Promise<unknown> | undefined;

  function inOrder<T>(perform: () => Promise<T>): Promise<T> {
    if (!last) queueMicrotask(() => (last = undefined));
    const performed = last ? last.then(perform) : perform();
    last = performed.catch(() => {});
    return performed;
  }

  /** The writes of `together`, while its work is called. */
  let gathered: Member[] | undefined;

  async function performTogether(members: readonly Member[]): Promise<void> {
    const until = members.some((one) => one.until === 'durable') ? 'durable' : 'written';
    try {
      const settle = await retried(() => transaction((query) => performMembers(query, members, location), until));
      for (const one of settle) one();
    } catch (error) {
      for (const { reject } of members) reject(error);
    }
  }

  const database: Database = {
    location,
    read: (work, { isAtOnce = false } = {}) => retried(() => pools.use((query) => readOn(query, work, isAtOnce))),
    write(work, until = 'durable', unknown?) {
      if (gathered) return gather(gathered, { work, until });
      return inOrder(() => retried(() => transaction(work, until, unknown)));
    },
    together(work) {
      const members: Member[] = [];
      gathered = members;
      try {
        return work();
      } finally {
        gathered = undefined;
        if (members.length > 0) void inOrder(() => performTogether(members));
      }
    },
    isGathering: () => gathered !== undefined,
    once: (text, values = []) => pools.use((query) => query(text, values)),
    urgent: pools.urgent,
    isDirect: pools.isDirect,
    connectAlone: pools.connectAlone,
    close: pools.close,
  };
  try {
    // Reports at once what is wrong with the address.
    await pools.use((query) => query('SELECT 1'));
  } catch (error) {
    await database.close();
    throw storeError(error, location);
  }
  return database;
}

/** A write that shares a transaction with others. */
interface Member {
  readonly work: (query: Query) => Promise<unknown>;
  readonly until: 'durable' | 'written';
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

function gather<T>(
  members: Member[],
  { work, until }: Pick<Member, 'until'> & { readonly work: (query: Query) => Promise<T> },
): Promise<T> {
  return new Promise<T>((resolve, reject) => void members.push({ work, until, resolve, reject }));
}

/** Resolves to what settles them when they are committed. */
async function performMembers(
  query: Query,
  members: readonly Member[],
  location: string,
): Promise<readonly (() => void)[]> {
  const settle: (() => void)[] = [];
  for (const { work, resolve, reject } of members) {
    await query('SAVEPOINT member');
    try {
      const value = (await work(query)) as never;
      settle.push(() => resolve(value));
    } catch (error) {
      // Then the whole transaction is repeated.
      if (isDisconnected(error) || isConflict(error)) throw error;
      await query('ROLLBACK TO SAVEPOINT member');
      settle.push(() => reject(storeError(error, location)));
    }
    await query('RELEASE SAVEPOINT member');
  }
  return settle;
}

async function readOn<T>(query: Query, work: (query: Query) => Promise<T>, isAtOnce: boolean): Promise<T> {
  try {
    if (!isAtOnce) return await work(query);
  } catch (error) {
    if (!(error instanceof TreadleError)) throw error;
  }
  await query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
  try {
    return await work(query);
  } finally {
    await query('ROLLBACK');
  }
}

/** The connection was lost while a transaction was committed. */
class UnknownOutcome extends Error {
  override readonly cause: TreadleError;

  constructor(error: unknown, location: string) {
    super('unknown outcome');
    this.cause = new TreadleError(
      'store-failed',
      `The connection to the store ${location} was lost while something was written, so it may have been written or not. Read it again.`,
      { cause: error },
    );
  }
}

/** A name as it is stored. Null, which is equal to nothing, if it cannot be encoded. */
export function bytes(name: string): Buffer | null {
  return name.isWellFormed() ? Buffer.from(name) : null;
}

/** The same for a name that may be absent. */
export function bytesOrNull(name: string | null | undefined): Buffer | null {
  return name === null || name === undefined ? null : bytes(name);
}

export function text(stored: Buffer): string {
  return stored.toString();
}
