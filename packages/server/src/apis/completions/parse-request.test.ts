import { describe, expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import { parseCompletion } from './parse-request.ts';
import type { CompletionRequest } from './parse-request.ts';

const messages = [{ role: 'user', content: 'hello' }];
const weather = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object', properties: {} } } };

const parse = (more: object = {}): CompletionRequest => parseCompletion({ messages, ...more });

test('fills in all defaults', () => {
  expect(parse()).toEqual({
    stream: false,
    store: true,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }],
    system: [],
    functions: [],
    otherTools: [],
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    truncation: 'disabled',
    includeUsage: false,
    serviceTier: 'default',
  });
});

test('parses every supported field', () => {
  const request = parse({
    model: 'gpt-x',
    messages: [{ role: 'system', content: 'Be brief.' }, ...messages],
    stream: true,
    stream_options: { include_usage: true, include_obfuscation: false },
    store: false,
    tools: [
      {
        type: 'function',
        function: { name: 'f', description: 'Does it.', parameters: { type: 'object' }, strict: true },
      },
      { type: 'mcp', server_label: 'treadle', allowed_tools: ['read'] },
    ],
    tool_choice: 'required',
    parallel_tool_calls: false,
    max_completion_tokens: 5,
    max_tool_calls: 3,
    temperature: 0.5,
    top_p: 0.9,
    stop: ['a', 'b'],
    seed: 7,
    reasoning_effort: 'minimal',
    response_format: {
      type: 'json_schema',
      json_schema: { name: 'answer', schema: { type: 'object', required: ['a'] } },
    },
    service_tier: 'priority',
    metadata: { a: 'b' },
    user: 'ann',
    n: 1,
    presence_penalty: 1,
    frequency_penalty: -1,
    logit_bias: { 50: 100 },
    verbosity: 'high',
    prompt_cache_key: 'k',
    logprobs: true,
    top_logprobs: 3,
    something_new: { a: 1 },
  });
  expect(request).toEqual({
    model: 'gpt-x',
    stream: true,
    store: false,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'hello' }] }],
    system: ['Be brief.'],
    functions: [{ type: 'function', name: 'f', description: 'Does it.', parameters: { type: 'object' }, strict: true }],
    otherTools: [{ type: 'mcp', server_label: 'treadle', allowed_tools: ['read'] }],
    toolChoice: 'required',
    parallel: false,
    maxToolCalls: 3,
    maxOutputTokens: 5,
    settings: {
      temperature: 0.5,
      topP: 0.9,
      stop: ['a', 'b'],
      seed: 7,
      reasoning: 'minimal',
      presencePenalty: 1,
      frequencyPenalty: -1,
      logitBias: { 50: 100 },
      verbosity: 'high',
      promptCacheKey: 'k',
      topLogprobs: 3,
      serviceTier: 'priority',
    },
    format: { schema: { type: 'object', required: ['a'] }, name: 'answer' },
    truncation: 'disabled',
    includeUsage: true,
    serviceTier: 'priority',
  });
});

test('treats null like an absent field', () => {
  const names = [
    'model stream store tools tool_choice parallel_tool_calls max_tokens max_completion_tokens temperature top_p stop seed',
    'reasoning_effort response_format stream_options n logprobs top_logprobs metadata user service_tier functions',
    'function_call audio modalities web_search_options logit_bias presence_penalty frequency_penalty prediction verbosity',
  ];
  const nulls = Object.fromEntries(names.flatMap((line) => line.split(' ')).map((name) => [name, null]));
  expect(parse(nulls)).toEqual(parse());
});

test('default values are not settings', () => {
  const defaults = { presence_penalty: 0, frequency_penalty: 0, logit_bias: {}, logprobs: false, top_logprobs: 0 };
  expect(parse(defaults)).toEqual(parse());
});

test('accepts max_tokens, and prefers max_completion_tokens', () => {
  expect(parse({ max_tokens: 1 }).maxOutputTokens).toBe(1);
  expect(parse({ max_tokens: 1, max_completion_tokens: 2 }).maxOutputTokens).toBe(2);
});

test.each([
  ['.', ['.']],
  ['', undefined],
  [[], undefined],
  [['a'], ['a']],
])('stop %j', (stop, meant) => {
  expect(parse({ stop }).settings.stop).toEqual(meant);
});

describe('tool_choice', () => {
  test.each<[unknown, CompletionRequest['toolChoice']]>([
    ['auto', 'auto'],
    ['none', 'none'],
    ['required', 'required'],
    [
      { type: 'function', function: { name: 'get_weather' } },
      { type: 'function', name: 'get_weather' },
    ],
    [
      {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'get_weather' } }] },
      },
      { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'get_weather' }] },
    ],
  ])('%j', (tool_choice, meant) => {
    expect(parse({ tools: [weather], tool_choice }).toolChoice).toEqual(meant);
  });
});

