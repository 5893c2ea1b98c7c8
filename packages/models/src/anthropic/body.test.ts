import type { MessageCreateParams } from '@anthropic-ai/sdk/resources/messages';
import { userText, type Message, type ModelRequest, type Settings } from '@treadle/core';
import { expect, test } from 'vitest';
import { bytesOf, read, readBody, request, shell } from '../../test/request.ts';
import { touches } from '../../test/touches.ts';
import { anthropicProtocol } from './anthropic.ts';
import type { AnthropicBody } from './body.ts';
import { traitsOf } from './models.ts';

const BODY = { model: 'm', stream: true, signer: 'anthropic', ...traitsOf('m') };

const protocol = anthropicProtocol({ ...BODY, thinking: 'adaptive', cache: false });

function bodyOf(overrides: Partial<ModelRequest> = {}, body?: Partial<AnthropicBody>): Record<string, unknown> {
  const { body: write } = body ? anthropicProtocol({ ...BODY, thinking: 'adaptive', cache: false, ...body }) : protocol;
  return readBody(write(request(overrides)));
}

test('writes the minimal request', () => {
  expect(bodyOf()).toEqual({
    model: 'm',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }],
    max_tokens: 32_000,
    stream: true,
  } satisfies MessageCreateParams);
  expect(bodyOf({ messages: [] })['messages']).toEqual([]);
  expect(bodyOf({}, { stream: false })['stream']).toBe(false);
});

test('writes a request with everything, in the types of the official SDK', () => {
  const output = { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] };
  const messages: Message[] = [
    { role: 'user', content: [{ type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } }] },
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'Hm.', signature: 'c2ln', protocol: 'anthropic' },
        { type: 'reasoning', text: '', signature: 'redacted_thinking:ZGF0YQ==', protocol: 'anthropic' },
        { type: 'text', text: 'One moment.' },
        { type: 'tool-call', id: 'toolu_1', name: 'shell', arguments: '{"command": "ls"}' },
      ],
    },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: 'toolu_1',
          name: 'shell',
          content: [{ type: 'error', text: 'no such file' }],
          isError: true,
        },
      ],
    },
    userText('Try again.'),
  ];
  expect(
    bodyOf(
      {
        messages,
        instructions: 'Be brief.',
        tools: [read, shell],
        parallel: false,
        output,
        settings: { maxOutputTokens: 900, reasoning: 'medium', stop: ['END'], seed: 7 },
      },
      { cache: true },
    ),
  ).toEqual({
    model: 'm',
    system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
    messages: [
      {
        role: 'user',
        content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } }],
      },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'Hm.', signature: 'c2ln' },
          { type: 'redacted_thinking', data: 'ZGF0YQ==' },
          { type: 'text', text: 'One moment.' },
          { type: 'tool_use', id: 'toolu_1', name: 'shell', input: { command: 'ls' } },
        ],
      },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: 'toolu_1',
            content: [{ type: 'text', text: 'no such file' }],
            is_error: true,
          },
          { type: 'text', text: 'Try again.' },
        ],
      },
    ],
    tools: [
      { name: 'read', description: 'Read a file', input_schema: { type: 'object', properties: {} } },
      {
        name: 'shell',
        description: 'Run a shell command and return its output',
        input_schema: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
        cache_control: { type: 'ephemeral' },
      },
    ],
    max_tokens: 900,
    stream: true,
    tool_choice: { type: 'auto', disable_parallel_tool_use: true },
    thinking: { type: 'adaptive' },
    output_config: {
      effort: 'medium',
      format: {
        type: 'json_schema',
        schema: {
          type: 'object',
          properties: { total: { type: 'number' } },
          required: ['total'],
          additionalProperties: false,
        },
      },
    },
    stop_sequences: ['END'],
    cache_control: { type: 'ephemeral' },
  } satisfies MessageCreateParams);
});

test('sends changed instructions, and omits blank ones', () => {
  const messages = [userText('hi')];
  expect(bodyOf({ messages, instructions: 'Be brief.' })['system']).toEqual([{ type: 'text', text: 'Be brief.' }]);
  expect(bodyOf({ messages, instructions: 'Be long.' })['system']).toEqual([{ type: 'text', text: 'Be long.' }]);
  expect(bodyOf({ messages, instructions: ' \n' })).not.toHaveProperty('system');
});

// ── Tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────

