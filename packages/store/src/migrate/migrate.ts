import { TreadleError } from '@treadle/core';
import { compareStores, type PartSum } from './compare.ts';
import { copyRequests, copyRuns } from './copy.ts';
import { openPostgresDatabase } from './postgres.ts';
import { openSqliteFile } from './sqlite.ts';
import {
  CONVERSATIONS,
  REQUESTS,
  RUNS,
  TABLES,
  type Copying,
  type OpenedStore,
  type Progress,
  type Row,
} from './tables.ts';

/**
 * Copies everything from a store to another one of either kind.
 *
 * 1. Nobody uses either store meanwhile. The target is marked, so that nobody opens it before it is complete. The source is not
 *    changed, except that a store of an earlier version is migrated.
 * 2. What is copied twice is copied once. So a migration that was killed is repeated from the last position that it has recorded in
 *    the target, with the same source.
 * 3. Runs and requests are copied through the ports of the stores, which encode them in their ways and find damage. Small tables
 *    are copied row by row.
 * 4. At the end, everything is read from both stores and compared, before the mark is removed.
 * 5. Leases are not copied. The next token is higher than those of the source, and than the time in microseconds
 *    (`restoreStore` says why).
 */
export interface MigrateStoreOptions {
  readonly onProgress?: (progress: MigrationProgress) => void;
  /** Stops the migration, which can be continued later. Rejects with the reason. */
  readonly signal?: AbortSignal;
}

export interface MigrationProgress {
  readonly step: 'migrate' | 'verify';
  /** Entries, requests, conversations and rows of other tables. */
  readonly done: number;
  readonly total: number;
}

export interface MigrationReport {
  /** For each part of the stores, the number of rows and the sum, which are the same in both. */
  readonly parts: Readonly<Record<string, PartSum>>;
  /** The migration was begun by another process. */
  readonly isContinued: boolean;
}

/** Copies the store at the URL `from` into an empty one at `to`, which is created if it does not exist. */
export async function migrateStore(
  from: string,
  to: string,
  options: MigrateStoreOptions = {},
): Promise<MigrationReport> {
  const source = await openAs('source', from);
  try {
    const target = await openAs('target', to);
    try {
      return await migrateBetween(source, target, options);
    } finally {
      await target.close();
    }
  } finally {
    await source.close();
  }
}

function openAs(role: 'source' | 'target', url: string): Promise<OpenedStore> {
  const [scheme = '', rest = ''] = /^([a-z]+):(.*)$/s.exec(url)?.slice(1) ?? [];
  if (scheme === 'postgres' || scheme === 'postgresql') return openPostgresDatabase(url, role);
  if (scheme === 'sqlite' && rest !== '' && rest !== ':memory:') return openSqliteFile(rest, role);
  throw new TreadleError(
    'invalid-options',
    `migrateStore: the ${role} must be sqlite:PATH or postgres://HOST/DATABASE.`,
  );
}

async function migrateBetween(
  source: OpenedStore,
  target: OpenedStore,
  { onProgress, signal }: MigrateStoreOptions,
): Promise<MigrationReport> {
  if (source.location === target.location) {
    throw new TreadleError('invalid-options', `${target.location} is the store itself. Name another target.`);
  }
  const isContinued = await begin(source, target);
  const version = await source.rows.version();
  const total = await countRows(source);
  const steps = (step: MigrationProgress['step']): ((count: number) => void) => {
    let done = 0;
    return (count) => {
      done += count;
      onProgress?.({ step, done: Math.min(done, total), total });
      signal?.throwIfAborted();
    };
  };
  await copyParts({ source, target, isContinued, advance: steps('migrate') });
  const parts = await compareStores({ source, target, isContinued, advance: steps('verify') });
  await source.requireUnused();
  if ((await source.rows.version()) !== version) throw changedMeanwhile(source, target);
  await target.filling.complete(Math.max(await source.rows.lastToken(), Date.now() * 1_000));
  return { parts, isContinued };
}

/** Marks the target. Resolves to true if it was marked already, by a migration from the same store. */
async function begin(source: OpenedStore, target: OpenedStore): Promise<boolean> {
  await source.requireUnused();
  const filledFrom = await target.filling.source();
  if (filledFrom !== undefined) {
    await target.requireUnused();
    if (filledFrom === source.location) return true;
    throw new TreadleError(
      'store-locked',
      `The store ${target.location} is being filled from ${filledFrom}, not from ${source.location}. Name that source, or another target.`,
    );
  }
  const used = await firstUsedTable(target);
  if (used !== undefined) {
    throw new TreadleError(
      'store-locked',
      `The store ${target.location} is not empty: it has ${used}. A migration fills only an empty store. Name another target.`,
    );
  }
  await target.filling.begin(source.location);
  try {
    // Somebody may have opened it before it was marked.
    await target.requireUnused();
  } catch (error) {
    await target.filling.cancel();
    throw error;
  }
  return false;
}

const ALL = [RUNS, REQUESTS, CONVERSATIONS, ...TABLES];

async function firstUsedTable({ rows }: OpenedStore): Promise<string | undefined> {
  for (const { name } of ALL) if ((await rows.count(name)) > 0) return name.replaceAll('_', ' ');
  return undefined;
}

async function countRows({ rows }: OpenedStore): Promise<number> {
  let total = 0;
  for (const name of ['entries', ...ALL.map((table) => table.name)]) total += await rows.count(name);
  return total;
}

const ROWS_AT_ONCE = 500;
const CONVERSATIONS_AT_ONCE = 50;

async function copyParts(copying: Copying): Promise<void> {
  const { source, target, advance } = copying;
  const { rows } = target;
  await inBatches(copying, RUNS.name, {
    read: (after) => source.rows.rows(RUNS, after, 100),
    write: (batch) => copyRuns(copying, batch),
    last: (row) => row,
  });
  await inBatches(copying, REQUESTS.name, {
    read: (after) => source.rows.rows(REQUESTS, after, 100),
    write: (batch) => copyRequests(copying, batch),
    last: (row) => row,
  });
  await inBatches(copying, CONVERSATIONS.name, {
    read: (after) => source.rows.conversations(after, CONVERSATIONS_AT_ONCE),
    async write(batch) {
      await rows.insertConversations(batch);
      advance(batch.length);
    },
    last: ({ row }) => row,
  });
  for (const table of TABLES) {
    await inBatches(copying, table.name, {
      read: (after) => source.rows.rows(table, after, ROWS_AT_ONCE),
      async write(batch) {
        await rows.insert(table, batch);
        advance(batch.length);
      },
      last: (row) => Object.fromEntries(table.key.map((name) => [name, row[name]!])),
    });
  }
}

interface Batches<T> {
  readonly read: (after: Row | undefined) => Promise<readonly T[]>;
  readonly write: (batch: readonly T[]) => Promise<void>;
  /** The position of a row. */
  readonly last: (row: T) => Row;
}

/** From the position that is recorded in the target on. */
async function inBatches<T>(
  { target: { filling } }: Copying,
  part: string,
  { read, write, last }: Batches<T>,
): Promise<void> {
  const before = await filling.progress();
  let position: Progress[string] | undefined = before[part];
  while (position !== null) {
    const batch = await read(position);
    await write(batch);
    position = batch.length === 0 ? null : last(batch.at(-1)!);
    await filling.setProgress({ ...before, [part]: position });
  }
}

function changedMeanwhile(source: OpenedStore, target: OpenedStore): TreadleError {
  return new TreadleError(
    'store-locked',
    `Something wrote to the store ${source.location} during the migration. Stop all processes that use it, delete ${target.location}, and begin again.`,
  );
}
