import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { handoff, replay, tool, type Answer, type Event } from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import type { Store } from '@treadle/store';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { postChat } from './support/chat-events.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

/* What reaches the runs of every API: the facts in headers, and options of the library. */

let cleanUp: AsyncDisposableStack;
let store: Store;
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  store = cleanUp.adopt(await openTestStore(), (one) => one.close());
});
afterEach(() => cleanUp.disposeAsync());

type Options = NonNullable<Parameters<typeof startInProcess>[1]>;

async function serve(script: readonly ScriptStep[], options: Options = {}): Promise<InProcessServer> {
  return cleanUp.use(await startInProcess(scriptedModel(script), { store, ...options }));
}

const act = tool({ name: 'act', description: 'Acts', touches: () => [], execute: () => 'done' });

type Sent = Readonly<Record<string, string>>;

/** Sends a request to each API. Resolves to its answer, or its error. */
const APIS: Readonly<Record<string, (server: InProcessServer, headers: Sent) => Promise<unknown>>> = {
  async responses(server, headers) {
    const { status, text } = await server.post({ input: 'Hi' }, headers);
    return { status, ...JSON.parse(text) };
  },
  async chat(server, headers) {
    const client = await postChat(server.url, { message: 'Hi' }, { headers });
    await client.event('done');
    return client.events.find(({ type }) => type === 'error');
  },
  async completions(server, headers) {
    const body = { messages: [{ role: 'user', content: 'Hi' }] };
    const sent = { 'idempotency-key': 'one', ...headers };
    const { status, body: answer } = await server.send('POST', '/v1/chat/completions', body, sent);
    return { status, ...answer };
  },
  async messages(server, headers) {
    const body = { model: 'm', max_tokens: 99, messages: [{ role: 'user', content: 'Hi' }] };
    const { status, body: answer } = await server.send('POST', '/v1/messages', body, headers);
    const { error } = answer;
    return { status, ...(error && { error: { ...error, code: error.details.error_code } }) };
  },
  async mcp(server, headers) {
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 't', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const params = { name: 'act', arguments: {}, _meta: meta };
    const answer = await fetch(`${server.url}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': 'act',
        ...headers,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
    });
    const text = await answer.text();
    return JSON.parse(/^data: (\{.*"result".*\})$/m.exec(text)?.[1] ?? text);
  },
};

const TRACE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe.each(Object.entries(APIS))('the headers of a request to %s', (api, send) => {
  test('say what its run belongs to', async () => {
    const server = await serve(['Hello.'], { tools: [act] });
    await send(server, {
      traceparent: TRACE,
      'x-treadle-session': 's 1',
      'x-treadle-task': Buffer.from('Büro').toString('latin1'),
      'x-treadle-label-team': 'sales',
    });
    const facts = { session: 's 1', task: 'Büro', labels: { team: 'sales' } };
    const { body } = await server.send('GET', '/v1/runs?session=s%201&task=B%C3%BCro&label=team%3Dsales');
    expect(body.data).toMatchObject([facts]);
    const [first] = await store.read(body.data[0].id);
    expect(first?.event).toMatchObject({ ...facts, trace: TRACE });
    for (const other of ['session=s', 'task=Buero', 'label=team=it', 'label=team=sales&label=a=b']) {
      expect((await server.send('GET', `/v1/runs?${other}`)).body.data).toEqual([]);
    }
  });

  test('are ignored if they have a traceparent that is not valid', async () => {
    const server = await serve(['Hello.'], { tools: [act] });
    await send(server, { traceparent: TRACE.toUpperCase() });
    const [run] = await store.list();
    const [first] = await store.read(run!.runId);
    expect(first?.event).not.toHaveProperty('trace');
    expect(run?.session?.startsWith('conv_')).toBe(api === 'chat' ? true : undefined);
  });
});

test.each([
  { 'x-treadle-session': 'x'.repeat(201) },
  { 'x-treadle-session': '\u00ff' },
  { [`x-treadle-label-${'a'.repeat(65)}`]: 'c' },
  Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`x-treadle-label-${n}`, 'x'])),
])('a header that is not valid is rejected, and nothing is stored (%#)', async (headers) => {
  const server = await serve([]);
  const { status, text } = await server.post({ input: 'Hi' }, headers as Sent);
  expect(status).toBe(400);
  expect(JSON.parse(text)).toMatchObject({
    error: { code: 'invalid_request', param: expect.stringMatching(/^x-treadle/) },
  });
  expect((await server.send('GET', '/v1/runs')).body.data).toEqual([]);
});

test('a label in a query needs a name and a value', async () => {
  const server = await serve([]);
  const { status, body } = await server.send('GET', '/v1/runs?label=team');
  expect({ status, param: body.error.param }).toEqual({ status: 400, param: 'label' });
});

describe('a budget that has nothing left', () => {
  const KEYS = ['rich', 'poor'].map((name) => ({
    name,
    hash: hashKey(`tk_${name}`),
    scopes: ['agents:invoke', 'tools:execute', 'chat:read', 'chat:write', 'runs:read'] as const,
  }));
  const budgets = memoryBudgets({ none: { tokens: 0, calls: 0 } });
  const options: Options = {
    keys: KEYS,
    tools: [act],
    ledger: ({ subject }) => (subject === 'poor' ? budgets.ledger(['none']) : undefined),
  };
  const as = (name: string): Sent => ({ authorization: `Bearer tk_${name}` });
  const message = expect.stringMatching(/^The budget "none" has 0 (tokens|calls) left of 0/);

  test.each([
    ['responses', { status: 429, error: { code: 'insufficient_quota', type: 'rate_limit_error', message } }],
    ['chat', { type: 'error', code: 'rate_limit_exceeded', message }],
    ['completions', { status: 429, error: { code: 'insufficient_quota', type: 'rate_limit_error', message } }],
    ['mcp', { result: { isError: true, content: [{ type: 'text', text: message }] } }],
  ])('is a clear error in %s, for the keys that draw on it', async (api, expected) => {
    const server = await serve(['Hello.'], options);
    expect(await APIS[api]!(server, as('poor'))).toMatchObject(expected);
    expect(await APIS[api]!(server, as('rich'))).not.toMatchObject(expected);
    expect(await store.list({ status: ['exhausted'] })).toHaveLength(1);
  });

  test('ends a stream with response.failed', async () => {
    const server = await serve([], options);
    const { text } = await server.post({ input: 'Hi', stream: true }, as('poor'));
    expect(text).toMatch(/event: response.failed\n.*rate_limit_exceeded.*The budget \\"none\\" has 0 tokens/);
  });
});

test('a budget that runs out later leaves an incomplete response with what was done', async () => {
  const budgets = memoryBudgets({ one: { calls: 0 } });
  const server = await serve([{ text: 'Acting.', calls: [{ name: 'act' }] }], {
    tools: [act],
    defaultTools: ['act'],
    ledger: () => budgets.ledger(['one']),
  });
  const { text } = await server.post({ input: 'Hi' });
  expect(JSON.parse(text)).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'budget' } });
});

test('a run with budgets is resumed by a server without', async () => {
  const ask = tool({ name: 'ask', description: '', needsApproval: true, touches: () => [], execute: () => 'ok' });
  const common: Options = { tools: [ask], defaultTools: ['ask'], waitForAnswers: true };
  const budgets = memoryBudgets({ all: { tokens: 1e9 } });
  const first = await startInProcess(scriptedModel([{ calls: [{ name: 'ask' }] }]), {
    store,
    ...common,
    ledger: () => budgets.ledger(['all']),
  });
  const { id } = JSON.parse((await first.post({ input: 'Hi', background: true })).text);
  const run = await paused(first, id);
  await first[Symbol.asyncDispose]();
  const server = await serve(['Done.'], common);
  const { effect, digest } = run.waiting[0];
  const answers = [{ type: 'approval', effect, digest, approved: true }];
  expect((await server.send('POST', `/v1/runs/${id}/answers`, { answers })).status).toBe(200);
  expect(await server.getEnded(id)).toMatchObject({ status: 'completed' });
});

// oxlint-disable-next-line typescript/no-explicit-any
async function paused(server: InProcessServer, id: string): Promise<any> {
  for (;;) {
    const { body } = await server.send('GET', `/v1/runs/${id}`);
    if (body.status === 'paused') return body;
  }
}

test('guardrails check the runs of the server', async () => {
  const guardrails = { input: [({ text }: { text: string }) => !text.includes('secret') || 'No secrets here.'] };
  const server = await serve(['Hello.'], { guardrails });
  const { status, text } = await server.post({ input: 'a secret' });
  // Official clients would repeat a request that fails with a status from 500 on.
  expect({ status, ...JSON.parse(text) }).toEqual({
    status: 400,
    error: { message: 'No secrets here.', type: 'invalid_request_error', param: null, code: 'guardrail' },
  });
  expect((await server.post({ input: 'Hi' })).status).toBe(200);
});

test('verifyAnswer and audit see the answers to the runs of the server', async () => {
  const rejected: unknown[] = [];
  const needy = tool({ name: 'needy', description: '', needsApproval: true, touches: () => [], execute: () => 'ok' });
  const server = await serve([{ calls: [{ name: 'needy' }] }], {
    tools: [needy],
    defaultTools: ['needy'],
    waitForAnswers: true,
    verifyAnswer: (answer: Answer) => ({ type: 'refused', reason: `no ${answer.type}` }),
    audit: { rejectedAnswer: (one) => void rejected.push(one.reason) },
  });
  const { id } = JSON.parse((await server.post({ input: 'Hi', background: true })).text);
  const { effect, digest } = (await paused(server, id)).waiting[0];
  const answers = [{ type: 'approval', effect, digest, approved: true }];
  const { status, body } = await server.send('POST', `/v1/runs/${id}/answers`, { answers });
  expect({ status, message: body.error.message }).toEqual({
    status: 409,
    message: expect.stringContaining('no approval'),
  });
  expect(rejected).toEqual([expect.stringContaining('no approval')]);
});

test('verifyAnswer gets the signature of an answer, which is not stored', async () => {
  const needy = tool({ name: 'needy', description: '', needsApproval: true, touches: () => [], execute: () => 'ok' });
  const server = await serve([{ calls: [{ name: 'needy' }] }, 'Done.', { calls: [{ name: 'needy' }] }, 'Done.'], {
    tools: [needy],
    defaultTools: ['needy'],
    waitForAnswers: true,
    verifyAnswer: ({ signature }: Answer) =>
      signature === 'signed by ann'
        ? { type: 'verified', by: 'ann' }
        : { type: 'refused', reason: 'it is not signed.' },
  });
  const { id } = JSON.parse((await server.post({ input: 'Hi', background: true })).text);
  const { effect, digest } = (await paused(server, id)).waiting[0];
  const answer = { type: 'approval', effect, digest, approved: true };
  const answers = (one: object) => server.send('POST', `/v1/runs/${id}/answers`, { answers: [one] });
  expect((await answers(answer)).body.error.message).toContain('it is not signed');
  expect((await answers({ ...answer, signature: 'signed by ann' })).status).toBe(200);
  const chat = await postChat(server.url, { message: 'Hi', on_disconnect: 'continue' });
  const request = await chat.event('approval_request');
  const { conversation_id: conversation } = await chat.event('conversation_meta');
  const said = { id: request['id'], digest: request['digest'], approved: true };
  const answerChat = (one: object) => server.send('POST', `/v1/chat/${conversation}/answers`, one);
  expect((await answerChat(said)).body.error.message).toContain('it is not signed');
  expect((await answerChat({ ...said, signature: 'signed by ann' })).status).toBe(200);
  const events = (await store.read(id)).map(({ event }) => event as Event);
  const given = events.find(({ type }) => type === 'approval-given');
  expect(given).toMatchObject({ effect, approved: true, by: 'ann' });
  expect(given).not.toHaveProperty('signature');
});

test('a run can be handed over to an agent, whose tools and model it has from then on', async () => {
  const look = tool({ name: 'look', description: 'Looks', touches: () => [], execute: () => 'seen' });
  const model = { ...scriptedModel([{ calls: [{ name: 'look' }] }, 'I looked.']), id: 'expert' };
  const server = await serve([{ calls: [{ name: 'hand_off_to_expert' }] }], {
    tools: [handoff({ name: 'expert' })],
    defaultTools: ['hand_off_to_expert'],
    agents: [{ name: 'expert', instructions: 'You look.', tools: [look], model }],
  });
  const answer = JSON.parse((await server.post({ input: 'Hi', max_output_tokens: 1000 })).text);
  expect(answer).toMatchObject({ status: 'completed' });
  expect(answer.output.at(-1).content[0].text).toBe('I looked.');
  const events = (await store.read(answer.id)).map(({ event }) => event as Event);
  expect(events.some((event) => event.type === 'tool-settled' && JSON.stringify(event).includes('seen'))).toBe(true);
  expect(answer.output.map(({ type }: { type: string }) => type)).toEqual(['mcp_call', 'mcp_call', 'message']);
});

test('a filter redacts a result before anything of it is sent or stored, and private touches are known', async () => {
  const folder = cleanUp.adopt(await mkdtemp(path.join(tmpdir(), 'treadle-filters-')), (one) =>
    rm(one, { recursive: true }),
  );
  const file = path.join(folder, 'treadle.db');
  const stored = cleanUp.adopt(await openTestStore(file), (one) => one.close());
  const SECRET = 'sk-very-secret';
  const show = tool({
    name: 'show',
    description: 'Shows a file',
    touches: () => [{ type: 'read', path: '.env' }],
    // Long enough for a blob.
    execute: () => `key=${SECRET} `.repeat(3_000),
  });
  const server = await serve([{ calls: [{ name: 'show' }] }, 'Done.'], {
    store: stored,
    tools: [show],
    defaultTools: ['show'],
    resultFilters: [
      {
        name: 'secrets',
        filter: ({ content }) => ({
          type: 'changed',
          content: content.map((block) =>
            'text' in block ? { ...block, text: block.text.replaceAll(SECRET, '[key]') } : block,
          ),
        }),
      },
    ],
    exposes: (touch) => (touch.type === 'read' ? 'private' : undefined),
  });
  const { text } = await server.post({ input: 'Hi' });
  expect(text).toContain('[key]');
  expect(text).not.toContain(SECRET);
  const entries = await stored.read(JSON.parse(text).id);
  expect(replay(entries).state.exposure).toMatchObject({ private: { tool: 'show', what: 'read .env' } });
  for (const name of await readdir(folder)) {
    expect((await readFile(path.join(folder, name))).includes(SECRET)).toBe(false);
  }
});

test('rules of the library apply to new runs', async () => {
  const long = tool({ name: 'long', description: '', touches: () => [], execute: () => 'x'.repeat(5_000) });
  const server = await serve([{ calls: [{ name: 'long' }, { name: 'long' }] }, 'Done.'], {
    tools: [long],
    defaultTools: ['long'],
    maxResultChars: 100,
    maxCallsPerTurn: 1,
  });
  const { id } = JSON.parse((await server.post({ input: 'Hi' })).text);
  const [first] = await store.read(id);
  expect(first?.event).toMatchObject({ rules: { maxResultChars: 100, maxCallsPerTurn: 1 } });
});

describe('the narrowing of a conversation', () => {
  const KEYS = [
    { name: 'boss', hash: hashKey('tk_boss'), scopes: ['chat:write', 'chat:read', 'runs:write', 'tools:execute'] },
    { name: 'user', hash: hashKey('tk_user'), scopes: ['chat:write', 'chat:read', 'tools:execute'] },
  ] as const;
  const as = (name: string): Sent => ({ authorization: `Bearer tk_${name}` });
  const plan = tool({
    name: 'plan',
    description: 'Only plans from now on',
    touches: () => [],
    execute: () => ({ content: 'ok', narrow: { source: 'plan', without: ['act'] } }),
  });
  const ACT: ScriptStep = { calls: [{ name: 'act' }] };

  test('is lifted by its name with a message, by a key with runs:write only', async () => {
    const script = [{ calls: [{ name: 'plan' }] }, 'Planned.', ACT, 'Not done.', ACT, 'Done.', ACT, 'Done again.'];
    const server = await serve(script, { keys: KEYS, tools: [plan, act], defaultTools: ['plan', 'act'] });
    const say = async (body: object, headers: Sent) => {
      const client = await postChat(server.url, { message: 'Go', ...body }, { headers });
      await client.event('done');
      return client.event('conversation_meta');
    };
    const { conversation_id } = await say({}, as('boss'));
    const lift = { conversation_id, lift_narrowing: ['plan'] };
    const refused = await server.send('POST', '/v1/chat', { message: 'Go', ...lift }, as('user'));
    expect(refused).toMatchObject({ status: 403, body: { error: { code: 'insufficient_scope' } } });
    const acted = async (meta: Readonly<Record<string, unknown>>): Promise<boolean> =>
      JSON.stringify(await store.read(meta['run_id'] as string)).includes('"text":"done"');
    expect(await acted(await say({ conversation_id, lift_narrowing: ['other'] }, as('boss')))).toBe(false);
    const lifted = await say(lift, as('boss'));
    expect(await acted(lifted)).toBe(true);
    const events = (await store.read(lifted['run_id'] as string)).map(({ event }) => event);
    expect(events).toContainEqual(expect.objectContaining({ type: 'narrowing-lifted', by: 'boss', source: 'plan' }));
    // It stays lifted.
    expect(await acted(await say({ conversation_id }, as('user')))).toBe(true);
  });

  test('has a name to lift it by, also if its tool gives none', async () => {
    const quiet = tool({ ...plan, execute: () => ({ content: 'ok', narrow: { without: ['act'] } }) });
    const script = [{ calls: [{ name: 'plan' }] }, 'Planned.', ACT, 'Done.'];
    const server = await serve(script, { keys: KEYS, tools: [quiet, act], defaultTools: ['plan', 'act'] });
    const say = (body: object) => postChat(server.url, { message: 'Go', ...body }, { headers: as('boss') });
    const first = await say({});
    expect(await first.event('done')).toMatchObject({ narrowed_by: ['unnamed'] });
    const { conversation_id } = await first.event('conversation_meta');
    const second = await say({ conversation_id, lift_narrowing: ['unnamed'] });
    expect(await second.event('done')).not.toHaveProperty('narrowed_by');
  });

  test('is reported with its answer, and lifted in a run that waits', async () => {
    const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });
    const script = [{ calls: [{ name: 'plan' }] }, { calls: [{ name: 'pay' }] }, ACT, 'Done.'];
    const tools = { tools: [plan, act, pay], defaultTools: ['plan', 'act', 'pay'] };
    const server = await serve(script, { keys: KEYS, ...tools });
    const client = await postChat(server.url, { message: 'Go', on_disconnect: 'continue' }, { headers: as('boss') });
    const { id, digest } = await client.event('approval_request');
    const { conversation_id, run_id } = await client.event('conversation_meta');
    const run = `/v1/runs/${run_id as string}`;
    const lift = (source: unknown, name = 'boss') => server.send('POST', `${run}/lift-narrowing`, { source }, as(name));
    const lastAnswer = async () =>
      (await server.send('GET', `/v1/chat/${conversation_id as string}`, undefined, as('boss'))).body.messages.at(-1);
    expect(await lastAnswer()).toMatchObject({ status: 'waiting', narrowed_by: ['plan'] });
    expect((await lift('plan', 'user')).status).toBe(403);
    expect((await lift('')).status).toBe(400);
    expect(await lift('other')).toMatchObject({ status: 200, body: { narrowed_by: ['plan'] } });
    expect(await lift('plan')).toMatchObject({ status: 200, body: { narrowed_by: [], waiting: [{ tool: 'pay' }] } });
    await server.send(
      'POST',
      `/v1/chat/${conversation_id as string}/answers`,
      { id, digest, approved: true },
      as('boss'),
    );
    await client.event('done');
    expect(JSON.stringify(await store.read(run_id as string))).toContain('"text":"done"');
    expect(await lastAnswer()).not.toHaveProperty('narrowed_by');
    expect(await lift('plan')).toMatchObject({ status: 409, body: { error: { code: 'run_not_running' } } });
  });
});
