import { userText, type Message, type ModelRequest, type ToolResult, type ToolSpec } from '@treadle/core';
import type { ChatRequest, Message as OllamaMessage, ToolCall } from 'ollama';
import { expect, test } from 'vitest';
import { bytesOf, read, readBody, request, shell } from '../../test/request.ts';
import { touches } from '../../test/touches.ts';
import type { OllamaBody } from './body.ts';
import { ollamaProtocol } from './ollama.ts';

/** The types of the package, extended by what newer servers accept. */
interface WireCall extends ToolCall {
  readonly id?: string;
}
interface WireMessage extends OllamaMessage {
  tool_calls?: WireCall[];
  tool_call_id?: string;
}
interface WireRequest extends ChatRequest {
  messages: WireMessage[];
  truncate: boolean;
  shift: boolean;
}

const wireOf = ({ name, description, parameters }: ToolSpec): unknown => ({
  type: 'function',
  function: { name, description, parameters },
});

function bodyOf(overrides: Partial<ModelRequest> = {}, options: Partial<OllamaBody> = {}): Record<string, unknown> {
  const protocol = ollamaProtocol({ model: 'qwen3', stream: true, ...options });
  return readBody(protocol.body(request(overrides)));
}

const messagesOf = (messages: readonly Message[]): unknown => bodyOf({ messages })['messages'];
const result = (content: ToolResult['content'], overrides: Partial<ToolResult> = {}): ToolResult => ({
  type: 'tool-result',
  callId: 'a',
  name: 'plot',
  content,
  isError: false,
  ...overrides,
});
const picture = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
const distant = {
  type: 'image',
  mediaType: 'image/png',
  source: { type: 'url', url: 'https://e.org/a.png' },
} as const;
const report = {
  type: 'file',
  mediaType: 'application/pdf',
  name: 'a.pdf',
  source: { type: 'data', data: 'BBBB' },
} as const;

test('writes the minimal request', () => {
  expect(bodyOf()).toEqual({
    model: 'qwen3',
    messages: [{ role: 'user', content: 'hi' }],
    stream: true,
    truncate: false,
    shift: false,
    options: {},
  } satisfies WireRequest);
  expect(bodyOf({}, { stream: false })['stream']).toBe(false);
  expect(bodyOf({ messages: [] })['messages']).toEqual([]);
});

// Seed 000, case 23.
test('writes a conversation with calls and all settings, in the types of the official package', () => {
  const messages: Message[] = [
    { role: 'user', content: [{ type: 'text', text: 'Plot it' }, picture] },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'First ', signature: 'proof', protocol: 'anthropic' },
        { type: 'reasoning', text: 'a plot.' },
        { type: 'text', text: 'One moment.' },
        { type: 'tool-call', id: 'a', name: 'plot', arguments: '{"points": [1, 12345678901234567890]}' },
        { type: 'tool-call', id: 'b', name: 'read', arguments: '' },
      ],
    },
    {
      role: 'tool',
      content: [
        result([{ type: 'text', text: 'ok' }, picture]),
        result([{ type: 'error', text: 'no such file' }], { callId: 'b', name: 'read', isError: true }),
      ],
    },
    { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] },
  ];
  const overrides: Partial<ModelRequest> = {
    messages,
    instructions: 'Be brief.',
    tools: [shell],
    settings: { temperature: 0, maxOutputTokens: 9, topP: 0.5, stop: ['\n'], seed: 7, reasoning: 'low' },
  };
  expect(bodyOf(overrides, { contextTokens: 32_768, keepAlive: '10m' })).toEqual({
    model: 'qwen3',
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Plot it', images: ['AAAA'] },
      {
        role: 'assistant',
        content: 'One moment.',
        thinking: 'First a plot.',
        tool_calls: [
          { id: 'a', function: { name: 'plot', arguments: { points: [1, Number('12345678901234567890')] } } },
          { id: 'b', function: { name: 'read', arguments: {} } },
        ],
      },
      { role: 'tool', tool_name: 'plot', tool_call_id: 'a', content: 'ok' },
      { role: 'tool', tool_name: 'read', tool_call_id: 'b', content: 'Error: no such file' },
      { role: 'user', content: 'Result of plot (a):', images: ['AAAA'] },
      { role: 'assistant', content: 'Done.' },
    ],
    tools: [
      {
        type: 'function',
        function: {
          name: 'shell',
          description: 'Run a shell command and return its output',
          parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
        },
      },
    ],
    stream: true,
    truncate: false,
    shift: false,
    think: true,
    keep_alive: '10m',
    options: { temperature: 0, num_predict: 9, top_p: 0.5, stop: ['\n'], seed: 7, num_ctx: 32_768 },
  } satisfies WireRequest);
});

