import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';
import type { SqliteStore } from '../index.ts';

// What holds on every store is in `test/store/contract/conversations.ts`. Here: the transactions of a deletion, which triggers of
// SQLite disturb.

const conversation = (id: string, tenant = 'acme') => ({ id, tenant, title: '', createdAt: 1 });

async function addResponse(store: SqliteStore, id: string, status = 'completed'): Promise<void> {
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
async function extend(store: SqliteStore, id: string, response: string, at = 1): Promise<boolean> {
  const { head } = (await store.conversations.get('acme', id))!;
  await addResponse(store, response);
  return store.conversations.extend(id, { response, ...(head && { head }), text: `text of ${response}`, at });
}

test('a conversation is gone before its responses are deleted, in several transactions and from the newest one on', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const raw = temp.raw().prepare('SELECT response FROM requests ORDER BY id');
  const found = (): readonly unknown[] => raw.all().map(({ response }) => response);
  await store.conversations.create(conversation('c'));
  for (let n = 0; n < 25; n++) await extend(store, 'c', `r${n}`);
  const all = found();
  const seen: (readonly unknown[])[] = [];
  store.onCommit(() => seen.push(found()));
  expect(await store.conversations.delete('acme', 'c')).toBe(true);
  expect([...new Set(seen.map(({ length }) => length))]).toEqual([25, 15, 5, 0]);
  for (const left of seen) expect(left).toEqual(all.slice(0, left.length));
});

test('a deletion leaves alone a new conversation that has got the id of the deleted one', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.conversations.create(conversation('c'));
  const raw = temp.raw();
  raw.exec(`UPDATE conversations SET tenant = char(1) || 'deleted acme'`);
  // Another process creates a conversation as soon as this one is gone.
  raw.exec(`CREATE TRIGGER reuse AFTER DELETE ON conversations WHEN old.conversation = 'c' BEGIN
              INSERT INTO conversations (id, conversation, tenant, title, created_at, updated_at)
                VALUES (old.id, 'new', 'acme', '', 1, 1);
              INSERT INTO conversation_parts (conversation, response) VALUES (old.id, 'r');
            END`);
  await Promise.all([1, 2, 3].map(() => store.conversations.prune(-Infinity)));
  expect(await store.conversations.responses('new')).toEqual(['r']);
});
