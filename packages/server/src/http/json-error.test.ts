import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { jsonErrorAt, lineAndColumn } from './json-error.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/** The position in the error of `JSON.parse`, if it has one. */
function platform(text: string): { readonly valid: boolean; readonly at?: number } {
  try {
    JSON.parse(text);
    return { valid: true };
  } catch (error) {
    const at = / at position (\d+)/.exec(String(error))?.[1];
    return { valid: false, ...(at !== undefined && { at: Number(at) }) };
  }
}

describe('the position of a JSON error', () => {
  test.each([
    ['', 0],
    ['x', 0],
    ['{"a": abc}', 6],
    ['[1,]', 3],
    ['{"a":1,}', 7],
    ['{,}', 1],
    ['tru', 3],
    ['nul]', 3],
    ['-', 1],
    ['1.', 2],
    ['1e+', 3],
    ['01', 1],
    ['"\\x"', 2],
    ['"\\u12g4"', 5],
    ['"a\nb"', 2],
    ['"a', 2],
    ['[1] x', 4],
    ['[1}', 2],
    ['{"a":[{"b":}]}', 11],
    ["{'a':1}", 1],
    ['\uFEFF{}', 0],
    ['[1,\u00a02]', 3],
  ])('%j: %i', (text, at) => {
    expect(jsonErrorAt(text)).toBe(at);
  });

  test('exists exactly for texts that JSON.parse rejects, and equals its position', () => {
    const pieces = [...'{}[],:"\\ -+.eE019truefalsn\n\t/ux', '""', 'null', 'true', '"a":', '12', '{"', '\\u00e9'];
    const mess = fc.array(fc.constantFrom(...pieces), { maxLength: 14 }).map((chars) => chars.join(''));
    const damaged = fc
      .tuple(fc.json({ maxDepth: 4 }), fc.nat(), fc.constantFrom('', ...pieces), fc.nat(2))
      .map(
        ([text, at, piece, cut]) =>
          text.slice(0, at % (text.length + 1)) + piece + text.slice((at % (text.length + 1)) + cut),
      );
    fc.assert(
      fc.property(fc.oneof(mess, damaged), (text) => {
        const found = jsonErrorAt(text);
        const { valid, at } = platform(text);
        expect(found === undefined).toBe(valid);
        if (at !== undefined) expect(found).toBe(at);
      }),
      { numRuns: 7_000 * CASES },
    );
  });

  test('is found in long and deeply nested texts', () => {
    expect(jsonErrorAt(`"${'\\n'.repeat(1_000_000)}`)).toBe(2_000_001);
    expect(jsonErrorAt('['.repeat(1_000_000))).toBe(1_000_000);
  });
});

test.each([
  ['abc', 0, 'line 1, column 1'],
  ['a\nbc\n\nd', 3, 'line 2, column 2'],
  ['a\nbc\n\nd', 6, 'line 4, column 1'],
  ['a\n', 2, 'line 2, column 1'],
  ['a\n', 1, 'line 1, column 2'],
])('in %j, %i is %s', (text, at, place) => {
  expect(lineAndColumn(text, at)).toBe(place);
});
