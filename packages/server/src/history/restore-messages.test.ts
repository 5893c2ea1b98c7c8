import { runLoop, type Message, type ToolResult } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { ApiError } from '../api-error.ts';
import { approvalIdFor, callIdFor, itemId } from '../ids.ts';
import type { InputItem } from '../apis/responses/wire.ts';
import type { ConversationBefore } from './conversation.ts';
import type { CompactedConversation } from '../apis/responses/compaction.ts';
import { conversationFrom, type OpenedCompaction } from './restore-messages.ts';
import { parseRequest } from '../apis/responses/parse-request.ts';

const RESPONSE = `resp_${'ab'.repeat(16)}`;
const ours = (kind: Parameters<typeof itemId>[0], turn: number, n: number): string => itemId(kind, RESPONSE, turn, n);
const callId = (turn: number, index: number): string => callIdFor(RESPONSE, turn, index);

/** Items as a client sends them. */
function items(...input: readonly object[]): readonly InputItem[] {
  return parseRequest({ input, previous_response_id: 'resp_1' }).input;
}

function refused(input: readonly InputItem[], before?: ConversationBefore): ApiError {
  try {
    conversationFrom(input, before);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('It was accepted.');
}

const user = (content: unknown): object => ({ role: 'user', content });
const assistant = (content: string, id?: string): object => ({ role: 'assistant', content, ...(id && { id }) });
const call = (call_id: string, id?: string): object => ({
  type: 'function_call',
  call_id,
  name: 'f',
  arguments: '{"n":1}',
  ...(id && { id }),
});
const output = (call_id: string, text = `of ${call_id}`): object => ({
  type: 'function_call_output',
  call_id,
  output: text,
});
const mcp = (id: string, more: object = { output: `of ${id}` }): object => ({
  type: 'mcp_call',
  id,
  server_label: 'treadle',
  name: 'read',
  arguments: '{}',
  ...more,
});

const said = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] });
const called = (id: string, name = 'f') =>
  ({ type: 'tool-call', id, name, arguments: name === 'f' ? '{"n":1}' : '{}' }) as const;
const answered = (callId: string, text = `of ${callId}`, name = 'f'): ToolResult => ({
  type: 'tool-result',
  callId,
  name,
  content: [{ type: 'text', text }],
  isError: false,
});

describe('a compaction', () => {
  const compaction = (opened: CompactedConversation): InputItem =>
    ({ type: 'compaction', id: 'cmp_1', encrypted_content: '', opened }) as OpenedCompaction;
  const shown = ({ messages }: { readonly messages: readonly Message[] }): string[] =>
    messages.map(({ role, content }) => `${role} ${content.map((part) => part.type).join(' ')}`);
  const reply = items(mcp(ours('mcp_call', 1, 0), { output: 'x', approval_request_id: 'mcpr_left' }), assistant('b'));

  test('of a response replaces all that is before it, which may be incomplete', () => {
    const made = compaction({ summary: 'S', system: ['kept'], after: 'user:\nc' });
    const old = items({ role: 'system', content: 'old' }, user('a'), call('c1'), user('d'));
    const { messages, system } = conversationFrom([...old, made, ...reply, ...items(user('e'))], {
      messages: [said('before')],
      system: ['before'],
    });
    expect(system).toEqual(['kept']);
    expect(shown({ messages })).toEqual([
      'user text',
      'assistant tool-call',
      'tool tool-result',
      'assistant text',
      'user text',
    ]);
    expect(JSON.stringify(messages[0])).toContain('S\\n\\nAfter that:\\n\\nuser:\\nc');
    expect(conversationFrom([made, ...reply, ...items(user('e'))])).toEqual({ messages, system });
    expect(conversationFrom([made, ...old.slice(0, 2), made, ...reply, ...items(user('e'))])).toEqual({
      messages,
      system,
    });
  });

  test('of the endpoint is added to what is before it', () => {
    const made = compaction({ summary: 'S', system: ['kept'] });
    const { messages, system } = conversationFrom([...items(user('a')), made, ...items(user('c'))]);
    expect([system, messages.length]).toEqual([['kept'], 3]);
    expect(refused([...items(call('c1')), made]).code).toBe('missing_output');
  });
});

