import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { emptyHistory, hashTexts } from './history.ts';
import { sha256 } from './sha256.ts';

function reference(text: string): string {
  return createHash('sha256').update(text, 'utf8').digest('hex');
}

describe('sha256 is what everybody else calls by that name', () => {
  test('of nothing and of "abc", as FIPS 180-4 has it', () => {
    expect(sha256('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
    expect(sha256('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });

  test('of every length up to 200 bytes', () => {
    for (let length = 0; length <= 200; length++) {
      const text = Array.from({ length }, (_, index) => String.fromCharCode(32 + ((index * 7 + length) % 95))).join('');
      expect(sha256(text), String(length)).toBe(reference(text));
    }
  });

  test('of a megabyte', () => {
    const text = 'treadle·'.repeat(120_000);
    expect(sha256(text)).toBe(reference(text));
  });

  test('of any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        expect(sha256(text)).toBe(reference(text));
      }),
      { numRuns: 1_000 },
    );
  });
});

function digest(...pieces: string[]): number {
  return hashTexts(emptyHistory().rolling, pieces);
}

describe('the rolling digest', () => {
  test('is a number that JSON keeps', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), (pieces) => {
        const made = digest(...pieces);
        expect(Number.isSafeInteger(made) && made >= 0).toBe(true);
        expect(JSON.parse(JSON.stringify(made))).toBe(made);
      }),
    );
  });

  test('goes on where it stopped', () => {
    const half = hashTexts(emptyHistory().rolling, ['one']);
    expect(hashTexts(half, ['two'])).toBe(digest('one', 'two'));
    expect(half).toBe(digest('one'));
  });

  test('differs when any character does, wherever it stands', () => {
    const text = 'the quick brown fox jumps over the lazy dog '.repeat(20);
    const seen = new Set([digest(text)]);
    for (let at = 0; at < text.length; at++) {
      for (const other of ['X', '\0', '\uffff', 'é']) seen.add(digest(text.slice(0, at) + other + text.slice(at + 1)));
    }
    expect(seen.size).toBe(1 + text.length * 4);
  });

  test('differs when something is left out, doubled, swapped or moved', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 2, unit: 'binary' }), fc.nat(), (text, seed) => {
        const at = seed % (text.length - 1);
        const [a, b] = [text[at]!, text[at + 1]!];
        const changed = [
          text.slice(0, at) + text.slice(at + 1),
          text.slice(0, at) + a + text.slice(at),
          `${text}\0`,
          `\0${text}`,
          ...(a === b ? [] : [text.slice(0, at) + b + a + text.slice(at + 2)]),
        ];
        for (const other of changed) expect(digest(other)).not.toBe(digest(text));
      }),
      { numRuns: 1_000 },
    );
  });

  test('differs when the same words are divided otherwise', () => {
    const ways = [['ab', 'c'], ['a', 'bc'], ['abc'], ['abc', ''], ['', 'abc'], ['a', 'b', 'c'], ['', '', 'abc']];
    expect(new Set(ways.map((pieces) => digest(...pieces))).size).toBe(ways.length);
  });

  test('has no two alike among many that are', () => {
    const seen = new Set<number>();
    for (let index = 0; index < 200_000; index++) seen.add(digest(`call_${index}`));
    expect(seen.size).toBe(200_000);
  });
});
