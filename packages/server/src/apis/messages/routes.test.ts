import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { tool, type Message } from '@treadle/core';
import { scriptedModel, type ScriptedModel, type ScriptStep } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import pino from 'pino';
import { afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { claudeRequest, CLAUDE_HEADERS } from '../../../test/claude-request.ts';
import { hashKey } from '../../http/keys.ts';
import type { TreadleServerOptions } from '../../server-options.ts';
import { treadleServer } from '../../treadle-server.ts';

const closers: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

interface Served {
  readonly url: string;
  readonly client: Anthropic;
  readonly store: SqliteStore;
  post(body: object, headers?: Readonly<Record<string, string>>, path?: string): Promise<Response>;
}

async function serve(model: ScriptedModel, options: Partial<TreadleServerOptions> = {}): Promise<Served> {
  const store = (options.store as SqliteStore | undefined) ?? sqliteStore(':memory:');
  const server = treadleServer({
    models: { default: 'main', models: new Map([['main', model]]) },
    port: 0,
    log: pino({ level: 'silent' }),
    ...options,
    store,
  });
  const { url } = await server.listen();
  closers.push(
    () => server.close(0),
    () => store.close(),
  );
  const client = new Anthropic({ apiKey: 'k', baseURL: url, maxRetries: 0, logLevel: 'off' });
  return {
    url,
    client,
    store,
    post: (body, headers = {}, path = '/v1/messages') =>
      fetch(url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
  };
}

const look = tool({
  name: 'look',
  description: 'Looks.',
  parameters: { type: 'object', properties: {} },
  effect: 'pure',
  execute: async () => 'seen',
});
const LOOKING = { tools: [look], defaultTools: ['look'] };
const ask = { name: 'ask', input_schema: { type: 'object' as const, properties: { city: { type: 'string' } } } };
const GO = { model: 'main', max_tokens: 1_000, messages: [{ role: 'user' as const, content: 'go' }] };
const overloaded: ScriptStep = { type: 'failure', error: { code: 'overloaded', message: 'Busy.', retryable: true } };

function short({ role, content }: Message): string {
  const parts = content.map((part) => ('name' in part ? `[${part.name}]` : 'text' in part ? part.text : part.type));
  return `${role}: ${parts.join(' ')}`;
}

/** The events of a stream, without those of deltas. */
async function eventsIn(answer: Response): Promise<readonly string[]> {
  return (await answer.text()).split('\n').flatMap((line) => (/^event: (?!.*delta)/.test(line) ? line.slice(7) : []));
}

describe('the official client', () => {
  test.each([[false], [true]])(
    'gets the calls and results of the server, and sends them back (streamed: %s)',
    async (isStreamed) => {
      const model = scriptedModel([
        { text: 'I look.', calls: [{ name: 'look' }] },
        {
          text: 'I ask.',
          calls: [
            { name: 'look', arguments: { n: 1 } },
            { name: 'ask', arguments: { city: 'Oslo' } },
          ],
        },
        'Done.',
      ]);
      const { client } = await serve(model, LOOKING);
      const body = { ...GO, tools: [ask] };
      const first = isStreamed
        ? await client.beta.messages.stream(body).finalMessage()
        : await client.beta.messages.create(body);
      expect(first).toMatchObject({ type: 'message', role: 'assistant', model: 'main', stop_reason: 'tool_use' });
      expect(first.content.map(({ type }) => type)).toEqual([
        'text',
        'mcp_tool_use',
        'mcp_tool_result',
        'text',
        'mcp_tool_use',
        'tool_use',
        'mcp_tool_result',
      ]);
      expect(first.content[1]).toMatchObject({ name: 'look', server_name: 'treadle', input: {} });
      expect(first.content[2]).toMatchObject({ is_error: false, content: [{ type: 'text', text: 'seen' }] });
      // Two model calls, which scripts count as ten tokens each.
      expect(first.usage).toMatchObject({
        input_tokens: 20,
        output_tokens: 10,
        iterations: [{ input_tokens: 10 }, {}],
      });
      const call = first.content.find((block) => block.type === 'tool_use')!;
      const last = await client.beta.messages.create({
        ...body,
        messages: [
          ...GO.messages,
          { role: 'assistant', content: first.content as Anthropic.Beta.BetaContentBlockParam[] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: '12 degrees' }] },
        ],
      });
      expect(last).toMatchObject({ content: [{ type: 'text', text: 'Done.' }], stop_reason: 'end_turn' });
      expect(model.requests.at(-1)!.messages.map(short)).toEqual([
        'user: go',
        'assistant: I look. [look]',
        'tool: [look]',
        'assistant: I ask. [look] [ask]',
        'tool: [look] [ask]',
      ]);
    },
  );

  test.each([[false], [true]])(
    'runs its tools with threads, which send only what is new (streamed: %s)',
    async (isStreamed) => {
      const model = scriptedModel([
        { text: 'I ask.', calls: [{ name: 'ask', arguments: { city: 'Oslo' } }, { name: 'look' }] },
        { text: 'Again.', calls: [{ name: 'ask', arguments: { city: 'Rome' } }] },
        'All done.',
      ]);
      const { client, url } = await serve(model, LOOKING);
      const bodies: Record<string, unknown>[] = [];
      const watching = client.withOptions({
        fetch: (to, init) => {
          bodies.push(JSON.parse(String(init!.body)));
          return fetch(to, init);
        },
      });
      const weather = betaZodTool({
        name: 'ask',
        description: 'Asks.',
        inputSchema: z.object({ city: z.string() }),
        run: ({ city }) => `12 degrees in ${city}`,
      });
      const runner = watching.beta.messages.toolRunner({
        ...GO,
        system: 'Be brief.',
        tools: [weather],
        stream: isStreamed,
      });
      const last = await runner.runUntilDone();
      expect(last.content).toMatchObject([{ type: 'text', text: 'All done.' }]);
      expect(
        bodies.map(({ thread, messages, tools, system }) => [thread, (messages as []).length, !!tools, !!system]),
      ).toEqual([
        [{ type: 'create' }, 1, true, true],
        [{ type: 'continue', previous_message_id: expect.stringMatching(/^msg_/) }, 1, false, false],
        [{ type: 'continue', previous_message_id: expect.stringMatching(/^msg_/) }, 1, false, false],
      ]);
      const { messages, instructions, tools } = model.requests.at(-1)!;
      expect(instructions).toBe('Be brief.');
      expect(tools.map(({ name }) => name)).toEqual(['ask', 'look']);
      expect(messages.map(short)).toEqual([
        'user: go',
        'assistant: I ask. [ask] [look]',
        'tool: [ask] [look]',
        'assistant: Again. [ask]',
        'tool: [ask]',
      ]);
      const { data } = (await (await fetch(`${url}/v1/runs`)).json()) as { data: { session: string }[] };
      expect(new Set(data.map(({ session }) => session)).size).toBe(1);
    },
  );

  test('parses an answer in the form of a schema, without the texts before calls of the server', async () => {
    const model = scriptedModel([{ text: 'I look.', calls: [{ name: 'look' }] }, '{"title":"A walk"}']);
    const { client } = await serve(model, LOOKING);
    const schema = { type: 'object', properties: { title: { type: 'string' } }, required: ['title'] };
    const body = { ...GO, output_config: { format: { type: 'json_schema' as const, schema } } };
    const { content } = await client.beta.messages.stream(body).finalMessage();
    expect(content.map(({ type }) => type)).toEqual(['mcp_tool_use', 'mcp_tool_result', 'text']);
    expect(content.at(-1)).toMatchObject({ text: '{"title":"A walk"}' });
  });

  test('gets thoughts with signatures, and sends them back', async () => {
    const thought = { type: 'reasoning', text: 'Hm.', summary: true, signature: 's', protocol: 'p' } as const;
    const call = { type: 'tool-call', id: 'c', name: 'ask', arguments: '{}' } as const;
    const reply = {
      type: 'reply',
      finish: 'tool-calls',
      usage: { inputTokens: 9, outputTokens: 5, reasoningTokens: 3 },
      model: 'm',
    } as const;
    const model = scriptedModel([{ ...reply, content: [thought, call] }, 'Done.']);
    const { client } = await serve(model);
    const body = { ...GO, tools: [ask], thinking: { type: 'adaptive' as const } };
    const { content, usage } = await client.beta.messages.stream(body).finalMessage();
    expect(content[0]).toEqual({ type: 'thinking', thinking: 'Hm.', signature: expect.stringMatching(/.{40}/) });
    expect(usage.output_tokens_details).toEqual({ thinking_tokens: 3 });
    const messages = [
      ...GO.messages,
      { role: 'assistant' as const, content: content as Anthropic.Beta.BetaContentBlockParam[] },
      {
        role: 'user' as const,
        content: [{ type: 'tool_result' as const, tool_use_id: (content[1] as { id: string }).id }],
      },
    ];
    await client.beta.messages.create({ ...body, messages });
    // With the signature of the provider, which the client does not have.
    expect(model.requests[1]!.messages[1]).toMatchObject({ content: [thought, { name: 'ask' }] });
    expect(model.requests.map(({ settings }) => settings.reasoning)).toEqual(['high', 'high']);
  });

  test('gets no thoughts that it does not ask for, and only signatures if it wants no text', async () => {
    const reply = { type: 'reply', finish: 'stop', usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' } as const;
    const content = [
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'Yes.' },
    ] as const;
    const { client } = await serve(
      scriptedModel([
        { ...reply, content },
        { ...reply, content },
      ]),
    );
    const plain = await client.beta.messages.create(GO);
    expect(plain.content).toMatchObject([{ type: 'text', text: 'Yes.' }]);
    const omitted = await client.beta.messages.create({ ...GO, thinking: { type: 'adaptive', display: 'omitted' } });
    expect(omitted.content).toMatchObject([
      { type: 'thinking', thinking: '' },
      { type: 'text', text: 'Yes.' },
    ]);
  });

  test('counts tokens', async () => {
    const { client } = await serve(scriptedModel([]), LOOKING);
    const { model, messages } = GO;
    const few = await client.beta.messages.countTokens({ model, messages });
    const more = await client.beta.messages.countTokens({
      model,
      messages,
      system: 'x'.repeat(400),
      tools: [ask],
      context_management: { edits: [{ type: 'clear_thinking_20251015' }] },
    });
    expect(few).toEqual({ input_tokens: expect.any(Number), context_management: null });
    expect(more.input_tokens - few.input_tokens).toBeGreaterThan(100);
    expect(more.context_management).toEqual({ original_input_tokens: more.input_tokens });
  });
});

