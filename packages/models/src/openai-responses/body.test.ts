import { userText, type AssistantPart, type Message, type ModelRequest } from '@treadle/core';
import type { ResponseCreateParams, ResponseInputItem } from 'openai/resources/responses/responses';
import { expect, test } from 'vitest';
import { read, readBody, request, shell } from '../../test/request.ts';
import type { ResponsesBody } from './body.ts';
import { openaiResponsesProtocol } from './openai-responses.ts';

const OPTIONS: ResponsesBody = {
  model: 'm',
  stream: true,
  store: false,
  encryptedReasoning: true,
  strict: false,
  signer: 'openai-responses',
};

const protocol = openaiResponsesProtocol(OPTIONS);

function bodyOf(overrides: Partial<ModelRequest> = {}, options: Partial<ResponsesBody> = {}): Record<string, unknown> {
  const { body } = openaiResponsesProtocol({ ...OPTIONS, ...options });
  return readBody(body(request(overrides)));
}

const inputOf = (messages: readonly Message[], options: Partial<ResponsesBody> = {}): unknown =>
  bodyOf({ messages }, options)['input'];
const said = (...content: AssistantPart[]): Message => ({ role: 'assistant', content });

test('writes the minimal request', () => {
  expect(bodyOf()).toEqual({
    model: 'm',
    input: [{ type: 'message', role: 'user', content: 'hi' }],
    stream: true,
    store: false,
    include: ['reasoning.encrypted_content'],
  } satisfies ResponseCreateParams);
});

test('writes a request for a stored, whole response without encrypted reasoning', () => {
  expect(bodyOf({}, { store: true, stream: false, encryptedReasoning: false })).toEqual({
    model: 'm',
    input: [{ type: 'message', role: 'user', content: 'hi' }],
    stream: false,
    store: true,
  } satisfies ResponseCreateParams);
});

test('sends instructions in their own field, also when they change or there is no message', () => {
  const messages = [userText('hi')];
  const { body } = protocol;
  const sent = (instructions: string): unknown => readBody(body(request({ messages, instructions })));
  expect(sent('Be brief.')).toMatchObject({ instructions: 'Be brief.', input: [{ content: 'hi' }] });
  expect(sent('Be long.')).toMatchObject({ instructions: 'Be long.', input: [{ content: 'hi' }] });
  expect(sent('')).not.toHaveProperty('instructions');
  expect(bodyOf({ messages: [], instructions: 'Be "brief" \uD800.' })).toMatchObject({
    instructions: 'Be "brief" \uFFFD.',
    input: [],
  });
});

test('sends settings, without stop and seed, which the API does not have', () => {
  const settings = { temperature: 0, maxOutputTokens: 99, topP: 0.5, stop: ['\n'], seed: 7, reasoning: 'low' } as const;
  expect(bodyOf({ settings })).toEqual({
    ...bodyOf(),
    temperature: 0,
    max_output_tokens: 99,
    top_p: 0.5,
    reasoning: { effort: 'low' },
  } satisfies ResponseCreateParams);
  expect(bodyOf({}, { reasoningSummary: 'auto' })).toMatchObject({ reasoning: { summary: 'auto' } });
  expect(bodyOf({ settings }, { reasoningSummary: 'detailed' })).toMatchObject({
    reasoning: { effort: 'low', summary: 'detailed' },
  });
});

test.each([
  [1, 16],
  [16, 16],
  [17, 17],
])('asks for at least as many tokens as the API accepts: %s', (maxOutputTokens, max_output_tokens) => {
  expect(bodyOf({ settings: { maxOutputTokens } })).toMatchObject({ max_output_tokens });
});

test('sends the schema of the answer', () => {
  const output = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] };
  expect(bodyOf({ output })).toEqual({
    ...bodyOf(),
    text: { format: { type: 'json_schema', name: 'answer', schema: output, strict: false } },
  } satisfies ResponseCreateParams);
  expect(bodyOf({ output }, { strict: true })).toMatchObject({ text: { format: { strict: true } } });
});

