import { describe, expect, test } from 'vitest';
import type { Tool, ToolContext } from '../tools/tool.ts';
import { defineAgent, type AgentDefinition, type AnyAgent, type HelperTool } from './define.ts';
import { agentTools, DEFAULT_SUBMIT, submitName, validateOutput } from './tools.ts';

type Definition = AgentDefinition<unknown, unknown>;

function agentOf(
  output: Partial<Definition['tools']['output']> = {},
  {
    outputSchema = { type: 'object' },
    ...changes
  }: Partial<Definition> & { outputSchema?: Definition['validation']['outputSchema']; helpers?: HelperTool[] } = {},
): AnyAgent {
  const { helpers, ...rest } = changes;
  return defineAgent<unknown, unknown>({
    name: 'a',
    description: 'An agent',
    model: { id: 'm', reply: () => Promise.reject(new Error('unexpected model call')) },
    prompts: { user: 'Go' },
    tools: {
      ...(helpers && { helpers }),
      output: { name: 'answer', description: 'Answers', ...output } as Definition['tools']['output'],
    },
    validation: { outputSchema, maxAttempts: 3 },
    ...rest,
  });
}

const FIRST = { input: 'in', attempt: () => 1 };
const context: ToolContext = {
  signal: new AbortController().signal,
  key: 'k',
  report: () => {},
  context: 'c',
  principal: undefined,
  ask: () => Promise.reject<never>(new Error('nobody is there')),
  hold: () => Promise.reject<never>(new Error('there is no run')),
  offer: () => Promise.reject<never>(new Error('there is no run')),
};
const facts = ({ name, effect, parameters }: Tool): object => ({ name, effect, parameters });
const reflectionHandler = (): string => 'reflected';

test('returns the helpers, the output tool and, with reflection, the submit tool', () => {
  const helper: HelperTool = { definition: { name: 'look', description: 'Looks' }, handler: () => 1 };
  const names = (agent: AnyAgent): readonly string[] => agentTools(agent, FIRST).map(({ name }) => name);
  expect(names(agentOf({}, { helpers: [helper] }))).toEqual(['look', 'answer']);
  expect(names(agentOf({ reflectionHandler }, { helpers: [helper] }))).toEqual(['look', 'answer', 'submit']);
  expect(names(agentOf({ reflectionHandler, submit: { name: 'done' } }))).toEqual(['answer', 'done']);
});

test('the submit tool has a default name and description', () => {
  const submit = agentTools(agentOf({ reflectionHandler }), FIRST).at(-1)!;
  expect(facts(submit)).toEqual({ name: 'submit', effect: 'pure', parameters: { type: 'object', properties: {} } });
  expect(submit.description).toBe(DEFAULT_SUBMIT.description);
  expect(DEFAULT_SUBMIT.description).toBe(
    'Submit your final output for validation. Call this when you are satisfied with your output.',
  );
  expect(submitName(agentOf())).toBeUndefined();
  expect(submitName(agentOf({ reflectionHandler }))).toBe('submit');
});

test('the output tool cannot be executed without reflection', () => {
  const [output] = agentTools(agentOf(), FIRST);
  expect(() => output!.execute!({}, context)).toThrow('A call that ends an attempt is never executed.');
});

describe('parameters of the output tool', () => {
  const parametersOf = (agent: AnyAgent): unknown => agentTools(agent, FIRST)[0]!.parameters;

  test('an object schema is used unchanged', () => {
    const schema = { type: 'object', properties: { a: { $ref: '#/$defs/a' } }, $defs: { a: {} } };
    expect(parametersOf(agentOf({}, { outputSchema: schema }))).toEqual(schema);
  });

  test('any other schema is wrapped in an object, with its local references moved', () => {
    const schema = {
      $ref: '#/$defs/a',
      $defs: { a: { anyOf: [{ $ref: '#' }, { $ref: '#named' }, { $ref: 'https://a.example' }] } },
    };
    expect(parametersOf(agentOf({}, { outputSchema: schema }))).toEqual({
      type: 'object',
      properties: {
        output: {
          $ref: '#/properties/output/$defs/a',
          $defs: { a: { anyOf: [{ $ref: '#/properties/output' }, { $ref: '#named' }, { $ref: 'https://a.example' }] } },
        },
      },
      required: ['output'],
    });
  });

  test('explicit parameters decide whether the output is wrapped', () => {
    const agent = agentOf({ parameters: { type: 'string' } });
    expect(parametersOf(agent)).toMatchObject({ properties: { output: { type: 'string' } } });
  });
});

