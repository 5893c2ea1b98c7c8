import fc from 'fast-check';
import type { ResponseIncludable } from 'openai/resources/responses/responses';
import { describe, expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import { conversationFrom } from '../../history/restore-messages.ts';
import { parseRequest, storable, type ParseOptions } from './parse-request.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

function refused(body: unknown, options: ParseOptions = {}): ApiError {
  try {
    parseRequest(body, options);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('It was accepted.');
}

describe('the smallest request', () => {
  test('gets every default, and the response repeats them', () => {
    expect(parseRequest({ model: 'm', input: 'Hi' })).toEqual({
      model: 'm',
      stream: false,
      store: true,
      input: [
        {
          type: 'message',
          id: expect.stringMatching(/^msg_[0-9a-f]{32}$/),
          status: 'completed',
          role: 'user',
          content: [{ type: 'input_text', text: 'Hi' }],
        },
      ],
      functions: [],
      otherTools: [],
      toolChoice: 'auto',
      parallel: true,
      settings: {},
      truncation: 'disabled',
      include: [],
      echo: {
        background: false,
        frequency_penalty: 0,
        instructions: null,
        max_output_tokens: null,
        max_tool_calls: null,
        metadata: {},
        parallel_tool_calls: true,
        presence_penalty: 0,
        previous_response_id: null,
        prompt_cache_key: null,
        reasoning: null,
        safety_identifier: null,
        service_tier: 'default',
        store: true,
        temperature: 1,
        text: { format: { type: 'text' } },
        tool_choice: 'auto',
        tools: [],
        top_logprobs: 0,
        top_p: 1,
        truncation: 'disabled',
      },
    });
  });

  test('may have null instead of absent fields, and unknown fields', () => {
    const nothing = {
      model: null,
      previous_response_id: null,
      include: null,
      tools: null,
      tool_choice: null,
      metadata: null,
      text: null,
      temperature: null,
      top_p: null,
      presence_penalty: null,
      frequency_penalty: null,
      parallel_tool_calls: null,
      stream: null,
      stream_options: null,
      background: null,
      max_output_tokens: null,
      max_tool_calls: null,
      reasoning: null,
      safety_identifier: null,
      prompt_cache_key: null,
      truncation: null,
      instructions: null,
      store: null,
      service_tier: null,
      top_logprobs: null,
      user: null,
      conversation: null,
      prompt: null,
      something_new: { of: ['any', 'form'] },
    };
    const least = parseRequest({ input: 'Hi' });
    expect(parseRequest({ ...nothing, input: 'Hi' })).toEqual(least);
  });
});

test('parses and repeats every supported field', () => {
  const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
  const request = parseRequest({
    model: 'm',
    input: 'Hi',
    instructions: 'Be brief.',
    stream: true,
    store: false,
    previous_response_id: 'resp_1',
    include: ['reasoning.encrypted_content'],
    parallel_tool_calls: false,
    max_tool_calls: 3,
    max_output_tokens: 16,
    temperature: 0,
    top_p: 0.5,
    presence_penalty: -2,
    frequency_penalty: 2,
    top_logprobs: 20,
    truncation: 'auto',
    service_tier: 'flex',
    user: 'u',
    safety_identifier: 's',
    prompt_cache_key: 'k',
    metadata: { run: '7' },
    reasoning: { effort: 'high', summary: 'auto' },
    text: { format: { type: 'json_schema', name: 'city', schema, strict: true }, verbosity: 'low' },
  });
  expect(request).toMatchObject({
    stream: true,
    store: false,
    previous: 'resp_1',
    instructions: 'Be brief.',
    parallel: false,
    maxToolCalls: 3,
    maxOutputTokens: 16,
    settings: { temperature: 0, topP: 0.5, reasoning: 'high' },
    format: { schema, name: 'city', strict: true },
    truncation: 'auto',
    include: ['reasoning.encrypted_content'],
  });
  expect(request.echo).toEqual({
    background: false,
    frequency_penalty: 2,
    instructions: 'Be brief.',
    max_output_tokens: 16,
    max_tool_calls: 3,
    metadata: { run: '7' },
    parallel_tool_calls: false,
    presence_penalty: -2,
    previous_response_id: 'resp_1',
    prompt_cache_key: 'k',
    reasoning: { effort: 'high', summary: 'auto' },
    safety_identifier: 's',
    service_tier: 'flex',
    store: false,
    temperature: 0,
    text: {
      format: { type: 'json_schema', name: 'city', description: null, schema, strict: true },
      verbosity: 'low',
    },
    tool_choice: 'auto',
    tools: [],
    top_logprobs: 20,
    top_p: 0.5,
    truncation: 'auto',
    user: 'u',
  });
});

test('log probabilities are wanted with a number of tokens, or if they are included', () => {
  const wanted = (body: object): unknown => parseRequest({ input: 'Hi', ...body }).settings;
  const include = ['message.output_text.logprobs'];
  expect([{ include }, { top_logprobs: 2 }, { include, top_logprobs: 2 }, { top_logprobs: 0 }].map(wanted)).toEqual([
    { topLogprobs: 0 },
    { topLogprobs: 2 },
    { topLogprobs: 2 },
    {},
  ]);
});

test('accepts every value of include that the API has', () => {
  const include: ResponseIncludable[] = [
    'file_search_call.results',
    'web_search_call.results',
    'web_search_call.action.sources',
    'message.input_image.image_url',
    'computer_call_output.output.image_url',
    'code_interpreter_call.outputs',
    'reasoning.encrypted_content',
  ];
  expect(parseRequest({ input: 'Hi', include })).toMatchObject({ include, settings: {} });
});

test.each(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max', null])('reasoning of effort %s', (effort) => {
  const { settings, echo } = parseRequest({ input: 'Hi', reasoning: { effort } });
  expect(settings).toEqual(effort === null ? {} : { reasoning: effort });
  expect(echo.reasoning).toEqual({ effort, summary: null });
});

test.each([
  [{ type: 'text' }, undefined, { type: 'text' }],
  [null, undefined, { type: 'text' }],
  [{ type: 'json_object' }, { schema: { type: 'object' }, anyObject: true }, { type: 'json_object' }],
  [
    { type: 'json_schema', name: 'a', schema: {} },
    { schema: {}, name: 'a' },
    { type: 'json_schema', name: 'a', description: null, schema: {}, strict: false },
  ],
])('text.format %j', (format, form, echo) => {
  const request = parseRequest({ input: 'Hi', text: { format } });
  expect(request.format).toEqual(form);
  expect(request.echo.text).toEqual({ format: echo });
});

test.each([
  {
    type: 'object',
    properties: { child: { $ref: '#' }, pattern: { type: 'string' }, a: { $ref: '#/$defs/a~1b' } },
    $defs: { 'a/b': {} },
  },
  { $id: 'https://a.example/s', $ref: 'https://a.example/s#/$defs/a', $defs: { a: {} } },
  { $ref: '#a', $defs: { a: { $anchor: 'a' } }, enum: [{ pattern: '(', $ref: 'x' }] },
])('a strict format may have the schema %j', (schema) => {
  const format = { type: 'json_schema', name: 'a', schema, strict: true };
  expect(parseRequest({ input: 'Hi', text: { format } }).format).toEqual({ name: 'a', schema, strict: true });
});

test('accepts messages as instructions', () => {
  const instructions = [
    { role: 'developer', content: 'Be brief.' },
    { role: 'system', content: [{ type: 'input_text', text: 'Be kind.' }] },
  ];
  const request = parseRequest({ input: 'Hi', instructions });
  expect(request.instructions).toBe('Be brief.\n\nBe kind.');
  expect(request.echo.instructions).toBe('Be brief.\n\nBe kind.');
  expect(refused({ input: 'Hi', instructions: [{ type: 'reasoning', summary: [] }] })).toMatchObject({
    param: 'instructions[0]',
  });
});

test('accepts an empty input after a previous response', () => {
  expect(parseRequest({ previous_response_id: 'resp_1' }).input).toEqual([]);
  expect(parseRequest({ previous_response_id: 'resp_1', input: [] }).input).toEqual([]);
});

test('neither repeats nor stores the secrets of tools, but passes them to the executor', () => {
  const tool = {
    type: 'mcp',
    server_label: 'files',
    server_url: 'https://user:pass@mcp.example/key-in-path?token=in-query',
    authorization: 'the-bearer',
    headers: { 'x-api-key': 'in-a-header' },
    allowed_tools: ['read'],
    nested: [
      { api_key: 'deep-down', key: 'deep-down', pat: 'deep-down', access_token_value: 'deep-down', max_tokens: 3 },
    ],
    env: { PASSWD: 'deep-down' },
    cookie: 'deep-down',
  };
  const request = parseRequest({ input: 'Hi', tools: [tool] });
  expect(request.otherTools).toEqual([tool]);
  const shown = {
    type: 'mcp',
    server_label: 'files',
    server_url: 'https://mcp.example/<redacted>',
    allowed_tools: ['read'],
    nested: [{ max_tokens: 3 }],
  };
  expect(request.echo.tools).toEqual([shown]);
  expect(storable(request)).toEqual({ ...request, otherTools: [shown] });
  expect(JSON.stringify(storable(request))).not.toMatch(/bearer|in-a-header|deep-down|user:pass|in-path|in-query/);
});

describe('rejects, with the path of the field,', () => {
  test.each<[unknown, Partial<ApiError>]>([
    ['text', { param: null, code: 'invalid_type', message: expect.stringContaining('an object, but got a string') }],
    [null, { param: null, message: expect.stringContaining('got null') }],
    [[], { param: null, message: expect.stringContaining('got a list') }],
    [{}, { param: 'input', code: 'missing_required_parameter' }],
    [{ input: '' }, { param: 'input', code: 'empty_input' }],
    [{ input: [] }, { param: 'input', code: 'empty_input' }],
    [
      { input: 7 },
      { param: 'input', message: expect.stringContaining('a string or a list of items, but got an integer') },
    ],
    [
      { input: 'a', model: 7 },
      { param: 'model', code: 'invalid_type' },
    ],
    [
      { input: 'a', model: '' },
      { param: 'model', code: 'string_below_min_length' },
    ],
    [
      { input: 'a', stream: 'yes' },
      { param: 'stream', message: expect.stringContaining('a boolean, but got a string') },
    ],
    [
      { input: 'a', temperature: 2.1 },
      { param: 'temperature', code: 'decimal_above_max_value' },
    ],
    [
      { input: 'a', temperature: -1 },
      { param: 'temperature', message: expect.stringContaining('at least 0, but got -1') },
    ],
    [
      { input: 'a', temperature: '1' },
      { param: 'temperature', code: 'invalid_type' },
    ],
    [
      { input: 'a', top_p: 1.5 },
      { param: 'top_p', code: 'decimal_above_max_value' },
    ],
    [
      { input: 'a', max_output_tokens: 15 },
      {
        param: 'max_output_tokens',
        code: 'integer_below_min_value',
        message:
          "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
      },
    ],
    [
      { input: 'a', max_output_tokens: 20.5 },
      { param: 'max_output_tokens', code: 'invalid_type' },
    ],
    [{ input: 'a', max_output_tokens: 1e300 }, { param: 'max_output_tokens' }],
    [{ input: 'a', max_tool_calls: 0 }, { param: 'max_tool_calls' }],
    [{ input: 'a', top_logprobs: 21 }, { param: 'top_logprobs' }],
    [
      { input: 'a', include: ['reasoning.everything'] },
      { param: 'include[0]', message: expect.stringContaining("'message.output_text.logprobs'") },
    ],
    [
      { input: 'a', stop: ['.'] },
      { param: 'stop', code: 'unknown_parameter', message: expect.stringMatching(/^Unknown parameter: 'stop'/) },
    ],
    [
      { input: 'a', seed: 1 },
      { param: 'seed', code: 'unknown_parameter', message: expect.stringMatching(/^Unknown parameter: 'seed'/) },
    ],
    [
      { input: 'a', logit_bias: { 1: 1 } },
      {
        param: 'logit_bias',
        code: 'unknown_parameter',
        message: expect.stringMatching(/^Unknown parameter: 'logit_bias'/),
      },
    ],
    [
      {
        input: [{ role: 'user', content: [{ type: 'input_image', image_url: 'https://a.example/b', detail: 'most' }] }],
      },
      { param: 'input[0].content[0].detail' },
    ],
    [{ input: 'a', presence_penalty: 3 }, { param: 'presence_penalty' }],
    [{ input: 'a', frequency_penalty: -3 }, { param: 'frequency_penalty' }],
    [
      { input: 'a', truncation: 'some' },
      { param: 'truncation', message: expect.stringContaining("'auto', 'disabled'") },
    ],
    [
      { input: 'a', service_tier: 'gold' },
      { param: 'service_tier', code: 'invalid_value' },
    ],
    [
      { input: 'a', include: 'all' },
      { param: 'include', code: 'invalid_type' },
    ],
    [
      { input: 'a', include: [7] },
      { param: 'include[0]', code: 'invalid_type' },
    ],
    [
      { input: 'a', safety_identifier: 's'.repeat(65) },
      { param: 'safety_identifier', code: 'string_above_max_length' },
    ],
    [{ input: 'a', prompt_cache_key: 'k'.repeat(65) }, { param: 'prompt_cache_key' }],
    [{ input: 'a', previous_response_id: 7 }, { param: 'previous_response_id' }],
    [
      { input: 'a', reasoning: { effort: 'huge' } },
      { param: 'reasoning.effort', code: 'invalid_value' },
    ],
    [
      { input: 'a', reasoning: 'high' },
      { param: 'reasoning', code: 'invalid_type' },
    ],
    [
      { input: 'a', text: { format: { type: 'xml' } } },
      { param: 'text.format.type', code: 'invalid_value' },
    ],
    [
      { input: 'a', text: { format: {} } },
      { param: 'text.format.type', code: 'missing_required_parameter' },
    ],
    [{ input: 'a', text: { format: 'json' } }, { param: 'text.format' }],
    [{ input: 'a', text: { verbosity: 'loud' } }, { param: 'text.verbosity' }],
    [{ input: 'a', text: { format: { type: 'json_schema', schema: {} } } }, { param: 'text.format.name' }],
    [{ input: 'a', text: { format: { type: 'json_schema', name: 'a b', schema: {} } } }, { param: 'text.format.name' }],
    [{ input: 'a', text: { format: { type: 'json_schema', name: 'a' } } }, { param: 'text.format.schema' }],
    ...[
      { type: 'object', properties: { a: { $ref: '#/$defs/none' } } },
      { $ref: 'https://a.example/schema' },
      { anyOf: [{ type: 'string', pattern: '(' }] },
      { patternProperties: { '[': {} } },
    ].map((schema): [unknown, Partial<ApiError>] => [
      { input: 'a', text: { format: { type: 'json_schema', name: 'a', schema, strict: true } } },
      { param: 'text.format.schema', code: 'invalid_json_schema' },
    ]),
    [{ input: 'a', text: { format: { type: 'json_schema', name: 'a', schema: [] } } }, { param: 'text.format.schema' }],
    [
      { input: 'a', text: { format: { type: 'json_schema', name: 'a', strict: true, schema: {} } } },
      { param: 'text.format.schema', code: 'invalid_json_schema' },
    ],
    [
      {
        input: 'a',
        text: { format: { type: 'json_schema', name: 'a', strict: true, schema: { city: { type: 'string' } } } },
      },
      { param: 'text.format.schema', code: 'invalid_json_schema' },
    ],
    [
      { input: 'a', text: { format: { type: 'json_schema', name: 'a', strict: true, schema: { type: 'strng' } } } },
      { param: 'text.format.schema', code: 'invalid_json_schema' },
    ],
    [
      { input: 'a', text: { format: { type: 'json_schema', json_schema: { name: 'a', schema: {} } } } },
      { param: 'text.format.schema', message: expect.stringContaining("not under 'json_schema'") },
    ],
    [
      { input: 'a', metadata: [] },
      { param: 'metadata', code: 'invalid_type' },
    ],
    [
      { input: 'a', metadata: { a: 1 } },
      { param: 'metadata.a', code: 'invalid_type' },
    ],
    [
      { input: 'a', metadata: { a: 'x'.repeat(513) } },
      { param: 'metadata.a', message: expect.stringContaining('512') },
    ],
    [
      { input: 'a', metadata: { ['k'.repeat(65)]: 'x' } },
      { param: 'metadata', message: expect.stringContaining('64') },
    ],
    [
      { input: 'a', metadata: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`k${n}`, 'v'])) },
      { param: 'metadata', message: expect.stringContaining('at most 16') },
    ],
    [
      { input: 'a', background: true, store: false },
      { param: 'background', code: 'invalid_value', message: expect.stringContaining("leave 'store' out") },
    ],
    [
      { input: 'a', conversation: 'conv_1', previous_response_id: 'resp_1' },
      { param: 'conversation', code: 'mutually_exclusive_parameters' },
    ],
    [
      { input: 'a', conversation: 'conv_1', store: false },
      { param: 'store', code: 'invalid_value' },
    ],
    [
      { input: 'a', conversation: { name: 'conv_1' } },
      { param: 'conversation.id', code: 'missing_required_parameter' },
    ],
    [
      { input: 'a', prompt: { id: 'pmpt_1' } },
      { param: 'prompt', code: 'unsupported_parameter' },
    ],
  ])('%j', (body, error) => {
    expect(refused(body)).toMatchObject({ status: 400, type: 'invalid_request_error', ...error });
  });
});

