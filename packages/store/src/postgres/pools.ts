import { TreadleError } from '@treadle/core';
import type * as PgModule from 'pg';
import { openBegun } from '../records/begun.ts';
import { isDisconnected, isOverloaded } from './failure.ts';

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

/** The connections of a `Database`, with its rules 3 to 5. */
export interface Pools {
  readonly location: string;
  /** Uses a connection, which is closed if it was lost. */
  readonly use: <T>(work: (query: Query) => Promise<T>) => Promise<T>;
  readonly urgent: Query;
  readonly isDirect: () => boolean | undefined;
  readonly connectAlone: (options?: { readonly isPatient?: boolean }) => Promise<PgModule.Client>;
  readonly isClosed: () => boolean;
  /** Whoever uses a connection finishes before. */
  readonly close: () => Promise<void>;
}

/** Longer than any statement takes. */
const STATEMENT_MS = 60_000;
const LEAST_CONNECT_MS = 1_000;
/** A process that is frozen inside of a transaction must not hold its locks for long. */
const IDLE_IN_TRANSACTION_MS = 10_000;
export async function openPools(options: DatabaseOptions): Promise<Pools> {
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

  /** Those that have begun are performed before the store is closed: the pool forgets who waits for a connection. */
  const begun = openBegun();

  /** `work` returns a connection to the pool; one that failed is closed. */
  async function use<T>(work: (query: Query) => Promise<T>): Promise<T> {
    if (isClosed) throw new TreadleError('store-failed', `The store ${location} is closed. Open it again.`);
    const client = await pool.connect();
    let failure: unknown;
    try {
      return await work(queryOn(client));
    } catch (error) {
      failure = error;
      throw error;
    } finally {
      client.release(failure !== undefined && isDisconnected(failure));
    }
  }

  return {
    location,
    use: (work) => begun.add(use(work)),
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
    isClosed: () => isClosed,
    async close() {
      isClosed = true;
      await begun.settled();
      await Promise.all([pool.end(), urgentPool.end()]);
      pulse.close();
    },
  };
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