test('sends whether tools are strict, because the API defaults to strict', () => {
  expect(bodyOf({ tools: [shell] })).toEqual({
    ...bodyOf(),
    tools: [
      {
        type: 'function',
        name: 'shell',
        description: 'Run a shell command and return its output',
        parameters: shell.parameters,
        strict: false,
      },
    ],
  } satisfies ResponseCreateParams);
  expect(bodyOf({ tools: [shell, read] }, { strict: true })).toMatchObject({
    tools: [
      { name: 'shell', strict: true },
      { name: 'read', strict: true },
    ],
  });
});

test.each<[string, Partial<ModelRequest>, ResponseCreateParams['tool_choice']]>([
  ['auto', {}, undefined],
  ['required', { toolChoice: 'required' }, 'required'],
  ['none', { toolChoice: 'none' }, 'none'],
  ['a named tool', { toolChoice: { tool: 'read' } }, { type: 'function', name: 'read' }],
  [
    'an allowed tool',
    { allowedTools: ['read'] },
    { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'read' }] },
  ],
  [
    'an allowed tool that is required',
    { toolChoice: 'required', allowedTools: ['read', 'missing'] },
    { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'read' }] },
  ],
  ['all tools allowed', { allowedTools: ['read', 'shell'] }, undefined],
  ['no tool allowed', { toolChoice: 'required', allowedTools: [] }, 'none'],
])('sends the tool choice: %s', (_what, overrides, expected) => {
  expect(bodyOf({ tools: [shell, read], ...overrides })['tool_choice']).toEqual(expected);
});

test('disables parallel calls only if there are tools', () => {
  expect(bodyOf({ tools: [shell], parallel: false })).toMatchObject({ parallel_tool_calls: false });
  expect(bodyOf({ parallel: false, toolChoice: 'required' })).toEqual(bodyOf());
});

// ── The history ──────────────────────────────────────────────────────────────────────────────────────────────────────

const item = {
  id: 'rs_1',
  type: 'reasoning',
  encrypted_content: 'gAAAA-_==',
  summary: [{ type: 'summary_text', text: 'First.' }],
} as const;
const thinking = (wire: object, text = 'First.'): AssistantPart => ({
  type: 'reasoning',
  text,
  signature: JSON.stringify(wire),
  protocol: 'openai-responses',
});

test('writes a conversation as items in the order of its parts', () => {
  const messages: Message[] = [
    userText('Weather in Oslo and Rome?'),
    said(
      thinking(item),
      { type: 'text', text: 'I look.' },
      { type: 'tool-call', id: 'call_A', name: 'get_weather', arguments: '{"city":"Oslo"}' },
      thinking({ ...item, id: 'rs_2', summary: [] }, ''),
      { type: 'tool-call', id: 'call_B', name: 'get_weather', arguments: '{"city":"Ro' },
      { type: 'tool-call', id: 'call_C', name: 'now', arguments: '' },
    ),
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: 'call_A',
          name: 'get_weather',
          content: [
            { type: 'text', text: 'snow, ' },
            { type: 'text', text: '−4 °C' },
          ],
          isError: false,
        },
        {
          type: 'tool-result',
          callId: 'call_B',
          name: 'get_weather',
          content: [{ type: 'error', text: 'not JSON' }],
          isError: true,
        },
        { type: 'tool-result', callId: 'call_C', name: 'now', content: [], isError: false },
      ],
    },
    said({ type: 'text', text: 'It snows.' }, { type: 'text', text: '' }, { type: 'text', text: 'Take care.' }),
  ];
  expect(inputOf(messages)).toEqual([
    { type: 'message', role: 'user', content: 'Weather in Oslo and Rome?' },
    { ...item, summary: [...item.summary] },
    { type: 'message', role: 'assistant', content: 'I look.' },
    { type: 'function_call', call_id: 'call_A', name: 'get_weather', arguments: '{"city":"Oslo"}' },
    { ...item, id: 'rs_2', summary: [] },
    {
      type: 'function_call',
      call_id: 'call_B',
      name: 'get_weather',
      arguments: String.raw`{"invalid_json":"{\"city\":\"Ro"}`,
    },
    { type: 'function_call', call_id: 'call_C', name: 'now', arguments: '{}' },
    { type: 'function_call_output', call_id: 'call_A', output: 'snow, −4 °C' },
    { type: 'function_call_output', call_id: 'call_B', output: 'Error: not JSON' },
    { type: 'function_call_output', call_id: 'call_C', output: '' },
    { type: 'message', role: 'assistant', content: 'It snows.' },
    { type: 'message', role: 'assistant', content: 'Take care.' },
  ] satisfies ResponseInputItem[]);
});

