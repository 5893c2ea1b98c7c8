import type { RunFilter } from '@treadle/core';
import { expect, test } from 'vitest';
import { entry, response } from './entries.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase } from './shared-postgres.ts';
import { countNotedRuns, type Store } from '@treadle/store';

/*
 * How many rows the statements of a store read, by the statistics of the database. What SQLite reads is in
 * `packages/store/src/sqlite/many-runs.test.ts`.
 */

const STATUSES = ['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'] as const;

/** Rows as appends write them: six runs in turn have each status, and every run has a request, a conversation and a stream. */
const FILL = (count: number): string => `
  INSERT INTO heads (run, entries, updated_at) SELECT convert_to('run ' || n, 'UTF8'), 2, n FROM generate_series(1, ${count}) n;
  INSERT INTO runs (id, run, status, started_at, ended_at, model, title, folded_title, tenant, parent, is_child, wake_at, session, task,
      labels, label_pairs)
    SELECT id, run, (ARRAY['${STATUSES.join("','")}'])[1 + id % 6], updated_at, CASE WHEN id % 6 > 1 THEN updated_at END, 'm', 'Tea', 'tea',
      convert_to('tenant ' || id % 7, 'UTF8'), convert_to('run ' || id - id % 10, 'UTF8'), false, CASE WHEN id % 6 = 1 THEN updated_at END,
      convert_to('session ' || id % 13, 'UTF8'), convert_to('task ' || id % 17, 'UTF8'), '{"team":"1"}',
      ARRAY['\\x7465616dff31'::bytea]
    FROM heads ORDER BY id;
  INSERT INTO entries SELECT h.id, s, '{}', 0, 2 FROM heads h, generate_series(0, 1) s;
  INSERT INTO requests (response, run, kind, tenant, status, created_at, updated_at, expires_at, request, request_crc, answer, answer_crc,
      request_size)
    SELECT convert_to('resp ' || n, 'UTF8'), convert_to('of resp ' || n, 'UTF8'), 'response', 'acme',
      CASE WHEN n > ${count} - 5 THEN 'in_progress'::bytea ELSE 'completed' END, n, n, n, '{}', 0, '{}', 0, 2
    FROM generate_series(1, ${count}) n;
  INSERT INTO idempotency_keys (tenant, key, digest, response, expires_at)
    SELECT 'acme', convert_to('key ' || n, 'UTF8'), 'd', convert_to('resp ' || n, 'UTF8'), 9e12 FROM generate_series(1, ${count}) n;
  INSERT INTO streams (stream, last, updated_at) SELECT convert_to('stream ' || n, 'UTF8'), 1, n FROM generate_series(1, ${count}) n;
  INSERT INTO stream_events (stream, first, last, events, sum) SELECT id, 1, 1, '[{}]', 0 FROM streams;
  INSERT INTO metric_runs (run, counted, target) SELECT run, 2, 2 FROM runs;
  DELETE FROM metric_notes;
  INSERT INTO rates (subject, times, latest) SELECT convert_to('subject ' || n, 'UTF8'), '[]', 9e12 FROM generate_series(1, ${count}) n;
  INSERT INTO quotas (id, state, valid_until) SELECT convert_to('id ' || n, 'UTF8'), '{}', 9e12 FROM generate_series(1, ${count}) n;
  INSERT INTO texts (digest, text) SELECT sha256(run), 'text' FROM runs;
  INSERT INTO text_uses (kind, user_id, text) SELECT 1, id, sha256(run) FROM runs;
  INSERT INTO conversations (conversation, tenant, title, created_at, updated_at, head)
    SELECT convert_to('conv ' || n, 'UTF8'), convert_to('tenant ' || n % 7, 'UTF8'), '', n, 9e12, convert_to('in ' || n, 'UTF8')
    FROM generate_series(1, ${count}) n;
  INSERT INTO memories (memory, tenant, audience, type, run, session, subject, at, owners, words, body)
    SELECT convert_to('memory ' || n, 'UTF8'), convert_to('tenant ' || n % 7, 'UTF8'), '', 'answer', convert_to('run ' || n, 'UTF8'),
      convert_to('session ' || n % 13, 'UTF8'), 'ann', n, 'x' || n % 7, 'word' || n, '{"tags":[]}' FROM generate_series(1, ${count}) n;
  INSERT INTO schedules (tenant, name, definition, state, version)
    SELECT 'acme', convert_to('schedule ' || n, 'UTF8'), '{}', '{}', '1' FROM generate_series(1, ${count}) n;
  INSERT INTO secret_keys (name, key) SELECT convert_to('key ' || n, 'UTF8'), 'k' FROM generate_series(1, ${count}) n;
  INSERT INTO notices (run, seq, status, at, due_at) SELECT run, 1, 'completed', 9e12, 9e12 FROM runs;
  INSERT INTO inbox (run, request, at, is_taken) SELECT run, '{}', treadle.now_ms(), true FROM runs;
`;

