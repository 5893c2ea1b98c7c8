/* oxlint-disable unicorn/no-thenable -- thenables are the subject here */
import { Validator } from '@cfworker/json-schema';
import { toJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import fc from 'fast-check';
import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { JsonSchema } from '../model.ts';
import { nextLoopTurn } from '../platform.ts';
import { plainCheck, validate, type Schema, type StandardSchema } from './schema.ts';

const GOOD = { city: 'Oslo', days: 3, stops: [{ at: 'noon' }] };
const BAD = { city: 7, days: 'three', stops: [{ at: 'noon' }, { at: null }] };

const valibotTrip = v.object({ city: v.string(), days: v.number(), stops: v.array(v.object({ at: v.string() })) });

const schemas: [string, Schema][] = [
  ['zod', z.object({ city: z.string(), days: z.number(), stops: z.array(z.object({ at: z.string() })) })],
  ['valibot', valibotTrip],
  ['arktype', type({ city: 'string', days: 'number', stops: type({ at: 'string' }).array() })],
  [
    'JSON Schema',
    {
      type: 'object',
      properties: {
        city: { type: 'string' },
        days: { type: 'number' },
        stops: { type: 'array', items: { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] } },
      },
      required: ['city', 'days', 'stops'],
    },
  ],
  ['JSON Schema made by valibot', toJsonSchema(valibotTrip) as Schema],
];

describe.each(schemas)('%s', (_, schema) => {
  test('accepts a valid value', () => {
    expect(validate(schema, GOOD)).toEqual({ type: 'valid', value: GOOD });
  });

  test('names every problem with its path', async () => {
    const verdict = await validate(schema, BAD);
    if (verdict.type === 'valid') throw new Error('expected an invalid verdict');
    expect(verdict.problems).toHaveLength(3);
    expect(verdict.problems.map((problem) => problem.slice(0, problem.indexOf(':')))).toEqual([
      'city',
      'days',
      'stops.1.at',
    ]);
    for (const problem of verdict.problems) expect(problem).toMatch(/: \S.*\S/);
  });

  test('names a missing property', async () => {
    const verdict = await validate(schema, { city: 'Oslo', stops: [] });
    if (verdict.type === 'valid') throw new Error('expected an invalid verdict');
    expect(verdict.problems).toHaveLength(1);
    expect(verdict.problems[0]).toContain('days');
  });

  test('rejects a value that is not an object', async () => {
    for (const value of [null, undefined, 7, 'text', []]) {
      expect(await validate(schema, value), String(value)).toMatchObject({ type: 'invalid' });
    }
  });
});

const NEITHER = 'the check itself failed: the schema returned neither a value nor issues';
const NO_LIST = 'the check itself failed: the schema returned issues that are not a list';

describe('Standard Schema', () => {
  test('returns the value as the schema transforms it', () => {
    const schema = z.object({ n: z.coerce.number(), unit: z.string().default('m') });
    expect(validate(schema, { n: '7', more: true })).toEqual({ type: 'valid', value: { n: 7, unit: 'm' } });
  });

  test('may validate asynchronously', async () => {
    const schema = v.pipeAsync(
      v.object({ name: v.string() }),
      v.checkAsync(async ({ name }) => name === 'free', 'the name is taken'),
    );
    expect(validate(schema, { name: 'free' })).toBeInstanceOf(Promise);
    expect(await validate(schema, { name: 'free' })).toEqual({ type: 'valid', value: { name: 'free' } });
    expect(await validate(schema, { name: 'used' })).toEqual({ type: 'invalid', problems: ['the name is taken'] });
  });

  test('formats paths of keys and of segments the same way', () => {
    const issues = [
      { message: 'is wrong', path: ['a', 0, { key: 'b' }] },
      { message: 'is odd', path: [] },
      { message: 'is strange' },
      { message: 'is hidden', path: [Symbol('s')] },
    ];
    expect(
      validate(
        standard(() => ({ issues })),
        {},
      ),
    ).toEqual({
      type: 'invalid',
      problems: ['a.0.b: is wrong', 'is odd', 'is strange', 'Symbol(s): is hidden'],
    });
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('no database');
      },
    ],
    ['rejects', () => Promise.reject(new Error('no database'))],
  ])('a schema that %s makes the value invalid', async (_, check) => {
    expect(await validate(standard(check), {})).toEqual({
      type: 'invalid',
      problems: ['the check itself failed: no database'],
    });
  });

  test.each([
    ['undefined', () => undefined, NEITHER],
    ['a boolean', () => true, NEITHER],
    ['neither a value nor issues', () => ({}), NEITHER],
    ['a promise of neither', async () => ({ issues: undefined }), NEITHER],
    ['a promise of undefined', async () => undefined, NEITHER],
    ['issues that are not a list', () => ({ issues: 'many' }), NO_LIST],
    ['a promise of issues that are not a list', async () => ({ issues: 'many' }), NO_LIST],
  ])('a schema that returns %s is reported as misuse', async (_, check, problem) => {
    expect(await validate(standard(check), {})).toEqual({ type: 'invalid', problems: [problem] });
  });

  test('awaits a thenable', async () => {
    const thenable = { then: (resolve: (verdict: unknown) => void) => resolve({ issues: [{ message: 'no' }] }) };
    expect(
      await validate(
        standard(() => thenable),
        {},
      ),
    ).toEqual({ type: 'invalid', problems: ['no'] });
  });
});

