import { transformJSONSchema } from '@anthropic-ai/sdk/lib/transform-json-schema';
import { expect, test } from 'vitest';
import { answerSchema } from './schema.ts';

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

test('objects are closed, and what the API does not take is told in words', () => {
  expect(answerSchema({ ...ORDER, $schema: 'https://json-schema.org/draft/2020-12/schema' })).toEqual({
    type: 'object',
    description: 'An order',
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

test('the official SDK makes the same of it', () => {
  expect(sorted(answerSchema(ORDER))).toEqual(sorted(transformJSONSchema(ORDER)));
});

/** The SDK tells keywords in another order. */
function sorted(schema: object): unknown {
  const words = (_name: string, value: unknown): unknown =>
    typeof value === 'string' && value.startsWith('{') ? [...value].sort().join('') : value;
  return JSON.parse(JSON.stringify(schema, words));
}

test('odd schemas pass through', () => {
  expect(answerSchema({})).toEqual({});
  expect(answerSchema({ type: ['string', 'null'], enum: ['a', null], const: 'a' })).toEqual({
    type: ['string', 'null'],
    enum: ['a', null],
    const: 'a',
  });
  expect(answerSchema({ type: 'object', properties: { any: true } })).toEqual({
    type: 'object',
    properties: { any: true },
    additionalProperties: false,
  });
});
