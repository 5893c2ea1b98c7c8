import { describe, expect, test } from 'vitest';
import { markdownStream } from './markdown-stream.ts';
import { lineColumns, lineText } from './spans.ts';

const OPTIONS = { width: 40 };

/** The lines of a text that arrives in pieces of a size. */
function shown(text: string, size: number, width = 40): readonly string[] {
  const stream = markdownStream();
  const lines = [];
  for (let at = 0; at < text.length; at += size) {
    lines.push(...stream.add(text.slice(at, at + size), { width }));
    // Reading the tail changes nothing.
    stream.tail({ width });
  }
  lines.push(...stream.end({ width }));
  for (const line of lines) expect(lineColumns(line)).toBeLessThanOrEqual(width);
  return lines.map(lineText);
}

const numbered = (count: number, line: (index: number) => string): string[] =>
  Array.from({ length: count }, (_, index) => line(index));

test.each([1, 2, 7, 1_000])('blocks have one blank line between them, in pieces of %d', (size) => {
  const text = '# One\n\n\n\ntwo\nthree\n\n- a\n\n- b\n\n---\n\n> q\n\n1. x\n2. y\n   - z\n\nend';
  expect(shown(text, size)).toEqual([
    'One',
    '',
    'two',
    'three',
    '',
    '• a',
    '',
    '• b',
    '',
    '─'.repeat(40),
    '',
    '│ q',
    '',
    '1. x',
    '2. y',
    '   • z',
    '',
    'end',
  ]);
});

describe.each([1, 13, 100_000])('in pieces of %d, a long block is whole and in order', (size) => {
  test('of code', () => {
    const lines = numbered(100, (index) => `line ${index}`);
    expect(shown(`\`\`\`js\n${lines.join('\n')}\n\`\`\`\n\nafter`, size)).toEqual([
      ...lines.map((line) => `  ${line}`),
      '',
      'after',
    ]);
  });

  test('of a list', () => {
    const items = numbered(100, (index) => `item ${index}`);
    expect(shown(`${items.map((item) => `- ${item}\n`).join('')}\nafter`, size)).toEqual([
      ...items.map((item) => `• ${item}`),
      '',
      'after',
    ]);
  });

  test('of a table', () => {
    const rows = numbered(50, (index) => `| ${String(index).padStart(3)} | x |`);
    const lines = shown(`| abc | b |\n|---|---|\n${rows.join('\n')}\n\nafter`, size);
    expect(lines.map((line) => line.replaceAll(' ', ''))).toEqual([
      'abc│b',
      '────┼──',
      ...numbered(50, (index) => `${index}│x`),
      '',
      'after',
    ]);
  });

  test('of text without line breaks', () => {
    const words = numbered(1_000, (index) => `word${index}`);
    expect(
      shown(`${words.join(' ')}\n\nafter`, size)
        .join(' ')
        .split(/ +/),
    ).toEqual([...words, 'after']);
  });
});

test.each([1, 13])('a long paragraph is settled in full rows while it arrives, in pieces of %d', (size) => {
  const words = numbered(200, (index) => (index % 7 === 0 ? `**bold ${index}**` : `\`word\` ${index}`));
  const text = words.join(' ');
  const stream = markdownStream();
  const lines = [];
  let most = 0;
  for (let at = 0; at < text.length; at += size) {
    lines.push(...stream.add(text.slice(at, at + size), OPTIONS));
    most = Math.max(most, stream.tail(OPTIONS).length);
  }
  expect(most).toBeLessThan(10);
  lines.push(...stream.end(OPTIONS));
  const whole = markdownStream();
  expect(lines).toEqual([...whole.add(text, OPTIONS), ...whole.end(OPTIONS)]);
});

test.each([
  ['Chinese', '漢字かな'.repeat(200)],
  ['one word', 'x'.repeat(800)],
])('so is a paragraph without spaces: %s', (_, text) => {
  const stream = markdownStream();
  const lines = [];
  let most = 0;
  for (const char of text) {
    lines.push(...stream.add(char, OPTIONS));
    most = Math.max(most, stream.tail(OPTIONS).length);
  }
  expect(most).toBeLessThan(14);
  lines.push(...stream.end(OPTIONS));
  const whole = markdownStream();
  expect(lines).toEqual([...whole.add(text, OPTIONS), ...whole.end(OPTIONS)]);
});

test('a line that cannot be settled does not grow without an end, and loses nothing', () => {
  const text = '[😀'.repeat(10_000);
  const stream = markdownStream();
  const lines = [];
  for (let at = 0; at < text.length; at += 1_000) lines.push(...stream.add(text.slice(at, at + 1_000), OPTIONS));
  expect(stream.tail(OPTIONS).map(lineText).join('').length).toBeLessThan(10_000);
  expect([...lines, ...stream.end(OPTIONS)].map(lineText).join('')).toBe(text);
});

test.each([
  ['a style', '**', '**'],
  ['a link', '[', '](http://x.example/)'],
])('%s over many rows is whole', (_, before, after) => {
  const text = `${before}${numbered(40, (index) => `word${index}`).join(' ')}${after} end`;
  expect(shown(text, 3).join(' ')).toEqual(shown(text, 10_000).join(' '));
});

test('the tail is what may still change', () => {
  const stream = markdownStream();
  expect(stream.add('one\n\ntw', OPTIONS).map(lineText)).toEqual(['one']);
  expect(stream.tail(OPTIONS).map(lineText)).toEqual(['', 'tw']);
  expect(stream.add('o **b', OPTIONS)).toEqual([]);
  expect(stream.tail(OPTIONS).map(lineText)).toEqual(['', 'two **b']);
  stream.add('**', OPTIONS);
  expect(stream.end(OPTIONS)).toEqual([[], [{ text: 'two ' }, { text: 'b', styles: ['bold'] }]]);
});

test('text of the model has no control characters', () => {
  expect(shown('a\u001b[31mb `c\u0007` \u202e', 3).join('')).toBe('a\\u001b[31mb c\\u0007 \\u202e');
});

test('a width of one column is possible', () => {
  expect(shown('ab\n\n- c\n\n```\nd\n```', 5, 8).join('')).toContain('ab');
});
