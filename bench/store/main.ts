/**
 * Compares the stores on SQLite and PostgreSQL in one run: appends a second with 1, 100 and 1,000 runs, the latency of a stored
 * response, and how long until another process knows. The PostgreSQL server is that of the tests, on this machine, with `fsync`.
 * `--prune ENTRIES`: instead, how long it takes to delete runs from a store with so many entries.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Lease, Stored } from '@treadle/core';
import { openStore, type Store } from '@treadle/store';
import { messageEntry, startEntry } from '../../test/journal/entries.ts';
import { startPostgres, withClient } from '../../test/store/postgres-server.ts';

const MS = 1_500;
const folder = mkdtempSync(join(tmpdir(), 'treadle-bench-'));
let names = 0;

const quantile = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;

/** Each run appends an entry when the one before is stored. */
async function appends(store: Store, runs: number, until: Stored): Promise<number> {
  const open = await Promise.all(
    Array.from({ length: runs }, async () => {
      const runId = `bench ${names++}`;
      const lease: Lease = await store.acquire(runId);
      await store.append(runId, [startEntry(runId)], lease);
      return { runId, lease };
    }),
  );
  let count = 0;
  const from = performance.now();
  await Promise.all(
    open.map(async ({ runId, lease }) => {
      for (let seq = 1; performance.now() - from < MS; seq++, count++) {
        await store.append(runId, [messageEntry(seq)], lease, until);
      }
    }),
  );
  const rate = (count * 1_000) / (performance.now() - from);
  await Promise.all(open.map(({ lease }) => lease.release()));
  return rate;
}

/** What a server does for a response besides the run: it creates the request, and finishes it. */
async function responses(store: Store): Promise<readonly number[]> {
  const times: number[] = [];
  for (let n = 0; n < 200; n++) {
    const id = `resp ${names++}`;
    const from = performance.now();
    const at = { createdAt: 1, updatedAt: 1 };
    await store.requests.create({
      id,
      kind: 'response',
      tenant: 't',
      runId: id,
      status: 'in_progress',
      ...at,
      request: {},
    });
    await store.requests.finish(id, { status: 'completed', response: {}, at: 2 });
    times.push(performance.now() - from);
  }
  return times;
}

/** Two stores, as two processes have: they share only the database. */
async function following(writer: Store, reader: Store): Promise<readonly number[]> {
  const times: number[] = [];
  const stream = `stream ${names++}`;
  let told: (() => void) | undefined;
  const stop = reader.watch(stream, () => told?.());
  await writer.streams.append(stream, 1, [{}]);
  for (let n = 2; n < 60; n++) {
    await new Promise((resolve) => setTimeout(resolve, 130 * Math.random()));
    const { promise, resolve } = Promise.withResolvers<void>();
    told = async () => {
      if ((await reader.streams.last(stream)) >= n) resolve();
    };
    await writer.streams.append(stream, n, [{}]);
    const from = performance.now();
    await promise;
    times.push(performance.now() - from);
  }
  stop();
  return times;
}

async function compare(urls: Readonly<Record<string, string>>): Promise<void> {
  const stores = await Promise.all(
    Object.entries(urls).map(async ([name, url]) => [name, await openStore(url), await openStore(url)] as const),
  );
  const line = (what: string, values: readonly string[]): void => console.log(`| ${what} | ${values.join(' | ')} |`);
  line(
    '',
    stores.map(([name]) => name),
  );
  line(
    '---',
    stores.map(() => '---:'),
  );
  for (const runs of [1, 100, 1_000]) {
    for (const until of ['durable', 'written'] as const) {
      const best = stores.map(() => 0);
      // In turns, because other work disturbs one more than the other.
      for (let round = 0; round < 3; round++) {
        for (const [index, [, store]] of stores.entries()) {
          best[index] = Math.max(best[index]!, await appends(store, runs, until));
        }
      }
      line(
        `${runs} runs, ${until}`,
        best.map((rate) => Math.round(rate).toLocaleString('en')),
      );
    }
  }
  const cells = async (measure: (a: Store, b: Store) => Promise<readonly number[]>): Promise<readonly string[]> => {
    const found: string[] = [];
    for (const [, a, b] of stores) {
      const times = await measure(a, b);
      found.push(`${quantile(times, 0.5).toFixed(1)} (${quantile(times, 0.95).toFixed(1)})`);
    }
    return found;
  };
  line('a response is stored, ms (p95)', await cells(responses));
  line('another process knows, ms (p95)', await cells(following));
  await Promise.all(stores.flatMap(([, a, b]) => [a.close(), b.close()]));
}

const RUN_ENTRIES = 20;

/** Fills the tables with SQL: writing so many entries takes long. All runs have ended, at times one after the other. */
async function prune(url: string, entries: number): Promise<void> {
  const runs = Math.round(entries / RUN_ENTRIES);
  const store = await openStore(url);
  const from = performance.now();
  await withClient(url, async (client) => {
    await client.query(`SET synchronous_commit = off; SET work_mem = '256MB';
      INSERT INTO treadle.heads (run, entries, updated_at) SELECT convert_to('run ' || n, 'UTF8'), ${RUN_ENTRIES}, n FROM generate_series(1, ${runs}) AS n;
      INSERT INTO treadle.runs (id, run, status, started_at, ended_at, model, title, folded_title, is_child)
        SELECT id, run, 'completed', updated_at, updated_at, '', '', '', false FROM treadle.heads ORDER BY id;
      INSERT INTO treadle.entries SELECT h.id, s, repeat('x', 200), 0, 200 FROM treadle.heads h, generate_series(0, ${RUN_ENTRIES - 1}) AS s ORDER BY h.id, s;`);
    await client.query('ANALYZE');
  });
  console.log(`filled ${entries} entries in ${Math.round((performance.now() - from) / 1_000)} s`);
  for (let part = 1; part <= 5; part++) {
    const start = performance.now();
    const pruned = await store.prune(part * 2_000);
    const ms = performance.now() - start;
    console.log(
      `pruned ${pruned} runs with ${pruned * RUN_ENTRIES} entries in ${Math.round(ms)} ms: ${Math.round((pruned * RUN_ENTRIES * 1_000) / ms)} entries a second`,
    );
  }
  const idle = await appends(store, 100, 'durable');
  const pruning = store.prune(60_000);
  const busy = await appends(store, 100, 'durable');
  console.log(
    `appends a second with 100 runs: ${Math.round(idle)} alone, ${Math.round(busy)} while ${await pruning} runs are pruned`,
  );
  await store.close();
}

{
  await using server = await startPostgres({ settings: ['shared_buffers=256MB', 'max_wal_size=4GB'] });
  const entries = process.argv[2] === '--prune' ? Number(process.argv[3] ?? 10_000_000) : 0;
  if (entries > 0) await prune(server.url(), entries);
  else await compare({ SQLite: `sqlite:${join(folder, 'bench.db')}`, PostgreSQL: server.url() });
}
rmSync(folder, { recursive: true });
