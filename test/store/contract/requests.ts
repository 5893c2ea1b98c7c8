import type { JournalEntry } from '@treadle/core';
import { describe, expect, test, vi } from 'vitest';
import { entries, entry, response } from '../entries.ts';
import { DEAD, type TempStores } from './temp-stores.ts';
import type { RequestRecord, Store } from '@treadle/store';

export function requestsContract(tempStore: () => Promise<TempStores>): void {
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

  describe('a stored response', () => {
    test('is read unchanged', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const record = response('resp', { previous: 'before', runId: 'another name', updatedAt: 1_500.25 });
      await responses.create(record);
      expect(await responses.get('acme', 'resp')).toStrictEqual(record);
      expect(await responses.finish('resp', DONE)).toBe(true);
      const finished = { ...record, status: 'completed', updatedAt: 2_000, response: { output: ['Four.'] } };
      expect(await responses.get('acme', 'resp')).toStrictEqual(finished);
    });

    test('has a head without request and response, for its own tenant', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp', { runId: 'another name' }));
      await responses.finish('resp', DONE);
      const head = { id: 'resp', kind: 'response', runId: 'another name', status: 'completed', updatedAt: 2_000 };
      expect(await responses.head('acme', 'resp')).toStrictEqual(head);
      expect(await responses.head('other', 'resp')).toBeUndefined();
      expect(await responses.head('acme', 'missing')).toBeUndefined();
    });

    test('is still there when the store is reopened', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('one'));
      await store.requests.create(response('two'));
      await store.requests.finish('two', { ...DONE, status: 'requires_action' });
      await store.close();
      const { requests: responses } = await temp.open();
      expect(await responses.unfinished()).toEqual([
        { id: 'one', kind: 'response', tenant: 'acme', runId: response('one').runId },
      ]);
      expect(await responses.get('acme', 'two')).toMatchObject({ status: 'requires_action', response: DONE.response });
    });

    test('does not change when the caller changes the request later', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const request = { input: ['a'] };
      const created = responses.create(response('resp', { request }));
      request.input.push('b');
      await created;
      expect(await responses.get('acme', 'resp')).toMatchObject({ request: { input: ['a'] } });
    });

    test.each([
      ['megabytes', { text: 'é💡'.repeat(400_000) }],
      ['unpaired surrogates and NUL characters', { text: '\ud800 \0 \udfff', '\ud83d': '\0' }],
      ['null', null],
      ['an empty string', ''],
      ['false', false],
      ['deeply nested arrays', Array.from({ length: 1_000 }).reduce<unknown>((inner) => [inner], 1)],
      ['property names of Object.prototype', JSON.parse('{"__proto__": {"x": 1}, "constructor": 2}')],
    ])('can contain %s', async (_, json) => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp', { request: json }));
      await store.requests.finish('resp', { ...DONE, response: json });
      await store.close();
      const found = await (await temp.open()).requests.get('acme', 'resp');
      expect(JSON.stringify([found!.request, found!.response]) === JSON.stringify([json, json])).toBe(true);
    });

    test('is finished once: a later call changes nothing unless it names the current status', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'));
      const paused = { ...DONE, status: 'requires_action' };
      const cancelled = { status: 'cancelled', response: { output: [] }, at: 3_000 };
      expect(await Promise.all([responses.finish('resp', paused), responses.finish('resp', DONE)])).toEqual([
        true,
        false,
      ]);
      expect(await responses.finish('resp', { ...cancelled, from: 'completed' })).toBe(false);
      const stored = { ...response('resp'), status: 'requires_action', updatedAt: 2_000, response: DONE.response };
      expect(await responses.get('acme', 'resp')).toEqual(stored);
      expect(await responses.finish('resp', { ...cancelled, from: 'requires_action' })).toBe(true);
      const last = { status: 'cancelled', updatedAt: 3_000, response: { output: [] } };
      expect(await responses.get('acme', 'resp')).toEqual({ ...stored, ...last });
    });

    test('can be created as finished', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const record = response('resp', { status: 'failed', response: { error: 'x' } });
      await responses.create(record);
      expect(await responses.get('acme', 'resp')).toEqual(record);
      expect(await responses.unfinished()).toEqual([]);
    });
  });

  describe('a missing response', () => {
    test('cannot be read, finished or deleted', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      expect(await responses.get('acme', 'resp')).toBeUndefined();
      expect(await responses.finish('resp', DONE)).toBe(false);
      expect(await responses.delete('acme', 'resp')).toBe(false);
      expect(await responses.unfinished()).toEqual([]);
      expect(await responses.prune(Infinity)).toBe(0);
      expect(await responses.get('acme', 'resp')).toBeUndefined();
    });

    test('is also one of another tenant', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp', { tenant: 'acme' }));
      await store.append('resp', [entry(0, '', 'completed')]);
      for (const tenant of ['other', 'ACME', 'acme ', 'acm', 'acme\0', '', '%', '\ud800']) {
        expect(await store.requests.get(tenant, 'resp')).toBeUndefined();
        expect(await store.requests.delete(tenant, 'resp')).toBe(false);
      }
      expect(await store.requests.get('acme', 'resp')).toBeDefined();
      expect(await store.read('resp')).toHaveLength(1);
    });

    test('is not created by a late finish', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'));
      expect(await responses.delete('acme', 'resp')).toBe(true);
      expect(await responses.finish('resp', DONE)).toBe(false);
      expect(await responses.get('acme', 'resp')).toBeUndefined();
    });
  });

  describe('duplicates', () => {
    test('of an id are rejected, also for another tenant, and change nothing', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const both = [responses.create(response('resp')), responses.create(response('resp', { runId: 'b' }))];
      expect(await Promise.allSettled(both)).toMatchObject([
        { status: 'fulfilled' },
        { status: 'rejected', reason: { code: 'run-exists' } },
      ]);
      const other = response('resp', { tenant: 'other', request: 'stolen' });
      await expect(responses.create(other)).rejects.toThrow(
        'A response "resp" already exists, so nothing was written. Choose another id.',
      );
      expect(await responses.get('acme', 'resp')).toEqual(response('resp'));
      expect(await responses.get('other', 'resp')).toBeUndefined();
    });

    test('of a run are rejected', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('one', { runId: 'run' }));
      const second = responses.create(response('two', { runId: 'run' }));
      await expect(second).rejects.toEqual(code('run-exists'));
      await expect(second).rejects.toThrow('Run "run" belongs to another response, so nothing was written.');
      expect(await responses.get('acme', 'two')).toBeUndefined();
    });

    test('of an id are allowed once the first response is deleted', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'));
      await responses.delete('acme', 'resp');
      await responses.create(response('resp', { tenant: 'other' }));
      expect(await responses.get('acme', 'resp')).toBeUndefined();
      expect(await responses.get('other', 'resp')).toBeDefined();
    });
  });

  describe('invalid input', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;

    test.each([
      ['id', ''],
      ['id', 'unpaired \ud800'],
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
    ])('create rejects the %s %o', async (field, value) => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const created = responses.create({ ...response('resp'), [field]: value } as RequestRecord);
      await expect(created).rejects.toEqual(code('invalid-input'));
      await expect(created).rejects.toThrow(`The ${field} of a response`);
      expect(await responses.unfinished()).toEqual([]);
    });

    test.each([
      [{ status: 'in_progress' }, 'The status of a finished response cannot be "in_progress".'],
      [{ status: '' }, 'The status of a response must be a non-empty string'],
      [{ from: '' }, 'The from of a response must be a non-empty string'],
      [{ at: Number.NaN }, 'The at of a response must be a time in milliseconds.'],
      [{ response: undefined }, 'The response of a response cannot be written as JSON'],
      [{ response: circle }, 'The response of a response cannot be written as JSON: Converting circular structure'],
    ])('finish rejects %o', async (wrong, message) => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'));
      const finished = responses.finish('resp', { ...DONE, ...wrong });
      await expect(finished).rejects.toEqual(code('invalid-input'));
      await expect(finished).rejects.toThrow(message);
      expect(await responses.get('acme', 'resp')).toEqual(response('resp'));
    });
  });

  const undrivenIds = async ({ requests }: Store, now = 5_000): Promise<readonly string[]> =>
    (await requests.undriven(now)).map(({ id }) => id);

  test('a response that waits for answers needs no driver until its run has another entry', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    for (const id of ['waits', 'crashed']) {
      await store.requests.create(response(id));
      await store.append(response(id).runId, [entry(0), entry(1, '', 'paused')]);
    }
    await store.requests.markWaiting('waits');
    await store.requests.markWaiting('unknown');
    expect(await undrivenIds(store)).toEqual(['crashed']);
    expect((await store.requests.unfinished()).map(({ id }) => id)).toEqual(['waits', 'crashed']);
    // It was answered, and paused again when its process died.
    await store.append(response('waits').runId, [entry(2, '', 'paused')]);
    expect(await undrivenIds(store)).toEqual(['waits', 'crashed']);
  });

  test('a response needs a driver unless its run has one, here or elsewhere, that lives', async () => {
    await using temp = await tempStore();
    const [here, other] = [await temp.open(), await temp.open()];
    const dead = await temp.open({ holder: DEAD });
    for (const id of ['here', 'other', 'dead', 'free']) await here.requests.create(response(id));
    const { runId } = response('here');
    const lease = await here.acquire(runId);
    await other.acquire(response('other').runId);
    await dead.acquire(response('dead').runId);
    for (const store of [here, other]) expect(await undrivenIds(store)).toEqual(['dead', 'free']);
    await here.append(runId, [entry(0)], lease);
    expect(await undrivenIds(other)).toEqual(['dead', 'free']);
    await lease.release();
    expect(await undrivenIds(other)).toEqual(['here', 'dead', 'free']);
  });

  test('a response whose run sleeps needs a driver when its time has come', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.requests.create(response('sleeps'));
    await store.append(response('sleeps').runId, [entry(0), { ...entry(1, '', 'paused'), wakeAt: 5_000 }]);
    expect(await undrivenIds(store, 4_999)).toEqual([]);
    expect(await undrivenIds(store, 5_000)).toEqual(['sleeps']);
  });

  test('unfinished lists the responses in progress of all tenants, oldest first', async () => {
    await using temp = await tempStore();
    const { requests: responses } = await temp.open();
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
    test('are deleted together when the run is deleted', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp', { runId: 'run' }));
      await store.append('run', entries(1));
      expect(await store.requests.hasRun('run')).toBe(true);
      expect(await store.delete('run')).toBe(true);
      expect(await store.requests.get('acme', 'resp')).toBeUndefined();
      expect(await store.requests.hasRun('run')).toBe(false);
    });

    test('can be deleted before the run has started', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp'));
      expect(await store.delete('resp')).toBe(false);
      expect(await store.requests.get('acme', 'resp')).toBeDefined();
      expect(await store.requests.delete('acme', 'resp')).toBe(true);
    });

    test.each([
      ['whose run is driven', 'resp', true],
      ['whose run is acquired but not started', 'resp', false],
      ['whose child run is driven', 'resp.t1.tool.0', true],
    ])('%s are not deleted', async (_, driven, started) => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp', { status: 'cancelled' }));
      if (started) {
        await store.append('resp', [entry(0, '', 'completed')]);
        await store.append('resp.t1.tool.0', [startedFor('resp', 'completed')]);
      }
      const before = await store.list();
      const lease = await store.acquire(driven);
      await expect(store.requests.delete('acme', 'resp')).rejects.toEqual(code('run-driven'));
      await expect(store.requests.delete('acme', 'resp')).rejects.toThrow(`Run "${driven}" is driven by process`);
      expect(await store.requests.prune(Infinity)).toBe(0);
      expect(await store.requests.get('acme', 'resp')).toBeDefined();
      expect(await store.list()).toEqual(before);
      // The driver is not affected.
      await store.append(driven, [entry(started ? 1 : 0, '', 'completed')], lease);
      await lease.release();
      expect(await store.requests.delete('acme', 'resp')).toBe(true);
      expect(await store.list()).toEqual([]);
    });
  });

  describe('prune', () => {
    test('deletes finished responses of any status that are old enough, with their runs', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const statuses = ['completed', 'incomplete', 'failed', 'cancelled', 'requires_action', 'in_progress'];
      for (const status of statuses) {
        for (const [age, updatedAt] of Object.entries({ old: 1_999, new: 2_000 })) {
          await store.requests.create(response(`${status} ${age}`, { status, updatedAt }));
          const run = status === 'requires_action' ? 'paused' : status === 'in_progress' ? undefined : 'completed';
          await store.append(`${status} ${age}`, [entry(0, '', run)]);
        }
      }
      expect(await store.requests.prune(2_000)).toBe(5);
      expect(await store.requests.prune(2_000)).toBe(0);
      const remaining = [...statuses.map((status) => `${status} new`), 'in_progress old'];
      expect((await store.list()).map(({ runId }) => runId).toSorted()).toEqual(remaining.toSorted());
      for (const id of remaining) expect(await store.requests.get('acme', id)).toBeDefined();
      expect(await store.requests.get('acme', 'completed old')).toBeUndefined();
    });

    test('of runs skips runs of responses and deletes the others', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const ids = Array.from({ length: 150 }, (_, i) => `resp ${i}`);
      await Promise.all(ids.map((id) => store.requests.create(response(id, { status: 'completed' }))));
      await Promise.all([...ids, 'plain'].map((id) => store.append(id, [entry(0, '', 'completed')])));
      await store.append('resp 0.t1.tool.0', [startedFor('resp 0', 'completed')]);
      // Continuing a response needs its run, but not the child runs.
      expect(await store.prune(Infinity)).toBe(2);
      expect((await store.list({ limit: Infinity })).map(({ runId }) => runId).toSorted()).toEqual(ids.toSorted());
      expect(await store.requests.prune(Infinity)).toBe(150);
      expect(await store.list()).toEqual([]);
    });
  });

  test('responses share transactions with runs, and a rejected one does not affect the others', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.requests.create(response('resp'));
    const settled = await Promise.allSettled([
      store.append('resp', [entry(0)]),
      store.requests.create(response('resp')),
      store.requests.create(response('other')),
      store.requests.finish('resp', DONE),
    ]);
    expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(await store.requests.get('acme', 'resp')).toMatchObject({ status: 'completed' });
    expect(await store.requests.get('acme', 'other')).toBeDefined();
  });

  describe('an idempotency key', () => {
    const key = { key: 'k', digest: 'sha', expiresAt: 5_000 };

    test('finds the response that was created with it, for its tenant, until it expires', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.requests.create(response('resp'), key);
      await store.close();
      const { requests: responses } = await temp.open();
      expect(await responses.findKey('acme', 'k', 4_999)).toEqual({ digest: 'sha', response: 'resp' });
      expect(await responses.findKey('acme', 'k', 5_000)).toBeUndefined();
      expect(await responses.findKey('other', 'k', 1_000)).toBeUndefined();
      expect(await responses.findKey('acme', 'K', 1_000)).toBeUndefined();
      expect(await responses.findKey('acme', 'k\ud800', 1_000)).toBeUndefined();
    });

    test('cannot be used for a second response, which is then not created', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('one'), key);
      await expect(responses.create(response('two'), key)).rejects.toEqual(code('run-exists'));
      expect(await responses.get('acme', 'two')).toBeUndefined();
      await responses.create(response('other tenant', { tenant: 'other' }), key);
      await responses.create(response('other key'), { ...key, key: 'l' });
      await responses.create(response('later', { createdAt: 5_000 }), { ...key, expiresAt: 9_000 });
      expect(await responses.findKey('acme', 'k', 5_000)).toEqual({ digest: 'sha', response: 'later' });
    });

    test('outlives its response', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'), key);
      await responses.delete('acme', 'resp');
      expect(await responses.findKey('acme', 'k', 1_000)).toEqual({ digest: 'sha', response: 'resp' });
      await expect(responses.create(response('again'), key)).rejects.toEqual(code('run-exists'));
    });

    test('can be used again if the end of the response releases it', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('resp'), key);
      expect(await responses.finish('resp', { ...DONE, from: 'other', releaseKey: true })).toBe(false);
      expect(await responses.findKey('acme', 'k', 1_000)).toBeDefined();
      expect(await responses.finish('resp', { ...DONE, releaseKey: true })).toBe(true);
      expect(await responses.findKey('acme', 'k', 1_000)).toBeUndefined();
      await responses.create(response('again'), key);
    });

    test('is deleted when it has expired, with the responses that expire', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      const { requests: responses } = store;
      const keyFor = (name: string): typeof key => ({ ...key, key: name });
      const expiring = { expiresAt: 5_000 };
      await responses.create(response('kept'), keyFor('kept'));
      await responses.create(response('ended', expiring), keyFor('ended'));
      await responses.create(response('driven', expiring), keyFor('driven'));
      await responses.create(response('in progress', expiring), keyFor('in progress'));
      await store.append('ended', entries(2));
      for (const id of ['kept', 'ended', 'driven']) await responses.finish(id, DONE);
      const lease = await store.acquire('driven');
      expect(await responses.get('acme', 'ended')).toMatchObject(expiring);

      expect(await responses.pruneExpired(4_999)).toBe(0);
      expect(await responses.findKey('acme', 'ended', 1_000)).toBeDefined();
      expect(await responses.pruneExpired(5_000)).toBe(1);
      expect(await responses.get('acme', 'ended')).toBeUndefined();
      expect(await store.read('ended')).toEqual([]);
      for (const id of ['kept', 'driven', 'in progress']) expect(await responses.get('acme', id)).toBeDefined();
      for (const id of ['kept', 'ended', 'driven']) expect(await responses.findKey('acme', id, 1_000)).toBeUndefined();
      await lease.release();
      await responses.finish('in progress', DONE);
      expect(await responses.pruneExpired(6_000)).toBe(2);
    });

    test('of several, a response gets all or is not created', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('one'), [key, { ...key, key: 'l' }]);
      await expect(responses.create(response('two'), [{ ...key, key: 'm' }, key])).rejects.toEqual(code('run-exists'));
      expect(await responses.get('acme', 'two')).toBeUndefined();
      expect(await responses.findKey('acme', 'm', 1_000)).toBeUndefined();
      expect(await responses.findKey('acme', 'l', 1_000)).toEqual({ digest: 'sha', response: 'one' });
    });

    test('can belong to a response that is not stored, and be removed', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      const [one, two] = ['one', 'two'].map((id) => ({ id, tenant: 'acme' })) as [
        { id: string; tenant: string },
        never,
      ];
      await responses.addKeys(one, [key], 0);
      await responses.addKeys(one, [key], 0);
      await expect(responses.addKeys(two, [{ ...key, key: 'l' }, key], 0)).rejects.toEqual(code('run-exists'));
      expect(await responses.findKey('acme', 'l', 1_000)).toBeUndefined();
      await responses.removeKeys(two, ['k']);
      expect(await responses.findKey('acme', 'k', 1_000)).toEqual({ digest: 'sha', response: 'one' });
      await responses.removeKeys(one, ['k']);
      await responses.addKeys(two, [key], 0);
    });

    test('does not expire while the response that it is kept with is stored', async () => {
      await using temp = await tempStore();
      const { requests: responses } = await temp.open();
      await responses.create(response('asked', { status: 'completed' }));
      const kept = { ...key, keptWith: 'asked' };
      await responses.create(response('one'), kept);
      await responses.pruneExpired(9_000);
      expect(await responses.findKey('acme', 'k', 9_000)).toBeDefined();
      const later = response('two', { createdAt: 9_000 });
      await expect(responses.create(later, kept)).rejects.toEqual(code('run-exists'));
      await responses.delete('acme', 'asked');
      expect(await responses.findKey('acme', 'k', 9_000)).toBeUndefined();
      await responses.create(later, { ...kept, expiresAt: 9_500 });
    });

    test.each([
      ['an empty key', { ...key, key: '' }],
      ['a key with an unpaired surrogate', { ...key, key: '\ud800' }],
      ['no expiry', { ...key, expiresAt: Number.NaN }],
    ])('is rejected: %s', async (_, invalid) => {
      await using temp = await tempStore();
      await expect((await temp.open()).requests.create(response('resp'), invalid)).rejects.toEqual(
        code('invalid-input'),
      );
    });
  });
}
