import { describe, expect, test } from 'vitest';
import { anthropicProblem } from './rules/anthropic.ts';
import { ollamaProblem } from './rules/ollama.ts';
import { chatProblem } from './rules/openai-chat.ts';
import { responsesProblem } from './rules/openai-responses.ts';

/** Bodies with a wrong shape. Each is a valid body with one change. */

const schema = { type: 'object', properties: {} };

describe('openai-chat', () => {
  const user = { role: 'user', content: 'Hi' };
  const fn = { name: 'now', parameters: schema };
  const called = (call: object): object => ({
    messages: [user, { role: 'assistant', content: null, tool_calls: [call] }],
  });

  test.each([
    [{ parallel_tool_calls: false }, "'parallel_tool_calls' is only allowed when 'tools' are specified."],
    [{ tools: [] }, "Invalid 'tools': empty array."],
    [{ tools: [{ type: 'function', function: { ...fn, name: 'a'.repeat(65) } }] }, 'maximum length 64'],
    [{ tools: [{ type: 'custom' }] }, "Invalid value: 'custom'."],
    [{ messages: [{ role: 'tool', content: '' }] }, "Missing required parameter: 'messages[0].tool_call_id'."],
    [called({ type: 'function', function: fn }), "Missing required parameter: 'messages[1].tool_calls[0].id'."],
    [called({ id: 'c', function: fn }), "Missing required parameter: 'messages[1].tool_calls[0].type'."],
    [called({ id: 'c', type: 'function', function: { arguments: '' } }), "'messages[1].tool_calls[0].function.name'."],
    [{ messages: [{ role: 'user', content: [] }] }, "Invalid 'messages[0].content': empty array."],
    [{ messages: [{ role: 'user', content: [{ type: 'input_text' }] }] }, "Invalid value: 'input_text'."],
    [{ messages: [{ role: 'user', content: 7 }] }, "Invalid type for 'messages[0].content'"],
  ])('rejects %j', (changes, message) => {
    expect(chatProblem({ model: 'm', messages: [user], ...changes })).toContain(message);
  });
});

describe('openai-responses', () => {
  const call = { type: 'function_call', call_id: 'c', name: 'now', arguments: '{}' };

  test.each([
    [{ tool_choice: 'required' }, "must be specified with 'tools' parameter."],
    [{ input: [{ type: 'thought' }] }, "Invalid value: 'thought'. (input[0].type)"],
    [{ input: [{ type: 'reasoning', summary: [] }] }, "Missing required parameter: 'input[0].id'."],
    [{ input: [{ type: 'function_call_output', call_id: 'c' }] }, "Missing required parameter: 'input[0].output'."],
    [{ input: [{ role: 'tool', content: 'x' }] }, "Invalid value: 'tool'."],
    [{ input: [{ role: 'user' }] }, "Missing required parameter: 'input[0].content'."],
    [{ input: [{ ...call, call_id: undefined }] }, "Missing required parameter: 'input[0].call_id'."],
    [{ input: [{ ...call, name: undefined }] }, "Missing required parameter: 'input[0].name'."],
  ])('rejects %j', (changes, message) => {
    expect(responsesProblem({ model: 'm', input: 'Hi', ...changes })).toContain(message);
  });
});