describe('stop reasons', () => {
  const looking = (n: number): ScriptStep => ({ calls: [{ name: 'look', arguments: { n } }] });
  const reply = {
    type: 'reply',
    content: [{ type: 'text', text: 'A' }],
    usage: { inputTokens: 1, outputTokens: 1 },
    model: 'm',
  } as const;

  test.each<[string, readonly ScriptStep[], object, unknown]>([
    ['end_turn', ['A'], {}, null],
    ['tool_use', [{ calls: [{ name: 'ask' }] }], { tools: [ask] }, null],
    ['max_tokens', [{ ...reply, finish: 'length' }], {}, null],
    ['refusal', [{ ...reply, finish: 'content-filter' }], {}, null],
    ['stop_sequence', [{ ...reply, finish: 'stop', rawFinish: 'stop_sequence' }], { stop_sequences: ['END'] }, 'END'],
    [
      'model_context_window_exceeded',
      [{ ...reply, finish: 'length', rawFinish: 'model_context_window_exceeded' }],
      {},
      null,
    ],
    ['pause_turn', [looking(1), looking(2)], {}, null],
  ])('%s', async (stop_reason, steps, more, stop_sequence) => {
    const { client } = await serve(scriptedModel([...steps, ...steps]), { ...LOOKING, maxTurns: 2 });
    const body = { ...GO, ...more };
    const streamed = client.beta.messages.stream(body).finalMessage();
    expect(await streamed).toMatchObject({ stop_reason, stop_sequence });
    expect(await client.beta.messages.create(body)).toMatchObject({ stop_reason, stop_sequence });
  });

  test('a turn that was paused goes on when the message is sent back', async () => {
    const model = scriptedModel([looking(1), looking(2), 'Done.']);
    const { client } = await serve(model, { ...LOOKING, maxTurns: 2 });
    const { content } = await client.beta.messages.create(GO);
    const said = { role: 'assistant' as const, content: content as Anthropic.Beta.BetaContentBlockParam[] };
    const next = await client.beta.messages.create({ ...GO, messages: [...GO.messages, said] });
    expect(next.content).toMatchObject([{ text: 'Done.' }]);
    expect(model.requests[2]!.messages.map(short)).toEqual([
      'user: go',
      'assistant: [look]',
      'tool: [look]',
      'assistant: [look]',
      'tool: [look]',
    ]);
  });
});