describe('limits', () => {
  test('allow the maximum of metadata', () => {
    const metadata = Object.fromEntries(
      Array.from({ length: 16 }, (_, n) => [String(n).padStart(64, 'k'), 'v'.repeat(512)]),
    );
    expect(parseRequest({ input: 'a', metadata }).echo.metadata).toEqual(metadata);
  });

  test('are part of the error message', () => {
    const said = { role: 'user', content: 'a' };
    expect(refused({ input: [said, said, said] }, { inputItems: 2 })).toMatchObject({
      status: 400,
      param: 'input',
      message: expect.stringMatching(/length of 3; expected at most 2 items/),
    });
    const parts = [1, 2, 3].map((n) => ({ type: 'input_text', text: `${n}` }));
    expect(refused({ input: [{ role: 'user', content: parts }] }, { parts: 2 })).toMatchObject({
      param: 'input[0].content',
      message: expect.stringContaining('at most 2'),
    });
    expect(refused({ input: 'a'.repeat(200) }, { inputChars: 100 })).toMatchObject({
      status: 413,
      param: 'input',
      message: expect.stringContaining('at most 100'),
    });
    const tool = { type: 'function', name: 'f' };
    expect(refused({ input: 'a', tools: [tool, { ...tool, name: 'g' }] }, { tools: 1 })).toMatchObject({
      param: 'tools',
      message: expect.stringContaining('at most 1'),
    });
    const long = { ...tool, description: 'd'.repeat(100) };
    expect(refused({ input: 'a', tools: [long] }, { toolChars: 100 })).toMatchObject({
      param: 'tools[0]',
      message: expect.stringContaining('at most 100'),
    });
    const format = { type: 'json_schema', name: 'a', schema: { description: 'd'.repeat(100) } };
    expect(refused({ input: 'a', text: { format } }, { toolChars: 100 })).toMatchObject({
      param: 'text.format.schema',
    });
  });
});

