import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { createOpenAI } from '@ai-sdk/openai';
import { tool, type Model } from '@treadle/core';
import { anthropic, openaiChat, openaiResponses } from '@treadle/models';
import { generateText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mcpServer } from '@treadle/tools/mcp';
import { eventTypesIn, startInProcess, type InProcessServer } from './support/in-process.ts';
import { openSocket, type SocketEvent } from './support/socket-client.ts';

/**
 * Walks the tables of docs/server-support.md. Each row of a table about requests has a probe: requests to a server, with
 * what the provider must get and what the client must get. Names of events, items, reasons and error codes are compared
 * with the source.
 */

const root = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(root, 'docs/server-support.md'), 'utf8');
const source = (pattern: string): string =>
  globSync(`packages/server/src/${pattern}`, { cwd: root })
    .filter((file) => !file.endsWith('.test.ts'))
    .map((file) => readFileSync(path.join(root, file), 'utf8'))
    .join('\n');

// ── The page ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The text from a heading up to the next one of any level. */
function section(heading: string): string {
  const from = page.indexOf(`\n${heading}\n`);
  if (from === -1) throw new Error(`docs/server-support.md has no section ${heading}.`);
  const text = page.slice(from + heading.length + 2);
  return text.slice(0, /^#+ /m.exec(text)?.index);
}

/** The rows of the table with this name of the first column, as [first cell, second cell]. */
function rowsOf(heading: string, column: string): [string, string][] {
  const lines = section(heading).split('\n');
  const at = lines.findIndex((line) => cellsOf(line)[0] === column);
  if (at === -1) throw new Error(`${heading} has no table with the column ${column}.`);
  const table = lines.slice(at + 2);
  const end = table.findIndex((line) => !line.startsWith('|'));
  return table.slice(0, end === -1 ? undefined : end).map((line) => cellsOf(line) as [string, string]);
}

function cellsOf(line: string): string[] {
  return line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
}

/** The names in backticks. */
function namesIn(text: string): string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);
}

// ── The server ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** What the provider got, oldest first, and the answers to the next requests; without one it says "Hello.". */
const sent: Record<string, unknown>[] = [];
const answers: Response[] = [];

const TEXT = {
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'Hello.', annotations: [] }],
};
const responseWith = (...output: object[]): Response =>
  Response.json({ status: 'completed', model: 'gpt-x', output, usage: { input_tokens: 1, output_tokens: 1 } });
const callOf = (name: string, args: object): object => ({
  type: 'function_call',
  call_id: `call_${name}`,
  name,
  arguments: JSON.stringify(args),
});

const provider: typeof fetch = async (url, init) => {
  sent.push(JSON.parse(Buffer.from(init!.body as Uint8Array).toString()) as Record<string, unknown>);
  const scripted = answers.shift();
  if (scripted) return scripted;
  if (String(url).endsWith('/responses')) return responseWith(TEXT);
  if (String(url).endsWith('/messages')) {
    return Response.json({ content: [{ type: 'text', text: 'Hello.' }], stop_reason: 'end_turn', usage: {} });
  }
  return Response.json({ choices: [{ index: 0, message: { content: 'Hello.' }, finish_reason: 'stop' }] });
};

const options = { apiKey: 'k', stream: false, fetch: provider, maxRetries: 0 };
const custom: Model = {
  id: 'custom',
  reply: async () => ({
    type: 'reply',
    content: [{ type: 'text', text: 'Hello.' }],
    finish: 'stop',
    usage: { inputTokens: 1, outputTokens: 1 },
    model: 'custom',
  }),
};
const models = new Map<string, Model>([
  ['responses', openaiResponses({ ...options, model: 'gpt-x' })],
  ['chat', openaiChat({ ...options, model: 'gpt-x' })],
  ['claude', anthropic({ ...options, model: 'claude-sonnet-4-6' })],
  ['custom', custom],
]);
const add = tool({
  name: 'add',
  description: 'Adds two numbers',
  input: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } } },
  touches: () => [],
  execute: ({ a, b }) => String(Number(a) + Number(b)),
});

let server: InProcessServer;
beforeAll(async () => {
  const configured = mcpServer({ name: 'configured', url: 'http://127.0.0.1:1/' });
  server = await startInProcess(custom, {
    models: { default: 'responses', models },
    tools: [add],
    mcpServers: { servers: [configured] },
  });
});
afterAll(() => server[Symbol.asyncDispose]());

interface Expected {
  /** Default 200. */
  readonly status?: number;
  /** The code of the error. */
  readonly code?: string;
  /** Fields of the last request to the provider. */
  readonly sent?: object;
  /** Names of fields that the provider must not get. */
  readonly notSent?: readonly string[];
  /** Fields of the answer. */
  readonly answer?: object;
}

/** A request and what comes of it, or a function that checks more than one request. */
type Case = readonly [request: object, expected: Expected] | (() => Promise<void>);
type Probes = Readonly<Record<string, Case | readonly Case[]>>;

const isCase = (probe: Case | readonly Case[]): probe is Case =>
  typeof probe === 'function' || (!Array.isArray(probe[0]) && typeof probe[0] !== 'function');

async function runProbe(endpoint: string, base: object, probe: Case | readonly Case[]): Promise<void> {
  for (const one of isCase(probe) ? [probe] : probe) {
    if (typeof one === 'function') await one();
    else await ask(endpoint, { ...base, ...one[0] }, one[1]);
    expect(answers.splice(0), 'answers of the provider that were not used').toEqual([]);
  }
}

// oxlint-disable-next-line typescript/no-explicit-any
async function ask(endpoint: string, request: object, expected: Expected = {}): Promise<any> {
  sent.length = 0;
  const { status, body } = await server.send('POST', endpoint, request);
  const code = body.error?.code ?? body.error?.details?.error_code;
  expect([status, code], JSON.stringify(body)).toEqual([expected.status ?? 200, expected.code]);
  if (expected.sent) expect(sent.at(-1)).toMatchObject(expected.sent);
  for (const name of expected.notSent ?? []) expect(sent.at(-1)).not.toHaveProperty(name);
  if (expected.answer) expect(body).toMatchObject(expected.answer);
  return body;
}

const respond = (request: object, expected?: Expected) => ask('/v1/responses', { input: 'Hi', ...request }, expected);
const compact = (request: object, expected?: Expected) =>
  ask('/v1/responses/compact', { model: 'responses', input: [{ role: 'user', content: 'Hi' }], ...request }, expected);
const complete = (request: object, expected?: Expected) =>
  ask('/v1/chat/completions', { messages: [{ role: 'user', content: 'Hi' }], ...request }, expected);

/** Sends a request that does not reach the provider. */
// oxlint-disable-next-line typescript/no-explicit-any
async function send(method: string, path: string, body?: object, status = 200): Promise<any> {
  const answer = await server.send(method, path, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(status);
  return answer.body;
}
const post = (path: string, body: object, status?: number) => send('POST', path, body, status);

async function streamed(endpoint: string, request: object): Promise<string> {
  const answer = await fetch(server.url + endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...request, stream: true }),
  });
  expect(answer.headers.get('content-type')).toContain('text/event-stream');
  return answer.text();
}

/** The events of a response, until it has ended. */
async function eventsOf(response: string, query = ''): Promise<string> {
  const answer = await fetch(`${server.url}/v1/responses/${response}?stream=true${query}`);
  expect(answer.headers.get('content-type')).toContain('text/event-stream');
  return answer.text();
}

const REFUSED: Expected = { status: 400, code: 'unsupported_parameter' };
/** Sent under its own name, and echoed. */
const passed = (field: object): Expected => ({ sent: field, answer: field });

const FUNCTION = { type: 'function', name: 'look', parameters: { type: 'object' } };
const DEFERRED = { ...FUNCTION, defer_loading: true };
const SERVER_TOOLS = { type: 'mcp', server_label: 'treadle' };
const SCHEMA = { type: 'object', properties: {}, additionalProperties: false };
const TOO_LONG = { error: { code: 'context_length_exceeded', message: 'too long' } };
const tooLong = (): Response => Response.json(TOO_LONG, { status: 400 });
const LONG = [
  { role: 'user', content: 'one' },
  { role: 'assistant', content: 'two' },
  { role: 'user', content: 'three' },
];

// ── Create a response ────────────────────────────────────────────────────────────────────────────────────────────────

