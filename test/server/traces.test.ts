import { agentTool, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type ApiKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { responseIdIn, startInProcess } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

let store: Store;
beforeEach(async () => {
  store = await openTestStore();
});
afterEach(() => store.close());

const SCOPES: ApiKey['scopes'] = ['agents:invoke', 'tools:execute', 'runs:read'];
const KEYS: readonly ApiKey[] = [
  { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: SCOPES },
  { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: SCOPES },
  { name: 'app', hash: hashKey('tk_app'), tenant: 'acme', scopes: ['agents:invoke'] },
];
const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });

const echo = tool({ name: 'echo', description: 'Repeats', effect: 'pure', execute: () => 'said' });
const fail = tool({ name: 'fail', description: 'Fails', execute: () => Promise.reject(new Error('broken')) });

test('the trace of a run has its turns, calls, failures and child runs', async () => {
  const helper = agentTool({
    name: 'helper',
    description: 'Helps',
    model: scriptedModel([{ calls: [{ name: 'echo' }] }, 'Helped.']),
    tools: [echo],
  });
  const tools = [echo, fail, helper];
  const calls = [{ name: 'echo' }, { name: 'fail' }, { name: 'helper', arguments: { task: 'help' } }];
  const model = scriptedModel([{ calls }, 'Done.']);
  await using server = await startInProcess(model, { store, tools, defaultTools: ['echo', 'fail', 'helper'] });
  const given = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  const id = responseIdIn((await server.post({ input: 'go', metadata: { a: 'b' } }, { traceparent: given })).text);
  const { body: trace } = await server.send('GET', `/v1/traces/${id}`);
  expect(trace).toMatchObject({
    object: 'trace',
    trace_id: '0af7651916cd43dd8448eb211c80319c',
    run_id: id,
    parent_run_id: null,
    status: 'completed',
    turns: 2,
    calls: 4,
    usage: { input_tokens: 40, output_tokens: 20, cost: 0 },
    failures: [
      { effect: 't1.tool.1', tool: 'fail', category: 'tool', code: 'F-EXE', severity: 'medium', recovered_by: null },
    ],
    steps: [
      {
        turn: 1,
        work: [{ effect: 't1.model.0', type: 'model', finish_reason: 'tool-calls' }],
        actions: [
          { id: 't1.0', tool: 'echo', status: 'succeeded', attempts: 1, error_type: null },
          { id: 't1.1', tool: 'fail', status: 'failed', error_type: 'execution_failed' },
          { id: 't1.2', tool: 'helper', status: 'succeeded', child_run_id: `${id}.t1.tool.2` },
        ],
      },
      { turn: 2, actions: [] },
    ],
    children: [{ run_id: `${id}.t1.tool.2`, parent_run_id: id, turns: 2, steps: [{ turn: 1 }, { turn: 2 }] }],
    forks: [],
  });
  expect(JSON.stringify(trace)).not.toContain('Helped.');
  const { body: listed } = await server.send('GET', '/v1/traces');
  expect(listed.data.map((one: { run_id: string }) => one.run_id)).toEqual([`${id}.t1.tool.2`, id]);
  expect(listed.data[1]).toEqual(Object.fromEntries(Object.keys(listed.data[1]).map((key) => [key, trace[key]])));
});

test('traces are listed in pages, with the filters of runs', async () => {
  await using server = await startInProcess(scriptedModel(['a', 'b', 'c']), { store });
  for (const input of ['one', 'two', 'three']) await server.post({ input });
  const first = (await server.send('GET', '/v1/traces?limit=2')).body;
  expect([first.data.length, first.has_more]).toEqual([2, true]);
  const second = (await server.send('GET', `/v1/traces?limit=2&cursor=${first.next_cursor}`)).body;
  expect([second.data.length, second.has_more, second.next_cursor]).toEqual([1, false, null]);
  expect((await server.send('GET', '/v1/traces?status=failed')).body.data).toEqual([]);
  expect((await server.send('GET', '/v1/traces?search=two')).body.data).toHaveLength(1);
  expect((await server.send('GET', '/v1/traces?include=waiting')).status).toBe(400);
});

test('traces need their scope, and belong to a tenant', async () => {
  await using server = await startInProcess(scriptedModel(['Hello.']), { store, keys: KEYS });
  const id = responseIdIn((await server.post({ input: 'Hi' }, as('ann'))).text);
  const statusFor = async (key: string): Promise<readonly number[]> => [
    (await server.send('GET', `/v1/traces/${id}`, undefined, as(key))).status,
    (await server.send('GET', '/v1/traces', undefined, as(key))).status,
  ];
  expect([await statusFor('ann'), await statusFor('bob'), await statusFor('app')]).toEqual([
    [200, 200],
    [404, 200],
    [403, 403],
  ]);
  expect((await server.send('GET', '/v1/traces', undefined, as('bob'))).body.data).toEqual([]);
});

test('a run whose entries do not replay has no trace', async () => {
  await using server = await startInProcess(scriptedModel(['Hello.']), { store });
  const id = responseIdIn((await server.post({ input: 'Hi' })).text);
  const entries = await store.read(id);
  const read = async (): Promise<typeof entries> => [entries[0]!, { ...entries[1]!, digest: 7 }];
  await using other = await startInProcess(scriptedModel([]), { store: { ...store, read } });
  const { status, body } = await other.send('GET', `/v1/traces/${id}`);
  expect([status, body.error.code]).toEqual([409, 'run_not_replayable']);
});
