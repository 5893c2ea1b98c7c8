import { expect, test } from 'vitest';
import type { OutputItem } from '../wire/items.ts';
import { itemId } from './ids.ts';
import type { InputItem } from './input-items.ts';
import { resolved } from './references.ts';

const response = `resp_${'0a'.repeat(16)}`;
const id = itemId('message', response, 1, 0);
const stored: OutputItem = {
  type: 'message',
  id,
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'a', annotations: [], logprobs: [] }],
};
const reference = (id: string): InputItem => ({ type: 'item_reference', id });

test('references are replaced, each response is read once, and the rest stays', async () => {
  const asked: string[] = [];
  const outputOf = async (response: string): Promise<readonly OutputItem[]> => (asked.push(response), [stored]);
  expect(await resolved([stored, reference(id), reference(id)], outputOf)).toEqual([stored, stored, stored]);
  expect(asked).toEqual([response]);
});

test('a call of the server that came back without its result gets it again', async () => {
  const call: OutputItem = {
    type: 'mcp_call',
    id: itemId('mcp_call', response, 1, 1),
    server_label: 'treadle',
    name: 'read',
    arguments: '{}',
    status: 'completed',
    output: 'a',
    error: null,
    approval_request_id: null,
  };
  const bare = { ...call, output: null };
  expect(await resolved([bare], async () => [stored, call])).toEqual([call]);
  // Of a response that was not stored, and of another server.
  expect(await resolved([bare, { ...bare, id: 'mcp_1' }], async () => undefined)).toEqual([
    bare,
    { ...bare, id: 'mcp_1' },
  ]);
});

test.each([
  ['of a response that is not there', itemId('message', `resp_${'0b'.repeat(16)}`, 1, 0)],
  ['that the response does not have', itemId('message', response, 1, 7)],
  ['of somebody else', 'msg_1'],
])('an item %s', async (_, unknown) => {
  const outputOf = async (asked: string): Promise<readonly OutputItem[] | undefined> =>
    asked === response ? [stored] : undefined;
  await expect(resolved([stored, reference(unknown)], outputOf)).rejects.toMatchObject({
    status: 400,
    param: 'input[1].id',
    code: 'item_not_found',
    message: expect.stringContaining(unknown),
  });
});