describe('response_format', () => {
  test.each<[unknown, unknown]>([
    [{ type: 'text' }, undefined],
    [{ type: 'json_object' }, { schema: { type: 'object' }, anyObject: true }],
    [
      { type: 'json_schema', json_schema: { name: 'a' } },
      { schema: { type: 'object' }, name: 'a' },
    ],
    [
      { type: 'json_schema', json_schema: { name: 'a', strict: true, schema: { type: 'array' } } },
      { schema: { type: 'array' }, name: 'a', strict: true },
    ],
  ])('%j', (response_format, meant) => {
    expect(parse({ response_format }).format).toEqual(meant);
  });
});

describe('rejects, with the path of the field,', () => {
  test.each<[string, unknown, string | null, RegExp]>([
    ['a body that is not an object', 'hello', null, /the request body/],
    ['a list', [], null, /but got a list/],
    ['no messages', {}, 'messages', /Missing required parameter: 'messages'/],
    ['several answers', { messages, n: 2 }, 'n', /several requests/],
    ['tokens without log probabilities', { messages, top_logprobs: 2 }, 'top_logprobs', /needs 'logprobs': true/],
    ['a bias above 100', { messages, logit_bias: { 1: 101 } }, 'logit_bias.1', /at most 100/],
    ['a bias that is not a number', { messages, logit_bias: { 1: 'a' } }, 'logit_bias.1', /a number/],
    ['functions', { messages, functions: [] }, 'functions', /'tools'/],
    ['function_call', { messages, function_call: 'auto' }, 'function_call', /'tool_choice'/],
    ['audio', { messages, modalities: ['text', 'audio'] }, 'modalities', /only text/],
    ['web_search_options', { messages, web_search_options: {} }, 'web_search_options', /tool/],
    ['a model that is not a string', { messages, model: 7 }, 'model', /expected a string/],
    ['max_tokens of 0', { messages, max_tokens: 0 }, 'max_tokens', /at least 1/],
    ['a temperature above 2', { messages, temperature: 3 }, 'temperature', /at most 2/],
    ['an empty stop', { messages, stop: [''] }, 'stop[0]', /at least 1/],
    ['stream options', { messages, stream_options: { include_usage: 1 } }, 'stream_options.include_usage', /boolean/],
    ['an unknown effort', { messages, reasoning_effort: 'huge' }, 'reasoning_effort', /'reasoning_effort': 'huge'/],
    [
      'an unknown format',
      { messages, response_format: { type: 'xml' } },
      'response_format.type',
      /'response_format.type': 'xml'/,
    ],
    [
      'a format without its name',
      { messages, response_format: { type: 'json_schema', json_schema: {} } },
      'response_format.json_schema.name',
      /Missing/,
    ],
    [
      'a format without json_schema',
      { messages, response_format: { type: 'json_schema' } },
      'response_format.json_schema.name',
      /Missing/,
    ],
    ['a format that is not an object', { messages, response_format: 'json' }, 'response_format', /object/],
    ['a tool without a function', { messages, tools: [{ type: 'function' }] }, 'tools[0].function', /Missing/],
    [
      'a tool without a name',
      { messages, tools: [{ type: 'function', function: {} }] },
      'tools[0].function.name',
      /Missing required parameter: 'tools\[0\].function.name'/,
    ],
    [
      'parameters that are not of type object',
      { messages, tools: [weather, { type: 'function', function: { name: 'f', parameters: { type: 'string' } } }] },
      'tools[1].function.parameters.type',
      /object/,
    ],
    ['a duplicate tool', { messages, tools: [weather, weather] }, 'tools[1].function.name', /declared twice/],
    [
      'an unknown choice',
      { messages, tools: [weather], tool_choice: { type: 'function', function: { name: 'f' } } },
      'tool_choice.function.name',
      /no function 'f'/,
    ],
    ['metadata that is not a string', { messages, metadata: { a: 1 } }, 'metadata.a', /string/],
  ])('%s', (_, body, param, message) => {
    expect(() => parseCompletion(body)).toThrow(ApiError);
    try {
      parseCompletion(body);
    } catch (error) {
      expect(error).toMatchObject({ status: 400, type: 'invalid_request_error', param });
      expect(error).toMatchObject({ message: expect.stringMatching(message) });
    }
  });

  test('a conversation that is too long, with a 413', () => {
    expect(() => parseCompletion({ messages }, { inputChars: 10 })).toThrow(
      expect.objectContaining({ status: 413, param: 'messages', code: 'input_too_large' }),
    );
  });

  test('too many messages, parts and tools', () => {
    const thrown = (body: object, limits: object): unknown => {
      try {
        return parseCompletion({ messages, ...body }, limits);
      } catch (error) {
        return (error as ApiError).param;
      }
    };
    expect(thrown({ messages: [...messages, ...messages] }, { inputItems: 1 })).toBe('messages');
    const parts = [
      { type: 'text', text: 'a' },
      { type: 'text', text: 'b' },
    ];
    expect(thrown({ messages: [{ role: 'user', content: parts }] }, { parts: 1 })).toBe('messages[0].content');
    expect(thrown({ tools: [weather] }, { tools: 0 })).toBe('tools');
  });
});
