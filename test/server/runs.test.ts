import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import {
  tool,
  TreadleError,
  type JournalEntry,
  type Model,
  type Policy,
  type RunSummary,
  type Tool,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, newLog, treadleServer, type ApiKey, type ServerStore } from '@treadle/server';
import type { Store } from '@treadle/store';
import { questionTool } from '@treadle/tools';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { responseIdIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { readRunEvents } from './support/run-events.ts';
import { frameReader } from './support/sse-frames.ts';
import { openTestStore } from './support/test-store.ts';

let folder: string;
let opened: Store[];
let store: Store;

/** A store on a file, for tests with several servers. */
const openStore = async (): Promise<Store> => {
  const one = await openTestStore(path.join(folder, 'runs.db'));
  opened.push(one);
  return one;
};

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-runs-'));
  store = await openTestStore();
  opened = [store];
});
afterEach(async () => {
  for (const one of opened) await one.close();
  await rm(folder, { recursive: true });
});

const ALL = ['agents:invoke', 'tools:execute', 'runs:read', 'runs:write'] as const;
const KEYS: readonly ApiKey[] = [
  { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme', scopes: ALL },
  { name: 'abe', hash: hashKey('tk_abe'), tenant: 'acme', scopes: ['runs:read', 'runs:write'] },
  { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt', scopes: ALL },
  { name: 'see', hash: hashKey('tk_see'), tenant: 'acme', scopes: ['runs:read'] },
  { name: 'app', hash: hashKey('tk_app'), tenant: 'acme', scopes: ['agents:invoke'] },
];
const as = (name: string): Record<string, string> => ({ authorization: `Bearer tk_${name}` });

/** A tool that waits until the test lets it return. */
function heldTool(): { readonly hold: Tool; readonly started: Promise<void>; release(): void } {
  const started = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  const hold = tool({
    name: 'hold',
    description: '',
    effect: 'pure',
    async execute() {
      started.resolve();
      await released.promise;
      return 'released';
    },
  });
  return { hold, started: started.promise, release: released.resolve };
}

const pay = tool({ name: 'pay', description: '', needsApproval: true, touches: () => [], execute: () => 'paid' });
const PAY = { calls: [{ name: 'pay', arguments: { amount: 5 } }] };

async function waitForStatus(server: InProcessServer, id: string, status: string, headers = {}): Promise<void> {
  while ((await server.send('GET', `/v1/runs/${id}`, undefined, headers)).body.status !== status) await setImmediate();
}

describe('listing runs', () => {
  test('shows the runs of the tenant, newest first, by each filter and in pages', async () => {
    const other: Model = { ...scriptedModel(['d']), id: 'other-id' };
    const models = {
      default: 'm',
      models: new Map<string, Model>([
        ['m', scriptedModel(['a', 'b', PAY, 'foreign'])],
        ['other', other],
      ]),
    };
    await using server = await startInProcess(scriptedModel([]), { store, models, keys: KEYS, tools: [pay] });
    const tools = [{ type: 'function', name: 'pay', parameters: { type: 'object', properties: {} } }];
    const ids: string[] = [];
    for (const body of [
      { input: 'Pay the rent' },
      { input: 'Sleep' },
      { input: 'pay the BILL', tools },
      { input: 'd', model: 'other' },
    ]) {
      ids.push(responseIdIn((await server.post(body, as('ann'))).text));
    }
    await server.post({ input: 'pay', model: 'm' }, as('bob'));
    const list = async (query: string): Promise<number[]> => {
      const { status, body } = await server.send('GET', `/v1/runs?${query}`, undefined, as('see'));
      expect(status).toBe(200);
      return body.data.map(({ id }: { id: string }) => ids.indexOf(id));
    };
    expect(await list('')).toEqual([3, 2, 1, 0]);
    expect(await list('status=paused')).toEqual([2]);
    expect(await list('status=paused,completed&search=PAY')).toEqual([2, 0]);
    expect(await list('model=other')).toEqual([3]);
    expect(await list('model=other-id')).toEqual([3]);
    const { startedAt } = (await store.list({ runId: ids[1]! }))[0]!;
    expect(await list(`since=${startedAt + 3_600_000}`)).toEqual([]);
    expect(await list(`until=${new Date(startedAt + 3_600_000).toISOString()}&search=sleep`)).toEqual([1]);
    expect(await list('parent=nobody')).toEqual([]);

    const pages: string[][] = [];
    for (let cursor = ''; ;) {
      const { body } = await server.send('GET', `/v1/runs?limit=3${cursor}`, undefined, as('ann'));
      pages.push(body.data.map(({ id }: { id: string }) => id));
      expect(body.has_more).toBe(body.next_cursor !== null);
      if (!body.has_more) break;
      cursor = `&cursor=${body.next_cursor}`;
    }
    expect(pages).toEqual([[ids[3], ids[2], ids[1]], [ids[0]]]);
  });

  test('with an invalid or unknown parameter is rejected with 400', async () => {
    await using server = await startInProcess(scriptedModel([]), { store });
    for (const [query, param] of [
      ['limit=0', 'limit'],
      ['limit=x', 'limit'],
      ['limit=101', 'limit'],
      ['status=done', 'status'],
      ['limit=0x10', 'limit'],
      ['since=yesterday', 'since'],
      ['since=-5', 'since'],
      ['since=about 5', 'since'],
      ['until=1e99', 'until'],
      ['cursor=abc', 'cursor'],
      ['tenant=bolt', 'tenant'],
    ]) {
      const { status, body } = await server.send('GET', `/v1/runs?${query}`);
      expect([status, body.error.param, body.error.type]).toEqual([400, param, 'invalid_request_error']);
    }
  });
});

test('a run is shown with what it used, what it waits for and how it ended', async () => {
  await using server = await startInProcess(scriptedModel([PAY, 'Paid.']), {
    store,
    tools: [pay],
    defaultTools: ['pay'],
    waitForAnswers: true,
    keys: KEYS,
  });
  const { status, text } = await server.post({ input: 'Pay' }, as('ann'));
  expect(status).toBe(503);
  expect(JSON.parse(text).error).toMatchObject({ code: 'response_waiting' });
  const id = /resp_\w+/.exec(text)![0];
  const { body: run } = await server.send('GET', `/v1/runs/${id}`, undefined, as('see'));
  expect(run).toEqual({
    id,
    object: 'run',
    narrowed_by: [],
    definition_change: null,
    status: 'paused',
    model: 'scripted',
    title: 'Pay',
    parent: null,
    session: null,
    task: null,
    labels: {},
    started_at: expect.any(Number),
    updated_at: expect.any(Number),
    wake_at: expect.any(Number),
    entries: 3,
    recovered: 0,
    driven: false,
    waiting: [
      {
        type: 'approval',
        effect: 't1.approval.0',
        tool: 'pay',
        call_id: expect.any(String),
        arguments: '{"amount":5}',
        expires_at: run.wake_at,
        digest: expect.any(String),
        touches: [],
        rule: 'needsApproval',
        required: 1,
        approvers: null,
        approved_by: [],
      },
    ],
    outcome: null,
    turns: 1,
    calls: 0,
    usage: { input_tokens: 10, output_tokens: 5, cost: 0 },
  });
  const [{ effect, digest }] = run.waiting;
  const answers = [{ type: 'approval', effect, digest, approved: true }];
  expect((await server.send('POST', `/v1/runs/${id}/answers`, { answers }, as('abe'))).status).toBe(200);
  await waitForStatus(server, id, 'completed', as('see'));
  const { body: ended } = await server.send('GET', `/v1/runs/${id}`, undefined, as('see'));
  expect(ended).toMatchObject({ waiting: [], outcome: { type: 'completed' }, turns: 2 });
  expect(await server.getEnded(id, as('ann'))).toMatchObject({ status: 'completed' });
  const given = (await store.read(id)).find(({ event }) => event.type === 'approval-given');
  expect(given!.event).toMatchObject({ approved: true, by: 'abe' });
});

describe('answers', () => {
  const settings = { tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
  const paused = async (server: InProcessServer): Promise<{ id: string; digest: string }> => {
    const id = responseIdIn((await server.post({ input: 'Pay', stream: true })).text);
    const { body } = await server.send('GET', `/v1/runs/${id}`);
    return { id, digest: body.waiting[0].digest };
  };
  const approval = { type: 'approval', effect: 't1.approval.0', approved: true };
  const pick = ({ effect, digest }: { effect: string; digest: string }): object => ({ effect, digest });

  test('that do not fit are rejected with the reason, and the run still waits', async () => {
    await using server = await startInProcess(scriptedModel([PAY, 'Refused.']), { ...settings, store });
    const { id, digest } = await paused(server);
    const answer = (...answers: object[]): ReturnType<InProcessServer['send']> =>
      server.send('POST', `/v1/runs/${id}/answers`, { answers });
    for (const [given, reason] of [
      [{ ...approval, digest: 'other' }, 'is bound to other arguments'],
      [{ ...approval, digest, effect: 't9.approval.0' }, 'does not wait for "t9.approval.0"'],
      [{ type: 'result', effect: 't1.approval.0', content: 'x' }, 'a "result" does not answer'],
    ] as const) {
      const { status, body } = await answer(given);
      expect([status, body.error.code]).toEqual([409, 'answer_unfit']);
      expect(body.error.message).toContain(reason);
    }
    expect((await server.send('GET', `/v1/runs/${id}`)).body).toMatchObject({ status: 'paused', entries: 3 });
    expect((await answer({ ...approval, digest, approved: false, reason: 'No.' })).status).toBe(200);
    await waitForStatus(server, id, 'completed');
    // The answer is used up.
    const late = await answer({ ...approval, digest });
    expect([late.status, late.body.error.code]).toEqual([409, 'answer_unfit']);
    expect(late.body.error.message).toMatch(/does not wait for|cannot be answered: it is completed/);
  });

  test('count for the name of the key, and only if it may approve', async () => {
    const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'ask', approvers: ['abe'] })) };
    const act = tool({ name: 'act', description: '', touches: () => [], execute: () => 'acted' });
    await using server = await startInProcess(scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']), {
      store,
      tools: [act],
      defaultTools: ['act'],
      waitForAnswers: true,
      policy,
      keys: KEYS,
    });
    const id = responseIdIn((await server.post({ input: 'Act', stream: true }, as('ann'))).text);
    const { body } = await server.send('GET', `/v1/runs/${id}`, undefined, as('see'));
    const [{ digest, approvers }] = body.waiting;
    expect(approvers).toEqual(['abe']);
    const path = `/v1/runs/${id}/answers`;
    const refused = await server.send('POST', path, { answers: [{ ...approval, digest }] }, as('ann'));
    expect([refused.status, refused.body.error.code]).toEqual([409, 'answer_unfit']);
    expect(refused.body.error.message).toBe('"ann" may not answer "t1.approval.0". Those who may are abe.');
    expect((await server.send('POST', path, { answers: [{ ...approval, digest }] }, as('abe'))).status).toBe(200);
    expect(await server.getEnded(id, as('ann'))).toMatchObject({ status: 'completed' });
  });

  test('of another form are rejected with 400', async () => {
    await using server = await startInProcess(scriptedModel([PAY]), { ...settings, store });
    const { id } = await paused(server);
    for (const [body, param] of [
      [{}, 'answers'],
      [{ answers: 'yes' }, 'answers'],
      [{ answers: [{ ...approval }] }, 'answers[0].digest'],
      [{ answers: [{ ...approval, digest: 'x', approved: 'yes' }] }, 'answers[0].approved'],
      [{ answers: [{ ...approval, digest: 'x', by: 'root' }] }, 'answers[0].by'],
      [{ answers: [{ type: 'allow', effect: 'x' }] }, 'answers[0].type'],
      [{ answers: [], approve: true }, 'approve'],
    ] as const) {
      const answer = await server.send('POST', `/v1/runs/${id}/answers`, body);
      expect([answer.status, answer.body.error.param]).toEqual([400, param]);
    }
  });

  test('that cannot be stored get a 503, and can be sent again', async () => {
    let isFull = false;
    const failing: ServerStore = {
      ...store,
      async append(...entries) {
        if (isFull) throw new TreadleError('store-full', 'The disk is full.');
        await store.append(...entries);
      },
    };
    await using server = await startInProcess(scriptedModel([PAY, 'Paid.']), { ...settings, store: failing });
    const { id, digest } = await paused(server);
    const answer = async (): Promise<number> =>
      (await server.send('POST', `/v1/runs/${id}/answers`, { answers: [{ ...approval, digest }] })).status;
    isFull = true;
    expect(await answer()).toBe(503);
    isFull = false;
    expect(await answer()).toBe(200);
    expect(await server.getEnded(id)).toMatchObject({ status: 'completed' });
  });

  test('and cancels that arrive together are applied one after the other', async () => {
    const slow: ServerStore = {
      ...store,
      async acquire(runId) {
        const lease = await store.acquire(runId);
        for (let turn = 0; turn < 50; turn++) await setImmediate();
        return lease;
      },
    };
    const two = { calls: [{ name: 'pay', arguments: { amount: 1 } }, ...PAY.calls] };
    const model = scriptedModel([two, 'Paid.', PAY]);
    await using server = await startInProcess(model, { ...settings, store: slow });
    const { id } = await paused(server);
    const { body } = await server.send('GET', `/v1/runs/${id}`);
    const [one, other]: { effect: string; digest: string }[] = body.waiting;
    const answered = await Promise.all(
      [one, other, one, other].map((wait) =>
        server.send('POST', `/v1/runs/${id}/answers`, {
          answers: [{ type: 'approval', ...pick(wait!), approved: true }],
        }),
      ),
    );
    const results = answered.map((answer) => answer.body.error?.code ?? answer.status);
    expect(results.toSorted()).toEqual([200, 200, 'answer_unfit', 'answer_unfit']);
    expect(await server.getEnded(id)).toMatchObject({ status: 'completed' });

    const { id: second } = await paused(server);
    const cancelled = await Promise.all([1, 2, 3].map(() => server.send('POST', `/v1/runs/${second}/cancel`)));
    expect(cancelled.map((answer) => answer.body.status)).toEqual(['cancelled', 'cancelled', 'cancelled']);
  });

  test('can be given at another server, which continues the run', async () => {
    store = await openStore();
    const first = await startInProcess(scriptedModel([PAY]), { ...settings, store });
    const { id, digest } = await paused(first);
    await first[Symbol.asyncDispose]();
    await using second = await startInProcess(scriptedModel(['Paid.']), { ...settings, store: await openStore() });
    expect(second.recovered).toBe(0);
    const { status } = await second.send('POST', `/v1/runs/${id}/answers`, { answers: [{ ...approval, digest }] });
    expect(status).toBe(200);
    expect(JSON.stringify(await second.getEnded(id))).toContain('Paid.');
  });

  test('reach a run that still runs', async () => {
    const { hold, started, release } = heldTool();
    const both = { calls: [{ name: 'hold' }, { name: 'pay' }] };
    const tools = [hold, pay];
    await using server = await startInProcess(scriptedModel([both, 'Done.']), {
      store,
      tools,
      defaultTools: ['hold', 'pay'],
      waitForAnswers: true,
    });
    const posted = server.post({ input: 'Go' });
    await started;
    const { body: list } = await server.send('GET', '/v1/runs?status=running');
    const [{ id }] = list.data;
    const { body: run } = await server.send('GET', `/v1/runs/${id}`);
    expect(run).toMatchObject({ status: 'running', driven: true, waiting: [{ tool: 'pay' }] });
    const [{ effect, digest }] = run.waiting;
    const answers = [{ type: 'approval', effect, digest, approved: true }];
    expect((await server.send('POST', `/v1/runs/${id}/answers`, { answers })).body.waiting).toEqual([]);
    release();
    expect(JSON.parse((await posted).text)).toMatchObject({ status: 'completed' });
  });

  test('to questions and client calls continue the run', async () => {
    const ask = tool({
      name: 'ask',
      description: '',
      effect: 'idempotent',
      execute: (_, { ask: question }) => question({ prompt: 'Which colour?', choices: ['red', 'blue'] }),
    });
    const weather = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } };
    const model = scriptedModel([{ calls: [{ name: 'ask' }] }, { calls: [{ name: 'weather' }] }, 'Blue and rainy.']);
    await using server = await startInProcess(model, {
      store,
      tools: [ask],
      defaultTools: ['ask'],
      waitForAnswers: true,
    });
    const id = responseIdIn((await server.post({ input: 'Go', tools: [weather], stream: true })).text);
    const answer = async (given: object): Promise<number> =>
      (await server.send('POST', `/v1/runs/${id}/answers`, { answers: [given] })).status;
    const waiting = async (): Promise<{ effect: string; question: unknown }> =>
      (await server.send('GET', `/v1/runs/${id}`)).body.waiting[0];
    const { effect, question } = await waiting();
    expect(question).toEqual({ prompt: 'Which colour?', choices: ['red', 'blue'] });
    expect(await answer({ type: 'answer', effect, value: 'green' })).toBe(409);
    expect(await answer({ type: 'answer', effect, value: 'blue' })).toBe(200);
    // Now it waits for its client, as any response does.
    expect(await server.getEnded(id)).toMatchObject({ pending_call_ids: [expect.any(String)] });
    const call = (await waiting()).effect;
    expect(await answer({ type: 'result', effect: call, content: 'rain' })).toBe(200);
    while (!JSON.stringify(await server.get(id)).includes('Blue and rainy.')) await setImmediate();
  });

  test('to client calls may have images, files and facts about an error', async () => {
    store = await openStore();
    const weather = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } };
    const model = scriptedModel([{ calls: [{ name: 'weather' }] }, 'Seen.']);
    await using server = await startInProcess(model, { store });
    const id = responseIdIn((await server.post({ input: 'Go', tools: [weather] })).text);
    const answer = (content: unknown, more = {}): ReturnType<InProcessServer['send']> =>
      server.send('POST', `/v1/runs/${id}/answers`, {
        answers: [{ type: 'result', effect: 't1.client.0', content, ...more }],
      });
    const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } };
    for (const [content, status, message] of [
      [5, 400, 'content'],
      [['rain'], 400, 'content'],
      [[{ ...image, mediaType: 5 }], 409, 'neither a text nor an array of complete content blocks'],
      [[{ type: 'video' }], 409, 'neither a text nor an array of complete content blocks'],
    ] as const) {
      const refused = await answer(content);
      expect([refused.status, JSON.stringify(refused.body)]).toEqual([status, expect.stringContaining(message)]);
    }
    const content = [{ type: 'text', text: 'no camera' }, image, { ...image, type: 'file', name: 'a.pdf' }];
    const facts = { is_error: true, error_type: 'timeout', exit_code: 3, stderr: 'slow' };
    expect((await answer(content, facts)).status).toBe(200);
    await server.getEnded(id);
    expect(model.requests.at(-1)!.messages.at(-1)).toMatchObject({
      content: [{ content, isError: true, errorType: 'timeout', exitCode: 3, stderr: 'slow' }],
    });
  });

  test('to client calls survive the death of the server that got them', async () => {
    store = await openStore();
    const weather = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } };
    const asked = Promise.withResolvers<void>();
    const hang = (): Promise<never> => {
      asked.resolve();
      return new Promise(() => {});
    };
    const first = await startInProcess(scriptedModel([{ calls: [{ name: 'weather' }] }, hang]), { store });
    const { text } = await first.post({ input: 'Go', tools: [weather] });
    const id = responseIdIn(text);
    const answer = (content: string, effect = 't1.client.0'): ReturnType<InProcessServer['send']> =>
      first.send('POST', `/v1/runs/${id}/answers`, { answers: [{ type: 'result', effect, content }] });
    expect((await answer('x', 't9.client.0')).status).toBe(409);
    // Nothing has changed.
    expect(await first.get(id)).toEqual(JSON.parse(text));
    expect((await answer('rain')).status).toBe(200);
    await asked.promise;
    expect(await first.get(id)).toMatchObject({ status: 'in_progress' });
    await first[Symbol.asyncDispose]();
    await using second = await startInProcess(scriptedModel(['It rains.']), { store: await openStore() });
    expect(second.recovered).toBe(1);
    expect(JSON.stringify(await second.getEnded(id))).toContain('It rains.');
  });

  test('are not waited for by default: the response fails', async () => {
    await using server = await startInProcess(scriptedModel([PAY]), { ...settings, store, waitForAnswers: false });
    expect(JSON.parse((await server.post({ input: 'Pay' })).text)).toMatchObject({ status: 'failed' });
  });

  test.each([
    ['an unstored response', '/v1/responses', { input: 'Order', store: false }],
    ['a chat completion', '/v1/chat/completions', { model: 'm', messages: [{ role: 'user', content: 'Order' }] }],
    ['a message', '/v1/messages', { model: 'm', max_tokens: 99, messages: [{ role: 'user', content: 'Order' }] }],
  ])('cannot be given to %s: a question tells the model that nobody can answer', async (_, url, body) => {
    using model = scriptedModel([{ calls: [{ name: 'question', arguments: { prompt: 'Which size?' } }] }, 'I took L.']);
    const asking = { store, tools: [questionTool()], defaultTools: ['question'], waitForAnswers: true };
    await using server = await startInProcess(model, asking);
    const answer = await server.send('POST', url, body);
    expect(answer.status).toBe(200);
    expect(JSON.stringify(answer.body)).toContain('I took L.');
    expect(JSON.stringify(model.requests.at(-1)!.messages)).toContain('Nobody can answer questions in this run.');
  });

  test('that nobody gives are a denial when the time is over', async () => {
    const policy: Policy = {
      judge: (calls) => calls.map(() => ({ type: 'ask', reason: 'money', ttlMs: 1 })),
    };
    const act = tool({ name: 'act', description: '', touches: () => [], execute: () => 'acted' });
    await using server = await startInProcess(scriptedModel([{ calls: [{ name: 'act' }] }, 'I may not.']), {
      store,
      tools: [act],
      defaultTools: ['act'],
      waitForAnswers: true,
      policy,
    });
    const id = responseIdIn((await server.post({ input: 'Act', stream: true })).text);
    expect(await server.getEnded(id)).toMatchObject({ status: 'completed' });
    expect(JSON.stringify(await store.read(id))).toContain('deadline-passed');
  });
});

