import type { AssistantPart } from '@treadle/core';
import { expect, test } from 'vitest';
import { encryptedContent } from './encrypted-content.ts';
import { callIdFor, itemId } from './ids.ts';
import type { InputItem } from './input-items.ts';
import { withThoughts, type RepliesOf } from './sealed-thoughts.ts';

const response = `resp_${'0a'.repeat(16)}`;
const thought = (text: string) => ({ type: 'reasoning', text, signature: `sig ${text}`, protocol: 'p' }) as const;
const reply: readonly AssistantPart[] = [
  thought('a'),
  thought('b'),
  { type: 'text', text: 'Look.' },
  thought('c'),
  { type: 'tool-call', id: 'x', name: 'weather', arguments: '{}' },
];
const repliesOf: RepliesOf = async (id) => (id === response ? new Map([[2, reply]]) : undefined);

const reasoning = (n: number, text: string, sealed?: string): InputItem => ({
  type: 'reasoning',
  id: itemId('reasoning', response, 2, n),
  status: 'completed',
  summary: [{ type: 'summary_text', text }],
  ...(sealed !== undefined && { encrypted_content: sealed }),
});
const call: InputItem = {
  type: 'function_call',
  id: 'fc_1',
  call_id: callIdFor(response, 2, 0),
  name: 'weather',
  arguments: '{}',
  status: 'completed',
};
const answer: InputItem = {
  type: 'function_call_output',
  id: 'fco_1',
  call_id: callIdFor(response, 2, 0),
  output: 'rain',
  status: 'completed',
};
const said: InputItem = {
  type: 'message',
  id: 'msg_1',
  status: 'completed',
  role: 'user',
  content: [{ type: 'input_text', text: 'Go' }],
};

test('thoughts get their seals, and what was not shown of them follows the turn', async () => {
  expect(await withThoughts([said, reasoning(0, 'ab'), reasoning(2, 'c'), call, answer], repliesOf)).toEqual([
    said,
    reasoning(0, 'ab', encryptedContent(thought('a'))),
    reasoning(2, 'c', encryptedContent(thought('c'))),
    call,
    {
      type: 'reasoning',
      id: expect.stringMatching(/^rs_/),
      status: 'completed',
      summary: [],
      encrypted_content: encryptedContent(thought('b'), 1),
    },
    answer,
  ]);
});

test.each<[string, readonly InputItem[]]>([
  ['a turn that has seals', [said, reasoning(0, 'ab', 'mine'), reasoning(2, 'c'), call, answer]],
  ['a turn whose thoughts the client left out', [said, call, answer]],
  ['a turn without calls', [said, reasoning(0, 'ab'), reasoning(2, 'c')]],
  ['a turn before the user spoke', [reasoning(0, 'ab'), reasoning(2, 'c'), call, answer, said]],
  ['a turn of somebody else', [said, { ...call, call_id: 'call_1' }, { ...answer, call_id: 'call_1' }]],
])('%s is left as it is', async (_, items) => {
  expect(await withThoughts(items, repliesOf)).toEqual(items);
});

test('a response that is not there', async () => {
  const items = [said, reasoning(0, 'ab'), reasoning(2, 'c'), call, answer];
  expect(await withThoughts(items, async () => undefined)).toEqual(items);
});