const RESPONSE_FIELDS: Probes = {
  model: [
    [{ model: 'custom' }, { answer: { model: 'custom' } }],
    [{}, { answer: { model: 'responses' } }],
    [{ model: 'none' }, { status: 404, code: 'model_not_found' }],
  ],
  input: [
    [{ input: 'Hey' }, { sent: { input: [{ role: 'user', content: 'Hey' }] } }],
    [{ input: [] }, { status: 400, code: 'empty_input' }],
  ],
  instructions: [
    [{ instructions: 'Be brief.' }, passed({ instructions: 'Be brief.' })],
    [
      {
        instructions: [
          { role: 'system', content: 'a' },
          { role: 'system', content: 'b' },
        ],
      },
      passed({ instructions: 'a\n\nb' }),
    ],
  ],
  previous_response_id: [
    async () => {
      const { id } = await respond({});
      const expected = {
        sent: { input: [{ role: 'user' }, { role: 'assistant' }, { role: 'user', content: 'More' }] },
      };
      await respond({ previous_response_id: id, input: 'More' }, expected);
      await respond({ previous_response_id: id, input: [] });
    },
    [{ previous_response_id: 'resp_0' }, { status: 400, code: 'previous_response_not_found' }],
  ],
  store: async () => {
    for (const store of [true, false]) {
      const { id } = await respond({ store }, { answer: { store } });
      expect((await server.get(id))['object'] === 'response').toBe(store);
    }
  },
  stream: async () => {
    expect(eventTypesIn(await streamed('/v1/responses', { input: 'Hi' })).at(-1)).toBe('response.completed');
  },
  tools: [
    [{ tools: [FUNCTION] }, { sent: { tools: [{ type: 'function', name: 'look' }] } }],
    [
      { tools: Array.from({ length: 257 }, (_, n) => ({ ...FUNCTION, name: `look${n}` })) },
      { status: 400, code: 'array_above_max_length' },
    ],
  ],
  tool_choice: [{ tools: [FUNCTION], tool_choice: 'none' }, passed({ tool_choice: 'none' })],
  parallel_tool_calls: [{ tools: [FUNCTION], parallel_tool_calls: false }, passed({ parallel_tool_calls: false })],
  max_tool_calls: async () => {
    answers.push(responseWith(callOf('add', { a: 1, b: 2 })), responseWith(callOf('add', { a: 3, b: 4 })));
    const { output } = await respond({ tools: [SERVER_TOOLS], max_tool_calls: 1 }, { answer: { max_tool_calls: 1 } });
    expect(output).toMatchObject([{ output: '3' }, { status: 'failed' }, { type: 'message' }]);
  },
  max_output_tokens: [
    [{ max_output_tokens: 16 }, passed({ max_output_tokens: 16 })],
    [{ max_output_tokens: 15 }, { status: 400, code: 'integer_below_min_value' }],
  ],
  temperature: [
    [{ temperature: 0.5 }, passed({ temperature: 0.5 })],
    [
      { temperature: 0.5, top_p: 1, model: 'claude' },
      { sent: { temperature: 0.5 }, notSent: ['top_p'] },
    ],
    [
      { temperature: 1, top_p: 0.5, model: 'claude' },
      { sent: { top_p: 0.5 }, notSent: ['temperature'] },
    ],
    [{ temperature: 1, reasoning: { effort: 'low' }, model: 'claude' }, { notSent: ['temperature'] }],
    [{ temperature: 0.5, top_p: 0.5, model: 'claude' }, REFUSED],
    [{ temperature: 1.5, model: 'claude' }, REFUSED],
    [{ temperature: 0.5, reasoning: { effort: 'low' }, model: 'claude' }, REFUSED],
  ],
  top_p: [
    [{ top_p: 0.5 }, passed({ top_p: 0.5 })],
    [{ top_p: 0.5, reasoning: { effort: 'low' }, model: 'claude' }, REFUSED],
  ],
  'reasoning.effort': [
    [{ reasoning: { effort: 'none' } }, passed({ reasoning: { effort: 'none' } })],
    [{ reasoning: { effort: 'max' } }, passed({ reasoning: { effort: 'max' } })],
    [{ reasoning: { effort: 'minimal' }, model: 'claude' }, { sent: { output_config: { effort: 'low' } } }],
  ],
  'reasoning.summary': [{ reasoning: { summary: 'auto' } }, { answer: { reasoning: { summary: 'auto' } } }],
  'reasoning.generate_summary': [
    { reasoning: { generate_summary: 'auto' } },
    { answer: { reasoning: { summary: 'auto' } } },
  ],
  'text.format': [
    [{ text: { format: { type: 'text' } } }, { answer: { text: { format: { type: 'text' } } } }],
    [{ text: { format: { type: 'json_object' } } }, { sent: { text: { format: { type: 'json_object' } } } }],
    () =>
      withAnswer('{}', async () => {
        const format = { type: 'json_schema', name: 'n', description: 'd', schema: SCHEMA, strict: true };
        await respond({ text: { format } }, passed({ text: { format } }));
      }),
  ],
  'text.verbosity': [
    [{ text: { verbosity: 'low' } }, passed({ text: { verbosity: 'low' } })],
    [{ text: { verbosity: 'low' }, model: 'claude' }, { notSent: ['text', 'verbosity'] }],
  ],
  client_metadata: async () => {
    await respond({ client_metadata: { session_id: 'a-session', other: 'x' } }, { notSent: ['client_metadata'] });
    const { data } = await send('GET', '/v1/runs?session=a-session');
    expect(data).toHaveLength(1);
  },
  context_management: [
    [
      { context_management: [{ type: 'compaction', compact_threshold: 999 }] },
      { status: 400, code: 'decimal_below_min_value' },
    ],
    async () => {
      const input = [{ role: 'user', content: 'copper '.repeat(1_000) }, LONG[1], LONG[2]];
      await respond({ input, context_management: [{ type: 'compaction', compact_threshold: 1_000 }] });
      expect(sent).toHaveLength(2);
      expect(JSON.stringify(sent[1])).toMatch(/^(?!.*copper).*Summary of the conversation.*Hello\..*three/);
    },
  ],
  truncation: [
    async () => {
      answers.push(tooLong());
      await respond({ input: LONG, truncation: 'auto' }, { sent: { input: [{ content: 'three' }] } });
    },
    async () => {
      answers.push(tooLong());
      await respond({ input: LONG, truncation: 'disabled' }, { status: 400, code: 'context_length_exceeded' });
    },
  ],
  include: [
    [{ include: ['web_search_call.action.sources', 'code_interpreter_call.outputs'] }, {}],
    [{ include: ['everything'] }, { status: 400, code: 'invalid_value' }],
    [{ include: ['message.output_text.logprobs'], model: 'claude' }, REFUSED],
    async () => {
      const item = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'secret' };
      answers.push(responseWith(item, TEXT), responseWith(item, TEXT));
      const { output } = await respond({ include: ['reasoning.encrypted_content'] });
      expect(output.map((one: object) => 'encrypted_content' in one)).toContain(true);
      expect((await respond({})).output.map((one: object) => 'encrypted_content' in one)).not.toContain(true);
    },
  ],
  metadata: [
    [{ metadata: { a: 'b' } }, { answer: { metadata: { a: 'b' } }, notSent: ['metadata'] }],
    [
      { metadata: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [n, 'x'])) },
      { status: 400, code: 'object_above_max_properties' },
    ],
  ],
  service_tier: [
    [{ service_tier: 'flex' }, passed({ service_tier: 'flex' })],
    [{ service_tier: 'auto' }, { sent: { service_tier: 'auto' }, answer: { service_tier: 'default' } }],
    [{ service_tier: 'flex', model: 'claude' }, REFUSED],
    [{ service_tier: 'auto', model: 'custom' }, {}],
    [{ service_tier: 'default', model: 'custom' }, {}],
  ],
  presence_penalty: penalty('presence_penalty'),
  frequency_penalty: penalty('frequency_penalty'),
  top_logprobs: [
    [{ top_logprobs: 2 }, passed({ top_logprobs: 2 })],
    [{ top_logprobs: 2, model: 'custom' }, REFUSED],
    [{ top_logprobs: 0, model: 'custom' }, { answer: { top_logprobs: 0 } }],
  ],
  user: [{ user: 'ann' }, { answer: { user: 'ann' } }],
  safety_identifier: [{ safety_identifier: 'ann' }, { answer: { safety_identifier: 'ann' } }],
  prompt_cache_key: [
    [{ prompt_cache_key: 'k' }, passed({ prompt_cache_key: 'k' })],
    [{ prompt_cache_key: 'k', model: 'claude' }, { notSent: ['prompt_cache_key'] }],
  ],
  background: [
    [{ background: false }, { answer: { background: false } }],
    [
      { background: true, store: false },
      { status: 400, code: 'invalid_value' },
    ],
    async () => {
      const { id, status } = await respond({ background: true });
      expect(status).toBe('queued');
      expect(await eventsOf(id, '&starting_after=1')).toMatch(
        /^id: 2\nevent: response.in_progress\n.*response.completed/s,
      );
    },
    async () => {
      // Its answer is stored while it is generated, so it is not repaired.
      const format = { type: 'json_schema', name: 'n', schema: SCHEMA, strict: true };
      const { id } = await respond({ background: true, text: { format } });
      expect(await eventsOf(id)).toContain('output_invalid');
      expect(sent).toHaveLength(1);
    },
  ],
  conversation: [
    async () => {
      const { id } = await post('/v1/conversations', { items: [USER] });
      const wanted = { sent: { input: [{ content: 'Hi\n\nAnd?' }] }, answer: { conversation: { id } } };
      await respond({ conversation: { id }, input: 'And?' }, wanted);
      await respond({ conversation: id, input: [] });
      await respond({ conversation: id, store: false }, { status: 400, code: 'invalid_value' });
      const both = { conversation: id, previous_response_id: 'resp_0' };
      await respond(both, { status: 400, code: 'mutually_exclusive_parameters' });
    },
    [{ conversation: 'conv_0' }, { status: 404, code: 'conversation_not_found' }],
  ],
  prompt: [{ prompt: { id: 'p' } }, REFUSED],
  stop: [{ stop: ['.'] }, { status: 400, code: 'unknown_parameter' }],
  seed: [{ seed: 7 }, { status: 400, code: 'unknown_parameter' }],
  logit_bias: [{ logit_bias: { 1: 1 } }, { status: 400, code: 'unknown_parameter' }],
  stream_options: [{ stream_options: { include_obfuscation: false } }, { notSent: ['stream_options'] }],
};

