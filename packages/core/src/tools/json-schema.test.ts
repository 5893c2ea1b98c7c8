/* oxlint-disable unicorn/no-thenable -- `then` is a keyword of JSON Schema */
import { Validator } from '@cfworker/json-schema';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { JsonSchema } from '../model.ts';
import { matchRegExp, schemaCheck, type PatternMatcher } from './json-schema.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

function problemsOf(schema: JsonSchema, value: unknown, matches: PatternMatcher = matchRegExp): readonly string[] {
  return schemaCheck(schema)(value, matches);
}

// ── Patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────

describe('a pattern is matched by the matcher only', () => {
  const pattern = '^(a+)+$';
  const text = { pattern };
  const keys = { patternProperties: { [pattern]: false } };
  const hostile = `${'a'.repeat(60)}!`;

  test.each<[string, JsonSchema, unknown]>([
    ['pattern', text, hostile],
    ['properties', { properties: { x: text } }, { x: hostile }],
    ['items', { items: text }, [hostile]],
    ['$ref', { $ref: '#/$defs/x', $defs: { x: text } }, hostile],
    ['allOf', { allOf: [text] }, hostile],
    ['anyOf', { anyOf: [text] }, hostile],
    ['oneOf', { oneOf: [text] }, hostile],
    ['if', { if: { not: text }, then: false }, hostile],
    ['then', { if: true, then: text }, hostile],
    ['else', { if: false, else: text }, hostile],
    ['contains', { contains: text }, [hostile]],
    ['propertyNames', { propertyNames: text }, { [hostile]: 1 }],
    ['additionalProperties', { additionalProperties: text }, { x: hostile }],
    ['unevaluatedProperties', { unevaluatedProperties: text }, { x: hostile }],
    ['dependentSchemas', { dependentSchemas: { x: { properties: { x: text } } } }, { x: hostile }],
    ['prefixItems', { prefixItems: [text] }, [hostile]],
  ])('in %s', (_, schema, value) => {
    const asked: string[][] = [];
    const answer = (isMatch: boolean): readonly string[] =>
      problemsOf(schema, value, (...one) => {
        asked.push(one);
        return isMatch;
      });
    expect(answer(false)).not.toEqual([]);
    expect(answer(true)).toEqual([]);
    expect(asked).toEqual([
      [pattern, hostile],
      [pattern, hostile],
    ]);
  });

  test('in patternProperties', () => {
    expect(problemsOf(keys, { [hostile]: 1 }, () => true)).toEqual([`${hostile}: is not expected here`]);
    expect(problemsOf(keys, { [hostile]: 1 }, () => false)).toEqual([]);
    const closed = { patternProperties: { '^x': true }, additionalProperties: false };
    expect(problemsOf(closed, { x1: 1, y: 2 })).toEqual(['y: is not expected here']);
  });

  test('unless the text is too long', () => {
    const never = (): never => {
      throw new Error('not to be matched');
    };
    expect(problemsOf({ pattern, maxLength: 3 }, 'aaaa', never)).toEqual(['String is too long (4 > 3)']);
  });
});

// ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Each level of a naive check doubles its time. */
const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });

test.each<[string, JsonSchema, unknown]>([
  ['oneOf', { oneOf: [{ type: 'string' }, { properties: { a: { $ref: '#' } }, type: 'object' }] }, deep(60)],
  ['url', { not: { format: 'url' } }, `http://${'a'.repeat(60)}!`],
  ['uniqueItems', { uniqueItems: true, maxItems: 1 }, Array.from({ length: 60_000 }, (_, n) => ({ n }))],
])('a value is checked in linear time (%s)', (_, schema, value) => {
  expect(problemsOf(schema, value)).not.toEqual([]);
});

