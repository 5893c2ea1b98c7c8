import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider, type Script } from '../provider/provider.ts';
import { call, SERVER_TOOLS, WEATHER } from './clients/stage.ts';
import {
  asking,
  callsIn,
  outputFor,
  textIn,
  type Asking,
  type WireError,
  type WireResponse,
} from './open-responses/asking.ts';
import { modelOf, startServer, type ServerProcess } from './process/start.ts';

interface Started {
  readonly server: ServerProcess;
  readonly ask: Asking;
}

let provider: Provider;
let place: string;
/** A server was killed, and these have been started on its store, one after the other. */
let one: Started;
let two: Started;

/** What was going on when it was killed. */
interface Before {
  readonly calling: Left;
  readonly speaking: Left;
  readonly doomed: Left;
  readonly done: WireResponse;
  readonly waiting: WireResponse;
  readonly waitingFor: Script;
}

interface Left {
  readonly id: string;
  readonly script: Script;
}

let before: Before;

beforeAll(async () => {
  provider = await startProvider();
  place = await mkdtemp(join(tmpdir(), 'treadle-server-'));
  const { server, ask } = await start();
  before = await busy(server, ask);
  await server.kill();
  one = await start();
  two = await start();
}, 60_000);

afterAll(async () => {
  await one.server[Symbol.asyncDispose]();
  await two.server[Symbol.asyncDispose]();
  await provider[Symbol.asyncDispose]();
  await rm(place, { recursive: true });
}, 60_000);

async function start(): Promise<Started> {
  const server = await startServer(provider, { store: join(place, 'runs.db') });
  return { server, ask: asking(() => server.url) };
}

async function busy(server: ServerProcess, ask: Asking): Promise<Before> {
  const begin = async (script: Script): Promise<Left> => {
    const asked = { model: modelOf(script), input: 'Go', tools: [SERVER_TOOLS], metadata: { kept: 'yes' } };
    const { id, ended } = await ask.begin(asked);
    ended.catch(() => {});
    return { id, script };
  };
  const calling = await begin(
    await provider.script([
      { reasoning: 'Two things.', text: 'First I add.', calls: [call('add', { a: 1, b: 1 })] },
      { text: 'Now I wait.', calls: [call('hold', { tag: 'calling' })] },
      { text: 'There we are.' },
      { text: 'Yes.' },
    ]),
  );
  const speaking = await begin(await provider.script([{ fault: 'stall' }, { text: 'Here I am.' }]));
  const doomed = await begin(
    await provider.script([{ calls: [call('hold', { tag: 'doomed' })] }, { fault: 'status', status: 401 }]),
  );
  const answers = await provider.script([{ text: 'Kept.' }]);
  const done = await ask.respond({ model: modelOf(answers), input: 'Hi' });
  const waitingFor = await provider.script([{ calls: [call('weather', {})] }, { text: 'Rain.' }, { text: 'Rain.' }]);
  const { response: waiting } = await ask.stream({ model: modelOf(waitingFor), input: 'Weather?', tools: [WEATHER] });
  await server.held('calling');
  await server.held('doomed');
  while ((await ask.retrieve(speaking.id)).output.length === 0);
  return { calling, speaking, doomed, done, waiting, waitingFor };
}

/** Fetches it until it has ended. */
async function settled({ retrieve }: Asking, id: string): Promise<WireResponse> {
  let response = await retrieve(id);
  while (response.status === 'in_progress') response = await retrieve(id);
  return response;
}

/** The roles of the last request, none of which was refused. */
async function roles(script: Script): Promise<readonly string[]> {
  const requests = await script.requests();
  for (const { refused } of requests) expect(refused).toBeUndefined();
  const { messages } = requests.at(-1)!.body as { messages: readonly { role: string }[] };
  return messages.map(({ role }) => role);
}

describe('after a server was killed', () => {
  test('the next one goes on with what was under way, and one more does not', () => {
    expect(one.server.recovered).toBe(3);
    expect(two.server.recovered).toBe(0);
  });

  test('a response in the middle of a call is shown as it stands, and completes', async () => {
    const { id, script } = before.calling;
    await one.server.held('calling');
    const standing = await one.ask.retrieve(id);
    expect(standing).toMatchObject({ status: 'in_progress', metadata: { kept: 'yes' }, usage: null });
    const types = ['reasoning', 'message', 'mcp_call', 'message', 'mcp_call'];
    expect(standing.output.map(({ type }) => type)).toEqual(types);
    one.server.release('calling');
    const response = await settled(one.ask, id);
    expect(response).toMatchObject({ status: 'completed', usage: { input_tokens: 60, output_tokens: 30 } });
    expect(textIn(response)).toBe('First I add.Now I wait.There we are.');
    expect(response.output[4]).toMatchObject({ type: 'mcp_call', status: 'completed', output: 'released calling' });
    expect(await two.ask.retrieve(id)).toEqual(response);
    // What had been done was not done again.
    expect(await script.requests()).toHaveLength(3);
    await one.ask.respond({ model: modelOf(script), previous_response_id: id, input: 'Sure?' });
    expect(await roles(script)).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool', 'assistant', 'user']);
  });

  test('a model that was speaking is asked again', async () => {
    const { id, script } = before.speaking;
    const response = await settled(one.ask, id);
    expect(response.status).toBe('completed');
    expect(textIn(response)).toBe('Here I am.');
    expect(await script.requests()).toHaveLength(2);
  });

  test('a response that fails then has failed, with what was done', async () => {
    const { id } = before.doomed;
    await one.server.held('doomed');
    one.server.release('doomed');
    const response = await settled(one.ask, id);
    expect(response).toMatchObject({
      status: 'failed',
      error: { code: 'server_error' },
      output: [{ type: 'mcp_call', status: 'completed', output: 'released doomed' }],
    });
  });

  test('what had ended is there, unchanged', async () => {
    expect(await one.ask.retrieve(before.done.id)).toEqual(before.done);
    expect(await two.ask.retrieve(before.done.id)).toEqual(before.done);
  });

  test('what waited for its client waits, and is continued by any of them', async () => {
    const { waiting, waitingFor } = before;
    expect(await one.ask.retrieve(waiting.id)).toEqual(waiting);
    const headers = { 'treadle-status': 'requires_action' };
    expect((await one.ask.retrieve(waiting.id, headers)).status).toBe('requires_action');
    const asked = { model: modelOf(waitingFor), tools: [WEATHER], previous_response_id: waiting.id };
    const { body } = await one.ask.refused({ ...asked, input: 'Well?' });
    expect(body.error.message).toContain(callsIn(waiting)[0]!.call_id);
    for (const { ask } of [one, two]) {
      const answer = await ask.respond({ ...asked, input: [outputFor(callsIn(waiting)[0]!, 'rain')] });
      expect(textIn(answer)).toBe('Rain.');
      expect(await roles(waitingFor)).toEqual(['user', 'assistant', 'tool']);
    }
  });
});