describe('the events of a run', () => {
  const twoCalls = [{ calls: [{ name: 'hold' }] }, 'Done.'];

  test('are its journal, in pages and as a stream after any entry', async () => {
    const { hold, release } = heldTool();
    release();
    await using server = await startInProcess(scriptedModel(twoCalls), {
      store,
      tools: [hold],
      defaultTools: ['hold'],
    });
    const id = responseIdIn((await server.post({ input: 'Go' })).text);
    const entries = await store.read(id);
    const read: JournalEntry[] = [];
    for (let after = -1; ;) {
      const { body } = await server.send('GET', `/v1/runs/${id}/events?limit=2&after=${after}`);
      read.push(...body.data);
      after = body.last_seq;
      if (!body.has_more) break;
    }
    expect(read).toEqual(entries);
    for (let after = -1; after < entries.length; after++) {
      const events = await readRunEvents(server.url, id, { after });
      expect(await events.ended).toBe('[DONE]');
      expect(events.entries).toEqual(entries.slice(after + 1));
    }
    for (const query of ['after=-2', 'after=x', 'after=%20', 'after=1e2', 'limit=501', 'from=1']) {
      expect((await server.send('GET', `/v1/runs/${id}/events?${query}`)).status).toBe(400);
    }
  });

  test('arrive while it runs, at the server that drives it and at another one', async () => {
    store = await openStore();
    const { hold, started, release } = heldTool();
    const settings = { tools: [hold], defaultTools: ['hold'] };
    await using server = await startInProcess(scriptedModel(twoCalls), { ...settings, store });
    await using other = await startInProcess(scriptedModel([]), { ...settings, store: await openStore() });
    const posted = server.post({ input: 'Go' });
    await started;
    const [{ runId: id }] = (await store.list()) as readonly [RunSummary];
    const before = (await store.read(id)).length;
    const readers = await Promise.all([server, other].map(({ url }) => readRunEvents(url, id)));
    for (const reader of readers) await reader.received(before);
    expect((await other.send('POST', `/v1/runs/${id}/input`, { input: 'Hurry' })).status).toBe(200);
    release();
    for (const reader of readers) {
      expect(await reader.ended).toBe('[DONE]');
      expect(reader.entries).toEqual(await store.read(id));
    }
    await posted;
  });

  test('are complete for a client that reads before and after a restart', async () => {
    store = await openStore();
    const { hold, started, release } = heldTool();
    const settings = { tools: [hold], defaultTools: ['hold'] };
    const first = await startInProcess(scriptedModel(twoCalls), { ...settings, store });
    const posted = first.post({ input: 'Go' });
    await started;
    const [{ runId: id }] = (await store.list()) as readonly [RunSummary];
    const before = await readRunEvents(first.url, id);
    await before.received((await store.read(id)).length);
    await first[Symbol.asyncDispose]();
    expect(await before.ended).toContain('[DONE]');
    await posted;
    release();
    await using second = await startInProcess(scriptedModel(['Done.']), { ...settings, store: await openStore() });
    const after = await readRunEvents(second.url, id, { after: before.entries.at(-1)!.seq });
    await after.ended;
    expect([...before.entries, ...after.entries]).toEqual(await store.read(id));
    expect(after.entries.at(-1)).toMatchObject({ status: 'completed' });
  });
});

