import { describe, expect, test } from 'vitest';
import { userText, type Message, type ToolResult } from '../messages.ts';
import { conversationOf } from './open.ts';

function asks(...ids: string[]): Message {
  return { role: 'assistant', content: ids.map((id) => ({ type: 'tool-call', id, name: 'x', arguments: '{}' })) };
}

function answers(...ids: string[]): Message {
  const content = ids.map((callId): ToolResult => ({
    type: 'tool-result',
    callId,
    name: 'x',
    content: [],
    isError: false,
  }));
  return { role: 'tool', content };
}

function says(text: string): Message {
  return { role: 'assistant', content: [{ type: 'text', text }] };
}

test('a text is what the user says', () => {
  expect(conversationOf('hello')).toEqual([userText('hello')]);
});

test.each<[string, Message[]]>([
  ['one message', [userText('a')]],
  ['turns', [userText('a'), says('b'), userText('c')]],
  ['calls with their results', [userText('a'), asks('1', '2'), answers('1', '2'), says('b')]],
  ['calls that end with results', [userText('a'), asks('1'), answers('1')]],
  ['an id used again', [userText('a'), asks('1'), answers('1'), asks('1'), answers('1')]],
  ['two messages of the user', [userText('a'), userText('b')]],
  ['one that begins with the assistant', [says('a'), userText('b')]],
])('a conversation is taken as it is: %s', (_, messages) => {
  expect(conversationOf(messages)).toEqual(messages);
});

test('but not held on to: what is added later is not part of it', () => {
  const messages = [userText('a')];
  const taken = conversationOf(messages);
  messages.push(userText('b'));
  expect(taken).toEqual([userText('a')]);
});

describe('what no provider would take is refused, and it says where', () => {
  test.each<[string, unknown, RegExp]>([
    ['nothing', [], /it is empty/],
    ['an empty text', '', /it is empty/],
    ['white space', ' \n', /it is empty/],
    ['no list', { role: 'user', content: [] }, /Pass a text, or at least one message/],
    ['null', null, /it is empty/],
    ['a number', 7, /it is empty/],
    [
      'an unknown role',
      [userText('a'), { role: 'system', content: [] }],
      /message 1 does not have a role of user, assistant, tool/,
    ],
    ['no role', [{ content: [] }], /message 0 does not have a role/],
    ['a hole', [undefined], /message 0 does not have a role/],
    ['null as a message', [null], /message 0 does not have a role/],
    [
      'content that is a text',
      [{ role: 'user', content: 'a' }],
      /message 0 does not have a role .* and an array of complete content blocks/,
    ],
    [
      'results of nothing',
      [userText('a'), answers('1')],
      /message 1 answers the calls \[1\], but the open calls are \[\]/,
    ],
    ['results without calls in them', [userText('a'), answers()], /message 1/],
    [
      'results of other calls',
      [asks('1'), answers('2')],
      /message 1 answers the calls \[2\], but the open calls are \[1\]/,
    ],
    ['results in another order', [asks('1', '2'), answers('2', '1')], /message 1 answers/],
    [
      'too few results',
      [asks('1', '2'), answers('1')],
      /message 1 answers the calls \[1\], but the open calls are \[1, 2\]/,
    ],
    ['too many results', [asks('1'), answers('1', '1')], /message 1 answers/],
    ['results in two messages', [asks('1', '2'), answers('1'), answers('2')], /message 1 answers/],
    [
      'something in between',
      [asks('1'), userText('a'), answers('1')],
      /message 1 comes before the results of the calls \[1\]/,
    ],
    [
      'no results at the end',
      [userText('a'), asks('1', '2')],
      /the calls \[1, 2\] of its last message have no results/,
    ],
    ['a part that is null', [{ role: 'assistant', content: [null] }], /message 0/],
    ['a result that is null', [asks('1'), { role: 'tool', content: [null] }], /message 1/],
    ['a text without text', [{ role: 'user', content: [{ type: 'text' }] }], /message 0/],
    [
      'a call without arguments',
      [{ role: 'assistant', content: [{ type: 'tool-call', id: 'a', name: 'x' }] }],
      /message 0/,
    ],
    ['a block of an unknown kind', [{ role: 'user', content: [{ type: 'smell' }] }], /message 0/],
    ['a block that is null', [{ role: 'user', content: [null] }], /message 0/],
  ])('%s', (_, input, message) => {
    expect(() => conversationOf(input as Message[])).toThrow(
      expect.objectContaining({ code: 'invalid-input', message: expect.stringMatching(message) }),
    );
  });
});