describe('two servers on one store', () => {
  test('what one has answered, the other can show, go on from and delete', async () => {
    const script = await provider.script([{ text: 'One.' }, { text: 'Two.' }, { text: 'Three.' }]);
    const model = modelOf(script);
    const first = await one.ask.respond({ model, input: '1' });
    expect(await two.ask.retrieve(first.id)).toEqual(first);
    expect((await two.ask.inputItems(first.id)).data).toHaveLength(1);
    const second = await two.ask.respond({ model, input: '2', previous_response_id: first.id });
    const third = await one.ask.respond({ model, input: '3', previous_response_id: second.id });
    expect(textIn(third)).toBe('Three.');
    expect(await roles(script)).toEqual(['user', 'assistant', 'user', 'assistant', 'user']);
    expect((await two.ask.send('DELETE', `/v1/responses/${first.id}`)).status).toBe(200);
    expect((await one.ask.send('GET', `/v1/responses/${first.id}`)).status).toBe(404);
  });

  test('a mixed turn is continued by the other, with the results of the first', async () => {
    const calls = [call('add', { a: 20, b: 22 }), call('weather', {})];
    const script = await provider.script([{ calls }, { text: 'Rain.' }]);
    const asked = { model: modelOf(script), tools: [WEATHER, SERVER_TOOLS] };
    const waiting = await one.ask.respond({ ...asked, input: 'Go' });
    const input = [outputFor(callsIn(waiting)[0]!, 'rain')];
    expect(textIn(await two.ask.respond({ ...asked, previous_response_id: waiting.id, input }))).toBe('Rain.');
    expect(await roles(script)).toEqual(['user', 'assistant', 'tool', 'tool']);
    expect(JSON.stringify((await script.requests())[1]!.body)).toContain('42');
  });

  test('a response that waits is cancelled by the other', async () => {
    const script = await provider.script([{ calls: [call('weather', {})] }]);
    const waiting = await one.ask.respond({ model: modelOf(script), tools: [WEATHER], input: 'Go' });
    expect((await two.ask.cancel(waiting.id)).status).toBe('cancelled');
    expect((await one.ask.retrieve(waiting.id)).status).toBe('cancelled');
  });

  test('a response that one runs is left alone by the other: 409', async () => {
    const script = await provider.script([{ calls: [call('hold', { tag: 'driven' })] }, { text: 'Done.' }]);
    const asked = { model: modelOf(script), tools: [SERVER_TOOLS] };
    const { id, ended } = await one.ask.begin({ ...asked, input: 'Wait' });
    await one.server.held('driven');
    expect((await two.ask.retrieve(id)).status).toBe('in_progress');
    const refusals = [
      await two.ask.refused({ ...asked, previous_response_id: id, input: 'And?' }),
      await two.ask.send('POST', `/v1/responses/${id}/cancel`),
      await two.ask.send('DELETE', `/v1/responses/${id}`),
    ];
    one.server.release('driven');
    for (const { status, body } of refusals) {
      expect(status).toBe(409);
      const { error } = body as WireError;
      expect(error.type).toBe('invalid_request_error');
      expect(error.message).toContain(id);
    }
    expect((await ended).response.status).toBe('completed');
    expect(textIn(await two.ask.retrieve(id))).toBe('Done.');
    expect(await script.requests()).toHaveLength(2);
  });
});

test('a server that is stopped waits for what it runs, and leaves nothing to do', async () => {
  const script = await provider.script([{ calls: [call('hold', { tag: 'stopped' })] }, { text: 'Done.' }]);
  const { server, ask } = await start();
  const { id, ended } = await ask.begin({ model: modelOf(script), input: 'Wait', tools: [SERVER_TOOLS] });
  await server.held('stopped');
  server.release('stopped');
  await server[Symbol.asyncDispose]();
  expect((await ended).response.status).toBe('completed');
  expect(textIn(await one.ask.retrieve(id))).toBe('Done.');
});
