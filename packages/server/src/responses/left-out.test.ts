import { expect, test } from 'vitest';
import type { OutputItem } from '../wire/items.ts';
import { callIdFor, itemId } from './ids.ts';
import type { InputItem } from './input-items.ts';
import { withServerCalls } from './left-out.ts';

const response = `resp_${'0a'.repeat(16)}`;
const message = (turn: number, n: number): OutputItem => ({
  type: 'message',
  id: itemId('message', response, turn, n),
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'output_text', text: `turn ${turn}`, annotations: [], logprobs: [] }],
});
const server = (turn: number, n: number): OutputItem => ({
  type: 'mcp_call',
  id: itemId('mcp_call', response, turn, n),
  server_label: 'treadle',
  name: 'add',
  arguments: '{}',
  status: 'completed',
  output: '3',
  error: null,
  approval_request_id: null,
});
const client: OutputItem = {
  type: 'function_call',
  id: itemId('function_call', response, 2, 2),
  call_id: callIdFor(response, 2, 1),
  name: 'weather',
  arguments: '{}',
  status: 'completed',
};
const output = [message(1, 0), server(1, 1), message(2, 0), server(2, 1), client, server(2, 3)];
const asked: InputItem = {
  type: 'message',
  id: 'msg_1',
  status: 'completed',
  role: 'user',
  content: [{ type: 'input_text', text: 'Go' }],
};
const answer: InputItem = {
  type: 'function_call_output',
  id: 'fco_1',
  call_id: client.call_id,
  output: 'rain',
  status: 'completed',
};
const outputOf = async (id: string): Promise<readonly OutputItem[] | undefined> =>
  id === response ? output : undefined;

test('calls that a client knows nothing of are put back where they were', async () => {
  const sent = [asked, message(1, 0), message(2, 0), client, answer];
  expect(await withServerCalls(sent, outputOf)).toEqual([asked, ...output, answer]);
});

test('also where the client has kept nothing but its call, under an id of its own', async () => {
  const own: InputItem = { ...client, id: 'fc_1' };
  expect(await withServerCalls([asked, own, answer], outputOf)).toEqual([
    asked,
    server(1, 1),
    server(2, 1),
    own,
    server(2, 3),
    answer,
  ]);
});

test.each([
  ['who sends some of them is taken at his word', [asked, server(2, 1), client, answer]],
  ['without a call of the response nothing is added', [asked, message(1, 0), message(2, 0), asked]],
  ['calls of others', [asked, { ...client, call_id: 'call_1' }, { ...answer, call_id: 'call_1' }]],
  ['a response that is not stored', [{ ...client, call_id: callIdFor(`resp_${'0b'.repeat(16)}`, 1, 0) }]],
])('%s', async (_, sent: readonly InputItem[]) => {
  expect(await withServerCalls(sent, outputOf)).toEqual(sent);
});
