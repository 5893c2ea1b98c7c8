import { expect, test } from 'vitest';
import { mcpError, mcpErrorText } from './mcp-error.ts';

test.each([
  [undefined, null],
  [null, null],
  ['broken', 'broken'],
  [mcpError('broken'), 'broken'],
  [{ content: [{ text: 'one' }, null, 7, {}, { text: 'two' }] }, 'one\ntwo'],
  [{ content: 'else' }, '{"content":"else"}'],
  [[], '[]'],
])('%j says %j', (error, text) => {
  expect(mcpErrorText(error)).toBe(text);
});
