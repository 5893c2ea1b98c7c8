import type { AssistantMessage, Message, UserMessage } from '@treadle/core';
import { expect, test } from 'vitest';
import { mergeSameRole } from './conversation.ts';

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

test('leaves alternating roles unchanged', () => {
  const messages = [user('a', 'b'), assistant(call), result, user('c'), assistant({ type: 'text', text: 'd' })];
  expect(mergeSameRole(messages)).toEqual(messages);
});

test('merges messages of one role into paragraphs', () => {
  expect(mergeSameRole([user('a'), user('b', 'c'), user('d')])).toEqual([user('a\n\nb', 'c\n\nd')]);
  expect(mergeSameRole([user('a'), { role: 'user', content: [image] }, user('b')])).toEqual([
    { role: 'user', content: [{ type: 'text', text: 'a' }, image, { type: 'text', text: 'b' }] },
  ]);
  const said = { type: 'text', text: 'a' } as const;
  expect(mergeSameRole([assistant(said), assistant(said, call), result])).toEqual([
    assistant({ type: 'text', text: 'a\n\na' }, call),
    result,
  ]);
});

test('does not merge texts of different phases', () => {
  const phased = (text: string, phase: 'commentary' | 'final_answer') => ({ type: 'text', text, phase }) as const;
  expect(mergeSameRole([assistant(phased('a', 'commentary')), assistant(phased('b', 'final_answer'))])).toEqual([
    assistant(phased('a\n\n', 'commentary'), phased('b', 'final_answer')),
  ]);
  expect(mergeSameRole([assistant(phased('a', 'commentary')), assistant(phased('b', 'commentary'))])).toEqual([
    assistant(phased('a\n\nb', 'commentary')),
  ]);
});