// Seed 000, case 28.
test('sends tools if there are some', () => {
  const tools = [{ name: 'read', description: 'Reads a file', parameters: { type: 'object', properties: {} } }];
  expect(bodyOf({ tools })['tools']).toEqual([{ type: 'function', function: tools[0] }]);
  expect(bodyOf()).not.toHaveProperty('tools');
});

test('sends levels of thinking to gpt-oss only, and the option if the settings have none', () => {
  const think = (model: string, reasoning?: 'high', think?: OllamaBody['think']): unknown =>
    bodyOf(reasoning === undefined ? {} : { settings: { reasoning } }, { model, think })['think'];
  expect(think('qwen3')).toBeUndefined();
  expect(think('qwen3', 'high')).toBe(true);
  expect(think('gpt-oss:120b-cloud', 'high')).toBe('high');
  expect(think('qwen3', undefined, false)).toBe(false);
  expect(think('qwen3', 'high', false)).toBe(true);
  expect(think('gpt-oss', undefined, 'low')).toBe('low');
});

test('omits tools that the tool choice excludes', () => {
  const tools = (overrides: Partial<ModelRequest>): unknown => bodyOf({ tools: [shell, read], ...overrides })['tools'];
  const both = [wireOf(shell), wireOf(read)];
  expect(tools({ toolChoice: 'auto' })).toEqual(both);
  expect(tools({ toolChoice: 'required' })).toEqual(both);
  expect(tools({ toolChoice: 'none' })).toBeUndefined();
  expect(tools({ toolChoice: { tool: 'read' } })).toEqual([wireOf(read)]);
  expect(tools({ allowedTools: ['read', 'unknown'] })).toEqual([wireOf(read)]);
  expect(tools({ allowedTools: ['read'], toolChoice: 'required' })).toEqual([wireOf(read)]);
  expect(tools({ allowedTools: [] })).toBeUndefined();
  expect(bodyOf({ tools: [shell], parallel: false })).toEqual(bodyOf({ tools: [shell] }));
});

test('describes the schema of the answer, and enforces it if no tool can be called', () => {
  const output = { type: 'object', properties: { total: { type: 'number' } } };
  const description = `Give the final answer as JSON alone, without other words, that fits this JSON Schema:\n${JSON.stringify(output)}`;
  const messages = [userText('hi')];
  expect(bodyOf({ messages, output })).toMatchObject({
    messages: [{ role: 'system', content: description }, { role: 'user' }],
    format: output,
  });
  expect(bodyOf({ messages, output, instructions: 'Be brief.', tools: [shell] })).toMatchObject({
    messages: [{ role: 'system', content: `Be brief.\n\n${description}` }, { role: 'user' }],
  });
  expect(bodyOf({ output, tools: [shell] })).not.toHaveProperty('format');
  expect(bodyOf({ output, tools: [shell], toolChoice: 'none' })).toMatchObject({ format: output });
  expect(bodyOf({ messages, instructions: 'Be brief.' })['messages']).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hi' },
  ]);
});

test('replaces what the API does not support by notes', () => {
  expect(
    messagesOf([
      { role: 'user', content: [{ type: 'text', text: 'See' }, distant, report, picture] },
      { role: 'user', content: [picture] },
      { role: 'tool', content: [result([picture]), result([distant], { isError: true }), result([])] },
    ]),
  ).toEqual([
    {
      role: 'user',
      content: [
        'See',
        '[An image that cannot be shown here: image/png, https://e.org/a.png]',
        '[A file that cannot be shown here: a.pdf, application/pdf]',
      ].join('\n'),
      images: ['AAAA'],
    },
    { role: 'user', content: '', images: ['AAAA'] },
    { role: 'tool', tool_name: 'plot', tool_call_id: 'a', content: 'The result is attached to a later message.' },
    {
      role: 'tool',
      tool_name: 'plot',
      tool_call_id: 'a',
      content: 'Error: [An image that cannot be shown here: image/png, https://e.org/a.png]',
    },
    { role: 'tool', tool_name: 'plot', tool_call_id: 'a', content: '' },
    { role: 'user', content: 'Result of plot (a):', images: ['AAAA'] },
  ]);
});

