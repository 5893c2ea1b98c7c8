import { toJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import { TreadleError } from '../errors.ts';
import type { StandardSchema } from './schema.ts';
import { factsOf, tool, toolsByName, type Tool, type ToolContext } from './tool.ts';

const about = { description: 'Does something' };
const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'number' } },
  required: ['city'],
};

describe('every kind of schema gives the parameters and the type of the input', () => {
  test('zod', () => {
    const made = tool({
      ...about,
      name: 'trip',
      input: z.object({ city: z.string(), days: z.number().optional() }),
      resources: (input) => {
        expectTypeOf(input).toEqualTypeOf<{ city: string; days?: number | undefined }>();
        return [input.city];
      },
      execute: (input, context) => {
        expectTypeOf(input).toEqualTypeOf<{ city: string; days?: number | undefined }>();
        expectTypeOf(context).toEqualTypeOf<ToolContext>();
      },
    });
    expect(made.parameters).toEqual(PARAMETERS);
    expectTypeOf(made).toEqualTypeOf<Tool>();
  });

  test('zod: the tool gets the transformed input, the model the input schema', () => {
    const made = tool({
      ...about,
      name: 'trip',
      input: z.object({ days: z.string().transform(Number), unit: z.string().default('m') }),
      execute: (input) => {
        expectTypeOf(input).toEqualTypeOf<{ days: number; unit: string }>();
      },
    });
    expect(made.parameters).toEqual({
      type: 'object',
      properties: { days: { type: 'string' }, unit: { type: 'string', default: 'm' } },
      required: ['days'],
    });
  });

  test('arktype', () => {
    const made = tool({
      ...about,
      name: 'trip',
      input: type({ city: 'string', 'days?': 'number' }),
      execute: (input) => {
        expectTypeOf(input).toEqualTypeOf<{ city: string; days?: number }>();
      },
    });
    expect(made.parameters).toEqual(PARAMETERS);
  });

  test('valibot, with parameters', () => {
    const input = v.object({ city: v.string(), days: v.optional(v.number()) });
    const { $schema: _, ...parameters } = toJsonSchema(input);
    const made = tool({
      ...about,
      name: 'trip',
      input,
      parameters,
      execute: (trip) => {
        expectTypeOf(trip).toEqualTypeOf<{ city: string; days?: number | undefined }>();
      },
    });
    expect(made.parameters).toEqual(PARAMETERS);
  });

  test('JSON Schema', () => {
    const made = tool({
      ...about,
      name: 'trip',
      input: PARAMETERS,
      execute: (input) => {
        expectTypeOf(input).toEqualTypeOf<Record<string, unknown>>();
      },
    });
    expect(made.parameters).toBe(PARAMETERS);
  });

  test('no schema: an object without properties', () => {
    expect(tool({ ...about, name: 'now', execute: () => 'noon' }).parameters).toEqual({
      type: 'object',
      properties: {},
    });
  });

  test('parameters override the description of the schema', () => {
    const parameters = { type: 'object', properties: { city: { type: 'string', description: 'in English' } } };
    const made = tool({ ...about, name: 'trip', input: z.object({ city: z.string() }), parameters });
    expect(made.parameters).toBe(parameters);
  });
});

describe('rejects an invalid definition', () => {
  test.each(['', 'two words', 'dotted.name', 'a/b', 'naïve', 'x'.repeat(65), 'tab\t', 'end\n'])(
    'the name %j',
    (name) => {
      expect(() => tool({ ...about, name })).toThrow(invalid(JSON.stringify(name)));
    },
  );

  test.each([undefined, null, 7, {}])('the name %j', (name) => {
    expect(() => tool({ ...about, name: name as unknown as string })).toThrow(invalid('is not accepted by providers'));
  });

  test.each(['a', 'get_weather', 'Get-Weather2', '_', '-', 'x'.repeat(64), 'constructor', '__proto__', 'toString'])(
    'accepts the name %j',
    (name) => {
      expect(tool({ ...about, name }).name).toBe(name);
    },
  );

  test('no description', () => {
    expect(() => tool({ name: 'x' } as unknown as Parameters<typeof tool>[0])).toThrow(
      invalid('"x" has no description'),
    );
  });

  test.each([0, -1, Number.NaN])('timeoutMs %d', (timeoutMs) => {
    expect(() => tool({ ...about, name: 'x', timeoutMs })).toThrow(invalid(`timeoutMs ${timeoutMs}`));
  });

  test('a schema that cannot be converted to JSON Schema, with a remedy', () => {
    expect(() => tool({ ...about, name: 'x', input: v.object({}) })).toThrow(
      invalid('(valibot) cannot describe itself'),
    );
    expect(() => tool({ ...about, name: 'x', input: v.object({}) })).toThrow(/"parameters"/);
  });

  test('a schema whose conversion to JSON Schema fails', () => {
    expect(() => tool({ ...about, name: 'x', input: z.object({ at: z.date() }) })).toThrow(invalid('"x"'));
  });
});

