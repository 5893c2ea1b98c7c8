import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { defineAgent, executeAgent, type Agent, type JsonSchema, type StandardSchema } from '@treadle/core';
import { memoryJournal, scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { toJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { afterAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { summing, unusedModel, type Total } from './agents.ts';
import { calling, callingAll, checkHistories, fail, succeed } from './run.ts';

type Reflection = 'without reflection' | 'with reflection';

interface OutputForm<Output> {
  readonly outputSchema: StandardSchema<Output> | JsonSchema;
  readonly parameters?: JsonSchema;
}

/** An agent with any output schema. Handlers record the outputs they get in `seen`. */
function giving<Output>(
  { outputSchema, parameters }: OutputForm<Output>,
  mode: Reflection,
  seen: unknown[] = [],
): Agent<undefined, Output> {
  const output = { name: 'give', description: 'Gives', ...(parameters && { parameters }) };
  const reflectionHandler = (value: Output): string => {
    seen.push(value);
    return 'seen';
  };
  return defineAgent<undefined, Output>({
    name: 'giving',
    description: 'Gives something',
    model: unusedModel,
    prompts: { user: 'Give' },
    tools: { output: mode === 'with reflection' ? { ...output, reflectionHandler } : output },
    validation: {
      outputSchema,
      customValidators: [{ name: 'recording', validate: (value) => void seen.push(value) }],
      maxAttempts: 2,
    },
    projectFinalState: ({ output: value }) => void seen.push(value),
  });
}

const modes = ['without reflection', 'with reflection'] as const;
const script = (mode: Reflection, args: unknown) =>
  mode === 'with reflection' ? [calling('give', args), calling('submit')] : [calling('give', args)];

const falsy: readonly (readonly [string, unknown, Record<string, OutputForm<unknown>>])[] = [
  [
    '0',
    0,
    {
      zod: { outputSchema: z.number() },
      valibot: { outputSchema: v.number(), parameters: toJsonSchema(v.number()) as JsonSchema },
      arktype: { outputSchema: type('number') },
      'JSON Schema': { outputSchema: { type: 'number' } },
    },
  ],
  [
    "''",
    '',
    {
      zod: { outputSchema: z.string() },
      valibot: { outputSchema: v.string(), parameters: toJsonSchema(v.string()) as JsonSchema },
      arktype: { outputSchema: type('string') },
      'JSON Schema': { outputSchema: { type: 'string' } },
    },
  ],
  [
    'false',
    false,
    {
      zod: { outputSchema: z.boolean() },
      valibot: { outputSchema: v.boolean(), parameters: toJsonSchema(v.boolean()) as JsonSchema },
      arktype: { outputSchema: type('boolean') },
      'JSON Schema': { outputSchema: { type: 'boolean' } },
    },
  ],
  [
    'null',
    null,
    {
      zod: { outputSchema: z.null() },
      valibot: { outputSchema: v.null(), parameters: toJsonSchema(v.null()) as JsonSchema },
      arktype: { outputSchema: type('null') },
      'JSON Schema': { outputSchema: { type: 'null' } },
    },
  ],
  [
    '[]',
    [],
    {
      zod: { outputSchema: z.array(z.string()) },
      valibot: { outputSchema: v.array(v.string()), parameters: toJsonSchema(v.array(v.string())) as JsonSchema },
      arktype: { outputSchema: type('string[]') },
      'JSON Schema': { outputSchema: { type: 'array' } },
    },
  ],
];

const cases = falsy.flatMap(([name, value, schemas]) =>
  Object.entries(schemas).flatMap(([kind, schema]) => modes.map((mode) => ({ name, value, kind, schema, mode }))),
);

describe('outputs that are not objects, including falsy ones', () => {
  test.for(cases)('accepts $name with $kind, $mode', async ({ value, schema, mode }) => {
    const seen: unknown[] = [];
    const { result, log, requests } = await succeed(giving(schema, mode, seen), script(mode, { output: value }), {
      input: undefined,
    });
    expect(result).toHaveProperty('output');
    expect(result.output).toEqual(value);
    expect(seen).toEqual(Array.from({ length: mode === 'with reflection' ? 3 : 2 }, () => value));
    expect(log.at(-1)).toEqual(['onSuccess', expect.anything(), value]);
    expect(requests[0]!.tools[0]!.parameters).toMatchObject({ type: 'object', required: ['output'] });
  });

  test.for(modes)('rejects a missing output, %s', async (mode) => {
    const { log } = await succeed(
      giving({ outputSchema: z.null() }, mode),
      [...script(mode, {}), ...script(mode, { output: null })],
      {
        input: undefined,
      },
    );
    expect(log.find(([name]) => name === 'onValidationFailure')?.[2]).toMatchObject({
      problems: ['the output is missing: give it as "output"'],
    });
  });

  test('does not confuse falsy outputs with each other', async () => {
    const { error } = await fail(
      giving({ outputSchema: z.literal(0) }, 'without reflection'),
      [calling('give', { output: false }), calling('give', { output: '' })],
      { input: undefined },
    );
    expect(error.code).toBe('MAX_ATTEMPTS_EXCEEDED');
  });
});

describe('objects are not wrapped', () => {
  const schemas: Record<string, OutputForm<unknown>> = {
    zod: { outputSchema: z.object({ a: z.number() }) },
    valibot: {
      outputSchema: v.object({ a: v.number() }),
      parameters: toJsonSchema(v.object({ a: v.number() })) as JsonSchema,
    },
    arktype: { outputSchema: type({ a: 'number' }) },
    'JSON Schema': { outputSchema: { type: 'object', properties: { a: { type: 'number' } }, required: ['a'] } },
    'zod, with a property named output': { outputSchema: z.object({ a: z.number(), output: z.string().optional() }) },
  };
  test.for(Object.entries(schemas).flatMap(([kind, schema]) => modes.map((mode) => ({ kind, schema, mode }))))(
    '$kind, $mode',
    async ({ schema, mode }) => {
      const { result, requests } = await succeed(giving(schema, mode), script(mode, { a: 0 }), { input: undefined });
      expect(result.output).toEqual({ a: 0 });
      expect(requests[0]!.tools[0]!.parameters).toMatchObject({
        type: 'object',
        properties: { a: { type: 'number' } },
      });
    },
  );
});

describe('wrapped schemas', () => {
  interface Tree {
    value: number;
    children: Tree[];
  }
  const tree: z.ZodType<Tree> = z.object({
    value: z.number(),
    get children() {
      return z.array(tree);
    },
  });
  const leaf: Tree = { value: 1, children: [] };

  test.for(modes)('moves the references of a recursive schema, %s', async (mode) => {
    const { result, requests } = await succeed(
      giving({ outputSchema: z.array(tree) }, mode),
      script(mode, { output: [{ value: 0, children: [leaf] }] }),
      { input: undefined },
    );
    expect(result.output).toEqual([{ value: 0, children: [leaf] }]);
    const { parameters } = requests[0]!.tools[0]!;
    const references = [...JSON.stringify(parameters).matchAll(/"\$ref":"([^"]*)"/g)].map(([, to]) => to!);
    expect(references).not.toEqual([]);
    for (const reference of references) expect(at(parameters, reference), reference).toMatchObject({ type: 'object' });
  });

  test('moves references to $defs and to the root, but not to anchors', async () => {
    const outputSchema = {
      anyOf: [{ $ref: '#/$defs/number' }, { type: 'array', items: { $ref: '#' } }, { $ref: '#word' }],
      $defs: { number: { type: 'number' }, word: { $anchor: 'word', type: 'string' } },
    };
    const { requests } = await succeed(
      giving({ outputSchema: { ...outputSchema } }, 'without reflection'),
      [calling('give', { output: [1, [2]] })],
      { input: undefined },
    );
    expect(requests[0]!.tools[0]!.parameters).toEqual({
      type: 'object',
      properties: {
        output: {
          anyOf: [
            { $ref: '#/properties/output/$defs/number' },
            { type: 'array', items: { $ref: '#/properties/output' } },
            { $ref: '#word' },
          ],
          $defs: { number: { type: 'number' }, word: { $anchor: 'word', type: 'string' } },
        },
      },
      required: ['output'],
    });
  });

  test('accepts a union of objects', async () => {
    const outputSchema = z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('a'), a: z.number() }),
      z.object({ kind: z.literal('b'), b: z.string() }),
    ]);
    const { result } = await succeed(
      giving({ outputSchema }, 'without reflection'),
      [calling('give', { output: { kind: 'b', b: '' } })],
      { input: undefined },
    );
    expect(result.output).toEqual({ kind: 'b', b: '' });
  });

  /** Resolves a local reference. */
  function at(schema: unknown, reference: string): unknown {
    return reference
      .split('/')
      .slice(1)
      .reduce((part, key) => (part as Record<string, unknown>)[key], schema);
  }
});

