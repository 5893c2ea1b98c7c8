import { userText, type Parent, type RunStore } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { messageEntry, startEntry } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** Run ids; listing, deleting and pruning runs. */
export function runsContract(subject: Subject): void {
  describe('a run id', () => {
    const odd = ['', ' ', '\0', 'a\0', 'a\0b', '\ufffd', 'a\ufffd', 'é', 'e\u0301', '💡', '\ufeffa', "'", '%', 'A'];

    test('can be any text without unpaired surrogates', async () => {
      for (const runId of odd) await subject.append(runId, [startEntry(runId)]);
      for (const runId of odd) expect(await subject.store.read(runId)).toEqual([startEntry(runId)]);
      const listed = await subject.store.list();
      expect(listed.map(({ runId }) => runId).toSorted()).toEqual(odd.toSorted());
    });

    test.each(['\ud800', 'a\udc00', 'a\ud83d'])('%j, with an unpaired surrogate, cannot be used', async (runId) => {
      await expect(subject.append(runId, [startEntry(runId)])).rejects.toEqual(code('invalid-input'));
      await expect(subject.append(runId, [startEntry(runId)])).rejects.toThrow(JSON.stringify(runId));
      await expect(subject.store.acquire(runId)).rejects.toEqual(code('invalid-input'));
      expect(await subject.store.list()).toEqual([]);
    });

    test('with an unpaired surrogate does not name the run with U+FFFD in its place', async () => {
      const [stored, other] = ['a\ufffd', 'a\ud800'];
      const lease = await subject.store.acquire(stored);
      await subject.append(stored, [startEntry(stored)], lease);
      const id = await subject.store.blobs.put(stored, 'text');
      await subject.store.writeSnapshot(stored, { seq: 1, state: {} });
      await expect(subject.append(other, [messageEntry(1)], lease)).rejects.toEqual(code('invalid-input'));
      expect(await subject.store.isDriven(other)).toBe(false);
      await lease.release();
      expect(await subject.store.read(other)).toEqual([]);
      expect(await subject.store.readSnapshot(other)).toBeUndefined();
      await expect(subject.store.writeSnapshot(other, { seq: 1, state: 1 })).rejects.toEqual(code('unknown-run'));
      await expect(subject.store.blobs.put(other, 'x')).rejects.toEqual(code('unknown-run'));
      expect(await subject.store.blobs.read(other, id, 0, 1)).toBeUndefined();
      expect(await subject.store.blobs.list(other)).toEqual([]);
      expect(await subject.store.delete(other)).toBe(false);
      expect(await subject.store.read(stored)).toEqual([startEntry(stored)]);
    });

    test('and a tenant or parent with an unpaired surrogate are not confused with others', async () => {
      const principal = (tenant: string): object => ({ principal: { subject: 's', tenant, scopes: [] } });
      await subject.append('a', [startEntry('a', { ...principal('t\ufffd'), parent: { runId: 'p\ufffd' } })]);
      expect(await subject.store.list({ tenant: 't\ufffd', parent: 'p\ufffd' })).toHaveLength(1);
      expect(await subject.store.list({ tenant: 't\ud800' })).toEqual([]);
      expect(await subject.store.list({ parent: 'p\udfff' })).toEqual([]);
      const refused = [startEntry('b', principal('t\ud800')), startEntry('b', { parent: { runId: 'p\ud800' } })];
      for (const entry of refused) await expect(subject.append('b', [entry])).rejects.toEqual(code('invalid-input'));
      expect(await subject.store.read('b')).toEqual([]);
    });
  });

  describe('list', () => {
    test('returns no recovered runs if every driver has released its lease', async () => {
      const lease = await subject.store.acquire('a');
      await subject.append('a', [startEntry('a')], lease);
      await lease.release();
      await (await subject.store.acquire('a')).release();
      expect(await subject.store.list({ recovered: true })).toEqual([]);
    });

    test('returns the summary of each run from its first and last entry', async () => {
      const parent = { runId: 'a', seq: 3 };
      const principal = { subject: 'ada', tenant: 'acme', scopes: [] };
      await subject.append('a', [startEntry('a', { at: 5 })]);
      await subject.append('b', [
        startEntry('b', { at: 7, model: 'other', principal, parent }),
        messageEntry(1, { at: 9, status: 'paused' }),
      ]);
      expect(await subject.store.list()).toEqual([
        {
          runId: 'b',
          status: 'paused',
          startedAt: 7,
          updatedAt: 9,
          entries: 2,
          model: 'other',
          title: 'Task of b',
          tenant: 'acme',
          parent: 'a',
        },
        {
          runId: 'a',
          status: 'running',
          startedAt: 5,
          updatedAt: 5,
          entries: 1,
          model: 'scripted',
          title: 'Task of a',
        },
      ]);
    });

    test('reports the current status', async () => {
      const statuses = ['paused', undefined, 'failed', undefined, 'completed'] as const;
      await subject.append('a', [startEntry('a')]);
      for (const [index, status] of statuses.entries()) {
        await subject.append('a', [messageEntry(index + 1, status && { status })]);
        expect(await subject.store.list()).toMatchObject([
          { status: status ?? 'running', entries: index + 2, updatedAt: 1_001 + index },
        ]);
      }
    });

    test.each([
      ['the last user message', [userText('first'), { role: 'assistant', content: [] }, userText('second')], 'second'],
      ['one line', [userText('  do\n\n this,\tand \r\n that  ')], 'do this, and that'],
      ['200 characters', [userText('x'.repeat(5_000))], 'x'.repeat(200)],
      ['cut between characters', [userText(`${'x'.repeat(199)}💡`)], 'x'.repeat(199)],
      [
        'text, not images',
        [
          userText('look'),
          { role: 'user', content: [{ type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'x' } }] },
        ],
        'look',
      ],
      ['empty without input', [], ''],
    ] as const)('the title is %s', async (_, input, title) => {
      await subject.append('a', [startEntry('a', { input })]);
      expect(await subject.store.list()).toMatchObject([{ title }]);
    });

    const ids = async (...filter: Parameters<RunStore['list']>): Promise<readonly string[]> =>
      (await subject.store.list(...filter)).map(({ runId }) => runId);

    test('is ordered newest first, also for runs with the same start time', async () => {
      const lease = await subject.store.acquire('d');
      await subject.append('a', [startEntry('a', { at: 2 })]);
      await subject.append('b', [startEntry('b', { at: 3 })]);
      await subject.append('c', [startEntry('c', { at: 1 })]);
      await subject.append('d', [startEntry('d', { at: 2 })], lease);
      expect(await ids()).toEqual(['b', 'd', 'a', 'c']);
    });

    test('can be filtered by each property and by all together', async () => {
      const principal = (tenant: string): object => ({ principal: { subject: 's', tenant, scopes: [] } });
      await subject.append('a', [
        startEntry('a', { at: 1, ...principal('acme') }),
        messageEntry(1, { status: 'completed' }),
      ]);
      await subject.append('b', [
        startEntry('b', { at: 2, ...principal('acme'), parent: { runId: 'a' } }),
        messageEntry(1, { status: 'failed' }),
      ]);
      await subject.append('c', [startEntry('c', { at: 3, ...principal('other'), parent: { runId: 'a' } })]);
      await subject.append('d', [
        startEntry('d', { at: 4, parent: { runId: 'a' } }),
        messageEntry(1, { status: 'paused' }),
      ]);
      expect(await ids({})).toEqual(['d', 'c', 'b', 'a']);
      expect(await ids({ status: ['completed'] })).toEqual(['a']);
      expect(await ids({ status: ['paused', 'running', 'paused'] })).toEqual(['d', 'c']);
      expect(await ids({ status: [] })).toEqual([]);
      expect(await ids({ tenant: 'acme' })).toEqual(['b', 'a']);
      expect(await ids({ tenant: 'nobody' })).toEqual([]);
      expect(await ids({ parent: 'a' })).toEqual(['d', 'c', 'b']);
      expect(await ids({ before: 3 })).toEqual(['b', 'a']);
      expect(await ids({ limit: 2 })).toEqual(['d', 'c']);
      expect(await ids({ limit: 0 })).toEqual([]);
      expect(await ids({ limit: Infinity })).toEqual(['d', 'c', 'b', 'a']);
      expect(await ids({ parent: 'a', tenant: 'acme', status: ['failed', 'completed'], before: 3, limit: 5 })).toEqual([
        'b',
      ]);
    });

    test('can be filtered by session, task and labels', async () => {
      const labels = { team: 'sales', 'a "b"': 'c$.d' };
      await subject.append('a', [startEntry('a', { at: 1, session: 's1', task: 't1', labels })]);
      await subject.append('b', [startEntry('b', { at: 2, session: 's1', labels: { team: 'sales' } })]);
      await subject.append('c', [startEntry('c', { at: 3, session: 's\ud800', task: 't1', labels: { team: 'it' } })]);
      await subject.append('d', [startEntry('d', { at: 4 })]);
      expect(await ids({ session: 's1' })).toEqual(['b', 'a']);
      expect(await ids({ session: 's\ufffd' })).toEqual(['c']);
      expect(await ids({ session: 's\ud800' })).toEqual([]);
      expect(await ids({ task: 't1' })).toEqual(['c', 'a']);
      expect(await ids({ task: 't1', session: 's1' })).toEqual(['a']);
      expect(await ids({ labels: { team: 'sales' } })).toEqual(['b', 'a']);
      expect(await ids({ labels: { team: 'sales' }, limit: 1 })).toEqual(['b']);
      expect(await ids({ labels })).toEqual(['a']);
      expect(await ids({ labels: { team: 'sales', other: 'x' } })).toEqual([]);
      expect(await ids({ labels: { toString: 'x' } })).toEqual([]);
      expect(await ids({ labels: {} })).toEqual(['d', 'c', 'b', 'a']);
      const [summary] = await subject.store.list({ runId: 'a' });
      expect(summary).toMatchObject({ session: 's1', task: 't1', labels });
      const [without] = await subject.store.list({ runId: 'd' });
      for (const name of ['session', 'task', 'labels']) expect(without).not.toHaveProperty(name);
    });

    test('can be filtered by id, model, title and start', async () => {
      await subject.append('a', [startEntry('a', { at: 1, model: 'x', input: [userText('Pay the BILL, 100 %')] })]);
      await subject.append('b', [startEntry('b', { at: 2, input: [userText('pay the rent: Ä_%')] })]);
      await subject.append('c', [startEntry('c', { at: 3, model: 'x', input: [userText('Sleep')] })]);
      expect(await ids({ runId: 'b' })).toEqual(['b']);
      expect(await ids({ runId: 'z' })).toEqual([]);
      expect(await ids({ model: 'x' })).toEqual(['c', 'a']);
      expect(await ids({ title: 'PAY the' })).toEqual(['b', 'a']);
      expect(await ids({ title: 'bill' })).toEqual(['a']);
      expect(await ids({ title: '_%' })).toEqual(['b']);
      expect(await ids({ title: 'ä' })).toEqual([]);
      expect(await ids({ since: 2 })).toEqual(['c', 'b']);
      expect(await ids({ since: 2, before: 3, title: 'e', model: 'scripted' })).toEqual(['b']);
    });

    test('is read in pages, each after the last run of the page before', async () => {
      for (const [runId, at] of Object.entries({ a: 1, b: 2, c: 2, d: 2, e: 3 })) {
        await subject.append(runId, [startEntry(runId, { at })]);
      }
      const pages: string[][] = [];
      for (let after: { runId: string; startedAt: number } | undefined; ;) {
        const page = await subject.store.list({ limit: 2, ...(after && { after }) });
        if (page.length === 0) break;
        pages.push(page.map(({ runId }) => runId));
        after = page.at(-1)!;
        // A run that gets another status is still a position.
        await subject.append(after.runId, [messageEntry(1, { status: 'paused' })]);
      }
      expect(pages).toEqual([['e', 'd'], ['c', 'b'], ['a']]);
      await subject.store.delete('c');
      expect(await ids({ after: { runId: 'c', startedAt: 2 } })).toEqual(['d', 'b', 'a']);
    });

    test('returns at most 100 runs by default', async () => {
      const names = Array.from({ length: 120 }, (_, i) => `run ${i}`);
      await Promise.all(names.map((runId, at) => subject.append(runId, [startEntry(runId, { at })])));
      expect(await ids()).toEqual(names.slice(20).toReversed());
      expect(await ids({ limit: 110, before: 115 })).toEqual(names.slice(5, 115).toReversed());
    });
  });

  describe('delete and prune', () => {
    test('delete removes a run and all that is stored for it', async () => {
      await subject.append('a', [startEntry('a')]);
      await subject.append('b', [startEntry('b')]);
      await subject.store.writeSnapshot('a', { seq: 1, state: {} });
      const id = await subject.store.blobs.put('a', 'long');
      expect(await subject.store.delete('a')).toBe(true);
      expect(await subject.store.delete('a')).toBe(false);
      expect(await subject.store.read('a')).toEqual([]);
      expect(await subject.store.readSnapshot('a')).toBeUndefined();
      expect(await subject.store.blobs.read('a', id, 0, 9)).toBeUndefined();
      expect(await subject.store.list()).toMatchObject([{ runId: 'b' }]);
      await subject.append('a', [startEntry('a')]);
      expect(await subject.store.readSnapshot('a')).toBeUndefined();
    });

    test('delete rejects a driven run', async () => {
      const lease = await subject.store.acquire('a');
      await subject.append('a', [startEntry('a')], lease);
      await expect(subject.store.delete('a')).rejects.toEqual(code('run-driven'));
      await subject.append('a', [messageEntry(1)], lease);
      await lease.release();
      expect(await subject.store.delete('a')).toBe(true);
    });

    /** A run with a child, a grandchild and a fork whose name begins with that of the run. */
    async function addFamily(last: Parameters<typeof messageEntry>[1] = {}): Promise<void> {
      const add = (runId: string, parent?: Parent): void | Promise<void> =>
        subject.append(runId, [startEntry(runId, { ...(parent && { parent }) }), messageEntry(1, last)]);
      await add('a');
      await add('a.t1.tool.0', { runId: 'a', effect: 't1.tool.0' });
      await add('a.t1.tool.0.t2.tool.1', { runId: 'a.t1.tool.0', effect: 't2.tool.1' });
      await add('a.what-if', { runId: 'a', seq: 0 });
      await add('ab');
    }
    const remaining = async (): Promise<readonly string[]> =>
      (await subject.store.list()).map(({ runId }) => runId).toSorted();

    test('delete removes the child runs at every depth, but no forks', async () => {
      await addFamily();
      const id = await subject.store.blobs.put('a.t1.tool.0.t2.tool.1', 'long');
      expect(await subject.store.delete('a')).toBe(true);
      expect(await remaining()).toEqual(['a.what-if', 'ab']);
      expect(await subject.store.read('a.t1.tool.0.t2.tool.1')).toEqual([]);
      expect(await subject.store.blobs.read('a.t1.tool.0.t2.tool.1', id, 0, 9)).toBeUndefined();
    });

    test('delete removes nothing while a child run is driven', async () => {
      await addFamily();
      const lease = await subject.store.acquire('a.t1.tool.0.t2.tool.1');
      await expect(subject.store.delete('a')).rejects.toEqual(code('run-driven'));
      expect(await remaining()).toHaveLength(5);
      await lease.release();
      expect(await subject.store.delete('a.t1.tool.0')).toBe(true);
      expect(await remaining()).toEqual(['a', 'a.what-if', 'ab']);
    });

    test('delete handles runs that are children of each other', async () => {
      await subject.append('a', [startEntry('a', { parent: { runId: 'b', effect: 't1.tool.0' } })]);
      await subject.append('b', [startEntry('b', { parent: { runId: 'a', effect: 't1.tool.0' } })]);
      expect(await subject.store.delete('a')).toBe(true);
      expect(await remaining()).toEqual([]);
    });

    test('prune removes a run only together with its child runs', async () => {
      await addFamily({ status: 'completed' });
      await subject.append('a.t1.tool.0.t2.tool.1', [messageEntry(2, { at: 3_000, status: 'failed' })]);
      expect(await subject.store.prune(2_000)).toBe(2);
      expect(await remaining()).toEqual(['a', 'a.t1.tool.0', 'a.t1.tool.0.t2.tool.1']);
      const lease = await subject.store.acquire('a.t1.tool.0.t2.tool.1');
      expect(await subject.store.prune(4_000)).toBe(0);
      await lease.release();
      expect(await subject.store.prune(4_000)).toBe(3);
      expect(await remaining()).toEqual([]);
    });

    test('prune keeps an ended run whose child run is open, and removes child runs without a parent', async () => {
      await addFamily({ status: 'completed' });
      await subject.append('a.t1.tool.0.t2.tool.1', [messageEntry(2)]);
      await subject.append('b.t1.tool.0', [
        startEntry('b.t1.tool.0', { parent: { runId: 'b', effect: 't1.tool.0' } }),
        messageEntry(1, { status: 'completed' }),
      ]);
      expect(await subject.store.prune(9_000)).toBe(3);
      expect(await remaining()).toEqual(['a', 'a.t1.tool.0', 'a.t1.tool.0.t2.tool.1']);
    });

    test('prune removes only ended runs that are old enough', async () => {
      for (const status of ['completed', 'exhausted', 'failed', 'cancelled', 'paused', undefined] as const) {
        const name = status ?? 'running';
        await subject.append(`${name} old`, [
          startEntry(`${name} old`),
          messageEntry(1, { at: 1_999, ...(status && { status }) }),
        ]);
        await subject.append(`${name} new`, [
          startEntry(`${name} new`),
          messageEntry(1, { at: 2_000, ...(status && { status }) }),
        ]);
      }
      const lease = await subject.store.acquire('driven');
      await subject.append('driven', [startEntry('driven'), messageEntry(1, { status: 'completed' })], lease);
      expect(await subject.store.prune(2_000)).toBe(4);
      expect(await subject.store.prune(2_000)).toBe(0);
      const remaining = (await subject.store.list()).map(({ runId }) => runId);
      const expected = ['running new', 'running old', 'paused new', 'paused old', 'cancelled new', 'failed new'];
      expect(remaining.toSorted()).toEqual([...expected, 'exhausted new', 'completed new', 'driven'].toSorted());
      await lease.release();
      expect(await subject.store.prune(2_000)).toBe(1);
    });

    test('prune removes more than one batch', async () => {
      const many = Array.from({ length: 250 }, (_, i) => `run ${i}`);
      await Promise.all(
        many.map((runId) => subject.append(runId, [startEntry(runId), messageEntry(1, { status: 'completed' })])),
      );
      expect(await subject.store.prune(5_000)).toBe(250);
      expect(await subject.store.list()).toEqual([]);
    });
  });
}
