import {
  diffRuns,
  memoryJournal,
  runLoop,
  tool,
  userText,
  walkJournal,
  type AssistantPart,
  type LoopOptions,
  type Message,
  type Model,
  type ModelReply,
  type ModelRequest,
  type ToolResult,
} from '@treadle/core';
import { shownEntries } from '@treadle/core/describe';
import {
  anthropic,
  fromAiSdk,
  google,
  mistral,
  ollama,
  openaiChat,
  openaiResponses,
  openRouter,
} from '@treadle/models';
import { mcpServer, mcpTools } from '@treadle/tools/mcp';
import { afterAll, describe, expect, test } from 'vitest';
import { scriptedServer } from '../mcp/scripted-server.ts';
import { expectLinear, TEXT, times, workOfPackages } from './growth.ts';

/* The work of models, of journals and of the MCP client for what others send. */

const counter = workOfPackages();
afterAll(() => counter[Symbol.dispose]());

const signal = new AbortController().signal;

function requestWith(messages: readonly Message[]): ModelRequest {
  return { messages, tools: [], toolChoice: 'auto', parallel: true, settings: {}, key: 'k' };
}

// ── Requests to providers ────────────────────────────────────────────────────────────────────────────────────────────

const textPart = () => ({ type: 'text', text: TEXT }) as const;
const image = () => ({ type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'aaaa' } }) as const;
const call = (n: number): AssistantPart => ({ type: 'tool-call', id: `call_${n}`, name: 'f', arguments: '{"a":1}' });
const result = (n: number, content: ToolResult['content'] = [textPart()]): ToolResult => {
  return { type: 'tool-result', callId: `call_${n}`, name: 'f', content, isError: false };
};
const replied = (...content: AssistantPart[]): Message => ({ role: 'assistant', content });
const results = (...content: ToolResult[]): Message => ({ role: 'tool', content });

const HISTORIES: ((n: number) => Message[])[] = [
  (n) => times(n, () => userText(TEXT)),
  (n) => times(n, () => [userText(TEXT), replied(textPart())]).flat(),
  (n) => [{ role: 'user', content: times(n, textPart) }],
  (n) => [{ role: 'user', content: times(n, image) }],
  (n) => [userText('x'), replied(...times(n, textPart)), userText('y')],
  (n) => [
    userText('x'),
    replied(...times(n, () => ({ type: 'reasoning', text: TEXT }) as const), call(0)),
    results(result(0)),
  ],
  (n) => [userText('x'), replied(...times(n, call)), results(...times(n, (index) => result(index)).reverse())],
  (n) => [userText('x'), replied(...times(n, () => call(0))), results(...times(n, () => result(0)))],
  (n) => [userText('x'), ...times(n, (index) => [replied(call(index)), results(result(index))]).flat()],
  (n) => [userText('x'), replied(call(0)), results(result(0, times(n, textPart)))],
  (n) => [userText('x'), replied(call(0)), results(result(0, times(n, image)))],
];

// ── Replies of providers ─────────────────────────────────────────────────────────────────────────────────────────────

const frame = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const named = (type: string, rest: object): string => `event: ${type}\n${frame({ type, ...rest })}`;

const chunk = (delta: object, finish: string | null = null): string =>
  frame({ model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] });
const chat = (...chunks: string[]): string => `${chunks.join('')}${chunk({}, 'stop')}data: [DONE]\n\n`;
const chatCall = (piece: object): string => chunk({ tool_calls: [piece] });
const called = (json: string) => ({ function: { name: 'f', arguments: json } });

const CHAT_STREAMS: ((n: number) => string)[] = [
  (n) => chat(...times(n, () => chunk({ content: TEXT }))),
  (n) => chat(...times(n, () => chunk({ reasoning_content: TEXT }))),
  (n) => chat(chunk({ content: times(n, textPart) })),
  (n) => chat(...times(n, (index) => chatCall({ index, id: `c${index}`, ...called('{}') }))),
  (n) => chat(...times(n, (index) => chatCall({ id: `c${index}`, ...called('{}') }))),
  (n) => chat(chunk({ tool_calls: times(n, (index) => ({ id: `c${index}`, ...called('{}') })) })),
  (n) => chat(...times(n, () => chatCall({ index: 0, ...called('{}') }))),
  // None of them ends the arguments, though each looks as if it did.
  (n) => chat(...times(n, () => chatCall({ index: 0, ...called(`{"${TEXT}":{}`) }))),
  (n) => chat(...times(n, () => chatCall({ index: 0, ...called(TEXT) }))),
  (n) =>
    chat(...times(n, () => chunk({ reasoning_details: [{ type: 'reasoning.text', text: TEXT, signature: 's' }] }))),
  (n) => `data: {"choices":[\n${'data:\n'.repeat(n)}data: {"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n`,
  (n) => `${'\n'.repeat(n)}${': keep-alive\n\n'.repeat(n)}${chat(chunk({ content: 'x' }))}`,
];

