import { describe, expect, test } from 'vitest';
import { userText, type Message, type ToolResult } from '../messages.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { conversationOf } from './open.ts';
import { runLoop } from './run.ts';

function calls(...ids: string[]): Message {
  return { role: 'assistant', content: ids.map((id) => ({ type: 'tool-call', id, name: 'x', arguments: '{}' })) };
}

function results(...ids: string[]): Message {
  const content = ids.map((callId): ToolResult => ({
    type: 'tool-result',
    callId,
    name: 'x',
    content: [],
    isError: false,
  }));
  return { role: 'tool', content };
}

function reply(text: string): Message {
  return { role: 'assistant', content: [{ type: 'text', text }] };
}

test('converts a text to a user message', () => {
  expect(conversationOf('hello')).toEqual([userText('hello')]);
});

test.each<[string, Message[]]>([
  ['one message', [userText('a')]],
  ['turns', [userText('a'), reply('b'), userText('c')]],
  ['calls with their results', [userText('a'), calls('1', '2'), results('1', '2'), reply('b')]],
  ['results at the end', [userText('a'), calls('1'), results('1')]],
  ['a call id that occurs twice', [userText('a'), calls('1'), results('1'), calls('1'), results('1')]],
  ['two user messages in a row', [userText('a'), userText('b')]],
  ['an assistant message at the start', [reply('a'), userText('b')]],
])('accepts a conversation unchanged: %s', (_, messages) => {
  expect(conversationOf(messages)).toEqual(messages);
});

test('copies the conversation, so that later changes do not affect it', () => {
  const messages = [userText('a')];
  const copy = conversationOf(messages);
  messages.push(userText('b'));
  expect(copy).toEqual([userText('a')]);
});

test('copies all levels of the conversation', () => {
  const data = { signs: [{ sign: 'a' }], more: JSON.parse('{"__proto__":{"a":1}}') as unknown };
  const call = { type: 'tool-call', id: 'c', name: 'x', arguments: '{}', provider: { protocol: 'p', data } } as const;
  const given: Message[] = [{ role: 'assistant', content: [call] }, results('c')];
  const before = structuredClone(given);
  const copy = conversationOf(given);
  data.signs[0]!.sign = 'b';
  expect(copy).toStrictEqual(before);
});

test('accepts messages with a plain text as their content', () => {
  const question = { role: 'user', content: 'hello' } as const;
  const answer = { role: 'assistant', content: 'hi' } as const;
  expect(conversationOf([question, answer, question])).toEqual([
    userText('hello'),
    { role: 'assistant', content: [{ type: 'text', text: 'hi' }] },
    userText('hello'),
  ]);
});

describe('rejects a conversation that no provider accepts, and reports where', () => {
  test.each<[string, unknown, RegExp]>([
    ['an empty array', [], /it is empty/],
    ['an empty text', '', /it is empty/],
    ['white space', ' \n', /it is empty/],
    ['an object', { role: 'user', content: [] }, /it is an object. Pass a text, or an array of messages/],
    ['null', null, /it is null/],
    ['a number', 7, /it is 7/],
    [
      'an unknown role',
      [userText('a'), { role: 'system', content: [] }],
      /message 1.role is "system". Pass its text as the option "instructions"/,
    ],
    ['a missing role', [{ content: [] }], /message 0.role is undefined. Use user, assistant, tool/],
    ['undefined as a message', [undefined], /message 0 is undefined, not an object/],
    ['null as a message', [null], /message 0 is null, not an object/],
    [
      'a string as the content of results',
      [calls('1'), { role: 'tool', content: 'a' }],
      /message 1.content is "a", not an array/,
    ],
    [
      'results without calls',
      [userText('a'), results('1')],
      /message 1 answers the calls \[1\], but the open calls are \[\]/,
    ],
    ['a tool message without results', [userText('a'), results()], /message 1/],
    [
      'results of other calls',
      [calls('1'), results('2')],
      /message 1 answers the calls \[2\], but the open calls are \[1\]/,
    ],
    ['results in another order', [calls('1', '2'), results('2', '1')], /message 1 answers/],
    [
      'too few results',
      [calls('1', '2'), results('1')],
      /message 1 answers the calls \[1\], but the open calls are \[1, 2\]/,
    ],
    ['too many results', [calls('1'), results('1', '1')], /message 1 answers/],
    ['results in two messages', [calls('1', '2'), results('1'), results('2')], /message 1 answers/],
    [
      'a message between calls and results',
      [calls('1'), userText('a'), results('1')],
      /message 1 comes before the results of the calls \[1\]/,
    ],
    [
      'calls without results at the end',
      [userText('a'), calls('1', '2')],
      /the calls \[1, 2\] of its last message have no results/,
    ],
    ['null as a part of an assistant message', [{ role: 'assistant', content: [null] }], /message 0/],
    ['null as a result', [calls('1'), { role: 'tool', content: [null] }], /message 1/],
    [
      'a text block without text',
      [{ role: 'user', content: [{ type: 'text' }] }],
      /message 0.content\[0\].text is undefined, not a string/,
    ],
    [
      'a call without arguments',
      [{ role: 'assistant', content: [{ type: 'tool-call', id: 'a', name: 'x' }] }],
      /message 0/,
    ],
    ['a block of an unknown type', [{ role: 'user', content: [{ type: 'video' }] }], /message 0/],
    ['null as a block of a user message', [{ role: 'user', content: [null] }], /message 0/],
  ])('%s', (_, input, message) => {
    expect(() => conversationOf(input as Message[])).toThrow(
      expect.objectContaining({ code: 'invalid-input', message: expect.stringMatching(message) }),
    );
  });
});

test('runLoop copies its input, so that later changes do not affect the run', async () => {
  const journal = memoryJournal();
  const part = { type: 'text' as const, text: 'go' };
  const change = tool({ name: 'change', description: 'x', execute: () => ((part.text = 'changed'), 'done') });
  const model = scriptedModel([{ calls: [{ name: 'change' }] }, 'Done.']);
  const input = [{ role: 'user' as const, content: [part] }];
  const result = await runLoop({ model, tools: [change], input, journal, runId: 'r' });
  expect(result.messages[0]).toEqual({ role: 'user', content: [{ type: 'text', text: 'go' }] });
  expect((await runLoop({ model, tools: [change], journal, runId: 'r' })).outcome).toEqual({ type: 'completed' });
});
