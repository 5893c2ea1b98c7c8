import type { AssistantMessage, Message, UserMessage } from '@treadle/core';
import { expect, test } from 'vitest';
import { mergeSameRole, sharedConversations, type ConversationBefore } from './conversation.ts';

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
  const mixed = [
    phased('a', 'commentary'),
    phased('b', 'commentary'),
    phased('c', 'final_answer'),
    phased('d', 'final_answer'),
  ];
  expect(mergeSameRole(mixed.map((part) => assistant(part)))).toEqual([
    assistant(phased('a\n\nb\n\n', 'commentary'), phased('c\n\nd', 'final_answer')),
  ]);
});

test('shares a stored conversation while it is read or held, and reads another version again', async () => {
  const share = sharedConversations();
  let reads = 0;
  const read = async (): Promise<ConversationBefore> => ({ messages: [user(`read ${(reads += 1)}`)], system: [] });
  const [one, other] = await Promise.all([share('a 1', read), share('a 1', read)]);
  expect(other).toBe(one);
  expect(await share('a 1', read)).toBe(one);
  expect(await share('a 2', read)).not.toBe(one);
  expect(reads).toBe(2);
  const failing = (): Promise<never> => Promise.reject(new Error('disk'));
  await expect(share('b', failing)).rejects.toThrow('disk');
  expect(await share('b', read)).toEqual({ messages: [user('read 3')], system: [] });
});

test('reads at most four conversations at a time', async () => {
  const share = sharedConversations();
  let running = 0;
  let most = 0;
  const read = async (): Promise<undefined> => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => void setImmediate(resolve));
    running -= 1;
  };
  await Promise.all(Array.from({ length: 20 }, (_, n) => share(String(n), read)));
  expect(most).toBe(4);
});
