import { userText, type Message, type ModelRequest, type ToolSpec } from '@treadle/core';
import type { ChatCompletionCreateParams } from 'openai/resources/chat/completions';
import { expect, test } from 'vitest';
import { readBody, request } from '../../test/request.ts';
import { callIdFor } from '../calls.ts';
import { chatBody } from './body.ts';
import type { Quirks } from './quirks.ts';

const spec = (name: string): ToolSpec => ({
  name,
  description: name,
  parameters: { type: 'object', properties: {} },
});
const shell = spec('shell');
const read = spec('read');

function bodyOf(quirks: Quirks, overrides: Partial<ModelRequest> = {}): Record<string, unknown> {
  return readBody(chatBody({ model: 'm', stream: true, ...quirks })(request(overrides)));
}

const called = (reasoning: readonly object[], id = 'call_1'): Message => ({
  role: 'assistant',
  content: [
    ...(reasoning as Extract<Message, { role: 'assistant' }>['content']),
    { type: 'tool-call', id, name: 'read', arguments: '{}' },
  ],
});
const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
const answered = (...content: readonly object[]): Message =>
  ({
    role: 'tool',
    content: [{ type: 'tool-result', callId: 'call_1', name: 'read', content, isError: false }],
  }) as Message;
const ok = { type: 'text', text: 'ok' };

const nineOf = (id: string): string => callIdFor(id, { accepted: /^[a-zA-Z0-9]{9}$/, length: 9 });

test('maxTokensField: names the field that limits the output', () => {
  const settings = { maxOutputTokens: 9 };
  expect(bodyOf({}, { settings })).toMatchObject({ max_tokens: 9 });
  expect(bodyOf({ maxTokensField: 'max_completion_tokens' }, { settings })).toMatchObject({ max_completion_tokens: 9 });
});

test('streamUsage: false omits stream_options', () => {
  expect(bodyOf({})).toMatchObject({ stream_options: { include_usage: true } });
  expect(bodyOf({ streamUsage: false })).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: 'hi' }],
    stream: true,
  });
});

test('parallelSwitch: false omits parallel_tool_calls', () => {
  const overrides = { tools: [shell], parallel: false };
  expect(bodyOf({}, overrides)).toMatchObject({ parallel_tool_calls: false });
  expect(bodyOf({ parallelSwitch: false }, overrides)).not.toHaveProperty('parallel_tool_calls');
});

const named = { type: 'function', function: { name: 'read' } };
const subset = (mode: string): unknown => ({ type: 'allowed_tools', allowed_tools: { mode, tools: [named] } });

test.each([
  ['subset', 'required', [named, 2], [subset('auto'), 2], [subset('required'), 2]],
  ['named', 'required', [named, 2], [undefined, 2], ['required', 2]],
  ['required', 'required', ['required', 1], [undefined, 2], ['required', 2]],
  ['auto', undefined, [undefined, 1], [undefined, 2], [undefined, 2]],
] as const)('toolChoice: sends no more than %s', (toolChoice, required, one, some, someRequired) => {
  const offered = (overrides: Partial<ModelRequest>): unknown => {
    const { tool_choice, tools } = bodyOf({ toolChoice }, { tools: [shell, read], ...overrides });
    const names = (tools as { function: ToolSpec }[]).map((tool) => tool.function.name);
    if (names.length === 1) expect(names).toEqual(['read']);
    return [tool_choice, names.length];
  };
  expect(offered({})).toEqual([undefined, 2]);
  expect(offered({ toolChoice: 'none' })).toEqual(['none', 2]);
  expect(offered({ allowedTools: [] })).toEqual(['none', 2]);
  expect(offered({ toolChoice: 'required' })).toEqual([required, 2]);
  expect(offered({ toolChoice: { tool: 'read' } })).toEqual(one);
  expect(offered({ allowedTools: ['read'] })).toEqual(some);
  expect(offered({ allowedTools: ['read'], toolChoice: 'required' })).toEqual(someRequired);
});

test('toolChoice: sends neither tools nor a choice if the named tool does not exist', () => {
  const body = bodyOf({ toolChoice: 'required' }, { tools: [shell], toolChoice: { tool: 'read' } });
  expect(body).not.toHaveProperty('tools');
  expect(body).not.toHaveProperty('tool_choice');
});

