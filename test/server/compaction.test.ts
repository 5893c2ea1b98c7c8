import { textOf, tool, type Message, type ModelRequest } from '@treadle/core';
import { scriptedModel, type ScriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import OpenAI from 'openai';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { eventProblems, schemaProblems } from './support/schema-check.ts';
import { openSocket } from './support/socket-client.ts';
import { openTestStore } from './support/test-store.ts';

const lines = ({ messages }: ModelRequest): string[] =>
  messages.map(({ role, content }: Message) => `${role}: ${textOf(content as Parameters<typeof textOf>[0])}`);
const message = (role: 'user' | 'assistant' | 'system', content: string) =>
  ({ type: 'message', role, content }) as const;
const LAUNCH = [
  message('system', 'Be brief.'),
  message('user', 'We launch on Tuesday.'),
  message('assistant', 'Understood: Tuesday.'),
];
const clientOf = ({ url }: InProcessServer, apiKey = 'none'): OpenAI =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const SUMMARY = 'Summary of the conversation so far; the original messages are left out:\n\n';

/** The cases of the compliance suite of Open Responses. */
describe('Open Responses: compact', () => {
  test('compact-response: the messages of users, and a compaction', async () => {
    const model = scriptedModel(['The launch is on Tuesday.']);
    await using server = await startInProcess(model);
    const body = { model: 'm', prompt_cache_key: 'key', input: LAUNCH };
    const { status, body: compacted } = await server.send('POST', '/v1/responses/compact', body);
    expect(status).toBe(200);
    expect(schemaProblems('CompactResource', compacted)).toEqual([]);
    expect((compacted as OpenAI.Responses.CompactedResponse).output.map(({ type }) => type)).toEqual([
      'message',
      'compaction',
    ]);
    expect(lines(model.requests[0]!)).toEqual([
      'user: user:\nWe launch on Tuesday.\n\nassistant:\nUnderstood: Tuesday.',
    ]);
  });

  test('compact-missing-model: a 400', async () => {
    await using server = await startInProcess(scriptedModel([]));
    const { status, body } = await server.send('POST', '/v1/responses/compact', { input: LAUNCH });
    expect(status).toBe(400);
    expect(body).toMatchObject({ error: { param: 'model', code: 'missing_required_parameter' } });
  });

  test('websocket-compact-new-chain: the output is the beginning of a new conversation', async () => {
    const model = scriptedModel(['It was about slate.', 'compacted']);
    await using server = await startInProcess(model);
    const compacted = await clientOf(server).responses.compact({ model: 'm', input: LAUNCH });
    using socket = await openSocket(server.url);
    const input = [...compacted.output, message('user', 'Continue from here.')];
    const last = await socket.create({ model: 'm', store: false, input, tools: [] });
    expect(last.type).toBe('response.completed');
    expect(lines(model.requests[1]!)).toEqual([
      `user: We launch on Tuesday.\n\n${SUMMARY}It was about slate.\n\nContinue from here.`,
    ]);
    expect(model.requests[1]!.instructions).toBe('Be brief.');
  });
});

test('the official client compacts a stored response, and continues from the items', async () => {
  const model = scriptedModel(['Noted.', 'The word is copper.', 'Copper.', 'Copper again.']);
  await using server = await startInProcess(model);
  const client = clientOf(server);
  const { id } = await client.responses.create({
    model: 'm',
    input: [message('system', 'A.'), message('user', 'Copper.')],
  });
  const { output, usage } = await client.responses.compact({ model: 'm', previous_response_id: id });
  expect(output).toMatchObject([{ type: 'message', content: [{ text: 'Copper.' }] }, { type: 'compaction' }]);
  expect(usage.total_tokens).toBe(15);
  const input = [...(output as OpenAI.Responses.ResponseInput), message('user', 'Which word?')];
  const answer = await client.responses.create({ model: 'm', input });
  expect(model.requests[2]).toMatchObject({ instructions: 'A.' });
  expect(lines(model.requests[2]!)).toEqual([`user: Copper.\n\n${SUMMARY}The word is copper.\n\nWhich word?`]);
  // Its conversation is stored with what the compaction represents.
  await client.responses.create({ model: 'm', previous_response_id: answer.id, input: 'And now?' });
  expect(lines(model.requests[3]!)).toHaveLength(3);
});

test('a compaction that was changed, or that another tenant got, is refused', async () => {
  const keys = [
    { name: 'a', tenant: 'a', hash: hashKey('a') },
    { name: 'b', tenant: 'b', hash: hashKey('b') },
  ];
  await using server = await startInProcess(scriptedModel(['It was said.', 'Yes.']), { keys });
  const { output } = await clientOf(server, 'a').responses.compact({ model: 'm', input: 'Hi' });
  const item = output.at(-1) as OpenAI.Responses.ResponseCompactionItem;
  const send = (key: string, encrypted_content: string): Promise<unknown> =>
    clientOf(server, key)
      .responses.create({ model: 'm', input: [{ type: 'compaction', encrypted_content }, message('user', 'So?')] })
      .then(
        ({ status }) => status,
        ({ code }: { code: string }) => code,
      );
  const { encrypted_content: content } = item;
  expect(await send('b', content)).toBe('invalid_encrypted_content');
  expect(await send('a', content.slice(0, -8))).toBe('invalid_encrypted_content');
  expect(await send('a', Buffer.from('{"summary":"x","system":[]}').toString('base64'))).toBe(
    'invalid_encrypted_content',
  );
  expect(await send('a', content)).toBe('completed');
});

test('a failure of the model is an error, and takes no capacity', async () => {
  const failure = { type: 'failure', error: { code: 'auth', message: 'no', retryable: false } } as const;
  await using server = await startInProcess(scriptedModel([failure, 'Fine.']), { maxConcurrentRuns: 1 });
  const compact = (): Promise<{ status: number }> =>
    server.send('POST', '/v1/responses/compact', { model: 'm', input: 'Hi' });
  expect((await compact()).status).toBe(502);
  expect((await compact()).status).toBe(200);
});

describe('context_management', () => {
  const long = 'word '.repeat(2_000);
  const context_management = [{ type: 'compaction', compact_threshold: 2_000 }];
  const ask = (server: InProcessServer, input: unknown, more = {}) =>
    server.send('POST', '/v1/responses', { model: 'm', input, context_management, ...more });

  async function asked(model: ScriptedModel, input: unknown): Promise<readonly string[][]> {
    await using server = await startInProcess(model, { maxConcurrentRuns: 1 });
    expect((await ask(server, input)).body).toMatchObject({ status: 'completed' });
    return model.requests.map(lines);
  }

  test('a conversation above the threshold is summarised before the response', async () => {
    const input = [message('user', long), message('assistant', 'Hm.'), message('user', 'So?')];
    const [first, second] = await asked(scriptedModel(['Many words.', 'So it is.']), input);
    expect(first).toHaveLength(1);
    expect(second).toEqual([`user: ${SUMMARY}Many words.\n\nSo?`]);
  });

  test('the results of the last turn stay with their calls', async () => {
    const call = { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' };
    const output = { type: 'function_call_output', call_id: 'c1', output: 'done' };
    const [, second] = await asked(scriptedModel(['Many words.', 'OK.']), [message('user', long), call, output]);
    expect(second!.map((line) => line.split(':')[0])).toEqual(['user', 'assistant', 'tool']);
  });

  test('below the threshold, and if it cannot be summarised, the conversation is as it was', async () => {
    expect(await asked(scriptedModel(['Hello.']), 'Hi')).toEqual([['user: Hi']]);
    const failure = { type: 'failure', error: { code: 'auth', message: 'no', retryable: false } } as const;
    const input = [message('user', long), message('assistant', 'Hm.'), message('user', 'So?')];
    expect((await asked(scriptedModel([failure, 'So.']), input))[1]).toHaveLength(3);
  });

  test('continues with the shorter conversation', async () => {
    const model = scriptedModel(['Many words.', 'So it is.', 'Yes.']);
    await using server = await startInProcess(model);
    const input = [message('user', long), message('assistant', 'Hm.'), message('user', 'So?')];
    const { body } = await ask(server, input);
    await ask(server, 'Sure?', { previous_response_id: (body as { id: string }).id });
    expect(lines(model.requests[2]!)).toEqual([
      `user: ${SUMMARY}Many words.\n\nSo?`,
      'assistant: So it is.',
      'user: Sure?',
    ]);
  });

  describe('the response has the compaction as its first item', () => {
    const input = [
      message('system', 'Be brief.'),
      message('user', long),
      message('assistant', 'Hm.'),
      message('user', 'So?'),
    ];

    test('which stands for all items before it, whether the client sends those or not', async () => {
      const model = scriptedModel(['Many words.', 'So it is.', 'Yes.', 'Yes again.']);
      await using server = await startInProcess(model);
      const { output } = (await ask(server, input, { store: false })).body as OpenAI.Responses.Response;
      expect(output.map(({ type }) => type)).toEqual(['compaction', 'message']);
      const next = [...output, message('user', 'Sure?')];
      await ask(server, [...input, ...next], { store: false });
      await ask(server, next, { store: false });
      // Without another summary.
      expect(model.requests).toHaveLength(4);
      for (const request of model.requests.slice(2)) {
        expect(request.instructions).toBe('Be brief.');
        expect(lines(request)).toEqual([
          `user: ${SUMMARY}Many words.\n\nAfter that:\n\nuser:\nSo?`,
          'assistant: So it is.',
          'user: Sure?',
        ]);
      }
    });

    test('in a stream, when it is fetched and as a reference', async () => {
      const model = scriptedModel(['Many words.', 'So it is.', 'Yes.']);
      await using server = await startInProcess(model);
      const client = clientOf(server);
      const stream = client.responses.stream({ model: 'm', input, context_management });
      const events: OpenAI.Responses.ResponseStreamEvent[] = [];
      for await (const event of stream) events.push(event);
      expect(events.flatMap(eventProblems)).toEqual([]);
      const items = events.flatMap((event) => (event.type === 'response.output_item.done' ? event.item : []));
      const { id, output } = await stream.finalResponse();
      expect(output.map(({ type }) => type)).toEqual(['compaction', 'message']);
      expect(items[0]).toEqual(output[0]);
      expect((await client.responses.retrieve(id)).output[0]).toEqual(output[0]);
      const references = output.map((item) => ({ type: 'item_reference' as const, id: item.id! }));
      await client.responses.create({ model: 'm', input: [...references, message('user', 'Sure?')] });
      expect(lines(model.requests[2]!)).toHaveLength(3);
    });

    test('is not output of the model: a request whose model fails is an error', async () => {
      const failure = { type: 'failure', error: { code: 'auth', message: 'no', retryable: false } } as const;
      await using server = await startInProcess(scriptedModel(['Many words.', failure]));
      expect(await ask(server, input)).toMatchObject({ status: 502, body: { error: { type: 'server_error' } } });
    });

    test('in the background, also after another process has resumed it', async () => {
      const store = await openTestStore();
      onTestFinished(() => store.close());
      const summarised = scriptedModel(['Many words.', () => new Promise<string>(() => {})]);
      const before = await startInProcess(summarised, { store });
      const created = await ask(before, input, { background: true });
      const { id } = created.body as OpenAI.Responses.Response;
      while (summarised.requests.length < 2) await new Promise(setImmediate);
      await before[Symbol.asyncDispose]();
      await using after = await startInProcess(scriptedModel(['So it is.']), { store });
      const client = clientOf(after);
      const events: OpenAI.Responses.ResponseStreamEvent[] = [];
      for await (const event of await client.responses.retrieve(id, { stream: true })) events.push(event);
      const added = events.flatMap((event) => (event.type === 'response.output_item.added' ? event.item.type : []));
      expect(added).toEqual(['compaction', 'message']);
      expect((await client.responses.retrieve(id)).output.map(({ type }) => type)).toEqual(added);
    });
  });
});

describe('a response that grows above the threshold over its own turns', () => {
  const context_management = [{ type: 'compaction', compact_threshold: 2_000 }];
  const read = tool({ name: 'read', description: 'Reads', execute: () => 'word '.repeat(2_000) });
  const calls = [1, 2, 3, 4].map((file) => ({ calls: [{ name: 'read', arguments: { file } }] }));
  const SCRIPT = [...calls, 'One file was read.', 'All read.'];
  const TYPES = ['mcp_call', 'mcp_call', 'mcp_call', 'mcp_call', 'compaction', 'message'];
  const input = [message('system', 'Be brief.'), message('user', 'Read all.')];
  const tools = [{ type: 'mcp', server_label: 'treadle', require_approval: 'never' }] as const;
  const body = { model: 'm', input, tools, context_management };
  const started = (model: ScriptedModel, options = {}): Promise<InProcessServer> =>
    startInProcess(model, { tools: [read], ...options });

  test.each([true, false])('has a compaction where older turns were summarised (store: %s)', async (store) => {
    const model = scriptedModel([...SCRIPT, 'Yes.', 'Yes again.']);
    await using server = await started(model);
    const { output } = (await server.send('POST', '/v1/responses', { ...body, store }))
      .body as OpenAI.Responses.Response;
    expect(output.flatMap(({ type }) => (type === 'reasoning' ? [] : type))).toEqual(TYPES);
    const at = output.findIndex(({ type }) => type === 'compaction');
    const next = [...output.slice(at), message('user', 'Sure?')];
    for (const sent of [next, [...input, ...output, message('user', 'Sure?')]]) {
      await server.send('POST', '/v1/responses', { ...body, input: sent, context_management: null, store: false });
    }
    // With the items before it and without them, the model gets the same.
    const [without, whole] = model.requests.slice(6);
    expect(lines(without!)).toEqual(lines(whole!));
    expect(without!.instructions).toContain('Be brief.');
    const [first, ...rest] = lines(without!);
    expect(rest).toEqual(['assistant: All read.', 'user: Sure?']);
    expect(first).toContain(`${SUMMARY}user:\nRead all.\n\nWhat was done then, in short:\n\nOne file was read.`);
    // Three turns are kept.
    expect(first!.split('(read returned)')).toHaveLength(4);
  });

  test('in a stream, and when it is continued', async () => {
    const model = scriptedModel([...SCRIPT, 'Yes.']);
    await using server = await started(model);
    const client = clientOf(server);
    const stream = client.responses.stream(body as never);
    const events: OpenAI.Responses.ResponseStreamEvent[] = [];
    for await (const event of stream) events.push(event);
    expect(events.flatMap(eventProblems)).toEqual([]);
    const items = events.flatMap((event) => (event.type === 'response.output_item.done' ? event.item : []));
    const { id } = await stream.finalResponse();
    expect(items.map(({ type }) => type)).toEqual(TYPES);
    expect((await client.responses.retrieve(id)).output).toEqual(items);
    await client.responses.create({ model: 'm', previous_response_id: id, input: 'Sure?' });
    expect(lines(model.requests.at(-1)!)[0]).toMatch(/^user: Read all\.[^]*One file was read\.$/);
  });

  test('once, also after another process has resumed it', async () => {
    const store = await openTestStore();
    onTestFinished(() => store.close());
    const hangs = (): Promise<string> => new Promise(() => {});
    const model = scriptedModel([...SCRIPT.slice(0, 5), hangs]);
    const before = await started(model, { store });
    const created = await before.send('POST', '/v1/responses', { ...body, background: true });
    const { id } = created.body as OpenAI.Responses.Response;
    while (model.requests.length < 6) await new Promise(setImmediate);
    await before[Symbol.asyncDispose]();
    await using after = await started(scriptedModel(['All read.']), { store });
    const client = clientOf(after);
    const added: string[] = [];
    for await (const event of await client.responses.retrieve(id, { stream: true })) {
      if (event.type === 'response.output_item.added') added.push(event.item.type);
    }
    expect(added).toEqual(TYPES);
    expect((await client.responses.retrieve(id)).output.map(({ type }) => type)).toEqual(TYPES);
  });
});

test('input_tokens: an estimate for the instructions, the input and the tools', async () => {
  const read = tool({ name: 'read', description: 'Reads a file', execute: () => '' });
  await using server = await startInProcess(scriptedModel(['Noted.']), { tools: [read] });
  const { inputTokens } = clientOf(server).responses;
  const count = async (body: OpenAI.Responses.InputTokenCountParams): Promise<number> => {
    const { object, input_tokens } = await inputTokens.count(body);
    expect(object).toBe('response.input_tokens');
    return input_tokens;
  };
  const words = 'word '.repeat(80);
  expect(await count({ model: 'm', input: words })).toBe(100);
  expect(await count({ model: 'm', input: words, instructions: words })).toBe(200);
  expect(await count({ input: words, tools: [{ type: 'mcp', server_label: 'treadle' }] })).toBeGreaterThan(100);
  const { body } = await server.send('POST', '/v1/responses', { input: words });
  const { id } = body as { id: string };
  expect(await count({ previous_response_id: id, input: words })).toBeGreaterThan(200);
  await expect(count({ model: 'none', input: words })).rejects.toMatchObject({ status: 404 });
});