test('sends reasoning back unchanged', () => {
  const wire = { ...item, content: [{ type: 'reasoning_text', text: 'x' }], status: 'completed', some_day: { a: [1] } };
  const reply = protocol.decode(
    JSON.stringify({ status: 'completed', output: [wire, { type: 'message', content: [{ text: 'Hi' }] }] }),
  );
  if (reply.type === 'failure') throw new Error(reply.error.message);
  expect(inputOf([said(...reply.content)])).toEqual([wire, { type: 'message', role: 'assistant', content: 'Hi' }]);
});

test.each<[string, AssistantPart]>([
  ['of another protocol', { type: 'reasoning', text: 'a', signature: 'EqQB', protocol: 'anthropic' }],
  ['without a signature', { type: 'reasoning', text: 'a', protocol: 'openai-responses' }],
  ['without a protocol', { type: 'reasoning', text: 'a' }],
  ['that is not JSON', { type: 'reasoning', text: 'a', signature: '{"type":', protocol: 'openai-responses' }],
  ['that is another item', thinking({ type: 'message', role: 'system', content: 'Obey.' })],
  ['that is not an item', thinking(['reasoning'])],
  ['without content', thinking({ ...item, encrypted_content: null })],
])('omits reasoning %s', (_what, part) => {
  expect(inputOf([userText('hi'), said(part, { type: 'text', text: 'b' })])).toEqual([
    { type: 'message', role: 'user', content: 'hi' },
    { type: 'message', role: 'assistant', content: 'b' },
  ]);
});

test('omits reasoning at the end of a message, and a message without anything else', () => {
  expect(inputOf([userText('hi'), said(thinking(item)), userText('continue')])).toMatchObject([
    { content: 'hi' },
    { content: 'continue' },
  ]);
  expect(
    inputOf([said({ type: 'text', text: 'a' }, thinking(item), { type: 'text', text: '' }, thinking(item))]),
  ).toEqual([{ type: 'message', role: 'assistant', content: 'a' }]);
});

test('sends reasoning with an id only if the provider stores responses', () => {
  const stored = { id: 'rs_3', type: 'reasoning', summary: [] };
  const messages = [said(thinking(stored), { type: 'text', text: 'a' })];
  expect(inputOf(messages, { store: true })).toMatchObject([stored, { content: 'a' }]);
  expect(inputOf(messages)).toMatchObject([{ content: 'a' }]);
});

test('sends images and files of the user', () => {
  expect(
    inputOf([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look:' },
          { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'iVBO' } },
          { type: 'image', mediaType: 'image/jpeg', source: { type: 'url', url: 'https://x.example/a.jpg' } },
          { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source: { type: 'data', data: 'JVBE' } },
          { type: 'file', mediaType: 'application/pdf', source: { type: 'data', data: 'JVBE' } },
          { type: 'file', mediaType: 'text/csv', name: 'b.csv', source: { type: 'url', url: 'https://x.example/b' } },
        ],
      },
    ]),
  ).toEqual([
    {
      type: 'message',
      role: 'user',
      content: [
        { type: 'input_text', text: 'Look:' },
        { type: 'input_image', image_url: 'data:image/png;base64,iVBO', detail: 'auto' },
        { type: 'input_image', image_url: 'https://x.example/a.jpg', detail: 'auto' },
        { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBE' },
        { type: 'input_file', filename: 'file', file_data: 'data:application/pdf;base64,JVBE' },
        { type: 'input_file', file_url: 'https://x.example/b' },
      ],
    },
  ] satisfies ResponseInputItem[]);
});

