import { tool, type Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { demo } from '@treadle/models';
import { hashKey, newKey, type TestModel } from '@treadle/server';
import { expect, test } from 'vitest';
import { startInProcess } from './support/in-process.ts';

const read = tool({ name: 'read', description: 'Reads', effect: 'pure', execute: () => '' });
const bash = tool({ name: 'bash', description: 'Runs', execute: () => '' });
const text: Model = { ...scriptedModel([]), accepts: { images: false } };
const models = {
  default: 'main',
  models: new Map([
    ['main', text],
    ['demo', demo()],
  ]),
};

test('GET /v1/server describes the models, the tools and the caller, with any key', async () => {
  const key = newKey();
  const keys = [{ name: 'ann', hash: hashKey(key), tenant: 'acme', scopes: ['chat:read'] as const }];
  const skill = {
    name: 'review',
    description: 'Reviews',
    text: 'Look.',
    folder: '/skills/review',
    files: [],
    invocation: 'both',
    execution: 'inline',
    dependencies: [],
    status: 'active',
  } as const;
  const others = [
    { ...skill, name: 'own', invocation: 'model' },
    { ...skill, name: 'old', status: 'disabled' },
  ] as const;
  const options = { models, tools: [read, bash], defaultTools: ['read'], skills: [skill, ...others] };
  const offer = {
    object: 'server',
    models: [
      { id: 'main', is_default: true, is_demo: false, accepts: { images: false, files: true } },
      { id: 'demo', is_default: false, is_demo: true, accepts: { images: true, files: true } },
    ],
    tools: [
      { name: 'read', description: 'Reads', is_default: true },
      { name: 'bash', description: 'Runs', is_default: false },
    ],
    agents: [],
    skills: [{ name: 'review', description: 'Reviews' }],
    has_memory: false,
    can_test_models: false,
  };
  await using open = await startInProcess(text, options);
  expect((await open.send('GET', '/v1/server')).body).toEqual({ ...offer, key: null });
  await using server = await startInProcess(text, { ...options, keys });
  const headers = { authorization: `Bearer ${key}` };
  expect((await server.send('GET', '/v1/server', undefined, headers)).body).toEqual({
    ...offer,
    key: { name: 'ann', tenant: 'acme', scopes: ['chat:read'] },
  });
  expect((await server.send('POST', '/v1/server/test', {}, headers)).status).toBe(403);
  expect((await server.send('GET', '/v1/server')).status).toBe(401);
});

test('POST /v1/server/test tests a model, and tells only the operator the address of one that fails', async () => {
  const key = newKey();
  const keys = [{ name: 'ann', hash: hashKey(key), scopes: ['chat:write'] as const }];
  const error = { code: 'network', message: 'connect ECONNREFUSED 10.0.0.7:80', retryable: true } as const;
  const testModel: TestModel = async (model) =>
    model.id === 'demo' ? { reachable: true, tools: true, streams: true, ms: 5 } : { reachable: false, ms: 7, error };
  await using open = await startInProcess(text, { models, testModel });
  expect((await open.send('POST', '/v1/server/test', { model: 'demo' })).body).toEqual({
    object: 'model.test',
    model: 'demo',
    reachable: true,
    tools: true,
    streams: true,
    ms: 5,
    error: null,
  });
  expect((await open.send('POST', '/v1/server/test', {})).body).toMatchObject({
    model: 'main',
    reachable: false,
    tools: null,
    error: { code: 'network', message: error.message },
  });
  expect((await open.send('POST', '/v1/server/test', { model: 'none' })).status).toBe(404);
  expect((await open.send('POST', '/v1/server/test', { what: 1 })).status).toBe(400);
  await using server = await startInProcess(text, { models, testModel, keys });
  const { body } = await server.send('POST', '/v1/server/test', {}, { authorization: `Bearer ${key}` });
  expect(body.error).toEqual({ code: 'network', message: 'The model cannot be reached. Retry later.' });
  await using without = await startInProcess(text, { models });
  expect((await without.send('POST', '/v1/server/test', {})).body.error.code).toBe('test_unavailable');
});

test('a test of a model counts as a run, and ends when its client disconnects', async () => {
  const started = Promise.withResolvers<AbortSignal>();
  const testModel: TestModel = (_, signal) => {
    started.resolve(signal);
    return new Promise((resolve) => {
      signal.addEventListener('abort', () => resolve({ reachable: false, ms: 1 }));
    });
  };
  await using server = await startInProcess(text, { models, testModel, maxConcurrentRuns: 1 });
  const leaving = new AbortController();
  const init = { method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } };
  const left = fetch(`${server.url}/v1/server/test`, { ...init, signal: leaving.signal });
  const signal = await started.promise;
  expect((await server.send('POST', '/v1/server/test', {})).body.error.code).toBe('too_many_runs');
  const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
  leaving.abort();
  await expect(left).rejects.toThrow('aborted');
  await aborted;
});