describe('a schema that references apply to a value exponentially often is checked as often as it has problems', () => {
  const LEVELS = 40;
  const nested = (wrap: (inner: unknown) => unknown): unknown => {
    let inner: unknown = 'x';
    for (let level = 0; level < LEVELS; level++) inner = wrap(inner);
    return inner;
  };
  const inObjects = nested((a) => ({ a }));
  const inLists = nested((item) => [item]);

  test.each<[string, (lower: JsonSchema) => JsonSchema, unknown]>([
    ['anyOf', (lower) => ({ anyOf: [lower, lower] }), 'x'],
    ['allOf', (lower) => ({ allOf: [lower, lower] }), 'x'],
    ['oneOf', (lower) => ({ oneOf: [lower, { not: lower }] }), 'x'],
    ['not', (lower) => ({ not: { anyOf: [lower, lower] } }), 'x'],
    ['if', (lower) => ({ if: lower, then: lower, else: lower }), 'x'],
    ['dependentSchemas', (lower) => ({ dependentSchemas: { a: lower, b: lower } }), { a: 'x', b: 'x' }],
    ['properties', (lower) => ({ properties: { a: lower }, patternProperties: { a: lower } }), inObjects],
    [
      'additionalProperties',
      (lower) => ({ allOf: [{ additionalProperties: lower }, { properties: { a: lower } }] }),
      inObjects,
    ],
    [
      'unevaluatedProperties',
      (lower) => ({ allOf: [lower], anyOf: [lower], unevaluatedProperties: lower }),
      { a: 'x' },
    ],
    ['items', (lower) => ({ allOf: [{ items: lower }, { prefixItems: [lower] }] }), inLists],
    ['contains', (lower) => ({ items: lower, contains: lower }), inLists],
    ['unevaluatedItems', (lower) => ({ allOf: [lower], anyOf: [lower], unevaluatedItems: lower }), ['x']],
    ['propertyNames', (lower) => ({ anyOf: [lower, lower], propertyNames: lower }), { x: 1 }],
    ['uniqueItems', (lower) => ({ anyOf: [lower, lower], uniqueItems: true }), ['x', 'y']],
  ])('%s', (_, level, value) => {
    const lowest = { pattern: '^x', properties: { a: { pattern: '^x' } }, items: { pattern: '^x' } };
    const $defs: Record<string, JsonSchema> = { d0: lowest };
    for (let n = 1; n <= LEVELS; n++) $defs[`d${n}`] = level({ $ref: `#/$defs/d${n - 1}` });
    for (const isMatch of [true, false]) {
      let matches = 0;
      problemsOf({ $ref: `#/$defs/d${LEVELS}`, $defs }, value, (pattern) => {
        matches++;
        return pattern === 'a' || isMatch;
      });
      expect(matches).toBeGreaterThan(0);
      expect(matches).toBeLessThan(3_000);
    }
  });
});

describe('the work of a check is limited, although schema and value are of ordinary size', () => {
  const names = Array.from({ length: 8_000 }, (_, n) => `name ${n}`);
  const list = (item: unknown, length = 1_000): unknown[] => Array<unknown>(length).fill(item);
  const needed = Object.fromEntries(names.map((name) => [name, ['other']]));

  test.each<[string, JsonSchema, unknown]>([
    ['enum', { items: { enum: names } }, list('no')],
    ['enum of objects', { items: { enum: names.map((name) => ({ name })) } }, list({ name: 'no' })],
    ['const', { allOf: list({ const: names }, 400) }, names],
    ['required', { items: { required: names } }, list({})],
    ['dependentRequired', { items: { dependentRequired: needed } }, list({})],
    ['patternProperties', { items: { patternProperties: needed } }, list({ a: 1 })],
    ['uniqueItems', { allOf: list({ uniqueItems: true }, 100) }, names.map((name) => ({ name }))],
    ['multipleOf', { items: { allOf: list({ multipleOf: 1e-300 }, 500) } }, list(1.1e300)],
    ['maxLength', { allOf: list({ maxLength: 1e9 }, 200) }, 'x'.repeat(1_000_000)],
    ['properties', { items: { allOf: list({}, 30) } }, list({ a: 1, b: 2, c: 3 }, 20_000)],
  ])('%s', (_, schema, value) => {
    expect(() => problemsOf(schema, value, () => false)).toThrow('too many steps');
  });

  test('and large values with ordinary schemas are checked to the end', () => {
    const numbers = Array.from({ length: 100_000 }, (_, n) => n + 0.5);
    expect(problemsOf({ items: { type: 'number', multipleOf: 0.5 }, uniqueItems: true }, numbers)).toEqual([]);
    const rows = list({ id: 1, name: 'x', tags: ['a', 'b'] }, 20_000);
    const row = { type: 'object', required: ['id', 'name'], properties: { id: { type: 'integer' }, name: {} } };
    expect(problemsOf({ type: 'array', items: { ...row, additionalProperties: { type: 'array' } } }, rows)).toEqual([]);
  });
});

