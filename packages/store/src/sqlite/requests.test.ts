import { createBudgetTables } from './budgets.ts';
import { VERSION } from './database.ts';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { remote } from '../../test/remote.ts';
import { response } from '../../test/responses.ts';

// What holds on every store is in `test/store/contract/request-runs` and `requests.ts`. Here: processes that share a file, damage, and earlier versions.

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });
const DONE = { status: 'completed', response: { output: ['Four.'] }, at: 2_000 } as const;

describe('a stored response', () => {
  test('that is damaged is reported, does not affect others, and can be deleted', async () => {
    await using temp = tempStore();
    const { requests: responses } = temp.open();
    for (const id of ['one', 'two', 'three']) await responses.create(response(id));
    await responses.finish('three', DONE);
    temp.raw().exec(`UPDATE requests SET request = replace(request, 'asked', 'baked') WHERE response = 'one';
                   UPDATE requests SET answer = '{' WHERE response = 'three'`);
    for (const id of ['one', 'three']) {
      await expect(responses.get('acme', id)).rejects.toEqual(code('store-failed'));
      await expect(responses.get('acme', id)).rejects.toThrow(
        `Response "${id}" is damaged. Restore the store from a backup, or delete the response; other responses are not affected.`,
      );
      // Another tenant does not even get the error.
      expect(await responses.get('other', id)).toBeUndefined();
    }
    expect((await responses.unfinished()).map(({ id }) => id)).toEqual(['one', 'two']);
    expect(await responses.delete('acme', 'one')).toBe(true);
    expect(await responses.get('acme', 'one')).toBeUndefined();
  });
});

describe('another process', () => {
  test('shares responses with this one', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    await store.requests.create(response('here'));
    await other.requests.create(response('there', { tenant: 'other' }));
    expect(await other.requests.get('acme', 'here')).toEqual(response('here'));
    expect(await other.requests.get('other', 'here')).toBeUndefined();
    expect((await store.requests.unfinished()).map(({ id }) => id)).toEqual(['here', 'there']);
    expect(await other.requests.finish('here', DONE)).toBe(true);
    expect(await store.requests.get('acme', 'here')).toMatchObject({ status: 'completed', updatedAt: 2_000 });
    await expect(other.requests.create(response('here'))).rejects.toEqual(code('run-exists'));
    expect(await store.requests.delete('other', 'there')).toBe(true);
    expect(await other.requests.finish('there', DONE)).toBe(false);
  });

  test('cannot delete what this one drives, or create the same response at the same moment', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await using other = await remote(temp.file);
    await store.requests.create(response('resp', { status: 'cancelled' }));
    const lease = await store.acquire('resp');
    await expect(other.requests.delete('acme', 'resp')).rejects.toEqual(code('run-driven'));
    expect(await other.requests.prune(5_000)).toBe(0);
    await lease.release();
    expect(await other.requests.delete('acme', 'resp')).toBe(true);
    for (let round = 0; round < 20; round++) {
      const both = [store, other].map(({ requests: responses }) => responses.create(response(`round ${round}`)));
      const settled = await Promise.allSettled(both);
      expect(settled.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    }
  });

  test('that is killed loses nothing that was confirmed', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file);
    await other.requests.create(response('resp'));
    const token = await other.acquire('resp');
    await other.append('resp', entries(2), token);
    await other.requests.create(response('done', { previous: 'resp' }));
    await other.requests.finish('done', { ...DONE, status: 'requires_action' });
    await other.kill();
    const store = temp.open();
    expect((await store.requests.unfinished()).map(({ id }) => id)).toEqual(['resp']);
    expect(await store.requests.get('acme', 'resp')).toEqual(response('resp'));
    expect(await store.requests.get('acme', 'done')).toMatchObject({
      status: 'requires_action',
      previous: 'resp',
      response: DONE.response,
    });
    // Another process can resume the run and finish the response.
    const lease = await store.acquire('resp');
    await store.append('resp', [entry(2)], lease);
    expect(await store.requests.finish('resp', DONE)).toBe(true);
  });

  test('that is killed while writing leaves complete responses', async () => {
    await using temp = tempStore();
    await using other = await remote(temp.file);
    const request = { text: 'x'.repeat(20_000) };
    const confirmed: string[] = [];
    const enough = Promise.withResolvers<void>();
    let killed = false;
    const calls = Array.from({ length: 300 }, async (_, i) => {
      const id = `resp ${i}`;
      await other.requests.create(response(id, { request, createdAt: i }));
      confirmed.push(id);
      if (killed) return;
      await other.requests.finish(id, DONE);
      confirmed.push(`${id} done`);
      if (confirmed.length >= 60) enough.resolve();
    });
    const settled = Promise.allSettled(calls);
    await enough.promise;
    killed = true;
    await other.kill();
    await settled;
    const { requests: responses } = temp.open();
    for (const what of confirmed) {
      const id = what.replace(' done', '');
      const found = await responses.get('acme', id);
      expect(found).toMatchObject({ id, request });
      if (what !== id) expect(found).toMatchObject({ status: 'completed', response: DONE.response });
    }
    for (const { id } of await responses.unfinished()) {
      expect(await responses.get('acme', id)).toMatchObject({ request });
    }
    expect(temp.raw().prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
  });
});

test('requests of earlier versions get the kind that their id tells', async () => {
  await using temp = tempStore();
  const ids = {
    resp_1: 'response',
    keyed_resp_1: 'keyed-response',
    'keyed_chatcmpl-1': 'completion',
    chat_1: 'message',
  };
  const others = { items_1: 'items', mcp_1: 'mcp-call', 'chatcmpl-2': 'turns' };
  const kinds = Object.entries({ ...ids, ...others });
  const before = temp.open();
  for (const [id] of kinds) await before.requests.create(response(id));
  await before.close();
  const raw = temp.raw();
  raw.exec(`ALTER TABLE leases DROP COLUMN place; ALTER TABLE leases DROP COLUMN thread;
            ALTER TABLE requests DROP COLUMN kind; ALTER TABLE requests RENAME TO responses;
            ALTER TABLE conversations DROP COLUMN instructions; DROP TABLE kept_processes; DROP TABLE quotas;
            DROP TRIGGER metric_run_added; DROP TRIGGER metric_run_stopped; DROP TRIGGER metric_run_deleted;
            DROP TABLE memory_words; DROP TABLE memories; DROP TABLE memory_vectors; DROP TABLE memory_forgotten;
            DROP TABLE metric_hours; DROP TABLE metric_runs; DROP TABLE metric_notes; DROP TABLE schedules;
            DROP TABLE budget_definitions; DROP TABLE budget_usage; DROP TABLE reservations;
            DROP INDEX runs_by_session; DROP INDEX runs_by_task; ALTER TABLE runs DROP COLUMN session;
            ALTER TABLE runs DROP COLUMN task; ALTER TABLE runs DROP COLUMN labels;
            PRAGMA user_version = ${VERSION - 9}`);
  createBudgetTables(raw);
  const store = temp.open();
  const found = await Promise.all(kinds.map(([id]) => store.requests.head('acme', id)));
  expect(found.map((head) => [head?.id, head?.kind])).toEqual(kinds);
});
