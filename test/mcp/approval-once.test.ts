import { once } from 'node:events';
import { tool, type Model } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Response as OpenAIResponse } from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { startInProcess, type InProcessServer, type JsonAnswer } from '../server/support/in-process.ts';
import { storeOfTest } from '../server/support/test-store.ts';

/* A client decides about each request for an approval once, however often and in whatever way it sends its decision. */

const TOOLS = [{ type: 'mcp', server_label: 'treadle', require_approval: 'always' }];
const CALL: ScriptStep = { calls: [{ name: 'pay' }] };

/** A tool that counts its executions. While it is held, they do not end. */
function payments() {
  let count = 0;
  let held: PromiseWithResolvers<void> | undefined;
  const begun = Promise.withResolvers<void>();
  const pay = tool({
    name: 'pay',
    description: '',
    effect: 'once',
    async execute(_, { signal }) {
      count += 1;
      begun.resolve();
      if (held) await Promise.race([held.promise, once(signal, 'abort')]);
      signal.throwIfAborted();
      return 'paid';
    },
  });
  return {
    pay,
    count: () => count,
    begun: begun.promise,
    hold: () => void (held = Promise.withResolvers()),
    release: () => held?.resolve(),
  };
}

type Body = Readonly<Record<string, unknown>>;

/** How a client continues a response that asks for an approval: the first request, and the second one. */
const WAYS: readonly (readonly [
  name: string,
  first: (server: InProcessServer) => Promise<Body>,
  next: (asked: Asked, first: Body) => Body,
])[] = [
  ['previous_response_id', async () => ({ input: 'Go' }), ({ id }) => ({ previous_response_id: id })],
  [
    'conversation',
    async (server) => ({
      input: 'Go',
      conversation: (await server.send('POST', '/v1/conversations', {})).body.id as string,
    }),
    (_, { conversation }) => ({ conversation }),
  ],
  ['items', async () => ({ input: 'Go' }), ({ request }) => ({ held: [{ role: 'user', content: 'Go' }, request] })],
  [
    'items alone',
    async () => ({ input: 'Go', store: false }),
    ({ request }) => ({ store: false, held: [{ role: 'user', content: 'Go' }, request] }),
  ],
];

const STORED = WAYS.filter(([name]) => name !== 'items alone');

interface Asked {
  readonly id: string;
  readonly request: { readonly id: string };
}

/** Creates a response that asks for an approval. Resolves to the bodies of the requests that decide about it. */
async function ask(
  server: InProcessServer,
  [, first, next]: (typeof WAYS)[number],
): Promise<Asked & { decide(approve: boolean, more?: object, said?: string): Body }> {
  const body = await first(server);
  const response = JSON.parse((await server.post({ model: 'm', tools: TOOLS, ...body })).text) as OpenAIResponse;
  const request = response.output.find(({ type }) => type === 'mcp_approval_request')!;
  const { held = [], ...fields } = next({ id: response.id, request: request as Asked['request'] }, body);
  return {
    id: response.id,
    request: request as Asked['request'],
    decide(approve, more = {}, said) {
      const decision = { type: 'mcp_approval_response', approval_request_id: request.id, approve };
      const input = [...(held as object[]), decision, ...(said === undefined ? [] : [{ role: 'user', content: said }])];
      return { model: 'm', tools: TOOLS, ...fields, ...more, input };
    },
  };
}

async function send(server: InProcessServer, body: Body): Promise<JsonAnswer> {
  return server.send('POST', '/v1/responses', body);
}

/** The last response that a stream contains. */
function lastIn(text: string): OpenAIResponse {
  const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json]) => JSON.parse(json!) as { response?: unknown },
  );
  return events.findLast(({ response }) => response)!.response as OpenAIResponse;
}

const DECIDED = { status: 409, body: { error: { code: 'approval_decided', param: 'input' } } };
const IN_PROGRESS = { status: 409, body: { error: { code: 'response_in_progress' } } };

