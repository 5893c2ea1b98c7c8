import { describe, expect, test } from 'vitest';
import { claudeRequest } from '../../../test/claude-request.ts';
import { parseCountRequest, parseMessageRequest } from './parse-request.ts';
import { runTools } from './parse-tools.ts';

const HI = { role: 'user', content: 'Hi' };
const body = (more: object = {}): object => ({ model: 'm', max_tokens: 100, messages: [HI], ...more });

test('the defaults of a request', () => {
  expect(parseMessageRequest(body())).toEqual({
    model: 'm',
    stream: false,
    messages: [{ role: 'user', content: [{ type: 'said', blocks: [{ type: 'text', text: 'Hi' }] }] }],
    servers: [],
    toolChoice: 'auto',
    parallel: true,
    maxOutputTokens: 100,
    settings: {},
    truncation: 'disabled',
  });
});

test('a request of Claude Code', () => {
  const { messages, tools, ...request } = parseMessageRequest(claudeRequest('claude-opus-4-8'));
  expect(request).toEqual({
    model: 'claude-opus-4-8',
    stream: true,
    // The text for the servers of Anthropic is not for the model.
    system: [
      "You are a Claude agent, built on Anthropic's Claude Agent SDK.",
      '\nYou are an interactive agent that helps users with software engineering tasks.',
    ],
    servers: [],
    toolChoice: 'auto',
    parallel: true,
    maxOutputTokens: 64_000,
    settings: { reasoning: 'high' },
    thinking: 'summarized',
    edits: [{ type: 'clear_thinking_20251015', keep: Infinity }],
    truncation: 'disabled',
  });
  expect(messages).toHaveLength(2);
  expect(messages[1]).toMatchObject({ role: 'system', text: expect.stringMatching(/^Available agent types/) });
  expect(tools).toMatchObject([
    { type: 'function', name: 'Bash', parameters: { additionalProperties: false } },
    { type: 'function', name: 'Grep', parameters: { properties: { '-A': {}, '-i': {} } } },
  ]);
});

test('a request to count tokens needs no max_tokens', () => {
  expect(parseCountRequest({ model: 'm', messages: [HI] }).maxOutputTokens).toBe(undefined);
});

describe('how much the model thinks', () => {
  test.each<[object, string | undefined, string | undefined]>([
    [{}, undefined, undefined],
    [{ thinking: { type: 'disabled' }, output_config: { effort: 'high' } }, 'none', undefined],
    [{ thinking: { type: 'adaptive' } }, 'high', 'summarized'],
    [{ thinking: { type: 'adaptive', display: 'omitted' }, output_config: { effort: 'low' } }, 'low', 'omitted'],
    [{ thinking: { type: 'enabled', budget_tokens: 1_024 } }, 'minimal', 'summarized'],
    [{ thinking: { type: 'enabled', budget_tokens: 10_000 } }, 'medium', 'summarized'],
    [{ thinking: { type: 'enabled', budget_tokens: 100_000 } }, 'max', 'summarized'],
    [{ output_config: { effort: 'max' } }, 'max', undefined],
    [
      { output_config: { effort: 'max' }, messages: [HI, { role: 'system', output_config: { effort: 'low' } }] },
      'low',
      undefined,
    ],
  ])('%j', (given, reasoning, display) => {
    const { settings, thinking } = parseMessageRequest(body(given));
    expect([settings.reasoning, thinking]).toEqual([reasoning, display]);
  });
});

test('settings that have the names of the API', () => {
  const request = parseMessageRequest(
    body({
      temperature: 0.5,
      top_p: 0.9,
      stop_sequences: ['END'],
      service_tier: 'standard_only',
      metadata: { user_id: 'u' },
    }),
  );
  expect(request.settings).toEqual({ temperature: 0.5, topP: 0.9, stop: ['END'], serviceTier: 'default' });
});

test.each([['output_config'], ['output_format']])('an answer in the form of a schema, in %s', (field) => {
  const format = { type: 'json_schema', schema: { type: 'object', properties: { title: { type: 'string' } } } };
  const given = field === 'output_config' ? { output_config: { format } } : { output_format: format };
  expect(parseMessageRequest(body(given)).format).toEqual({ name: 'answer', schema: format.schema, strict: true });
});