test.each([
  [1.1e300, 1e-300, true],
  [1e300, 3e-300, false],
  [3e300, 3e-300, true],
  [1e-300, 1e300, false],
  [0, 1e300, true],
  [-0.3, 0.1, true],
  [1e22, 7, false],
  [7e22, 7, true],
  [9_007_199_254_740_991, 2, false],
  [4.5e-7, 1.5e-7, true],
])('%d is a multiple of %d: %s', (value, multipleOf, isMultiple) => {
  expect(problemsOf({ multipleOf }, value).length === 0).toBe(isMultiple);
});

// ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const names = fc.constantFrom('a', 'b', 'ab', '__proto__');
const scalar = fc.constantFrom<unknown>('a', 'ab', 'b', '', 0, 1, 1.5, 0.3, -2, null, true, false);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    scalar,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(names, tie('value'), { maxKeys: 3 }),
  ),
}));
const size = fc.nat({ max: 3 });
const { schema } = fc.letrec((tie) => {
  const sub = tie('schema');
  const list = fc.array(sub, { minLength: 1, maxLength: 2 });
  return {
    schema: fc.oneof(
      { depthSize: 'small', maxDepth: 3 },
      { weight: 1, arbitrary: fc.boolean() },
      { weight: 2, arbitrary: fc.record({ const: scalar }) },
      {
        weight: 6,
        arbitrary: fc
          .record(
            {
              type: fc.oneof(
                fc.constantFrom('string', 'number', 'integer', 'boolean', 'null', 'object', 'array'),
                fc.constant(['string', 'object']),
              ),
              enum: fc.array(scalar, { minLength: 1, maxLength: 3 }),
              $ref: fc.constantFrom('#/$defs/one', '#two'),
              not: sub,
              anyOf: list,
              allOf: list,
              oneOf: list,
              if: sub,
              then: sub,
              else: sub,
              required: fc.array(names, { maxLength: 2 }),
              properties: fc.dictionary(names, sub, { maxKeys: 2 }),
              patternProperties: fc.dictionary(fc.constantFrom('^a', 'b$', ''), sub, { maxKeys: 2 }),
              additionalProperties: sub,
              propertyNames: sub,
              minProperties: size,
              maxProperties: size,
              dependentRequired: fc.constant({ a: ['b'] }),
              dependentSchemas: fc.dictionary(names, sub, { maxKeys: 1 }),
              dependencies: fc.oneof(fc.constant({ b: ['a'] }), fc.dictionary(names, sub, { maxKeys: 1 })),
              prefixItems: list,
              items: sub,
              contains: sub,
              maxContains: size,
              minItems: size,
              maxItems: size,
              uniqueItems: fc.boolean(),
              minimum: size,
              maximum: size,
              exclusiveMinimum: size,
              exclusiveMaximum: size,
              multipleOf: fc.constantFrom(0.1, 1, 2),
              minLength: size,
              maxLength: size,
              pattern: fc.constantFrom('^a', 'b$'),
              format: fc.constantFrom('date', 'email', 'unknown', 'toString'),
              unevaluatedProperties: sub,
              unevaluatedItems: sub,
            },
            { requiredKeys: [] },
          )
          .chain((all) =>
            fc.subarray(Object.keys(all), { maxLength: 4 }).map((keys) => {
              return Object.fromEntries(Object.entries(all).filter(([key]) => keys.includes(key)));
            }),
          ),
      },
    ),
  };
});

