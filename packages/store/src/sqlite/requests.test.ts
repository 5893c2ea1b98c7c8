import { createBudgetTables } from './budgets.ts';
import { VERSION } from './database.ts';
import type { JournalEntry } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';
import { remote } from '../../test/remote.ts';
import { response } from '../../test/responses.ts';
import { thisProcess } from '../holder.ts';

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });
const DONE = { status: 'completed', response: { output: ['Four.'] }, at: 2_000 } as const;

/** The first entry of a child run, or of a fork. */
function startedFor(
  runId: string,
  status?: JournalEntry['status'],
  origin: object = { effect: 't1.tool.0' },
): JournalEntry {
  const event = { type: 'run-started', at: 1_000, model: 'm', input: [], parent: { runId, ...origin } };
  return { ...entry(0, '', status), event: event as unknown as JournalEntry['event'] };
}

test('of two calls that finish a response without waiting, the first one does', async () => {
  await using temp = tempStore();
  const { requests: responses } = temp.open();
  await responses.create(response('resp'));
  const paused = { ...DONE, status: 'requires_action' };
  const both = [responses.finish('resp', paused), responses.finish('resp', DONE)];
  expect(await Promise.all(both)).toEqual([true, false]);
});

test('calls that are not awaited are performed in their order', async () => {
  await using temp = tempStore();
  const { requests: responses } = temp.open();
  await responses.create(response('resp'));
  const settled = await Promise.all([responses.delete('acme', 'resp'), responses.finish('resp', DONE)]);
  expect(settled).toEqual([true, false]);
});

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

describe('invalid input', () => {
  const circle: Record<string, unknown> = {};
  circle['self'] = circle;

  test('every method of a closed store rejects with an error that says so', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.close();
    const { requests: responses } = store;
    const message = `The store ${temp.file} is closed. Open it again.`;
    for (const call of [
      () => responses.create(response('resp')),
      () => responses.finish('resp', DONE),
      () => responses.get('acme', 'resp'),
      () => responses.delete('acme', 'resp'),
      () => responses.unfinished(),
      () => responses.prune(Infinity),
      () => responses.hasRun('resp'),
    ]) {
      await expect(call()).rejects.toEqual(code('store-failed'));
      await expect(call()).rejects.toThrow(message);
    }
  });
});

describe('a response and its run', () => {
  test('are deleted together, with the child runs and all that is stored for them', async () => {
    await using temp = tempStore();
    const store = temp.open();
    for (const id of ['resp', 'other']) {
      await store.requests.create(response(id));
      await store.append(id, entries(3));
      await store.append(`${id}.t1.tool.0`, [startedFor(id)]);
      await store.append(`${id}.t1.tool.0.t2.tool.1`, [startedFor(`${id}.t1.tool.0`)]);
      await store.append(`${id}.what-if`, [startedFor(id, undefined, { seq: 0 })]);
      await store.writeSnapshot(id, { seq: 1, state: {} });
      await store.blobs.put(`${id}.t1.tool.0`, `long of ${id}`);
    }
    expect(await store.requests.delete('acme', 'resp')).toBe(true);
    expect(await store.requests.delete('acme', 'resp')).toBe(false);
    expect(await store.requests.get('acme', 'resp')).toBeUndefined();
    expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual([
      'other',
      'other.t1.tool.0',
      'other.t1.tool.0.t2.tool.1',
      'other.what-if',
      'resp.what-if',
    ]);
    const count = (table: string): unknown => temp.raw().prepare(`SELECT count(*) AS n FROM ${table}`).get();
    for (const table of ['requests', 'snapshots', 'blobs', 'blob_parts', 'blob_runs']) {
      expect(count(table)).toEqual({ n: 1 });
    }
  });

  test.each(['delete', 'prune'] as const)(
    'are deleted without forks by %s, whatever the forks are called',
    async (how) => {
      await using temp = tempStore();
      const store = temp.open();
      const forked = (runId: string): JournalEntry => {
        const first = startedFor(runId, 'completed');
        return { ...first, event: { ...first.event, parent: { runId, seq: 0 } } as JournalEntry['event'] };
      };
      await store.requests.create(response('resp', { status: 'completed' }));
      await store.append('resp', [entry(0, '', 'completed')]);
      await store.append('resp.t1', [forked('resp')]);
      await store.append('resp.t1.t2.tool.0', [startedFor('resp.t1', 'completed')]);
      await store.append('resp.t1.tool.0', [startedFor('resp', 'completed')]);
      await store.append('resp.t1.tool.0.what-if', [forked('resp.t1.tool.0')]);
      temp.raw().exec(`UPDATE entries SET entry = '{' WHERE run = (SELECT id FROM runs WHERE run = 'resp.t1.tool.0')`);
      if (how === 'delete') expect(await store.requests.delete('acme', 'resp')).toBe(true);
      else expect(await store.requests.prune(Infinity)).toBe(1);
      const remaining = (await store.list()).map(({ runId }) => runId);
      expect(remaining.toSorted()).toEqual(['resp.t1', 'resp.t1.t2.tool.0', 'resp.t1.tool.0.what-if']);
    },
  );

  test('can be deleted when their driver is dead', async () => {
    await using temp = tempStore();
    const dead = temp.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1 } });
    const store = temp.open();
    for (const id of ['one', 'two']) {
      await dead.requests.create(response(id, { status: 'failed' }));
      await dead.append(id, [entry(0)], await dead.acquire(id));
    }
    expect(await store.requests.delete('acme', 'one')).toBe(true);
    expect(await store.requests.prune(Infinity)).toBe(1);
    expect(await store.list()).toEqual([]);
    expect(temp.raw().prepare('SELECT * FROM leases').all()).toEqual([]);
  });

  test('are not deleted partially when the deletion fails', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.requests.create(response('resp'));
    await store.append('resp', entries(3));
    const raw = temp.raw();
    raw.exec(`CREATE TRIGGER fail BEFORE DELETE ON requests BEGIN SELECT raise(ABORT, 'not now'); END`);
    await expect(store.requests.delete('acme', 'resp')).rejects.toEqual(code('store-failed'));
    expect(await store.read('resp')).toHaveLength(3);
    raw.exec('DROP TRIGGER fail');
    expect(await store.requests.delete('acme', 'resp')).toBe(true);
    expect(await store.read('resp')).toEqual([]);
  });
});