describe('the changes of all runs', () => {
  interface Changes {
    /** `ready`, the status of a run that has changed, `deleted`, or the code of an error. */
    readonly seen: readonly string[];
    until(what: string): Promise<void>;
    /** Resolves when the stream is closed. */
    readonly ended: Promise<void>;
    disconnect(): void;
  }

  async function readChanges(url: string, headers: Readonly<Record<string, string>> = {}): Promise<Changes> {
    const connection = new AbortController();
    const { signal } = connection;
    const answer = await fetch(`${url}/v1/runs`, { headers: { accept: 'text/event-stream', ...headers }, signal });
    if (answer.status !== 200) throw new Error(`status ${answer.status}: ${await answer.text()}`);
    const seen: string[] = [];
    let arrived = Promise.withResolvers<void>();
    const push = frameReader((frame) => {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(frame) ?? [];
      if (name === undefined) return;
      const { status, error, object, deleted } = JSON.parse(data!);
      if (name.startsWith('run.')) expect(object).toBe('run');
      seen.push(error?.code ?? (deleted ? 'deleted' : (status ?? name)));
      arrived.resolve();
      arrived = Promise.withResolvers();
    });
    async function readAll(): Promise<void> {
      const decoder = new TextDecoder();
      for await (const chunk of answer.body!) push(decoder.decode(chunk as Uint8Array, { stream: true }));
    }
    return {
      seen,
      async until(what) {
        while (!seen.includes(what)) await arrived.promise;
      },
      ended: readAll().catch(() => {}),
      disconnect: () => connection.abort(),
    };
  }

  test('are sent to the clients of the tenant, at every server with the store, until it shuts down', async () => {
    store = await openStore();
    const { hold, started, release } = heldTool();
    const settings = { tools: [hold], defaultTools: ['hold'], keys: KEYS };
    const model = scriptedModel([{ calls: [{ name: 'hold' }] }, 'Done.']);
    const server = await startInProcess(model, { ...settings, store });
    await using other = await startInProcess(scriptedModel([]), { ...settings, store: await openStore() });
    const own = await readChanges(server.url, as('see'));
    const elsewhere = await readChanges(other.url, as('ann'));
    const foreign = await readChanges(server.url, as('bob'));
    for (const reader of [own, elsewhere, foreign]) await reader.until('ready');
    const posted = server.post({ input: 'Go' }, as('ann'));
    await started;
    for (const reader of [own, elsewhere]) await reader.until('running');
    release();
    const id = responseIdIn((await posted).text);
    for (const reader of [own, elsewhere]) await reader.until('completed');
    expect((await server.send('DELETE', `/v1/responses/${id}`, undefined, as('ann'))).status).toBe(200);
    for (const reader of [own, elsewhere]) await reader.until('deleted');
    await server[Symbol.asyncDispose]();
    await Promise.all([own.ended, foreign.ended]);
    expect(own.seen.at(-1)).toBe('server_stopping');
    expect(foreign.seen).toEqual(['ready', 'server_stopping']);
    elsewhere.disconnect();
    await elsewhere.ended;
  });

  test('end when the key of the client is removed, and need the scope runs:read', async () => {
    const models = { default: 'm', models: new Map([['m', scriptedModel(['Done.'])]]) };
    const server = treadleServer({ port: 0, models, store, keys: KEYS, log: newLog({ level: 'silent' }) });
    const { url } = await server.listen();
    try {
      const [removed, kept] = await Promise.all(['see', 'bob'].map((name) => readChanges(url, as(name))));
      for (const reader of [removed!, kept!]) await reader.until('ready');
      await expect(readChanges(url, as('app'))).rejects.toThrow('status 403');
      server.replaceKeys(KEYS.filter(({ name }) => name !== 'see'));
      // It would get the change of a run that starts now.
      const headers = { 'content-type': 'application/json', ...as('ann') };
      const body = JSON.stringify({ model: 'm', input: 'Hi' });
      expect((await fetch(`${url}/v1/responses`, { method: 'POST', headers, body })).status).toBe(200);
      await Promise.race([removed!.ended, removed!.until('completed')]);
      expect(removed!.seen).toEqual(['ready']);
      await expect(readChanges(url, as('see'))).rejects.toThrow('status 401');
      kept!.disconnect();
      await kept!.ended;
      expect(kept!.seen).toEqual(['ready']);
    } finally {
      await server.close(0);
    }
  });
});

