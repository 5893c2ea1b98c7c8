import {
  userText,
  type AssistantPart,
  type Effort,
  type Message,
  type ModelRequest,
  type ToolResult,
} from '@treadle/core';
import { expect, test } from 'vitest';
import { call, text } from '../../test/parts.ts';
import { read, readBody, request, shell } from '../../test/request.ts';
import type { GoogleThinking } from './body.ts';
import { googleProtocol } from './google.ts';

const SIGNER = 'google@host';

function bodyOf(
  fields: Partial<ModelRequest>,
  thinking: GoogleThinking = 'level',
  model = 'm',
): Record<string, unknown> {
  return readBody(googleProtocol({ model, stream: true, thinking, signer: SIGNER }).body(request(fields)));
}

function contentsOf(messages: readonly Message[], thinking?: GoogleThinking): unknown {
  return bodyOf({ messages }, thinking)['contents'];
}

const user = (...parts: object[]): object => ({ role: 'user', parts });
const model = (...parts: object[]): object => ({ role: 'model', parts });
const said = (...content: AssistantPart[]): Message => ({ role: 'assistant', content });
const kept = (id: string, name: string, data: object): AssistantPart => ({
  ...call(id, name, '{"a":1}'),
  provider: { protocol: SIGNER, data },
});
const result = (callId: string, name: string, fields: Partial<ToolResult> = {}): ToolResult => ({
  type: 'tool-result',
  callId,
  name,
  content: [text('ok')],
  isError: false,
  ...fields,
});
const response = (name: string, fields: object = {}, returned: object = { output: 'ok' }): object => ({
  functionResponse: { name, response: returned, ...fields },
});

test('a request has instructions, tools and messages in the form of the API', () => {
  expect(bodyOf({ instructions: 'Be brief.', tools: [shell, read] })).toEqual({
    systemInstruction: { parts: [{ text: 'Be brief.' }] },
    generationConfig: { thinkingConfig: { includeThoughts: true } },
    tools: [
      {
        functionDeclarations: [shell, read].map(({ name, description, parameters }) => ({
          name,
          description,
          parametersJsonSchema: parameters,
        })),
      },
    ],
    contents: [user({ text: 'hi' })],
  });
});

test('calls and results have the ids and signatures that the provider gave them, on the same part', () => {
  const history: Message[] = [
    userText('Go.'),
    said(
      text('I go.'),
      kept('c1', 'read', { id: 'w1', thoughtSignature: 'S1' }),
      kept('call_t1_1', 'read', { id: 'w1' }),
    ),
    {
      role: 'tool',
      content: [
        result('c1', 'read'),
        result('call_t1_1', 'read', { isError: true, content: [{ type: 'error', text: 'no' }] }),
      ],
    },
    userText('And?'),
  ];
  expect(contentsOf(history)).toEqual([
    user({ text: 'Go.' }),
    model(
      { text: 'I go.' },
      { functionCall: { id: 'w1', name: 'read', args: { a: 1 } }, thoughtSignature: 'S1' },
      { functionCall: { id: 'w1', name: 'read', args: { a: 1 } } },
    ),
    user(response('read', { id: 'w1' }), response('read', { id: 'w1' }, { error: 'no' }), { text: 'And?' }),
  ]);
});

test('a call of another host has no id, and since Gemini 3 the mark that Google documents for it', () => {
  const foreign = {
    ...call('x', 'read', '{"a":1}'),
    provider: { protocol: 'google@elsewhere', data: { thoughtSignature: 'S' } },
  };
  const history: Message[] = [
    userText('Go.'),
    said(foreign, call('y', 'read', '{')),
    { role: 'tool', content: [result('x', 'read'), result('y', 'read')] },
  ];
  const contents = (mark: object): unknown => [
    user({ text: 'Go.' }),
    model(
      { functionCall: { name: 'read', args: { a: 1 } }, ...mark },
      { functionCall: { name: 'read', args: { invalid_json: '{' } } },
    ),
    user(response('read'), response('read')),
  ];
  expect(contentsOf(history)).toEqual(contents({ thoughtSignature: 'skip_thought_signature_validator' }));
  expect(contentsOf(history, 'budget')).toEqual(contents({}));
});

