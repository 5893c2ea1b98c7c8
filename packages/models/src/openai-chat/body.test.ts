import {
  userText,
  type FileBlock,
  type ImageBlock,
  type Message,
  type ModelRequest,
  type ResultBlock,
} from '@treadle/core';
import { expect, test } from 'vitest';
import { bytesOf, read, readBody, request, shell } from '../../test/request.ts';
import { touches } from '../../test/touches.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true, maxTokensField: 'max_completion_tokens' });

function bodyOf(overrides: Partial<ModelRequest> = {}): Record<string, unknown> {
  return readBody(protocol.body(request(overrides)));
}

const messagesOf = (messages: readonly Message[]): unknown => bodyOf({ messages })['messages'];

test('writes the minimal request', () => {
  expect(bodyOf()).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    stream: true,
    stream_options: { include_usage: true },
  });
});

test('sends instructions as the system message, also when they change or are the only message', () => {
  const messages = [userText('hi')];
  expect(bodyOf({ messages, instructions: 'Be brief.' })['messages']).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hi' },
  ]);
  expect(bodyOf({ messages, instructions: 'Be long.' })['messages']).toMatchObject([{ content: 'Be long.' }, {}]);
  expect(bodyOf({ messages: [], instructions: 'Be brief.' })['messages']).toEqual([
    { role: 'system', content: 'Be brief.' },
  ]);
  expect(bodyOf({ messages: [] })['messages']).toEqual([]);
});

test('sends settings under the names of the API', () => {
  const settings = { temperature: 0, maxOutputTokens: 9, topP: 0.5, stop: ['\n'], seed: 7, reasoning: 'low' } as const;
  expect(bodyOf({ settings })).toMatchObject({
    temperature: 0,
    max_completion_tokens: 9,
    top_p: 0.5,
    stop: ['\n'],
    seed: 7,
    reasoning_effort: 'low',
  });
  const other = openaiChatProtocol({ model: 'm', stream: false, maxTokensField: 'max_tokens' });
  expect(readBody(other.body(request({ settings: { maxOutputTokens: 9 } })))).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    stream: false,
    max_tokens: 9,
  });
});

test('sends the schema of the answer as response_format', () => {
  const output = { type: 'object', properties: { total: { type: 'number' } } };
  expect(bodyOf({ output })['response_format']).toEqual({
    type: 'json_schema',
    json_schema: { name: 'answer', schema: output },
  });
});

// Seed 000, case 24.
test('writes an assistant message with tool calls', () => {
  expect(
    messagesOf([
      userText('hi'),
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'hmm' },
          { type: 'text', text: 'One moment.' },
          { type: 'tool-call', id: 'call_abc123', name: 'shell', arguments: '{"command": "ls -la /workspace"}' },
          { type: 'tool-call', id: 'call_2', name: 'shell', arguments: '{"command": broken' },
        ],
      },
    ]),
  ).toEqual([
    { role: 'user', content: 'hi' },
    {
      role: 'assistant',
      content: 'One moment.',
      tool_calls: [
        {
          id: 'call_abc123',
          type: 'function',
          function: { name: 'shell', arguments: '{"command": "ls -la /workspace"}' },
        },
        {
          id: 'call_2',
          type: 'function',
          function: { name: 'shell', arguments: String.raw`{"invalid_json":"{\"command\": broken"}` },
        },
      ],
    },
  ]);
  expect(
    messagesOf([{ role: 'assistant', content: [{ type: 'tool-call', id: 'c', name: 'now', arguments: '' }] }]),
  ).toEqual([
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } }],
    },
  ]);
  expect(messagesOf([{ role: 'assistant', content: [{ type: 'reasoning', text: 'hmm' }] }])).toEqual([
    { role: 'assistant', content: '' },
  ]);
});

// Seed 000, case 25.
test('writes a result as a message of role tool with tool_call_id and name', () => {
  expect(
    messagesOf([
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            callId: 'call_abc123',
            name: 'shell',
            content: [{ type: 'text', text: 'total 24' }],
            isError: false,
          },
          {
            type: 'tool-result',
            callId: 'call_2',
            name: 'shell',
            content: [{ type: 'error', text: 'no such command' }],
            isError: true,
          },
          {
            type: 'tool-result',
            callId: 'call_3',
            name: 'shell',
            content: [{ type: 'text', text: 'Error: already marked' }],
            isError: true,
          },
        ],
      },
    ]),
  ).toEqual([
    { role: 'tool', tool_call_id: 'call_abc123', name: 'shell', content: 'total 24' },
    { role: 'tool', tool_call_id: 'call_2', name: 'shell', content: 'Error: no such command' },
    { role: 'tool', tool_call_id: 'call_3', name: 'shell', content: 'Error: already marked' },
  ]);
});

// Seed 000, case 29.
test('wraps tools as functions', () => {
  expect(bodyOf({ tools: [shell] })).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    tools: [
      {
        type: 'function',
        function: { name: shell.name, description: shell.description, parameters: shell.parameters },
      },
    ],
    stream: true,
    stream_options: { include_usage: true },
  });
});