describe('anthropic', () => {
  const tool = { name: 'now', input_schema: schema };
  const userSends = (...content: object[]): object => ({ messages: [{ role: 'user', content }] });
  const assistantSends = (...content: object[]): object => ({
    messages: [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content },
      { role: 'user', content: 'Continue.' },
    ],
  });

  test.each([
    [{ model: undefined }, 'model: Field required'],
    [{ max_tokens: 0 }, 'max_tokens: Input should be greater than or equal to 1'],
    [{ temperature: 1.5 }, 'temperature: range: 0..1'],
    [{ system: [{ type: 'text', text: '' }] }, 'system: text content blocks must be non-empty'],
    [{ tools: [{ name: 'now' }] }, 'tools.0.custom.input_schema: Field required'],
    [{ tools: [{ name: 'now', input_schema: {} }] }, "tools.0.custom.input_schema.type: Input should be 'object'"],
    [{ tools: [tool, tool] }, 'tools: Tool names must be unique.'],
    [{ tools: [tool], tool_choice: { type: 'tool', name: 'then' } }, "Tool 'then' not found in provided tools"],
    [{ tool_choice: { type: 'any' } }, 'tool_choice may only be specified while providing tools'],
    [
      { model: 'claude-opus-5-5', tools: [tool], tool_choice: { type: 'any' } },
      'type "tool" and "any" are not supported',
    ],
    [
      { model: 'claude-opus-5-5', thinking: { type: 'disabled' } },
      '"thinking.type.disabled" is not supported for this model.',
    ],
    [
      { model: 'claude-opus-4-7', thinking: { type: 'enabled', budget_tokens: 2048 } },
      '"thinking.type.enabled" is not supported for this model.',
    ],
    [
      { model: 'claude-sonnet-4-5', thinking: { type: 'adaptive' } },
      '"thinking.type.adaptive" is not supported for this model.',
    ],
    [
      { model: 'claude-sonnet-5', tools: [tool], tool_choice: { type: 'tool', name: 'now' } },
      'Thinking may not be enabled when tool_choice forces tool use.',
    ],
    [{ model: 'claude-sonnet-5', temperature: 0 }, '`temperature` is deprecated for this model.'],
    [{ model: 'claude-opus-4-7', top_p: 0.9 }, '`top_p` is deprecated for this model.'],
    [{ model: 'claude-opus-4-6', temperature: 0, top_p: 0.9 }, '`temperature` and `top_p` cannot both be specified'],
    [{ model: 'claude-haiku-4-5', output_config: { effort: 'low' } }, 'does not support the effort parameter'],
    [{ thinking: { type: 'enabled' } }, 'thinking.enabled.budget_tokens: Field required'],
    [{ thinking: { type: 'enabled', budget_tokens: 9 } }, 'greater than or equal to 1024'],
    [{ messages: undefined }, 'messages: Field required'],
    [{ messages: [{ role: 'system', content: 'x' }] }, "messages.0.role: Input should be 'user' or 'assistant'"],
    [{ messages: [{ role: 'user' }] }, 'messages.0.content: Input should be a valid list'],
    [userSends({ type: 'text' }), 'messages.0.content.0.text.text: Field required'],
    [userSends({ type: 'video' }), "Input tag 'video' found"],
    [userSends({ type: 'image' }), 'messages.0.content.0.image.source: Field required'],
    [userSends({ type: 'thinking', thinking: '', signature: 's' }), 'can only be in `assistant` messages'],
    [userSends({ type: 'tool_use', id: 'a', name: 'now', input: {} }), 'can only be in `assistant` messages'],
    [userSends({ type: 'tool_result' }), 'messages.0.content.0.tool_result.tool_use_id: Field required'],
    [
      userSends({ type: 'tool_result', tool_use_id: 'a', content: [{ type: 'tool_use' }] }),
      "Input tag 'tool_use' found",
    ],
    [assistantSends({ type: 'tool_result', tool_use_id: 'a' }), 'can only be in `user` messages'],
    [assistantSends({ type: 'tool_use', name: 'now', input: {} }), 'messages.1.content.0.tool_use.id: Field required'],
    [assistantSends({ type: 'tool_use', id: 'a', name: '', input: {} }), 'String should have at least 1 character'],
    [assistantSends({ type: 'thinking', signature: 's' }), 'messages.1.content.0.thinking.thinking: Field required'],
    [assistantSends({ type: 'redacted_thinking' }), 'messages.1.content.0.redacted_thinking.data: Field required'],
  ])('rejects %j', (changes, message) => {
    const body = { model: 'm', max_tokens: 4096, messages: [{ role: 'user', content: 'Hi' }], ...changes };
    expect(anthropicProblem(body)).toContain(message);
  });
});

test.each([
  { model: 'claude-sonnet-5', tool_choice: { type: 'any' }, thinking: { type: 'disabled' } },
  { model: 'claude-opus-4-8', tool_choice: { type: 'any' } },
  { model: 'claude-opus-5-5', tool_choice: { type: 'auto' }, thinking: { type: 'adaptive' } },
  { model: 'claude-opus-4-6', tool_choice: { type: 'none' }, temperature: 0.5, output_config: { effort: 'low' } },
  { model: 'another-model', tool_choice: { type: 'any' }, temperature: 0.5, top_p: 0.5 },
])('anthropic: accepts %j', (changes) => {
  const tools = [{ name: 'now', input_schema: schema }];
  const body = { max_tokens: 4096, messages: [{ role: 'user', content: 'Hi' }], tools, ...changes };
  expect(anthropicProblem(body)).toBeUndefined();
});

test('ollama: rejects an invalid think value', () => {
  const body = { model: 'm', messages: [{ role: 'user', content: 'Hi' }] };
  expect(ollamaProblem({ ...body, think: 'hard' })).toContain('invalid think value: "hard"');
  expect(ollamaProblem({ ...body, think: 'high' })).toBeUndefined();
});