test('output: requests a schema, a schema without tools, a JSON object, or only describes it', () => {
  const output = { type: 'object', properties: { total: { type: 'number' } } };
  const schema = { type: 'json_schema', json_schema: { name: 'answer', schema: output } };
  const description = `Give the final answer as JSON alone, without other words, that fits this JSON Schema:\n${JSON.stringify(output)}`;
  const asked = (quirk: Quirks['output'], overrides: Partial<ModelRequest> = {}): unknown => {
    const body = bodyOf(quirk === undefined ? {} : { output: quirk }, {
      output,
      instructions: 'Be brief.',
      ...overrides,
    });
    const [system] = body['messages'] as { content: string }[];
    return [body['response_format'], system!.content];
  };
  const instructions = `Be brief.\n\n${description}`;
  const tools = [shell];
  expect(asked(undefined)).toEqual([schema, 'Be brief.']);
  expect(asked('schema', { tools })).toEqual([schema, 'Be brief.']);
  expect(asked('schema-without-tools')).toEqual([schema, instructions]);
  expect(asked('schema-without-tools', { tools })).toEqual([undefined, instructions]);
  expect(asked('schema-without-tools', { tools, toolChoice: 'none' })).toEqual([schema, instructions]);
  expect(asked('object', { tools })).toEqual([{ type: 'json_object' }, instructions]);
  expect(asked('none')).toEqual([undefined, instructions]);
  expect(bodyOf({ output: 'none' })['messages']).toEqual([{ role: 'user', content: 'hi' }]);
});

test('jsonObject: requests any JSON object as such, or as a schema', () => {
  const any = { output: { type: 'object' }, outputForm: { anyObject: true } } as const;
  const object = { type: 'json_object' };
  const schema = { type: 'json_schema', json_schema: { name: 'answer', schema: { type: 'object' } } };
  const asked = (quirks: Quirks, overrides: Partial<ModelRequest> = {}): unknown =>
    bodyOf(quirks, { ...any, ...overrides })['response_format'];
  expect(asked({})).toEqual(object);
  expect(asked({ output: 'schema-without-tools' })).toEqual(object);
  expect(asked({ output: 'schema-without-tools' }, { tools: [shell] })).toBeUndefined();
  expect(asked({ output: 'none' })).toBeUndefined();
  expect(asked({ jsonObject: false })).toEqual(schema);
  expect(asked({ jsonObject: false, output: 'object' })).toEqual(object);
});

test('reasoning: sends reasoning back with calls in the form of the host', () => {
  const details = [{ type: 'reasoning.text', text: 'hmm', signature: 's', index: 0 }];
  const thought = { type: 'reasoning', text: 'hmm' };
  const signed = { ...thought, signature: JSON.stringify(details), protocol: 'openrouter' };
  const foreign = { ...thought, signature: 'proof', protocol: 'anthropic' };
  const sent = (reasoning: Quirks['reasoning'], parts: readonly object[]): unknown => {
    const [message] = bodyOf(reasoning === undefined ? {} : { reasoning }, { messages: [called(parts)] })[
      'messages'
    ] as Record<string, unknown>[];
    const { role: _role, content: _content, tool_calls: _calls, ...rest } = message!;
    return rest;
  };
  for (const quirk of [undefined, 'none'] as const) expect(sent(quirk, [signed])).toEqual({});
  expect(sent('reasoning_content', [thought, signed])).toEqual({ reasoning_content: 'hmmhmm' });
  expect(sent('reasoning_content', [])).toEqual({ reasoning_content: '' });
  expect(sent('openrouter', [signed])).toEqual({ reasoning_details: details });
  expect(sent('openrouter', [foreign])).toEqual({ reasoning: 'hmm' });
  expect(sent('openrouter', [])).toEqual({});

  const answer: Message = {
    role: 'assistant',
    content: [
      { type: 'reasoning', text: 'hmm' },
      { type: 'text', text: 'a' },
    ],
  };
  for (const reasoning of ['reasoning_content', 'openrouter'] as const) {
    expect(bodyOf({ reasoning }, { messages: [answer] })['messages']).toEqual([{ role: 'assistant', content: 'a' }]);
  }
});

test('reasoning: requests the effort in the form of the host', () => {
  const settings = { reasoning: 'low' } as const;
  expect(bodyOf({ reasoning: 'reasoning_content' }, { settings })).toMatchObject({ reasoning_effort: 'low' });
  const body = bodyOf({ reasoning: 'openrouter' }, { settings });
  expect(body).toMatchObject({ reasoning: { effort: 'low' } });
  expect(body).not.toHaveProperty('reasoning_effort');
  expect(bodyOf({ reasoning: 'openrouter' })).not.toHaveProperty('reasoning');
});