describe('threads', () => {
  const create = { ...GO, tools: [ask], thread: { type: 'create' } };
  const after = (previous: unknown, more: object = {}): object => ({
    ...GO,
    thread: { type: 'continue', previous_message_id: previous },
    ...more,
  });
  const codeOf = async (answer: Response): Promise<unknown> => {
    const { error } = (await answer.json()) as { error: { details: { error_code: string } } };
    return [answer.status, error.details.error_code];
  };
  const idOf = async (answer: Response): Promise<string> => ((await answer.json()) as { id: string }).id;

  test('are continued once from each message', async () => {
    const { post } = await serve(scriptedModel(['One.', 'Two.', 'Three.']));
    const first = await idOf(await post(create));
    const second = await idOf(await post(after(first)));
    expect(await codeOf(await post(after(first)))).toEqual([400, 'thread_already_continued']);
    expect((await post(after(second))).status).toBe(200);
  });

  test('are continued by one of two requests at the same time', async () => {
    const asked = Promise.withResolvers<void>();
    const told = Promise.withResolvers<string>();
    const model = scriptedModel(['One.', () => (asked.resolve(), told.promise)]);
    const { post } = await serve(model);
    const first = await idOf(await post(create));
    const second = post(after(first));
    await asked.promise;
    expect(await codeOf(await post(after(first)))).toEqual([400, 'thread_continue_in_flight']);
    told.resolve('Two.');
    expect((await second).status).toBe(200);
  });

  test('can be continued again after a request that failed', async () => {
    const { post } = await serve(scriptedModel(['One.', overloaded, 'Two.']));
    const first = await idOf(await post(create));
    expect((await post(after(first))).status).toBe(529);
    expect((await post(after(first))).status).toBe(200);
  });

  test.each<[string, (first: string) => unknown]>([
    ['an unknown message', () => `msg_${'0'.repeat(32)}`],
    ['what is not a message', () => 'resp_1'],
  ])('cannot be continued from %s', async (_, previous) => {
    const { post } = await serve(scriptedModel(['One.']));
    const first = await idOf(await post(create));
    expect(await codeOf(await post(after(previous(first))))).toEqual([404, 'thread_not_found']);
  });

  test('cannot be continued from a message without one, or that failed', async () => {
    const { post } = await serve(scriptedModel(['One.', overloaded]));
    const plain = await idOf(await post(GO));
    expect(await codeOf(await post(after(plain)))).toEqual([404, 'thread_not_found']);
    await post(create);
  });

  test('have the system prompt and the tools that they were created with', async () => {
    const { post } = await serve(scriptedModel(['One.', 'Two.']));
    const first = await idOf(await post({ ...create, system: 'A' }));
    expect(await codeOf(await post(after(first, { system: 'B' })))).toEqual([400, 'thread_fingerprint_mismatch']);
    expect(await codeOf(await post(after(first, { tools: [] })))).toEqual([400, 'thread_fingerprint_mismatch']);
    expect((await post(after(first, { system: 'A', tools: [ask] }))).status).toBe(200);
  });

  test('keep instructions and changes of tools that were in the conversation', async () => {
    const model = scriptedModel(['One.', 'Two.', 'Three.']);
    const { post } = await serve(model);
    const told = { role: 'system', content: 'Be kind.' };
    const definition = { name: 'tell', input_schema: {} };
    const change = { type: 'tool_addition', tool: { type: 'tool_definition', definition } };
    const changed = [...GO.messages, { role: 'system', content: [change] }];
    const first = await idOf(await post({ ...create, system: 'A', messages: [told, ...GO.messages] }));
    const second = await idOf(await post(after(first, { messages: changed })));
    await post(after(second, { tools: [ask], system: 'A' }));
    const { tools, instructions } = model.requests.at(-1)!;
    expect([tools.map(({ name }) => name), instructions]).toEqual([['ask', 'tell'], 'A\n\nBe kind.']);
  });

  test('need the results of open calls, by their ids', async () => {
    const { post } = await serve(scriptedModel([{ calls: [{ name: 'ask' }] }, 'Two.']));
    const message = (await (await post(create)).json()) as { id: string; content: { id: string }[] };
    expect(await codeOf(await post(after(message.id)))).toEqual([400, 'missing_tool_result']);
    const content = [{ type: 'tool_result', tool_use_id: message.content[0]!.id, content: 'x' }];
    expect((await post(after(message.id, { messages: [{ role: 'user', content }] }))).status).toBe(200);
  });
});

