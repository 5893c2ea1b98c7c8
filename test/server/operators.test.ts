import { tool, type Model, type ModelReply } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { router } from '@treadle/models';
import { hashKey, newKey, newLog, newMetrics, type TreadleServerOptions } from '@treadle/server';
import { expect, test } from 'vitest';
import { responseIdIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

type Line = Readonly<Record<string, unknown>>;

const SECRET = 'the-secret-of-the-user';
const USAGE = { inputTokens: 100, outputTokens: 20, cachedTokens: 40, cost: 0.0125 };

const lookUp = tool({ name: 'look_up', description: 'Looks up', execute: () => `found ${SECRET}` });
const broken = tool({
  name: 'broken',
  description: 'Fails',
  execute() {
    throw new Error(SECRET);
  },
});

/** A server with a log, and its metrics by name and labels. */
async function start(
  model: Model | readonly ScriptStep[],
  options: Partial<TreadleServerOptions> = {},
): Promise<{
  server: InProcessServer;
  lines: (message: string) => readonly Line[];
  text: () => string;
  metrics: (headers?: Record<string, string>) => Promise<ReadonlyMap<string, number>>;
  [Symbol.asyncDispose]: () => PromiseLike<void>;
}> {
  const written: string[] = [];
  const log = newLog({ to: { write: (line) => void written.push(line) } });
  const server = await startInProcess('reply' in model ? model : scriptedModel(model), { log, ...options });
  return {
    server,
    text: () => written.join(''),
    lines: (message) => written.map((line) => JSON.parse(line) as Line).filter(({ msg }) => msg === message),
    async metrics(headers = {}) {
      const answer = await fetch(`${server.url}/metrics`, { headers });
      expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
      const samples = (await answer.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
      return new Map(samples.map((line) => [line.replace(/ \S+$/, ''), Number(line.replace(/.* /, ''))]));
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const CALLS: ScriptStep = {
  calls: [{ name: 'look_up' }, { name: 'look_up' }, { name: 'broken' }, { name: SECRET }],
  usage: USAGE,
};

test('one line per run has its ids, models, tokens, cost, tools and outcome, and no content', async () => {
  await using at = await start([CALLS, { text: SECRET, usage: USAGE }], { tools: [lookUp, broken] });
  const { text } = await at.server.post(
    { input: SECRET, instructions: SECRET, tools: [{ type: 'mcp', server_label: 'treadle' }] },
    { 'x-request-id': 'mine' },
  );
  const runId = responseIdIn(text);
  expect(at.lines('run')).toEqual([
    {
      level: 'info',
      time: expect.any(String),
      requestId: 'mine',
      runId,
      tenant: 'default',
      key: '',
      outcome: 'completed',
      model: 'm',
      turns: 2,
      inputTokens: 200,
      outputTokens: 40,
      cachedTokens: 80,
      cost: 0.025,
      tools: { look_up: 2, broken: 1, other: 1 },
      toolErrors: 2,
      ms: expect.any(Number),
      msg: 'run',
    },
  ]);
  expect(JSON.stringify([...at.lines('run'), ...at.lines('request')])).not.toContain(SECRET);
  await at.server.get(runId);
  // The line of the first request was written before the second one was answered.
  expect(at.lines('request')[0]).toMatchObject({ requestId: 'mine', runId, status: 200 });
  expect(at.lines('request')[1] ?? {}).not.toHaveProperty('runId');
});

test('the lines of chat completions and conversations have the ids of request and run', async () => {
  await using at = await start(['One.', 'Two.']);
  const completion = { messages: [{ role: 'user', content: 'hi' }] };
  await at.server.send('POST', '/v1/chat/completions', completion, { 'x-request-id': 'first' });
  await (
    await fetch(`${at.server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'second' },
      body: JSON.stringify({ message: 'hi' }),
    })
  ).text();
  await at.metrics();
  const runs = at.lines('run').map(({ requestId, runId, outcome }) => ({ requestId, runId, outcome }));
  expect(runs).toEqual([
    { requestId: 'first', runId: expect.stringMatching(/^resp_/), outcome: 'completed' },
    { requestId: 'second', runId: expect.stringMatching(/^resp_/), outcome: 'completed' },
  ]);
  expect(at.lines('request').slice(0, 2)).toMatchObject(runs.map(({ requestId, runId }) => ({ requestId, runId })));
});

test('a run that fails says why, and one with a fallback which model replied', async () => {
  const down: ModelReply = {
    type: 'failure',
    error: { code: 'overloaded', message: SECRET, retryable: false },
  };
  const models = router({
    models: { main: scriptedModel([down, down]), spare: scriptedModel(['Spare.', down]) },
    default: 'main',
    fallback: { main: ['spare'] },
    maxRetries: 0,
  });
  await using at = await start(models);
  await at.server.post({ input: 'hi' });
  expect(at.lines('run')[0]).toMatchObject({ outcome: 'completed', model: 'm', fallback: 'spare' });
  await at.server.post({ input: 'hi', store: false });
  expect(at.lines('run')[1]).toMatchObject({ outcome: 'failed', reason: expect.any(String), turns: 0 });
  expect(JSON.stringify(at.lines('run'))).not.toContain(SECRET);
  const metrics = await at.metrics();
  expect(metrics.get('treadle_model_fallbacks_total{model="m"}')).toBe(1);
  expect(metrics.get('treadle_model_calls_total{model="m",outcome="overloaded"}')).toBe(1);
});

test('a start says how many runs were recovered, and the metrics count them', async () => {
  const store = await openTestStore();
  const replying = Promise.withResolvers<void>();
  const hangs: ScriptStep = (_, signal) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
      replying.resolve();
    });
  {
    await using at = await start([hangs], { store });
    expect(at.lines('runs were recovered')).toMatchObject([{ level: 'info', recovered: 0 }]);
    void at.server.post({ input: 'hi' }).catch(() => {});
    await replying.promise;
  }
  await using at = await start(['Done.'], { store });
  expect(at.server.recovered).toBe(1);
  expect(at.lines('runs were recovered')).toMatchObject([{ level: 'info', recovered: 1 }]);
  while (at.lines('run').length === 0) await at.metrics();
  expect(at.lines('run')).toMatchObject([{ outcome: 'completed', resumed: true, turns: 1 }]);
  expect((await at.metrics()).get('treadle_runs_recovered_total')).toBe(1);
  await at.server[Symbol.asyncDispose]();
  await store.close();
});

test('/metrics has requests by route, runs, tokens, cost, tools, queue, event loop and store', async () => {
  const registry = newMetrics();
  registry.gauge('my_own', 'Of the program.', () => 7);
  await using at = await start([CALLS, { text: 'Done.', usage: USAGE }], {
    tools: [lookUp, broken],
    metrics: registry,
    maxConcurrentRuns: 9,
  });
  const { text } = await at.server.post({ input: 'go', tools: [{ type: 'mcp', server_label: 'treadle' }] });
  await at.server.get(responseIdIn(text));
  await at.server.get('resp_unknown');
  for (const path of ['/nowhere/a', '/nowhere/b', '/healthz']) await (await fetch(at.server.url + path)).text();
  const metrics = await at.metrics();
  expect(Object.fromEntries(metrics)).toMatchObject({
    'treadle_http_requests_total{method="POST",route="/v1/responses",status="200"}': 1,
    'treadle_http_requests_total{method="GET",route="/v1/responses/{id}",status="200"}': 1,
    'treadle_http_requests_total{method="GET",route="/v1/responses/{id}",status="404"}': 1,
    'treadle_http_requests_total{method="GET",route="(none)",status="404"}': 2,
    'treadle_http_requests_total{method="GET",route="/healthz",status="200"}': 1,
    'treadle_http_request_duration_seconds_count{route="/v1/responses/{id}"}': 2,
    'treadle_runs_total{outcome="completed"}': 1,
    treadle_run_duration_seconds_count: 1,
    'treadle_model_calls_total{model="m",outcome="replied"}': 2,
    'treadle_tokens_total{model="m",type="input"}': 200,
    'treadle_tokens_total{model="m",type="output"}': 40,
    'treadle_tokens_total{model="m",type="cached"}': 80,
    'treadle_cost_dollars_total{model="m"}': 0.025,
    'treadle_tool_calls_total{tool="look_up"}': 2,
    'treadle_tool_calls_total{tool="broken"}': 1,
    'treadle_tool_calls_total{tool="other"}': 1,
    'treadle_tool_errors_total{tool="broken"}': 1,
    treadle_runs_in_progress: 0,
    treadle_runs_limit: 9,
    treadle_bytes_in_progress: 0,
    treadle_http_requests_in_progress: 1,
    treadle_http_requests_waiting: 0,
    treadle_runs_recovered_total: 0,
    my_own: 7,
  });
  expect(metrics.get('treadle_event_loop_delay_seconds{quantile="0.99"}')).toBeGreaterThanOrEqual(0);
  expect(metrics.get('treadle_store_commit_duration_seconds_count')).toBeGreaterThan(3);
  expect(metrics.get('treadle_store_commit_duration_seconds_sum')).toBeLessThan(10);
  expect([...metrics.keys()].join('\n')).not.toContain(SECRET);
});

test('functions of clients are counted together', async () => {
  await using at = await start([{ calls: [{ name: 'weather' }, { name: 'time' }] }, 'Done.']);
  const functions = ['weather', 'time'].map((name) => ({ type: 'function', name }));
  const first = JSON.parse((await at.server.post({ input: 'go', tools: functions })).text);
  expect(at.lines('run')).toMatchObject([{ outcome: 'waiting' }]);
  await at.server.post({
    previous_response_id: first.id,
    input: first.pending_call_ids.map((id: string) => ({ type: 'function_call_output', call_id: id, output: 'x' })),
    tools: functions,
  });
  expect([...(await at.metrics()).keys()].join('\n')).not.toMatch(/weather|time"/);
});

test('/metrics needs the scope metrics:read if the server has keys, which allows only that and the status', async () => {
  const [plain, reader] = [newKey(), newKey()];
  await using at = await start([], {
    keys: [
      { name: 'plain', hash: hashKey(plain) },
      { name: 'prometheus', hash: hashKey(reader), scopes: ['metrics:read'] },
    ],
  });
  const { server } = at;
  expect(await server.send('GET', '/metrics')).toMatchObject({ status: 401 });
  expect(await server.send('GET', '/metrics', undefined, { authorization: `Bearer ${plain}` })).toMatchObject({
    status: 403,
    body: { error: { code: 'insufficient_scope' } },
  });
  const headers = { authorization: `Bearer ${reader}` };
  expect((await at.metrics(headers)).get('treadle_runs_in_progress')).toBe(0);

  const { body } = await server.send('GET', '/openapi.json', undefined, { authorization: `Bearer ${plain}` });
  const paths = Object.entries(body.paths as Record<string, Record<string, { readonly security?: unknown }>>);
  const routes = paths.flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { security }]) => (security ? [{ method, path }] : [])),
  );
  const allowed: string[] = [];
  for (const { method, path } of routes) {
    const url = server.url + path.replaceAll(/\{\w+\}/g, 'x');
    const { status } = await fetch(url, { method: method.toUpperCase(), headers });
    if (status !== 403) allowed.push(`${method} ${path}`);
  }
  expect(routes.length).toBeGreaterThan(40);
  expect(allowed).toEqual(['get /metrics', 'get /v1/status']);
});