describe('a conversation that the client stores', () => {
  test('may be a text or a dialogue', () => {
    expect(conversationFrom(parseRequest({ input: 'Hi' }).input)).toEqual({ messages: [said('Hi')], system: [] });
    expect(conversationFrom(items(user('a'), assistant('b'), user('c'))).messages).toEqual([
      said('a'),
      { role: 'assistant', content: [{ type: 'text', text: 'b' }] },
      said('c'),
    ]);
  });

  test('has system and developer messages apart, in order', () => {
    const { messages, system } = conversationFrom(
      items({ role: 'system', content: 'one' }, user('a'), { role: 'developer', content: 'two' }, user('b')),
    );
    expect(messages).toEqual([said('a'), said('b')]);
    expect(system).toEqual(['one', 'two']);
  });

  test('uses the last system message as user message if there is no other', () => {
    expect(conversationFrom(items({ role: 'system', content: 'one' }, { role: 'developer', content: 'two' }))).toEqual({
      messages: [said('two')],
      system: ['one'],
    });
  });

  test('may contain images and files in messages and outputs', () => {
    const parts = [
      { type: 'input_text', text: 'See:' },
      { type: 'input_image', image_url: 'data:image/png;base64,AAAA' },
      { type: 'input_file', filename: 'a.pdf', file_url: 'https://a.example/a.pdf' },
    ];
    const blocks = [
      { type: 'text', text: 'See:' },
      { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
      {
        type: 'file',
        mediaType: 'application/pdf',
        name: 'a.pdf',
        source: { type: 'url', url: 'https://a.example/a.pdf' },
      },
    ];
    const { messages } = conversationFrom(items(user(parts), call('c1'), { ...output('c1'), output: parts }));
    expect(messages[0]!.content).toEqual(blocks);
    expect(messages[2]!.content).toEqual([{ ...answered('c1'), content: blocks }]);
  });

  test('drops empty content', () => {
    expect(
      conversationFrom(
        items(user('a'), assistant(''), user(''), user([]), { type: 'reasoning', summary: [] }, user('b')),
      ).messages,
    ).toEqual([said('a'), said('b')]);
  });

  test('has parallel calls in one message, and their results in the next, in call order', () => {
    expect(
      conversationFrom(
        items(user('a'), call('c1'), call('c2'), call('c3'), output('c3'), output('c1'), output('c2'), user('b')),
      ).messages,
    ).toEqual([
      said('a'),
      { role: 'assistant', content: [called('c1'), called('c2'), called('c3')] },
      { role: 'tool', content: [answered('c1'), answered('c2'), answered('c3')] },
      said('b'),
    ]);
  });

  test('preserves text beside calls and reasoning before them, in order', () => {
    expect(
      conversationFrom(
        items(
          user('a'),
          { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }] },
          assistant('Let me look.'),
          call('c1'),
          assistant('And there.'),
          output('c1'),
          assistant('Done.'),
        ),
      ).messages,
    ).toEqual([
      said('a'),
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'Hm.', summary: true },
          { type: 'text', text: 'Let me look.' },
          called('c1'),
          { type: 'text', text: 'And there.' },
        ],
      },
      { role: 'tool', content: [answered('c1')] },
      { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] },
    ]);
  });

  test('may have a user message between a call and its output', () => {
    const expected = conversationFrom(items(user('a'), call('c1'), call('c2'), output('c1'), output('c2'), user('b')));
    for (const order of [
      [user('a'), call('c1'), call('c2'), user('b'), output('c1'), output('c2')],
      [user('a'), call('c1'), call('c2'), output('c1'), user('b'), output('c2')],
    ]) {
      expect(conversationFrom(items(...order))).toEqual(expected);
    }
    expect(() => conversationFrom(items(user('a'), call('c1'), user('b')))).toThrow('No tool output found');
  });

  test('may repeat call ids in different turns', () => {
    expect(
      conversationFrom(items(user('a'), call('c1'), output('c1'), call('c1'), output('c1', 'again'))).messages,
    ).toEqual([
      said('a'),
      { role: 'assistant', content: [called('c1')] },
      { role: 'tool', content: [answered('c1')] },
      { role: 'assistant', content: [called('c1')] },
      { role: 'tool', content: [answered('c1', 'again')] },
    ]);
  });

  test.each([
    ['is_error', { is_error: true }, true],
    ['the status', { status: 'incomplete' }, true],
    ['is_error in preference to the status', { status: 'incomplete', is_error: false }, false],
    ['neither', { status: 'completed' }, false],
  ])('marks an error by %s', (_, mark, isError) => {
    expect(conversationFrom(items(user('a'), call('c1'), { ...output('c1'), ...mark })).messages[2]).toEqual({
      role: 'tool',
      content: [{ ...answered('c1'), isError }],
    });
  });

  test('may contain calls of other servers with their results', () => {
    expect(
      conversationFrom(
        items(
          user('a'),
          { type: 'mcp_list_tools', id: 'mcpl_1', server_label: 'x', tools: [] },
          mcp('mcp_1'),
          mcp('mcp_2', { error: 'broken' }),
          mcp('mcp_3', { status: 'in_progress' }),
          mcp('mcp_4', {}),
          assistant('So.'),
        ),
      ).messages,
    ).toEqual([
      said('a'),
      {
        role: 'assistant',
        content: ['mcp_1', 'mcp_2', 'mcp_3', 'mcp_4'].map((id) => called(id, 'read')),
      },
      {
        role: 'tool',
        content: [
          answered('mcp_1', 'of mcp_1', 'read'),
          { ...answered('mcp_2', '', 'read'), content: [{ type: 'error', text: 'broken' }], isError: true },
          {
            ...answered('mcp_3', '', 'read'),
            content: [{ type: 'error', text: 'The call was not finished.' }],
            isError: true,
          },
          answered('mcp_4', '(The output of this call was left out.)', 'read'),
        ],
      },
      { role: 'assistant', content: [{ type: 'text', text: 'So.' }] },
    ]);
  });
});