function penalty(name: string): Case[] {
  return [
    [{ [name]: 1, model: 'chat' }, passed({ [name]: 1 })],
    [{ [name]: 1 }, REFUSED],
    [{ [name]: 1, model: 'custom' }, REFUSED],
    [{ [name]: 0, model: 'custom' }, { answer: { [name]: 0 } }],
  ];
}

/** Runs a probe with another text as the answer of the Responses API. */
async function withAnswer(text: string, probe: () => Promise<void>): Promise<void> {
  answers.push(responseWith({ ...TEXT, content: [{ type: 'output_text', text }] }));
  await probe();
}

const walk = (heading: string, column: string, probes: Probes, keysOf: (cell: string) => string[]): void => {
  test('every row has a probe, and every probe has a row', () => {
    const keys = rowsOf(heading, column).flatMap(([first]) => keysOf(first));
    expect(keys.toSorted()).toEqual(Object.keys(probes).toSorted());
  });
};

describe('Create a response', () => {
  walk('## Create a response', 'field', RESPONSE_FIELDS, namesIn);
  test.each(Object.entries(RESPONSE_FIELDS))('%s', (_, probe) => runProbe('/v1/responses', { input: 'Hi' }, probe));
});

// ── Input items, parts and tools ─────────────────────────────────────────────────────────────────────────────────────

