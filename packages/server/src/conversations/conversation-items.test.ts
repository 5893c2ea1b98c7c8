import type { ResponseRecord } from '@treadle/store';
import { expect, test } from 'vitest';
import type { ServerStore } from '../engine/engine.ts';
import { chainHistories } from './chain-history.ts';
import { conversationItems } from './conversation-items.ts';

/** A conversation with three records of one item, of 12 million characters each. */
function largeStore(): ServerStore {
  const text = 'x'.repeat(12_000_000);
  const content = [{ type: 'input_text', text }];
  const recordOf = (id: string): Partial<ResponseRecord> => ({
    id,
    response: { items: [{ type: 'message', id: `msg_${id}`, status: 'completed', role: 'user', content }] },
  });
  const chain = { id: 'conv_1', tenant: 't', title: '', createdAt: 0, updatedAt: 0, head: 'items_3' };
  return {
    responses: { get: async (_: string, id: string) => recordOf(id) },
    conversations: { get: async () => chain, responses: async () => ['items_1', 'items_2', 'items_3'] },
  } as unknown as ServerStore;
}

const caller = { tenant: 't', key: '', scopes: [] };

test('a page of large items ends early, and the next one continues it', async () => {
  const items = conversationItems({ store: largeStore(), accept: async (given) => given });
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
  const histories = chainHistories({ store, readRun: async () => undefined, restore });
  const message = { role: 'user', content: [{ type: 'text', text: 'Hi' }] } as const;
  const read = histories.forMessage({ id: 'conv_1', tenant: 't' }, 'items_3', message);
  await expect(read).rejects.toMatchObject({ status: 413, code: 'input_too_large' });
  expect(isRestored).toBe(false);
});
