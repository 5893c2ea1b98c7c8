import type { AssistantMessage, Message, UserMessage } from '@treadle/core';
import { expect, test } from 'vitest';
import { alternating } from './alternating.ts';

const user = (...texts: string[]): UserMessage => ({
  role: 'user',
  content: texts.map((text) => ({ type: 'text', text })),
});
const assistant = (...content: AssistantMessage['content']): AssistantMessage => ({ role: 'assistant', content });
const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
const call = { type: 'tool-call', id: 'c', name: 'add', arguments: '{}' } as const;
const result: Message = {
  role: 'tool',
  content: [{ type: 'tool-result', callId: 'c', name: 'add', content: [{ type: 'text', text: '3' }], isError: false }],
};

test('what alternates is left as it is', () => {
  const messages = [user('a', 'b'), assistant(call), result, user('c'), assistant({ type: 'text', text: 'd' })];
  expect(alternating(messages)).toEqual(messages);
});

test('messages of one role are one, in paragraphs', () => {
  expect(alternating([user('a'), user('b', 'c'), user('d')])).toEqual([user('a\n\nb', 'c\n\nd')]);
  expect(alternating([user('a'), { role: 'user', content: [image] }, user('b')])).toEqual([
    { role: 'user', content: [{ type: 'text', text: 'a' }, image, { type: 'text', text: 'b' }] },
  ]);
  const said = { type: 'text', text: 'a' } as const;
  expect(alternating([assistant(said), assistant(said, call), result])).toEqual([
    assistant({ type: 'text', text: 'a\n\na' }, call),
    result,
  ]);
});

test('what is said along the way stays apart from the answer', () => {
  const told = (text: string, phase: 'commentary' | 'final_answer') => ({ type: 'text', text, phase }) as const;
  expect(alternating([assistant(told('a', 'commentary')), assistant(told('b', 'final_answer'))])).toEqual([
    assistant(told('a\n\n', 'commentary'), told('b', 'final_answer')),
  ]);
  expect(alternating([assistant(told('a', 'commentary')), assistant(told('b', 'commentary'))])).toEqual([
    assistant(told('a\n\nb', 'commentary')),
  ]);
});