describe('tools', () => {
  const ask = { name: 'ask', input_schema: { type: 'object' } };

  test.each<[object, unknown, boolean]>([
    [{ type: 'auto' }, 'auto', true],
    [{ type: 'any', disable_parallel_tool_use: true }, 'required', false],
    [{ type: 'tool', name: 'ask' }, { type: 'function', name: 'ask' }, true],
    [{ type: 'none' }, 'none', true],
  ])('tool_choice %j', (tool_choice, choice, parallel) => {
    expect(parseMessageRequest(body({ tools: [ask], tool_choice }))).toMatchObject({ toolChoice: choice, parallel });
  });

  test('a name that is too long for models is shortened, and stays unique', () => {
    const names = ['a', 'b'].map((end) => 'mcp__server__'.padEnd(100, 'x') + end);
    const tools = names.map((name) => ({ ...ask, name }));
    const parsed = parseMessageRequest(body({ tools })).tools!;
    expect(parsed.map((tool) => tool.type === 'function' && tool.wireName)).toEqual(names);
    const short = parsed.map((tool) => (tool.type === 'function' ? tool.name : ''));
    expect(new Set(short).size).toBe(2);
    for (const name of short) expect(name).toMatch(/^[\w-]{64}$/);
  });

  test('servers and toolsets of MCP, without approvals', () => {
    const { tools = [], servers } = parseMessageRequest(
      body({
        mcp_servers: [
          { type: 'url', name: 'mail', url: 'https://mail.example/mcp', authorization_token: 'secret' },
          { type: 'url', name: 'old', url: 'https://old.example', tool_configuration: { allowed_tools: ['a'] } },
          { type: 'url', name: 'off', url: 'https://off.example', tool_configuration: { enabled: false } },
        ],
        tools: [
          { type: 'mcp_toolset', mcp_server_name: 'mail', configs: { send: { enabled: false } } },
          {
            type: 'mcp_toolset',
            mcp_server_name: 'treadle',
            default_config: { enabled: false },
            configs: { read: { enabled: true } },
          },
          { type: 'web_search_20250305', name: 'web_search', max_uses: 8 },
          { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' },
        ],
      }),
    );
    expect(JSON.stringify(tools)).not.toContain('secret');
    const mcp = { type: 'mcp', require_approval: 'never' };
    expect(runTools(tools, servers)).toEqual({
      functions: [],
      otherTools: [
        { type: 'web_search', name: 'web_search', max_uses: 8 },
        {
          ...mcp,
          server_label: 'mail',
          server_url: 'https://mail.example/mcp',
          authorization: 'secret',
          excluded_tools: ['send'],
        },
        { ...mcp, server_label: 'treadle', allowed_tools: ['read'] },
        { ...mcp, server_label: 'old', server_url: 'https://old.example', allowed_tools: ['a'] },
        { ...mcp, server_label: 'off', server_url: 'https://off.example', allowed_tools: [] },
      ],
    });
  });
});

describe('images and documents', () => {
  const blocksOf = (content: readonly object[]): unknown =>
    parseMessageRequest(body({ messages: [{ role: 'user', content }] })).messages;
  const said = (...blocks: object[]): object => [
    { role: 'user', content: blocks.map((one) => ({ type: 'said', blocks: [one].flat() })) },
  ];

  test('are images and files of the conversation', () => {
    const cache_control = { type: 'ephemeral' };
    expect(
      blocksOf([
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' }, cache_control },
        { type: 'image', source: { type: 'url', url: 'https://x.example/a.jpg' } },
        { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' }, title: 'A' },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'Hi' } },
        { type: 'document', source: { type: 'url', url: 'https://x.example/a.pdf' } },
        { type: 'search_result', title: 'T', source: 'https://s.example', content: [{ type: 'text', text: 'S' }] },
      ]),
    ).toEqual(
      said(
        { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
        { type: 'image', mediaType: 'image/jpeg', source: { type: 'url', url: 'https://x.example/a.jpg' } },
        { type: 'file', mediaType: 'application/pdf', name: 'A', source: { type: 'data', data: 'JVBERi0=' } },
        { type: 'file', mediaType: 'text/plain', source: { type: 'data', data: 'SGk=' } },
        { type: 'file', mediaType: 'application/pdf', source: { type: 'url', url: 'https://x.example/a.pdf' } },
        { type: 'text', text: 'T\nhttps://s.example\nS' },
      ),
    );
  });

  test('with content of their own', () => {
    const content = [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ];
    const document = { type: 'document', title: 'A', context: 'About it', source: { type: 'content', content } };
    const texts = ['About it', 'A', 'one', 'two'].map((text) => ({ type: 'text', text }));
    expect(blocksOf([document])).toEqual([{ role: 'user', content: [{ type: 'said', blocks: texts }] }]);
  });
});

test('unknown fields are ignored', () => {
  const more = {
    fallbacks: 'default',
    speed: 'fast',
    diagnostics: {},
    cache_control: { type: 'ephemeral' },
    new_field: 1,
  };
  expect(parseMessageRequest(body(more))).toEqual(parseMessageRequest(body()));
});

describe('errors', () => {
  type Wrong = readonly [string, object, string, string];
  const BLOCK_TYPE = 'messages[0].content[0].type';
  const imageOf = (more: object): object => {
    const source = { type: 'base64', media_type: 'image/png', data: 'aGk=', ...more };
    return { messages: [{ role: 'user', content: [{ type: 'image', source }] }] };
  };

  test.each<Wrong>([
    ['no model', { model: undefined }, 'model', 'missing_required_parameter'],
    ['no max_tokens', { max_tokens: undefined }, 'max_tokens', 'missing_required_parameter'],
    ['no messages', { messages: undefined }, 'messages', 'missing_required_parameter'],
    ['another role', { messages: [{ role: 'tool', content: '' }] }, 'messages[0].role', 'invalid_value'],
    [
      'another block',
      { messages: [{ role: 'user', content: [{ type: 'audio' }] }] },
      'messages[0].content[0].type',
      'invalid_value',
    ],
    [
      'a result of the model',
      { messages: [{ role: 'assistant', content: [{ type: 'tool_result', tool_use_id: 'a' }] }] },
      'messages[0].content[0].type',
      'invalid_value',
    ],
    [
      'data that is not base64',
      {
        messages: [
          {
            role: 'user',
            content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: '?' } }],
          },
        ],
      },
      'messages[0].content[0].source.data',
      'invalid_base64',
    ],
    [
      'a file of this machine',
      {
        messages: [{ role: 'user', content: [{ type: 'image', source: { type: 'url', url: 'file:///etc/passwd' } }] }],
      },
      'messages[0].content[0].source.url',
      'invalid_url',
    ],
    [
      'an uploaded file',
      { messages: [{ role: 'user', content: [{ type: 'document', source: { type: 'file', file_id: 'f' } }] }] },
      'messages[0].content[0].source.type',
      'unsupported_parameter',
    ],
    [
      'a schema that is no object',
      { tools: [{ name: 'a', input_schema: { type: 'string' } }] },
      'tools[0].input_schema.type',
      'invalid_function_parameters',
    ],
    [
      'a tool twice',
      {
        tools: [
          { name: 'a', input_schema: {} },
          { name: 'a', input_schema: {} },
        ],
      },
      'tools[1].name',
      'duplicate_tool',
    ],
    ['a name with a space', { tools: [{ name: 'a b', input_schema: {} }] }, 'tools[0].name', 'invalid_value'],
    ['another choice', { tool_choice: { type: 'required' } }, 'tool_choice.type', 'invalid_value'],
    [
      'a budget that is too small',
      { thinking: { type: 'enabled', budget_tokens: 10 } },
      'thinking.budget_tokens',
      'decimal_below_min_value',
    ],
    [
      'another edit',
      { context_management: { edits: [{ type: 'compact_20260112' }] } },
      'context_management.edits[0].type',
      'unsupported_parameter',
    ],
    ['top_k', { top_k: 5 }, 'top_k', 'unsupported_parameter'],
    ['a temperature above 1', { temperature: 2 }, 'temperature', 'decimal_above_max_value'],
    ...['__proto__', 'constructor', 'toString'].flatMap((type): Wrong[] => [
      [
        `a block of the type ${type}`,
        { messages: [{ role: 'user', content: [{ type }] }] },
        BLOCK_TYPE,
        'invalid_value',
      ],
      [
        `an answer with a block of the type ${type}`,
        { messages: [{ role: 'assistant', content: [{ type }] }, HI] },
        BLOCK_TYPE,
        'invalid_value',
      ],
    ]),
    [
      'a data URL as data',
      imageOf({ data: 'data:image/png;base64,aGk=' }),
      'messages[0].content[0].source.data',
      'invalid_base64',
    ],
    [
      'a page as an image',
      imageOf({ media_type: 'text/html' }),
      'messages[0].content[0].source.media_type',
      'invalid_value',
    ],
    [
      'a file as an MCP server',
      { mcp_servers: [{ type: 'url', name: 's', url: 'file:///x' }] },
      'mcp_servers[0].url',
      'invalid_value',
    ],
    ['a container', { container: 'c' }, 'container', 'unsupported_parameter'],
    ['a region', { inference_geo: 'eu' }, 'inference_geo', 'unsupported_parameter'],
    [
      'a schema without a meaning',
      { output_config: { format: { type: 'json_schema', schema: { $ref: '#/nowhere' } } } },
      'output_config.format.schema',
      'invalid_json_schema',
    ],
    [
      'a thread without its message',
      { thread: { type: 'continue' } },
      'thread.previous_message_id',
      'missing_required_parameter',
    ],
    [
      'an MCP tool that is removed',
      {
        messages: [
          HI,
          {
            role: 'system',
            content: [{ type: 'tool_removal', tool: { type: 'mcp_tool_reference', name: 'a', server_name: 's' } }],
          },
        ],
      },
      'messages[1].content[0].tool.type',
      'unsupported_parameter',
    ],
  ])('%s', (_, more, param, code) => {
    expect(() => parseMessageRequest(body(more))).toThrow(expect.objectContaining({ status: 400, param, code }));
  });

  test('texts that are too long together', () => {
    const messages = [{ role: 'user', content: 'a'.repeat(11) }];
    const parse = (): unknown => parseMessageRequest(body({ messages }), { inputChars: 10 });
    expect(parse).toThrow(expect.objectContaining({ status: 413, code: 'input_too_large' }));
  });
});
