import { setImmediate } from 'node:timers/promises';
import { tool, TreadleError, type Model, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { newLog, treadleServer, type ServerStore, type TreadleServerOptions } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';

/** The server in this process, so that a test can break what it stands on. */
async function served(
  model: Model,
  options: Partial<TreadleServerOptions> & { readonly store?: ServerStore } = {},
): Promise<{ readonly post: typeof posted; readonly get: typeof got } & AsyncDisposable> {
  const own = options.store ?? sqliteStore(':memory:');
  const models = { default: 'm', models: new Map([['m', model]]) };
  const server = treadleServer({ port: 0, models, log: newLog({ level: 'silent' }), ...options, store: own });
  const { url } = await server.listen();
  async function posted(body: object): Promise<{ status: number; text: string }> {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${url}/v1/responses`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: answer.status, text: await answer.text() };
  }
  async function got(id: string): Promise<Record<string, unknown>> {
    return (await (await fetch(`${url}/v1/responses/${id}`)).json()) as Record<string, unknown>;
  }
  return {
    post: posted,
    get: got,
    async [Symbol.asyncDispose]() {
      await server.close(0);
      if (!options.store) await own.close();
    },
  };
}

const typesIn = (text: string): string[] => [...text.matchAll(/^event: (.*)$/gm)].map(([, type]) => type!);
const idIn = (text: string): string => /"id":"(resp_\w+)"/.exec(text)![1]!;

describe('a tool choice that demands a call where there is none', () => {
  test.each([
    {},
    { stream: true },
    { tools: [{ type: 'mcp', server_label: 'treadle' }] },
    { tools: [{ type: 'mcp', server_label: 'treadle', allowed_tools: [] }] },
  ])('%j is a 400, as often as it is asked for', async (more) => {
    await using server = await served(scriptedModel(['Hello.']), { maxConcurrentRuns: 1 });
    for (let n = 0; n < 3; n++) {
      const { status, text } = await server.post({ input: 'x', tool_choice: 'required', ...more });
      expect(status).toBe(400);
      expect(JSON.parse(text)).toMatchObject({ error: { param: 'tool_choice', code: 'unknown_tool' } });
    }
    expect((await server.post({ input: 'x' })).status).toBe(200);
  });
});

describe('a store that fails', () => {
  const failing = (broken: Partial<ServerStore>): ServerStore => ({ ...sqliteStore(':memory:'), ...broken });
  const disk = async (): Promise<never> => {
    throw new Error('disk /secret/place');
  };
  const stores: [string, () => ServerStore][] = [
    ['append', () => failing({ append: disk })],
    ['acquire', () => failing({ acquire: disk })],
    [
      'finish',
      () => {
        const store = sqliteStore(':memory:');
        return { ...store, responses: { ...store.responses, finish: disk } };
      },
    ],
  ];

  test.each(stores)('%s: the stream says so and ends, JSON is a 500, and neither says why', async (_, storeOf) => {
    const store = storeOf();
    await using server = await served(scriptedModel(['Hello.', 'Hello.']), { store, maxConcurrentRuns: 1 });
    const { text } = await server.post({ input: 'x', stream: true });
    expect(typesIn(text).slice(0, 2)).toEqual(['response.created', 'response.in_progress']);
    expect(typesIn(text).slice(-2)).toEqual(['error', 'response.failed']);
    expect(text).not.toContain('secret');
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
    const { status, text: body } = await server.post({ input: 'x' });
    expect([status, body.includes('secret')]).toEqual([_ === 'finish' ? 200 : 500, false]);
    await store.close();
  });
});

test('what a request refers to counts for the size of its input', async () => {
  const model: Model = {
    id: 'm',
    async reply() {
      const usage = { inputTokens: 1, outputTokens: 1 };
      const content = [{ type: 'text', text: 'x'.repeat(50_000) } as const];
      return { type: 'reply', content, finish: 'stop', usage, model: 'm' };
    },
  };
  await using server = await served(model);
  const first = JSON.parse((await server.post({ input: 'x' })).text) as { output: { id: string }[] };
  const again = { type: 'item_reference', id: first.output[0]!.id };
  expect((await server.post({ input: [again, { role: 'user', content: 'go on' }] })).status).toBe(200);
  const { status, text } = await server.post({ input: Array.from({ length: 1_000 }, () => again) });
  expect([status, JSON.parse(text)]).toMatchObject([413, { error: { param: 'input', code: 'input_too_large' } }]);
});

test('a response that cannot go on after a restart keeps what it had said and done', async () => {
  const store = sqliteStore(':memory:');
  const begun = Promise.withResolvers<void>();
  const look: Tool = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => 'seen' });
  const wait: Tool = tool({
    name: 'wait',
    description: 'Waits',
    execute: async (_, { signal }) => {
      begun.resolve();
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))));
    },
  });
  const script = [{ text: 'Looking.', calls: [{ name: 'look' }] }, { calls: [{ name: 'wait' }] }];
  const tools = [{ type: 'mcp', server_label: 'treadle' }];
  const first = await served(scriptedModel(script), { store, tools: [look, wait] });
  const broken = first.post({ model: 'm', input: 'go', tools, stream: true });
  await begun.promise;
  await first[Symbol.asyncDispose]();
  const id = idIn((await broken).text);

  const others = { default: 'n', models: new Map([['n', scriptedModel([])]]) };
  await using second = await served(scriptedModel([]), { store, models: others });
  const left = await second.get(id);
  expect(left).toMatchObject({
    status: 'failed',
    error: { code: 'server_error', message: expect.stringContaining('no model "m"') },
    usage: { output_tokens: 10 },
    output: [
      { type: 'message' },
      { type: 'mcp_call', name: 'look', output: 'seen' },
      { type: 'mcp_call', name: 'wait' },
    ],
  });
  expect((await store.list()).map(({ status }) => status)).toEqual(['cancelled']);
});

test('where the model is, and what its key is, is for the log alone', async () => {
  const lines: string[] = [];
  const error = { code: 'network', message: 'Connection to 10.1.2.3:8000 failed.', retryable: false } as const;
  const model: Model = { id: 'm', reply: async () => ({ type: 'failure', error }) };
  const log = newLog({ to: { write: (line: string) => void lines.push(line) } });
  await using server = await served(model, { log });
  const whole = await server.post({ input: 'x' });
  const streamed = await server.post({ input: 'x', stream: true });
  expect(whole.status).toBe(502);
  for (const { text } of [whole, streamed]) expect(text).not.toContain('10.1.2.3');
  expect(lines.join('')).toContain('10.1.2.3:8000');
});

test('what a model needs back of its thoughts counts for the size too', async () => {
  const model: Model = {
    id: 'm',
    async reply() {
      const usage = { inputTokens: 1, outputTokens: 1 };
      const thought = { type: 'reasoning', text: 'Hm.', signature: 's'.repeat(200_000), protocol: 'p' } as const;
      return { type: 'reply', content: [thought, { type: 'text', text: 'a' }], finish: 'stop', usage, model: 'm' };
    },
  };
  await using server = await served(model);
  const asked = { input: 'x', include: ['reasoning.encrypted_content'] };
  const { output } = JSON.parse((await server.post(asked)).text) as { output: { id: string }[] };
  const references = output.map(({ id }) => ({ type: 'item_reference', id }));
  const { status } = await server.post({ input: Array.from({ length: 400 }, () => references).flat() });
  expect(status).toBe(413);
});

test('a response that another process has taken over ends its stream, and is a conflict as JSON', async () => {
  const store = sqliteStore(':memory:');
  const acquire = async (): Promise<never> => {
    throw new TreadleError('run-driven', 'It is driven by process 7.');
  };
  await using server = await served(scriptedModel(['a', 'b']), { store: { ...store, acquire } });
  const { text } = await server.post({ input: 'x', stream: true });
  expect(typesIn(text).slice(-2)).toEqual(['error', 'response.failed']);
  const { status, text: body } = await server.post({ input: 'x' });
  expect([status, JSON.parse(body)]).toMatchObject([409, { error: { code: 'response_in_progress' } }]);
  await store.close();
});

test('responses that are taken up after a restart take places like any other', async () => {
  const store = sqliteStore(':memory:');
  const gate = Promise.withResolvers<void>();
  let asked = 0;
  const never: Model = { id: 'm', reply: () => new Promise(() => void asked++) };
  const first = await served(never, { store });
  const begun = Array.from({ length: 5 }, () => first.post({ input: 'x', stream: true }));
  while (asked < 5) await setImmediate();
  await first[Symbol.asyncDispose]();
  await Promise.all(begun);

  let now = 0;
  const slow: Model = {
    id: 'm',
    async reply() {
      now++;
      await gate.promise;
      const usage = { inputTokens: 1, outputTokens: 1 };
      return { type: 'reply', content: [{ type: 'text', text: 'a' }], finish: 'stop', usage, model: 'm' };
    },
  };
  const second = await served(slow, { store, maxConcurrentRuns: 2 });
  while (now < 2) await setImmediate();
  expect((await second.post({ input: 'x' })).status).toBe(429);
  expect(now).toBe(2);
  gate.resolve();
  await second[Symbol.asyncDispose]();
  await store.close();
});
