import { readFileSync } from 'node:fs';
import { tool, type Model, type ModelError, type ModelRequest } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import { describe, expect, test } from 'vitest';
import { eventTypesIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket, type RefusedSocket } from './support/socket-client.ts';

/*
 * Requests that Codex 0.166 has sent, with long texts cut (`test/clients/codex-requests`). `npm run clients` runs Codex itself.
 */

type Body = Readonly<Record<string, unknown>>;

function sentByCodex(name: string): readonly Body[] {
  const file = new URL(`../clients/codex-requests/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as readonly Body[];
}

const serve = (model: Model, more?: Parameters<typeof startInProcess>[1]): Promise<InProcessServer> =>
  startInProcess(model, {
    models: { default: 'main', models: new Map([['main', model]]), aliases: { 'gpt-*': 'main' } },
    ...more,
  });

const toolNames = ({ tools }: ModelRequest): readonly string[] => tools.map(({ name }) => name);

/** The items of a stream, as they were closed. */
function itemsIn(text: string): readonly Body[] {
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice(6)) as { readonly type: string; readonly item?: Body })
    .flatMap(({ type, item }): readonly Body[] => (type === 'response.output_item.done' ? [item!] : []));
}

describe('over HTTP', () => {
  test('gets the tools of namespaces under names of their own, and their calls as it knows them', async () => {
    const model = scriptedModel([{ calls: [{ name: 'multi_agent_v1__spawn_agent', arguments: '{"message":"x"}' }] }]);
    await using server = await serve(model);
    const [body] = sentByCodex('main-http');
    const { status, text } = await server.post(body!);
    expect(status).toBe(200);
    expect(toolNames(model.requests[0]!)).toEqual([
      'exec_command',
      'write_stdin',
      'request_user_input',
      'view_image',
      'multi_agent_v1__close_agent',
      'multi_agent_v1__resume_agent',
      'multi_agent_v1__send_input',
      'multi_agent_v1__spawn_agent',
      'multi_agent_v1__wait_agent',
      'get_goal',
      'create_goal',
      'update_goal',
    ]);
    const close = model.requests[0]!.tools.find(({ name }) => name === 'multi_agent_v1__close_agent')!;
    expect(close.description).toContain('About all tools of "multi_agent_v1": Tools for spawning and managing');
    expect(itemsIn(text)).toMatchObject([
      { type: 'function_call', name: 'spawn_agent', namespace: 'multi_agent_v1', arguments: '{"message":"x"}' },
    ]);
  });

  test('may send reasoning of another server, which others may not', async () => {
    const model = scriptedModel(['Done.']);
    await using server = await serve(model);
    const [body] = sentByCodex('main-http');
    const foreign = {
      type: 'reasoning',
      id: 'rs_1',
      summary: [{ type: 'summary_text', text: 'Hm.' }],
      content: null,
      encrypted_content: 'gAAAAABo',
    };
    const input = [foreign, ...(body!['input'] as readonly object[])];
    const { client_metadata: _, ...others } = body!;
    expect(await server.post({ ...others, input })).toMatchObject({ status: 400 });
    expect(await server.post({ ...body, input })).toMatchObject({ status: 200 });
    expect(model.requests[0]!.messages[0]).toEqual({
      role: 'assistant',
      content: [{ type: 'reasoning', text: 'Hm.', summary: true }],
    });
  });

  test('searches for tools, and gets those that it has found', async () => {
    const search = { calls: [{ name: 'tool_search', arguments: '{"query":"echo"}' }] };
    const model = scriptedModel([search, { calls: [{ name: 'mcp__every__echo', arguments: '{}' }] }, 'Done.']);
    await using server = await serve(model);
    const [first, second, third] = sentByCodex('gpt-5.5-search-http');
    const called = itemsIn((await server.post(first!)).text);
    expect(called).toMatchObject([
      { type: 'tool_search_call', execution: 'client', arguments: { query: 'echo' }, status: 'completed' },
    ]);
    expect(toolNames(model.requests[0]!)).not.toContain('mcp__every__echo');
    expect(itemsIn((await server.post(second!)).text)).toMatchObject([{ name: 'echo', namespace: 'mcp__every' }]);
    const { messages } = model.requests[1]!;
    expect(messages.slice(-2)).toMatchObject([
      { content: [{ type: 'tool-call', name: 'tool_search', arguments: '{"query":"echo","limit":2}' }] },
      { content: [{ content: [{ text: expect.stringContaining('- mcp__every__echo') }] }] },
    ]);
    expect((await server.post(third!)).status).toBe(200);
    expect(model.requests.slice(1).map((request) => toolNames(request).at(-1))).toEqual([
      'mcp__every__echo',
      'mcp__every__echo',
    ]);
  });

  test('gives a search without valid arguments to the client', async () => {
    await using server = await serve(scriptedModel([{ calls: [{ name: 'tool_search', arguments: '[1]' }] }]));
    const [first] = sentByCodex('gpt-5.5-search-http');
    expect(itemsIn((await server.post(first!)).text)).toMatchObject([{ type: 'tool_search_call', arguments: {} }]);
  });

  test('gets deferred functions at once, unless it has a search', async () => {
    const model = scriptedModel(['a', 'b', 'c']);
    await using server = await serve(model);
    const deferred = { type: 'function', name: 'later', defer_loading: true };
    const search = { type: 'tool_search', execution: 'client', parameters: { type: 'object' } };
    await server.post({ input: 'Hi', tools: [deferred] });
    await server.post({ input: 'Hi', tools: [deferred, search] });
    // One that the server would execute: the model needs none.
    const answer = await server.post({ input: 'Hi', tools: [deferred, { type: 'tool_search' }] });
    expect(model.requests.map(toolNames)).toEqual([['later'], ['tool_search'], ['later']]);
    expect(JSON.parse(answer.text).tools[0]).toMatchObject({ name: 'later', defer_loading: true });
  });

  test('continues a stored response with the tools that its items declare', async () => {
    const model = scriptedModel(['a', 'b']);
    await using server = await serve(model);
    const [, request] = sentByCodex('gpt-6.1-sol-websocket');
    const { input } = request as { readonly input: readonly object[] };
    const { text } = await server.post({ input });
    const { id } = JSON.parse(text) as { readonly id: string };
    await server.post({ input: 'More', previous_response_id: id });
    expect(toolNames(model.requests[0]!)).toContain('collaboration__spawn_agent');
    expect(toolNames(model.requests[1]!)).toEqual(toolNames(model.requests[0]!));
    const { body } = await server.send('GET', `/v1/responses/${id}/input_items?order=asc`);
    expect(body.data[0]).toMatchObject(input[0]!);
  });

  test('gives the model what its agents say to each other', async () => {
    const model = scriptedModel(['Done.']);
    await using server = await serve(model);
    const content = [
      { type: 'input_text', text: 'Sender: /root\n' },
      { type: 'encrypted_content', encrypted_content: 'Look around.' },
    ];
    const item = { type: 'agent_message', id: 'amsg_1', author: '/root', recipient: '/root/look', content };
    expect((await server.post({ input: [item] })).status).toBe(200);
    expect(model.requests[0]!.messages).toMatchObject([
      { role: 'user', content: [{ text: 'Sender: /root\n' }, { text: 'Look around.' }] },
    ]);
  });

  test('gets a tool once that several items declare, as the last one does', async () => {
    const model = scriptedModel(['Done.']);
    await using server = await serve(model);
    const declare = (description: string): object => ({
      type: 'additional_tools',
      role: 'developer',
      tools: [{ type: 'namespace', name: 'functions', tools: [{ type: 'function', name: 'wait', description }] }],
    });
    const { status } = await server.post({
      input: [declare('Old'), { role: 'user', content: 'a' }, declare('New'), { role: 'user', content: 'b' }],
    });
    expect(status).toBe(200);
    expect(model.requests[0]!.tools).toMatchObject([{ name: 'functions__wait', description: 'New' }]);
  });

  test('is told which tools an item cannot declare', async () => {
    await using server = await serve(scriptedModel([]));
    const item = { type: 'additional_tools', role: 'developer', tools: [{ type: 'mcp', server_label: 'x' }] };
    const { status, text } = await server.post({ input: [item] });
    expect([status, JSON.parse(text).error.code]).toEqual([400, 'unsupported_tool']);
  });
});

describe('over WebSocket', () => {
  test.each([['gpt-5.5-websocket'], ['gpt-6.1-sol-websocket'], ['gpt-5.6-luna-exec-websocket']])(
    'warms up, and continues what is not stored: %s',
    async (name) => {
      const model = scriptedModel([{ calls: [{ name: 'functions__exec', arguments: '{"input":"1"}' }] }, 'Done.']);
      await using server = await serve(name.includes('luna') ? model : scriptedModel(['Done.']));
      using socket = await openSocket(server.url);
      const [warmUp, first, second] = sentByCodex(name);
      socket.send(warmUp!);
      const begun = await socket.answer();
      expect(begun.map(({ type }) => type)).toEqual(['response.created', 'response.in_progress', 'response.completed']);
      const { response } = begun.at(-1)!;
      expect(response).toMatchObject({ status: 'completed', output: [], usage: { total_tokens: 0 } });
      const answer = await socket.create({ ...first, previous_response_id: response!.id });
      expect(answer.type).toBe('response.completed');
      if (!second) return;
      const [call] = answer.response!.output as unknown as readonly Body[];
      expect(call).toMatchObject({ type: 'custom_tool_call', name: 'exec', namespace: 'functions', input: '1' });
      const [output] = second['input'] as readonly object[];
      const input = [{ ...output, call_id: call!['call_id'] }];
      const last = await socket.create({ ...second, previous_response_id: answer.response!.id, input });
      expect(last.type).toBe('response.completed');
      expect(toolNames(model.requests[1]!)).toEqual(toolNames(model.requests[0]!));
      expect(model.requests[1]!.instructions).toBe(model.requests[0]!.instructions);
    },
  );

  test('has the instructions of the warm-up, and a message is still needed', async () => {
    const model = scriptedModel(['Done.']);
    await using server = await serve(model);
    using socket = await openSocket(server.url);
    const developer = { role: 'developer', content: 'Be brief.' };
    const warm = await socket.create({ store: false, generate: false, input: [developer] });
    const more = { previous_response_id: warm.response!.id, store: false, generate: false, input: [] };
    const { response } = await socket.create(more);
    const message = { role: 'user', content: 'Hi' };
    await socket.create({ store: false, previous_response_id: response!.id, input: [message] });
    expect(model.requests[0]).toMatchObject({ instructions: 'Be brief.', messages: [{ role: 'user' }] });
    const error = await socket.create({ store: false, input: [] });
    expect(error.error!.code).toBe('empty_input');
  });

  test('is told that a model is not known when it warms up', async () => {
    await using server = await serve(scriptedModel([]));
    using socket = await openSocket(server.url);
    const { status, error } = await socket.create({ model: 'other', generate: false, input: [] });
    expect([status, error!.code]).toEqual([404, 'model_not_found']);
  });

  test('names the field of what it continues, if that does not fit', async () => {
    await using server = await serve(scriptedModel([]));
    using socket = await openSocket(server.url);
    const output = { type: 'function_call_output', call_id: 'call_1', output: 'x' };
    const { response } = await socket.create({ store: false, generate: false, input: [output] });
    const { error } = await socket.create({ store: false, previous_response_id: response!.id, input: 'Hi' });
    expect([error!.code, error!.param]).toEqual(['unknown_call', 'previous_response_id']);
  });
});

describe('faults', () => {
  const CODEX = { 'x-codex-window-id': 'w:0' };
  const KEYS = [{ name: 'a', hash: hashKey('good'), requestsPerMinute: 1 }];
  const auth = { authorization: 'Bearer good' };
  const failing = (error: Partial<ModelError>): Model =>
    scriptedModel([{ type: 'failure', error: { code: 'auth', message: 'no', retryable: false, ...error } }]);
  const LIMITED: Partial<ModelError> = { code: 'rate-limit', message: 'Slow down.', retryAfterMs: 6_500 };

  interface Told {
    readonly status: number;
    /** Of `response.failed`, or of the body. */
    readonly code: string;
    readonly message: string;
  }

  async function told(server: InProcessServer, body: object, headers: Record<string, string> = {}): Promise<Told> {
    const { status, text } = await server.post({ stream: true, ...body }, { ...CODEX, ...headers });
    if (status !== 200) return { status, ...JSON.parse(text).error };
    expect(eventTypesIn(text)).toEqual(['response.failed']);
    return { status, ...JSON.parse(text.split('data: ')[1]!).response.error };
  }

  test.each<[string, Partial<ModelError>, Told]>([
    ['a limit', LIMITED, { status: 200, code: 'rate_limit_exceeded', message: 'Slow down. Try again in 7s.' }],
    [
      'a limit that says when',
      { ...LIMITED, message: 'Please try again in 20s.' },
      { status: 200, code: 'rate_limit_exceeded', message: 'Please try again in 20s.' },
    ],
    ['no capacity', { code: 'overloaded', message: 'Busy.' }, { status: 200, code: 'server_error', message: 'Busy.' }],
    [
      'a conversation that is too long',
      { code: 'context-length', message: 'Too long.' },
      { status: 200, code: 'context_length_exceeded', message: 'Too long.' },
    ],
    [
      'a wrong request',
      { code: 'invalid-request', message: 'Bad.' },
      { status: 400, code: 'invalid_prompt', message: 'Bad.' },
    ],
    ['wrong credentials', {}, { status: 400, code: 'model_auth', message: expect.stringContaining('credentials') }],
  ])('of the model: %s', async (_, error, expected) => {
    await using server = await serve(failing(error));
    expect(await told(server, { input: 'Hi' })).toMatchObject(expected);
    await using other = await serve(failing(error));
    using socket = await openSocket(other.url, { headers: CODEX });
    const { status, ...last } = await socket.create({ input: 'Hi' });
    const { code } = expected;
    if (expected.status === 400) expect({ status, ...last.error }).toMatchObject(expected);
    else expect(last).toMatchObject({ type: 'response.failed', response: { error: { code } } });
  });

  test('after output are told at the end of the stream', async () => {
    const failure = { type: 'failure', error: { code: 'overloaded', message: 'Busy.', retryable: true } } as const;
    await using server = await serve(scriptedModel([{ calls: [{ name: 'add', arguments: '{}' }] }, failure]), {
      tools: [tool({ name: 'add', description: 'Adds', touches: () => [], execute: () => '3' })],
      defaultTools: ['add'],
    });
    const { text } = await server.post({ input: 'Hi', stream: true }, CODEX);
    const types = eventTypesIn(text);
    expect(types.slice(0, 2)).toEqual(['response.created', 'response.in_progress']);
    expect(types.slice(-2)).toEqual(['error', 'response.failed']);
  });

  test('of the request are told once, and limits with the time to wait', async () => {
    await using server = await serve(scriptedModel(['Hello.']), { keys: KEYS });
    expect(await told(server, { input: 'Hi' })).toMatchObject({ status: 400, code: 'invalid_api_key' });
    expect(await told(server, { input: 'Hi', model: 'x' }, auth)).toMatchObject({
      status: 400,
      code: 'model_not_found',
    });
    const limited = await told(server, { input: 'Hi' }, auth);
    expect(limited).toMatchObject({ status: 200, code: 'rate_limit_exceeded' });
    expect(limited.message).toMatch(/Try again in \d+s\.$/);
    // Other clients get the status.
    const { status } = await server.post({ input: 'Hi', stream: true }, auth);
    expect(status).toBe(429);
  });

  test('of a WebSocket that is refused make it use HTTP', async () => {
    await using server = await serve(scriptedModel([]), { keys: KEYS });
    const refused = (headers: object): Promise<number> =>
      openSocket(server.url, { headers: { ...headers } }).then(
        () => 101,
        (error: RefusedSocket) => error.status,
      );
    expect([await refused(CODEX), await refused({})]).toEqual([426, 401]);
  });
});

describe('its sessions', () => {
  const sessionOf = (body: Body): string => (body['client_metadata'] as { readonly session_id: string }).session_id;
  const runsOf = async (server: InProcessServer, session: string): Promise<readonly Body[]> =>
    (await server.send('GET', `/v1/runs?session=${session}`)).body.data;

  test('are recorded if the server does that', async () => {
    await using server = await serve(scriptedModel(['One.', 'Two.', 'Three.']), { recordUnstored: true });
    const [body] = sentByCodex('main-http');
    const { text } = await server.post(body!);
    const [run] = await runsOf(server, sessionOf(body!));
    expect(run).toMatchObject({ status: 'completed', title: expect.stringContaining('Say hello') });
    const id = /"id":"(resp_\w+)"/.exec(text)![1]!;
    expect(run!['id']).toBe(id);
    // Only its run is.
    expect((await server.send('GET', `/v1/responses/${id}`)).status).toBe(404);
    const continued = await server.post({ input: 'x', previous_response_id: id });
    expect(JSON.parse(continued.text).error.code).toBe('previous_response_not_found');
    using socket = await openSocket(server.url);
    const [warmUp, first] = sentByCodex('gpt-5.5-websocket');
    const { response } = await socket.create(warmUp!);
    await socket.create({ ...first, previous_response_id: response!.id });
    expect(await runsOf(server, sessionOf(first!))).toMatchObject([{ status: 'completed' }]);
    expect((await server.send('POST', `/v1/runs/${id}/replay`)).body).toMatchObject({ equal: true });
  });

  test('can be forked, as a response that is stored', async () => {
    await using server = await serve(scriptedModel(['One.', 'Two.']), { recordUnstored: true });
    await server.post({ input: 'Hi', store: false, client_metadata: { session_id: 's1' } });
    const [run] = await runsOf(server, 's1');
    const { status, body } = await server.send('POST', `/v1/runs/${run!['id']}/fork`, { at: 0 });
    expect(status).toBe(200);
    expect(await server.getEnded(body.id)).toMatchObject({ status: 'completed', output: [{ type: 'message' }] });
  });

  test('are not recorded by default', async () => {
    await using server = await serve(scriptedModel(['One.']));
    await server.post({ input: 'Hi', store: false, client_metadata: { session_id: 's1' } });
    expect(await runsOf(server, 's1')).toEqual([]);
  });

  test('end with their client', async () => {
    const model: Model = {
      id: 'm',
      reply: (_, __, signal) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    };
    await using server = await serve(model, { recordUnstored: true });
    const gone = new AbortController();
    const body = JSON.stringify({ input: 'Hi', store: false, client_metadata: { session_id: 's1' } });
    const headers = { 'content-type': 'application/json' };
    const request = fetch(`${server.url}/v1/responses`, { method: 'POST', headers, body, signal: gone.signal });
    while ((await runsOf(server, 's1')).length === 0) await new Promise(setImmediate);
    gone.abort();
    await expect(request).rejects.toThrow('aborted');
    let [run] = await runsOf(server, 's1');
    while (run!['status'] === 'running') [run] = await runsOf(server, 's1');
    expect(run).toMatchObject({ status: 'cancelled' });
  });
});
