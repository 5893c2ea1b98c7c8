import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { call, SERVER_TOOLS, WEATHER } from './support/fixture.ts';
import {
  responsesClient,
  callsIn,
  outputFor,
  textIn,
  type ResponsesClient,
  type WireError,
  type WireResponse,
} from './support/responses-client.ts';
import { modelOf, startServer, type ServerProcess } from './support/server-process.ts';

interface Started {
  readonly server: ServerProcess;
  readonly client: ResponsesClient;
}

let provider: Provider;
let folder: string;
/** Two servers, started one after the other on the store of a killed server. */
let one: Started;
let two: Started;

/** The responses of the first server when it was killed. */
interface ResponsesBefore {
  /** A tool was running. */
  readonly inTool: RunningResponse;
  /** The model was streaming. */
  readonly inModel: RunningResponse;
  /** A tool was running, and the next model request fails. */
  readonly failing: RunningResponse;
  readonly completed: WireResponse;
  /** It waits for the client's function. */
  readonly paused: WireResponse;
  readonly pausedScript: Script;
}

interface RunningResponse {
  readonly id: string;
  readonly script: Script;
}

let before: ResponsesBefore;

beforeAll(async () => {
  provider = await startProvider();
  folder = await mkdtemp(join(tmpdir(), 'treadle-server-'));
  const { server, client } = await startOnStore();
  before = await startResponses(server, client);
  await server.kill();
  one = await startOnStore();
  two = await startOnStore();
}, 60_000);

