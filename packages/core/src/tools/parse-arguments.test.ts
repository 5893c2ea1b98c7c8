import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseArguments } from './execute.ts';

describe('accepts valid JSON unchanged', () => {
  test.each([
    ['an object', '{"a":1}', { a: 1 }],
    ['white space around it', ' \n{"a":1}\t', { a: 1 }],
    ['escapes', String.raw`{"a":"\u0041\n\"\\"}`, { a: 'A\n"\\' }],
    ['a lone surrogate', String.raw`{"a":"\ud800"}`, { a: '\ud800' }],
    ['an empty object', '{}', {}],
    ['strings that contain the characters to repair', '{"a":",}","b":"```","c":",]"}', { a: ',}', b: '```', c: ',]' }],
  ])('%s', (_, text, value) => {
    expect(parseArguments(text, false)).toEqual({ type: 'parsed', value });
    expect(parseArguments(text, true)).toEqual({ type: 'parsed', value });
  });
});

describe('repairs only what is unambiguous', () => {
  test.each([
    ['no text at all', '', {}, '{}'],
    ['only white space', ' \n', {}, '{}'],
    ['a byte order mark', '\uFEFF{"a":1}', { a: 1 }, '{"a":1}'],
    ['a code fence', '```\n{"a":1}\n```', { a: 1 }, '{"a":1}'],
    ['a code fence with its language', '```json\n{"a":1}\n```', { a: 1 }, '{"a":1}'],
    ['a code fence on one line', '```json {"a":1}```', { a: 1 }, '{"a":1}'],
    ['a trailing comma in an object', '{"a":1,}', { a: 1 }, '{"a":1}'],
    ['a trailing comma in an array', '{"a":[1, 2 , \n]}', { a: [1, 2] }, '{"a":[1, 2  \n]}'],
    ['trailing commas at every depth', '{"a":[{"b":1,},],}', { a: [{ b: 1 }] }, '{"a":[{"b":1}]}'],
    ['a bare newline in a string', '{"a":"x\ny"}', { a: 'x\ny' }, String.raw`{"a":"x\ny"}`],
    [
      'bare control characters in a string',
      '{"a":"\t\u0000\u001f"}',
      { a: '\t\0\u001f' },
      String.raw`{"a":"\t\u0000\u001f"}`,
    ],
    [
      'a control character next to valid escapes',
      '{"a":",}\n","b":"\\"\n"}',
      { a: ',}\n', b: '"\n' },
      '{"a":",}\\n","b":"\\"\\n"}',
    ],
    ['all of them together', '\uFEFF```json\n{"a":"x\ny",}\n```', { a: 'x\ny' }, String.raw`{"a":"x\ny"}`],
  ])('%s', (_, text, value, repaired) => {
    expect(parseArguments(text, false)).toEqual({ type: 'parsed', value, repaired });
  });

  test('repairs nothing if the reply was cut off', () => {
    for (const text of ['', ' ', '{"a":1,}', '{"a":"x\ny"}', '```\n{"a":1}\n```', '\uFEFF{"a":1}']) {
      expect(parseArguments(text, true), text).toEqual({
        type: 'problem',
        problem: 'The reply was cut off in the middle of the call. Make the call shorter.',
      });
    }
  });
});

describe('rejects', () => {
  test.each([
    ['an open string', '{"a":"x'],
    ['an open object', '{"a":1'],
    ['an open object after a comma', '{"a":1,'],
    ['an open array', '{"a":[1,2'],
    ['a missing value', '{"a":}'],
    ['a missing colon', '{"a" 1}'],
    ['single quotes', "{'a':1}"],
    ['bare keys', '{a:1}'],
    ['comments', '{"a":1 /* one */}'],
    ['two objects', '{"a":1}{"b":2}'],
    ['prose around the object', 'Here you are: {"a":1}'],
    ['a lone comma', '{,}'],
    ['two commas', '{"a":1,,}'],
    ['NaN', '{"a":NaN}'],
    ['undefined', '{"a":undefined}'],
    ['an unknown escape', String.raw`{"a":"\x"}`],
    ['an empty code fence', '```json\n```'],
    ['a superfluous brace', '{"a":1}}'],
  ])('%s', (_, text) => {
    expect(parseArguments(text, false)).toEqual({
      type: 'problem',
      problem: expect.stringMatching(/^Its arguments are not valid JSON: .+\. Send them again in full\.$/s),
    });
    expect(parseArguments(text, true)).toMatchObject({ type: 'problem' });
  });

  test.each([
    ['null', 'null', 'null'],
    ['an array', '[1]', 'an array'],
    ['a text', '"{}"', 'a string'],
    ['a number', '7', 'a number'],
    ['a boolean', 'true', 'a boolean'],
    ['an array with a trailing comma', '[1,]', 'an array'],
  ])('%s, because it is not an object', (_, text, kind) => {
    expect(parseArguments(text, false)).toEqual({
      type: 'problem',
      problem: `Its arguments are ${kind}, and must be a JSON object.`,
    });
  });

  test('does not quote a large text in the problem', () => {
    const parsed = parseArguments(`{"a": ${'x'.repeat(1_000_000)}`, false);
    expect(JSON.stringify(parsed).length).toBeLessThan(500);
  });
});