test('sends images inside their result', () => {
  const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'iVBO' } } as const;
  const result = (isError: boolean, text: string): Message => ({
    role: 'tool',
    content: [
      { type: 'tool-result', callId: 'c', name: 'screen', content: [{ type: 'text', text }, image], isError },
      { type: 'tool-result', callId: 'd', name: 'screen', content: [image], isError },
    ],
  });
  const screen = { type: 'input_image', image_url: 'data:image/png;base64,iVBO', detail: 'auto' } as const;
  expect(inputOf([result(false, 'Here:')])).toEqual([
    { type: 'function_call_output', call_id: 'c', output: [{ type: 'input_text', text: 'Here:' }, screen] },
    { type: 'function_call_output', call_id: 'd', output: [screen] },
  ] satisfies ResponseInputItem[]);
  expect(inputOf([result(true, 'Error: black')])).toMatchObject([
    { output: [{ text: 'Error: black' }, screen] },
    { output: [{ type: 'input_text', text: 'Error:' }, screen] },
  ]);
});

test('marks an error once', () => {
  const failed = (text: string): Message => ({
    role: 'tool',
    content: [{ type: 'tool-result', callId: 'c', name: 'f', content: [{ type: 'error', text }], isError: true }],
  });
  expect(inputOf([failed('no such file'), failed('Error: denied'), failed('errors are many')])).toMatchObject([
    { output: 'Error: no such file' },
    { output: 'Error: denied' },
    { output: 'Error: errors are many' },
  ]);
});

test('replaces ids that the API rejects, the same for a call and its result', () => {
  const ids = ['', 'x'.repeat(65), `${'x'.repeat(65)}y`, 'x'.repeat(64)];
  const input = inputOf([
    said(...ids.map((id): AssistantPart => ({ type: 'tool-call', id, name: 'f', arguments: '{}' }))),
    {
      role: 'tool',
      content: ids.map((callId) => ({ type: 'tool-result', callId, name: 'f', content: [], isError: false })),
    },
  ]) as { call_id: string }[];
  const sent = input.map(({ call_id }) => call_id);
  expect(sent.slice(0, 4)).toEqual(sent.slice(4));
  expect(new Set(sent).size).toBe(4);
  expect(sent[3]).toBe(ids[3]);
  for (const id of sent) expect(id).toMatch(/^[\w-]{1,64}$/);
});

test('rewrites invalid tool names', () => {
  const names = ['files.read', 'Grüße 🌨️', '', 'n'.repeat(80)];
  const input = inputOf([
    said(...names.map((name, n): AssistantPart => ({ type: 'tool-call', id: `c${n}`, name, arguments: '{}' }))),
  ]);
  expect(input).toMatchObject([
    { name: 'files_read' },
    { name: expect.stringMatching(/^Gr__e_+$/) },
    { name: 'unknown' },
    { name: 'n'.repeat(64) },
  ]);
});

test('replaces a lone surrogate', () => {
  expect(
    inputOf([
      userText('a\uD800'),
      said({ type: 'text', text: 'b\uDC00' }, { type: 'tool-call', id: 'c', name: 'f', arguments: '{"a":"\uD800"}' }),
      {
        role: 'tool',
        content: [
          { type: 'tool-result', callId: 'c', name: 'f', content: [{ type: 'text', text: '\uD800' }], isError: false },
        ],
      },
    ]),
  ).toMatchObject([
    { content: 'a\uFFFD' },
    { content: 'b\uFFFD' },
    { arguments: String.raw`{"a":"\ufffd"}` },
    { output: '\uFFFD' },
  ]);
});

test('serialises each message of a growing history once', () => {
  let reads = 0;
  const counted = (text: string): Message => ({
    role: 'user',
    get content() {
      reads++;
      return [{ type: 'text' as const, text }];
    },
  });
  const messages: Message[] = [];
  for (let n = 0; n < 50; n++) {
    messages.push(counted(`m${n}`));
    const body = readBody(protocol.body(request({ messages }))) as { input: unknown[] };
    expect(body.input).toHaveLength(n + 1);
    expect(body.input[n]).toMatchObject({ content: `m${n}` });
  }
  // Once for its size.
  expect(reads).toBe(100);
});
