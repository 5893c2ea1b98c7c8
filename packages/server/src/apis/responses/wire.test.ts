import type { McpToolCallError } from 'openai/resources/responses/responses';
import { expect, test } from 'vitest';
import { mcpError, mcpErrorText, sentMcpError } from './wire.ts';

test.each([
  [undefined, null],
  [null, null],
  ['broken', 'broken'],
  [mcpError('broken'), 'broken'],
  [{ content: [{ text: 'one' }, null, 7, {}, { text: 'two' }] }, 'one\ntwo'],
  [{ content: 'else' }, '{"content":"else"}'],
  [[], '[]'],
  [mcpError('broken', { httpStatus: 503 }), 'broken'],
])('the text of the error %j is %j', (error, text) => {
  expect(mcpErrorText(error)).toBe(text);
});

test.each([
  [{}, { type: 'mcp_tool_execution_error', message: 'broken', content: [{ type: 'text', text: 'broken' }] }],
  [{ httpStatus: 503 }, { type: 'http_error', code: 503, message: 'broken' }],
  [{ protocolCode: -32_602 }, { type: 'mcp_protocol_error', code: -32_602, message: 'broken' }],
])('an error with %j has the form of the official clients, and keeps it when it is sent back', (facts, expected) => {
  const error: McpToolCallError = mcpError('broken', facts);
  expect(error).toEqual(expected);
  expect(sentMcpError(error)).toEqual(expected);
});

test('an error with an invalid code that is sent back is one of the tool', () => {
  expect(sentMcpError({ type: 'http_error', code: '503', message: 'broken' })).toEqual(mcpError('broken'));
});