describe('transforms', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-agents-'));
  afterAll(() => rmSync(folder, { recursive: true }));

  const outputSchema = z.object({
    on: z.string().transform((text) => new Date(text)),
    tags: z.array(z.string()).transform((tags) => new Set(tags)),
    note: z.string().default('none'),
  });
  const args = { on: '2020-05-06', tags: ['a', 'b', 'a'] };
  const transformed = { on: new Date('2020-05-06'), tags: new Set(['a', 'b']), note: 'none' };

  test.for(modes)('handler, validators, callbacks and result get the transformed output, %s', async (mode) => {
    const seen: unknown[] = [];
    const { result, log } = await succeed(giving({ outputSchema }, mode, seen), script(mode, args), {
      input: undefined,
    });
    expect(result.output).toEqual(transformed);
    expect(seen).toEqual(Array.from({ length: mode === 'with reflection' ? 3 : 2 }, () => transformed));
    expect(log.at(-1)?.[2]).toEqual(transformed);
  });

  test.for(modes)('an ended run in SQLite returns the transformed output again, %s', async (mode) => {
    const file = path.join(folder, `${mode}.db`);
    const first = sqliteStore(file);
    const before = await succeed(giving({ outputSchema }, mode), script(mode, args), {
      input: undefined,
      journal: first,
      runId: 'r',
    });
    await first.close();
    const store = sqliteStore(file);
    const model = scriptedModel([]);
    const seen: unknown[] = [];
    const result = await executeAgent(giving({ outputSchema }, mode, seen), {
      input: undefined,
      journal: store,
      runId: 'r',
      model,
    });
    await store.close();
    expect(result).toEqual(before.result);
    expect(result).toMatchObject({ type: 'success', output: transformed });
    // Only projectFinalState runs again, not the validators.
    expect(seen).toEqual([transformed]);
    await checkHistories(model.requests, result);
  });

  test('a run that is resumed from SQLite returns the transformed output', async () => {
    const file = path.join(folder, 'middle.db');
    const first = sqliteStore(file);
    const failure = { type: 'failure', error: { code: 'network', message: 'Unreachable', retryable: true } } as const;
    const agent = giving({ outputSchema }, 'with reflection');
    await fail(agent, [calling('give', args), failure], { input: undefined, journal: first, runId: 'r' });
    await first.close();
    const store = sqliteStore(file);
    const model = scriptedModel([calling('submit')]);
    const result = await executeAgent(agent, { input: undefined, journal: store, runId: 'r', model });
    await store.close();
    expect(result).toMatchObject({ type: 'success', output: transformed, metadata: { attempts: 1, iterations: 2 } });
    await checkHistories(model.requests, result);
  });

  test('the journal stores the arguments, not the transformed output', async () => {
    const journal = memoryJournal();
    await succeed(giving({ outputSchema }, 'without reflection'), script('without reflection', args), {
      input: undefined,
      journal,
      runId: 'r',
    });
    const checked = (await journal.read('r')).find(({ event }) => event.type === 'output-checked');
    expect(checked?.event).toMatchObject({ result: { type: 'valid', value: args } });
  });
});