const response = (...events: string[]): string =>
  `${events.join('')}${named('response.completed', { response: { status: 'completed', output: [] } })}`;
const added = (index: number, item: object): string =>
  named('response.output_item.added', { output_index: index, item: { ...item, id: `i${index}` } });
const delta = (type: string, rest: object = {}): string =>
  named(`response.${type}.delta`, { output_index: 0, delta: TEXT, ...rest });

const RESPONSE_STREAMS: ((n: number) => string)[] = [
  (n) => response(added(0, { type: 'message' }), ...times(n, () => delta('output_text'))),
  (n) => response(...times(n, (index) => delta('reasoning_summary_text', { summary_index: index }))),
  (n) => response(...times(n, (index) => added(index, { type: 'function_call', call_id: `c${index}`, name: 'f' }))),
  (n) => response(added(0, { type: 'function_call', name: 'f' }), ...times(n, () => delta('function_call_arguments'))),
];

const block = (index: number, content_block: object, ...deltas: object[]): string =>
  [
    named('content_block_start', { index, content_block }),
    ...deltas.map((one) => named('content_block_delta', { index, delta: one })),
  ].join('');
const message = (...blocks: string[]): string =>
  `${blocks.join('')}${named('message_delta', { delta: { stop_reason: 'end_turn' } })}${named('message_stop', {})}`;
const toolUse = (n: number) => ({ type: 'tool_use', id: `t${n}`, name: 'f', input: {} });

const ANTHROPIC_STREAMS: ((n: number) => string)[] = [
  (n) => message(block(0, { type: 'text' }, ...times(n, () => ({ type: 'text_delta', text: TEXT })))),
  (n) => message(...times(n, (index) => block(index, { type: 'text' }, { type: 'text_delta', text: TEXT }))),
  (n) => message(block(0, { type: 'thinking' }, ...times(n, () => ({ type: 'thinking_delta', thinking: TEXT })))),
  (n) => message(...times(n, (index) => block(index, toolUse(index)))),
  (n) => message(block(0, toolUse(0), ...times(n, () => ({ type: 'input_json_delta', partial_json: TEXT })))),
];

const candidates = (...parts: object[]): string =>
  [
    ...parts.map((part) => frame({ candidates: [{ content: { parts: [part] } }] })),
    frame({ candidates: [{ finishReason: 'STOP' }] }),
  ].join('');

const GOOGLE_STREAMS: ((n: number) => string)[] = [
  (n) => candidates(...times(n, () => ({ text: TEXT }))),
  (n) => candidates(...times(n, (index) => ({ text: TEXT, thoughtSignature: `s${index}` }))),
  (n) => candidates(...times(n, () => ({ text: TEXT, thought: true }))),
  (n) => candidates(...times(n, (index) => ({ functionCall: { id: `c${index}`, name: 'f', args: {} } }))),
];

const lines = (...messages: object[]): string =>
  [...messages.map((one) => ({ message: one, done: false })), { done: true, done_reason: 'stop' }]
    .map((one) => `${JSON.stringify(one)}\n`)
    .join('');

const OLLAMA_STREAMS: ((n: number) => string)[] = [
  (n) => lines(...times(n, () => ({ content: TEXT }))),
  (n) => lines(...times(n, () => ({ thinking: TEXT }))),
  (n) => lines(...times(n, () => ({ tool_calls: [called('{}')] }))),
];

/** Small chunks, which end anywhere. */
function inChunks(text: string): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at < bytes.length) controller.enqueue(bytes.slice(at, (at += 97)));
      else controller.close();
    },
  });
}

interface HostOptions {
  readonly model: string;
  readonly apiKey: string;
  readonly baseURL: string;
  readonly maxRetries: number;
  readonly fetch: typeof fetch;
}

const PROTOCOLS: [string, (options: HostOptions) => Model, ((n: number) => string)[]][] = [
  ['openaiChat', openaiChat, CHAT_STREAMS],
  ['openRouter', openRouter, CHAT_STREAMS],
  ['mistral', mistral, []],
  ['openaiResponses', openaiResponses, RESPONSE_STREAMS],
  ['anthropic', anthropic, ANTHROPIC_STREAMS],
  ['google', google, GOOGLE_STREAMS],
  ['ollama', ollama, OLLAMA_STREAMS],
];