test('treats __proto__ and constructor as ordinary keys', () => {
  const parsed = parseArguments('{"__proto__":{"admin":true},"constructor":1,}', false);
  if (parsed.type !== 'parsed') throw new Error(parsed.problem);
  expect(Object.keys(parsed.value as object)).toEqual(['__proto__', 'constructor']);
  expect((parsed.value as { admin?: unknown }).admin).toBeUndefined();
  expect(({} as { admin?: unknown }).admin).toBeUndefined();
});

// ── Properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Works around a bug of V8 13.6, which confuses a key ending in an escape with one ending in a backslash, also if that was parsed long
 * before, by another test.
 */
const keys = fc
  .oneof(fc.string({ unit: 'binary' }), fc.constantFrom('__proto__', ',}', '```', '"k', '\nk'))
  .filter((key) => JSON.stringify(key.at(-1) ?? '').length <= 3);
const { object: objects } = fc.letrec<{ value: unknown; object: Record<string, unknown> }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom(null, true, 0, -1.5e300),
    fc.string({ unit: 'binary' }),
    fc.constantFrom(',}', '```', '\\', '\\"', '\n'),
    fc.array(tie('value'), { maxLength: 3 }),
    tie('object'),
  ),
  object: fc.dictionary(keys, tie('value'), { maxKeys: 4 }),
}));

/** JSON with errors that models make: trailing commas and unescaped line breaks. */
function sloppyJson(value: unknown): string {
  if (typeof value === 'string')
    return JSON.stringify(value)
      .replaceAll(String.raw`\n`, '\n')
      .replaceAll('\\\n', String.raw`\\n`);
  if (Array.isArray(value)) return `[${value.map((one) => `${sloppyJson(one)}, `).join('')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{\n${Object.entries(value)
    .map(([key, one]) => `${sloppyJson(key)}: ${sloppyJson(one)},\n`)
    .join('')}}`;
}

const wrappings = [
  (text: string) => text,
  (text: string) => `\uFEFF${text}`,
  (text: string) => `\`\`\`json\n${text}\n\`\`\``,
];
const texts = fc
  .record({
    value: objects,
    write: fc.constantFrom(
      (value: unknown) => JSON.stringify(value),
      (value: unknown) => JSON.stringify(value, null, 2),
      sloppyJson,
    ),
    wrap: fc.constantFrom(...wrappings),
  })
  .map(({ value, write, wrap }) => ({ json: JSON.stringify(value), text: wrap(write(value)) }));

test('a repaired text is valid JSON with the intended value', () => {
  fc.assert(
    fc.property(texts, ({ json, text }) => {
      const parsed = parseArguments(text, false);
      if (parsed.type !== 'parsed') throw new Error(parsed.problem);
      expect(JSON.stringify(parsed.value)).toBe(json);
      if (parsed.repaired !== undefined) expect(JSON.stringify(JSON.parse(parsed.repaired))).toBe(json);
    }),
    { numRuns: 1_000 },
  );
});

test('never accepts a prefix of a text as the whole', () => {
  let refused = 0;
  fc.assert(
    fc.property(texts, fc.boolean(), ({ json, text }, cut) => {
      for (let length = 0; length < text.length; length++) {
        const prefix = text.slice(0, length);
        // An empty text means no arguments, so it is accepted.
        if (prefix.trim() === '' && !cut) continue;
        const parsed = parseArguments(prefix, cut);
        if (parsed.type === 'problem') refused++;
        else expect(JSON.stringify(parsed.value)).toBe(json);
      }
    }),
    { numRuns: 500 },
  );
  expect(refused).toBeGreaterThan(5_000);
});