describe('a request of Claude Code', () => {
  test('is answered with one event after the other, and its run belongs to its session', async () => {
    const model = scriptedModel([{ text: 'I run it.', calls: [{ name: 'Bash', arguments: { command: 'ls' } }] }]);
    const { post, url } = await serve(model, {
      models: { default: 'main', models: new Map([['main', model]]), aliases: { '*': 'main' } },
    });
    const answer = await post(claudeRequest('claude-opus-4-8'), CLAUDE_HEADERS, '/v1/messages?beta=true');
    expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
    expect(answer.headers.get('request-id')).toBe(answer.headers.get('x-request-id'));
    expect(await eventsIn(answer)).toEqual([
      'message_start',
      'content_block_start',
      'content_block_stop',
      'content_block_start',
      'content_block_stop',
      'message_stop',
    ]);
    const { instructions, messages, tools, settings } = model.requests[0]!;
    expect(instructions).toMatch(/^You are a Claude agent/);
    expect(messages).toHaveLength(1);
    expect(tools).toHaveLength(2);
    expect(settings).toEqual({ reasoning: 'high', maxOutputTokens: 64_000 });
    const { data } = (await (await fetch(`${url}/v1/runs`)).json()) as { data: object[] };
    expect(data).toMatchObject([
      { status: 'paused', session: CLAUDE_HEADERS['x-claude-code-session-id'], title: 'Fix the typo in a.txt.' },
    ]);
  });

  test('HEAD / is answered', async () => {
    const { url } = await serve(scriptedModel([]));
    expect((await fetch(url, { method: 'HEAD' })).status).toBeLessThan(500);
  });
});