const PNG = 'data:image/png;base64,iVBORw0KGgo=';
const PDF = 'data:application/pdf;base64,JVBERi0x';
const FILE_URL = 'https://a.example/b.csv';
const CALL = { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' };
const OUTPUT = { type: 'function_call_output', call_id: 'c1', output: 'seen' };
const SERVER_CALL = {
  type: 'mcp_call',
  id: 'mcp_x',
  server_label: 'treadle',
  name: 'add',
  arguments: '{}',
  output: '3',
};
const SHELL_CALL = { type: 'shell_call', call_id: 'c1', action: { commands: ['ls'] } };
const SHELL_OUTPUT = {
  type: 'shell_call_output',
  call_id: 'c1',
  output: [{ stdout: 'a', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
};
const CUSTOM_CALL = { type: 'custom_tool_call', call_id: 'c1', name: 'patch', input: 'a text' };
const CUSTOM_OUTPUT = { type: 'custom_tool_call_output', call_id: 'c1', output: 'seen' };
const SEARCH_CALL = { type: 'tool_search_call', call_id: 'c1', execution: 'client', arguments: { query: 'a' } };
const SEARCH_OUTPUT = { type: 'tool_search_output', call_id: 'c1', execution: 'client' };
const APPROVAL_REQUEST = {
  type: 'mcp_approval_request',
  id: 'mcpr_x',
  server_label: 'treadle',
  name: 'add',
  arguments: '{}',
};
const USER = { role: 'user', content: 'Hi' };
const userPart = (part: object): object => ({ input: [{ role: 'user', content: [part] }] });
const sentPart = (part: object): Expected => ({ sent: { input: [{ content: [part] }] } });

const INPUT_ITEMS: Probes = {
  '`message` with role `user`': [
    [{ input: [{ role: 'user', content: 'Hey' }] }, { sent: { input: [{ role: 'user', content: 'Hey' }] } }],
    [{ input: [{ type: 'message', ...USER }] }, { sent: { input: [USER] } }],
  ],
  '`message` with role `system`, `developer`': [
    {
      instructions: 'First.',
      input: [USER, { role: 'system', content: 'a' }, { role: 'developer', content: 'b' }],
    },
    { sent: { instructions: 'First.\n\na\n\nb', input: [USER] } },
  ],
  '`message` with role `assistant`': [
    { input: [USER, { role: 'assistant', phase: 'commentary', content: [{ type: 'output_text', text: 'a' }] }, USER] },
    { sent: { input: [USER, { role: 'assistant', content: 'a', phase: 'commentary' }, USER] } },
  ],
  '`function_call`': [{ input: [USER, CALL] }, { status: 400, code: 'missing_output' }],
  '`function_call_output`': [
    [{ input: [USER, CALL, OUTPUT] }, { sent: { input: [USER, CALL, OUTPUT] } }],
    [
      { input: [USER, CALL, { ...OUTPUT, is_error: true }] },
      { sent: { input: [USER, CALL, { ...OUTPUT, output: 'Error: seen' }] } },
    ],
    [
      { input: [USER, CALL, { ...OUTPUT, output: [{ type: 'input_image', image_url: PNG }] }] },
      { sent: { input: [USER, CALL, { output: [{ type: 'input_image', image_url: PNG }] }] } },
    ],
  ],
  '`mcp_call`': [
    [
      { input: [USER, SERVER_CALL] },
      { sent: { input: [USER, { type: 'function_call', name: 'add' }, { output: '3' }] } },
    ],
    async () => {
      answers.push(responseWith(callOf('add', { a: 1, b: 2 })));
      const { output } = await respond({ tools: [SERVER_TOOLS] });
      const { output: _, ...withoutResult } = output[0];
      await respond({ input: [USER, withoutResult, USER] }, { sent: { input: [USER, {}, { output: '3' }, USER] } });
    },
  ],
  '`mcp_list_tools`': [
    { input: [{ type: 'mcp_list_tools', server_label: 'treadle', tools: [] }, USER] },
    { sent: { input: [USER] } },
  ],
  '`custom_tool_call`, `custom_tool_call_output`': [
    [
      { input: [USER, CUSTOM_CALL, CUSTOM_OUTPUT] },
      { sent: { input: [USER, { type: 'custom_tool_call', input: 'a text' }, { output: 'seen' }] } },
    ],
    ...[CALL, CUSTOM_CALL].map((called): Case => {
      const output = [{ type: 'input_image', image_url: PNG, detail: 'low' }];
      const answer = { ...(called === CALL ? OUTPUT : CUSTOM_OUTPUT), output };
      return [{ input: [USER, called, answer], model: 'claude' }, REFUSED];
    }),
  ],
  '`tool_search_call`, `tool_search_output` with `execution: "client"`': [
    { input: [USER, SEARCH_CALL, { ...SEARCH_OUTPUT, tools: [FUNCTION] }] },
    {
      sent: {
        input: [USER, { type: 'function_call', name: 'tool_search', arguments: '{"query":"a"}' }, { call_id: 'c1' }],
        tools: [FUNCTION],
      },
    },
  ],
  '`shell_call`, `local_shell_call`, `apply_patch_call` and their `…_output`': [
    [
      { input: [USER, SHELL_CALL, SHELL_OUTPUT] },
      {
        sent: {
          input: [
            USER,
            { type: 'function_call', name: 'shell', arguments: '{"commands":["ls"]}' },
            { call_id: 'c1', output: 'a\n[exit code 0]' },
          ],
        },
      },
    ],
    [{ input: [USER, SHELL_CALL, USER] }, { status: 400, code: 'missing_output' }],
    [
      {
        input: [
          USER,
          { type: 'local_shell_call', call_id: 'c1', action: { type: 'exec', command: ['ls'], env: {} } },
          { type: 'local_shell_call_output', id: 'c1', output: 'a' },
          { type: 'apply_patch_call', call_id: 'c2', operation: { type: 'delete_file', path: 'a' } },
          { type: 'apply_patch_call_output', call_id: 'c2', status: 'completed' },
        ],
      },
      {
        sent: {
          input: [
            USER,
            { name: 'local_shell', arguments: '{"command":["ls"]}' },
            { output: 'a' },
            { name: 'apply_patch', arguments: '{"type":"delete_file","path":"a"}' },
            { output: 'The patch was applied.' },
          ],
        },
      },
    ],
  ],
  '`additional_tools`': [
    [
      { input: [{ type: 'additional_tools', tools: [FUNCTION] }, USER] },
      { sent: { input: [USER], tools: [FUNCTION] } },
    ],
    async () => {
      const { id } = await respond({ input: [{ type: 'additional_tools', tools: [FUNCTION] }, USER] });
      await respond({ previous_response_id: id }, { sent: { tools: [FUNCTION] } });
    },
  ],
  '`agent_message`': [
    { input: [{ type: 'agent_message', author: 'a', recipient: 'b', content: [{ type: 'input_text', text: 'Hi' }] }] },
    { sent: { input: [USER] } },
  ],
  '`web_search_call`, `file_search_call`, `code_interpreter_call`, `image_generation_call`, `tool_search_call` and `tool_search_output` of other servers; `computer_call`, `computer_call_output`':
    [
      {
        input: [
          { type: 'web_search_call', id: 'ws_1', status: 'completed' },
          { type: 'computer_call_output', id: 'x' },
          USER,
        ],
      },
      { sent: { input: [USER] } },
    ],
  '`mcp_approval_request`': [{ input: [USER, APPROVAL_REQUEST] }, { status: 400, code: 'missing_approval' }],
  '`mcp_approval_response`': [
    { input: [USER, { type: 'mcp_approval_response', approval_request_id: 'mcpr_x', approve: true }] },
    { status: 400, code: 'unknown_approval' },
  ],
  '`reasoning`': [
    [
      { input: [USER, { type: 'reasoning', summary: [], encrypted_content: 'forged' }, USER] },
      { status: 400, code: 'invalid_encrypted_content' },
    ],
    async () => {
      const item = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'secret' };
      answers.push(responseWith(item, TEXT));
      const { output } = await respond({ include: ['reasoning.encrypted_content'] });
      await respond({ input: [USER, ...output, USER] }, { sent: { input: [USER, item, { content: 'Hello.' }, USER] } });
    },
  ],
  '`item_reference`': [
    [{ input: [{ type: 'item_reference', id: 'msg_0' }] }, { status: 400, code: 'item_not_found' }],
    async () => {
      const { output } = await respond({});
      const reference = { type: 'item_reference', id: output[0].id };
      await respond({ input: [USER, reference, USER] }, { sent: { input: [USER, { content: 'Hello.' }, USER] } });
    },
  ],
  '`compaction`': [
    [
      { input: [USER, { type: 'compaction', encrypted_content: 'forged' }] },
      { status: 400, code: 'invalid_encrypted_content' },
    ],
    async () => {
      const { output } = await compact({});
      await respond({ input: [...output, USER] });
      expect(JSON.stringify(sent.at(-1))).toContain('Hello.');
    },
  ],
  '`compaction_trigger`, `configuration_update` and all others': [
    [{ input: [USER, { type: 'compaction_trigger' }] }, { status: 400, code: 'invalid_value' }],
    [{ input: [USER, { type: 'configuration_update' }] }, { status: 400, code: 'invalid_value' }],
    [{ input: [{ type: 'unheard_of' }] }, { status: 400, code: 'invalid_value' }],
  ],
};

const PARTS: Probes = {
  '`input_text`, `output_text`': [
    [userPart({ type: 'input_text', text: 'Hey' }), { sent: { input: [{ content: 'Hey' }] } }],
    [userPart({ type: 'text', text: 'Hey' }), { sent: { input: [{ content: 'Hey' }] } }],
    [
      { input: [USER, { role: 'assistant', content: [{ type: 'text', text: 'a' }] }, USER] },
      { sent: { input: [USER, { content: 'a' }, USER] } },
    ],
  ],
  '`input_image`': [
    [
      userPart({ type: 'input_image', image_url: PNG, detail: 'low' }),
      sentPart({ type: 'input_image', image_url: PNG, detail: 'low' }),
    ],
    [
      userPart({ type: 'input_image', image_url: 'https://a.example/b.png' }),
      sentPart({ type: 'input_image', image_url: 'https://a.example/b.png', detail: 'auto' }),
    ],
    [{ ...userPart({ type: 'input_image', image_url: PNG, detail: 'low' }), model: 'claude' }, REFUSED],
    [{ ...userPart({ type: 'input_image', image_url: PNG, detail: 'auto' }), model: 'claude' }, {}],
    [{ ...userPart({ type: 'input_image', image_url: PNG, detail: 'high' }), model: 'claude' }, {}],
  ],
  '`input_file`': [
    [
      userPart({ type: 'input_file', filename: 'a.pdf', file_data: PDF }),
      sentPart({ type: 'input_file', filename: 'a.pdf', file_data: PDF }),
    ],
    [userPart({ type: 'input_file', file_url: FILE_URL }), sentPart({ type: 'input_file', file_url: FILE_URL })],
    [{ ...userPart({ type: 'input_file', file_url: FILE_URL }), model: 'chat' }, REFUSED],
    [{ ...userPart({ type: 'input_file', file_url: FILE_URL }), model: 'claude' }, REFUSED],
    [
      { ...userPart({ type: 'input_file', file_url: 'https://a.example/b.pdf' }), model: 'claude' },
      { sent: { messages: [{ content: [{ source: { type: 'url', url: 'https://a.example/b.pdf' } }] }] } },
    ],
  ],
  '`file_id` in either': [
    [userPart({ type: 'input_file', file_id: 'f' }), REFUSED],
    [userPart({ type: 'input_image', file_id: 'f' }), REFUSED],
  ],
};

const UNSUPPORTED_TOOL: Expected = { status: 400, code: 'unsupported_tool' };

const TOOLS: Probes = {
  '`function`': [
    { tools: [{ ...FUNCTION, description: 'Looks.', strict: true }] },
    { sent: { tools: [{ ...FUNCTION, description: 'Looks.', strict: true }] } },
  ],
  '`mcp` with `server_label: "treadle"`': [
    [{ tools: [SERVER_TOOLS] }, { sent: { tools: [{ name: 'add' }] } }],
    [{ tools: [{ ...SERVER_TOOLS, allowed_tools: ['add'], require_approval: 'never' }] }, { sent: { tools: [{}] } }],
    [{ tools: [{ ...SERVER_TOOLS, require_approval: { never: { tool_names: ['add'] } } }] }, { sent: { tools: [{}] } }],
    [{ tools: [{ ...SERVER_TOOLS, allowed_tools: { tool_names: [] } }] }, { notSent: ['tools'] }],
  ],
  // Its address is private, so it is not connected to. test/mcp/responses.test.ts uses such servers.
  '`mcp` with `server_url`': async () => {
    const tools = [
      { type: 'mcp', server_label: 'other', server_url: 'http://127.0.0.1:1/', require_approval: 'never' },
    ];
    const { output } = await respond({ tools });
    expect(output).toMatchObject([
      { type: 'mcp_list_tools', server_label: 'other', error: expect.any(String) },
      { type: 'message' },
    ]);
  },
  '`mcp` with the label of a configured server': async () => {
    const { output } = await respond({ tools: [{ type: 'mcp', server_label: 'configured' }] });
    expect(output[0]).toMatchObject({ type: 'mcp_list_tools', server_label: 'configured', error: expect.any(String) });
  },
  '`mcp` with another label, any other type': [
    [{ tools: [{ type: 'mcp', server_label: 'other' }] }, UNSUPPORTED_TOOL],
    [{ tools: [{ type: 'code_interpreter' }] }, UNSUPPORTED_TOOL],
  ],
  '`custom`': [
    { tools: [{ type: 'custom', name: 'patch' }] },
    { sent: { tools: [{ type: 'custom', name: 'patch' }] } },
  ],
  '`shell` with no or a `local` environment, `local_shell`, `apply_patch`': [
    [
      { tools: [{ type: 'shell' }, { type: 'local_shell' }, { type: 'apply_patch' }] },
      { sent: { tools: [{ type: 'function', name: 'shell' }, { name: 'local_shell' }, { name: 'apply_patch' }] } },
    ],
    [{ tools: [{ type: 'shell', environment: { type: 'container_auto' } }] }, UNSUPPORTED_TOOL],
  ],
  '`tool_search` with `execution: "client"`': [
    { tools: [{ type: 'tool_search', execution: 'client', parameters: { type: 'object' } }, DEFERRED] },
    { sent: { tools: [{ type: 'function', name: 'tool_search' }] } },
  ],
  '`tool_search`': [{ tools: [{ type: 'tool_search' }, DEFERRED] }, { sent: { tools: [FUNCTION] } }],
  '`web_search`, `web_search_preview`, and both with a date': [
    [{ tools: [{ type: 'web_search' }] }, { notSent: ['tools'] }],
    [{ tools: [{ type: 'web_search_preview_2025_03_11' }] }, { notSent: ['tools'] }],
  ],
};

/** The model follows a forced choice, and the client gets the call. */
const choice =
  (tool_choice: unknown, wanted: Expected): Case =>
  async () => {
    answers.push(responseWith(callOf('look', {})));
    const { output } = await respond({ tools: [FUNCTION, SERVER_TOOLS], tool_choice }, wanted);
    expect(output).toMatchObject([{ type: 'function_call', name: 'look' }]);
  };
const serverChoice =
  (tool_choice: unknown, wanted: object): Case =>
  async () => {
    answers.push(responseWith(callOf('add', { a: 1, b: 2 })));
    const { output } = await respond({ tools: [FUNCTION, SERVER_TOOLS], tool_choice });
    expect(output).toMatchObject([{ type: 'mcp_call', name: 'add' }, { type: 'message' }]);
    expect(sent[0]).toMatchObject({ tool_choice: wanted });
    // After it was followed, the model decides.
    expect(sent[1]).not.toHaveProperty('tool_choice');
  };

const TOOL_CHOICES: Probes = {
  '`"auto"`, `"required"`, `"none"`': [
    [
      { tools: [FUNCTION], tool_choice: 'auto' },
      { notSent: ['tool_choice'], answer: { tool_choice: 'auto' } },
    ],
    [{ tools: [FUNCTION], tool_choice: 'none' }, { sent: { tool_choice: 'none', tools: [{ name: 'look' }] } }],
    choice('required', passed({ tool_choice: 'required' })),
  ],
  '`{ type: "function", name }`, `{ type: "custom", name }`': [
    choice({ type: 'function', name: 'look' }, { sent: { tool_choice: { type: 'function', name: 'look' } } }),
    [
      { tools: [FUNCTION], tool_choice: { type: 'function', name: 'none' } },
      { status: 400, code: 'unknown_tool' },
    ],
  ],
  '`{ type: "mcp", server_label, name? }`': serverChoice(
    { type: 'mcp', server_label: 'treadle', name: 'add' },
    { type: 'function', name: 'add' },
  ),
  '`{ type: "allowed_tools", mode, tools }`': choice(
    { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'look' }] },
    { sent: { tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ name: 'look' }] } } },
  ),
  '`{ type }` of another kind of tool': [
    { tools: [FUNCTION], tool_choice: { type: 'web_search' } },
    { status: 400, code: 'unknown_tool' },
  ],
};