describe('JSON Schema', () => {
  test('names a property that is not expected', () => {
    const schema = { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false };
    expect(validate(schema, { a: 'x', b: 1 })).toEqual({ type: 'invalid', problems: ['b: is not expected here'] });
  });

  test('does not confuse inherited members with properties', () => {
    const closed = { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false };
    for (const name of ['constructor', 'toString', '__proto__', 'hasOwnProperty']) {
      expect(validate(closed, JSON.parse(`{"${name}":1}`)), name).toEqual({
        type: 'invalid',
        problems: [`${name}: is not expected here`],
      });
      expect(validate({ type: 'object', required: [name] }, {}), name).toMatchObject({ type: 'invalid' });
    }
  });

  test('supports $ref and oneOf', () => {
    const schema = {
      type: 'object',
      properties: { shape: { $ref: '#/$defs/shape' } },
      $defs: { shape: { oneOf: [{ const: 'round' }, { type: 'object', required: ['sides'] }] } },
    };
    expect(validate(schema, { shape: 'round' })).toMatchObject({ type: 'valid' });
    expect(validate(schema, { shape: { sides: 4 } })).toMatchObject({ type: 'valid' });
    const verdict = validate(schema, { shape: 'square' });
    expect(verdict).toMatchObject({ type: 'invalid' });
    expect(JSON.stringify(verdict)).toContain('shape: ');
  });

  test('an invalid schema makes the value invalid', () => {
    expect(validate({ $ref: '#/nowhere' }, {})).toMatchObject({
      type: 'invalid',
      problems: [expect.stringContaining('the check itself failed')],
    });
    expect(validate({ type: 'string', pattern: '(' }, 'x')).toMatchObject({ type: 'invalid' });
  });

  test('does not throw for a deeply nested value', () => {
    const node = { type: 'object', properties: { a: { $ref: '#' } } };
    const deep = JSON.parse(`${'{"a":'.repeat(50_000)}{}${'}'.repeat(50_000)}`);
    expect(['valid', 'invalid']).toContain((validate(node, deep) as { type: string }).type);
  });
});

function standard(check: (value: unknown) => unknown): StandardSchema {
  return { '~standard': { version: 1, vendor: 'test', validate: check as StandardSchema['~standard']['validate'] } };
}

// ── plainCheck ────────────────────────────────────────────────────────────────────────────────────────────────────────

const primitive = fc.constantFrom('string', 'number', 'integer', 'boolean', 'null');
const names = fc.constantFrom('a', 'b', 'c', '__proto__', 'toString');