describe('defaults', () => {
  test('effect once, not exclusive, not polling', () => {
    expect(tool({ ...about, name: 'x', execute: () => 1 })).toMatchObject({
      effect: 'once',
      exclusive: false,
      polling: false,
    });
  });

  test('factsOf is plain JSON', () => {
    const made = tool({
      ...about,
      name: 'x',
      input: z.object({ city: z.string() }),
      effect: 'idempotent',
      timeoutMs: 5,
      exclusive: true,
      polling: true,
      resources: () => [],
      verify: () => ({ type: 'unknown' }),
      execute: () => 1,
    });
    const facts = factsOf(made);
    expect(facts).toEqual({
      name: 'x',
      description: 'Does something',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      effect: 'idempotent',
      exclusive: true,
      polling: true,
      client: false,
      verifiable: true,
      timeoutMs: 5,
    });
    expect(JSON.parse(JSON.stringify(facts))).toEqual(facts);
  });

  test('a tool without execute is executed by the client', () => {
    expect(factsOf(tool({ ...about, name: 'x' }))).toMatchObject({ client: true, verifiable: false });
  });
});

test('accepts any implementation of Standard Schema', () => {
  const input: StandardSchema<{ n: number }> = {
    '~standard': {
      version: 1,
      vendor: 'mine',
      validate: (value) => ({ value: value as { n: number } }),
      jsonSchema: { input: () => ({ $schema: 'x', type: 'object', properties: { n: { type: 'number' } } }) },
    },
  };
  const made = tool({
    ...about,
    name: 'x',
    input,
    execute: (value) => {
      expectTypeOf(value).toEqualTypeOf<{ n: number }>();
    },
  });
  expect(made.parameters).toEqual({ type: 'object', properties: { n: { type: 'number' } } });
});

function invalid(text: string): Error {
  return expect.objectContaining({
    constructor: TreadleError,
    code: 'invalid-tool',
    message: expect.stringContaining(text),
  }) as unknown as Error;
}

test.each([[5], ['text'], [null], [true]])('rejects %j as an input schema', (input) => {
  expect(() => tool({ name: 'a', description: 'b', input: input as never })).toThrow(
    `Tool "a" has ${JSON.stringify(input)} as input. Give a schema, or leave it out.`,
  );
});

test.each<[string, object]>([
  ['has an array as "touches". Use a function', { touches: [] }],
  ['has "yes" as "exclusive". Use true or false', { exclusive: 'yes' }],
  ['has no option "descripton". Did you mean "description"?', { descripton: 'x' }],
  ['has permissions that are not a list of names', { permissions: 'file_write' }],
  ['has a number as operation', { operation: 7 }],
  ['has a string as needsApproval', { needsApproval: 'yes' }],
])('rejects a tool that %s', (what, definition) => {
  expect(() => tool({ name: 'x', description: 'x', ...definition })).toThrow(
    expect.objectContaining({ code: 'invalid-tool', message: expect.stringContaining(`Tool "x" ${what}`) }),
  );
});

test('the facts about a tool have needsApproval only if its calls may need one', () => {
  const facts = [true, () => true, false, undefined].map((needsApproval) =>
    factsOf(tool({ name: 'x', description: 'x', ...(needsApproval !== undefined && { needsApproval }) })),
  );
  expect(facts.map(({ needsApproval }) => needsApproval)).toEqual([true, true, undefined, undefined]);
});

test('toolsByName rejects two tools of the same name', () => {
  const [add, ask] = [tool({ ...about, name: 'add' }), tool({ ...about, name: 'ask' })];
  expect(() => toolsByName([add, ask, add])).toThrow(/"add": one from tools\[0\], one from tools\[2\]/);
});