describe.each<[string, string, Probes]>([
  ['### Input items', 'item', INPUT_ITEMS],
  ['### Input items', 'part', PARTS],
  ['### Tools', 'tool', TOOLS],
  ['### `tool_choice`', 'form', TOOL_CHOICES],
])('%s: %s', (heading, column, probes) => {
  walk(heading, column, probes, (cell) => [cell]);
  test.each(Object.entries(probes))('%s', (_, probe) => runProbe('/v1/responses', { input: 'Hi' }, probe));
});

// ── Chat Completions ─────────────────────────────────────────────────────────────────────────────────────────────────

const CHAT_CALL = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } };
const CHAT_FUNCTION = { type: 'function', function: { name: 'look', parameters: { type: 'object' } } };
const image = (detail?: string): object => ({ type: 'image_url', image_url: { url: PNG, ...(detail && { detail }) } });

const CHAT_FIELDS: Probes = {
  messages: [
    [
      {
        messages: [
          { role: 'system', content: 'a' },
          { role: 'developer', content: 'b' },
          USER,
          { role: 'assistant', content: null, tool_calls: [CHAT_CALL] },
          { role: 'tool', tool_call_id: 'c1', content: 'seen' },
        ],
      },
      {
        sent: {
          messages: [
            { role: 'system', content: 'a\n\nb' },
            USER,
            { tool_calls: [CHAT_CALL] },
            { role: 'tool', content: 'seen' },
          ],
        },
      },
    ],
    [
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'a' },
              image('high'),
              { type: 'file', file: { filename: 'a.pdf', file_data: PDF } },
            ],
          },
        ],
      },
      { sent: { messages: [{ content: [{ text: 'a' }, image('high'), { file: { file_data: PDF } }] }] } },
    ],
    [{ messages: [{ role: 'user', content: [image('low')] }], model: 'claude' }, REFUSED],
    [{ messages: [{ role: 'user', content: [image('high')] }], model: 'claude' }, {}],
  ],
  tools: [
    [{ tools: [CHAT_FUNCTION] }, { sent: { tools: [CHAT_FUNCTION] } }],
    [{ tools: [SERVER_TOOLS] }, { sent: { tools: [{ function: { name: 'add' } }] } }],
    [{ tools: [{ type: 'local_shell' }] }, { status: 400, code: 'unsupported_tool' }],
  ],
  tool_choice: [{ tools: [CHAT_FUNCTION], tool_choice: 'none' }, { sent: { tool_choice: 'none' } }],
  parallel_tool_calls: [
    { tools: [CHAT_FUNCTION], parallel_tool_calls: false },
    { sent: { parallel_tool_calls: false } },
  ],
  model: [{ model: 'none' }, { status: 404, code: 'model_not_found' }],
  temperature: [{ temperature: 0.5 }, { sent: { temperature: 0.5 } }],
  top_p: [{ top_p: 0.5 }, { sent: { top_p: 0.5 } }],
  max_completion_tokens: [{ max_completion_tokens: 9 }, { sent: { max_completion_tokens: 9 } }],
  max_tokens: [{ max_tokens: 9 }, { sent: { max_completion_tokens: 9 } }],
  max_tool_calls: async () => {
    const calls = [0, 1].map((n) => ({ id: `c${n}`, type: 'function', function: { name: 'add', arguments: '{}' } }));
    answers.push(
      Response.json({ choices: [{ index: 0, message: { tool_calls: calls }, finish_reason: 'tool_calls' }] }),
    );
    await complete({ model: 'chat', tools: [SERVER_TOOLS], max_tool_calls: 1 });
    const results = sent[1]!['messages'] as { readonly role: string; readonly content: string }[];
    const refused = results.filter(({ role, content }) => role === 'tool' && content.startsWith('Error'));
    expect(refused).toHaveLength(1);
  },
  truncation: async () => {
    answers.push(tooLong(), tooLong());
    await complete({ model: 'chat', messages: LONG }, { status: 400, code: 'context_length_exceeded' });
    await complete(
      { model: 'chat', messages: LONG, truncation: 'auto' },
      { sent: { messages: [{ content: 'three' }] } },
    );
  },
  stop: [
    [{ stop: '.' }, { sent: { stop: ['.'] } }],
    [{ stop: '.', model: 'responses' }, REFUSED],
  ],
  seed: [
    [{ seed: 7 }, { sent: { seed: 7 } }],
    [{ seed: 7, model: 'claude' }, REFUSED],
  ],
  logit_bias: [
    [{ logit_bias: { 50: -100 } }, { sent: { logit_bias: { 50: -100 } } }],
    [{ logit_bias: { 50: -100 }, model: 'claude' }, REFUSED],
    [{ logit_bias: {}, model: 'claude' }, {}],
  ],
  response_format: async () => {
    const json_schema = { name: 'n', description: 'd', schema: SCHEMA, strict: true };
    const json = (): Response =>
      Response.json({ choices: [{ index: 0, message: { content: '{}' }, finish_reason: 'stop' }] });
    answers.push(json(), json());
    const wanted = { sent: { response_format: { type: 'json_schema', json_schema } } };
    await complete({ model: 'chat', response_format: { type: 'json_schema', json_schema } }, wanted);
    await complete({ model: 'chat', response_format: { type: 'json_schema', json_schema: { name: 'n' } } });
    const object = { response_format: { type: 'json_object' } };
    await complete({ model: 'chat', ...object }, { sent: object });
  },
  reasoning_effort: [{ reasoning_effort: 'xhigh' }, { sent: { reasoning_effort: 'xhigh' } }],
  stream: async () => {
    const text = await streamed('/v1/chat/completions', { model: 'chat', messages: [USER] });
    expect([text.includes('"content":"Hello."'), text.includes('"usage"')]).toEqual([true, false]);
  },
  'stream_options.include_usage': async () => {
    const stream_options = { include_usage: true };
    expect(await streamed('/v1/chat/completions', { model: 'chat', messages: [USER], stream_options })).toMatch(
      /"choices":\[\],"usage":\{/,
    );
  },
  store: [{ store: false }, { notSent: ['store'] }],
  service_tier: [
    [{ service_tier: 'flex' }, passed({ service_tier: 'flex' })],
    [{ service_tier: 'flex', model: 'claude' }, REFUSED],
  ],
  verbosity: [
    [{ verbosity: 'low' }, { sent: { verbosity: 'low' } }],
    [{ verbosity: 'low', model: 'claude' }, { notSent: ['verbosity'] }],
  ],
  prompt_cache_key: [{ prompt_cache_key: 'k' }, { sent: { prompt_cache_key: 'k' } }],
  presence_penalty: [
    [{ presence_penalty: 1 }, { sent: { presence_penalty: 1 } }],
    [{ presence_penalty: 1, model: 'custom' }, REFUSED],
  ],
  frequency_penalty: [
    [{ frequency_penalty: 1 }, { sent: { frequency_penalty: 1 } }],
    [{ frequency_penalty: 1, model: 'custom' }, REFUSED],
  ],
  logprobs: [
    async () => {
      const token = { token: 'Hello.', logprob: -1, bytes: [72], top_logprobs: [] };
      const choice = {
        index: 0,
        message: { content: 'Hello.' },
        finish_reason: 'stop',
        logprobs: { content: [token] },
      };
      answers.push(Response.json({ choices: [choice] }));
      const answer = { choices: [{ logprobs: { content: [token], refusal: null } }] };
      await complete({ model: 'chat', logprobs: true }, { sent: { logprobs: true }, answer });
    },
    [{ logprobs: true, model: 'claude' }, REFUSED],
    [{ logprobs: false, model: 'claude' }, {}],
  ],
  top_logprobs: [
    [{ logprobs: true, top_logprobs: 2 }, { sent: { top_logprobs: 2 } }],
    [{ top_logprobs: 2 }, { status: 400, code: 'invalid_value' }],
  ],
  n: [
    [{ n: 1 }, {}],
    [{ n: 2 }, REFUSED],
  ],
  modalities: [
    [{ modalities: ['text'] }, {}],
    [{ modalities: ['audio'] }, REFUSED],
  ],
  functions: [{ functions: [] }, REFUSED],
  function_call: [{ function_call: 'auto' }, REFUSED],
  audio: [{ audio: {} }, REFUSED],
  web_search_options: [{ web_search_options: {} }, REFUSED],
  metadata: [
    [{ metadata: { a: 'b' } }, { notSent: ['metadata'] }],
    [{ metadata: { a: 1 } }, { status: 400, code: 'invalid_type' }],
  ],
  user: [{ user: 'ann' }, { notSent: ['user'] }],
  safety_identifier: [{ safety_identifier: 'ann' }, { notSent: ['safety_identifier'] }],
  prediction: [{ prediction: { type: 'content', content: 'x' } }, { notSent: ['prediction'] }],
};

