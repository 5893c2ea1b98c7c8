import type { JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import OpenAI from 'openai';
import type { Response } from 'openai/resources/responses/responses';
import { expect, test } from 'vitest';
import { startInProcess } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

interface Page {
  readonly object: string;
  readonly data: readonly Response[];
  readonly last_id: string | null;
  readonly has_more: boolean;
}

test('the responses of a tenant are listed in pages, without those that are not stored and other runs', async () => {
  const ask = { type: 'function', name: 'ask', parameters: {}, strict: null } as const;
  const model = scriptedModel(['1', '2', { calls: [{ name: 'ask' }] }, 'chat', 'unstored', 'other', 'kept', '4']);
  const scopes = ['agents:invoke', 'chat:write'] as const;
  const keys = ['a', 'b'].map((name) => ({ name, tenant: name, hash: hashKey(name), scopes }));
  await using server = await startInProcess(model, { keys, chatTitles: false });
  const clientOf = (apiKey: string): OpenAI => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });
  const client = clientOf('a');
  const list = (query: object, by = client): Promise<Page> => by.get('/responses', { query });
  expect(await list({})).toEqual({ object: 'list', data: [], first_id: null, last_id: null, has_more: false });
  const ids: string[] = [];
  const create = async (more: object = {}): Promise<void> => {
    ids.unshift((await client.responses.create({ model: 'm', input: 'Hi', ...more })).id);
  };
  await create();
  await create();
  await create({ tools: [ask] });
  const headers = { authorization: 'Bearer a' };
  const chat = { method: 'POST', headers: { ...headers, 'content-type': 'application/json' } };
  await (await fetch(`${server.url}/v1/chat`, { ...chat, body: JSON.stringify({ message: 'Hi' }) })).text();
  await client.responses.create({ model: 'm', input: 'Hi', store: false });
  const other = await clientOf('b').responses.create({ model: 'm', input: 'Hi' });
  const unstored = { model: 'm', input: 'Hi', store: false } as const;
  await client.responses.create(unstored, { headers: { 'idempotency-key': 'k' } });
  await create();

  const all = await list({});
  expect(all.data.map(({ id }) => id)).toEqual(ids);
  expect(all.data[0]).toEqual(await client.get(`/responses/${ids[0]}`));
  expect(all.data[1]).toMatchObject({ status: 'completed', pending_call_ids: [expect.any(String)] });
  const first = await list({ limit: 3 });
  expect([first.data.length, first.last_id, first.has_more]).toEqual([3, ids[2], true]);
  const rest = await list({ limit: 3, after: first.last_id });
  expect([rest.data.map(({ id }) => id), rest.has_more]).toEqual([ids.slice(3), false]);
  expect((await list({}, clientOf('b'))).data.map(({ id }) => id)).toEqual([other.id]);
  // The cursor of another tenant is not known.
  for (const query of [{ after: other.id }, { after: 'resp_0' }, { order: 'asc' }, { limit: 0 }]) {
    await expect(list(query)).rejects.toMatchObject({ status: 400 });
  }
  await client.responses.delete(ids[0]!);
  expect((await list({})).data.map(({ id }) => id)).toEqual(ids.slice(1));
});

test('finds responses behind more than ten thousand runs of other APIs', async () => {
  const store = await openTestStore();
  const model = scriptedModel(['Hi.']);
  await using server = await startInProcess(model, { store });
  const { id } = JSON.parse((await server.post({ input: 'Hi' })).text) as { id: string };
  const [own] = await store.list({ runId: id });
  const principal = { subject: 'chat', tenant: own!.tenant, scopes: [] };
  const at = Date.now() + 1_000;
  await Promise.all(
    Array.from({ length: 10_050 }, async (_, index) => {
      const event = { type: 'run-started', at, runId: `chat_${index}`, model: 'm', input: [], principal };
      return store.append(event.runId, [{ v: 1, seq: 0, event, issued: [] } as unknown as JournalEntry]);
    }),
  );
  const { body } = await server.send('GET', '/v1/responses');
  expect([body.data.map((one: Response) => one.id), body.has_more]).toEqual([[id], false]);
});
