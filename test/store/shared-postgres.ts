import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { postgresStore, type PostgresOptions, type PostgresStore } from '@treadle/store';
import { withClient } from './postgres-server.ts';

/**
 * The URL of a server that all test files of a run share. The first file that asks starts it, while others run. It ends with the
 * process of the test run.
 */
async function sharedServer(): Promise<string> {
  const owner = process.ppid;
  const folder = path.join(tmpdir(), `treadle-shared-postgres-${owner}`);
  const file = path.join(folder, 'url');
  try {
    mkdirSync(folder);
    const main = fileURLToPath(new URL('./shared-postgres-main.ts', import.meta.url));
    const flags = ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning'];
    spawn(process.execPath, [...flags, main, file, String(owner)], { detached: true, stdio: 'ignore' }).unref();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  // The server tells that it is ready by a file.
  for (;;) {
    try {
      return readFileSync(file, 'utf8');
    } catch {
      await setTimeout(20);
    }
  }
}

/** The URL of a database of a server, by default the shared one, which is created if it does not exist. */
export async function databaseUrl(name: string, server?: string): Promise<string> {
  const url = server ?? (await sharedServer());
  await withClient(url, async (client) => {
    const { rowCount } = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [name]);
    if (rowCount === 0) await client.query(`CREATE DATABASE ${name}`);
  });
  return url.replace(/\/postgres$/, `/${name}`);
}

/** A database of its own for a test file, in which a test can open stores. */
export interface TestDatabase extends AsyncDisposable {
  readonly url: string;
  /** Stores that are still open at the end are closed. */
  readonly open: (options?: PostgresOptions) => Promise<PostgresStore>;
  /** Closes the stores, and removes everything that they have stored. */
  readonly clear: () => Promise<void>;
}

let databases = 0;

/** `server`: the URL of another server than the shared one. */
export async function testDatabase(server?: string): Promise<TestDatabase> {
  const name = `test_${process.pid}_${databases++}`;
  const url = await databaseUrl(name, server);
  // Creates the tables.
  await (await postgresStore(url)).close();
  const opened: PostgresStore[] = [];
  const closeAll = async (): Promise<void> => {
    await Promise.all(opened.splice(0).map((store) => store.close()));
  };
  return {
    url,
    async open(options) {
      const store = await postgresStore(url, { connections: 4, ...options });
      opened.push(store);
      return store;
    },
    async clear() {
      await closeAll();
      await withClient(url, (client) => client.query(CLEAR));
    },
    async [Symbol.asyncDispose]() {
      await closeAll();
      await withClient(server ?? (await sharedServer()), (client) =>
        client.query(`DROP DATABASE ${name} WITH (FORCE)`),
      );
    },
  };
}

/** Deleting the few rows of a test is faster than TRUNCATE. */
const TABLES =
  'entries snapshots text_uses runs requests messages texts heads blob_runs blob_parts blobs idempotency_keys conversation_parts conversations stream_events streams notices inbox kept_processes budget_definitions budget_usage reservations rates secret_keys holders quotas metric_hours metric_runs metric_notes memories memory_vectors memory_forgotten schedules';
const CLEAR = [
  ...TABLES.split(' ').map((table) => `DELETE FROM treadle.${table}`),
  // Tests see these numbers.
  'ALTER SEQUENCE treadle.notices_id_seq RESTART',
].join(';\n');
