import { checkContent, entriesWithoutRun, type Found, type ProgressOptions, type StoreReport } from '../check.ts';
import { bytes, openConnections, text } from './connection.ts';
import { postgresStore } from './store.ts';

/**
 * Reads everything that a store in PostgreSQL contains, and replays each run, as `checkStore` does with a file. It does not check
 * the files of the database: `pg_amcheck` and the checksums of PostgreSQL do.
 */
export async function checkPostgresStore(url: string, options: ProgressOptions = {}): Promise<StoreReport> {
  const store = await postgresStore(url);
  const db = await openConnections({ url, connections: 1, retryMs: 10_000 });
  const find = <Row>(statement: string, values: readonly unknown[] = []): Promise<readonly Row[]> =>
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
        async checkRest() {
          const orphans = await find<{ readonly run: number }>(
            'SELECT DISTINCT run FROM treadle.entries e WHERE NOT EXISTS (SELECT 1 FROM treadle.heads h WHERE h.id = e.run)',
          );
          for (const { run } of orphans) found.problems.push(entriesWithoutRun(run));
        },
      },
    });
    return found;
  } finally {
    await db.close();
    await store.close();
  }
}