test('sends only name, description and parameters of a tool, with parameters of type object', () => {
  const facts = { ...shell, effect: 'once', exclusive: false };
  expect(bodyOf({ tools: [facts] })['tools']).toEqual(bodyOf({ tools: [shell] })['tools']);
  expect(bodyOf({ tools: [{ name: 'now', description: 'x', parameters: {} }] })['tools']).toEqual([
    { name: 'now', description: 'x', input_schema: { type: 'object' } },
  ]);
});

test('sends the tool choice', () => {
  const choice = (overrides: Partial<ModelRequest>): unknown =>
    bodyOf({ tools: [shell, read], ...overrides })['tool_choice'];
  expect(choice({ toolChoice: 'auto' })).toBeUndefined();
  expect(choice({ toolChoice: 'required' })).toEqual({ type: 'any' });
  expect(choice({ toolChoice: 'none' })).toEqual({ type: 'none' });
  expect(choice({ toolChoice: { tool: 'read' } })).toEqual({ type: 'tool', name: 'read' });
  expect(choice({ tools: [], toolChoice: 'required' })).toBeUndefined();

  expect(choice({ parallel: false })).toEqual({ type: 'auto', disable_parallel_tool_use: true });
  expect(choice({ parallel: false, toolChoice: 'required' })).toEqual({ type: 'any', disable_parallel_tool_use: true });
  expect(choice({ parallel: false, toolChoice: { tool: 'read' } })).toEqual({
    type: 'tool',
    name: 'read',
    disable_parallel_tool_use: true,
  });
  expect(choice({ parallel: false, toolChoice: 'none' })).toEqual({ type: 'none' });
  expect(choice({ parallel: false, tools: [] })).toBeUndefined();
});

test('sends all tools though only a subset is allowed, and restricts the choice where possible', () => {
  const toolsAndChoice = (more: Partial<ModelRequest>): [names: unknown[], choice: unknown] => {
    const { tools, tool_choice } = bodyOf({ tools: [shell, read], ...more });
    return [(tools as { name: string }[]).map(({ name }) => name), tool_choice];
  };
  const all = ['shell', 'read'];
  expect(toolsAndChoice({ allowedTools: ['read'] })).toEqual([all, undefined]);
  expect(toolsAndChoice({ allowedTools: ['read', 'unknown'], toolChoice: 'required' })).toEqual([
    all,
    { type: 'tool', name: 'read' },
  ]);
  expect(toolsAndChoice({ allowedTools: all, toolChoice: 'required' })).toEqual([all, { type: 'any' }]);
  expect(toolsAndChoice({ allowedTools: [] })).toEqual([all, { type: 'none' }]);
  expect(toolsAndChoice({ allowedTools: [], toolChoice: 'required' })).toEqual([all, { type: 'none' }]);
});

// ── Settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────

const fields = (settings: Settings, body?: Partial<AnthropicBody>, more?: Partial<ModelRequest>): unknown => {
  const {
    model: _model,
    messages: _messages,
    stream: _stream,
    tools: _tools,
    ...rest
  } = bodyOf({ settings, ...more }, body);
  return rest;
};

test('sends one of temperature and top_p, up to 1, to models that accept them', () => {
  const sampled = (settings: Settings): unknown => fields(settings, { sampling: true });
  expect(sampled({ temperature: 0 })).toEqual({ max_tokens: 32_000, temperature: 0 });
  expect(sampled({ temperature: 1.4 })).toEqual({ max_tokens: 32_000, temperature: 1 });
  expect(sampled({ topP: 0.5 })).toEqual({ max_tokens: 32_000, top_p: 0.5 });
  expect(sampled({ temperature: 0.2, topP: 0.5 })).toEqual({ max_tokens: 32_000, temperature: 0.2 });
  expect(fields({ temperature: 0.2, topP: 0.5 }, { sampling: false })).toEqual({ max_tokens: 32_000 });
});

test('sends no sampling settings with reasoning, whether or not the turn can think', () => {
  const settings: Settings = { reasoning: 'low', temperature: 0, topP: 1 };
  const forced = { tools: [shell], toolChoice: 'required' } as const;
  for (const thinking of ['adaptive', 'budget'] as const) {
    for (const more of [{}, forced, { settings: { ...settings, maxOutputTokens: 100 } }]) {
      const sent = fields(settings, { thinking, sampling: true }, more);
      expect(sent).not.toHaveProperty('temperature');
      expect(sent).not.toHaveProperty('top_p');
    }
  }
});

