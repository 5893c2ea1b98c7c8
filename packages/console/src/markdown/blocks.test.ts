import { expect, test } from 'vitest';
import { blockReader, type Blocks } from './blocks.ts';

const TEXT = `# Title

A paragraph with **bold** text
over two lines.

- one

  still one
- two

\`\`\`ts
const a = 1;

const b = 2;
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

Heading
-------

The end.`;

const typesOf = ({ groups, tail }: Blocks): string[] => [...groups.flat(), ...tail].map(({ type }) => type);
const rawOf = ({ groups, tail }: Blocks): string => [...groups.flat(), ...tail].map(({ raw }) => raw.trim()).join('\n');

test('a text that grows by any steps has the same blocks as the whole text', () => {
  const whole = blockReader()(TEXT);
  expect(typesOf(whole)).toEqual(['heading', 'paragraph', 'list', 'code', 'table', 'heading', 'paragraph']);
  for (const step of [1, 2, 3, 7, 20]) {
    const read = blockReader();
    let grown: Blocks | undefined;
    for (let end = 0; end < TEXT.length + step; end += step) grown = read(TEXT.slice(0, end));
    expect(typesOf(grown!)).toEqual(typesOf(whole));
    expect(rawOf(grown!)).toBe(rawOf(whole));
  }
});

test('blocks that cannot change are the same objects, also in groups, and another text begins again', () => {
  const read = blockReader();
  const long = Array.from({ length: 40 }, (_, index) => `Paragraph ${index}.`).join('\n\n');
  const first = read(long);
  expect(first.groups.map(({ length }) => length)).toEqual([32]);
  expect(first.tail).toHaveLength(8);
  const second = read(`${long} More.\n\nAnd more.`);
  expect(second.groups[0]).toBe(first.groups[0]);
  expect(second.tail[0]).toBe(first.tail[0]);
  expect(second.tail.at(-2)!.raw).toContain('Paragraph 39. More.');
  expect(typesOf(read('- other'))).toEqual(['list']);
});

test('a text that is nested too deeply to be read is one block of text', () => {
  const read = blockReader();
  read('Before.\n\n');
  const { tail } = read(`Before.\n\n${'>'.repeat(50_000)}`);
  expect(tail.map(({ type }) => type)).toEqual(['text']);
  expect(rawOf({ groups: [], tail })).toContain('Before.');
});