test('input lands at the next turn, and is rejected when the run has ended', async () => {
  const { hold, started, release } = heldTool();
  const model = scriptedModel([{ calls: [{ name: 'hold' }] }, 'In French: fini.']);
  await using server = await startInProcess(model, { store, tools: [hold], defaultTools: ['hold'] });
  const posted = server.post({ input: 'Go' });
  await started;
  const [{ runId: id }] = (await store.list()) as readonly [RunSummary];
  for (const body of [{}, { input: '' }, { input: 7 }, { input: 'x', role: 'system' }]) {
    expect((await server.send('POST', `/v1/runs/${id}/input`, body)).status).toBe(400);
  }
  const sent = await server.send('POST', `/v1/runs/${id}/input`, { input: 'Answer in French.' });
  expect(sent).toEqual({ status: 200, body: { id, object: 'run.input' } });
  release();
  await posted;
  expect(JSON.stringify(model.requests.at(-1)!.messages.at(-1))).toContain('Answer in French.');
  const late = await server.send('POST', `/v1/runs/${id}/input`, { input: 'Hurry' });
  expect([late.status, late.body.error.code]).toEqual([409, 'run_not_running']);
});

test('input that may be stored is not sent again when another process takes the run over', async () => {
  const { hold, started, release } = heldTool();
  const model = scriptedModel([{ calls: [{ name: 'hold' }] }, 'Fini.']);
  const losing: ServerStore = {
    ...store,
    async append(runId, entries, ...others) {
      await store.append(runId, entries, ...others);
      if (entries.some(({ event }) => event.type === 'input-added')) await store.releaseRun(runId, { force: true });
    },
  };
  await using server = await startInProcess(model, { store: losing, tools: [hold], defaultTools: ['hold'] });
  const posted = server.post({ input: 'Go' });
  await started;
  const [{ runId: id }] = (await store.list()) as readonly [RunSummary];
  const sent = await server.send('POST', `/v1/runs/${id}/input`, { input: 'Hurry' });
  expect([sent.status, sent.body.error.code]).toEqual([503, 'run_driver_silent']);
  release();
  await posted;
  expect((await store.read(id)).filter(({ event }) => event.type === 'input-added')).toHaveLength(1);
});

