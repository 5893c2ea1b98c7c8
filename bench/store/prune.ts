import { openStore } from '@treadle/store';
import { withClient } from '../../test/store/postgres-server.ts';
import { appends } from './appends.ts';

const RUN_ENTRIES = 20;

/**
 * How long it takes to delete runs from a store with so many entries. Fills the tables with SQL: writing so many entries takes long. All runs have ended,
 * at times one after the other.
 */
export async function prune(url: string, entries: number): Promise<void> {
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
