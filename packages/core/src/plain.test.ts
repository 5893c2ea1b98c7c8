import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { copyOf } from './plain.ts';

describe('a copy', () => {
  test('equals a structured clone, for any JSON', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(copyOf(value)).toStrictEqual(structuredClone(value));
      }),
    );
  });

  test('shares nothing with the value', () => {
    const value = { list: [{ a: 1 }], when: new Date(0), bytes: new Uint8Array([1]), none: undefined };
    const copy = copyOf(value);
    expect(copy).toStrictEqual(value);
    expect(copy.list[0]).not.toBe(value.list[0]);
    expect(copy.when).not.toBe(value.when);
    expect(copy.bytes).not.toBe(value.bytes);
  });

  test('keeps the name __proto__ as a field', () => {
    const copy = copyOf(JSON.parse('{"__proto__":{"a":1}}') as object);
    expect(JSON.stringify(copy)).toBe('{"__proto__":{"a":1}}');
    expect('a' in copy).toBe(false);
  });

  test.each([() => {}, { f() {} }, [Symbol('s')]])('of what cannot be copied is refused: %o', (value) => {
    expect(() => copyOf(value)).toThrow('could not be cloned');
  });
});