const { schema } = fc.letrec<{ schema: JsonSchema }>((tie) => ({
  schema: fc.oneof(
    { depthSize: 'small' },
    fc.record({ type: primitive }),
    fc.record({ enum: fc.array(fc.constantFrom('x', 1, null, true), { minLength: 1 }) }),
    fc.record({ type: fc.constant('array'), items: tie('schema') }),
    fc.record(
      {
        type: fc.constant('object'),
        properties: fc.dictionary(names, tie('schema'), { maxKeys: 3 }),
        required: fc.array(names, { maxLength: 2 }),
        additionalProperties: fc.boolean(),
        description: fc.string(),
      },
      { requiredKeys: ['type'] },
    ),
  ),
}));
const value = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constantFrom('x', 'y', 1, 1.5, null, true),
    fc.array(tie('value'), { maxLength: 2 }),
    fc.dictionary(names, tie('value'), { maxKeys: 3 }),
  ),
})).value;

test('plainCheck: the full validator accepts every value that the quick check accepts', () => {
  let accepted = 0;
  fc.assert(
    fc.property(schema, value, (someSchema, someValue) => {
      const json = JSON.parse(JSON.stringify(someValue));
      if (!plainCheck(someSchema)!(json)) return;
      accepted++;
      expect(new Validator(someSchema, '2020-12').validate(json).valid).toBe(true);
    }),
    { numRuns: 3_000 },
  );
  expect(accepted).toBeGreaterThan(200);
});

test.each([
  { type: ['string', 'null'] },
  { type: 'string', minLength: 1 },
  { anyOf: [{ type: 'string' }] },
  { $ref: '#/$defs/a' },
  { type: 'object', properties: { a: { pattern: 'x' } } },
  { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: { type: 'number' } },
  { type: 'object', properties: { a: true } },
])('plainCheck: does not support %j', (notPlain) => {
  expect(plainCheck(notPlain)).toBeUndefined();
});

test('plainCheck: accepts valid arguments of a typical tool', () => {
  const check = plainCheck({
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer' }, unit: { enum: ['c', 'f'] } },
    required: ['city'],
    additionalProperties: false,
  })!;
  expect(check({ city: 'Oslo', days: 3, unit: 'c' })).toBe(true);
  expect(check({ city: 'Oslo' })).toBe(true);
  expect(check({ days: 3 })).toBe(false);
  expect(check({ city: 'Oslo', more: 1 })).toBe(false);
});

test('a missing property is named', () => {
  const schema = { type: 'object', required: ['path'], properties: { path: {}, at: { required: ['x'] } } };
  const problems = ['missing "path"', 'at: missing "x"'];
  expect(validate(schema, { at: {} })).toEqual({ type: 'invalid', problems: expect.arrayContaining(problems) });
});

test('a list of too many wrong items is described by the first ones', () => {
  const schema = { type: 'object', properties: { list: { items: { type: 'string' } } } };
  const { problems } = validate(schema, { list: Array(80_000).fill(1) }) as { problems: readonly string[] };
  expect(problems).toHaveLength(1_000);
  expect(problems[0]).toBe('list.0: Instance type "number" is invalid. Expected "string"');
});

test('expensive checks of a process take turns of the event loop', async () => {
  const schema = { items: { enum: Array.from({ length: 8_000 }, (_, n) => `name ${n}`) } };
  const list = Array<string>(1_000).fill('no');
  let turn = 0;
  let isEnded = false;
  const countTurn = (): void => {
    turn++;
    if (!isEnded) setImmediate(countTurn);
  };
  setImmediate(countTurn);
  const turns = await Promise.all(
    Array.from({ length: 5 }, async () => {
      const problems = ['the check itself failed: it takes too many steps'];
      expect(await validate(schema, list)).toEqual({ type: 'invalid', problems });
      return turn;
    }),
  );
  isEnded = true;
  expect(new Set(turns).size).toBe(turns.length);
});

test('checks do not wait for expensive ones of earlier turns of the event loop', async () => {
  const schema = { items: { type: 'string' } };
  const list = Array<number>(15_000).fill(1);
  for (let n = 0; n < 3; n++) {
    await nextLoopTurn();
    expect(validate(schema, list)).toMatchObject({ type: 'invalid' });
    expect(validate(schema, [1])).toMatchObject({ type: 'invalid' });
  }
});
