import { expect, it } from 'vitest';
import { keyLines, lineOf } from './key-lines.ts';

const TEXT = `# a comment
[skill]
name = "x"

[[tools]]
name = "a"
touches = [
  { type = "read", path = "{path}" },
]
[tools.parameters.properties.path]
type = "string"
description = """
[not.a.header]
name = "no key"
"""

[[tools]]
name = "b"
platforms.linux-arm64 = "bin/b"
`;

it('finds the line of each key, in lists of tables, inline tables and dotted keys', () => {
  const lines = keyLines(TEXT);
  const at = (path: string): number | undefined => lineOf(lines, `${path} is wrong`);
  expect(at('skill.name')).toBe(3);
  expect(at('tools[0].name')).toBe(6);
  expect(at('tools[0].touches[0].path')).toBe(7);
  expect(at('tools[0].parameters.properties.path.type')).toBe(11);
  expect(at('tools[0].parameters.properties.path.description')).toBe(12);
  expect(at('tools[1].name')).toBe(18);
  expect(at('tools[1].platforms.linux-arm64')).toBe(19);
});

it('finds the nearest table for a key that is missing', () => {
  const lines = keyLines(TEXT);
  expect(lineOf(lines, 'tools[1].description is missing')).toBe(17);
  expect(lineOf(lines, 'tools[0].parameters.required is wrong')).toBe(10);
  expect(lineOf(lines, 'nothing.of.this')).toBeUndefined();
});

it('does not take a key for another one that begins with its name', () => {
  const lines = keyLines('name = "a"\nname-too = "b"\nlist = [1]\n');
  expect(lineOf(lines, 'name-too is wrong')).toBe(2);
  expect(lineOf(lines, 'list[0] is wrong')).toBe(3);
});

it('gives up on a statement without an end, and keeps what it has found', () => {
  const lines = keyLines(`a = 1\nb = """\n${'x\n'.repeat(500)}"""\nc = 2\n`);
  expect([...lines]).toEqual([['a', 1]]);
});
