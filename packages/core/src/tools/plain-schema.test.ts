import { Validator } from '@cfworker/json-schema';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { JsonSchema } from '../model.ts';
import { plainCheck } from './plain-schema.ts';

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

test('what the quick check lets through, the full validator lets through', () => {
  let through = 0;
  fc.assert(
    fc.property(schema, value, (someSchema, someValue) => {
      const json = JSON.parse(JSON.stringify(someValue));
      if (!plainCheck(someSchema)!(json)) return;
      through++;
      expect(new Validator(someSchema, '2020-12').validate(json).valid).toBe(true);
    }),
    { numRuns: 3_000 },
  );
  expect(through).toBeGreaterThan(200);
});

test.each([
  { type: ['string', 'null'] },
  { type: 'string', minLength: 1 },
  { anyOf: [{ type: 'string' }] },
  { $ref: '#/$defs/a' },
  { type: 'object', properties: { a: { pattern: 'x' } } },
  { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: { type: 'number' } },
  { type: 'object', properties: { a: true } },
])('%j is not plain', (notPlain) => {
  expect(plainCheck(notPlain)).toBeUndefined();
});

test('it finds the usual arguments valid without help', () => {
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