describe('ids of this server separate the turns', () => {
  test('of calls with their outputs in between', () => {
    const [a, b] = [callId(1, 0), callId(1, 1)];
    const turn = [
      { role: 'assistant', content: [called(a), called(b)] },
      { role: 'tool', content: [answered(a), answered(b)] },
    ];
    const byItem = [call(a, ours('function_call', 1, 0)), output(a), call(b, ours('function_call', 1, 1)), output(b)];
    expect(conversationFrom(items(user('a'), ...byItem)).messages.slice(1)).toEqual(turn);
    // Clients that drop the ids of items still preserve those of calls.
    const byCall = [call(a), output(a), call(b), output(b)];
    expect(conversationFrom(items(user('a'), ...byCall)).messages.slice(1)).toEqual(turn);
  });

  test('of the server without items of the client in between', () => {
    expect(
      conversationFrom(
        items(
          user('a'),
          assistant('One.', ours('message', 1, 0)),
          mcp(ours('mcp_call', 1, 1), { output: 'x' }),
          mcp(ours('mcp_call', 2, 0), { error: 'y' }),
          mcp(ours('mcp_call', 2, 1), { output: 'z' }),
          assistant('End.', ours('message', 3, 0)),
        ),
      ).messages.slice(1),
    ).toEqual([
      { role: 'assistant', content: [{ type: 'text', text: 'One.' }, called(callId(1, 0), 'read')] },
      { role: 'tool', content: [answered(callId(1, 0), 'x', 'read')] },
      { role: 'assistant', content: [called(callId(2, 0), 'read'), called(callId(2, 1), 'read')] },
      {
        role: 'tool',
        content: [
          { ...answered(callId(2, 0), '', 'read'), content: [{ type: 'error', text: 'y' }], isError: true },
          answered(callId(2, 1), 'z', 'read'),
        ],
      },
      { role: 'assistant', content: [{ type: 'text', text: 'End.' }] },
    ]);
  });

  test('and restore the index of a call that was sent late', () => {
    const [a, b, c] = [callId(1, 0), callId(1, 1), callId(1, 2)];
    const { messages } = conversationFrom(
      items(user('a'), mcp(ours('mcp_call', 1, 0), { output: 'x' }), call(c), call(a), output(c), output(a)),
    );
    expect(messages.slice(1)).toEqual([
      { role: 'assistant', content: [called(a), called(b, 'read'), called(c)] },
      { role: 'tool', content: [answered(a), answered(b, 'x', 'read'), answered(c)] },
    ]);
  });

  test('and name the unanswered calls of a mixed turn', () => {
    const turn = [
      mcp(ours('mcp_call', 1, 0), { output: 'x' }),
      call(callId(1, 1)),
      call(callId(1, 2)),
      output(callId(1, 1)),
    ];
    expect(refused(items(user('a'), ...turn))).toMatchObject({
      code: 'missing_output',
      message: expect.stringContaining(callId(1, 2)),
    });
  });
});

