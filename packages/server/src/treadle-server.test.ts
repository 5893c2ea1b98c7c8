import { tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { afterAll, expect, test } from 'vitest';
import { newLog } from './http/log.ts';
import type { TreadleServerOptions } from './server-options.ts';
import { treadleServer } from './treadle-server.ts';

const store = sqliteStore(':memory:');
afterAll(() => store.close());
const good: TreadleServerOptions = {
  models: { default: 'm', models: new Map([['m', scriptedModel([])]]) },
  store,
  port: 0,
  log: newLog({ level: 'silent' }),
};
const read = tool({ name: 'read', description: 'Reads', execute: () => '' });

test.each<[Partial<TreadleServerOptions>, string]>([
  [{ maxTurns: 0 }, 'maxTurns must be a whole number of at least 1, not 0.'],
  [{ maxTurns: 1.5 }, 'maxTurns'],
  [{ toolTimeoutMs: 0 }, 'toolTimeoutMs'],
  [{ errorLimit: -1 }, 'errorLimit'],
  [{ maxConcurrentRuns: Number.NaN }, 'maxConcurrentRuns'],
  [{ heartbeatMs: 0 }, 'heartbeatMs'],
  [{ sendTimeoutMs: 0 }, 'sendTimeoutMs'],
  [{ maxBodyBytes: -1 }, 'maxBodyBytes'],
  [{ requestsPerMinute: 0 }, 'requestsPerMinute'],
  [{ models: { default: 'x', models: good.models.models } }, 'The default model "x" is not one of the models: m.'],
  [{ tools: [tool({ name: 'ask', description: 'Asks' })] }, 'has no execute function'],
  [{ tools: [read, read] }, 'same name'],
  [{ tools: {} as never }, 'treadleServer has an object as "tools". Use an array.'],
  [{ maxTruns: 3 } as object, 'treadleServer has no option "maxTruns". Did you mean "maxTurns"?'],
  [{ model: scriptedModel([]) } as object, 'treadleServer has no option "model". Use "models".'],
  [{ models: scriptedModel([]) as never }, 'There are no models. Pass { default'],
  [{ store: undefined as never }, 'There is no store. Pass sqliteStore(path) as store.'],
  [{ tools: [read], defaultTools: ['write'] }, 'not one of the tools: read.'],
])('rejects the options %j', (options, message) => {
  expect(() => treadleServer({ ...good, ...options })).toThrow(message);
});

test('returns the same address when listen is called twice', async () => {
  const server = treadleServer(good);
  expect(await server.listen()).toBe(await server.listen());
  await server.close();
});

test('completes deletions of conversations that were interrupted, also without retention', async () => {
  const pruned = Promise.withResolvers<number>();
  const conversations = { ...store.conversations, prune: async (before: number) => (pruned.resolve(before), 0) };
  const server = treadleServer({ ...good, store: { ...store, conversations }, retentionMs: 0 });
  await server.listen();
  expect(await pruned.promise).toBe(-Infinity);
  await server.close();
});
