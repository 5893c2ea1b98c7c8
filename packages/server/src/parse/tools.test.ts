import { describe, expect, test } from 'vitest';
import { ApiError } from '../api-error.ts';
import { parseRequest, type ParseOptions } from '../apis/responses/parse-request.ts';

const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } } },
  strict: true,
};
const mcp = { type: 'mcp', server_label: 'treadle', allowed_tools: ['read'] };

function refused(body: object, options?: ParseOptions): Partial<ApiError> {
  try {
    parseRequest({ input: 'Hi', ...body }, options);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('It was accepted.');
}

describe('tools', () => {
  test('separates functions from other tools, and repeats all of them', () => {
    const other = { type: 'web_search', filters: { allowed_domains: ['a.example'] } };
    const { functions, otherTools, echo } = parseRequest({ input: 'Hi', tools: [weather, mcp, other] });
    expect(functions).toEqual([weather]);
    expect(otherTools).toEqual([mcp, other]);
    expect(echo.tools).toEqual([weather, mcp, other]);
  });

  test.each([[{}], [{ description: null, parameters: null, strict: null }]])(
    'accepts a function with only a name: %j',
    (fields) => {
      const { functions, echo } = parseRequest({ input: 'Hi', tools: [{ type: 'function', name: 'f', ...fields }] });
      const whole = { type: 'function', name: 'f', description: null, parameters: null, strict: null };
      expect(functions).toEqual([whole]);
      expect(echo.tools).toEqual([whole]);
    },
  );

  test.each<[unknown, Partial<ApiError>]>([
    ['all', { param: 'tools', code: 'invalid_type' }],
    [['f'], { param: 'tools[0]', code: 'invalid_type' }],
    [[null], { param: 'tools[0]' }],
    [[{}], { param: 'tools[0].type', code: 'missing_required_parameter' }],
    [[{ type: 7 }], { param: 'tools[0].type', code: 'invalid_type' }],
    [[{ type: 'function' }], { param: 'tools[0].name', code: 'missing_required_parameter' }],
    [[{ type: 'function', name: '' }], { param: 'tools[0].name' }],
    [[{ type: 'function', name: 'a b' }], { param: 'tools[0].name', message: expect.stringContaining('letters') }],
    [[{ type: 'function', name: 'n'.repeat(65) }], { param: 'tools[0].name', code: 'string_above_max_length' }],
    [
      [weather, weather],
      { param: 'tools[1].name', message: expect.stringContaining("'get_weather' is declared twice") },
    ],
    [
      [
        { type: 'function', name: 'crm__find' },
        { type: 'namespace', name: 'crm', tools: [{ type: 'function', name: 'find' }] },
      ],
      {
        param: 'tools[1].tools[0].name',
        message: expect.stringContaining("'crm__find' is declared twice"),
        code: 'duplicate_tool',
      },
    ],
    [[mcp, mcp], { param: 'tools[1].server_label', code: 'duplicate_tool' }],
    [[{ ...weather, parameters: 'none' }], { param: 'tools[0].parameters', code: 'invalid_type' }],
    [[{ ...weather, parameters: [] }], { param: 'tools[0].parameters' }],
    [[{ ...weather, parameters: { type: 'string' } }], { param: 'tools[0].parameters.type' }],
    [[{ ...weather, strict: 'yes' }], { param: 'tools[0].strict' }],
    [[{ ...weather, description: 7 }], { param: 'tools[0].description' }],
    [[{ type: 'mcp' }], { param: 'tools[0].server_label' }],
    [[{ ...mcp, allowed_tools: 'read' }], { param: 'tools[0].allowed_tools' }],
    [
      [{ type: 'function', function: { name: 'f' } }],
      { param: 'tools[0].name', message: expect.stringContaining("not under 'function'") },
    ],
  ])('rejects %j', (tools, error) => {
    expect(refused({ tools })).toMatchObject({ status: 400, ...error });
  });
});

describe('tool_choice', () => {
  const tools = [weather, mcp, { type: 'web_search' }];
  const named = { type: 'function', name: 'get_weather' };
  const labelled = { type: 'mcp', server_label: 'treadle' };

  test.each([
    ['auto', 'auto'],
    ['required', 'required'],
    ['none', 'none'],
    [null, 'auto'],
    [named, named],
    [{ type: 'function', function: { name: 'get_weather' } }, named],
    [labelled, labelled],
    [{ ...labelled, name: null }, labelled],
    [
      { ...labelled, name: 'read' },
      { ...labelled, name: 'read' },
    ],
    [
      { type: 'allowed_tools', mode: 'required', tools: [named, labelled] },
      { type: 'allowed_tools', mode: 'required', tools: [named, labelled] },
    ],
    [
      { type: 'allowed_tools', tools: [named] },
      { type: 'allowed_tools', mode: 'auto', tools: [named] },
    ],
    [
      {
        type: 'allowed_tools',
        allowed_tools: { mode: 'auto', tools: [{ type: 'function', function: { name: 'get_weather' } }] },
      },
      { type: 'allowed_tools', mode: 'auto', tools: [named] },
    ],
    [
      { allowed_tools: { mode: 'required', tools: [named] } },
      { type: 'allowed_tools', mode: 'required', tools: [named] },
    ],
  ])('%j', (requested, meant) => {
    const { toolChoice, echo } = parseRequest({ input: 'Hi', tools, tool_choice: requested });
    expect(toolChoice).toEqual(meant);
    expect(echo.tool_choice).toEqual(meant);
  });

  test('forces another type of tool by allowing no other tools', () => {
    const { toolChoice, echo } = parseRequest({ input: 'Hi', tools, tool_choice: { type: 'web_search' } });
    expect(toolChoice).toEqual({ type: 'allowed_tools', mode: 'required', tools: [{ type: 'web_search' }] });
    expect(echo.tool_choice).toEqual({ type: 'web_search' });
    expect(parseRequest({ input: 'Hi', tools, tool_choice: { type: 'web_search_preview' } }).echo.tool_choice).toEqual({
      type: 'web_search_preview',
    });
  });

  test('accepts allowed tools with the mode none', () => {
    const requested = { type: 'allowed_tools', mode: 'none', tools: [named] };
    const { toolChoice, echo } = parseRequest({ input: 'Hi', tools, tool_choice: requested });
    expect(toolChoice).toBe('none');
    expect(echo.tool_choice).toEqual(requested);
  });

  test('accepts the label of default tools without a declaration', () => {
    const choice = { input: 'Hi', tool_choice: labelled };
    expect(parseRequest(choice, { labels: ['treadle'] }).toolChoice).toEqual(labelled);
    expect(refused(choice)).toMatchObject({ param: 'tool_choice.server_label', code: 'unknown_tool' });
  });

  test.each<[unknown, Partial<ApiError>]>([
    ['any', { param: 'tool_choice', message: expect.stringContaining("'auto', 'required', 'none'") }],
    [7, { param: 'tool_choice', code: 'invalid_type' }],
    [[], { param: 'tool_choice', code: 'invalid_type' }],
    [{}, { param: 'tool_choice.type' }],
    [{ type: 'function' }, { param: 'tool_choice.name' }],
    [{ type: 'function', function: {} }, { param: 'tool_choice.function.name' }],
    [
      { type: 'function', name: 'f' },
      { param: 'tool_choice.name', message: expect.stringContaining("no function 'f'") },
    ],
    [{ type: 'mcp' }, { param: 'tool_choice.server_label' }],
    [
      { type: 'mcp', server_label: 'x' },
      { param: 'tool_choice.server_label', code: 'unknown_tool' },
    ],
    [{ type: 'code_interpreter' }, { param: 'tool_choice.type', code: 'unknown_tool' }],
    [{ type: 'allowed_tools' }, { param: 'tool_choice.tools', code: 'missing_required_parameter' }],
    [
      { type: 'allowed_tools', tools: [] },
      { param: 'tool_choice.tools', message: expect.stringContaining('empty') },
    ],
    [{ type: 'allowed_tools', mode: 'some', tools: [named] }, { param: 'tool_choice.mode' }],
    [{ type: 'allowed_tools', tools: ['f'] }, { param: 'tool_choice.tools[0]' }],
    [
      { type: 'allowed_tools', tools: [named, { type: 'function', name: 'f' }] },
      { param: 'tool_choice.tools[1].name', code: 'unknown_tool' },
    ],
    [{ allowed_tools: null }, { param: 'tool_choice.tools' }],
    [{ allowed_tools: { tools: [{}] } }, { param: 'tool_choice.allowed_tools.tools[0].type' }],
    [{ type: 'allowed_tools', tools: Array.from({ length: 129 }, () => named) }, { param: 'tool_choice.tools' }],
  ])('rejects %j', (requested, error) => {
    expect(refused({ tools, tool_choice: requested })).toMatchObject({ status: 400, ...error });
  });
});