describe('validateOutput', () => {
  test('unwraps an output that is not an object', async () => {
    const agent = agentOf({}, { outputSchema: { type: ['number', 'null'] } });
    expect(await validateOutput(agent, { output: null })).toEqual({ type: 'valid', value: null });
    expect(await validateOutput(agent, { output: 0 })).toEqual({ type: 'valid', value: 0 });
    expect(await validateOutput(agent, { output: 'x' })).toMatchObject({ type: 'invalid' });
    const missing = { type: 'invalid', problems: ['the output is missing: give it as "output"'] };
    for (const args of [{}, null, 5, 'x']) expect(await validateOutput(agent, args)).toEqual(missing);
  });

  test('does not unwrap an object', async () => {
    expect(await validateOutput(agentOf(), { output: 1 })).toEqual({ type: 'valid', value: { output: 1 } });
  });
});

describe('helpers', () => {
  const helper = (
    definition: Partial<HelperTool['definition']>,
    handler: HelperTool['handler'] = () => 1,
  ): HelperTool => ({
    definition: { name: 'look', description: 'Looks', ...definition },
    handler,
  });
  const made = (agent: AnyAgent): Tool => agentTools(agent, FIRST)[0]!;

  test('input_schema may replace input', () => {
    const schema = { type: 'object', properties: { a: { type: 'string' } } };
    for (const definition of [{ input: schema }, { input_schema: schema }]) {
      expect(facts(made(agentOf({}, { helpers: [helper(definition)] })))).toEqual({
        name: 'look',
        effect: 'once',
        parameters: schema,
      });
    }
  });

  test('only helpers that may write the state have it as a resource', () => {
    const state = { run: {} };
    expect(made(agentOf({}, { helpers: [helper({})], state })).resources?.({})).toEqual(['the state of the agent']);
    expect(made(agentOf({}, { helpers: [helper({ effect: 'pure' })], state })).resources).toBeUndefined();
    expect(made(agentOf({}, { helpers: [helper({})] })).resources).toBeUndefined();
  });

  test('get the state, frozen unless they may write it', () => {
    const seen: { state: unknown; frozen: boolean }[] = [];
    const inspect: HelperTool['handler'] = (_, { state }) => void seen.push({ state, frozen: Object.isFrozen(state) });
    const memory = { run: { a: [1] }, attempt: 2 };
    const state = { run: {} };
    made(agentOf({}, { helpers: [helper({}, inspect)], state })).execute!({}, { ...context, memory });
    made(agentOf({}, { helpers: [helper({ effect: 'pure' }, inspect)], state })).execute!(
      {},
      { ...context, memory: structuredClone(memory) },
    );
    made(agentOf({}, { helpers: [helper({}, inspect)] })).execute!({}, context);
    expect(seen).toEqual([
      { state: memory, frozen: false },
      { state: memory, frozen: true },
      { state: {}, frozen: true },
    ]);
  });

  test('an async iterable is not cached', async () => {
    let runs = 0;
    const streaming: HelperTool = {
      ...helper({ effect: 'pure' }, async function* () {
        yield ++runs;
      }),
      cache: true,
    };
    const { execute } = made(agentOf({}, { helpers: [streaming] }));
    for (const expected of [1, 2]) {
      for await (const item of execute!({}, context) as AsyncIterable<number>) expect(item).toBe(expected);
    }
  });
});