describe('a repeated continuation', () => {
  test.each(STORED)('gets the recorded response: %s', async (...way) => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, way);
    const { body: first } = await send(server, decide(true));
    expect(first).toMatchObject({ status: 'completed', output: [{ type: 'mcp_call', output: 'paid' }, {}] });
    expect(await send(server, decide(true))).toEqual({ status: 200, body: first });
    const { text } = await server.post(decide(true, { stream: true }));
    expect(lastIn(text)).toEqual(first);
    expect(count()).toBe(1);
  });

  test('of a response that is not stored gets a 409', async () => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, WAYS.at(-1)!);
    expect((await send(server, decide(true))).status).toBe(200);
    expect(await send(server, decide(true))).toMatchObject(DECIDED);
    expect(count()).toBe(1);
  });

  test.each(WAYS)('gets a 409 while the first one runs: %s', async (...way) => {
    const { pay, count, begun, hold, release } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, way);
    hold();
    const sent = send(server, decide(true));
    await begun;
    expect(await send(server, decide(true))).toMatchObject(way[0] === 'items alone' ? DECIDED : IN_PROGRESS);
    release();
    expect((await sent).body.output[0]).toMatchObject({ output: 'paid' });
    expect(count()).toBe(1);
  });

  test.each(WAYS)('does not execute a call again whose client has disconnected: %s', async (...way) => {
    const { pay, count, begun, hold } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.', 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, way);
    hold();
    const client = new AbortController();
    const body = JSON.stringify(decide(true));
    const headers = { 'content-type': 'application/json' };
    const request = { method: 'POST', headers, body, signal: client.signal };
    const sent = fetch(`${server.url}/v1/responses`, request).catch(() => {});
    await begun;
    client.abort();
    await sent;
    let repeated = await send(server, decide(true));
    while (repeated.body.error?.code === 'response_in_progress') repeated = await send(server, decide(true));
    expect(repeated).toMatchObject(way[0] === 'items alone' ? DECIDED : { body: { status: 'cancelled' } });
    expect(count()).toBe(1);
  });

  test('of a background response gets its id, and its events', async () => {
    const { pay, count, begun, hold, release } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, WAYS[0]!);
    hold();
    const body = decide(true, { background: true });
    const { body: first } = await send(server, body);
    await begun;
    expect(await send(server, body)).toMatchObject({ status: 200, body: { id: first.id, status: 'in_progress' } });
    const streamed = server.post({ ...body, stream: true });
    release();
    expect(lastIn((await streamed).text)).toMatchObject({ id: first.id, status: 'completed' });
    expect(count()).toBe(1);
  });

  test('over a WebSocket gets the events of the recorded response', async () => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, WAYS[0]!);
    const { body: first } = await send(server, decide(true));
    const socket = new WebSocket(`${server.url.replace('http', 'ws')}/v1/responses`);
    await once(socket, 'open');
    socket.send(JSON.stringify({ type: 'response.create', ...decide(true) }));
    const ended = Promise.withResolvers<unknown>();
    socket.addEventListener('message', ({ data }) => {
      const event = JSON.parse(String(data)) as { readonly type: string; readonly response: unknown };
      if (event.type === 'response.completed' || event.type === 'error') ended.resolve(event);
    });
    expect(await ended.promise).toMatchObject({ type: 'response.completed', response: first });
    socket.close();
    await once(socket, 'close');
    expect(count()).toBe(1);
  });

  test.each(WAYS)('reaches two servers with one store: %s', async (...way) => {
    const { pay, count } = payments();
    const store = await storeOfTest();
    const model = scriptedModel([CALL, 'Done.', 'Done.']);
    await using one = await startInProcess(model, { store, tools: [pay] });
    await using two = await startInProcess(model, { store, tools: [pay] });
    const { decide } = await ask(one, way);
    const answers = await Promise.all([one, two, one, two].map((server) => send(server, decide(true))));
    expect(count()).toBe(1);
    for (const { status } of answers) expect([200, 409]).toContain(status);
    const ids = answers.flatMap(({ status, body }) => (status === 200 ? [body.id as string] : []));
    expect(new Set(ids).size).toBe(1);
  });

  test('gets the recorded response after a restart, and the call is not repeated', async () => {
    const { pay, count, begun, hold } = payments();
    const store = await storeOfTest();
    const before = await startInProcess(scriptedModel([CALL]), { store, tools: [pay] });
    const { decide } = await ask(before, WAYS[0]!);
    hold();
    const sent = send(before, decide(true));
    await begun;
    await before[Symbol.asyncDispose]();
    await sent;
    await using after = await startInProcess(scriptedModel(['Interrupted.']), { store, tools: [pay] });
    let repeated = await send(after, decide(true));
    while (repeated.status === 409) repeated = await send(after, decide(true));
    expect(repeated.body).toMatchObject({ status: 'completed', output: [{ type: 'mcp_call' }, { type: 'message' }] });
    expect(count()).toBe(1);
  });
});