test('sends only name, description and parameters of a tool', () => {
  const facts = { ...shell, effect: 'once', exclusive: false };
  expect(bodyOf({ tools: [facts] })['tools']).toEqual(bodyOf({ tools: [shell] })['tools']);
});

test('sends the tool choice', () => {
  const choice = (overrides: Partial<ModelRequest>): unknown =>
    bodyOf({ tools: [shell, read], ...overrides })['tool_choice'];
  const subset = (mode: string): unknown => ({
    type: 'allowed_tools',
    allowed_tools: { mode, tools: [{ type: 'function', function: { name: 'read' } }] },
  });
  expect(choice({ toolChoice: 'auto' })).toBeUndefined();
  expect(choice({ toolChoice: 'required' })).toBe('required');
  expect(choice({ toolChoice: 'none' })).toBe('none');
  expect(choice({ toolChoice: { tool: 'read' } })).toEqual({ type: 'function', function: { name: 'read' } });
  expect(choice({ allowedTools: ['read', 'unknown'] })).toEqual(subset('auto'));
  expect(choice({ allowedTools: ['read'], toolChoice: 'required' })).toEqual(subset('required'));
  expect(choice({ allowedTools: ['read'], toolChoice: 'none' })).toBe('none');
  expect(choice({ allowedTools: ['shell', 'read'] })).toBeUndefined();
  expect(choice({ allowedTools: [] })).toBe('none');
  expect(choice({ tools: [], toolChoice: 'required' })).toBeUndefined();
});

test('disables parallel calls only if there are tools', () => {
  expect(bodyOf({ tools: [shell], parallel: false })).toMatchObject({ parallel_tool_calls: false });
  expect(bodyOf({ tools: [shell] })).not.toHaveProperty('parallel_tool_calls');
  expect(bodyOf({ parallel: false })).not.toHaveProperty('parallel_tool_calls');
});

test('sends images and files of the user', () => {
  expect(
    messagesOf([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'See' },
          { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
          { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://e.org/a.png' } },
          { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source: { type: 'data', data: 'BBBB' } },
        ],
      },
    ]),
  ).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'See' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        { type: 'image_url', image_url: { url: 'https://e.org/a.png' } },
        { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,BBBB' } },
      ],
    },
  ]);
});

test('sends images of results in a user message after all results', () => {
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
  expect(
    messagesOf([
      {
        role: 'tool',
        content: [
          { type: 'tool-result', callId: 'a', name: 'plot', content: [image], isError: false },
          { type: 'tool-result', callId: 'b', name: 'read', content: [{ type: 'text', text: 'ok' }], isError: false },
        ],
      },
    ]),
  ).toEqual([
    { role: 'tool', tool_call_id: 'a', name: 'plot', content: 'The result is attached to the next message.' },
    { role: 'tool', tool_call_id: 'b', name: 'read', content: 'ok' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Result of plot (a):' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
      ],
    },
  ]);
});

test('adds what a user says after such results to the same message: hosts reject two in a row', () => {
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
  const result = { type: 'tool-result', callId: 'a', name: 'plot', content: [image], isError: false } as const;
  const conversation: readonly Message[] = [
    { role: 'tool', content: [result] },
    { role: 'user', content: [{ type: 'text', text: 'And now?' }] },
    { role: 'assistant', content: [{ type: 'text', text: 'Yes.' }] },
    { role: 'tool', content: [result] },
    { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] },
  ];
  const parts = [
    { type: 'text', text: 'Result of plot (a):' },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
  ];
  const tool = {
    role: 'tool',
    tool_call_id: 'a',
    name: 'plot',
    content: 'The result is attached to the next message.',
  };
  expect(messagesOf(conversation)).toEqual([
    tool,
    { role: 'user', content: [...parts, { type: 'text', text: 'And now?' }] },
    { role: 'assistant', content: 'Yes.' },
    tool,
    { role: 'user', content: parts },
    { role: 'assistant', content: 'Done.' },
  ]);
});

