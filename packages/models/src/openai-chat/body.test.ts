import {
  userText,
  type FileBlock,
  type ImageBlock,
  type Message,
  type ModelRequest,
  type ResultBlock,
} from '@treadle/core';
import { expect, test } from 'vitest';
import { read, readBody, request, shell } from '../../test/request.ts';
import { touches } from '../../test/touches.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true, maxTokensField: 'max_completion_tokens' });

function bodyOf(given: Partial<ModelRequest> = {}): Record<string, unknown> {
  return readBody(protocol.body(request(given)));
}

const messagesOf = (messages: readonly Message[]): unknown => bodyOf({ messages })['messages'];

test('the least there is', () => {
  expect(bodyOf()).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    stream: true,
    stream_options: { include_usage: true },
  });
});

test('instructions are the system message, also when they change or there is no other message', () => {
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

test('settings', () => {
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
  expect(JSON.parse(Buffer.from(other.body(request({ settings: { maxOutputTokens: 9 } }))).toString())).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    stream: false,
    max_tokens: 9,
  });
});

test('the form of the answer', () => {
  const output = { type: 'object', properties: { total: { type: 'number' } } };
  expect(bodyOf({ output })['response_format']).toEqual({
    type: 'json_schema',
    json_schema: { name: 'answer', schema: output },
  });
});

test('seed 000 case 24: an assistant message with tool calls', () => {
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
        { id: 'call_2', type: 'function', function: { name: 'shell', arguments: '{"command": broken' } },
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

test('seed 000 case 25: a result is a message of role tool with tool_call_id and name', () => {
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
            content: [{ type: 'text', text: 'Error: said so already' }],
            isError: true,
          },
        ],
      },
    ]),
  ).toEqual([
    { role: 'tool', tool_call_id: 'call_abc123', name: 'shell', content: 'total 24' },
    { role: 'tool', tool_call_id: 'call_2', name: 'shell', content: 'Error: no such command' },
    { role: 'tool', tool_call_id: 'call_3', name: 'shell', content: 'Error: said so already' },
  ]);
});

test('seed 000 case 29: tools are wrapped as functions', () => {
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

test('only what belongs to a tool is sent of it', () => {
  const facts = { ...shell, effect: 'once', exclusive: false };
  expect(bodyOf({ tools: [facts] })['tools']).toEqual(bodyOf({ tools: [shell] })['tools']);
});

test('tool choice', () => {
  const choice = (given: Partial<ModelRequest>): unknown => bodyOf({ tools: [shell, read], ...given })['tool_choice'];
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

test('one call at a time is asked for only where there are tools', () => {
  expect(bodyOf({ tools: [shell], parallel: false })).toMatchObject({ parallel_tool_calls: false });
  expect(bodyOf({ tools: [shell] })).not.toHaveProperty('parallel_tool_calls');
  expect(bodyOf({ parallel: false })).not.toHaveProperty('parallel_tool_calls');
});

test('images and files of the user', () => {
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

test('an image in a result follows all results in a message of the user', () => {
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

test('a file that lies elsewhere, which the API does not fetch, is told of in words', () => {
  const file: FileBlock = {
    type: 'file',
    mediaType: 'application/pdf',
    name: 'a.pdf',
    source: { type: 'url', url: 'https://x/a.pdf' },
  };
  const image: ImageBlock = { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://x/b.png' } };
  const words = '[A file that cannot be shown here: a.pdf, application/pdf, https://x/a.pdf]';
  const result = (...content: ResultBlock[]): Message => ({
    role: 'tool',
    content: [{ type: 'tool-result', callId: 'c', name: 'read', content, isError: false }],
  });
  const shown = { type: 'image_url', image_url: { url: 'https://x/b.png' } };
  expect(bodyOf({ messages: [{ role: 'user', content: [file, image] }] })['messages']).toEqual([
    { role: 'user', content: [{ type: 'text', text: words }, shown] },
  ]);
  expect(bodyOf({ messages: [result(file)] })['messages']).toEqual([
    { role: 'tool', tool_call_id: 'c', name: 'read', content: words },
  ]);
  expect(bodyOf({ messages: [result({ type: 'text', text: 'Two:' }, file, image)] })['messages']).toEqual([
    { role: 'tool', tool_call_id: 'c', name: 'read', content: `Two:\n${words}` },
    { role: 'user', content: [{ type: 'text', text: 'Result of read (c):' }, shown] },
  ]);
});

test('names that no tool can have are rewritten, for a call and its result alike', () => {
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

test('half a surrogate pair, which no JSON parser of a provider takes, is replaced', () => {
  const raw = Buffer.from(
    protocol.body(request({ messages: [userText('a\ud83d')], instructions: '\udc00' })),
  ).toString();
  expect(raw).not.toMatch(/\\ud/i);
  expect(messagesOf([userText('a\ud83d')])).toEqual([{ role: 'user', content: 'a\uFFFD' }]);
  const tools = [{ ...shell, description: '\ud83d' }];
  expect(bodyOf({ tools, settings: { stop: ['\ud83d'] } })).toMatchObject({
    tools: [{ function: { description: '\uFFFD' } }],
    stop: ['\uFFFD'],
  });
});

test('turn n serialises only what is new: no earlier message, no tool, no instructions are touched again', () => {
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

test('a call id that is too long for the API becomes a shorter one, the same for call and result', () => {
  const id = 'toolu_'.repeat(10);
  const [, assistant, result] = messagesOf([
    userText('hi'),
    { role: 'assistant', content: [{ type: 'tool-call', id, name: 'f', arguments: '{}' }] },
    { role: 'tool', content: [{ type: 'tool-result', callId: id, name: 'f', content: [], isError: false }] },
  ]) as [unknown, { tool_calls: { id: string }[] }, { tool_call_id: string }];
  expect(assistant.tool_calls[0]!.id).toMatch(/^\w{40}$/);
  expect(result.tool_call_id).toBe(assistant.tool_calls[0]!.id);
});
