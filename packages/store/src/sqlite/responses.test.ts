import type { JournalEntry } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { place } from '../../test/place.ts';
import { remote } from '../../test/remote.ts';
import { response } from '../../test/responses.ts';
import { thisProcess } from '../holder.ts';
import type { ResponseRecord } from '../responses.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });
const DONE = { status: 'completed', response: { output: ['Four.'] }, at: 2_000 } as const;

/** The first entry of a run that works for a call of another, or of a fork. */
function startedFor(parent: string, status?: JournalEntry['status']): JournalEntry {
  const event = { type: 'run-started', at: 1_000, model: 'm', input: [], parent: { runId: parent } };
  return { ...entry(0, '', status), event: event as unknown as JournalEntry['event'] };
}

describe('what was stored', () => {
  test('comes out as it went in', async () => {
    await using at = place();
    const { responses } = at.open();
    const record = response('resp', { previous: 'before', runId: 'another name', updatedAt: 1_500.25 });
    await responses.create(record);
    expect(await responses.get('acme', 'resp')).toStrictEqual(record);
    expect(await responses.finish('resp', DONE)).toBe(true);
    const finished = { ...record, status: 'completed', updatedAt: 2_000, response: { output: ['Four.'] } };
    expect(await responses.get('acme', 'resp')).toStrictEqual(finished);
  });

  test('is there when it is opened again', async () => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('one'));
    await store.responses.create(response('two'));
    await store.responses.finish('two', { ...DONE, status: 'requires_action' });
    await store.close();
    const { responses } = at.open();
    expect(await responses.unfinished()).toEqual([response('one')]);
    expect(await responses.get('acme', 'two')).toMatchObject({ status: 'requires_action', response: DONE.response });
  });

  test('is what it was when it was given', async () => {
    await using at = place();
    const { responses } = at.open();
    const request = { input: ['a'] };
    const created = responses.create(response('resp', { request }));
    request.input.push('b');
    await created;
    expect(await responses.get('acme', 'resp')).toMatchObject({ request: { input: ['a'] } });
  });

  test.each([
    ['megabytes', { text: 'é💡'.repeat(4_000_000) }],
    ['halves of characters and zeros', { text: '\ud800 \0 \udfff', '\ud83d': '\0' }],
    ['nothing', null],
    ['a text', ''],
    ['false', false],
    ['much nesting', Array.from({ length: 1_000 }).reduce<unknown>((inner) => [inner], 1)],
    ['names that objects have', JSON.parse('{"__proto__": {"x": 1}, "constructor": 2}')],
  ])('may be %s', async (_, json) => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp', { request: json }));
    await store.responses.finish('resp', { ...DONE, response: json });
    await store.close();
    const found = await at.open().responses.get('acme', 'resp');
    expect(JSON.stringify([found!.request, found!.response]) === JSON.stringify([json, json])).toBe(true);
  });

  test('may be finished more than once: the last word counts', async () => {
    await using at = place();
    const { responses } = at.open();
    await responses.create(response('resp'));
    await responses.finish('resp', { ...DONE, status: 'requires_action' });
    await responses.finish('resp', { status: 'cancelled', response: { output: [] }, at: 3_000 });
    expect(await responses.get('acme', 'resp')).toEqual({
      ...response('resp'),
      status: 'cancelled',
      updatedAt: 3_000,
      response: { output: [] },
    });
  });

  test('can have been finished from the beginning', async () => {
    await using at = place();
    const { responses } = at.open();
    const record = response('resp', { status: 'failed', response: { error: 'x' } });
    await responses.create(record);
    expect(await responses.get('acme', 'resp')).toEqual(record);
    expect(await responses.unfinished()).toEqual([]);
  });

  test('that is damaged says so, keeps no other from being found, and can be deleted', async () => {
    await using at = place();
    const { responses } = at.open();
    for (const id of ['one', 'two', 'three']) await responses.create(response(id));
    await responses.finish('three', DONE);
    at.raw().exec(`UPDATE responses SET request = replace(request, 'asked', 'baked') WHERE response = 'one';
                   UPDATE responses SET answer = '{' WHERE response = 'three'`);
    for (const id of ['one', 'three']) {
      await expect(responses.get('acme', id)).rejects.toEqual(code('store-failed'));
      await expect(responses.get('acme', id)).rejects.toThrow(
        `Response "${id}" is damaged. Bring it back from a backup, or delete it; other responses are not affected.`,
      );
      // Not even that, to somebody else.
      expect(await responses.get('other', id)).toBeUndefined();
    }
    expect(await responses.unfinished()).toEqual([response('two')]);
    expect(await responses.delete('acme', 'one')).toBe(true);
    expect(await responses.get('acme', 'one')).toBeUndefined();
  });
});