test('callIds: replaces ids by nine letters or digits, the same for a call and its result', () => {
  const id = nineOf('call_1');
  expect(id).toMatch(/^[a-zA-Z0-9]{9}$/);
  expect(nineOf('call_1')).toBe(id);
  expect(nineOf('call_2')).not.toBe(id);
  expect(nineOf('D681PevKs')).toBe('D681PevKs');
  expect(bodyOf({ callIds: 'nine' }, { messages: [called([]), answered(ok)] })['messages']).toMatchObject([
    { tool_calls: [{ id }] },
    { tool_call_id: id },
  ]);
  const ids = new Set(Array.from({ length: 5_000 }, (_, n) => nineOf(`call_t${n}_0`)));
  expect(ids.size).toBe(5_000);
  for (const one of ids) expect(one).toMatch(/^[a-zA-Z0-9]{9}$/);
});

test('userAfterResults: false inserts an assistant message between results and a user message', () => {
  const rolesOf = (messages: readonly Message[]): unknown =>
    (bodyOf({ userAfterResults: false }, { messages })['messages'] as { role: string }[]).map(({ role }) => role);
  const bridge = { role: 'assistant', content: 'Noted.' };
  const messages = [userText('a'), called([]), answered(ok)];
  expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool']);
  messages.push(userText('b'), userText('c'));
  expect(rolesOf(messages)).toEqual(['user', 'assistant', 'tool', 'assistant', 'user', 'user']);
  expect(bodyOf({ userAfterResults: false }, { messages })['messages']).toContainEqual(bridge);
  expect(bodyOf({}, { messages })['messages']).not.toContainEqual(bridge);
  expect(rolesOf([called([]), answered(image)])).toEqual(['assistant', 'tool', 'assistant', 'user']);
});

test('media: false replaces images and files by notes', () => {
  const messages: Message[] = [
    { role: 'user', content: [{ type: 'text', text: 'See' }, image] },
    called([]),
    answered(ok, image),
    answered(image),
    answered(),
  ];
  const note = '[An image that cannot be shown here: image/png]';
  expect(bodyOf({ media: false }, { messages })['messages']).toMatchObject([
    { role: 'user', content: `See\n${note}` },
    { role: 'assistant' },
    { role: 'tool', content: `ok\n${note}` },
    { role: 'tool', content: note },
    { role: 'tool', content: '' },
  ]);
});

test('writes one history separately for models with different quirks', () => {
  const messages = [userText('a'), called([{ type: 'reasoning', text: 'hmm' }]), answered(ok)];
  for (let round = 0; round < 2; round++) {
    expect(bodyOf({}, { messages })['messages']).toMatchObject([{}, { tool_calls: [{ id: 'call_1' }] }, {}]);
    expect(bodyOf({ callIds: 'nine' }, { messages })['messages']).toMatchObject([
      {},
      { tool_calls: [{ id: nineOf('call_1') }] },
      {},
    ]);
    expect(bodyOf({ reasoning: 'reasoning_content' }, { messages })['messages']).toMatchObject([
      {},
      { reasoning_content: 'hmm', tool_calls: [{ id: 'call_1' }] },
      {},
    ]);
  }
});

test('a body with many quirks still has the type of the official package', () => {
  const overrides = { messages: [userText('a'), called([]), answered(ok)], tools: [read], instructions: 'Be brief.' };
  const quirks: Quirks = { streamUsage: false, toolChoice: 'required', callIds: 'nine', userAfterResults: false };
  const id = nineOf('call_1');
  // The type of the package has no `name` here. Mistral requires it and OpenAI accepts it.
  const result = { role: 'tool', tool_call_id: id, name: 'read', content: 'ok' } as const;
  expect(bodyOf(quirks, { ...overrides, toolChoice: { tool: 'read' } })).toEqual({
    model: 'm',
    messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'a' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name: 'read', arguments: '{}' } }],
      },
      result,
    ],
    tools: [
      {
        type: 'function',
        function: { name: 'read', description: 'read', parameters: { type: 'object', properties: {} } },
      },
    ],
    stream: true,
    tool_choice: 'required',
  } satisfies ChatCompletionCreateParams);
});
