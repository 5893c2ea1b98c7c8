import type { JsonSchema } from '@treadle/core';
import { transformJSONSchema } from '@anthropic-ai/sdk/lib/transform-json-schema';
import { expect, test } from 'vitest';
import { answerSchema } from './schema.ts';

const accepted = (schema: JsonSchema): JsonSchema | undefined => answerSchema(schema).schema;

const ORDER = {
  type: 'object',
  description: 'An order',
  properties: {
    total: { type: 'number', minimum: 0, description: 'In euros' },
    mail: { type: 'string', format: 'email' },
    code: { type: 'string', format: 'x-code', pattern: '^a' },
    lines: {
      type: 'array',
      minItems: 1,
      items: { type: 'object', properties: { n: { type: 'integer', maximum: 9 } }, required: ['n'] },
    },
    many: { type: 'array', minItems: 3, items: { type: 'string' } },
    where: { anyOf: [{ type: 'string', maxLength: 5 }, { type: 'null' }] },
    how: { oneOf: [{ type: 'object', properties: {} }, { $ref: '#/$defs/how' }] },
    minimum: { type: 'string' },
  },
  required: ['total'],
  additionalProperties: { type: 'string' },
  $defs: { how: { type: 'object', properties: { fast: { type: 'boolean', default: true } } } },
};

test('closes objects, and moves keywords that the API rejects into the description', () => {
  expect(accepted({ ...ORDER, $schema: 'https://json-schema.org/draft/2020-12/schema' })).toEqual({
    type: 'object',
    description: 'An order\n\n{additionalProperties: {"type":"string"}}',
    properties: {
      total: { type: 'number', description: 'In euros\n\n{minimum: 0}' },
      mail: { type: 'string', format: 'email' },
      code: { type: 'string', description: '{format: "x-code", pattern: "^a"}' },
      lines: {
        type: 'array',
        minItems: 1,
        items: {
          type: 'object',
          properties: { n: { type: 'integer', description: '{maximum: 9}' } },
          required: ['n'],
          additionalProperties: false,
        },
      },
      many: { type: 'array', items: { type: 'string' }, description: '{minItems: 3}' },
      where: { anyOf: [{ type: 'string', description: '{maxLength: 5}' }, { type: 'null' }] },
      how: { anyOf: [{ type: 'object', properties: {}, additionalProperties: false }, { $ref: '#/$defs/how' }] },
      minimum: { type: 'string' },
    },
    required: ['total'],
    additionalProperties: false,
    $defs: {
      how: {
        type: 'object',
        properties: { fast: { type: 'boolean', description: '{default: true}' } },
        additionalProperties: false,
      },
    },
  });
});

test('returns the same as the official SDK', () => {
  const { additionalProperties: _, ...order } = ORDER;
  expect(sorted(accepted(order)!)).toEqual(sorted(transformJSONSchema(order)));
});

/** The SDK describes keywords in another order. */
function sorted(schema: object): unknown {
  const sortedText = (_name: string, value: unknown): unknown =>
    typeof value === 'string' && value.startsWith('{') ? [...value].sort().join('') : value;
  return JSON.parse(JSON.stringify(schema, sortedText));
}

test('passes unusual schemas through', () => {
  expect(accepted({})).toEqual({});
  expect(accepted({ type: ['string', 'null'], enum: ['a', null], const: 'a' })).toEqual({
    type: ['string', 'null'],
    enum: ['a', null],
    const: 'a',
  });
  expect(accepted({ type: 'object', properties: { any: true } })).toEqual({
    type: 'object',
    properties: { any: true },
    additionalProperties: false,
  });
});

test('describes oneOf beside anyOf, because both would become anyOf', () => {
  const [a, b] = [{ type: 'string' }, { type: 'number' }];
  const described = { anyOf: [a], description: '{oneOf: [{"type":"number"}]}' };
  expect(accepted({ anyOf: [a], oneOf: [b] })).toEqual(described);
  expect(accepted({ oneOf: [b], anyOf: [a] })).toEqual(described);
});

const NUMBERS = { type: 'object', additionalProperties: { type: 'number' } };

test.each([
  [NUMBERS],
  [{ type: 'object' }],
  [{ type: 'object', properties: {}, additionalProperties: true }],
  [{ type: 'object', patternProperties: { '^x': { type: 'number' } } }],
  [{ type: 'object', properties: { by_name: NUMBERS } }],
  [{ type: 'array', items: NUMBERS }],
  [{ anyOf: [{ type: 'null' }, { oneOf: [NUMBERS] }] }],
  [{ $ref: '#/$defs/numbers', $defs: { numbers: NUMBERS } }],
])('returns no schema for %j, which has arbitrary keys', (schema) => {
  expect(answerSchema(schema)).toEqual({});
});

test.each([
  [{ type: 'object', properties: {} }],
  [{ type: 'object', additionalProperties: false }],
  [{ type: 'object', properties: { a: { type: 'string' } }, additionalProperties: { type: 'number' } }],
  [{ type: 'object', anyOf: [{ type: 'object', properties: { a: { type: 'string' } } }] }],
])('closes %j', (schema) => {
  expect(accepted(schema)).toMatchObject({ type: 'object', additionalProperties: false });
});