test('repairs unambiguous errors in the arguments, and no others', async () => {
  const agent = giving({ outputSchema: z.object({ a: z.number() }) }, 'without reflection');
  const { result, log } = await succeed(
    agent,
    [callingAll(['give', '{"a": 1']), callingAll(['give', '```json\n{"a": 1,}\n```'])],
    { input: undefined },
  );
  expect(result.output).toEqual({ a: 1 });
  const failure = log.find(([name]) => name === 'onValidationFailure')?.[2];
  expect(failure).toMatchObject({ problems: [expect.stringContaining('JSON')] });
});

describe('a reply that was cut off', () => {
  const agent = (mode: Reflection): Agent<undefined, { note?: string | undefined }> =>
    giving({ outputSchema: z.object({ note: z.string().optional() }) }, mode);
  const cut = (text: string) => ({ calls: [{ name: 'give', arguments: text }], finish: 'length' }) as const;

  test.for(['', '```json\n{"note":"a"}', '{"note":"a",}', '{"note":"a'])(
    'rejects incomplete arguments: %j',
    async (text) => {
      const { result, log } = await succeed(agent('without reflection'), [cut(text), calling('give', { note: 'b' })], {
        input: undefined,
      });
      expect(result.output).toEqual({ note: 'b' });
      expect(log.find(([name]) => name === 'onValidationFailure')?.[2]).toMatchObject({
        problems: [expect.any(String)],
      });
    },
  );

  test('with reflection, rejects a submit of incomplete arguments', async () => {
    const { result } = await succeed(
      agent('with reflection'),
      [cut(''), calling('submit'), callingAll(['give', { note: 'b' }], ['submit'])],
      { input: undefined },
    );
    expect(result.output).toEqual({ note: 'b' });
  });

  test('accepts complete arguments', async () => {
    const { result } = await succeed(agent('without reflection'), [cut('{"note":"a"}')], { input: undefined });
    expect(result.output).toEqual({ note: 'a' });
  });

  test('reports the problem of the schema for repaired arguments of a complete reply', async () => {
    const { log } = await succeed(
      giving({ outputSchema: z.object({ a: z.number() }) }, 'with reflection'),
      [callingAll(['give', '```json\n{"a":"x"}\n```'], ['submit']), callingAll(['give', { a: 1 }], ['submit'])],
      { input: undefined },
    );
    expect(log.find(([name]) => name === 'onValidationFailure')?.[2]).toMatchObject({
      problems: [expect.stringMatching(/^a: /)],
    });
  });
});

test('a validator that changes its argument does not change the output', async () => {
  const journal = memoryJournal();
  const mutating = { name: 'mutating', validate: (output: Total) => void ((output as { total: number }).total = 99) };
  const agent = summing({ validation: { customValidators: [mutating] } });
  const options = { input: '1', journal, runId: 'r' };
  const { result } = await succeed(agent, [calling('answer', { total: 4 })], options);
  expect(result.output).toEqual({ total: 4 });
  expect(await executeAgent(agent, { ...options, model: scriptedModel([]) })).toMatchObject({ output: { total: 4 } });
});

test('problems of a validator are limited to maxResultChars', async () => {
  const verbose = { name: 'verbose', validate: ({ total }: Total) => total === 4 || 'x'.repeat(100_000) };
  const agent = summing({ maxResultChars: 100, validation: { customValidators: [verbose] } });
  const { result } = await succeed(agent, [calling('answer', { total: 3 }), calling('answer', { total: 4 })], {
    input: '1',
  });
  expect(JSON.stringify(result.messages).length).toBeLessThan(2_000);
});