afterAll(async () => {
  await one.server[Symbol.asyncDispose]();
  await two.server[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
}, 60_000);

async function startOnStore(): Promise<Started> {
  const server = await startServer(provider, { store: join(folder, 'runs.db') });
  return { server, client: responsesClient(() => server.url) };
}

async function startResponses(server: ServerProcess, client: ResponsesClient): Promise<ResponsesBefore> {
  const startRun = async (script: Script): Promise<RunningResponse> => {
    const request = { model: modelOf(script), input: 'Go', tools: [SERVER_TOOLS], metadata: { kept: 'yes' } };
    const { id, ended } = await client.startStream(request);
    ended.catch(() => {});
    return { id, script };
  };
  const inTool = await startRun(
    await provider.script([
      { reasoning: 'Two things.', text: 'First I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Now I wait.', calls: [call('hold', { tag: 'in-tool' })] },
      { text: 'There we are.' },
      { text: 'Yes.' },
    ]),
  );
  const inModel = await startRun(await provider.script([{ fault: 'stall' }, { text: 'Here I am.' }]));
  const failing = await startRun(
    await provider.script([{ calls: [call('hold', { tag: 'failing' })] }, { fault: 'status', status: 401 }]),
  );
  const completedScript = await provider.script([{ text: 'Kept.' }]);
  const completed = await client.respond({ model: modelOf(completedScript), input: 'Hi' });
  const pausedScript = await provider.script([{ calls: [call('weather', {})] }, { text: 'Rain.' }, { text: 'Rain.' }]);
  const { response: paused } = await client.stream({
    model: modelOf(pausedScript),
    input: 'Weather?',
    tools: [WEATHER],
  });
  await server.held('in-tool');
  await server.held('failing');
  while ((await client.retrieve(inModel.id)).output.length === 0);
  return { inTool, inModel, failing, completed, paused, pausedScript };
}

/** The roles of the messages in the last model request. Fails if the provider rejected a request. */
async function lastRoles(script: Script): Promise<readonly string[]> {
  const requests = await script.requests();
  for (const { refused } of requests) expect(refused).toBeUndefined();
  const { messages } = requests.at(-1)!.body as { messages: readonly { role: string }[] };
  return messages.map(({ role }) => role);
}

describe('after the server was killed', () => {
  test('the next server resumes all running responses, and a second one resumes none', () => {
    expect(one.server.recovered).toBe(3);
    expect(two.server.recovered).toBe(0);
  });

  test('a response in a tool call can be retrieved with its output so far, and completes', async () => {
    const { id, script } = before.inTool;
    await one.server.held('in-tool');
    const running = await one.client.retrieve(id);
    expect(running).toMatchObject({ status: 'in_progress', metadata: { kept: 'yes' }, usage: null });
    const types = ['reasoning', 'message', 'mcp_call', 'message', 'mcp_call'];
    expect(running.output.map(({ type }) => type)).toEqual(types);
    one.server.release('in-tool');
    const response = await one.client.retrieveEnded(id);
    expect(response).toMatchObject({ status: 'completed', usage: { input_tokens: 60, output_tokens: 30 } });
    expect(textIn(response)).toBe('First I add.Now I wait.There we are.');
    expect(response.output[4]).toMatchObject({ type: 'mcp_call', status: 'completed', output: 'released in-tool' });
    expect(await two.client.retrieve(id)).toEqual(response);
    // Settled model calls are not repeated.
    expect(await script.requests()).toHaveLength(3);
    await one.client.respond({ model: modelOf(script), previous_response_id: id, input: 'Sure?' });
    expect(await lastRoles(script)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant', 'user']);
  });

  test('an interrupted model request is repeated', async () => {
    const { id, script } = before.inModel;
    const response = await one.client.retrieveEnded(id);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Here I am.');
    expect(await script.requests()).toHaveLength(2);
  });

  test('a response that fails after the restart keeps its output', async () => {
    const { id } = before.failing;
    await one.server.held('failing');
    one.server.release('failing');
    const response = await one.client.retrieveEnded(id);
    expect(response).toMatchObject({
      status: 'failed',
      error: { code: 'server_error' },
      output: [{ type: 'mcp_call', status: 'completed', output: 'released failing' }],
    });
  });

  test('a completed response is unchanged', async () => {
    expect(await one.client.retrieve(before.completed.id)).toEqual(before.completed);
    expect(await two.client.retrieve(before.completed.id)).toEqual(before.completed);
  });

  test('a response that waits for the client can be continued at any server', async () => {
    const { paused, pausedScript } = before;
    expect(await one.client.retrieve(paused.id)).toEqual(paused);
    const headers = { 'treadle-status': 'requires_action' };
    expect((await one.client.retrieve(paused.id, headers)).status).toBe('requires_action');
    const request = { model: modelOf(pausedScript), tools: [WEATHER], previous_response_id: paused.id };
    const { body } = await one.client.expectError({ ...request, input: 'Well?' });
    expect(body.error.message).toContain(callsIn(paused)[0]!.call_id);
    for (const { client } of [one, two]) {
      const next = await client.respond({ ...request, input: [outputFor(callsIn(paused)[0]!, 'rain')] });
      expect(textIn(next)).toBe('Rain.');
      expect(await lastRoles(pausedScript)).toEqual(['user', 'assistant', 'tool']);
    }
  });
});

describe('two servers on one store', () => {
  test('a response of one can be retrieved, continued and deleted at the other', async () => {
    const script = await provider.script([{ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' }]);
    const model = modelOf(script);
    const first = await one.client.respond({ model, input: '1' });
    expect(await two.client.retrieve(first.id)).toEqual(first);
    expect((await two.client.inputItems(first.id)).data).toHaveLength(1);
    const second = await two.client.respond({ model, input: '2', previous_response_id: first.id });
    const third = await one.client.respond({ model, input: '3', previous_response_id: second.id });
    expect(textIn(third)).toBe('Three.');
    expect(await lastRoles(script)).toEqual(['user', 'assistant', 'user', 'assistant', 'user']);
    expect((await two.client.send('DELETE', `/v1/responses/${first.id}`)).status).toBe(200);
    expect((await one.client.send('GET', `/v1/responses/${first.id}`)).status).toBe(404);
  });

  test('a turn with server and client calls is continued at the other, with all results', async () => {
    const calls = [call('add', { a: 20, b: 22 }), call('weather', {})];
    const script = await provider.script([{ calls }, { text: 'Rain.' }]);
    const request = { model: modelOf(script), tools: [WEATHER, SERVER_TOOLS] };
    const waiting = await one.client.respond({ ...request, input: 'Go' });
    const input = [outputFor(callsIn(waiting)[0]!, 'rain')];
    expect(textIn(await two.client.respond({ ...request, previous_response_id: waiting.id, input }))).toBe('Rain.');
    expect(await lastRoles(script)).toEqual(['user', 'assistant', 'tool', 'tool']);
    expect(JSON.stringify((await script.requests())[1]!.body)).toContain('42');
  });

  test('a response that waits for the client can be cancelled at the other', async () => {
    const script = await provider.script([{ calls: [call('weather', {})] }]);
    const waiting = await one.client.respond({ model: modelOf(script), tools: [WEATHER], input: 'Go' });
    expect((await two.client.cancel(waiting.id)).status).toBe('cancelled');
    expect((await one.client.retrieve(waiting.id)).status).toBe('cancelled');
  });

  test('a running response cannot be continued or deleted at the other: 409', async () => {
    const script = await provider.script([{ calls: [call('hold', { tag: 'driven' })] }, { text: 'Done.' }]);
    const request = { model: modelOf(script), tools: [SERVER_TOOLS] };
    const { id, ended } = await one.client.startStream({ ...request, input: 'Wait' });
    await one.server.held('driven');
    expect((await two.client.retrieve(id)).status).toBe('in_progress');
    const refusals = [
      await two.client.expectError({ ...request, previous_response_id: id, input: 'And?' }),
      await two.client.send('DELETE', `/v1/responses/${id}`),
    ];
    one.server.release('driven');
    for (const { status, body } of refusals) {
      expect(status).toBe(409);
      const { error } = body as WireError;
      expect(error.type).toBe('invalid_request_error');
      expect(error.message).toContain(id);
    }
    expect((await ended).response.status).toBe('completed');
    expect(textIn(await two.client.retrieve(id))).toBe('Done.');
    expect(await script.requests()).toHaveLength(2);
  });
});

test('a server that shuts down completes its running responses first', async () => {
  const script = await provider.script([{ calls: [call('hold', { tag: 'stopped' })] }, { text: 'Done.' }]);
  const { server, client } = await startOnStore();
  const { id, ended } = await client.startStream({ model: modelOf(script), input: 'Wait', tools: [SERVER_TOOLS] });
  await server.held('stopped');
  server.release('stopped');
  await server[Symbol.asyncDispose]();
  expect((await ended).response.status).toBe('completed');
  expect(textIn(await one.client.retrieve(id))).toBe('Done.');
});