describe('Chat Completions', () => {
  walk('## Chat Completions', 'field', CHAT_FIELDS, namesIn);
  test.each(Object.entries(CHAT_FIELDS))('%s', (_, probe) =>
    runProbe('/v1/chat/completions', { model: 'chat', messages: [USER] }, probe),
  );
});

// ── Messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const MESSAGE = { model: 'chat', max_tokens: 99, messages: [USER] };
const LOOK = { name: 'look', input_schema: { type: 'object' } };
const TOOLSET = { type: 'mcp_toolset', mcp_server_name: 'treadle' };
const message = (request: object, expected?: Expected) => ask('/v1/messages', { ...MESSAGE, ...request }, expected);
const thoughtful = { thinking: { type: 'adaptive' }, output_config: { effort: 'low' } };

const MESSAGE_FIELDS: Probes = {
  model: [{ model: 'none' }, { status: 404, code: 'model_not_found' }],
  messages: [
    [
      {
        messages: [
          USER,
          { role: 'system', content: 'Now.' },
          { role: 'assistant', content: [{ type: 'tool_use', id: 'c1', name: 'look', input: {} }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'seen' }] },
        ],
      },
      {
        sent: {
          messages: [
            { role: 'user', content: 'Hi\n\n<system-reminder>\nNow.\n</system-reminder>' },
            { tool_calls: [{ function: { name: 'look' } }] },
            { role: 'tool', content: 'seen' },
          ],
        },
      },
    ],
    [{ messages: [USER, { role: 'assistant', content: '(' }] }, { status: 400, code: 'invalid_value' }],
  ],
  system: [{ system: [{ type: 'text', text: 'a' }] }, { sent: { messages: [{ role: 'system', content: 'a' }, USER] } }],
  max_tokens: [
    [{ max_tokens: 9 }, { sent: { max_completion_tokens: 9 } }],
    [{ max_tokens: 0 }, { status: 400, code: 'decimal_below_min_value' }],
  ],
  stream: async () => {
    expect(await streamed('/v1/messages', MESSAGE)).toMatch(/^event: message_start\n[^]*event: message_stop\n.*\n\n$/);
    answers.push(tooLong());
    await message({ stream: true }, { status: 400, code: 'context_length_exceeded' });
  },
  tools: [
    [{ tools: [{ ...LOOK, defer_loading: true }] }, { sent: { tools: [{ function: { name: 'look' } }] } }],
    [{ tools: [TOOLSET] }, { sent: { tools: [{ function: { name: 'add' } }] } }],
    [{ tools: [{ type: 'web_search_20250305', name: 'web_search' }] }, { notSent: ['tools'] }],
    [{ tools: [{ type: 'bash_20250124', name: 'bash' }] }, { status: 400, code: 'unsupported_tool' }],
  ],
  tool_choice: [
    [{ tools: [LOOK], tool_choice: { type: 'none' } }, { sent: { tool_choice: 'none' } }],
    [
      { tools: [LOOK], tool_choice: { type: 'auto', disable_parallel_tool_use: true } },
      { sent: { parallel_tool_calls: false } },
    ],
  ],
  mcp_servers: [
    { mcp_servers: [{ type: 'url', name: 'x', url: 'http://127.0.0.1:1/' }] },
    { status: 400, code: 'unsupported_tool' },
  ],
  thinking: [
    [thoughtful, { sent: { reasoning_effort: 'low' }, answer: { content: [{ type: 'text' }] } }],
    [{ thinking: { type: 'enabled', budget_tokens: 9_000 } }, { sent: { reasoning_effort: 'medium' } }],
    [{ thinking: { type: 'disabled' } }, { sent: { reasoning_effort: 'none' } }],
    [
      { ...thoughtful, model: 'claude' },
      { sent: { thinking: { type: 'adaptive' }, output_config: { effort: 'low' } } },
    ],
  ],
  output_config: async () => {
    answers.push(Response.json({ choices: [{ index: 0, message: { content: '{}' }, finish_reason: 'stop' }] }));
    const format = { type: 'json_schema', schema: SCHEMA };
    await message({ output_config: { format } }, { sent: { response_format: { json_schema: { schema: SCHEMA } } } });
  },
  output_format: async () => {
    answers.push(Response.json({ choices: [{ index: 0, message: { content: '{}' }, finish_reason: 'stop' }] }));
    const output_format = { type: 'json_schema', schema: SCHEMA };
    await message({ output_format }, { sent: { response_format: { json_schema: { strict: true } } } });
  },
  context_management: [
    [
      { context_management: { edits: [{ type: 'clear_thinking_20251015' }] } },
      { answer: { context_management: { applied_edits: [] } } },
    ],
    [{ context_management: { edits: [{ type: 'compact_20260112' }] } }, REFUSED],
  ],
  stop_sequences: [
    [{ stop_sequences: ['.'] }, { sent: { stop: ['.'] } }],
    [{ stop_sequences: ['.'], model: 'responses' }, REFUSED],
  ],
  temperature: [{ temperature: 0.5 }, { sent: { temperature: 0.5 } }],
  top_p: [{ top_p: 0.5 }, { sent: { top_p: 0.5 } }],
  service_tier: [{ service_tier: 'standard_only' }, { sent: { service_tier: 'default' } }],
  thread: async () => {
    const { id } = await message({ thread: { type: 'create' } });
    const thread = { type: 'continue', previous_message_id: id };
    await message({ thread }, { sent: { messages: [USER, { role: 'assistant', content: 'Hello.' }, USER] } });
    await message({ thread }, { status: 400, code: 'thread_already_continued' });
  },
  cache_control: [
    {
      system: [{ type: 'text', text: 'a', cache_control: { type: 'ephemeral' } }],
      cache_control: { type: 'ephemeral' },
    },
    { notSent: ['cache_control'] },
  ],
  metadata: [{ metadata: { user_id: 'ann' } }, { notSent: ['metadata'] }],
  top_k: [{ top_k: 5 }, REFUSED],
  container: [{ container: 'c' }, REFUSED],
  compaction: [{ compaction: {} }, REFUSED],
  inference_geo: [{ inference_geo: 'eu' }, REFUSED],
};

describe('Messages', () => {
  walk('## Messages', 'field', MESSAGE_FIELDS, namesIn);
  test.each(Object.entries(MESSAGE_FIELDS))('%s', (_, probe) => runProbe('/v1/messages', MESSAGE, probe));
});

// ── Conversations and WebSockets ─────────────────────────────────────────────────────────────────────────────────────

interface Listed {
  readonly data: readonly { readonly id: string; readonly type: string }[];
}

