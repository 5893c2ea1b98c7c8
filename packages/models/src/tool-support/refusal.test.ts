import { expect, test } from 'vitest';
import type { ModelError } from '@treadle/core';
import { toolsRefused } from './refusal.ts';

const error = (message: string, fields: Partial<ModelError> = {}): ModelError => ({
  code: 'invalid-request',
  message,
  retryable: false,
  ...fields,
});

test.each([
  'library/gemma:2b does not support tools',
  'No endpoints found that support tool use. To learn more about provider routing, visit: https://openrouter.ai/docs',
  '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
  'tools param requires --jinja flag',
  '`tool calling` is not supported with this model',
  "Unsupported parameter: 'tools' is not supported with this model.",
  'deepseek-reasoner does not support Function Calling',
  'Function calling is not enabled for models/gemma-3-27b-it',
  'Function calling is not enabled for this model',
  'Unrecognized request argument supplied: tools',
  'This model doesn’t take them: tool use is not supported',
  'm does not support tools (status code: 400)',
  'The chosen model does not support tools or images.',
  'Tool calling is not supported for gemma-2-9b',
  'Tools are not available on this endpoint',
  "'tools' is not supported with the gpt-instruct model",
])('"%s" is a refusal of tools', (message) => {
  const failure = error(`The provider answered 500: ${message}`, { code: 'overloaded', retryable: true, status: 500 });
  expect(toolsRefused('m', failure)).toEqual({
    code: 'invalid-request',
    message:
      'The model "m" does not support tools here. ' +
      'Use another model, or set toolSupport (tool_support in treadle.toml) to "degrade" or "text". ' +
      `The provider answered 500: ${message}`,
    retryable: false,
    status: 500,
  });
});

test.each([
  'parallel tool calls are not supported with this model',
  "'parallel_tool_calls' is not supported with this model",
  "Unsupported value: 'tool_choice' is not supported",
  "tools[0].function.name: expected a string that matches '^[a-zA-Z0-9_-]+$'",
  'This model does not support image input',
  'The tool weather is not available',
  'Rate limit reached',
  'This model does not support tool choice "required".',
  'm does not support tool_choice',
  "'tools' are not supported in combination with response_format",
  'tools are not supported with response_format',
  'This endpoint does not support tools with streaming',
  'tool use is not supported for assistants prefill',
  'This model does not support tools when stream is true',
  'm does not support tools and response_format at the same time',
  'function calling is not supported if logprobs is set',
])('"%s" is not a refusal of tools', (message) => {
  expect(toolsRefused('m', error(message))).toBeUndefined();
});

test('rewrites an error once, and never a cancelled request', () => {
  const once = toolsRefused('m', error('m does not support tools'))!;
  expect(toolsRefused('m', once)).toBe(once);
  expect(toolsRefused('m', error('m does not support tools', { code: 'cancelled' }))).toBeUndefined();
});
