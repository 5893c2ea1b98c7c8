import { expect, test } from 'vitest';
import { mcpError, mcpErrorText } from './wire.ts';

test.each([
  [undefined, null],
  [null, null],
  ['broken', 'broken'],
  [mcpError('broken'), 'broken'],
  [{ content: [{ text: 'one' }, null, 7, {}, { text: 'two' }] }, 'one\ntwo'],
  [{ content: 'else' }, '{"content":"else"}'],
  [[], '[]'],
])('the text of the error %j is %j', (error, text) => {
  expect(mcpErrorText(error)).toBe(text);
});
