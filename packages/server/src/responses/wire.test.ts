import type { ReasoningPart } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { parseRequest } from './parse-request.ts';
import { conversationFrom } from './restore-history.ts';
import { decodedReasoning, encryptedContent, mcpError, mcpErrorText } from './wire.ts';

test.each([
  [undefined, null],
  [null, null],
  ['broken', 'broken'],
  [mcpError('broken'), 'broken'],
  [{ content: [{ text: 'one' }, null, 7, {}, { text: 'two' }] }, 'one\ntwo'],
  [{ content: 'else' }, '{"content":"else"}'],
  [[], '[]'],
])('the text of the error %j is %j', (error, text) => {
  expect(mcpErrorText(error)).toBe(text);
});

describe('encrypted_content', () => {
  test.each<ReasoningPart>([
    { type: 'reasoning', text: 'Hm… 🤔' },
    { type: 'reasoning', text: '', signature: 's', protocol: 'p' },
  ])('is decoded to the same part: %j', (part) => {
    expect(decodedReasoning(encryptedContent(part))).toEqual({ part });
  });

  test.each(['', 'gAAAAAB', 'e30=', Buffer.from('null').toString('base64'), Buffer.from('[1]').toString('base64')])(
    'of another server is ignored: %j',
    (content) => {
      expect(decodedReasoning(content)).toBeUndefined();
    },
  );

  test('of hidden reasoning is restored at its original position', () => {
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
});
