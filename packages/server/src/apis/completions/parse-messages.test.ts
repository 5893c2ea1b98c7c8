import { describe, expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import { DEFAULT_LIMITS } from '../../parse/fields.ts';
import { validateBody } from '../../parse/validate.ts';
import { messagesSchema, type ChatConversation } from './parse-messages.ts';
import { z } from 'zod';

const schema = z.object({ messages: messagesSchema(DEFAULT_LIMITS) });
const from = (messages: unknown): ChatConversation => validateBody(schema, { messages }).messages;

const user = { role: 'user', content: 'hello' };
const call = (id: string, name = 'f'): object => ({ id, type: 'function', function: { name, arguments: '{}' } });
const calls = (...ids: string[]): object => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => call(id)),
});
const answer = (id: string, content: unknown = `of ${id}`): object => ({ role: 'tool', tool_call_id: id, content });
const result = (id: string, text = `of ${id}`): object => ({
  type: 'tool-result',
  callId: id,
  name: 'f',
  content: [{ type: 'text', text }],
  isError: false,
});
const toolCall = (id: string): object => ({ type: 'tool-call', id, name: 'f', arguments: '{}' });

test('accepts each role, with text and with parts', () => {
  const { messages, system } = from([
    { role: 'system', content: 'Be brief.' },
    {
      role: 'developer',
      content: [
        { type: 'text', text: 'Be ' },
        { type: 'text', text: 'kind.' },
      ],
    },
    { role: 'user', content: 'hello', name: 'Ann' },
    { role: 'assistant', content: 'Hi.', refusal: null, annotations: [], audio: null, function_call: null },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'x' },
        { type: 'refusal', refusal: 'No.' },
      ],
    },
    { role: 'assistant', refusal: 'Never.' },
    user,
  ]);
  expect(system).toEqual(['Be brief.', 'Be kind.']);
  const text = (words: string): object => ({ type: 'text', text: words });
  expect(messages).toEqual([
    { role: 'user', content: [text('hello')] },
    { role: 'assistant', content: [text('Hi.')] },
    { role: 'user', content: [text('a'), text('b')] },
    { role: 'assistant', content: [text('x'), { ...text('No.'), refusal: true }] },
    { role: 'assistant', content: [{ ...text('Never.'), refusal: true }] },
    { role: 'user', content: [text('hello')] },
  ]);
});

test('accepts images and files', () => {
  const { messages } = from([
    {
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url: 'https://example.com/a.png', detail: 'low' } },
        { type: 'image_url', image_url: { url: 'data:image/jpeg;base64,AAAA' } },
        { type: 'image_url', image_url: 'https://example.com/b.png' },
        { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0x' } },
      ],
    },
  ]);
  expect(messages[0]!.content).toEqual([
    {
      type: 'image',
      mediaType: 'image/png',
      source: { type: 'url', url: 'https://example.com/a.png' },
      detail: 'low',
    },
    { type: 'image', mediaType: 'image/jpeg', source: { type: 'data', data: 'AAAA' } },
    { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://example.com/b.png' } },
    { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source: { type: 'data', data: 'JVBERi0x' } },
  ]);
});

