import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';
import type { Store } from '@treadle/store';

export function conversationsContract(tempStore: () => Promise<TempStores>): void {
  const conversation = (id: string, tenant = 'acme') => ({ id, tenant, title: '', createdAt: 1 });

  async function addResponse(store: Store, id: string, status = 'completed'): Promise<void> {
    const times = { createdAt: 1, updatedAt: 1 };
    await store.requests.create({
      id,
      kind: 'response',
      tenant: 'acme',
      runId: `run ${id}`,
      status,
      ...times,
      request: {},
    });
  }

  /** Adds a response with its record, after the newest one. */
  async function extend(store: Store, id: string, response: string, at = 1): Promise<boolean> {
    const { head } = (await store.conversations.get('acme', id))!;
    await addResponse(store, response);
    return store.conversations.extend(id, { response, ...(head && { head }), text: `text of ${response}`, at });
  }

  test('is created, extended and gets its response in one go, as servers do', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const { conversations, requests } = store;
    // Several times: with connections that are open already, the writes could overtake each other.
    for (let n = 0; n < 10; n++) {
      const [id, response] = [`conv ${n}`, `resp ${n}`];
      const [, isExtended] = await Promise.all([
        conversations.create(conversation(id)),
        conversations.extend(id, { response, text: 'Hello', at: 1 }),
        addResponse(store, response, 'in_progress'),
      ]);
      expect(isExtended).toBe(true);
      expect(await conversations.responses(id)).toEqual([response]);
      expect(await requests.head('acme', response)).toMatchObject({ status: 'in_progress' });
    }
  });

  test('a conversation is extended once from the same response, by one of several processes', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    await one.conversations.create(conversation('c'));
    await expect(other.conversations.create(conversation('c'))).rejects.toMatchObject({ code: 'run-exists' });
    expect(await extend(one, 'c', 'r1', 5)).toBe(true);
    const both = [one, other].map(({ conversations }, index) =>
      conversations.extend('c', { response: `r2 ${index}`, head: 'r1', text: '', at: 7 }),
    );
    expect((await Promise.all(both)).toSorted()).toEqual([false, true]);
    const { head, updatedAt } = (await other.conversations.get('acme', 'c'))!;
    expect([updatedAt, await other.conversations.responses('c')]).toEqual([7, ['r1', head]]);
    expect(await other.conversations.get('bolt', 'c')).toBeUndefined();
    expect(await other.conversations.extend('d', { response: 'r', text: '', at: 1 })).toBe(false);
  });

  test('metadata is replaced as a whole, only by its tenant', async () => {
    await using temp = await tempStore();
    const { conversations } = await temp.open();
    await conversations.create(conversation('plain'));
    await conversations.create({ ...conversation('c'), metadata: { topic: 'tea' } });
    expect((await conversations.get('acme', 'plain'))!.metadata).toBeUndefined();
    expect((await conversations.get('acme', 'c'))!.metadata).toEqual({ topic: 'tea' });
    expect(await conversations.setMetadata('bolt', 'c', {})).toBe(false);
    expect(await conversations.setMetadata('acme', 'c', { owner: 'ann' })).toBe(true);
    const listed = await conversations.list({ tenant: 'acme', limit: 9 });
    expect(listed.map(({ metadata }) => metadata)).toEqual([undefined, { owner: 'ann' }]);
  });

  test('instructions are set by their tenant, and what an edit moves to a branch has them too', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const { conversations } = store;
    const told = async (id: string) => (await conversations.get('acme', id))?.instructions;
    await conversations.create({ ...conversation('c'), instructions: 'Be brief.' });
    for (const response of ['r1', 'r2']) await extend(store, 'c', response);
    await addResponse(store, 'r3');
    const branch = { id: 'moved', after: 'r1' };
    expect(await conversations.extend('c', { response: 'r3', head: 'r2', text: '', at: 1, branch })).toBe(true);
    expect(await conversations.setInstructions('bolt', 'c', 'Pay me.')).toBe(false);
    expect(await conversations.setInstructions('acme', 'c', '')).toBe(true);
    expect(await Promise.all(['c', 'moved'].map(told))).toEqual([undefined, 'Be brief.']);
    expect((await conversations.list({ tenant: 'acme', limit: 9 })).filter((one) => one.instructions)).toHaveLength(1);
  });

  test('a branch shares responses, which are deleted with the last conversation that has them', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const { conversations, requests: responses, streams } = store;
    await conversations.create(conversation('c'));
    for (const response of ['r1', 'r2', 'r3']) await extend(store, 'c', response);
    await conversations.create({ ...conversation('b'), branchOf: { id: 'c', upTo: 'r2' } });
    expect(await conversations.responses('b')).toEqual(['r1', 'r2']);
    expect(await conversations.get('acme', 'b')).toMatchObject({ head: 'r2' });
    await streams.append('c', 1, [{}]);
    expect(await conversations.delete('bolt', 'c')).toBe(false);
    expect(await conversations.delete('acme', 'c')).toBe(true);
    expect(await Promise.all(['r1', 'r2', 'r3'].map(async (id) => (await responses.get('acme', id))?.id))).toEqual([
      'r1',
      'r2',
      undefined,
    ]);
    expect(await streams.last('c')).toBe(0);
    const search = async (words: string): Promise<string[]> =>
      (await conversations.list({ tenant: 'acme', search: words, limit: 9 })).map(({ id }) => id);
    expect([await search('r1'), await search('r3')]).toEqual([['b'], []]);
    expect(await conversations.delete('acme', 'b')).toBe(true);
    expect(await responses.get('acme', 'r1')).toBeUndefined();
  });

  test('a conversation is extended after an earlier response, and a branch keeps the later ones', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const { conversations, requests: responses } = store;
    await conversations.create({ ...conversation('c'), title: 'Tea' });
    for (const response of ['r1', 'r2', 'r3']) await extend(store, 'c', response);
    const next = (response: string, head: string, branch: { id: string; after?: string }): Promise<boolean> =>
      conversations.extend('c', { response, head, text: `text of ${response}`, at: 2, branch });
    expect(await next('r4', 'r2', { id: 'b', after: 'r1' })).toBe(false);
    expect(await next('r4', 'r3', { id: 'b', after: 'other' })).toBe(false);
    await expect(next('r4', 'r3', { id: 'c', after: 'r1' })).rejects.toMatchObject({ code: 'run-exists' });
    expect(await conversations.get('acme', 'b')).toBeUndefined();
    for (const response of ['r4', 'r5', 'r6']) await addResponse(store, response);
    expect(await next('r4', 'r3', { id: 'b', after: 'r1' })).toBe(true);
    expect([await conversations.responses('c'), await conversations.responses('b')]).toEqual([
      ['r1', 'r4'],
      ['r1', 'r2', 'r3'],
    ]);
    expect(await conversations.get('acme', 'b')).toMatchObject({ title: 'Tea', head: 'r3', updatedAt: 2 });
    expect(await next('r5', 'r4', { id: 'd' })).toBe(true);
    expect([await conversations.responses('c'), await conversations.responses('d')]).toEqual([['r5'], ['r1', 'r4']]);
    // A branch can be extended like any other conversation.
    const again = { response: 'r6', head: 'r3', text: '', at: 3, branch: { id: 'g', after: 'r2' } };
    expect(await conversations.extend('b', again)).toBe(true);
    expect([await conversations.responses('b'), await conversations.responses('g')]).toEqual([
      ['r1', 'r2', 'r6'],
      ['r1', 'r2', 'r3'],
    ]);
    const search = async (words: string): Promise<string[]> =>
      (await conversations.list({ tenant: 'acme', search: words, limit: 9 })).map(({ id }) => id).toSorted();
    expect([await search('r1'), await search('r2'), await search('r5')]).toEqual([['d'], ['b'], ['c']]);
    expect(await search('tea')).toEqual(['b', 'c', 'd', 'g']);
    // Wherever the response is now.
    await conversations.create({ ...conversation('e'), branchOf: { id: 'c', upTo: 'r2' } });
    await conversations.create({ ...conversation('f', 'bolt'), branchOf: { id: 'c', upTo: 'r2' } });
    expect([await conversations.responses('e'), await conversations.responses('f')]).toEqual([['r1', 'r2'], []]);
    expect((await conversations.get('bolt', 'f'))!.head).toBeUndefined();
    for (const id of ['b', 'e', 'g']) expect(await conversations.delete('acme', id)).toBe(true);
    expect([(await responses.get('acme', 'r1'))?.id, await responses.get('acme', 'r2')]).toEqual(['r1', undefined]);
  });

  test('a conversation whose run has a driver is not deleted, and nothing is changed', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.conversations.create(conversation('c'));
    await extend(store, 'c', 'r1');
    const lease = await store.acquire('run r1');
    const other = await temp.open();
    await expect(other.conversations.delete('acme', 'c')).rejects.toMatchObject({ code: 'run-driven' });
    expect(await other.conversations.responses('c')).toEqual(['r1']);
    expect(await other.conversations.prune(Infinity)).toBe(0);
    await lease.release();
    expect(await other.conversations.delete('acme', 'c')).toBe(true);
  });

  test('old conversations are pruned as a whole, and their responses not before', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    for (let index = 0; index < 25; index++) {
      await store.conversations.create(conversation(`c${index}`));
      await extend(store, `c${index}`, `r${index}`, index);
    }
    await addResponse(store, 'alone');
    await store.conversations.create(conversation('busy'));
    await addResponse(store, 'running', 'in_progress');
    await store.conversations.extend('busy', { response: 'running', text: '', at: 0 });
    expect(await store.requests.prune(Infinity)).toBe(1);
    expect(await store.conversations.prune(23)).toBe(23);
    const left = await store.conversations.list({ tenant: 'acme', limit: 99 });
    expect(left.map(({ id }) => id)).toEqual(['c24', 'c23', 'busy']);
    expect(await store.requests.get('acme', 'r0')).toBeUndefined();
    expect(await store.requests.get('acme', 'r24')).toBeDefined();
  });

  test('a title is found, and is only replaced if it is still the same', async () => {
    await using temp = await tempStore();
    const { conversations } = await temp.open();
    await conversations.create(conversation('c'));
    await conversations.extend('c', { response: 'r1', text: '', title: 'First words', at: 1 });
    await conversations.extend('c', { response: 'r2', head: 'r1', text: '', title: 'Others', at: 2 });
    expect(await conversations.get('acme', 'c')).toMatchObject({ title: 'First words' });
    expect(await conversations.list({ tenant: 'acme', search: 'first', limit: 9 })).toHaveLength(1);
    expect(await conversations.rename('acme', 'c', 'Tax return', { ifTitle: 'First words' })).toBe(true);
    expect(await conversations.rename('acme', 'c', 'Other', { ifTitle: 'First words' })).toBe(false);
    expect(await conversations.rename('bolt', 'c', 'Other')).toBe(false);
    const found = await conversations.list({ tenant: 'acme', search: 'tax ret', limit: 9 });
    expect(found).toMatchObject([{ id: 'c', title: 'Tax return' }]);
    for (const search of ['', '"', '* OR tax:', '\ud800']) {
      expect(await conversations.list({ tenant: 'acme', search, limit: 9 })).toEqual([]);
    }
  });

  test('a record is found by the beginning of its text, also in a branch with many records', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const { conversations } = store;
    await conversations.create(conversation('c'));
    for (let n = 0; n < 25; n++) {
      const head = n > 0 && { head: `r${n - 1}` };
      const text = `begin${n} ${'x '.repeat(50_000)} end${n}`;
      await addResponse(store, `r${n}`);
      expect(await conversations.extend('c', { response: `r${n}`, ...head, text, at: 1 })).toBe(true);
    }
    await conversations.create({ ...conversation('b'), branchOf: { id: 'c', upTo: 'r23' } });
    const found = async (search: string) =>
      (await conversations.list({ tenant: 'acme', search, limit: 9 })).map(({ id }) => id);
    expect(await found('begin23')).toEqual(['c', 'b']);
    expect(await found('begin24')).toEqual(['c']);
    expect(await found('end3')).toEqual([]);
    await conversations.delete('acme', 'c');
    expect([await found('begin0'), await found('begin24')]).toEqual([['b'], []]);
    await conversations.delete('acme', 'b');
    expect(await found('begin0')).toEqual([]);
  });

  test('a deletion that was interrupted is completed by the next prune', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.conversations.create({ ...conversation('c'), title: 'Tea' });
    for (let n = 0; n < 15; n++) await extend(store, 'c', `r${n}`);
    await store.streams.append('c', 1, [{}]);
    const interrupted = await temp.keepResponse('r2');
    await expect(store.conversations.delete('acme', 'c')).rejects.toMatchObject({ code: 'store-failed' });
    await interrupted();
    const { conversations, requests, streams, acquire } = await temp.open();
    expect(await conversations.get('acme', 'c')).toBeUndefined();
    expect(await conversations.responses('c')).toEqual([]);
    for (const search of [undefined, 'tea', 'text'])
      expect(await conversations.list({ tenant: 'acme', limit: 9, ...(search && { search }) })).toEqual([]);
    expect(await conversations.extend('c', { response: 'r15', head: 'r14', text: '', at: 1 })).toBe(false);
    expect(await conversations.delete('acme', 'c')).toBe(false);
    const first = async (): Promise<string | undefined> => (await requests.get('acme', 'r0'))?.id;
    // The newest ones are deleted first, in several transactions.
    expect([await first(), await requests.get('acme', 'r5')]).toEqual(['r0', undefined]);
    const lease = await acquire('run r0');
    expect(await conversations.prune(-Infinity)).toBe(0);
    expect([await first(), await requests.get('acme', 'r1')]).toEqual(['r0', undefined]);
    await lease.release();
    expect(await conversations.prune(-Infinity)).toBe(0);
    expect([await first(), await streams.last('c')]).toEqual([undefined, 0]);
    await conversations.create(conversation('c'));
  });
}
