import { createSecretKey } from 'node:crypto';
import type { Message } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { reasoningSeal } from '../responses/reasoning-seal.ts';
import { conversationOf, toolsAfter } from './conversation.ts';
import { parseMessageRequest } from './parse-request.ts';

const SEAL = reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme');

function restored(messages: readonly object[], more: object = {}) {
  const request = parseMessageRequest({ model: 'm', max_tokens: 1, messages, ...more });
  return conversationOf(request.messages, { openThought: SEAL.open });
}

const user = (content: unknown): object => ({ role: 'user', content });
const said = (...content: object[]): object => ({ role: 'assistant', content });
const text = (one: string): object => ({ type: 'text', text: one });
const use = (id: string, type = 'tool_use'): object => ({
  type,
  id,
  name: 'f',
  input: { id },
  ...(type === 'mcp_tool_use' && { server_name: 's' }),
});
const result = (id: string, type = 'tool_result'): object => ({ type, tool_use_id: id, content: [text(`of ${id}`)] });

/** `u:` a user, `a:` the model with its calls as `[id]`, `t:` results as `id=text`. */
function short(messages: readonly Message[]): readonly string[] {
  return messages.map((message) => {
    if (message.role === 'tool') {
      return `t: ${message.content.map(({ callId, content }) => `${callId}=${content.map((one) => ('text' in one ? one.text : one.type)).join('')}`).join(' ')}`;
    }
    const parts = message.content.map((part) =>
      part.type === 'tool-call' ? `[${part.id}]` : 'text' in part ? part.text : part.type,
    );
    return `${message.role[0]}: ${parts.join(' ')}`;
  });
}

describe('results', () => {
  test.each<[string, readonly object[], readonly string[]]>([
    [
      'in another order than the calls, in several messages',
      [
        user('go'),
        said(use('a'), use('b'), use('c')),
        user([result('c')]),
        user([result('b'), text('and'), result('a')]),
      ],
      ['u: go', 'a: [a] [b] [c]', 't: a=of a b=of b c=of c', 'u: and'],
    ],
    [
      'of the server, within the message of the model',
      [
        user('go'),
        said(text('I look.'), use('a', 'mcp_tool_use'), result('a', 'mcp_tool_result'), text('I ask.'), use('b')),
        user([result('b')]),
      ],
      ['u: go', 'a: I look. [a]', 't: a=of a', 'a: I ask. [b]', 't: b=of b'],
    ],
    [
      'of the server and of the client for one turn',
      [user('go'), said(use('a', 'mcp_tool_use'), use('b'), result('a', 'mcp_tool_result')), user([result('b')])],
      ['u: go', 'a: [a] [b]', 't: a=of a b=of b'],
    ],
    [
      'at the end of a message that was paused',
      [user('go'), said(use('a', 'mcp_tool_use'), result('a', 'mcp_tool_result'))],
      ['u: go', 'a: [a]', 't: a=of a'],
    ],
    [
      'that are missing for calls of the server: the client cannot have them',
      [user('go'), said(text('I look.'), use('a', 'mcp_tool_use')), user('and')],
      ['u: go', 'a: I look.', 'u: and'],
    ],
    [
      'of tools of another server, as JSON',
      [
        user('go'),
        said(
          use('a', 'server_tool_use'),
          { type: 'web_search_tool_result', tool_use_id: 'a', content: [{ url: 'u' }] },
          text('So.'),
        ),
        user('and'),
      ],
      ['u: go', 'a: [a]', 't: a=[{"url":"u"}]', 'a: So.', 'u: and'],
    ],
    [
      'for messages of the model that were split',
      [user('go'), said(text('One.')), said(use('a')), user([result('a')])],
      ['u: go', 'a: One. [a]', 't: a=of a'],
    ],
  ])('%s', (_, messages, expected) => {
    expect(short(restored(messages).messages)).toEqual(expected);
  });

  test('without content, with images, and with errors', () => {
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } };
    const messages = [
      user('go'),
      said(use('a'), use('b')),
      user([
        { type: 'tool_result', tool_use_id: 'a' },
        { type: 'tool_result', tool_use_id: 'b', content: [text('x'), image], is_error: true },
      ]),
    ];
    expect(restored(messages).messages.at(-1)).toEqual({
      role: 'tool',
      content: [
        { type: 'tool-result', callId: 'a', name: 'f', content: [], isError: false },
        {
          type: 'tool-result',
          callId: 'b',
          name: 'f',
          content: [text('x'), { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } }],
          isError: true,
        },
      ],
    });
  });

  test.each<[string, readonly object[], string, string]>([
    [
      'are missing',
      [user('go'), said(use('a'), use('b')), user([result('a')])],
      'messages[1].content',
      'missing_tool_result',
    ],
    [
      'are missing before the next message',
      [user('go'), said(use('a')), user('no'), user([result('a')])],
      'messages[1].content',
      'missing_tool_result',
    ],
    ['belong to no call', [user('go'), user([result('a')])], 'messages[1].content[0].tool_use_id', 'unknown_tool_call'],
    [
      'come twice',
      [user('go'), said(use('a')), user([result('a'), result('a')])],
      'messages[2].content[1].tool_use_id',
      'duplicate_tool_result',
    ],
  ])('that %s are refused', (_, messages, param, code) => {
    expect(() => restored(messages)).toThrow(expect.objectContaining({ status: 400, param, code }));
  });

  test('two calls with one id are refused', () => {
    expect(() => restored([user('go'), said(use('a'), use('a'))])).toThrow(
      expect.objectContaining({ param: 'messages[1].content[1].id', code: 'duplicate_call' }),
    );
  });
});