const reasoning = (signature: string, protocol = SIGNER, shown = ''): AssistantPart => ({
  type: 'reasoning',
  text: shown,
  signature,
  protocol,
});

test.each<[string, AssistantPart[], object[]]>([
  ['an unsigned thought', [{ type: 'reasoning', text: 'Hm.' }, text('Noon.')], [{ text: 'Noon.' }]],
  ['a thought of another host', [reasoning('S', 'google@elsewhere', 'Hm.'), text('Noon.')], [{ text: 'Noon.' }]],
  [
    'a signed thought',
    [reasoning('S', SIGNER, 'Hm.'), text('Noon.')],
    [{ text: 'Hm.', thought: true, thoughtSignature: 'S' }, { text: 'Noon.' }],
  ],
  ['a signed text', [text('Noon.'), reasoning('text:5:S')], [{ text: 'Noon.', thoughtSignature: 'S' }]],
  [
    'a text with a signed end',
    [text('It is noon.'), reasoning('text:5:S')],
    [{ text: 'It is ' }, { text: 'noon.', thoughtSignature: 'S' }],
  ],
  [
    'a text with a signed empty end',
    [text('Noon.'), reasoning('text:0:S')],
    [{ text: 'Noon.' }, { text: '', thoughtSignature: 'S' }],
  ],
  [
    'a signed empty text',
    [text('Noon.'), call('a', 'read', '{}'), reasoning('text:0:S')],
    [
      { text: 'Noon.' },
      { functionCall: { name: 'read', args: {} }, thoughtSignature: 'skip_thought_signature_validator' },
      { text: '', thoughtSignature: 'S' },
    ],
  ],
  [
    'an empty text',
    [text(''), reasoning('text:0:S'), text('Noon.')],
    [{ text: '', thoughtSignature: 'S' }, { text: 'Noon.' }],
  ],
  ['a signature of a text that was shortened', [text('No'), reasoning('text:5:S')], [{ text: 'No' }]],
])('returns %s as the API sent it, or not at all', (_name, parts, expected) => {
  expect(contentsOf([userText('When?'), said(...parts), userText('Sure?')])).toEqual([
    user({ text: 'When?' }),
    model(...expected),
    user({ text: 'Sure?' }),
  ]);
});