describe('what is not there', () => {
  test('is not found, not finished, and not deleted', async () => {
    await using at = place();
    const { responses } = at.open();
    expect(await responses.get('acme', 'resp')).toBeUndefined();
    expect(await responses.finish('resp', DONE)).toBe(false);
    expect(await responses.delete('acme', 'resp')).toBe(false);
    expect(await responses.unfinished()).toEqual([]);
    expect(await responses.prune(Infinity)).toBe(0);
    expect(await responses.get('acme', 'resp')).toBeUndefined();
  });

  test('for one tenant is there for another', async () => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp', { tenant: 'acme' }));
    await store.append('resp', [entry(0, '', 'completed')]);
    for (const tenant of ['other', 'ACME', 'acme ', 'acm', 'acme\0', '', '%', '\ud800']) {
      expect(await store.responses.get(tenant, 'resp')).toBeUndefined();
      expect(await store.responses.delete(tenant, 'resp')).toBe(false);
    }
    expect(await store.responses.get('acme', 'resp')).toBeDefined();
    expect(await store.read('resp')).toHaveLength(1);
  });

  test('is not made anew by a late end', async () => {
    await using at = place();
    const { responses } = at.open();
    await responses.create(response('resp'));
    const settled = await Promise.all([responses.delete('acme', 'resp'), responses.finish('resp', DONE)]);
    expect(settled).toEqual([true, false]);
    expect(await responses.get('acme', 'resp')).toBeUndefined();
  });
});

describe('duplicates', () => {
  test('of an id are refused, also another tenant\u2019s, and change nothing', async () => {
    await using at = place();
    const { responses } = at.open();
    const both = [responses.create(response('resp')), responses.create(response('resp', { runId: 'b' }))];
    expect(await Promise.allSettled(both)).toMatchObject([
      { status: 'fulfilled' },
      { status: 'rejected', reason: { code: 'run-exists' } },
    ]);
    const other = response('resp', { tenant: 'other', request: 'stolen' });
    await expect(responses.create(other)).rejects.toThrow(
      'There is a response "resp" already, so nothing was written. Choose another id.',
    );
    expect(await responses.get('acme', 'resp')).toEqual(response('resp'));
    expect(await responses.get('other', 'resp')).toBeUndefined();
  });

  test('of a run are refused: it would go with either', async () => {
    await using at = place();
    const { responses } = at.open();
    await responses.create(response('one', { runId: 'run' }));
    const second = responses.create(response('two', { runId: 'run' }));
    await expect(second).rejects.toEqual(code('run-exists'));
    await expect(second).rejects.toThrow('Run "run" is that of another response, so nothing was written.');
    expect(await responses.get('acme', 'two')).toBeUndefined();
  });

  test('are none once the first is deleted', async () => {
    await using at = place();
    const { responses } = at.open();
    await responses.create(response('resp'));
    await responses.delete('acme', 'resp');
    await responses.create(response('resp', { tenant: 'other' }));
    expect(await responses.get('acme', 'resp')).toBeUndefined();
    expect(await responses.get('other', 'resp')).toBeDefined();
  });
});