describe('unusual JSON', () => {
  test('is rejected if it is nested too deeply', () => {
    for (const field of ['input', 'metadata', 'tools', 'unknown']) {
      const body: unknown = JSON.parse(`{"input":"a","${field}":${'['.repeat(50_000)}${']'.repeat(50_000)}}`);
      expect(refused(body), field).toMatchObject({ status: 400, param: field, code: 'nesting_too_deep' });
    }
  });

  test.each([
    '{"input":"a","__proto__":{"stream":true}}',
    '{"input":"a","metadata":{"__proto__":"x"}}',
    '{"input":[{"role":"user","content":"a","__proto__":{"id":"x"}}]}',
    '{"input":"a","tools":[{"type":"function","name":"f","parameters":{"properties":{"__proto__":{}}}}]}',
  ])('%s', (json) => {
    expect(refused(JSON.parse(json))).toMatchObject({ status: 400, message: expect.stringContaining('__proto__') });
  });

  test('may contain keys like constructor', () => {
    const parameters = { type: 'object', properties: { constructor: { type: 'string' }, toString: {} } };
    const body: unknown = JSON.parse(
      JSON.stringify({
        input: 'a',
        tools: [{ type: 'function', name: 'f', parameters }],
        metadata: { constructor: 'x' },
      }),
    );
    const { functions, echo } = parseRequest(body);
    expect(functions[0]!.parameters).toEqual(parameters);
    expect(echo.metadata).toEqual({ constructor: 'x' });
    expect(
      refused({ input: 'a', tools: [{ type: 'function', name: 'f', parameters: { type: 'constructor' } }] }).param,
    ).toBe('tools[0].parameters.type');
  });

  const odd = fc.oneof(fc.jsonValue(), fc.constantFrom(null, true, 7, '', 'x', [], {}, [null], [{}]));
  const maybe = (fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> =>
    fc.oneof({ weight: 1, arbitrary: odd }, { weight: 40, arbitrary: fc.record(fields, { requiredKeys: [] }) });
  const word = (...words: string[]): fc.Arbitrary<unknown> =>
    fc.oneof({ weight: 1, arbitrary: odd }, { weight: 40, arbitrary: fc.constantFrom(...words) });
  const many = (item: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
    fc.oneof({ weight: 1, arbitrary: odd }, { weight: 40, arbitrary: fc.array(item, { maxLength: 3 }) });
  const part = maybe({
    type: word('input_text', 'output_text', 'refusal', 'input_image', 'input_file', 'text'),
    text: word('a', ''),
    refusal: word('no'),
    image_url: word('https://a.example/x.png', 'data:image/png;base64,AAAA', 'data:,x', 'data:'),
    file_data: word('AAAA', 'data:;base64,A'),
    file_url: word('https://a.example/x.pdf'),
    file_id: odd,
    filename: word('a.pdf'),
  });
  const item = maybe({
    type: word('message', 'reasoning', 'function_call', 'function_call_output', 'mcp_call', 'mcp_list_tools'),
    id: word('i', ''),
    role: word('user', 'assistant', 'system', 'developer'),
    content: fc.oneof(word('said'), many(part)),
    status: odd,
    phase: word('commentary'),
    call_id: word('c1', 'c2'),
    name: word('f'),
    arguments: word('{}'),
    output: fc.oneof(word('out'), many(part)),
    is_error: odd,
    error: odd,
    server_label: word('s'),
    summary: many(maybe({ text: word('t') })),
    encrypted_content: word('e30='),
  });
  const tool = maybe({
    type: word('function', 'mcp', 'other'),
    name: word('f', 'g'),
    parameters: odd,
    server_label: word('s'),
    server_url: odd,
    strict: odd,
  });
  const named = maybe({
    type: word('function', 'mcp', 'other'),
    name: word('f'),
    server_label: word('s'),
    function: odd,
  });
  const body = maybe({
    model: word('m'),
    input: fc.oneof(word('said'), many(item)),
    instructions: fc.oneof(word('said'), many(item)),
    tools: many(tool),
    tool_choice: fc.oneof(
      word('auto', 'none', 'required'),
      named,
      maybe({ type: word('allowed_tools'), mode: word('auto'), tools: many(named), allowed_tools: odd }),
    ),
    text: maybe({ format: maybe({ type: word('json_schema', 'text'), name: word('n'), schema: odd }), verbosity: odd }),
    reasoning: maybe({ effort: word('low'), summary: odd }),
    metadata: odd,
    previous_response_id: word('resp_1'),
  });

  /** Whether the body was accepted. Fails for any error but an `ApiError`. */
  function isAccepted(candidate: unknown): boolean {
    try {
      const request = parseRequest(candidate);
      expect(JSON.parse(JSON.stringify(request))).toEqual(request);
      conversationFrom(request.input);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      expect([400, 413]).toContain(error.status);
      expect(error.message).toMatch(/\.$/);
      return false;
    }
  }

  test('is accepted, or rejected with an ApiError', () => {
    fc.assert(
      fc.property(body, (candidate) => void isAccepted(candidate)),
      { numRuns: 1_000 * CASES },
    );
  });

  const valid = {
    model: 'm',
    input: [
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'a' },
          { type: 'input_image', image_url: 'data:image/png;base64,AAAA' },
        ],
      },
      { type: 'reasoning', id: 'rs_1', summary: [{ type: 'summary_text', text: 't' }], encrypted_content: 'e30=' },
      { type: 'message', role: 'assistant', phase: 'commentary', content: [{ type: 'output_text', text: 'b' }] },
      { type: 'function_call', call_id: 'c1', name: 'f', arguments: '{}' },
      { type: 'mcp_call', id: 'mcp_1', server_label: 's', name: 'g', arguments: '{}', output: 'o', error: null },
      { type: 'function_call_output', call_id: 'c1', output: [{ type: 'input_text', text: 'o' }], is_error: true },
    ],
    instructions: 'i',
    tools: [
      { type: 'function', name: 'f', parameters: { type: 'object' }, strict: true },
      { type: 'mcp', server_label: 's', server_url: 'https://a.example', allowed_tools: ['g'] },
    ],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
    text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' } }, verbosity: 'low' },
    reasoning: { effort: 'low', summary: 'auto' },
    metadata: { k: 'v' },
    include: ['reasoning.encrypted_content'],
  };

  test('in one field of a valid request is accepted, or rejected with an ApiError', () => {
    const places = placesIn(valid);
    let accepted = 0;
    fc.assert(
      fc.property(fc.constantFrom(...places), fc.option(odd, { nil: undefined }), (place, value) => {
        const candidate = structuredClone(valid);
        const last = place.at(-1)!;
        let holder: Record<PropertyKey, unknown> = candidate;
        for (const key of place.slice(0, -1)) holder = holder[key] as Record<PropertyKey, unknown>;
        if (value === undefined) delete holder[last];
        else holder[last] = value;
        if (isAccepted(JSON.parse(JSON.stringify(candidate)))) accepted++;
      }),
      { numRuns: 1_000 * CASES },
    );
    expect(isAccepted(valid)).toBe(true);
    expect(accepted).toBeGreaterThan(100 * CASES);
    expect(accepted).toBeLessThan(2_700);
  });
});