describe('errors', () => {
  const errorOf = async (answer: Response): Promise<Record<string, unknown>> =>
    (await answer.json()) as Record<string, unknown>;

  test('have the form of the API, with the id of the request', async () => {
    const { post } = await serve(scriptedModel([]));
    const answer = await post({ ...GO, max_tokens: 'many' });
    expect(answer.status).toBe(400);
    expect(await errorOf(answer)).toEqual({
      type: 'error',
      error: {
        type: 'invalid_request_error',
        message: "Invalid type for 'max_tokens': expected a number, but got a string instead.",
        details: { error_code: 'invalid_type', param: 'max_tokens' },
      },
      request_id: answer.headers.get('request-id'),
    });
  });

  test('have it where this server has nothing', async () => {
    const { client } = await serve(scriptedModel([]));
    const error: unknown = await client.messages.batches.list().catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ status: 404, type: 'not_found_error', requestID: expect.stringMatching(/^req_/) });
  });

  test('have it for a method that does not exist', async () => {
    const { url } = await serve(scriptedModel([]));
    const response = await fetch(`${url}/v1/messages`);
    expect(response.status).toBe(405);
    expect(response.headers.get('allow')).toContain('POST');
    expect(await response.json()).toMatchObject({ type: 'error', error: { type: 'invalid_request_error' } });
  });

  test('an unknown model is a 404 that says how to map its name', async () => {
    const { post } = await serve(scriptedModel([]));
    for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
      const answer = await post({ ...GO, model: 'claude-opus-4-8' }, {}, path);
      expect(answer.status).toBe(404);
      expect(await errorOf(answer)).toMatchObject({
        error: {
          type: 'not_found_error',
          message:
            'model: claude-opus-4-8. This server has no model of this name. Use one of main, or map the name in its configuration: "claude-opus-4-8" = "main" under [server.model_aliases].',
        },
      });
    }
  });

  test.each<[ScriptStep, number, string, RegExp]>([
    [overloaded, 529, 'overloaded_error', /Busy/],
    [
      { type: 'failure', error: { code: 'overloaded', message: 'Down.', retryable: true, status: 500 } },
      503,
      'api_error',
      /Down/,
    ],
    [
      { type: 'failure', error: { code: 'rate-limit', message: 'Slow.', retryable: true, retryAfterMs: 2_000 } },
      429,
      'rate_limit_error',
      /Slow/,
    ],
    [
      { type: 'failure', error: { code: 'context-length', message: 'Too much.', retryable: false } },
      400,
      'invalid_request_error',
      /^prompt is too long: /,
    ],
    [{ type: 'failure', error: { code: 'timeout', message: 'x', retryable: true } }, 504, 'timeout_error', /too long/],
    [
      { type: 'failure', error: { code: 'network', message: 'x', retryable: true } },
      502,
      'api_error',
      /cannot be reached/,
    ],
  ])('of the model have a status, also of a stream that has not begun: %j', async (step, status, type, message) => {
    const { post } = await serve(scriptedModel([step, step]));
    for (const stream of [true, false]) {
      const answer = await post({ ...GO, stream });
      expect([answer.status, answer.headers.get('content-type')]).toEqual([status, 'application/json']);
      expect(await errorOf(answer)).toMatchObject({ error: { type, message: expect.stringMatching(message) } });
      if (status === 429) expect(answer.headers.get('retry-after')).toBe('2');
    }
  });

  test('of the model are an event after the first block', async () => {
    const { client, post } = await serve(
      scriptedModel([{ calls: [{ name: 'look' }] }, overloaded, { calls: [{ name: 'look' }] }, overloaded]),
      LOOKING,
    );
    const answer = await post({ ...GO, stream: true });
    expect((await eventsIn(answer)).at(-1)).toBe('error');
    await expect(client.beta.messages.stream(GO).finalMessage()).rejects.toMatchObject({ type: 'overloaded_error' });
  });

  test('of keys: 401, 403 and 429, with both headers', async () => {
    const model = scriptedModel(['One.', 'Two.']);
    const { post } = await serve(model, {
      keys: [
        { name: 'ann', hash: hashKey('right'), requestsPerMinute: 3 },
        { name: 'bob', hash: hashKey('other'), scopes: ['runs:read'] },
      ],
    });
    const statuses: unknown[] = [];
    const requests = [
      { 'x-api-key': 'right' },
      { authorization: 'Bearer right' },
      { 'x-api-key': 'wrong' },
      {},
      { 'x-api-key': 'other' },
      { 'x-api-key': 'right', x: '1' },
      { 'x-api-key': 'right' },
    ];
    for (const headers of requests) {
      const answer = await post({ ...GO, ...('x' in headers && { model: 'x' }) }, headers as Record<string, string>);
      const { type, error } = (await errorOf(answer)) as { type: string; error?: { type: string } };
      statuses.push([answer.status, error?.type ?? type]);
    }
    expect(statuses).toEqual([
      [200, 'message'],
      [200, 'message'],
      [401, 'authentication_error'],
      [401, 'authentication_error'],
      [403, 'permission_error'],
      [404, 'not_found_error'],
      [429, 'rate_limit_error'],
    ]);
  });

  test('a body that is too large is a 413', async () => {
    const { post } = await serve(scriptedModel([]), { maxBodyBytes: 100 });
    const answer = await post({ ...GO, system: 'x'.repeat(100) });
    expect([answer.status, await errorOf(answer)]).toMatchObject([413, { error: { type: 'request_too_large' } }]);
  });

  test.each<[string, object, RegExp]>([
    [
      'a tool of a type that nobody runs',
      { tools: [{ type: 'bash_20250124', name: 'bash' }] },
      /tools of type "bash"\. Declare a tool of your own/,
    ],
    ['an unknown MCP server', { tools: [{ type: 'mcp_toolset', mcp_server_name: 'x' }] }, /no MCP server "x"/],
    [
      'a server that cannot be reached',
      { mcp_servers: [{ type: 'url', name: 'x', url: 'http://127.0.0.1:1/mcp' }] },
      /MCP server 'x' does not list its tools/,
    ],
    ['a choice of a tool that is not declared', { tool_choice: { type: 'tool', name: 'x' } }, /names "x"/],
  ])('%s is a 400', async (_, more, message) => {
    const { post } = await serve(scriptedModel([]));
    const answer = await post({ ...GO, ...more });
    expect([answer.status, await errorOf(answer)]).toMatchObject([
      400,
      { error: { message: expect.stringMatching(message) } },
    ]);
  });

  test('Claude Code may add a search tool that the server does not have', async () => {
    const model = scriptedModel(['No results.']);
    const { post } = await serve(model);
    const tools = [{ type: 'web_search_20250305', name: 'web_search', max_uses: 8 }];
    const tool_choice = { type: 'tool', name: 'web_search' };
    expect((await post({ ...GO, tools, tool_choice })).status).toBe(200);
    expect(model.requests[0]).toMatchObject({ tools: [], toolChoice: 'auto' });
  });
});