test('values are valid exactly if the library @cfworker/json-schema finds them valid', () => {
  const defs = { one: { type: ['string', 'object'] }, two: { $anchor: 'two', not: { enum: [1, 'a'] } } };
  const valid = { true: 0, false: 0 };
  fc.assert(
    fc.property(schema, value, (some, given) => {
      const whole = JSON.parse(JSON.stringify({ allOf: [some], $defs: defs })) as JsonSchema;
      const json = JSON.parse(JSON.stringify(given)) as unknown;
      const expected = new Validator(structuredClone(whole), '2020-12', false).validate(json).valid;
      expect(problemsOf(whole, json).length === 0).toBe(expected);
      valid[`${expected}`]++;
    }),
    { numRuns: 200 * CASES },
  );
  expect(Math.min(valid.true, valid.false)).toBeGreaterThan(50);
});

test('a schema that was applied to a value before evaluates its members again', () => {
  const known = { $ref: '#/$defs/known' };
  const $defs = { known: { properties: { a: true } } };
  const whole = { not: { not: known }, allOf: [known], unevaluatedProperties: false, $defs };
  expect(problemsOf(whole, { a: 1 })).toEqual([]);
  expect(problemsOf(whole, { a: 1, b: 2 })).toEqual(['b: is not expected here']);
});

/** The schema with a copy of its own for each reference, so that nothing is known about a value when it is checked again. */
function unshared(whole: JsonSchema): JsonSchema {
  const copies: Record<string, unknown> = {};
  const definitions = whole['$defs'] as Readonly<Record<string, JsonSchema>>;
  const copy = (part: unknown): unknown => {
    if (Array.isArray(part)) return part.map(copy);
    if (typeof part !== 'object' || part === null) return part;
    const entries = Object.entries(part).map(([key, one]): [string, unknown] => {
      if (key !== '$ref') return [key, copy(one)];
      const { $anchor: _, ...named } = definitions[one === '#two' ? 'two' : 'one']!;
      const name = `copy ${Object.keys(copies).length}`;
      copies[name] = true;
      copies[name] = copy(named);
      return [key, `#/$defs/${encodeURIComponent(name)}`];
    });
    return Object.fromEntries(entries);
  };
  const { $defs: _, ...rest } = whole;
  return { ...(copy(rest) as JsonSchema), $defs: copies };
}

test('a value has the same problems whether or not its schema shares what references name', () => {
  const withoutReferences = (part: unknown): unknown =>
    JSON.parse(JSON.stringify(part, (key, one: unknown) => (key === '$ref' ? undefined : one)));
  const onlyToTwo = (part: unknown): unknown =>
    JSON.parse(JSON.stringify(part, (key, one: unknown) => (key === '$ref' ? '#two' : one)));
  const object = (part: unknown): object => (typeof part === 'object' ? part! : { not: { const: 1 } });
  const found = { valid: 0, invalid: 0 };
  fc.assert(
    fc.property(schema, schema, schema, value, (some, one, two, given) => {
      const $defs = { one: onlyToTwo(one), two: { $anchor: 'two', ...object(withoutReferences(two)) } };
      const twice = {
        allOf: [some, { $ref: '#/$defs/one' }],
        anyOf: [some, { $ref: '#two' }, { $ref: '#/$defs/one' }],
      };
      const whole = JSON.parse(JSON.stringify({ ...twice, $defs: { ...$defs, one: object($defs.one) } })) as JsonSchema;
      const json = JSON.parse(JSON.stringify(given)) as unknown;
      const problems = problemsOf(unshared(whole), json);
      expect(problemsOf(whole, json)).toEqual(problems);
      found[problems.length === 0 ? 'valid' : 'invalid']++;
    }),
    { numRuns: 100 * CASES },
  );
  expect(Math.min(found.valid, found.invalid)).toBeGreaterThan(30);
});