describe('a second decision', () => {
  test.each(
    WAYS.flatMap(([name, ...way]) => [
      [name, true, true, way] as const,
      [name, true, false, way] as const,
      [name, false, true, way] as const,
      [name, false, false, way] as const,
    ]),
  )('in another request gets a 409: %s, %s after %s', async (name, second, first, way) => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide } = await ask(server, [name, ...way]);
    expect((await send(server, decide(first))).status).toBe(200);
    const other = await send(server, decide(second, {}, 'And now?'));
    expect(other).toMatchObject(DECIDED);
    expect(other.body.error.message).toContain('was decided before, in the response');
    expect(count()).toBe(first ? 1 : 0);
  });

  test('in another way of continuing gets a 409', async () => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel([CALL, 'Done.']), { tools: [pay] });
    const { decide, id, request } = await ask(server, WAYS[2]!);
    await send(server, decide(true));
    const decision = { type: 'mcp_approval_response', approval_request_id: request.id, approve: true };
    const common = { model: 'm', tools: TOOLS };
    const reference = { type: 'item_reference', id: request.id };
    const user = { role: 'user', content: 'Go' };
    for (const body of [
      { ...common, previous_response_id: id, input: [decision] },
      { ...common, input: [user, reference, decision] },
      { ...common, store: false, input: [user, request, decision] },
    ]) {
      expect(await send(server, body)).toMatchObject(DECIDED);
    }
    expect(count()).toBe(1);
  });

  test.each(['approval_1', '\ud800'])('about a request that the client made up gets a 409: %j', async (id) => {
    const { pay, count } = payments();
    await using server = await startInProcess(scriptedModel(['Done.']), { tools: [pay] });
    const request = { type: 'mcp_approval_request', id, server_label: 'treadle', name: 'pay', arguments: '{}' };
    const decision = { type: 'mcp_approval_response', approval_request_id: id, approve: true };
    const body = (text: string): Body => {
      return { model: 'm', tools: TOOLS, input: [{ role: 'user', content: text }, request, decision] };
    };
    expect((await send(server, body('Go'))).status).toBe(200);
    expect((await send(server, body('Go'))).status).toBe(200);
    expect(await send(server, body('Go on'))).toMatchObject(DECIDED);
    expect(count()).toBe(1);
  });

  test('over the runs API gets a 409, and one after it as well', async () => {
    const { pay, count } = payments();
    const options = { tools: [pay], waitForAnswers: true };
    await using server = await startInProcess(scriptedModel([CALL, 'Done.', CALL, 'Done.']), options);
    const answer = async (id: string, digest?: string): Promise<JsonAnswer> => {
      const { body: run } = await server.send('GET', `/v1/runs/${id}`);
      const [wait] = run.waiting as [{ effect: string; digest: string }];
      const answers = [{ type: 'approval', effect: wait.effect, digest: digest ?? wait.digest, approved: true }];
      return server.send('POST', `/v1/runs/${id}/answers`, { answers });
    };
    const first = await ask(server, WAYS[0]!);
    const unfit = await answer(first.id, 'another call');
    expect(unfit).toMatchObject({ status: 409, body: { error: { code: 'answer_unfit' } } });
    // It has decided nothing.
    expect((await send(server, first.decide(true))).status).toBe(200);
    expect(await answer(first.id)).toMatchObject({ status: 409, body: { error: { code: 'answer_unfit' } } });
    expect(await server.get(first.id)).toMatchObject({ status: 'completed' });

    const second = await ask(server, WAYS[0]!);
    expect((await answer(second.id)).status).toBe(200);
    await server.getEnded(second.id);
    expect(await send(server, second.decide(true))).toMatchObject(DECIDED);
    expect(count()).toBe(2);
  });
});

test.each(WAYS)('a decision whose response failed before it did anything can be sent again: %s', async (...way) => {
  const { pay, count } = payments();
  const script = scriptedModel([CALL, 'Not paid.']);
  let isDown = false;
  const error = { code: 'overloaded', message: 'down', retryable: false } as const;
  const model: Model = {
    ...script,
    reply: (...request) => (isDown ? Promise.resolve({ type: 'failure', error }) : script.reply(...request)),
  };
  await using server = await startInProcess(model, { tools: [pay] });
  const { decide } = await ask(server, way);
  isDown = true;
  expect((await send(server, decide(false))).body).toMatchObject({ status: 'failed' });
  isDown = false;
  // A conversation keeps what was said before the failure.
  const again =
    way[0] === 'conversation' ? await send(server, { ...decide(false), input: [] }) : await send(server, decide(false));
  expect(again.body).toMatchObject({ status: 'completed' });
  expect(count()).toBe(0);
});

test.each(WAYS)('a call is not executed again if the model failed after it: %s', async (...way) => {
  const { pay, count } = payments();
  const script = scriptedModel([CALL, 'Not reached.']);
  const error = { code: 'overloaded', message: 'down', retryable: false } as const;
  const model: Model = {
    ...script,
    reply: (...request) => (count() > 0 ? Promise.resolve({ type: 'failure', error }) : script.reply(...request)),
  };
  await using server = await startInProcess(model, { tools: [pay] });
  const { decide } = await ask(server, way);
  const headers = { 'idempotency-key': 'k' };
  const keyed = (): Promise<JsonAnswer> => server.send('POST', '/v1/responses', decide(true), headers);
  const first = await keyed();
  expect([first.body.status, first.body.output[0].output]).toEqual(['failed', 'paid']);
  expect(await keyed()).toEqual(first);
  expect((await send(server, decide(true))).body).toEqual(first.body);
  expect(count()).toBe(1);
});