describe('a key', () => {
  test.each([[true], [false]])('gets the same message again (streamed: %s)', async (stream) => {
    const model = scriptedModel([{ text: 'One.', calls: [{ name: 'look' }] }, { calls: [{ name: 'ask' }] }]);
    const { client, post } = await serve(model, LOOKING);
    const body = { ...GO, tools: [ask], stream };
    const headers = { 'idempotency-key': 'k' };
    const messageIn = async (): Promise<unknown> => {
      if (!stream) return client.beta.messages.create(body, { headers });
      return client.beta.messages.stream(body as typeof GO, { headers }).finalMessage();
    };
    const first = await messageIn();
    expect(await messageIn()).toEqual(first);
    const other = await post({ ...body, max_tokens: 2 }, headers);
    expect([other.status, await other.json()]).toMatchObject([
      409,
      { error: { details: { error_code: 'idempotency_key_reused' } } },
    ]);
  });

  test('is not taken by a request that did nothing', async () => {
    const { post } = await serve(scriptedModel([overloaded, 'One.']));
    const headers = { 'idempotency-key': 'k' };
    expect((await post(GO, headers)).status).toBe(529);
    expect((await post(GO, headers)).status).toBe(200);
  });
});

test.each([[true], [false]])('cancels the run if the client disconnects (streamed: %s)', async (stream) => {
  const asked = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<void>();
  const model = scriptedModel([
    async (_, signal) => {
      signal.addEventListener('abort', () => ended.resolve());
      asked.resolve();
      await ended.promise;
      return 'Too late.';
    },
  ]);
  const { client } = await serve(model);
  const disconnected = new AbortController();
  const answer = client.beta.messages.create({ ...GO, stream }, { signal: disconnected.signal }).then(
    () => undefined,
    () => undefined,
  );
  await asked.promise;
  disconnected.abort();
  await answer;
  await ended.promise;
});