test('wraps arguments that are not an object', () => {
  const calls = ['{"a": broken', '[1]', 'null', '"x"', ' ', '{"a":"\\u00e9"}'].map((json, n) => ({
    type: 'tool-call' as const,
    id: `c${n}`,
    name: 'f',
    arguments: json,
  }));
  expect(messagesOf([{ role: 'assistant', content: calls }])).toEqual([
    {
      role: 'assistant',
      content: '',
      tool_calls: [
        { id: 'c0', function: { name: 'f', arguments: { invalid_json: '{"a": broken' } } },
        { id: 'c1', function: { name: 'f', arguments: { invalid_json: '[1]' } } },
        { id: 'c2', function: { name: 'f', arguments: { invalid_json: 'null' } } },
        { id: 'c3', function: { name: 'f', arguments: { invalid_json: '"x"' } } },
        { id: 'c4', function: { name: 'f', arguments: {} } },
        { id: 'c5', function: { name: 'f', arguments: { a: 'é' } } },
      ],
    },
  ]);
});

test('rewrites invalid tool names, the same for a call and its result', () => {
  const call = { type: 'tool-call', id: 'c', name: 'fs.read', arguments: '{}' } as const;
  const result = { type: 'tool-result', callId: 'c', name: 'fs.read', content: [], isError: false } as const;
  expect(
    messagesOf([
      { role: 'assistant', content: [call, { ...call, name: '' }, { ...call, name: 'x'.repeat(70) }] },
      { role: 'tool', content: [result] },
    ]),
  ).toMatchObject([
    {
      tool_calls: [
        { function: { name: 'fs_read' } },
        { function: { name: 'unknown' } },
        { function: { name: 'x'.repeat(64) } },
      ],
    },
    { tool_name: 'fs_read' },
  ]);
});

test('replaces a lone surrogate, which the JSON parsers of providers reject', () => {
  const messages: Message[] = [
    userText('a\ud83d'),
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: '\ud83d' },
        { type: 'text', text: '\udc00' },
        { type: 'tool-call', id: 'a', name: 'f', arguments: '{"a":"\ud83d"}' },
        { type: 'tool-call', id: 'b', name: 'f', arguments: '{"a":"\ud83d' },
      ],
    },
    { role: 'tool', content: [result([{ type: 'text', text: '\udc00' }])] },
  ];
  const protocol = ollamaProtocol({ model: 'm', stream: true });
  const raw = Buffer.from(bytesOf(protocol.body(request({ messages, instructions: '\udc00' })))).toString();
  expect(raw).not.toMatch(/\\ud/i);
  expect(messagesOf([userText('a\ud83d')])).toEqual([{ role: 'user', content: 'a\uFFFD' }]);
});

test('serialises only new messages in a turn, and neither earlier messages nor tools', () => {
  const touched = touches();
  const protocol = ollamaProtocol({ model: 'm', stream: true });
  const tools = [touched.spied(shell)];
  const messages: Message[] = [touched.spied(userText('hi'))];
  protocol.body(request({ messages, tools, instructions: 'Be brief.' }));
  expect(touched.count).toBeGreaterThan(0);
  for (let turn = 0; turn < 100; turn++) {
    touched.count = 0;
    messages.push({
      role: 'assistant',
      content: [{ type: 'tool-call', id: `c${turn}`, name: 'shell', arguments: '{}' }],
    });
    messages.push({ role: 'tool', content: [result([{ type: 'text', text: 'ok' }], { callId: `c${turn}` })] });
    protocol.body(request({ messages, tools, instructions: 'Be brief.' }));
    expect(touched.count).toBe(0);
  }
  expect(bodyOf({ messages: [...messages] })['messages']).toHaveLength(201);
});