async function use(store: Store): Promise<void> {
  const { requests, conversations, streams } = store;
  for (const status of [undefined, ['running'], ['paused', 'failed']] as const) {
    for (const tenant of [undefined, 'tenant 3']) {
      for (const parent of [undefined, 'run 50']) {
        const found = { ...(status && { status }), ...(tenant && { tenant }), ...(parent && { parent }) };
        await store.list({ ...found, before: 400, limit: 3 });
      }
    }
  }
  const facts: readonly RunFilter[] = [
    { session: 'session 4' },
    { task: 'task 9' },
    { runId: 'run 7' },
    { recovered: true },
  ];
  for (const one of facts) await store.list({ ...one, limit: 3 });
  await store.list({ due: { to: 50 }, limit: 3 });
  const lease = await store.acquire('run 61');
  await store.append('run 61', [entry(2, 'x'.repeat(600))], lease);
  await store.writeSnapshot('run 61', { seq: 2, state: {} });
  await store.readSnapshot('run 61');
  await store.blobs.read('run 61', await store.blobs.put('run 61', 'text'), 0, 1);
  await streams.append('stream 9', 2, [{}], lease);
  await lease.release();
  await store.delete('run 61');
  await requests.create(response('new'), { key: 'new', digest: 'd', expiresAt: 9e12 });
  await requests.finish('new', { status: 'completed', response: {}, at: 9e12 });
  await requests.findKey('acme', 'key 7', 1);
  await requests.head('acme', 'resp 7');
  await requests.unfinished();
  await requests.undriven(1);
  await requests.delete('acme', 'new');
  await requests.prune(3);
  await requests.pruneExpired(5);
  await conversations.create({ id: 'c', tenant: 'acme', title: 'Tea', createdAt: 1 });
  await conversations.extend('c', { response: 'resp 30', text: 'Tea for two', at: 2 });
  await conversations.list({ tenant: 'acme', search: 'tea', limit: 3 });
  await conversations.delete('acme', 'c');
  await conversations.prune(1);
  await streams.last('stream 8');
  await streams.delete('stream 8');
  await streams.prune(3);
  await store.prune(20);
  await store.rates.add('subject 3', 1, 1, 5);
  await store.quotas.takeRequests({ id: 'id 3', perMinute: 5, count: 1 });
  await store.metrics.noted(5);
  await store.metrics.waiting();
  const { memory, schedules, notices, inbox } = store;
  await memory.list({ tenant: 'tenant 3', since: 90, until: 120, limit: 5 });
  await memory.put({
    id: 'n',
    type: 'note',
    at: 1,
    content: 'Tea',
    tags: [],
    metadata: {},
    key: 'k',
    scope: 'tenant',
    tenant: 'tenant 3',
  });
  await memory.get({ tenant: 'tenant 3' }, 'n');
  await memory.forget({ tenant: 'tenant 3', id: 'n', until: 9 });
  await memory.forget({ tenant: 'tenant 4', session: 'session 4', until: 200 });
  await countNotedRuns(store, { keepsMemory: true });
  await schedules.add({ tenant: 'acme', name: 'new', definition: {}, state: {} });
  await schedules.get('acme', 'schedule 9');
  await schedules.remove('acme', 'new');
  await store.secretKey('key 9');
  await notices.take({ now: 1, until: 2, limit: 9 });
  const request = await inbox.add('run 9', {});
  await inbox.take(request);
  await inbox.reply(request, {});
}

const COUNT = 4_000;

test('no statement reads a whole table of 4,000 rows', async () => {
  await using database = await testDatabase();
  await withClient(database.url, async (client) => {
    await client.query('SET search_path = treadle');
    await client.query(FILL(COUNT));
    await client.query('ANALYZE');
  });
  await withClient(database.url, (client) => client.query('SELECT pg_stat_reset()'));
  const store = await database.open();
  await use(store);
  await store.close();
  const { rows } = await withClient(database.url, async (client) => {
    // Sessions report what they have read when they end, which is after their connection was closed.
    for (let open = 1; open > 0;) {
      const found = await client.query(
        `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'treadle'`,
      );
      open = found.rowCount!;
    }
    return client.query<{ readonly table: string; readonly read: number }>(
      `SELECT relname AS table, (seq_tup_read + coalesce(idx_tup_fetch, 0))::integer AS read FROM pg_stat_user_tables
       WHERE schemaname = 'treadle'`,
    );
  });
  expect(rows.filter(({ read }) => read > 0).length).toBeGreaterThan(15);
  // All statements together read much less than one whole table.
  expect(rows.filter(({ read }) => read > COUNT / 4)).toEqual([]);
});