test('begins a stream after the time of a heartbeat, for proxies that close silent connections', async () => {
  const told = Promise.withResolvers<string>();
  const { post } = await serve(scriptedModel([() => told.promise]), { heartbeatMs: 1 });
  const answer = await post({ ...GO, stream: true });
  expect(answer.status).toBe(200);
  told.resolve('Late.');
  expect(await eventsIn(answer)).toContain('message_stop');
});

test('tools with long names keep them', async () => {
  const name = 'mcp__server__'.padEnd(100, 'x');
  const model = scriptedModel([({ tools }) => ({ calls: [{ name: tools[0]!.name, arguments: {} }] }), 'Done.']);
  const { client } = await serve(model);
  const body = { ...GO, tools: [{ ...ask, name }], tool_choice: { type: 'tool' as const, name } };
  const { content } = await client.beta.messages.stream(body).finalMessage();
  expect(content).toMatchObject([{ type: 'tool_use', name }]);
  const messages = [
    ...GO.messages,
    { role: 'assistant' as const, content: content as Anthropic.Beta.BetaContentBlockParam[] },
    {
      role: 'user' as const,
      content: [{ type: 'tool_result' as const, tool_use_id: (content[0] as { id: string }).id }],
    },
  ];
  await client.beta.messages.create({ ...body, messages, tool_choice: { type: 'auto' } });
  const [called] = model.requests[1]!.messages[1]!.content;
  expect(called).toMatchObject({ name: model.requests[1]!.tools[0]!.name });
});