/** Runs a probe with a new conversation that has one item. */
const inConversation =
  (probe: (path: string, item: string, id: string) => Promise<void>): Case =>
  async () => {
    const { id } = await post('/v1/conversations', { items: [USER], metadata: { a: 'b' } });
    const { data } = (await send('GET', `/v1/conversations/${id}/items`)) as Listed;
    await probe(`/v1/conversations/${id}`, data[0]!.id, id);
  };

const CONVERSATION_REQUESTS: Probes = {
  '`POST /v1/conversations`': async () => {
    expect(await post('/v1/conversations', {})).toMatchObject({ object: 'conversation', metadata: {} });
  },
  '`GET /v1/conversations/{id}`': inConversation(async (path, _, id) => {
    const found = await send('GET', path);
    expect(found).toEqual({ id, object: 'conversation', created_at: expect.any(Number), metadata: { a: 'b' } });
    expect((await send('GET', '/v1/chat')).data).toContainEqual(expect.objectContaining({ id, title: USER.content }));
  }),
  '`POST /v1/conversations/{id}`': inConversation(async (path) => {
    expect(await post(path, { metadata: { c: 'd' } })).toMatchObject({ metadata: { c: 'd' } });
    await post(path, {}, 400);
  }),
  '`DELETE /v1/conversations/{id}`': inConversation(async (path, _, conversation) => {
    const { id } = await respond({ conversation });
    expect(await send('DELETE', path)).toMatchObject({ object: 'conversation.deleted', deleted: true });
    await send('GET', path, undefined, 404);
    await send('GET', `/v1/responses/${id}`, undefined, 404);
  }),
  '`GET /v1/conversations/{id}/items`': inConversation(async (path, item, conversation) => {
    await respond({ conversation });
    const [newest] = ((await send('GET', `${path}/items?limit=1`)) as Listed).data;
    expect(await send('GET', `${path}/items?limit=1&order=asc`)).toMatchObject({ first_id: item, has_more: true });
    const rest = (await send('GET', `${path}/items?after=${newest!.id}`)) as Listed;
    expect(rest).toMatchObject({ data: [{ role: 'user' }, { id: item }], has_more: false });
  }),
  '`include`': inConversation(async (path) => {
    await send('GET', `${path}/items?include[]=reasoning.encrypted_content`);
    await send('GET', `${path}/items?include[]=everything`, undefined, 400);
  }),
  '`POST /v1/conversations/{id}/items`': inConversation(async (path) => {
    const { output } = await respond({});
    const reference = { type: 'item_reference', id: output[0].id };
    const { data } = (await post(`${path}/items`, { items: [USER, reference] })) as Listed;
    expect(data).toMatchObject([{ type: 'message', ...USER, content: [{ text: 'Hi' }] }, output[0]]);
  }),
  '`GET /v1/conversations/{id}/items/{item}`': inConversation(async (path, item) => {
    expect(await send('GET', `${path}/items/${item}`)).toMatchObject({ id: item, role: 'user' });
  }),
  '`DELETE /v1/conversations/{id}/items/{item}`': inConversation(async (path, item, conversation) => {
    const { data } = (await post(`${path}/items`, { items: [USER] })) as Listed;
    await send('DELETE', `${path}/items/${data[0]!.id}`);
    await respond({ conversation });
    await send('DELETE', `${path}/items/${item}`, undefined, 409);
  }),
};

/** Sends a message on a new socket. Resolves to the events of its answer. */
async function overSocket(message: object): Promise<readonly SocketEvent[]> {
  using socket = await openSocket(server.url);
  socket.send(message);
  return await socket.answer();
}
const CREATE = { type: 'response.create', input: 'Hi' };
const socketError =
  (message: object, code: string): Case =>
  async () => {
    expect(await overSocket(message)).toMatchObject([{ type: 'error', status: 400, error: { code } }]);
  };

const SOCKET_MESSAGES: Probes = {
  '`response.create`': async () => {
    const events = await overSocket({ ...CREATE, metadata: { a: 'b' } });
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { metadata: { a: 'b' } } });
  },
  '`response.steer` and all others': socketError({ type: 'response.steer' }, 'invalid_value'),
  '`stream`, `stream_options`': async () => {
    const events = await overSocket({ ...CREATE, stream: false, stream_options: { include_obfuscation: true } });
    expect(events.length).toBeGreaterThan(2);
  },
  '`background: true`': socketError({ ...CREATE, background: true }, 'unsupported_parameter'),
  '`generate: false`': async () => {
    const events = await overSocket({ ...CREATE, input: [], generate: false });
    expect(events.at(-1)).toMatchObject({ type: 'response.completed', response: { output: [] } });
  },
  '`stream_id`': async () => {
    const events = await overSocket({ ...CREATE, stream_id: 's' });
    expect(new Set(events.map(({ stream_id: id }) => id))).toEqual(new Set(['s']));
  },
  'compression (permessage-deflate)': async () => {
    using socket = await openSocket(server.url, { perMessageDeflate: true });
    expect(socket.ws.extensions).toBe('');
  },
  'a failed response': async () => {
    answers.push(tooLong(), tooLong());
    const events = await overSocket(CREATE);
    expect(events.map(({ type }) => type)).toEqual(['response.created', 'response.in_progress', 'response.failed']);
    const types = eventTypesIn(await streamed('/v1/responses', { input: 'Hi' }));
    expect(types.slice(-2)).toEqual(['error', 'response.failed']);
  },
};

describe.each<[string, string, Probes]>([
  ['## Conversations', 'request or field', CONVERSATION_REQUESTS],
  ['## WebSocket', 'message or field', SOCKET_MESSAGES],
])('%s: %s', (heading, column, probes) => {
  walk(heading, column, probes, (cell) => [cell]);
  test.each(Object.entries(probes))('%s', (_, probe) => runProbe('/v1/responses', {}, probe));
});

// ── The response, its items and its events ───────────────────────────────────────────────────────────────────────────

describe('Response object', () => {
  test('has the fields of the table and those of the request, and no others', async () => {
    answers.push(responseWith(callOf('look', {})));
    const { id: conversation } = await post('/v1/conversations', {});
    const response = await respond({ tools: [FUNCTION], user: 'ann', conversation });
    const fields = rowsOf('## Response object', 'field').flatMap(([first]) => namesIn(first));
    const top = new Set(fields.map((name) => name.split('.')[0]!));
    expect([...top].filter((name) => !(name in response))).toEqual([]);
    const echoed = new Set(Object.keys(RESPONSE_FIELDS).map((name) => name.split('.')[0]!));
    expect(Object.keys(response).filter((name) => !top.has(name) && !echoed.has(name))).toEqual([]);
  });

  test('has the output items of the table', () => {
    const wire = source('apis/responses/wire.ts');
    const union = /export type OutputItem =([^;]+);/.exec(wire)![1]!;
    const types = [...union.matchAll(/\w+/g)].map(
      ([name]) => new RegExp(`interface ${name} \\{\\s+readonly type: '(\\w+)'`).exec(wire)![1]!,
    );
    const named = rowsOf('## Response object', 'output item').flatMap(([first]) => namesIn(first));
    expect(named.toSorted()).toEqual(types.toSorted());
  });

  test('has the incomplete reasons of the table and of the sentence after it', () => {
    const reasons = /const REASONS[^{]*\{([^}]+)\}/.exec(source('requests/ending.ts'))![1]!;
    const known = new Set([...reasons.matchAll(/'(\w+)'/g)].map(([, reason]) => reason!));
    const reserved = /^(.*) are reserved for limits/m.exec(section('## Response object'))![1]!;
    const named = rowsOf('## Response object', 'incomplete reason').flatMap(([first]) => namesIn(first));
    const others = ['max_output_tokens', 'content_filter'];
    expect([...named, ...namesIn(reserved)].toSorted()).toEqual([...known, ...others].toSorted());
  });
});