describe('after a previous response', () => {
  const reply: Message = {
    role: 'assistant',
    content: [{ type: 'text', text: 'Let me see.' }, called('m1'), called('m2', 'read'), called('m3')],
  };
  const read = answered('m2', 'x', 'read');
  const before: ConversationBefore = {
    messages: [said('a'), reply],
    system: ['Be brief.'],
    open: {
      calls: [
        { wireId: callId(1, 0), callId: 'm1', name: 'f' },
        { wireId: callId(1, 1), callId: 'm2', name: 'read', result: read },
        { wireId: callId(1, 2), callId: 'm3', name: 'f' },
      ],
    },
  };
  const results: Message = {
    role: 'tool',
    content: [answered('m1', 'one'), read, { ...answered('m3', 'three'), isError: true }],
  };
  const outputs = [{ ...output(callId(1, 2), 'three'), is_error: true }, output(callId(1, 0), 'one')];

  test('merges outputs with the results of the server, in call order', () => {
    expect(conversationFrom(items(...outputs), before)).toEqual({
      messages: [said('a'), reply, results],
      system: ['Be brief.'],
    });
    expect(conversationFrom(items(...outputs, { role: 'system', content: 'Be kind.' }, user('b')), before)).toEqual({
      messages: [said('a'), reply, results, said('b')],
      system: ['Be brief.', 'Be kind.'],
    });
  });

  test('does not change the previous messages', () => {
    const copy = structuredClone(before);
    conversationFrom(items(...outputs), before);
    conversationFrom(items(...outputs), before);
    expect(before).toEqual(copy);
  });

  test('appends the input if no call is open', () => {
    const { open: _, ...closed } = before;
    expect(conversationFrom(items(user('b')), { ...closed, messages: [said('a')] }).messages).toEqual([
      said('a'),
      said('b'),
    ]);
    expect(conversationFrom([], { ...closed, messages: [said('a')] }).messages).toEqual([said('a')]);
    expect(refused(items(output('c1')), { ...closed, messages: [said('a')] })).toMatchObject({
      code: 'unknown_call',
      message: expect.stringContaining('all of its calls are answered'),
    });
  });

  test.each<[string, object[], Partial<ApiError>]>([
    [
      'rejects missing outputs',
      [],
      { code: 'missing_output', message: expect.stringContaining(`${callId(1, 0)}, ${callId(1, 2)}`) },
    ],
    [
      'rejects a missing output',
      [outputs[0]!],
      { code: 'missing_output', message: expect.stringContaining(callId(1, 0)) },
    ],
    ['rejects a user message instead of outputs', [user('b')], { code: 'missing_output', param: 'input' }],
    [
      'rejects two outputs for one call',
      [outputs[0]!, outputs[0]!],
      { code: 'duplicate_output', param: 'input[1].call_id' },
    ],
    [
      'rejects an output for a call of the server',
      [output(callId(1, 1))],
      { code: 'duplicate_output', message: expect.stringContaining(callId(1, 1)) },
    ],
    [
      'rejects an output for an unknown call',
      [output('c9')],
      {
        code: 'unknown_call',
        param: 'input[0].call_id',
        message: expect.stringMatching(new RegExp(`'c9'.*${callId(1, 0)}, ${callId(1, 2)}`)),
      },
    ],
    ['rejects an additional output', [...outputs, output('c9')], { code: 'unknown_call', param: 'input[2].call_id' }],
    [
      'rejects a repeated call',
      [call(callId(1, 0)), ...outputs],
      { code: 'duplicate_call', param: 'input[0].call_id' },
    ],
  ])('%s', (_, input, error) => {
    expect(refused(items(...input), before)).toMatchObject({ status: 400, ...error });
  });
});