test('a run is cancelled while it runs, while it waits, and once', async () => {
  const { hold, started } = heldTool();
  const model = scriptedModel([{ calls: [{ name: 'hold' }] }, PAY]);
  await using server = await startInProcess(model, {
    store,
    tools: [hold, pay],
    defaultTools: ['hold', 'pay'],
    waitForAnswers: true,
  });
  const posted = server.post({ input: 'Go' });
  await started;
  const [{ runId: running }] = (await store.list()) as readonly [RunSummary];
  expect((await server.send('POST', `/v1/runs/${running}/cancel`)).body.status).toBe('cancelled');
  expect(JSON.parse((await posted).text)).toMatchObject({ id: running, status: 'cancelled' });
  const waiting = responseIdIn((await server.post({ input: 'Pay', stream: true })).text);
  for (let times = 0; times < 2; times++) {
    expect((await server.send('POST', `/v1/runs/${waiting}/cancel`)).body.status).toBe('cancelled');
  }
  expect(await server.get(waiting)).toMatchObject({ status: 'cancelled' });
});

test('a fork continues from an entry with changes, as a response of its own', async () => {
  const price = tool({ name: 'price', description: '', effect: 'pure', execute: () => '10' });
  const model = scriptedModel([{ calls: [{ name: 'price' }] }, 'It costs 10.', 'It costs 99.']);
  await using server = await startInProcess(model, { store, tools: [price], defaultTools: ['price'], keys: KEYS });
  const id = responseIdIn((await server.post({ input: 'Price?' }, as('ann'))).text);
  const at = (await store.read(id)).findIndex(({ event }) => event.type === 'tool-settled');
  const results = { 't1.tool.0': '99' };
  const { status, body } = await server.send('POST', `/v1/runs/${id}/fork`, { at, results }, as('abe'));
  expect([status, body]).toMatchObject([200, { object: 'run', parent: id }]);
  expect(JSON.stringify(await server.getEnded(body.id, as('ann')))).toContain('It costs 99.');
  expect(JSON.stringify(await server.get(id, as('ann')))).toContain('It costs 10.');
  const list = await server.send('GET', `/v1/runs?parent=${id}`, undefined, as('see'));
  expect(list.body.data).toMatchObject([{ id: body.id }]);
  for (const [fork, param] of [
    [{ at: 99 }, 'at'],
    [{}, 'at'],
    [{ at: -1 }, 'at'],
    [{ at, model: 'none' }, 'model'],
    [{ at, results: { 't9.tool.0': 'x' } }, 'at'],
    [{ at, tools: ['other'] }, 'at'],
    [{ at, limits: { turns: 1_000 } }, 'limits.turns'],
    [{ at, limits: { cost: 1 } }, 'limits.cost'],
  ] as const) {
    const refused = await server.send('POST', `/v1/runs/${id}/fork`, fork, as('ann'));
    expect([refused.status >= 400 && refused.status < 500, refused.body.error.param]).toEqual([true, param]);
  }
});

