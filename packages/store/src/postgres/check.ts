import {
  checkContent,
  entriesWithoutRun,
  textUseLost,
  type Found,
  type ProgressOptions,
  type StoreReport,
} from '../check.ts';
import { bytes, openConnections, text } from './connection.ts';
import { postgresRows } from './rows.ts';
import { postgresStore } from './store.ts';

/**
 * Reads everything that a store in PostgreSQL contains, and replays each run, as `checkStore` does with a file. It does not check
 * the files of the database: `pg_amcheck` and the checksums of PostgreSQL do.
 */
export async function checkPostgresStore(url: string, options: ProgressOptions = {}): Promise<StoreReport> {
  const store = await postgresStore(url);
  const db = await openConnections({ url, connections: 1, retryMs: 10_000 });
  const find: Find = <Row>(statement: string, values: readonly unknown[] = []) =>
    db.read(async (query) => (await query<Row>(statement, values)).rows);
  const found: Found = { runs: 0, entries: 0, snapshots: 0, blobs: 0, responses: 0, problems: [] };
  try {
    await checkContent({
      ...options,
      store,
      found,
      content: {
        readable: async (read) => read(),
        runNames: async () =>
          (await find<{ readonly run: Buffer }>('SELECT run FROM treadle.heads WHERE entries > 0')).map(({ run }) =>
            text(run),
          ),
        requests: async () =>
          (
            await find<Readonly<Record<'response' | 'tenant', Buffer>>>('SELECT response, tenant FROM treadle.requests')
          ).map(({ response, tenant }) => ({ id: text(response), tenant: text(tenant) })),
        hasSnapshot: async (runId) =>
          (
            await find('SELECT 1 FROM treadle.runs r JOIN treadle.snapshots s ON s.run = r.id WHERE r.run = $1', [
              bytes(runId),
            ])
          ).length > 0,
        rows: postgresRows(db).rows,
        async checkRest() {
          for await (const rows of pages<{ readonly run: number; readonly is_orphan: boolean }>(find, ORPHANS)) {
            options.signal?.throwIfAborted();
            for (const row of rows) if (row.is_orphan) found.problems.push(entriesWithoutRun(row.run));
          }
          const lost = new Set<string>();
          for (const user of TEXT_USERS) {
            for await (const rows of pages<{ readonly lost: readonly string[] }>(find, usesOf(user))) {
              options.signal?.throwIfAborted();
              for (const id of rows.flatMap((row) => row.lost)) lost.add(id);
            }
          }
          for (const id of lost) found.problems.push(textUseLost(id));
        },
      },
    });
    return found;
  } finally {
    await db.close();
    await store.close();
  }
}

type Find = <Row>(statement: string, values?: readonly unknown[]) => Promise<readonly Row[]>;

/** A statement for the rows after a position, which is in the columns of `key`. */
interface Paged {
  readonly key: readonly string[];
  readonly statement: string;
}

/** In pages, because no statement may take long. */
async function* pages<Row>(find: Find, { key, statement }: Paged): AsyncGenerator<readonly Row[]> {
  for (let after: readonly number[] = key.map(() => -1); ;) {
    const rows = await find<Row & Readonly<Record<string, number>>>(statement, after);
    const last = rows.at(-1);
    if (!last) return;
    yield rows;
    after = key.map((name) => last[name]!);
  }
}

const ROWS_AT_ONCE = 1_000;

const ORPHANS: Paged = {
  key: ['run'],
  statement: `SELECT run, NOT EXISTS (SELECT 1 FROM treadle.heads h WHERE h.id = r.run) AS is_orphan
    FROM (SELECT DISTINCT run FROM treadle.entries WHERE run > $1 ORDER BY run LIMIT ${ROWS_AT_ONCE}) r ORDER BY run`,
};

/** The columns that contain long texts. `kind`: as in `text_uses`. `key`: the number of the user first. */
const TEXT_USERS = [
  { kind: 1, table: 'entries', key: ['run', 'seq'], json: 'entry' },
  { kind: 2, table: 'messages', key: ['id'], json: 'text' },
  { kind: 3, table: 'requests', key: ['id'], json: 'request' },
  { kind: 3, table: 'requests', key: ['id'], json: 'answer' },
] as const;

/** The texts whose uses are not recorded. Users that are deleted meanwhile are gone together with their uses. */
function usesOf({ kind, table, key, json }: (typeof TEXT_USERS)[number]): Paged {
  const columns = key.join(', ');
  return {
    key,
    statement: `SELECT ${columns}, ARRAY(
        SELECT m[1] FROM regexp_matches(${json}, chr(1) || '([^' || chr(1) || ']*)' || chr(1), 'g') AS m
        WHERE NOT EXISTS (SELECT 1 FROM treadle.text_uses u
          WHERE u.kind = ${kind} AND u.user_id = t.${key[0]} AND u.text = decode(m[1], 'base64'))) AS lost
      FROM treadle.${table} t WHERE (${columns}) > (${key.map((_, index) => `$${index + 1}`).join(', ')})
      ORDER BY ${columns} LIMIT ${ROWS_AT_ONCE}`,
  };
}