describe('prune', () => {
  test('deletes more than one batch and skips driven responses', async () => {
    await using temp = tempStore();
    const store = temp.open();
    const ids = Array.from({ length: 250 }, (_, i) => `resp ${i}`);
    await Promise.all(ids.map((id) => store.requests.create(response(id, { status: 'completed' }))));
    for (const id of ids.slice(0, 120)) await store.acquire(id);
    expect(await store.requests.prune(5_000)).toBe(130);
    expect(temp.raw().prepare('SELECT count(*) AS n FROM requests').get()).toEqual({ n: 120 });
  });

  test('compares the time of the last update, independent of the clock of the store', async () => {
    await using temp = tempStore();
    const store = temp.open({ clock: manualClock(9_999_999) });
    await store.requests.create(response('resp'));
    await store.append('resp', [entry(0, '', 'completed')]);
    await store.requests.finish('resp', { ...DONE, at: 7_000 });
    expect(await store.requests.prune(7_000)).toBe(0);
    expect(await store.requests.prune(7_001)).toBe(1);
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

describe('an idempotency key', () => {
  const key = { key: 'k', digest: 'sha', expiresAt: 5_000 };

  test('of several processes that create a response with it at the same time, one does', async () => {
    await using temp = tempStore();
    await using processes = new AsyncDisposableStack();
    const remotes = await Promise.all(Array.from({ length: 4 }, async () => processes.use(await remote(temp.file))));
    for (let round = 0; round < 10; round++) {
      const created = await Promise.allSettled(
        remotes.map(({ requests }, index) =>
          requests.create(response(`${round}.${index}`), { ...key, key: `k${round}` }),
        ),
      );
      expect(created.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
      const refused = created.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
      expect(refused).toEqual([code('run-exists'), code('run-exists'), code('run-exists')]);
    }
    expect(await temp.open().requests.unfinished()).toHaveLength(10);
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
            ALTER TABLE conversations DROP COLUMN instructions; DROP TABLE kept_processes;
            DROP TABLE budget_definitions; DROP TABLE budget_usage; DROP TABLE reservations;
            DROP INDEX runs_by_session; DROP INDEX runs_by_task; ALTER TABLE runs DROP COLUMN session;
            ALTER TABLE runs DROP COLUMN task; ALTER TABLE runs DROP COLUMN labels;
            PRAGMA user_version = ${VERSION - 5}`);
  createBudgetTables(raw);
  const store = temp.open();
  const found = await Promise.all(kinds.map(([id]) => store.requests.head('acme', id)));
  expect(found.map((head) => [head?.id, head?.kind])).toEqual(kinds);
});
