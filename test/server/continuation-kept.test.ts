import { scriptedModel } from '@treadle/core/testing';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { asking, textIn } from './open-responses/asking.ts';

test('a response has ended for nobody before it is kept that it has', async () => {
  using model = scriptedModel(['Hello.', 'Hello again.']);
  const store = sqliteStore(':memory:');
  const arrived = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const slow: typeof store.responses = {
    ...store.responses,
    async finish(...ended) {
      arrived.resolve();
      await released.promise;
      return store.responses.finish(...ended);
    },
  };
  const server = treadleServer({
    port: 0,
    models: { default: 'm', models: new Map([['m', model]]) },
    store: { ...store, responses: slow },
    log: newLog({ level: 'silent' }),
  });
  const { url } = await server.listen();
  const { begin, retrieve, respond } = asking(() => url);

  const { id, ended } = await begin({ input: 'Hi' });
  await arrived.promise;
  const seen = await retrieve(id);
  expect(seen).toMatchObject({ status: 'in_progress', completed_at: null, usage: null });
  expect(textIn(seen)).toBe('Hello.');
  released.resolve();
  expect((await ended).response.status).toBe('completed');
  expect(await retrieve(id)).toEqual((await ended).response);
  expect(textIn(await respond({ input: 'Again', previous_response_id: id }))).toBe('Hello again.');
  await server.close();
  await store.close();
});