describe('bad input', () => {
  const circle: Record<string, unknown> = {};
  circle['self'] = circle;

  test.each([
    ['id', ''],
    ['id', 'half \ud800'],
    ['id', 7],
    ['tenant', ''],
    ['tenant', undefined],
    ['tenant', '\udfff'],
    ['runId', null],
    ['status', ''],
    ['previous', ''],
    ['previous', {}],
    ['createdAt', Number.NaN],
    ['updatedAt', Infinity],
    ['updatedAt', '2026'],
    ['request', undefined],
    ['request', circle],
    ['request', { count: 1n }],
    ['request', () => 1],
    ['response', circle],
  ])('%s cannot be %o', async (field, value) => {
    await using at = place();
    const { responses } = at.open();
    const created = responses.create({ ...response('resp'), [field]: value } as ResponseRecord);
    await expect(created).rejects.toEqual(code('invalid-input'));
    await expect(created).rejects.toThrow(`The ${field} of a response`);
    expect(await responses.unfinished()).toEqual([]);
  });

  test.each([
    [{ status: 'in_progress' }, 'A response that is "in_progress" is not finished. Say how it ended.'],
    [{ status: '' }, 'The status of a response has to be a text'],
    [{ at: Number.NaN }, 'The at of a response has to be a time in milliseconds.'],
    [{ response: undefined }, 'The response of a response cannot be written as JSON'],
    [{ response: circle }, 'The response of a response cannot be written as JSON: Converting circular structure'],
  ])('a response cannot end with %o', async (wrong, words) => {
    await using at = place();
    const { responses } = at.open();
    await responses.create(response('resp'));
    const finished = responses.finish('resp', { ...DONE, ...wrong });
    await expect(finished).rejects.toEqual(code('invalid-input'));
    await expect(finished).rejects.toThrow(words);
    expect(await responses.get('acme', 'resp')).toEqual(response('resp'));
  });

  test('a store that is closed says so', async () => {
    await using at = place();
    const store = at.open();
    await store.close();
    const { responses } = store;
    const words = `The store ${at.file} is closed. Open it again.`;
    for (const asked of [
      () => responses.create(response('resp')),
      () => responses.finish('resp', DONE),
      () => responses.get('acme', 'resp'),
      () => responses.delete('acme', 'resp'),
      () => responses.unfinished(),
      () => responses.prune(Infinity),
      () => responses.hasRun('resp'),
    ]) {
      await expect(asked()).rejects.toEqual(code('store-failed'));
      await expect(asked()).rejects.toThrow(words);
    }
  });
});

test('the unfinished ones come oldest first, of all tenants', async () => {
  await using at = place();
  const { responses } = at.open();
  const records = [
    response('late', { createdAt: 3 }),
    response('early', { createdAt: 1, tenant: 'other' }),
    response('done', { createdAt: 2 }),
    response('late too', { createdAt: 3 }),
  ];
  for (const record of records) await responses.create(record);
  await responses.finish('done', DONE);
  expect((await responses.unfinished()).map(({ id }) => id)).toEqual(['early', 'late', 'late too']);
});

describe('a response and its run', () => {
  test('are deleted together, with the runs that work for it and all that is kept for them', async () => {
    await using at = place();
    const store = at.open();
    for (const id of ['resp', 'other']) {
      await store.responses.create(response(id));
      await store.append(id, entries(3));
      await store.append(`${id}.t1.tool.0`, [startedFor(id)]);
      await store.append(`${id}.t1.tool.0.t2.tool.1`, [startedFor(`${id}.t1.tool.0`)]);
      await store.append(`fork of ${id}`, [startedFor(id)]);
      await store.writeSnapshot(id, { seq: 1, state: {} });
      await store.blobs.put(`${id}.t1.tool.0`, `long of ${id}`);
    }
    expect(await store.responses.delete('acme', 'resp')).toBe(true);
    expect(await store.responses.delete('acme', 'resp')).toBe(false);
    expect(await store.responses.get('acme', 'resp')).toBeUndefined();
    expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual([
      'fork of other',
      'fork of resp',
      'other',
      'other.t1.tool.0',
      'other.t1.tool.0.t2.tool.1',
    ]);
    const count = (table: string): unknown => at.raw().prepare(`SELECT count(*) AS n FROM ${table}`).get();
    for (const table of ['responses', 'snapshots', 'blobs', 'blob_parts', 'blob_runs']) {
      expect(count(table)).toEqual({ n: 1 });
    }
  });

  test('go together also when it is the run that is deleted', async () => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp', { runId: 'run' }));
    await store.append('run', entries(1));
    expect(await store.responses.hasRun('run')).toBe(true);
    expect(await store.delete('run')).toBe(true);
    expect(await store.responses.get('acme', 'resp')).toBeUndefined();
    expect(await store.responses.hasRun('run')).toBe(false);
  });

  test('need not both be there: the run may not have begun', async () => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp'));
    expect(await store.delete('resp')).toBe(false);
    expect(await store.responses.get('acme', 'resp')).toBeDefined();
    expect(await store.responses.delete('acme', 'resp')).toBe(true);
  });

  test.each([
    ['that is driven', 'resp', true],
    ['that somebody is about to begin', 'resp', false],
    ['whose helper is driven', 'resp.t1.tool.0', true],
  ])('%s stay', async (_, driven, begun) => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp', { status: 'cancelled' }));
    if (begun) {
      await store.append('resp', [entry(0, '', 'completed')]);
      await store.append('resp.t1.tool.0', [startedFor('resp', 'completed')]);
    }
    const before = await store.list();
    const lease = await store.acquire(driven);
    await expect(store.responses.delete('acme', 'resp')).rejects.toEqual(code('run-driven'));
    await expect(store.responses.delete('acme', 'resp')).rejects.toThrow(`Run "${driven}" is driven by process`);
    expect(await store.responses.prune(Infinity)).toBe(0);
    expect(await store.responses.get('acme', 'resp')).toBeDefined();
    expect(await store.list()).toEqual(before);
    // Its driver notices nothing.
    await store.append(driven, [entry(begun ? 1 : 0, '', 'completed')], lease);
    await lease.release();
    expect(await store.responses.delete('acme', 'resp')).toBe(true);
    expect(await store.list()).toEqual([]);
  });

  test('can be deleted when their driver is dead', async () => {
    await using at = place();
    const dead = at.open({ holder: { ...thisProcess(), pid: 2 ** 22 + 1 } });
    const store = at.open();
    for (const id of ['one', 'two']) {
      await dead.responses.create(response(id, { status: 'failed' }));
      await dead.append(id, [entry(0)], await dead.acquire(id));
    }
    expect(await store.responses.delete('acme', 'one')).toBe(true);
    expect(await store.responses.prune(Infinity)).toBe(1);
    expect(await store.list()).toEqual([]);
    expect(at.raw().prepare('SELECT * FROM leases').all()).toEqual([]);
  });

  test('that cannot be deleted as a whole are not deleted in part', async () => {
    await using at = place();
    const store = at.open();
    await store.responses.create(response('resp'));
    await store.append('resp', entries(3));
    const raw = at.raw();
    raw.exec(`CREATE TRIGGER fail BEFORE DELETE ON responses BEGIN SELECT raise(ABORT, 'not now'); END`);
    await expect(store.responses.delete('acme', 'resp')).rejects.toEqual(code('store-failed'));
    expect(await store.read('resp')).toHaveLength(3);
    raw.exec('DROP TRIGGER fail');
    expect(await store.responses.delete('acme', 'resp')).toBe(true);
    expect(await store.read('resp')).toEqual([]);
  });
});