test('a fork can be previewed, and changes the input, the tools and the limits', async () => {
  const price = tool({ name: 'price', description: '', effect: 'pure', execute: () => '10' });
  const model = scriptedModel([{ calls: [{ name: 'price' }] }, 'It costs 10.', 'I do not know.']);
  await using server = await startInProcess(model, { store, tools: [price], defaultTools: ['price'] });
  const id = responseIdIn((await server.post({ input: 'Price?' })).text);
  const send = (body: object): ReturnType<InProcessServer['send']> => server.send('POST', `/v1/runs/${id}/fork`, body);
  expect((await send({ at: 1, preview: true })).body).toEqual({
    id,
    object: 'run.fork_preview',
    shared: 2,
    copied: [2],
    performs: [{ type: 'call-model', effect: 't2.model.0' }],
    waiting: [],
  });
  const changes = { input: 'Name a price.', tools: [], limits: { turns: 3 } };
  const preview = await send({ at: 0, ...changes, preview: true });
  expect(preview.body).toMatchObject({
    shared: 1,
    copied: [],
    performs: [{ type: 'call-model', effect: 't1.model.0' }],
  });
  expect(await store.list()).toHaveLength(1);
  const before = Date.now();
  const { body } = await send({ at: 0, ...changes });
  expect(body.started_at).toBeGreaterThanOrEqual(before);
  expect(JSON.stringify(await server.getEnded(body.id))).toContain('I do not know.');
  expect(model.requests.at(-1)).toMatchObject({ tools: [], messages: [{ content: [{ text: 'Name a price.' }] }] });
  const [first] = await store.read(body.id);
  expect(first!.event).toMatchObject({ rules: { maxTurns: 3 }, parent: { runId: id, seq: 0 } });
});