describe('rejects', () => {
  test.each<[string, object[], Partial<ApiError>]>([
    [
      'an output without a call',
      [user('a'), output('c1')],
      { code: 'unknown_call', param: 'input[1].call_id', message: expect.stringContaining("call_id 'c1'") },
    ],
    ['an output before its call', [output('c1'), call('c1')], { code: 'unknown_call', param: 'input[0].call_id' }],
    [
      'a call without an output',
      [user('a'), call('c1')],
      { code: 'missing_output', message: expect.stringContaining('c1') },
    ],
    ['a user message instead of an output', [call('c1'), user('b')], { code: 'missing_output' }],
    [
      'two outputs for one call',
      [call('c1'), output('c1'), output('c1')],
      { code: 'duplicate_output', param: 'input[2].call_id' },
    ],
    ['two calls with one id', [call('c1'), call('c1')], { code: 'duplicate_call', param: 'input[1].call_id' }],
    ['two calls of a server with one id', [mcp('m1'), mcp('m1')], { code: 'duplicate_call', param: 'input[1].id' }],
    ['an output for a server’s call', [mcp('m1'), output('m1')], { code: 'duplicate_output' }],
    ['an output for an earlier turn', [call('c1'), output('c1'), call('c2'), output('c1')], { code: 'unknown_call' }],
    ['a reference to an unknown item', [{ id: 'msg_1' }], { code: 'item_not_found', param: 'input[0].id' }],
    ['empty input', [user('')], { code: 'empty_input', param: 'input' }],
  ])('%s', (_, input, error) => {
    expect(refused(items(...input))).toMatchObject({ status: 400, ...error });
  });
});

test('the loop accepts the conversation and sends it to the model', async () => {
  const seen: Message[][] = [];
  const model = scriptedModel([{ text: 'Done.' }]);
  const { messages } = conversationFrom(
    items(user('a'), assistant('Hm.'), call('c1'), call('c2'), output('c2'), output('c1')),
  );
  const result = await runLoop({
    model: { ...model, reply: (request, ...rest) => (seen.push([...request.messages]), model.reply(request, ...rest)) },
    input: messages,
  });
  expect(result.outcome).toEqual({ type: 'completed' });
  expect(seen).toEqual([messages]);
});