test('images and files are data or URLs, also those of results', () => {
  const png = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
  const history: Message[] = [
    {
      role: 'user',
      content: [
        png,
        { type: 'image', mediaType: 'image/jpg', source: { type: 'data', data: 'BBBB' } },
        { type: 'image', mediaType: 'image/*', source: { type: 'url', url: 'https://a.example/b' } },
        { type: 'file', mediaType: 'application/pdf', source: { type: 'url', url: 'https://a.example/c.pdf' } },
        { type: 'file', mediaType: 'application/octet-stream', name: 'd.bin', source: { type: 'data', data: 'CCCC' } },
      ],
    },
    said(call('x', 'read', '{}')),
    { role: 'tool', content: [result('x', 'read', { content: [text('See.'), png] })] },
  ];
  expect(contentsOf(history, 'none')).toEqual([
    user(
      { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
      { inlineData: { mimeType: 'image/jpeg', data: 'BBBB' } },
      { fileData: { fileUri: 'https://a.example/b' } },
      { fileData: { mimeType: 'application/pdf', fileUri: 'https://a.example/c.pdf' } },
      { text: '[A file that cannot be shown here: d.bin, application/octet-stream]' },
    ),
    model({ functionCall: { name: 'read', args: {} } }),
    user(
      response('read', {}, { output: 'See.' }),
      { text: 'Attached to the result of read:' },
      { inlineData: { mimeType: 'image/png', data: 'AAAA' } },
    ),
  ]);
});

test('a history that starts or ends with the model, or has an empty message, is completed', () => {
  expect(contentsOf([said(text('Hello'))])).toEqual([
    user({ text: '(The conversation begins here.)' }),
    model({ text: 'Hello' }),
    user({ text: 'Continue.' }),
  ]);
  expect(contentsOf([userText('')])).toEqual([user({ text: '(The user sent an empty message.)' })]);
});

const config = (mode: string, ...allowedFunctionNames: string[]): object => ({
  functionCallingConfig: { mode, ...(allowedFunctionNames.length > 0 && { allowedFunctionNames }) },
});

test.each<[Partial<ModelRequest>, unknown]>([
  [{ toolChoice: 'auto' }, undefined],
  [{ toolChoice: 'required' }, config('ANY')],
  [{ toolChoice: 'none' }, config('NONE')],
  [{ toolChoice: { tool: 'read' } }, config('ANY', 'read')],
  [{ toolChoice: 'auto', allowedTools: ['read'] }, config('VALIDATED', 'read')],
  [{ toolChoice: 'required', allowedTools: ['read'] }, config('ANY', 'read')],
  [{ toolChoice: 'auto', allowedTools: [] }, config('NONE')],
  [{ toolChoice: 'required', tools: [] }, undefined],
  [{ toolChoice: { tool: 'no_such_tool' } }, config('NONE')],
])('the tool choice %j', (fields, expected) => {
  expect(bodyOf({ tools: [shell, read], ...fields })['toolConfig']).toEqual(expected);
});

test.each<[GoogleThinking, string, Effort | undefined, object | undefined]>([
  ['level', 'gemini-3.5-flash', undefined, { includeThoughts: true }],
  ['level', 'gemini-3.5-flash', 'none', { includeThoughts: false, thinkingLevel: 'MINIMAL' }],
  ['level', 'gemini-3.1-pro-preview', 'none', { includeThoughts: false, thinkingLevel: 'LOW' }],
  ['level', 'gemini-3.1-pro-preview', 'medium', { includeThoughts: true, thinkingLevel: 'MEDIUM' }],
  ['level', 'gemini-3.1-pro-preview', 'max', { includeThoughts: true, thinkingLevel: 'HIGH' }],
  ['budget', 'gemini-2.5-flash', 'none', { includeThoughts: false, thinkingBudget: 0 }],
  ['budget', 'gemini-2.5-pro', 'none', { includeThoughts: false, thinkingBudget: 128 }],
  ['budget', 'gemini-2.5-pro', 'high', { includeThoughts: true, thinkingBudget: 24_576 }],
  ['none', 'gemini-2.0-flash', 'high', undefined],
])('thinking by %s: %s with the effort %s', (thinking, name, effort, expected) => {
  const { generationConfig } = bodyOf({ settings: effort ? { reasoning: effort } : {} }, thinking, name);
  expect((generationConfig as Record<string, unknown>)['thinkingConfig']).toEqual(expected);
});

test('any JSON object is requested by the type of the answer alone', () => {
  const any = { output: { type: 'object' }, outputForm: { anyObject: true } } as const;
  const thinkingConfig = { includeThoughts: true };
  expect(bodyOf({ ...any, tools: [read] })['generationConfig']).toEqual({
    thinkingConfig,
    responseMimeType: 'application/json',
  });
  expect(bodyOf({ ...any, tools: [read] }, 'budget')['generationConfig']).toEqual({ thinkingConfig });
});

test('a schema of the answer is enforced, but before Gemini 3 described if there are tools', () => {
  const output = { type: 'object', properties: { a: { type: 'string' } } };
  const enforced = { generationConfig: { responseMimeType: 'application/json', responseJsonSchema: output } };
  expect(bodyOf({ output, tools: [read] })).toMatchObject(enforced);
  expect(bodyOf({ output }, 'budget')).toMatchObject(enforced);
  expect(bodyOf({ output, outputForm: { description: 'An a.' } })).toMatchObject({
    generationConfig: { responseJsonSchema: { description: 'An a.', ...output } },
  });
  const described = bodyOf({ output, tools: [read], instructions: 'Be brief.' }, 'budget');
  expect(described['generationConfig']).toEqual({ thinkingConfig: { includeThoughts: true } });
  expect(JSON.stringify(described['systemInstruction'])).toContain('fits this JSON Schema');
});