test('omits seeds and blank stop sequences', () => {
  expect(fields({ seed: 7, stop: ['\n', 'END'] })).toEqual({ max_tokens: 32_000, stop_sequences: ['END'] });
  expect(fields({ stop: ['\n'] })).toEqual({ max_tokens: 32_000 });
});

test('sends an effort to models with adaptive thinking', () => {
  expect(fields({ reasoning: 'high' })).toEqual({
    max_tokens: 32_000,
    thinking: { type: 'adaptive' },
    output_config: { effort: 'high' },
  });
});

test('disables adaptive thinking if a call is required', () => {
  const required = { tools: [shell], toolChoice: 'required' } as const;
  const off = { type: 'disabled' };
  expect(fields({}, {}, required)).toEqual({ max_tokens: 32_000, tool_choice: { type: 'any' }, thinking: off });
  expect(fields({ reasoning: 'high' }, { thinkingDisplay: 'summarized' }, required)).toEqual({
    max_tokens: 32_000,
    tool_choice: { type: 'any' },
    thinking: off,
    output_config: { effort: 'high' },
  });
  expect(fields({}, { thinking: 'budget' }, required)).toEqual({ max_tokens: 32_000, tool_choice: { type: 'any' } });
});

test('sends no forced choice to models that cannot be forced, and lets them think', () => {
  const choice = (more: Partial<ModelRequest>): unknown =>
    bodyOf({ tools: [shell, read], settings: { reasoning: 'low' }, ...more }, { forcedTools: false });
  const adaptive = { type: 'adaptive' };
  expect(choice({ toolChoice: 'required' })).toMatchObject({ thinking: adaptive });
  for (const toolChoice of ['required', { tool: 'read' }] as const) {
    expect(choice({ toolChoice })).not.toHaveProperty('tool_choice');
    expect(choice({ toolChoice, parallel: false })).toMatchObject({
      tool_choice: { type: 'auto', disable_parallel_tool_use: true },
      thinking: adaptive,
    });
  }
  expect(choice({ toolChoice: 'required', allowedTools: ['read'] })).not.toHaveProperty('tool_choice');
  expect(choice({ toolChoice: 'none' })).toMatchObject({ tool_choice: { type: 'none' } });
});

test('sends the display of thoughts only if the model thinks', () => {
  const shown = (settings: Settings, body: Partial<AnthropicBody>): unknown =>
    bodyOf({ settings }, { thinkingDisplay: 'summarized', ...body })['thinking'];
  expect(shown({ reasoning: 'low' }, {})).toEqual({ type: 'adaptive', display: 'summarized' });
  expect(shown({ reasoning: 'low' }, { thinkingDisplay: 'omitted' })).toEqual({ type: 'adaptive', display: 'omitted' });
  expect(shown({}, {})).toBeUndefined();
  expect(shown({}, { thinksByDefault: true })).toEqual({ type: 'adaptive', display: 'summarized' });
  expect(shown({}, { thinksByDefault: true, thinkingDisplay: undefined })).toBeUndefined();
  const budget = { type: 'enabled', budget_tokens: 4_096, display: 'summarized' };
  expect(shown({ reasoning: 'low' }, { thinking: 'budget' })).toEqual(budget);
});

