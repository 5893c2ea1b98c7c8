import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { ApiError } from '../api-error.ts';
import { checkJson, list, PARAM, refuse, textOr, validateBody, variants } from './validate.ts';

function errorOf(check: () => unknown): ApiError {
  try {
    check();
  } catch (error) {
    return error as ApiError;
  }
  return expect.unreachable('it was accepted');
}

describe('validateBody', () => {
  const schema = z.object({
    mode: z.enum(['on', 'off']).nullish(),
    items: list(
      variants(
        'type',
        ['a'],
        [
          z.object({ type: z.enum(['a', 'alias']), size: z.int().min(1) }),
          z
            .object({ type: z.literal('b') })
            .transform((_, ctx): never =>
              refuse(ctx, `${PARAM} is closed.`, { path: ['type'], status: 413, code: 'input_too_large' }),
            ),
        ],
      ),
      { expected: 'a list of items', max: 3 },
    ),
  });

  test.each<[unknown, Partial<ApiError>]>([
    [
      7,
      { param: null, code: 'invalid_type', message: expect.stringContaining('the request body: expected an object') },
    ],
    [{}, { param: 'items', code: 'missing_required_parameter' }],
    [
      { items: {} },
      { param: 'items', message: expect.stringContaining('expected a list of items, but got an object') },
    ],
    [{ items: [{}] }, { param: 'items[0].type', code: 'missing_required_parameter' }],
    [{ items: [{ type: 'c' }] }, { param: 'items[0].type', message: expect.stringMatching(/'c'.* are: 'a'\.$/) }],
    [{ items: [{ type: 'alias', size: 0 }] }, { param: 'items[0].size', code: 'decimal_below_min_value' }],
    [{ items: [{ type: 'b' }] }, { status: 413, param: 'items[0].type', message: "'items[0].type' is closed." }],
    [{ items: [1, 2, 3, 4] }, { param: 'items', code: 'array_above_max_length' }],
    [
      { items: [], mode: 'x' },
      { param: 'mode', code: 'invalid_value' },
    ],
  ])('rejects %j with the path and the code', (body, error) => {
    expect(errorOf(() => validateBody(schema, body))).toMatchObject({ type: 'invalid_request_error', ...error });
  });

  test('stops at the first item that is wrong', () => {
    let validated = 0;
    const item = z.unknown().superRefine((_, ctx) => {
      validated += 1;
      refuse(ctx, `${PARAM} is wrong.`);
    });
    const texts = textOr(z.string(), list(item, { expected: 'a list', max: Infinity }));
    const error = errorOf(() => validateBody(z.object({ texts }), { texts: Array.from({ length: 1_000 }, () => 1) }));
    expect([error.param, validated]).toEqual(['texts[0]', 1]);
  });
});

test('checkJson names the field that is nested too deeply', () => {
  expect(() => checkJson({ a: [[{}]] }, 3)).not.toThrow();
  expect(errorOf(() => checkJson({ a: [[{}]] }, 2))).toMatchObject({ param: 'a', code: 'nesting_too_deep' });
});