test('a fork of a chat is an answer in a conversation of its own', async () => {
  const price = tool({ name: 'price', description: '', effect: 'pure', execute: () => '10' });
  const model = scriptedModel([
    'Hello.',
    { calls: [{ name: 'price' }] },
    'It costs 10.',
    'It costs 99.',
    'You are welcome.',
  ]);
  await using server = await startInProcess(model, { store, tools: [price], defaultTools: ['price'] });
  const chat = async (message: string, conversation?: string): Promise<string> => {
    const body = JSON.stringify({ message, ...(conversation && { conversation_id: conversation }) });
    const headers = { 'content-type': 'application/json' };
    return (await fetch(`${server.url}/v1/chat`, { method: 'POST', headers, body })).text();
  };
  const original = /"conversation_id":"(conv_\w+)"/.exec(await chat('Hi'))![1]!;
  const id = /"run_id":"(resp_\w+)"/.exec(await chat('Price?', original))![1]!;
  const before = (await server.send('GET', `/v1/chat/${original}`)).body;
  const at = (await store.read(id)).findIndex(({ event }) => event.type === 'tool-settled');
  const { body } = await server.send('POST', `/v1/runs/${id}/fork`, { at, results: { 't1.tool.0': '99' } });
  await waitForStatus(server, body.id, 'completed');
  const { data } = (await server.send('GET', '/v1/chat')).body;
  const forked = data.find((one: { id: string }) => one.id !== original).id as string;
  await fetch(`${server.url}/v1/chat/${forked}/stream`).then((answer) => answer.text());
  const { messages } = (await server.send('GET', `/v1/chat/${forked}`)).body;
  expect(messages).toMatchObject([
    { content: 'Hi' },
    { parts: [{ text: 'Hello.' }] },
    { content: 'Price?' },
    { run_id: body.id, status: 'completed', parts: [{ result: { content: '99' } }, { text: 'It costs 99.' }] },
  ]);
  expect((await server.send('GET', `/v1/chat/${original}`)).body).toEqual(before);
  expect(await chat('Thanks', forked)).toContain('welcome.');
});

test('an export has the run as the command reads it', async () => {
  await using server = await startInProcess(scriptedModel(['Hello.']), { store });
  const id = responseIdIn((await server.post({ input: 'Hi' })).text);
  const answer = await fetch(`${server.url}/v1/runs/${id}/export`);
  expect(answer.headers.get('content-type')).toContain('application/x-ndjson');
  expect(answer.headers.get('content-disposition')).toBe(`attachment; filename="${id}.jsonl"`);
  const [header, ...lines] = (await answer.text())
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(header).toMatchObject({ format: 'treadle-run', version: 1, runId: id, entries: 2 });
  expect(lines.map(({ entry }) => entry)).toEqual(await store.read(id));
  await using other = await startInProcess(scriptedModel([]), { store, keys: KEYS });
  const statusFor = async (key: string): Promise<number> =>
    (await fetch(`${other.url}/v1/runs/${id}/export`, { headers: as(key) })).status;
  expect([await statusFor('bob'), await statusFor('app')]).toEqual([404, 403]);
});