describe('calls', () => {
  test('have their results in one message, in call order', () => {
    const { messages } = from([user, calls('a', 'b'), answer('b'), answer('a'), user]);
    expect(messages.slice(1, 3)).toEqual([
      { role: 'assistant', content: [toolCall('a'), toolCall('b')] },
      { role: 'tool', content: [result('a'), result('b')] },
    ]);
  });

  test('preserve the text and the reasoning beside them', () => {
    const { messages } = from([user, { ...calls('a'), content: 'Well.', reasoning_content: 'Hm.' }, answer('a')]);
    expect(messages[1]!.content).toEqual([
      { type: 'reasoning', text: 'Hm.' },
      { type: 'text', text: 'Well.' },
      toolCall('a'),
    ]);
  });

  test('may repeat an id in a later turn', () => {
    expect(from([user, calls('a'), answer('a'), calls('a'), answer('a')]).messages).toHaveLength(5);
  });

  test('may have results with parts, without content, or with an error', () => {
    const { messages } = from([
      user,
      calls('a', 'b', 'c'),
      answer('a', [
        { type: 'text', text: 'x' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
      ]),
      answer('b', ''),
      { ...answer('c', 'It broke.'), is_error: true },
    ]);
    expect(messages[2]!.content).toEqual([
      {
        ...result('a'),
        content: [
          { type: 'text', text: 'x' },
          { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
        ],
      },
      { ...result('b'), content: [] },
      { ...result('c', 'It broke.'), isError: true },
    ]);
  });

  test('may be separated from their results by a system message', () => {
    const { messages, system } = from([user, calls('a'), { role: 'system', content: 'Now.' }, answer('a')]);
    expect([messages.length, system]).toEqual([3, ['Now.']]);
  });
});

test('drops an empty assistant message', () => {
  const empty = { role: 'assistant', content: '', tool_calls: [], reasoning_content: 'Hm.' };
  expect(from([user, empty, user]).messages).toHaveLength(2);
});

test('uses the last system message as user message if there is no other', () => {
  const system = (content: string): object => ({ role: 'system', content });
  expect(from([system('a'), system('b')])).toEqual({
    messages: [{ role: 'user', content: [{ type: 'text', text: 'b' }] }],
    system: ['a'],
  });
});

describe('rejects', () => {
  test.each<[string, unknown, string, RegExp]>([
    ['no messages', undefined, 'messages', /Missing required parameter: 'messages'/],
    ['a value that is not a list', 'hello', 'messages', /expected a list of messages/],
    ['an empty list', [], 'messages', /are empty/],
    ['empty texts', [{ role: 'system', content: '' }], 'messages', /are empty/],
    ['a message that is not an object', [user, 'hello'], 'messages[1]', /expected an object, but got a string/],
    ['no role', [{ content: 'x' }], 'messages[0].role', /Missing/],
    ['an unknown role', [{ role: 'robot', content: 'x' }], 'messages[0].role', /'robot'.*'system', 'developer'/],
    ['the role function', [{ role: 'function', name: 'f', content: 'x' }], 'messages[0].role', /'tool_call_id'/],
    [
      'function_call',
      [{ role: 'assistant', function_call: { name: 'f', arguments: '' } }],
      'messages[0].function_call',
      /'tool_calls'/,
    ],
    ['no content', [{ role: 'user' }], 'messages[0].content', /Missing/],
    ['content of another type', [{ role: 'user', content: 7 }], 'messages[0].content', /but got an integer/],
    [
      'an unknown part',
      [{ role: 'user', content: [{ type: 'input_audio' }] }],
      'messages[0].content[0].type',
      /'input_audio'/,
    ],
    [
      'an image in a system message',
      [{ role: 'system', content: [{ type: 'image_url' }] }],
      'messages[0].content[0].type',
      /text/,
    ],
    ['a part without text', [{ role: 'user', content: [{ type: 'text' }] }], 'messages[0].content[0].text', /Missing/],
    [
      'a file URL',
      [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'file:///etc/passwd' } }] }],
      'messages[0].content[0].image_url',
      /http/,
    ],
    [
      'a file URL as a string',
      [{ role: 'user', content: [{ type: 'image_url', image_url: 'file:///etc/passwd' }] }],
      'messages[0].content[0].image_url',
      /http/,
    ],
    [
      'an image without a URL',
      [{ role: 'user', content: [{ type: 'image_url' }] }],
      'messages[0].content[0].image_url',
      /Missing/,
    ],
    [
      'an image that is a number',
      [{ role: 'user', content: [{ type: 'image_url', image_url: 7 }] }],
      'messages[0].content[0].image_url',
      /object/,
    ],
    [
      'an uploaded file',
      [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-1' } }] }],
      'messages[0].content[0].file.file_id',
      /file_data/,
    ],
    [
      'a call without a name',
      [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'function', function: { arguments: '' } }] }],
      'messages[0].tool_calls[0].function.name',
      /Missing/,
    ],
    [
      'a call without an id',
      [{ role: 'assistant', tool_calls: [{ ...call(''), id: '' }] }],
      'messages[0].tool_calls[0].id',
      /at least 1/,
    ],
    [
      'a call of another type',
      [{ role: 'assistant', tool_calls: [{ id: 'a', type: 'other', other: {} }] }],
      'messages[0].tool_calls[0].type',
      /'other'/,
    ],
    [
      'arguments that are not a string',
      [{ role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f', arguments: {} } }] }],
      'messages[0].tool_calls[0].function.arguments',
      /string/,
    ],
    ['a duplicate call id', [user, calls('a', 'a')], 'messages[1].tool_calls', /'a' twice/],
    [
      'missing results',
      [user, calls('a', 'b', 'c'), answer('b'), user],
      'messages[1].tool_calls',
      /for 'a', 'c' after/,
    ],
    ['missing results at the end', [user, calls('a')], 'messages[1].tool_calls', /'a'/],
    [
      'a result for an unknown call',
      [user, calls('a'), answer('a'), answer('b')],
      'messages[3].tool_call_id',
      /'b'.*calls are 'a'/,
    ],
    [
      'two results for one call',
      [user, calls('a'), answer('a'), answer('a')],
      'messages[3].tool_call_id',
      /'a' is answered twice/,
    ],
    ['a result without a call', [user, answer('a')], 'messages[1].tool_call_id', /none with calls/],
    [
      'a result after another message',
      [user, calls('a'), answer('a'), user, answer('a')],
      'messages[4].tool_call_id',
      /'a'/,
    ],
    [
      'a result without an id',
      [user, calls('a'), { role: 'tool', content: 'x' }],
      'messages[2].tool_call_id',
      /Missing/,
    ],
  ])('%s', (_, messages, param, message) => {
    expect(() => from(messages)).toThrow(ApiError);
    try {
      from(messages);
    } catch (error) {
      expect(error).toMatchObject({ status: 400, param, message: expect.stringMatching(message) });
    }
  });
});

test('rejects a message with 200,000 calls without results like any other', () => {
  const many = { role: 'assistant', tool_calls: Array.from({ length: 200_000 }, (_, index) => call(`c${index}`)) };
  expect(() => from([user, many, user])).toThrow(/there is no message of role 'tool' for 'c0', 'c1'/);
});