describe('calls that the client approves', () => {
  const request = (id: string): object => ({
    type: 'mcp_approval_request',
    id,
    server_label: 's',
    name: 'read',
    arguments: '{}',
  });
  const decided = (id: string, approve = true, reason?: string): object => ({
    type: 'mcp_approval_response',
    approval_request_id: id,
    approve,
    ...(reason && { reason }),
  });
  const approvalId = (turn: number, index: number): string => approvalIdFor(RESPONSE, turn, index);
  const [first, second] = [approvalId(1, 0), approvalId(1, 2)];

  test('at the end are what the next run begins with, in call order, with the results that others have', () => {
    const input = items(
      user('a'),
      assistant('t', ours('message', 1, 0)),
      call(callId(1, 1), ours('function_call', 1, 1)),
      request(first),
      decided(first),
      output(callId(1, 1)),
      request(second),
      decided(second, false, 'no'),
      user('b'),
    );
    const { messages, open } = conversationFrom(input);
    expect(messages).toEqual([
      said('a'),
      {
        role: 'assistant',
        content: [{ type: 'text', text: 't' }, called(first, 'read'), called(callId(1, 1)), called(second, 'read')],
      },
    ]);
    expect(open).toEqual({
      answered: [answered(callId(1, 1))],
      approvals: [
        { index: 0, label: 's', requestId: first, approved: true },
        { index: 2, label: 's', requestId: second, approved: false, reason: 'no' },
      ],
      followUp: [said('b')],
    });
  });

  test('with their results are one call each, whatever the ids of the items are', () => {
    const result = (id: string, approval: string): object => mcp(id, { output: 'o', approval_request_id: approval });
    for (const [asked, id] of [
      [first, itemId('mcp_call', `resp_${'cd'.repeat(16)}`, 0, 0)],
      ['x1', 'x2'],
    ] as const) {
      const input = items(user('a'), request(asked), decided(asked), result(id, asked), assistant('t'), user('b'));
      expect(conversationFrom(input)).toEqual({
        messages: [
          said('a'),
          { role: 'assistant', content: [called(asked, 'read')] },
          { role: 'tool', content: [answered(asked, 'o', 'read')] },
          { role: 'assistant', content: [{ type: 'text', text: 't' }] },
          said('b'),
        ],
        system: [],
      });
    }
    // The client has left out the request.
    const { messages } = conversationFrom(items(user('a'), result('x2', first), user('b')));
    expect(messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'user']);
  });

  test('are not executed again if the client has left out their results', () => {
    const input = items(user('a'), request('x1'), request('x2'), decided('x1'), decided('x2', false), assistant('t'));
    const { messages, open } = conversationFrom(input);
    expect(open).toBe(undefined);
    expect(messages[2]).toMatchObject({
      content: [
        { isError: false, content: [{ text: '(The output of this call was left out.)' }] },
        { isError: true, content: [{ text: 'The call of "read" was not approved.' }] },
      ],
    });
  });

  test('of a previous response need no other item', () => {
    const paused: ConversationBefore = {
      messages: [said('a'), { role: 'assistant', content: [called('m0', 'read'), called('m1', 'read')] }],
      system: [],
      open: {
        calls: [
          { wireId: first, callId: 'm0', name: 'read', needs: 'approval' },
          { wireId: callId(1, 1), callId: 'm1', name: 'read', needs: 'nothing' },
        ],
      },
    };
    expect(conversationFrom(items(request(first), decided(first)), paused)).toEqual({
      messages: paused.messages,
      system: [],
      open: { answered: [], approvals: [{ index: 0, requestId: first, approved: true }], followUp: [] },
    });
    expect(refused(items(user('b')), paused)).toMatchObject({ code: 'missing_approval' });
    expect(refused(items(decided(second)), paused)).toMatchObject({
      code: 'unknown_approval',
      param: 'input[0].approval_request_id',
    });
  });

  test('need a decision each', () => {
    const input = items(user('a'), request('x1'), request('x2'), decided('x1'));
    expect(refused(input)).toMatchObject({
      status: 400,
      code: 'missing_approval',
      message: expect.stringContaining('x2'),
    });
  });
});