test('a list includes what its runs wait for', async () => {
  const settings = { store, tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
  await using server = await startInProcess(scriptedModel([PAY, 'Paid.']), settings);
  const id = responseIdIn((await server.post({ input: 'Pay', stream: true })).text);
  await server.post({ input: 'Again' });
  const { body } = await server.send('GET', '/v1/runs?include=waiting');
  expect(body.data).toMatchObject([
    { status: 'completed', waiting: [] },
    { id, waiting: [{ type: 'approval', tool: 'pay', effect: 't1.approval.0' }] },
  ]);
  expect((await server.send('GET', '/v1/runs?include=all')).body.error.param).toBe('include');
});

test('a page of runs that wait for long calls ends early', async () => {
  const settings = { store, tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
  const call = { calls: [{ name: 'pay', arguments: { text: 'x'.repeat(2_100_000) } }] };
  await using server = await startInProcess(scriptedModel([call, call]), settings);
  for (let n = 0; n < 2; n++) await server.post({ input: 'Pay', stream: true });
  const ids: string[] = [];
  for (let cursor = ''; ;) {
    const { body } = await server.send('GET', `/v1/runs?include=waiting${cursor}`);
    expect(body.data).toHaveLength(1);
    ids.push(body.data[0].id);
    if (!body.has_more) break;
    cursor = `&cursor=${body.next_cursor}`;
  }
  expect(new Set(ids).size).toBe(2);
});

test('resuming leaves a run that waits or has ended as it is', async () => {
  const settings = { store, tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
  await using server = await startInProcess(scriptedModel([PAY, 'Done.']), settings);
  const waiting = responseIdIn((await server.post({ input: 'Pay', stream: true })).text);
  const ended = responseIdIn((await server.post({ input: 'Hi' })).text);
  for (const [id, status] of [
    [waiting, 'paused'],
    [ended, 'completed'],
  ] as const) {
    const { length } = await store.read(id);
    expect((await server.send('POST', `/v1/runs/${id}/resume`)).body).toMatchObject({ id, status });
    expect(await store.read(id)).toHaveLength(length);
  }
});

test('a replay says whether the journal leads to the same run, and where not', async () => {
  await using server = await startInProcess(scriptedModel(['Hello.']), { store });
  const id = responseIdIn((await server.post({ input: 'Hi' })).text);
  const replay = async (): Promise<unknown> => (await server.send('POST', `/v1/runs/${id}/replay`)).body;
  expect(await replay()).toEqual({ id, object: 'run.replay', entries: 2, equal: true });
  const entries = await store.read(id);
  const changed = [entries[0]!, { ...entries[1]!, digest: 7 }];
  await using other = await startInProcess(scriptedModel([]), { store: { ...store, read: async () => changed } });
  expect((await other.send('POST', `/v1/runs/${id}/replay`)).body).toMatchObject({
    equal: false,
    first: { seq: 1, event: 'model-replied', difference: expect.stringContaining('it was 7') },
  });
});

test('webhooks report runs that wait and end', async () => {
  const received: { readonly type: string; readonly data: { readonly id: string } }[] = [];
  const all = Promise.withResolvers<void>();
  const receiver = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      received.push(JSON.parse(Buffer.concat(chunks).toString()));
      outgoing.writeHead(204).end();
      if (received.length === 2) all.resolve();
    });
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  const settings = { tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
  const webhooks = { url, secret: 'a secret of 20 chars', allowPrivate: true };
  await using server = await startInProcess(scriptedModel([PAY, 'Paid.']), { ...settings, store, webhooks });
  const id = responseIdIn((await server.post({ input: 'Pay', stream: true })).text);
  const { effect, digest } = (await server.send('GET', `/v1/runs/${id}`)).body.waiting[0];
  await server.send('POST', `/v1/runs/${id}/answers`, {
    answers: [{ type: 'approval', effect, digest, approved: true }],
  });
  await all.promise;
  expect(received.map(({ type }) => type).toSorted()).toEqual(['run.completed', 'run.waiting']);
  expect(received.map(({ data }) => data.id)).toEqual([id, id]);
  receiver.close();
  const models = { default: 'm', models: new Map([['m', scriptedModel([])]]) };
  expect(() => treadleServer({ models, store, webhooks: { url, secret: 'x' } })).toThrow('at least 16');
});

describe('access', () => {
  const ROUTES = [
    ['GET', '', 'runs:read'],
    ['GET', '/events', 'runs:read'],
    ['POST', '/replay', 'runs:read'],
    ['POST', '/input', 'runs:write'],
    ['POST', '/answers', 'runs:write'],
    ['POST', '/cancel', 'runs:write'],
    ['POST', '/fork', 'runs:write'],
    ['POST', '/resume', 'runs:write'],
  ] as const;
  const BODIES: Readonly<Record<string, object>> = {
    '/input': { input: 'x' },
    '/answers': { answers: [] },
    '/fork': { at: 0 },
  };

  test('a run of another tenant is indistinguishable from an unknown run', async () => {
    await using server = await startInProcess(scriptedModel(['Hello.']), { store, keys: KEYS });
    const id = responseIdIn((await server.post({ input: 'Hi' }, as('ann'))).text);
    const never = `resp_${'f'.repeat(32)}`;
    for (const [method, route] of ROUTES) {
      const send = (run: string): ReturnType<InProcessServer['send']> =>
        server.send(method, `/v1/runs/${run}${route}`, BODIES[route], as('bob'));
      const [foreign, unknown] = [await send(id), await send(never)];
      expect(foreign.status).toBe(404);
      expect(JSON.stringify(foreign.body).replaceAll(id, never)).toBe(JSON.stringify(unknown.body));
    }
    expect((await server.send('GET', '/v1/runs', undefined, as('bob'))).body.data).toEqual([]);
    expect(await store.list()).toHaveLength(1);
  });

  test('each route needs its scope, and agents:invoke is none of them', async () => {
    await using server = await startInProcess(scriptedModel(['Hello.']), { store, keys: KEYS });
    const id = responseIdIn((await server.post({ input: 'Hi' }, as('ann'))).text);
    expect((await server.send('GET', '/v1/runs', undefined, as('app'))).status).toBe(403);
    expect((await server.send('GET', '/v1/runs')).status).toBe(401);
    for (const [method, route, scope] of ROUTES) {
      const send = (key: string): ReturnType<InProcessServer['send']> =>
        server.send(method, `/v1/runs/${id}${route}`, BODIES[route], as(key));
      const refused = await send('app');
      expect([refused.status, refused.body.error.code]).toEqual([403, 'insufficient_scope']);
      expect(refused.body.error.message).toContain(`"${scope}"`);
      expect((await send('see')).status === 403).toBe(scope === 'runs:write');
    }
    expect((await server.post({ input: 'Hi' }, as('abe'))).status).toBe(403);
  });
});
