import type { Item, ToolCall } from '@treadle/core';
import { expect, test } from 'vitest';
import { coloursFor } from '../terminal/colours.ts';
import { callLines } from './transcript.ts';

const call = (id: string, path: string): ToolCall => ({
  type: 'tool-call',
  id,
  name: 'read',
  arguments: `{"path":"${path}"}`,
});
const started = (of: ToolCall): Item => ({ type: 'call-started', index: 0, call: of });
const answered = (of: ToolCall, text: string, isError = false): Item => ({
  type: 'call-answered',
  index: 0,
  call: of,
  result: {
    type: 'tool-result',
    callId: of.id,
    name: of.name,
    content: [{ type: isError ? 'error' : 'text', text }],
    isError,
  },
});

function lines(items: readonly Item[], isTTY = false, width = 40): string[] {
  const written: string[] = [];
  const show = callLines({ write: (line) => written.push(line), colours: coloursFor({ isTTY }, {}), width });
  for (const item of items) show(item);
  return written;
}

test('numbers parallel calls', () => {
  const [a, b] = [call('1', 'a'), call('2', 'b')];
  expect(lines([started(a), started(b), answered(b, 'two\nlines'), answered(a, 'one')])).toEqual([
    '#1 read {"path":"a"}',
    '#2 read {"path":"b"}',
    '#2 returned 2 lines: two',
    '#1 returned: one',
  ]);
});

test('writes both lines for a call that was not started', () => {
  expect(lines([answered(call('1', 'a'), 'not allowed', true)])).toEqual([
    '#1 read {"path":"a"}',
    '#1 error: not allowed',
  ]);
});

test('shortens lines and escapes control sequences', () => {
  const long = call('1', 'x'.repeat(100));
  const shown = lines([started(long), answered(long, `\u001b[2J${'y'.repeat(100)}`)]);
  expect(shown).toEqual([
    expect.stringMatching(/^#1 read \{"path":"x+…$/),
    expect.stringMatching(/^#1 returned: \\u001b\[2Jy+…$/),
  ]);
  for (const line of shown) expect(line).toHaveLength(40);
});

test('uses colours only on a terminal and without NO_COLOR', () => {
  expect(lines([answered(call('1', 'a'), 'no', true)], true)).toEqual([
    '\u001b[2m#1 read {"path":"a"}\u001b[22m',
    '\u001b[31m#1 error: no\u001b[39m',
  ]);
  expect(coloursFor({ isTTY: true }, { NO_COLOR: '1' }).red('x')).toBe('x');
  expect(coloursFor({ isTTY: true }, { NO_COLOR: '' }).red('x')).toBe('\u001b[31mx\u001b[39m');
  expect(coloursFor({}, {}).dim('x')).toBe('x');
});