test('describes a schema that the API does not support in the instructions', () => {
  const output = { type: 'object', additionalProperties: { type: 'number' } };
  const sent = bodyOf({ output, instructions: 'Be brief.' });
  expect(sent).not.toHaveProperty('output_config');
  expect(sent['system']).toEqual([
    { type: 'text', text: expect.stringMatching(/^Be brief\.\n\n.*JSON Schema:\n\{"type":"object","add/) },
  ]);
});

test('sends a budget that leaves room for the answer to models with budgeted thinking', () => {
  const budget = (settings: Settings, more?: Partial<ModelRequest>): unknown =>
    bodyOf({ settings, ...more }, { thinking: 'budget' })['thinking'];
  expect(budget({ reasoning: 'low' })).toEqual({ type: 'enabled', budget_tokens: 4_096 });
  expect(budget({ reasoning: 'medium' })).toEqual({ type: 'enabled', budget_tokens: 8_192 });
  expect(budget({ reasoning: 'high' })).toEqual({ type: 'enabled', budget_tokens: 16_000 });
  expect(budget({ reasoning: 'high', maxOutputTokens: 3_001 })).toEqual({ type: 'enabled', budget_tokens: 1_500 });
  expect(budget({ reasoning: 'high', maxOutputTokens: 2_000 })).toBeUndefined();
  expect(budget({ reasoning: 'low' }, { tools: [shell], toolChoice: { tool: 'shell' } })).toBeUndefined();
  expect(budget({})).toBeUndefined();
  expect(bodyOf({ settings: { reasoning: 'low' } }, { thinking: 'budget' })).not.toHaveProperty('output_config');
});

test('with a budget, does not think after calls without a thought of this API', () => {
  const call = { type: 'tool-call', id: 'c', name: 'shell', arguments: '{}' } as const;
  const result = { type: 'tool-result', callId: 'c', name: 'shell', content: [], isError: false } as const;
  const thinking = (reasoning: Message & { role: 'assistant' }, ...after: Message[]): unknown => {
    const messages: Message[] = [userText('hi'), reasoning, { role: 'tool', content: [result] }, ...after];
    return bodyOf({ messages, settings: { reasoning: 'low' } }, { thinking: 'budget' })['thinking'];
  };
  const on = { type: 'enabled', budget_tokens: 4_096 };
  const foreign = { type: 'reasoning', text: 'Hm', signature: 's', protocol: 'openai-responses' } as const;
  const own = { type: 'reasoning', text: 'Hm', signature: 's', protocol: 'anthropic' } as const;
  expect(thinking({ role: 'assistant', content: [call] })).toBeUndefined();
  expect(thinking({ role: 'assistant', content: [foreign, call] })).toBeUndefined();
  expect(thinking({ role: 'assistant', content: [own, call] })).toEqual(on);
  const answer: Message = { role: 'assistant', content: [{ type: 'text', text: 'Done.' }] };
  expect(thinking({ role: 'assistant', content: [call] }, answer, userText('And now?'))).toEqual(on);
});

// ── Bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────

test('serialises only new messages in a turn, though neighbours share a message and cache marks move', () => {
  const write = anthropicProtocol({ ...BODY, thinking: 'adaptive', cache: true }).body;
  const touched = touches();
  const tools = [touched.spied(shell)];
  const output = touched.spied({ type: 'object', properties: {} });
  const messages: Message[] = [touched.spied(userText('hi'))];
  const overrides = { messages, tools, instructions: 'Be brief.', output };
  write(request(overrides));
  expect(touched.count).toBeGreaterThan(0);

  for (let turn = 0; turn < 500; turn++) {
    touched.count = 0;
    const call = { type: 'tool-call', id: `c${turn}`, name: 'shell', arguments: '{}' } as const;
    messages.push({ role: 'assistant', content: [call] });
    messages.push({
      role: 'tool',
      content: [{ type: 'tool-result', callId: call.id, name: 'shell', content: [], isError: false }],
    });
    if (turn % 2 === 0) messages.push(userText(`Hurry ${turn}`));
    write(request(overrides));
    expect(touched.count).toBe(0);
  }
  const whole = readBody(write(request(overrides))) as { messages: unknown[] };
  expect(whole.messages).toHaveLength(1_001);
  expect(whole.messages.at(-2)).toMatchObject({ role: 'assistant' });
  expect(readBody(write(request({ ...overrides, messages: [...messages] })))).toEqual(whole);
});

test('replaces lone surrogates, which the JSON parsers of providers reject, everywhere', () => {
  const lone = 'a\ud83d \\ud83d \ude00';
  const messages: Message[] = [
    userText(lone),
    { role: 'assistant', content: [{ type: 'tool-call', id: lone, name: lone, arguments: '{"\\uD83d": "\\ud83d"}' }] },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', callId: lone, name: lone, content: [{ type: 'text', text: lone }], isError: false },
      ],
    },
  ];
  const tools = [{ name: 't', description: lone, parameters: { type: 'object', description: lone } }];
  const raw = Buffer.from(bytesOf(protocol.body(request({ messages, tools, instructions: lone })))).toString('utf8');
  expect(raw.replaceAll('\\\\', '')).not.toMatch(/\\ud/i);
  const { system, messages: wire } = JSON.parse(raw) as { system: unknown; messages: unknown[] };
  expect(system).toEqual([{ type: 'text', text: 'a\uFFFD \\ud83d \uFFFD' }]);
  expect(wire[1]).toMatchObject({ content: [{ name: 'a___ud83d__', input: { '\uFFFD': '\uFFFD' } }] });
});