describe('prune', () => {
  test('removes what was finished before, whatever its end, with its run', async () => {
    await using at = place();
    const store = at.open();
    const statuses = ['completed', 'incomplete', 'failed', 'cancelled', 'requires_action', 'in_progress'];
    for (const status of statuses) {
      for (const [age, updatedAt] of Object.entries({ old: 1_999, new: 2_000 })) {
        await store.responses.create(response(`${status} ${age}`, { status, updatedAt }));
        const run = status === 'requires_action' ? 'paused' : status === 'in_progress' ? undefined : 'completed';
        await store.append(`${status} ${age}`, [entry(0, '', run)]);
      }
    }
    expect(await store.responses.prune(2_000)).toBe(5);
    expect(await store.responses.prune(2_000)).toBe(0);
    const left = [...statuses.map((status) => `${status} new`), 'in_progress old'];
    expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual(left.toSorted());
    for (const id of left) expect(await store.responses.get('acme', id)).toBeDefined();
    expect(await store.responses.get('acme', 'completed old')).toBeUndefined();
  });

  test('removes more than fits into one go, past what has to stay', async () => {
    await using at = place();
    const store = at.open();
    const ids = Array.from({ length: 250 }, (_, i) => `resp ${i}`);
    await Promise.all(ids.map((id) => store.responses.create(response(id, { status: 'completed' }))));
    for (const id of ids.slice(0, 120)) await store.acquire(id);
    expect(await store.responses.prune(5_000)).toBe(130);
    expect(at.raw().prepare('SELECT count(*) AS n FROM responses').get()).toEqual({ n: 120 });
  });

  test('of runs leaves those of responses, however old, and those of nobody go', async () => {
    await using at = place();
    const store = at.open();
    const ids = Array.from({ length: 150 }, (_, i) => `resp ${i}`);
    await Promise.all(ids.map((id) => store.responses.create(response(id, { status: 'completed' }))));
    await Promise.all([...ids, 'plain'].map((id) => store.append(id, [entry(0, '', 'completed')])));
    await store.append('resp 0.t1.tool.0', [startedFor('resp 0', 'completed')]);
    // Who continues a response needs its run, not those that worked for it.
    expect(await store.prune(Infinity)).toBe(2);
    expect((await store.list({ limit: Infinity })).map(({ runId }) => runId).toSorted()).toEqual(ids.toSorted());
    expect(await store.responses.prune(Infinity)).toBe(150);
    expect(await store.list()).toEqual([]);
  });

  test('goes by when a response was last touched, on any clock', async () => {
    await using at = place();
    const store = at.open({ clock: manualClock(9_999_999) });
    await store.responses.create(response('resp'));
    await store.append('resp', [entry(0, '', 'completed')]);
    await store.responses.finish('resp', { ...DONE, at: 7_000 });
    expect(await store.responses.prune(7_000)).toBe(0);
    expect(await store.responses.prune(7_001)).toBe(1);
  });
});

