import { TreadleError } from '@treadle/core';
import type * as PgModule from 'pg';
import { openBegun } from '../records/begun.ts';
import { isConflict, isDisconnected, isOverloaded, storeError } from './failure.ts';

export interface Rows<Row> {
  readonly rows: readonly Row[];
  /** How many rows were found or changed. */
  readonly count: number;
}

/** Performs a statement. `values` replace `$1`, `$2`, … */
export type Query = <Row = Readonly<Record<string, unknown>>>(
  text: string,
  values?: readonly unknown[],
) => Promise<Rows<Row>>;

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

export interface DatabaseOptions {
  readonly url: string;
  /** How many connections there are at most. */
  readonly connections: number;
  /** How long to retry while the database cannot be reached. */
  readonly retryMs: number;
  /** The time for an urgent statement; default: no limit. */
  readonly urgentMs?: number;
  /** No commit waits for the disk. */
  readonly isVolatile?: boolean;
}

/** Longer than any statement takes. */
const STATEMENT_MS = 60_000;
const LEAST_CONNECT_MS = 1_000;
/** A process that is frozen inside of a transaction must not hold its locks for long. */
const IDLE_IN_TRANSACTION_MS = 10_000;
const MOST_CONFLICTS = 20;

export async function openConnections(options: DatabaseOptions): Promise<Database> {
  const { url, connections, retryMs, urgentMs, isVolatile = false } = options;
  const { default: pg } = await import('pg');
  const location = locationOf(url);
  const types = { getTypeParser: typeParserOf(pg.types) } as unknown as PgModule.CustomTypesConfig;
  const config: PgModule.ClientConfig = {
    connectionString: namedConnections(url),
    types,
    keepAlive: true,
    connectionTimeoutMillis: Math.max(LEAST_CONNECT_MS, retryMs),
    query_timeout: STATEMENT_MS + 5_000,
    application_name: NAME,
  };
  let isDirect: boolean | undefined;
  let isClosed = false;
  const silentMs = Math.max(LEAST_CONNECT_MS, retryMs) / 2;
  const pulse = watchPulse(silentMs, async () => {
    const client = new pg.Client({ ...config, connectionTimeoutMillis: silentMs, query_timeout: silentMs });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.query('SELECT 1');
    } finally {
      void client.end().catch(() => {});
    }
  });
  const names = new Map<string, string>();
  const pool = new pg.Pool({ ...config, max: connections, idleTimeoutMillis: 30_000, onConnect: prepareSession });
  const limits = urgentMs === undefined ? {} : { connectionTimeoutMillis: urgentMs, query_timeout: urgentMs };
  const urgentPool = new pg.Pool({
    ...config,
    ...limits,
    max: 1,
    idleTimeoutMillis: 30_000,
    onConnect: prepareSession,
  });
  for (const one of [pool, urgentPool]) {
    // A lost connection rejects the statement that uses it. Without listeners it would also end the process.
    one.on('error', () => {});
    one.on('connect', (client) => client.on('error', () => {}));
  }

  async function prepareSession(client: PgModule.ClientBase): Promise<void> {
    const { rows } = await pulse.watched(client, () => client.query<SessionRow>(SESSION));
    const [{ pid, waits }] = rows as [SessionRow];
    isDirect = pid === (client as unknown as { readonly processID: number }).processID;
    if (!isDirect) {
      if (!waits) throw notDurable(location);
      return;
    }
    const settings = [
      `statement_timeout = ${STATEMENT_MS}`,
      `idle_in_transaction_session_timeout = ${IDLE_IN_TRANSACTION_MS}`,
      `default_transaction_isolation = 'read committed'`,
      'jit = off',
      ...(waits && !isVolatile ? [] : [`synchronous_commit = ${isVolatile ? 'off' : 'on'}`]),
    ];
    await pulse.watched(client, () => client.query(settings.map((setting) => `SET ${setting}`).join('; ')));
  }

  function nameOf(text: string): string {
    const name = names.get(text) ?? `treadle_${names.size}`;
    names.set(text, name);
    return name;
  }

  function queryOn(client: PgModule.ClientBase): Query {
    return async <Row>(text: string, values?: readonly unknown[]) => {
      // Statements without values may be several, and are rare.
      const statement =
        values === undefined
          ? { text }
          : { text, values: values as unknown[], ...(isDirect && { name: nameOf(text) }) };
      const { rows, rowCount } = await pulse.watched(client, () => client.query(statement as PgModule.QueryConfig));
      return { rows: rows as Row[], count: rowCount ?? 0 };
    };
  }

  async function connect(): Promise<PgModule.PoolClient> {
    if (isClosed) throw new TreadleError('store-failed', `The store ${location} is closed. Open it again.`);
    return pool.connect();
  }

  /** Those that have begun are performed before the store is closed: the pool forgets who waits for a connection. */
  const begun = openBegun();

  function withClient<T>(work: (client: PgModule.PoolClient) => Promise<T>): Promise<T> {
    return begun.add(useClient(work));
  }

  /** `work` returns a connection to the pool; one that failed is closed. */
  async function useClient<T>(work: (client: PgModule.PoolClient) => Promise<T>): Promise<T> {
    const client = await connect();
    let failure: unknown;
    try {
      return await work(client);
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      client.release(failure !== undefined && isDisconnected(failure));
    }
  }

  async function retried<T>(attempt: () => Promise<T>): Promise<T> {
    const until = performance.now() + retryMs;
    let conflicts = 0;
    for (let pause = 10; ; pause = Math.min(2 * pause, 500)) {
      try {
        return await attempt();
      } catch (error) {
        const isOver = isClosed || error instanceof UnknownOutcome || error instanceof TreadleError;
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
    return withClient(async (client) => {
      const query = queryOn(client);
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

  async function readOn<T>(
    client: PgModule.PoolClient,
    work: (query: Query) => Promise<T>,
    isAtOnce: boolean,
  ): Promise<T> {
    const query = queryOn(client);
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

  /** The last transaction that was asked for in this tick of the event loop. */
  let last: Promise<unknown> | undefined;

  function inOrder<T>(perform: () => Promise<T>): Promise<T> {
    if (!last) queueMicrotask(() => (last = undefined));
    const performed = last ? last.then(perform) : perform();
    last = performed.catch(() => {});
    return performed;
  }

  const database: Database = {
    location,
    read: (work, { isAtOnce = false } = {}) => retried(() => withClient((client) => readOn(client, work, isAtOnce))),
    write: (work, until = 'durable', unknown?) => inOrder(() => retried(() => transaction(work, until, unknown))),
    once: (text, values = []) => withClient((client) => queryOn(client)(text, values)) as Promise<never>,
    async urgent<Row>(text: string, values: readonly unknown[] = []) {
      const client = await urgentPool.connect();
      let isFailed = true;
      try {
        const rows = await queryOn(client)<Row>(text, values);
        isFailed = false;
        return rows;
      } finally {
        // After a time limit its state is not known.
        client.release(isFailed);
      }
    },
    isDirect: () => isDirect,
    async connectAlone({ isPatient = false } = {}) {
      const client = new pg.Client(isPatient ? { ...config, query_timeout: 0 } : config);
      client.on('error', () => {});
      await client.connect();
      return client;
    },
    async close() {
      isClosed = true;
      await begun.settled();
      await Promise.all([pool.end(), urgentPool.end()]);
      pulse.close();
    },
  };
  try {
    // Reports at once what is wrong with the address.
    await withClient((client) => queryOn(client)('SELECT 1'));
  } catch (error) {
    await database.close();
    throw storeError(error, location);
  }
  return database;
}

interface SessionRow {
  readonly pid: number;
  readonly waits: boolean;
}

const SESSION = `SELECT pg_backend_pid() AS pid, current_setting('synchronous_commit') <> 'off' AS waits`;

function notDurable(location: string): TreadleError {
  return new TreadleError(
    'store-failed',
    `The store ${location} cannot be opened: by default, commits of its database do not wait for the disk, and behind a pooler that cannot be changed for a session. Change it: "ALTER ROLE USER SET synchronous_commit = on".`,
  );
}

interface Pulse {
  /** Performs a statement of a connection. */
  readonly watched: <T>(client: PgModule.ClientBase, statement: () => Promise<T>) => Promise<T>;
  readonly close: () => void;
}

/** Closes connections whose statements have taken longer than `ms`, if `ask` finds that the database does not answer. */
function watchPulse(ms: number, ask: () => Promise<void>): Pulse {
  const waiting = new Map<PgModule.ClientBase, number>();
  let timer: NodeJS.Timeout | undefined;
  let isAsking = false;

  const late = (): readonly PgModule.ClientBase[] =>
    [...waiting].filter(([, since]) => performance.now() - since > ms).map(([client]) => client);

  async function check(): Promise<void> {
    if (isAsking || late().length === 0) return;
    isAsking = true;
    const suspects = late();
    try {
      await ask();
    } catch (error) {
      // One that refuses connections because it has too many answers.
      if (isDisconnected(error) && !isOverloaded(error)) {
        for (const client of suspects) if (waiting.has(client)) void (client as PgModule.Client).end().catch(() => {});
      }
    }
    isAsking = false;
  }

  return {
    async watched(client, statement) {
      waiting.set(client, performance.now());
      timer ??= setInterval(() => void check(), ms / 2).unref();
      try {
        return await statement();
      } finally {
        waiting.delete(client);
      }
    },
    close: () => clearInterval(timer),
  };
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

/** Whole numbers of 8 bytes are numbers: those of a store are small enough. */
function typeParserOf(types: typeof PgModule.types): (oid: number, format?: string) => unknown {
  return (oid, format) =>
    oid === types.builtins.INT8
      ? Number
      : (types.getTypeParser as (...args: readonly unknown[]) => unknown)(oid, format);
}

/** By the beginning of their names, `treadle store migrate` finds the connections of all who use a store. */
const NAME = 'treadle';

function namedConnections(given: string): string {
  const url = new URL(given);
  const name = url.searchParams.get('application_name');
  if (name === null || name.startsWith(NAME)) return given;
  url.searchParams.set('application_name', `${NAME} ${name}`);
  return url.href;
}

/** The URL without the password. */
function locationOf(url: string): string {
  if (!URL.canParse(url)) {
    throw new TreadleError(
      'invalid-options',
      'The URL of a store in PostgreSQL must be postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters escaped as in %40.',
    );
  }
  const { protocol, username, host, pathname } = new URL(url);
  return `${protocol}//${username === '' ? '' : `${username}@`}${host}${pathname}`;
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
