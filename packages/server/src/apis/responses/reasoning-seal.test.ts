import { createSecretKey } from 'node:crypto';
import type { ReasoningPart } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { parseRequest } from './parse-request.ts';
import { reasoningSeal, tenantSeals, unsealedReasoning } from './reasoning-seal.ts';
import { openReasoning } from '../../history/restore-history.ts';
import { conversationFrom } from '../../history/restore-messages.ts';

const seal = reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme');
const hidden: ReasoningPart = { type: 'reasoning', text: '', signature: 's', protocol: 'p' };

test.each<ReasoningPart>([{ type: 'reasoning', text: 'Hm… 🤔' }, hidden])('opens what it sealed: %j', (part) => {
  expect(seal.open(seal.seal(part))).toEqual({ part });
  expect(seal.seal(part)).toBe(seal.seal(part));
});

test.each(['', 'gAAAAAB', 'e30=', Buffer.from('null').toString('base64'), Buffer.from('[1]').toString('base64')])(
  'does not read content of another server: %j',
  (content) => {
    expect(seal.open(content)).toBeUndefined();
    expect(unsealedReasoning(content)).toBeUndefined();
  },
);

test('hidden reasoning is restored at its original position', () => {
  const id = (kind: string, n: number): string => `${kind}_${'a'.repeat(32)}_1_${n}`;
  const call = { type: 'mcp_call', server_label: 'treadle', name: 'add', arguments: '{}', output: '3', error: null };
  const { input } = parseRequest({
    input: [
      { role: 'user', content: 'Hi' },
      { ...call, id: id('mcp', 0), status: 'completed' },
      { type: 'reasoning', id: id('rs', 1), summary: [], encrypted_content: seal.seal(hidden, 0) },
    ],
  });
  const { messages } = conversationFrom(openReasoning(input, seal));
  expect(messages[1]!.content.map(({ type }) => type)).toEqual(['reasoning', 'tool-call']);
});

test('the key is read from the store once, and again if that fails', async () => {
  const store = sqliteStore(':memory:');
  let reads = 0;
  const secretKey = async (name: string): Promise<Uint8Array> => {
    if (reads++ === 0) throw new Error('disk full');
    return store.secretKey(name);
  };
  const sealFor = tenantSeals({ secretKey }, 'reasoning', reasoningSeal);
  await expect(sealFor('acme')).rejects.toThrow('disk full');
  const content = (await sealFor('acme')).seal(hidden);
  expect((await sealFor('acme')).open(content)).toEqual({ part: hidden });
  expect((await sealFor('other')).open(content)).toBeUndefined();
  expect((await tenantSeals(store, 'reasoning', reasoningSeal)('acme')).open(content)).toEqual({ part: hidden });
  expect(reads).toBe(2);
  await store.close();
});