test('replaces a file with a URL, which the API does not fetch, by a note', () => {
  const file: FileBlock = {
    type: 'file',
    mediaType: 'application/pdf',
    name: 'a.pdf',
    source: { type: 'url', url: 'https://x/a.pdf' },
  };
  const image: ImageBlock = { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://x/b.png' } };
  const note = '[A file that cannot be shown here: a.pdf, application/pdf, https://x/a.pdf]';
  const result = (...content: ResultBlock[]): Message => ({
    role: 'tool',
    content: [{ type: 'tool-result', callId: 'c', name: 'read', content, isError: false }],
  });
  const imagePart = { type: 'image_url', image_url: { url: 'https://x/b.png' } };
  expect(bodyOf({ messages: [{ role: 'user', content: [file, image] }] })['messages']).toEqual([
    { role: 'user', content: [{ type: 'text', text: note }, imagePart] },
  ]);
  expect(bodyOf({ messages: [result(file)] })['messages']).toEqual([
    { role: 'tool', tool_call_id: 'c', name: 'read', content: note },
  ]);
  expect(bodyOf({ messages: [result({ type: 'text', text: 'Two:' }, file, image)] })['messages']).toEqual([
    { role: 'tool', tool_call_id: 'c', name: 'read', content: `Two:\n${note}` },
    { role: 'user', content: [{ type: 'text', text: 'Result of read (c):' }, imagePart] },
  ]);
});

test('rewrites invalid tool names, the same for a call and its result', () => {
  const call = { type: 'tool-call', id: 'c', name: 'fs.read', arguments: '{}' } as const;
  const result = { type: 'tool-result', callId: 'c', name: 'fs.read', content: [], isError: false } as const;
  const messages: Message[] = [
    { role: 'assistant', content: [call, { ...call, name: '' }, { ...call, name: 'x'.repeat(70) }] },
    { role: 'tool', content: [result] },
  ];
  expect(bodyOf({ messages })['messages']).toMatchObject([
    {
      tool_calls: [
        { function: { name: 'fs_read' } },
        { function: { name: 'unknown' } },
        { function: { name: 'x'.repeat(64) } },
      ],
    },
    { name: 'fs_read' },
  ]);
});

test('replaces a lone surrogate, which the JSON parsers of providers reject', () => {
  const raw = Buffer.from(
    bytesOf(protocol.body(request({ messages: [userText('a\ud83d')], instructions: '\udc00' }))),
  ).toString();
  expect(raw).not.toMatch(/\\ud/i);
  expect(messagesOf([userText('a\ud83d')])).toEqual([{ role: 'user', content: 'a\uFFFD' }]);
  const tools = [{ ...shell, description: '\ud83d' }];
  expect(bodyOf({ tools, settings: { stop: ['\ud83d'] } })).toMatchObject({
    tools: [{ function: { description: '\uFFFD' } }],
    stop: ['\uFFFD'],
  });
});

test('serialises only new messages in a turn, and neither earlier messages nor tools', () => {
  const touched = touches();
  const tools = [touched.spied(shell)];
  const messages: Message[] = [touched.spied(userText('hi'))];
  protocol.body(request({ messages, tools, instructions: 'Be brief.' }));
  expect(touched.count).toBeGreaterThan(0);

  for (let turn = 0; turn < 500; turn++) {
    touched.count = 0;
    const call = { type: 'tool-call', id: `c${turn}`, name: 'shell', arguments: '{}' } as const;
    messages.push({ role: 'assistant', content: [call] });
    messages.push({
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: call.id,
          name: 'shell',
          content: [{ type: 'text', text: 'ok' }],
          isError: false,
        },
      ],
    });
    protocol.body(request({ messages, tools, instructions: 'Be brief.' }));
    expect(touched.count).toBe(0);
  }
  expect(bodyOf({ messages: [...messages] })['messages']).toHaveLength(1001);
});

test('replaces a call id that is too long for the API, the same for a call and its result', () => {
  const id = 'toolu_'.repeat(10);
  const [, assistant, result] = messagesOf([
    userText('hi'),
    { role: 'assistant', content: [{ type: 'tool-call', id, name: 'f', arguments: '{}' }] },
    { role: 'tool', content: [{ type: 'tool-result', callId: id, name: 'f', content: [], isError: false }] },
  ]) as [unknown, { tool_calls: { id: string }[] }, { tool_call_id: string }];
  expect(assistant.tool_calls[0]!.id).toMatch(/^\w{40}$/);
  expect(result.tool_call_id).toBe(assistant.tool_calls[0]!.id);
});

test('sends tools that take a text, their calls and a forced choice in the form of OpenAI', () => {
  const format = { type: 'grammar', syntax: 'lark', definition: 'start: "a"' };
  const patch = { ...shell, name: 'patch', custom: { description: 'Edits.', format } };
  const called = { type: 'tool-call', id: 'c1', name: 'patch', arguments: '{"input":"a\\n"}', custom: true } as const;
  const messages: Message[] = [userText('hi'), { role: 'assistant', content: [called] }];
  const native = openaiChatProtocol({ model: 'm', stream: true, customTools: true });
  const asked = request({ messages, tools: [patch], toolChoice: { tool: 'patch' } });
  const grammar = { syntax: 'lark', definition: 'start: "a"' };
  expect(readBody(native.body(asked))).toMatchObject({
    tools: [{ type: 'custom', custom: { name: 'patch', description: 'Edits.', format: { type: 'grammar', grammar } } }],
    tool_choice: { type: 'custom', custom: { name: 'patch' } },
    messages: [{}, { tool_calls: [{ id: 'c1', type: 'custom', custom: { name: 'patch', input: 'a\n' } }] }],
  });
  expect(readBody(protocol.body(asked))).toMatchObject({
    tools: [{ type: 'function', function: { name: 'patch', description: shell.description } }],
    tool_choice: { type: 'function', function: { name: 'patch' } },
    messages: [{}, { tool_calls: [{ type: 'function', function: { arguments: '{"input":"a\\n"}' } }] }],
  });
});