describe('another process', () => {
  test('sees what this one has stored, and the other way round', async () => {
    await using at = place();
    const store = at.open();
    await using other = await remote(at.file);
    await store.responses.create(response('here'));
    await other.responses.create(response('there', { tenant: 'other' }));
    expect(await other.responses.get('acme', 'here')).toEqual(response('here'));
    expect(await other.responses.get('other', 'here')).toBeUndefined();
    expect((await store.responses.unfinished()).map(({ id }) => id)).toEqual(['here', 'there']);
    expect(await other.responses.finish('here', DONE)).toBe(true);
    expect(await store.responses.get('acme', 'here')).toMatchObject({ status: 'completed', updatedAt: 2_000 });
    await expect(other.responses.create(response('here'))).rejects.toEqual(code('run-exists'));
    expect(await store.responses.delete('other', 'there')).toBe(true);
    expect(await other.responses.finish('there', DONE)).toBe(false);
  });

  test('cannot take what this one drives, nor create the same at the same moment', async () => {
    await using at = place();
    const store = at.open();
    await using other = await remote(at.file);
    await store.responses.create(response('resp', { status: 'cancelled' }));
    const lease = await store.acquire('resp');
    await expect(other.responses.delete('acme', 'resp')).rejects.toEqual(code('run-driven'));
    expect(await other.responses.prune(5_000)).toBe(0);
    await lease.release();
    expect(await other.responses.delete('acme', 'resp')).toBe(true);
    for (let round = 0; round < 20; round++) {
      const both = [store, other].map(({ responses }) => responses.create(response(`round ${round}`)));
      const settled = await Promise.allSettled(both);
      expect(settled.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    }
  });

  test('that is killed has lost nothing that it was told is stored', async () => {
    await using at = place();
    await using other = await remote(at.file);
    await other.responses.create(response('resp'));
    const token = await other.acquire('resp');
    await other.append('resp', entries(2), token);
    await other.responses.create(response('done', { previous: 'resp' }));
    await other.responses.finish('done', { ...DONE, status: 'requires_action' });
    await other.kill();
    const store = at.open();
    expect(await store.responses.unfinished()).toEqual([response('resp')]);
    expect(await store.responses.get('acme', 'done')).toMatchObject({
      status: 'requires_action',
      previous: 'resp',
      response: DONE.response,
    });
    // Whoever takes it over can go on with its run, and say how it ended.
    const lease = await store.acquire('resp');
    await store.append('resp', [entry(2)], lease);
    expect(await store.responses.finish('resp', DONE)).toBe(true);
  });

  test('that is killed in the middle leaves whole responses', async () => {
    await using at = place();
    await using other = await remote(at.file);
    const request = { text: 'x'.repeat(20_000) };
    const told: string[] = [];
    const enough = Promise.withResolvers<void>();
    let killed = false;
    const asked = Array.from({ length: 300 }, async (_, i) => {
      const id = `resp ${i}`;
      await other.responses.create(response(id, { request, createdAt: i }));
      told.push(id);
      if (killed) return;
      await other.responses.finish(id, DONE);
      told.push(`${id} done`);
      if (told.length >= 60) enough.resolve();
    });
    const settled = Promise.allSettled(asked);
    await enough.promise;
    killed = true;
    await other.kill();
    await settled;
    const { responses } = at.open();
    for (const what of told) {
      const id = what.replace(' done', '');
      const found = await responses.get('acme', id);
      expect(found).toMatchObject({ id, request });
      if (what !== id) expect(found).toMatchObject({ status: 'completed', response: DONE.response });
    }
    for (const { request: kept } of await responses.unfinished()) expect(kept).toEqual(request);
    expect(at.raw().prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' });
  });
});

test('responses share transactions with runs, and one that is refused spoils nothing', async () => {
  await using at = place();
  const store = at.open();
  await store.responses.create(response('resp'));
  const settled = await Promise.allSettled([
    store.append('resp', [entry(0)]),
    store.responses.create(response('resp')),
    store.responses.create(response('other')),
    store.responses.finish('resp', DONE),
  ]);
  expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
  expect(await store.responses.get('acme', 'resp')).toMatchObject({ status: 'completed' });
  expect(await store.responses.get('acme', 'other')).toBeDefined();
});
