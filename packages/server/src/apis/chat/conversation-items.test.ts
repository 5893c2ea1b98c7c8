import type { RequestRecord } from '@treadle/store';
import { expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import type { ServerStore } from '../../engine/engine.ts';
import type { Reader } from '../../engine/stored-reads.ts';
import type { RunCaller } from '../../engine/tools.ts';
import type { InputItem } from '../responses/wire.ts';
import { conversationHistories, type ConversationHistories } from '../../history/conversation-history.ts';
import { conversationItems, type ConversationItems } from './conversation-items.ts';

/** A conversation with three records of one item, of 12 million characters each. */
function largeStore(): ServerStore {
  const text = 'x'.repeat(12_000_000);
  const content = [{ type: 'input_text', text }];
  const recordOf = (id: string): Partial<RequestRecord> => ({
    id,
    response: { items: [{ type: 'message', id: `msg_${id}`, status: 'completed', role: 'user', content }] },
  });
  const conversation = { id: 'conv_1', tenant: 't', title: '', createdAt: 0, updatedAt: 0, head: 'items_3' };
  return {
    requests: { get: async (_: string, id: string) => recordOf(id), sizeOf: async () => 12_000_000 },
    conversations: { get: async () => conversation, responses: async () => ['items_1', 'items_2', 'items_3'] },
  } as unknown as ServerStore;
}

const caller: RunCaller = { tenant: 't', key: '', scopes: [] };
const CHAIN = { id: 'conv_1', tenant: 't' };
const MESSAGE = { role: 'user', content: [{ type: 'text', text: 'Hi' }] } as const;
const NEW_ITEM = { type: 'message', id: 'msg_new', status: 'completed', role: 'user', content: [] } as const;

function itemsOf(store: ServerStore): ConversationItems {
  return conversationItems({
    store,
    stored: { findKey: async () => undefined, keyToStore: (key) => ({ ...key, expiresAt: 0 }) },
    accept: async (given) => given,
  });
}

test('a page of large items ends early, and the next one continues it', async () => {
  const items = itemsOf(largeStore());
  const seen: string[] = [];
  for (let after: string | undefined, hasMore = true; hasMore; after = seen.at(-1)) {
    const page = await items.list('conv_1', { order: 'asc', limit: 100, ...(after && { after }) }, caller);
    expect(page.data).toHaveLength(1);
    seen.push(page.data[0]!.id);
    hasMore = page.hasMore;
  }
  expect(seen).toEqual(['msg_items_1', 'msg_items_2', 'msg_items_3']);
});

test('more items than a conversation may have are not read into memory', async () => {
  const store = largeStore();
  let isRestored = false;
  const restore = async (): Promise<never> => {
    isRestored = true;
    throw new Error('never');
  };
  const histories = conversationHistories({ store, readRun: async () => undefined, restore });
  const read = histories.forMessage(CHAIN, 'items_3', MESSAGE, { hold: undefined });
  await expect(read).rejects.toMatchObject({ status: 413, code: 'input_too_large' });
  expect(isRestored).toBe(false);
});

/** A conversation whose records have one item with a text of this length. `reads`: the records that were read. */
function countedStore(textLength: number): { readonly store: ServerStore; readonly reads: readonly string[] } {
  const reads: string[] = [];
  const content = [{ type: 'input_text', text: 'x'.repeat(textLength) }];
  const ids = ['items_1', 'items_2', 'items_3'];
  const conversation = { id: 'conv_1', tenant: 't', title: '', createdAt: 0, updatedAt: 0, head: 'items_3' };
  const store = {
    requests: {
      sizeOf: async () => textLength,
      head: async (_: string, id: string) => ({ id, runId: id, status: 'completed', updatedAt: 0 }),
      async get(_: string, id: string) {
        reads.push(id);
        const items = [{ type: 'message', id: `msg_${id}`, status: 'completed', role: 'user', content }];
        return { id, request: { conversation: 'conv_1' }, response: { items } };
      },
    },
    conversations: { get: async () => conversation, responses: async () => ids },
  } as unknown as ServerStore;
  return { store, reads };
}

function historiesOf(store: ServerStore): ConversationHistories {
  const restore = async (input: readonly InputItem[]) => ({ input, messages: [MESSAGE], system: [] });
  return conversationHistories({ store, readRun: async () => undefined, restore });
}

test.each<[string, (store: ServerStore, reader: RunCaller & Reader) => Promise<unknown>]>([
  ['a page of items', (store, reader) => itemsOf(store).list('conv_1', { order: 'asc', limit: 9 }, reader)],
  ['one item', (store, reader) => itemsOf(store).retrieve('conv_1', 'msg_items_1', reader)],
  ['items with an id are added', (store, reader) => itemsOf(store).add('conv_1', [NEW_ITEM], reader)],
  ['an item is deleted', (store, reader) => itemsOf(store).delete('conv_1', 'msg_items_3', reader)],
  ['a message', (store, { hold }) => historiesOf(store).forMessage(CHAIN, 'items_3', MESSAGE, { hold })],
  [
    'a response',
    (store, reader) => historiesOf(store).forRequest({ conversation: 'conv_1', input: [NEW_ITEM] }, reader),
  ],
])('large records are counted before they are read: %s', async (_, read) => {
  const { store, reads } = countedStore(20_000);
  const hold = (bytes: number): void => {
    throw new Error(`${bytes} bytes are too many`);
  };
  const reader = { ...caller, scopes: ['chat:write'], hold };
  await expect(read(store, reader)).rejects.toThrow('20000 bytes are too many');
  expect(reads).toEqual([]);
});

test('of a record that was searched, what is returned stays counted', async () => {
  const { store } = countedStore(20_000);
  let held = 0;
  let most = 0;
  const hold = (bytes: number): void => void (most = Math.max(most, (held += bytes)));
  await itemsOf(store).retrieve('conv_1', 'msg_items_1', { ...caller, hold });
  expect([held > 20_000, held < 20_500, most === held]).toEqual([true, true, true]);
});

test('small items that no run has read are counted together', async () => {
  const { store } = countedStore(1_000);
  let held = 0;
  await historiesOf(store).forMessage(CHAIN, 'items_3', MESSAGE, { hold: (bytes) => void (held += bytes) });
  expect(held).toBeGreaterThan(3_000);
});

test('that there is no room for what items refer to is no error of the conversation', async () => {
  const { store } = countedStore(1_000);
  const tooMany = new ApiError(429, 'rate_limit_error', 'Too many bytes.', { headers: { 'Retry-After': '2' } });
  const restore = (): Promise<never> => Promise.reject(tooMany);
  const histories = conversationHistories({ store, readRun: async () => undefined, restore });
  await expect(histories.forMessage(CHAIN, 'items_3', MESSAGE, { hold: () => {} })).rejects.toBe(tooMany);
});
