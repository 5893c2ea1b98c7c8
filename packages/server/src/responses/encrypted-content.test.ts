import type { ReasoningPart } from '@treadle/core';
import { expect, test } from 'vitest';
import { encryptedContent, reasoningFrom } from './encrypted-content.ts';
import { conversationFrom } from './messages.ts';
import { parseRequest } from './parse.ts';

test.each<ReasoningPart>([
  { type: 'reasoning', text: 'Hm… 🤔' },
  { type: 'reasoning', text: '', signature: 's', protocol: 'p' },
])('comes back as it was: %j', (part) => {
  expect(reasoningFrom(encryptedContent(part))).toEqual({ part });
});

test.each(['', 'gAAAAAB', 'e30=', Buffer.from('null').toString('base64'), Buffer.from('[1]').toString('base64')])(
  'what is not from here says nothing: %j',
  (content) => {
    expect(reasoningFrom(content)).toBeUndefined();
  },
);

test('a thought that nobody can read goes back to where it stood', () => {
  const part = { type: 'reasoning', text: '', signature: 's', protocol: 'p' } as const;
  const id = (kind: string, n: number): string => `${kind}_${'a'.repeat(32)}_1_${n}`;
  const call = { type: 'mcp_call', server_label: 'treadle', name: 'add', arguments: '{}', output: '3', error: null };
  const { input } = parseRequest({
    input: [
      { role: 'user', content: 'Hi' },
      { ...call, id: id('mcp', 0), status: 'completed' },
      { type: 'reasoning', id: id('rs', 1), summary: [], encrypted_content: encryptedContent(part, 0) },
    ],
  });
  expect(conversationFrom(input).messages[1]!.content.map(({ type }) => type)).toEqual(['reasoning', 'tool-call']);
});
