import { describe, expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import type { InputItem } from './wire.ts';
import { parseRequest } from './parse-request.ts';
import { mcpError } from './wire.ts';

/** With `<prefix>_new` for each id that the server made. */
function parsed(...input: readonly unknown[]): readonly InputItem[] {
  const items = parseRequest({ input }).input;
  expect(new Set(items.map(({ id }) => id)).size).toBe(items.length);
  return items.map((item) => ({ ...item, id: item.id.replace(/_[0-9a-f]{32}$/, '_new') }));
}

function refused(...input: readonly unknown[]): ApiError {
  try {
    parsed(...input);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('It was accepted.');
}

const whole = { type: 'message', id: 'msg_new', status: 'completed' };
const text = (text: string): object => ({ type: 'input_text', text });
const said = (text: string): object => ({ type: 'output_text', text, annotations: [], logprobs: [] });

describe('messages', () => {
  test.each([
    [
      { role: 'user', content: 'a' },
      { ...whole, role: 'user', content: [text('a')] },
    ],
    [
      { type: 'message', role: 'user', content: 'a' },
      { ...whole, role: 'user', content: [text('a')] },
    ],
    [
      { type: null, id: null, status: null, role: 'user', content: 'a' },
      { ...whole, role: 'user', content: [text('a')] },
    ],
    [
      { id: '', role: 'user', content: 'a' },
      { ...whole, role: 'user', content: [text('a')] },
    ],
    [
      { id: 'msg_1', role: 'user', content: 'a' },
      { ...whole, id: 'msg_1', role: 'user', content: [text('a')] },
    ],
    [
      { role: 'system', content: 'a' },
      { ...whole, role: 'system', content: [text('a')] },
    ],
    [
      { role: 'developer', content: [text('a')] },
      { ...whole, role: 'developer', content: [text('a')] },
    ],
    [
      { role: 'user', content: [{ type: 'text', text: 'a' }] },
      { ...whole, role: 'user', content: [text('a')] },
    ],
    [
      { role: 'assistant', content: 'a' },
      { ...whole, role: 'assistant', content: [said('a')] },
    ],
    [
      { role: 'assistant', content: [text('a')] },
      { ...whole, role: 'assistant', content: [said('a')] },
    ],
    [
      {
        type: 'message',
        id: 'msg_1',
        role: 'assistant',
        status: 'incomplete',
        phase: 'commentary',
        content: [
          { type: 'output_text', text: 'a', annotations: [{ type: 'url_citation' }] },
          { type: 'refusal', refusal: 'no' },
        ],
      },
      {
        type: 'message',
        id: 'msg_1',
        status: 'incomplete',
        role: 'assistant',
        phase: 'commentary',
        content: [said('a'), { type: 'refusal', refusal: 'no' }],
      },
    ],
  ])('%j', (sent, item) => {
    expect(parsed(sent)).toEqual([item]);
  });

  test('accepts images and files', () => {
    const png = 'data:image/png;base64,AAAA';
    const content = [
      { type: 'input_image', image_url: 'https://a.example/cat.png' },
      { type: 'input_image', image_url: png, detail: 'high', file_id: null },
      { type: 'input_file', file_data: 'data:application/pdf;base64,AAAA', filename: 'a.pdf' },
      { type: 'input_file', file_url: 'https://a.example/a.pdf', filename: null },
    ];
    expect(parsed({ role: 'user', content })).toEqual([
      {
        ...whole,
        role: 'user',
        content: [
          { type: 'input_image', image_url: 'https://a.example/cat.png', detail: 'auto' },
          { type: 'input_image', image_url: png, detail: 'high' },
          { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,AAAA' },
          { type: 'input_file', file_url: 'https://a.example/a.pdf' },
        ],
      },
    ]);
  });
});

test('accepts all other items', () => {
  const call = { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' };
  const mcp = { type: 'mcp_call', server_label: 's', name: 'g', arguments: '{}' };
  expect(
    parsed(
      { type: 'reasoning', summary: [{ type: 'summary_text', text: 'a' }], content: null, encrypted_content: 'x' },
      { type: 'reasoning', id: 'rs_1', content: [{ type: 'reasoning_text', text: 'b' }] },
      call,
      { type: 'function_call_output', call_id: 'c1', output: 'o' },
      { type: 'function_call_output', call_id: 'c2', output: [text('o')], status: 'incomplete', is_error: true },
      { ...mcp, id: 'mcp_1', output: 'o', approval_request_id: 'x' },
      { ...mcp, error: 'e' },
      { ...mcp, error: { type: 'mcp_tool_execution_error', message: 'm' } },
      { ...mcp, error: { content: [] } },
      { ...mcp, status: 'failed' },
      { type: 'mcp_list_tools', server_label: 's', tools: [{ name: 'g' }] },
      { type: 'mcp_list_tools', id: 'mcpl_1', server_label: 's', tools: null, error: { message: 'm' } },
      { type: 'mcp_approval_request', id: 'mcpr_1', server_label: 's', name: 'g', arguments: '{}' },
      { type: 'mcp_approval_response', approval_request_id: 'mcpr_1', approve: false, reason: 'r', request_id: 'x' },
      { type: 'mcp_approval_response', id: 'mcpa_1', approval_request_id: 'mcpr_2', approve: true, reason: null },
      { type: 'item_reference', id: 'msg_1' },
      { id: 'msg_2' },
    ),
  ).toEqual([
    {
      type: 'reasoning',
      id: 'rs_new',
      status: 'completed',
      summary: [{ type: 'summary_text', text: 'a' }],
      encrypted_content: 'x',
    },
    {
      type: 'reasoning',
      id: 'rs_1',
      status: 'completed',
      summary: [],
      content: [{ type: 'reasoning_text', text: 'b' }],
    },
    { ...call, id: 'fc_new', status: 'completed' },
    { type: 'function_call_output', id: 'fco_new', call_id: 'c1', output: 'o', status: 'completed' },
    {
      type: 'function_call_output',
      id: 'fco_new',
      call_id: 'c2',
      output: [text('o')],
      status: 'incomplete',
      is_error: true,
    },
    { ...mcp, id: 'mcp_1', status: 'completed', output: 'o', error: null, approval_request_id: 'x' },
    { ...mcp, id: 'mcp_new', status: 'failed', output: null, error: mcpError('e'), approval_request_id: null },
    { ...mcp, id: 'mcp_new', status: 'failed', output: null, error: mcpError('m'), approval_request_id: null },
    {
      ...mcp,
      id: 'mcp_new',
      status: 'failed',
      output: null,
      error: mcpError('{"content":[]}'),
      approval_request_id: null,
    },
    { ...mcp, id: 'mcp_new', status: 'failed', output: null, error: null, approval_request_id: null },
    { type: 'mcp_list_tools', id: 'mcpl_new', server_label: 's', tools: [{ name: 'g' }] },
    { type: 'mcp_list_tools', id: 'mcpl_1', server_label: 's', tools: [], error: 'm' },
    { type: 'mcp_approval_request', id: 'mcpr_1', server_label: 's', name: 'g', arguments: '{}' },
    { type: 'mcp_approval_response', id: 'mcpa_new', approval_request_id: 'mcpr_1', approve: false, reason: 'r' },
    { type: 'mcp_approval_response', id: 'mcpa_1', approval_request_id: 'mcpr_2', approve: true },
    { type: 'item_reference', id: 'msg_1' },
    { type: 'item_reference', id: 'msg_2' },
  ]);
});

test('an item without an id gets the same one when it is sent again after the same items, and only then', () => {
  const said = (content: string): object => ({ role: 'user', content });
  const ids = (...texts: string[]): string[] => parseRequest({ input: texts.map(said) }).input.map(({ id }) => id);
  expect(ids('a', 'b', 'c').slice(0, 2)).toEqual(ids('a', 'b'));
  expect(ids('x', 'b')[1]).not.toBe(ids('a', 'b')[1]);
  expect(new Set(ids('a', 'a', 'a')).size).toBe(3);
});

test('creates ids that do not contain a turn', () => {
  const [first, second] = parseRequest({
    input: [
      { role: 'user', content: 'a' },
      { role: 'user', content: 'b' },
    ],
  }).input;
  expect(first!.id).toMatch(/^msg_[0-9a-f]{32}$/);
  expect(first!.id).not.toBe(second!.id);
});

const user = (part: unknown): object => ({ role: 'user', content: [part] });

describe('rejects, with the path of the field,', () => {
  test.each<[unknown, Partial<ApiError>]>([
    ['a', { param: 'input[0]', code: 'invalid_type' }],
    [null, { param: 'input[0]', message: expect.stringContaining('got null') }],
    [[], { param: 'input[0]' }],
    [{}, { param: 'input[0].type', code: 'missing_required_parameter' }],
    [{ type: 'poem' }, { param: 'input[0].type', message: expect.stringMatching(/'poem'.*'message', 'reasoning'/) }],
    [{ type: 7 }, { param: 'input[0].type' }],
    [{ type: 'compaction' }, { param: 'input[0].encrypted_content', code: 'missing_required_parameter' }],
    [
      { type: 'message', content: 'a' },
      { param: 'input[0].role', code: 'missing_required_parameter' },
    ],
    [
      { role: 'tool', content: 'a' },
      { param: 'input[0].role', code: 'invalid_value' },
    ],
    [{ role: 'user' }, { param: 'input[0].content', code: 'missing_required_parameter' }],
    [
      { role: 'user', content: null },
      { param: 'input[0].content', code: 'invalid_type' },
    ],
    [
      { role: 'user', content: {} },
      { param: 'input[0].content', message: expect.stringContaining('a list of parts') },
    ],
    [{ role: 'user', content: 'a', id: 7 }, { param: 'input[0].id' }],
    [{ role: 'user', content: 'a', id: 'i'.repeat(257) }, { param: 'input[0].id' }],
    [{ role: 'assistant', content: 'a', phase: 'mid' }, { param: 'input[0].phase' }],
    [user('a'), { param: 'input[0].content[0]', code: 'invalid_type' }],
    [user({}), { param: 'input[0].content[0].type', code: 'missing_required_parameter' }],
    [user({ type: 'input_text' }), { param: 'input[0].content[0].text', code: 'missing_required_parameter' }],
    [user({ type: 'input_text', text: 7 }), { param: 'input[0].content[0].text', code: 'invalid_type' }],
    [
      user({ type: 'output_text', text: 'a' }),
      {
        param: 'input[0].content[0].type',
        message: expect.stringContaining("'input_text', 'input_image', 'input_file'"),
      },
    ],
    [user({ type: 'input_audio' }), { param: 'input[0].content[0].type', code: 'invalid_value' }],
    [
      { role: 'system', content: [{ type: 'input_image', image_url: 'https://a.example/x.png' }] },
      { param: 'input[0].content[0].type' },
    ],
    [{ role: 'assistant', content: [{ type: 'input_image' }] }, { param: 'input[0].content[0].type' }],
    [user({ type: 'input_image' }), { param: 'input[0].content[0].image_url' }],
    [
      user({ type: 'input_image', file_id: 'file_1' }),
      { param: 'input[0].content[0].file_id', message: expect.stringContaining("Send 'image_url'") },
    ],
    [
      user({ type: 'input_image', image_url: { url: 'https://a.example' } }),
      { param: 'input[0].content[0].image_url' },
    ],
    [user({ type: 'input_image', image_url: 'file:///etc/passwd' }), { param: 'input[0].content[0].image_url' }],
    [user({ type: 'input_image', image_url: 'cat.png' }), { param: 'input[0].content[0].image_url' }],
    [user({ type: 'input_image', image_url: 'data:text/plain;base64,AAAA' }), { code: 'invalid_image_url' }],
    [user({ type: 'input_image', image_url: 'data:image/png;base64,***' }), { code: 'invalid_base64' }],
    [user({ type: 'input_image', image_url: 'data:image/png;base64,' }), { code: 'invalid_base64' }],
    [user({ type: 'input_image', image_url: 'data:image/png' }), { code: 'invalid_base64' }],
    [user({ type: 'input_file' }), { param: 'input[0].content[0]', code: 'invalid_file' }],
    [
      user({ type: 'input_file', file_data: 'AAAA', file_url: 'https://a.example/a' }),
      { param: 'input[0].content[0]', message: expect.stringContaining("either 'file_data' or 'file_url'") },
    ],
    [
      user({ type: 'input_file', file_id: 'file_1' }),
      { param: 'input[0].content[0].file_id', code: 'unsupported_parameter' },
    ],
    [user({ type: 'input_file', file_data: 'not base64!' }), { param: 'input[0].content[0].file_data' }],
    [user({ type: 'input_file', file_url: 'ftp://a.example/a' }), { param: 'input[0].content[0].file_url' }],
    [{ type: 'function_call', name: 'f', arguments: '{}' }, { param: 'input[0].call_id' }],
    [{ type: 'function_call', call_id: '', name: 'f', arguments: '{}' }, { param: 'input[0].call_id' }],
    [{ type: 'function_call', call_id: 'c', arguments: '{}' }, { param: 'input[0].name' }],
    [
      { type: 'function_call', call_id: 'c', name: 'f', arguments: {} },
      { param: 'input[0].arguments', code: 'invalid_type' },
    ],
    [{ type: 'function_call_output', output: 'o' }, { param: 'input[0].call_id' }],
    [
      { type: 'function_call_output', call_id: 'c' },
      { param: 'input[0].output', code: 'missing_required_parameter' },
    ],
    [
      { type: 'function_call_output', call_id: 'c', output: {} },
      { param: 'input[0].output', code: 'invalid_type' },
    ],
    [{ type: 'function_call_output', call_id: 'c', output: [{}] }, { param: 'input[0].output[0].type' }],
    [{ type: 'mcp_call', name: 'f', arguments: '{}' }, { param: 'input[0].server_label' }],
    [{ type: 'reasoning', summary: 'a' }, { param: 'input[0].summary' }],
    [{ type: 'item_reference' }, { param: 'input[0].id' }],
  ])('%j', (item, error) => {
    expect(refused(item)).toMatchObject({ status: 400, type: 'invalid_request_error', ...error });
  });

  test('the second item', () => {
    expect(refused({ role: 'user', content: 'a' }, user({ type: 'poem' })).param).toBe('input[1].content[0].type');
  });
});
