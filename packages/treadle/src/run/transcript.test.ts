import type { Item, ToolCall } from '@treadle/core';
import { expect, test } from 'vitest';
import { coloursFor } from '../terminal/colours.ts';
import { callLines, transcript } from './transcript.ts';

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

test('a final newline is not a line', () => {
  expect(lines([answered(call('1', 'a'), 'one\n'), answered(call('2', 'b'), 'one\ntwo\n')])).toEqual([
    '#1 read {"path":"a"}',
    '#1 returned: one',
    '#2 read {"path":"b"}',
    '#2 returned 2 lines: one',
  ]);
});

test('a call that starts again with an answer is written once', () => {
  const asking = call('1', 'a');
  expect(lines([started(asking), started(asking), answered(asking, 'one')])).toEqual([
    '#1 read {"path":"a"}',
    '#1 returned: one',
  ]);
});

test('the calls of a task have the number of the task', () => {
  const task: ToolCall = { ...call('1', 'a'), name: 'task', arguments: '{}' };
  const report = (progress: unknown): Item => ({ type: 'tool-report', call: task, progress });
  const inner = call('1', 'b');
  expect(lines([started(task), report(started(inner)), report(answered(inner, 'in')), answered(task, 'out')])).toEqual([
    '#1 task {}',
    '#1.1 read {"path":"b"}',
    '#1.1 returned: in',
    '#1 returned: out',
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

const replied = (text: string, ...calls: readonly ToolCall[]): Item => ({
  type: 'fact',
  seq: 0,
  event: { type: 'model-replied', content: [{ type: 'text', text }, ...calls] } as never,
});
const text = (part: string): Item => ({ type: 'text-delta', text: part });

/** Everything that is written, and the status in brackets. */
function shown(items: readonly Item[], { live }: { live: boolean }): { written: string; lastText: string | undefined } {
  let written = '';
  const add = (more: string): void => void (written += more);
  const status = {
    show: (what: string) => add(`[${what}]`),
    detail: (line: string) => add(`[..${line}]`),
    clear: () => {},
    hide: () => add('[]'),
  };
  const { onItem, lastText } = transcript({
    ...(live && { writeText: add }),
    writeLine: (line) => add(`${line}\n`),
    colours: coloursFor({}, {}),
    width: 40,
    status,
  });
  for (const item of items) onItem(item);
  return { written, lastText: lastText() };
}

const TURN: Item = { type: 'turn-started', turn: 1 };
const LOOK: readonly Item[] = [
  TURN,
  text('Let me '),
  text('look.'),
  { type: 'call-delta', call: 0, name: 'read', arguments: '' },
  replied('Let me look.', call('1', 'a')),
  started(call('1', 'a')),
  { type: 'tool-report', call: call('1', 'a'), progress: 'one\ntwo\n' },
  answered(call('1', 'a'), 'one'),
];
const CALL_LINES = '#1 read {"path":"a"}\n[read][..two]#1 returned: one\n[]';

test('writes text as it arrives, with a status that never shares its line', () => {
  const answer = [TURN, text('It is'), text(' one.'), replied('It is one.')];
  expect(shown([...LOOK, ...answer], { live: true })).toEqual({
    written: `[model][]Let me []look.\n[model, calling read][]${CALL_LINES}[model][]It is[] one.\n[]`,
    lastText: 'It is one.',
  });
});

test('without live text, writes the text before calls and not the answer', () => {
  expect(shown(LOOK, { live: false })).toEqual({
    written: `[model][model, calling read]Let me look.\n[]${CALL_LINES}`,
    lastText: 'Let me look.',
  });
  const answer = [TURN, text('It is one.'), replied('It is one.')];
  expect(shown(answer, { live: false })).toEqual({ written: '[model][]', lastText: undefined });
});

test('ends the line of a reply that failed', () => {
  const failed: Item = { type: 'fact', seq: 0, event: { type: 'model-failed' } as never };
  expect(shown([text('It i'), failed, text('It is.'), replied('It is.')], { live: true }).written).toBe(
    '[]It i\n[][]It is.\n[]',
  );
});