/** The path of every value in a JSON value. */
function placesIn(value: unknown): readonly (readonly PropertyKey[])[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, item]) => [[key], ...placesIn(item).map((path) => [key, ...path])]);
}

describe('namespaces', () => {
  const echo = { type: 'function', name: 'echo', parameters: { type: 'object' }, strict: false };
  const exec = { type: 'custom', name: 'exec', format: { type: 'text' } };
  const space = (name: string, ...tools: object[]): object => ({ type: 'namespace', name, description: 'd', tools });

  test('give their tools names of their own, and are repeated as they are', () => {
    const tools = [space('a', echo, exec), space('b', echo)];
    const { functions, otherTools, echo: repeated } = parseRequest({ input: 'Hi', tools });
    expect(functions.map(({ name, own, custom }) => [name, own, custom !== undefined])).toEqual([
      ['a__echo', { name: 'echo', namespace: 'a' }, false],
      ['a__exec', { name: 'exec', namespace: 'a' }, true],
      ['b__echo', { name: 'echo', namespace: 'b' }, false],
    ]);
    expect(otherTools).toEqual([]);
    expect(repeated.tools).toMatchObject(tools);
  });

  test('are refused if two of their tools would have the same name', () => {
    const { code, param } = refused({ input: 'Hi', tools: [space('a', echo, echo)] });
    expect([code, param]).toEqual(['duplicate_tool', 'tools[0].tools[1].name']);
    expect(refused({ input: 'Hi', tools: [{ ...echo, name: 'a__echo' }, space('a', echo)] }).code).toBe(
      'duplicate_tool',
    );
  });

  test('are refused with what is neither a function nor a custom tool', () => {
    expect(refused({ input: 'Hi', tools: [space('a', { type: 'mcp' })] }).param).toBe('tools[0].tools[0].type');
  });
});