describe('messages of the role system', () => {
  const system = (content: string, more: object = {}): object => ({ role: 'system', content, ...more });
  const reminder = (one: string): string => `<system-reminder>\n${one}\n</system-reminder>`;

  test('are instructions before all others, and stay at their place after that', () => {
    const { messages, system: told } = restored([
      system('First.'),
      user('go'),
      system('Second.'),
      said(use('a')),
      system('Third.'),
      user([result('a')]),
      system('Fourth.'),
    ]);
    expect(told).toEqual(['First.']);
    expect(short(messages)).toEqual([
      'u: go',
      `u: ${reminder('Second.')}`,
      'a: [a]',
      't: a=of a',
      `u: ${reminder('Third.')}`,
      `u: ${reminder('Fourth.')}`,
    ]);
  });

  test('are not shown any more after the next user message, if they say so', () => {
    const passing = { clear_at: 'next_user_message' };
    const { messages } = restored([
      user('one'),
      system('Old.', passing),
      said(text('Yes.')),
      user('two'),
      system('New.', passing),
    ]);
    expect(short(messages)).toEqual(['u: one', 'a: Yes.', 'u: two', `u: ${reminder('New.')}`]);
  });

  test('alone are the message of the user', () => {
    expect(restored([system('Be brief.'), system('Hello')])).toEqual({
      messages: [{ role: 'user', content: [text('Hello')] }],
      system: ['Be brief.'],
    });
  });

  test('add and remove tools', () => {
    const tool = (name: string): object => ({ name, input_schema: {} });
    const change = (type: string, given: object): object => ({ role: 'system', content: [{ type, tool: given }] });
    const named = (name: string): object => ({ type: 'tool_reference', name });
    const request = parseMessageRequest({
      model: 'm',
      max_tokens: 1,
      tools: [tool('a'), tool('b'), tool('c')],
      messages: [
        user('go'),
        change('tool_removal', named('a')),
        change('tool_removal', named('b')),
        change('tool_addition', { type: 'tool_definition', definition: tool('d') }),
        change('tool_addition', named('b')),
      ],
    });
    const names = toolsAfter(request.tools!, request.messages).map((one) => one.type === 'function' && one.name);
    expect(names).toEqual(['b', 'c', 'd']);
    expect(() => toolsAfter([], request.messages)).toThrow(expect.objectContaining({ code: 'unknown_tool' }));
  });
});

describe('thoughts', () => {
  const thought = { type: 'reasoning', text: 'Hm.', summary: true } as const;
  const signature = SEAL.seal(thought);
  const thinking = (shown: string, given = signature): object => ({
    type: 'thinking',
    thinking: shown,
    signature: given,
  });

  test.each([['Hm.'], ['']])('come back with their text, if the client was shown %j', (shown) => {
    const { messages } = restored([user('go'), said(thinking(shown), text('Yes.')), user('and')]);
    expect(messages[1]).toEqual({ role: 'assistant', content: [thought, text('Yes.')] });
  });

  test.each<[string, object]>([
    ['that were changed', thinking('Hm?')],
    ['of another server', thinking('Hm.', 'EqQBCgIYAhIkYTk')],
    ['of another tenant', thinking('Hm.', reasoningSeal(createSecretKey(new Uint8Array(32)), 'other').seal(thought))],
    ['that are hidden, of another server', { type: 'redacted_thinking', data: 'EqQBCgIYAhIkYTk' }],
  ])('%s are refused, in words by which Claude Code removes them', (_, block) => {
    const restore = (): unknown => restored([user('go'), said(block, text('Yes.')), user('and')]);
    expect(restore).toThrow(
      expect.objectContaining({
        status: 400,
        param: 'messages[1].content[0]',
        code: 'invalid_encrypted_content',
        message: expect.stringMatching(/Invalid `signature` in `(redacted_)?thinking` block/),
      }),
    );
  });
});

test.each<[string, readonly object[]]>([
  ['nothing', []],
  ['a message of the model', [user('go'), said(text('The answer is ('))]],
])('a conversation that ends with %s is refused', (_, messages) => {
  expect(() => restored(messages)).toThrow(expect.objectContaining({ status: 400, param: 'messages' }));
});

test('arguments that were not JSON are the text that the model wrote', () => {
  const { messages } = restored([
    user('go'),
    said({ type: 'tool_use', id: 'a', name: 'f', input: '{"a' }, { type: 'tool_use', id: 'b', name: 'f' }),
    user([result('a'), result('b')]),
  ]);
  expect(messages[1]).toMatchObject({ content: [{ arguments: '{"a' }, { arguments: '{}' }] });
});
