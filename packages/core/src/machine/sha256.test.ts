import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sha256 } from './sha256.ts';

function reference(text: string): string {
  return createHash('sha256').update(text, 'utf8').digest('hex');
}

describe('sha256', () => {
  test('returns the digests that FIPS 180-4 lists for "" and "abc"', () => {
    expect(sha256('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
    expect(sha256('abc')).toBe('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
  });

  test('equals the digest of node:crypto for every length up to 200 bytes', () => {
    for (let length = 0; length <= 200; length++) {
      const text = Array.from({ length }, (_, index) => String.fromCharCode(32 + ((index * 7 + length) % 95))).join('');
      expect(sha256(text), String(length)).toBe(reference(text));
    }
  });

  test('equals the digest of node:crypto for a megabyte of text', () => {
    const text = 'treadle·'.repeat(120_000);
    expect(sha256(text)).toBe(reference(text));
  });

  test('equals the digest of node:crypto for any text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        expect(sha256(text)).toBe(reference(text));
      }),
      { numRuns: 1_000 },
    );
  });
});
