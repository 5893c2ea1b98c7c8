import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseArguments } from './execute.ts';

describe('what is JSON is taken as it is', () => {
  test.each([
    ['an object', '{"a":1}', { a: 1 }],
    ['white space around it', ' \n{"a":1}\t', { a: 1 }],
    ['escapes', String.raw`{"a":"\u0041\n\"\\"}`, { a: 'A\n"\\' }],
    ['a lone surrogate', String.raw`{"a":"\ud800"}`, { a: '\ud800' }],
    ['an empty object', '{}', {}],
    ['what looks like a mistake inside a string', '{"a":",}","b":"```","c":",]"}', { a: ',}', b: '```', c: ',]' }],
  ])('%s', (_, text, value) => {
    expect(parseArguments(text, false)).toEqual({ type: 'parsed', value });
    expect(parseArguments(text, true)).toEqual({ type: 'parsed', value });
  });
});

describe('repairs that guess nothing', () => {
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
      'a control character beside what is right',
      '{"a":",}\n","b":"\\"\n"}',
      { a: ',}\n', b: '"\n' },
      '{"a":",}\\n","b":"\\"\\n"}',
    ],
    ['all of it at once', '\uFEFF```json\n{"a":"x\ny",}\n```', { a: 'x\ny' }, String.raw`{"a":"x\ny"}`],
  ])('%s', (_, text, value, repaired) => {
    expect(parseArguments(text, false)).toEqual({ type: 'parsed', value, repaired });
  });

  test('there is none after the reply was cut off', () => {
    for (const text of ['', ' ', '{"a":1,}', '{"a":"x\ny"}', '```\n{"a":1}\n```', '\uFEFF{"a":1}']) {
      expect(parseArguments(text, true), text).toEqual({
        type: 'problem',
        problem: 'The reply was cut off in the middle of the call. Make the call shorter.',
      });
    }
  });
});

describe('refusals', () => {
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
    ['words around it', 'Here you are: {"a":1}'],
    ['a lone comma', '{,}'],
    ['two commas', '{"a":1,,}'],
    ['NaN', '{"a":NaN}'],
    ['undefined', '{"a":undefined}'],
    ['an escape that does not exist', String.raw`{"a":"\x"}`],
    ['a fence with nothing in it', '```json\n```'],
    ['a brace too many', '{"a":1}}'],
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
    ['a truth', 'true', 'a boolean'],
    ['an array with a trailing comma', '[1,]', 'an array'],
  ])('%s is no object', (_, text, kind) => {
    expect(parseArguments(text, false)).toEqual({
      type: 'problem',
      problem: `Its arguments are ${kind}, and must be a JSON object.`,
    });
  });

  test('the problem does not repeat a large text', () => {
    const parsed = parseArguments(`{"a": ${'x'.repeat(1_000_000)}`, false);
    expect(JSON.stringify(parsed).length).toBeLessThan(500);
  });
});

test('keys that mean something to JavaScript are keys like any other', () => {
  const parsed = parseArguments('{"__proto__":{"admin":true},"constructor":1,}', false);
  if (parsed.type !== 'parsed') throw new Error(parsed.problem);
  expect(Object.keys(parsed.value as object)).toEqual(['__proto__', 'constructor']);
  expect((parsed.value as { admin?: unknown }).admin).toBeUndefined();
  expect(({} as { admin?: unknown }).admin).toBeUndefined();
});

// ── Properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

/** V8 13.6 takes a key that ends in an escape for one that ends in a backslash, once it has read that: so none does. */
const keys = fc
  .oneof(fc.string({ unit: 'binary' }), fc.constantFrom('__proto__', ',}', '```', '"', '\n'))
  .filter((key) => !key.endsWith('\\'));
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

/** As models write it when they are careless: commas too many, line breaks as they are. */
function carelessly(value: unknown): string {
  if (typeof value === 'string')
    return JSON.stringify(value)
      .replaceAll(String.raw`\n`, '\n')
      .replaceAll('\\\n', String.raw`\\n`);
  if (Array.isArray(value)) return `[${value.map((one) => `${carelessly(one)}, `).join('')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{\n${Object.entries(value)
    .map(([key, one]) => `${carelessly(key)}: ${carelessly(one)},\n`)
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
      carelessly,
    ),
    wrap: fc.constantFrom(...wrappings),
  })
  .map(({ value, write, wrap }) => ({ json: JSON.stringify(value), text: wrap(write(value)) }));

test('whatever repair does, it reads what was meant, and gives it as JSON', () => {
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

test('the beginning of a text is never taken for the whole of it', () => {
  let refused = 0;
  fc.assert(
    fc.property(texts, fc.boolean(), ({ json, text }, cut) => {
      for (let length = 0; length < text.length; length++) {
        const prefix = text.slice(0, length);
        // Models leave arguments out when there are none; that is not the beginning of something.
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