describe('a model takes at most 2.5 times the work', () => {
  const options = { model: 'm', apiKey: 'k', baseURL: 'http://host.test/v1', maxRetries: 0 };

  test.each(PROTOCOLS)('to write twice the history: %s', async (_, modelOf) => {
    let written = 0;
    const fetch = (async (_url: unknown, { body }: RequestInit) => {
      written += String(body).length;
      return new Response('{}', { status: 400 });
    }) as typeof globalThis.fetch;
    const model = modelOf({ ...options, fetch });
    await expectLinear(counter, async (size) => {
      for (const history of HISTORIES) await model.reply(requestWith(history(size)), () => {}, signal);
    });
    expect(written).toBeGreaterThan(HISTORIES.length * 100 * TEXT.length);
  });

  test.each(PROTOCOLS.filter(([, , streams]) => streams.length > 0))(
    'to read twice the reply: %s',
    async (name, modelOf, streams) => {
      let text = '';
      const type = name === 'ollama' ? 'application/x-ndjson' : 'text/event-stream';
      const fetch = (async () =>
        new Response(inChunks(text), { headers: { 'content-type': type } })) as typeof globalThis.fetch;
      const model = modelOf({ ...options, fetch });
      await expectLinear(counter, async (size) => {
        for (const stream of streams) {
          text = stream(size);
          expect(await model.reply(requestWith([userText('x')]), () => {}, signal)).toMatchObject({ type: 'reply' });
        }
      });
    },
  );

  test('to write a request and to read the reply of the AI SDK', async () => {
    let parts: object[] = [];
    const model = fromAiSdk({
      specificationVersion: 'v3',
      provider: 'p',
      modelId: 'm',
      doGenerate: async () => ({}),
      doStream: async () => ({ stream: ReadableStream.from(parts) }),
    });
    const finish = { type: 'finish', finishReason: { unified: 'stop', raw: 'stop' }, usage: {} };
    await expectLinear(counter, async (size) => {
      for (const history of HISTORIES) {
        const texts = times(size, () => ({ type: 'text-delta', id: 't', delta: TEXT }));
        const calls = times(size, (n) => ({ type: 'tool-call', toolCallId: `c${n}`, toolName: 'f', input: '{}' }));
        parts = [{ type: 'text-start', id: 't' }, ...texts, { type: 'text-end', id: 't' }, ...calls, finish];
        const reply = await model.reply(requestWith(history(size)), () => {}, signal);
        expect(reply).toMatchObject({ type: 'reply' });
      }
    });
  });
});

// ── Journals ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function replyWith(...content: AssistantPart[]): ModelReply {
  const finish = content.some(({ type }) => type === 'tool-call') ? 'tool-calls' : 'stop';
  return { type: 'reply', content, finish, usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' };
}

const DONE = replyWith({ type: 'text', text: 'ok' });
const own = (name: string, n: number): AssistantPart => {
  return { type: 'tool-call', id: `c${n}`, name, arguments: `{"a":${n}}` };
};
const deny = {
  judge: (calls: readonly unknown[]) => calls.map(() => ({ type: 'deny', reason: 'no', rule: 'r' }) as const),
};

/**
 * The replies and options of a run. The calls of a reply are denied or refused: at most 128 are executed, so what a step does for
 * all of them is bounded.
 */
const RUNS: ((n: number) => [ModelReply[], Partial<LoopOptions>?])[] = [
  (n) => [[...times(n, (index) => replyWith(textPart(), own('f', index))), DONE]],
  (n) => [[replyWith(...times(n, (index) => own('unknown', index))), DONE]],
  (n) => [[replyWith(...times(n, (index) => own('f', index))), DONE], { policy: deny }],
  (n) => [[replyWith(...times(n, textPart))]],
  (n) => [
    [DONE],
    {
      input: [
        ...times(n, (index) => [userText(TEXT), replied(call(index)), results(result(index))]).flat(),
        userText('x'),
      ],
    },
  ],
];

test('a run of twice the length takes at most 2.5 times the work, also to read it again', async () => {
  const f = tool({ name: 'f', description: '', effect: 'pure', touches: () => [], execute: () => 'noon' });
  let started = 0;
  await expectLinear(counter, async (size) => {
    for (const make of RUNS) {
      const [replies, options] = make(size);
      const journal = memoryJournal();
      const runId = `r${started++}`;
      const model: Model = { id: 'm', reply: async () => replies.shift()! };
      const run = { runId, model, tools: [f], input: 'go', maxTurns: 1_000, journal, ...options };
      expect((await runLoop(run)).outcome).toEqual({ type: 'completed' });
      const entries = await journal.read(runId);
      expect(walkJournal(entries, () => {})).toMatchObject({ type: 'replayed' });
      shownEntries(entries);
      diffRuns(entries, entries);
    }
  });
});

// ── MCP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

test('twice the tools and twice the result of an MCP server take at most 2.5 times the work', async () => {
  await expectLinear(counter, async (size) => {
    const listed = times(size, (n) => ({ name: `t${n}`, description: TEXT, inputSchema: { type: 'object' } }));
    const { fetch } = scriptedServer({
      'tools/list': () => ({ tools: listed }),
      'tools/call': () => ({ content: times(size, textPart) }),
    });
    const server = mcpServer({ name: 's', url: 'http://mcp.test/', fetch });
    const tools = await mcpTools(server);
    expect(tools).toHaveLength(size);
    const replies = [replyWith(own('t0', 0)), DONE];
    const model: Model = { id: 'm', reply: async () => replies.shift()! };
    expect((await runLoop({ model, tools, input: 'go' })).outcome).toEqual({ type: 'completed' });
    await server.close();
  });
});
