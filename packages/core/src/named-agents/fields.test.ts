import { describe, expect, test } from 'vitest';
import { checkInputs, checkNamedAgent, inputSchema, outputSchema, type NamedAgent } from './index.ts';
import { agentOutput } from './result.ts';

function agent(definition: object): NamedAgent {
  const result = checkNamedAgent({ name: 'a', description: 'Does a.', ...definition });
  if (result.type === 'agent') return result.agent;
  throw new Error(JSON.stringify(result.problems));
}

describe('inputs', () => {
  const named = agent({
    inputs: {
      path: { type: 'string', required: true, description: 'Where to look' },
      depth: { type: 'integer', default: 2 },
      mode: { type: 'string', enum: ['fast', 'slow'] },
    },
  });

  test('are described as a JSON Schema', () => {
    expect(inputSchema(named)).toEqual({
      type: 'object',
      properties: {
        path: { type: 'string', description: 'Where to look' },
        depth: { type: 'integer', default: 2 },
        mode: { type: 'string', enum: ['fast', 'slow'] },
      },
      required: ['path'],
    });
  });

  test('that are not given have their defaults', async () => {
    expect(await checkInputs(named, { path: 'src' })).toEqual({ type: 'valid', inputs: { path: 'src', depth: 2 } });
  });

  test.each([
    [{}, [['path', 'path: It is missing (Where to look).']]],
    [{ path: 1 }, [['path', 'path: ']]],
    [
      { path: 'a', depth: 'x', mode: 'medium' },
      [
        ['depth', 'depth: '],
        ['mode', 'mode: '],
      ],
    ],
    [
      { path: 'a', dept: 3 },
      [['dept', 'The agent "a" has no input "dept". Did you mean "depth"? Its inputs are path, depth, mode.']],
    ],
    [
      { dept: 3 },
      [
        ['dept', 'Did you mean "depth"?'],
        ['path', 'It is missing'],
      ],
    ],
    [null, [[undefined, 'must be an object']]],
    [['a'], [[undefined, 'must be an object']]],
  ] as const)('names each problem of %j', async (given, expected) => {
    const checked = await checkInputs(named, given);
    const problems = checked.type === 'invalid' ? checked.problems : [];
    expect(problems.map(({ input }) => input)).toEqual(expected.map(([input]) => input));
    for (const [index, [, message]] of expected.entries()) expect(problems[index]!.message).toContain(message);
  });

  test('can be a JSON Schema', async () => {
    const schema = { type: 'object', properties: { n: { type: 'number', minimum: 1, default: 7 } }, required: ['n'] };
    const other = agent({ inputs: schema });
    expect(inputSchema(other)).toEqual(schema);
    expect(await checkInputs(other, {})).toEqual({ type: 'valid', inputs: { n: 7 } });
    expect(await checkInputs(other, { n: 0, more: 1 })).toMatchObject({ type: 'invalid', problems: [{ input: 'n' }] });
  });

  test('of an agent that describes none can be anything', async () => {
    expect(await checkInputs(agent({}), { task: 'x', y: [1] })).toEqual({
      type: 'valid',
      inputs: { task: 'x', y: [1] },
    });
  });
});

describe('the output of an answer', () => {
  const named = agent({ outputs: { summary: { type: 'string' }, score: { type: 'number' } } });

  test.each([
    ['{"summary": "x", "score": 1}', { summary: 'x', score: 1 }],
    ['```json\n{"summary": "x"}\n```', { summary: 'x' }],
    ['Here it is:\n```json\n{"summary": "x"}\n```\nDone.', { summary: 'x' }],
    ['\uFEFF{"summary": "x"}', { summary: 'x' }],
    ['Just a text.', { summary: 'Just a text.' }],
    ['{"summary": "cut', { summary: '{"summary": "cut' }],
    ['["a"]', { summary: ['a'] }],
    ['42', { summary: 42 }],
    ['', { summary: '' }],
  ])('of %j', (text, output) => {
    expect(agentOutput(named, { text })).toEqual(output);
  });

  test('is under "result" without outputs, and under the first property of a schema', () => {
    expect(agentOutput(agent({}), { text: 'x' })).toEqual({ result: 'x' });
    const schema = { type: 'object', properties: { first: {}, second: {} } };
    expect(agentOutput(agent({ outputs: schema }), { text: 'x' })).toEqual({ first: 'x' });
  });

  test('has a schema if the agent describes it', () => {
    expect(outputSchema(agent({}))).toBeUndefined();
    expect(outputSchema(agent({ outputs: {} }))).toBeUndefined();
    expect(outputSchema(named)).toMatchObject({ properties: { summary: { type: 'string' } } });
  });
});