test('Events: the page names every event of the source, and no other', () => {
  const paragraph = section('## Events').trim().split('\n\n')[0]!;
  let last = '';
  const named = namesIn(paragraph).map((name) => {
    last = name.startsWith('.') ? last.replace(/\.\w+$/, name) : name;
    return last;
  });
  const code = source('apis/responses/{output-items,projection}.ts');
  // A part of a template stands for any word.
  const patterns = [...code.matchAll(/['`](response(?:\.(?:\w|\$\{\w+\})+)+)['`]/g)].map(([, type]) => type!);
  const events = [...new Set(patterns)].map((type) => new RegExp(`^${type.replaceAll(/\$\{\w+\}/g, '\\w+')}$`));
  const known = named.filter((name) => name !== 'error');
  expect(known.filter((name) => !events.some((event) => event.test(name)))).toEqual([]);
  expect(events.filter((event) => !known.some((name) => event.test(name)))).toEqual([]);
  expect(code).toContain("type: 'error'");
});

// ── Endpoints, headers and errors ────────────────────────────────────────────────────────────────────────────────────

const ENDPOINTS: Probes = {
  '`GET /v1/responses`': async () => {
    const { id } = await respond({});
    const { body } = await server.send('GET', '/v1/responses?limit=1');
    expect([body.object, body.data.length, body.first_id, body.has_more]).toEqual(['list', 1, id, true]);
  },
  '`GET /v1/responses/{id}`': async () => {
    const { id } = await respond({});
    expect(await server.send('GET', `/v1/responses/${id}?include=anything`)).toMatchObject({ status: 200 });
    expect(await eventsOf(id)).toMatch(/^event: response.created\n.*event: response.completed\n.*\[DONE\]\n\n$/s);
    const { status, body } = await server.send('GET', `/v1/responses/${id}?stream=true&starting_after=1`);
    expect([status, body.error.code]).toEqual([400, 'stream_not_stored']);
  },
  '`POST …/cancel`': async () => {
    const { id } = await respond({});
    const { status, body } = await server.send('POST', `/v1/responses/${id}/cancel`);
    expect([status, body.status]).toEqual([200, 'completed']);
  },
  '`DELETE /v1/responses/{id}`': async () => {
    const { id } = await respond({});
    expect(await server.send('DELETE', `/v1/responses/${id}`)).toMatchObject({ status: 200 });
    expect(await server.send('GET', `/v1/responses/${id}`)).toMatchObject({ status: 404 });
  },
  '`POST /v1/responses/compact`': async () => {
    await compact({ model: undefined }, { status: 400, code: 'missing_required_parameter' });
    await compact({ model: 'custom', temperature: 1, service_tier: 'flex' }, REFUSED);
    const answer = { object: 'response.compaction', output: [{ role: 'user' }, { type: 'compaction' }] };
    await compact({ temperature: 1 }, { sent: { temperature: 1 }, answer });
  },
  '`POST /v1/responses/input_tokens`': async () => {
    const request = { model: 'responses', input: 'x'.repeat(40) };
    await ask('/v1/responses/input_tokens', request, { answer: { object: 'response.input_tokens', input_tokens: 10 } });
    expect(sent).toEqual([]);
  },
  '`GET …/input_items`': async () => {
    const { id } = await respond({ input: LONG });
    const { body } = await server.send('GET', `/v1/responses/${id}/input_items?order=desc&limit=1`);
    expect(body.data).toMatchObject([{ content: [{ text: 'three' }] }]);
  },
  '`/v1/runs`, `/v1/traces` and below': async () => {
    const { id } = await respond({});
    for (const [path, named] of [
      ['/v1/runs', { id }],
      ['/v1/traces', { run_id: id }],
    ] as const) {
      expect(await server.send('GET', `${path}?limit=1`)).toMatchObject({ body: { data: [named] } });
      expect(await server.send('GET', `${path}/${id}`)).toMatchObject({ status: 200, body: named });
    }
  },
  '`/v1/metrics/tools`, `/v1/status`': async () => {
    expect(await server.send('GET', '/v1/metrics/tools')).toMatchObject({ body: { object: 'metrics' } });
    expect(await server.send('GET', '/v1/status')).toMatchObject({ body: { object: 'status', ready: true } });
  },
  '`/mcp`': async () => {
    const body = { jsonrpc: '2.0', id: 1, method: 'ping' };
    expect(await server.send('POST', '/mcp', body)).toMatchObject({ body: { jsonrpc: '2.0' } });
  },
  '`GET /v1/models`, `…/{name}`': async () => {
    const { body } = await server.send('GET', '/v1/models');
    expect(body.data.map(({ id }: { readonly id: string }) => id)).toEqual([...models.keys()]);
    expect(await server.send('GET', '/v1/models/chat')).toMatchObject({ body: { id: 'chat', owned_by: 'treadle' } });
  },
};

const HEADERS: Probes = {
  '`Idempotency-Key`': async () => {
    const headers = { 'idempotency-key': 'k1' };
    const ids = [1, 2].map(async () => (await server.send('POST', '/v1/responses', { input: 'Hi' }, headers)).body.id);
    const [first, second] = await Promise.all(ids);
    expect(first).toBe(second);
    const other = await server.send('POST', '/v1/responses', { input: 'Ho' }, headers);
    expect([other.status, other.body.error.code]).toEqual([409, 'idempotency_key_reused']);
  },
  '`Treadle-Status`': async () => {
    for (const headers of [{}, { 'treadle-status': 'requires_action' }]) {
      answers.push(responseWith(callOf('look', {})));
      const { body } = await server.send('POST', '/v1/responses', { input: 'Hi', tools: [FUNCTION] }, headers);
      expect(body.status).toBe('treadle-status' in headers ? 'requires_action' : 'completed');
    }
  },
  '`x-request-id`': async () => {
    const answer = await fetch(`${server.url}/v1/models`, { headers: { 'x-request-id': 'mine' } });
    expect(answer.headers.get('x-request-id')).toBe('mine');
  },
};

describe.each<[string, string, Probes]>([
  ['## Other endpoints', 'request', ENDPOINTS],
  ['## Errors', 'request header', HEADERS],
])('%s', (heading, column, probes) => {
  walk(heading, column, probes, (cell) => [cell]);
  test.each(Object.entries(probes))('%s', (_, probe) => runProbe('', {}, probe));
});

describe('Errors', () => {
  /** The codes of the page, each with its status. */
  const named = rowsOf('## Errors', 'status').flatMap(([status, codes]) =>
    namesIn(codes)
      .filter((code) => /^[a-z_]+$/.test(code))
      .map((code) => `${status} ${code}`),
  );

  test('the source has every code of the page', () => {
    const code = source('**/*.ts');
    expect(named.filter((one) => !code.includes(`'${one.split(' ')[1]}'`))).toEqual([]);
  });

  test('the page has every code that the source sends with a status of its own', () => {
    const code =
      source('{api-error,treadle-server}.ts') +
      source('{engine,history,http,requests,request}/*.ts') +
      source('apis/{completions,responses}/*.ts');
    const errors = [...code.matchAll(/new ApiError\(\s*(\d{3}),(?:(?!new ApiError)[^;])*?code: '(\w+)'/g)];
    const reported = [...code.matchAll(/\{\s*status: (\d{3}),\s+type: '\w+',\s+code: '(\w+)'/g)];
    expect(reported.length).toBeGreaterThan(5);
    const known = [...errors, ...reported].map(([, status, name]) => `${status} ${name}`);
    // 499: the client has disconnected. A reply that was filtered makes an incomplete response, not an error.
    const neverSent = ['499 cancelled', '400 content_filter'];
    expect([...new Set(known)].filter((one) => !neverSent.includes(one) && !named.includes(one))).toEqual([]);
  });
});

// ── Official clients ─────────────────────────────────────────────────────────────────────────────────────────────────

describe('official clients', () => {
  const token = (text: string): object => ({
    token: text,
    logprob: -1,
    bytes: [...Buffer.from(text)],
    top_logprobs: [],
  });
  const text = { ...TEXT, content: [{ type: 'output_text', text: 'Hello.', logprobs: [token('Hello.')] }] };
  const client = (): OpenAI => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
  const include = ['message.output_text.logprobs' as const];

  test('openai reads log probabilities of a response and of a stream, and the name of a refused setting', async () => {
    answers.push(responseWith(text), responseWith(text));
    const { output } = await client().responses.create({ model: 'responses', input: 'Hi', include });
    expect(output).toMatchObject([{ content: [{ logprobs: [token('Hello.')] }] }]);
    const stream = client().responses.stream({ model: 'responses', input: 'Hi', top_logprobs: 2 });
    expect((await stream.finalResponse()).output).toMatchObject([{ content: [{ logprobs: [token('Hello.')] }] }]);
    const refused = client().responses.create({ model: 'claude', input: 'Hi', service_tier: 'flex' });
    await expect(refused).rejects.toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'service_tier' });
  });

  test('the AI SDK gets log probabilities from both APIs', async () => {
    answers.push(responseWith(text));
    const openai = createOpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any' });
    const options = { prompt: 'Hi', providerOptions: { openai: { logprobs: 2 } } };
    const { providerMetadata: fromResponses } = await generateText({
      model: openai.responses('responses'),
      ...options,
    });
    expect(fromResponses?.['openai']?.['logprobs']).toMatchObject([[{ token: 'Hello.', logprob: -1 }]]);
    const choice = { index: 0, message: { content: 'Hello.' }, finish_reason: 'stop' };
    answers.push(Response.json({ choices: [{ ...choice, logprobs: { content: [token('Hello.')] } }] }));
    const { providerMetadata: fromChat } = await generateText({ model: openai.chat('chat'), ...options });
    expect(fromChat?.['openai']?.['logprobs']).toMatchObject([{ token: 'Hello.', logprob: -1 }]);
  });
});
