import { describe, expect, test } from 'vitest';
import { checkNamedAgent, type AgentProblem, type NamedAgent } from './index.ts';

const base = { name: 'a', description: 'Does a.' };

function checked(definition: object): NamedAgent {
  const result = checkNamedAgent({ ...base, ...definition });
  if (result.type === 'agent') return result.agent;
  throw new Error(JSON.stringify(result.problems));
}

function problemsOf(definition: unknown): readonly AgentProblem[] {
  const result = checkNamedAgent(definition);
  return result.type === 'invalid' ? result.problems : [];
}

/** Every field with a good value, what becomes of it, and bad values with a part of what is said about each. */
const FIELDS: { readonly [Key in Exclude<keyof NamedAgent, 'workflow'>]: FieldCases } = {
  name: {
    good: [['code-review_2']],
    bad: [
      ['Code Review', 'lower-case letters'],
      ['', 'lower-case letters'],
      ['../etc', 'lower-case letters'],
      ['__default__', 'lower-case letters'],
      ['validate', 'not "validate"'],
      ['a'.repeat(51), 'up to 50'],
      [7, 'It is 7'],
    ],
  },
  version: {
    good: [['1.2.0'], [1.5, '1.5']],
    bad: [[['1'], 'a text that is not empty']],
  },
  role: { good: [['reviewer']], bad: [[true, 'a text']] },
  description: {
    good: [
      ['Finds\n  mistakes.\u200b', 'Finds mistakes.'],
      ['Half \ud83d.', 'Half .'],
    ],
    bad: [
      ['  ', 'a text that is not empty'],
      ['x'.repeat(1_001), 'It has 1001 characters. Use at most 1000.'],
    ],
  },
  instructions: {
    good: [['Line 1\r\nLine 2\n', 'Line 1\nLine 2']],
    bad: [
      [{}, 'a text'],
      ['x'.repeat(100_001), 'Use at most 100000'],
    ],
  },
  capabilities: {
    good: [[['reads code']], ['reads code, finds bugs', ['reads code', 'finds bugs']]],
    bad: [[3, 'a list of texts']],
  },
  spec_capabilities: { good: [[['P-01', 'V-02']]], bad: [[[1], 'a text', 'spec_capabilities.0']] },
  inputs: {
    good: [
      [{ path: { type: 'string', required: true, description: 'Where' }, depth: { type: 'integer', default: 2 } }],
      [{ type: { type: 'string', enum: ['a', 'b'] } }],
      [{ type: 'object', properties: { n: { type: 'number', minimum: 0 } }, required: ['n'] }],
    ],
    bad: [
      ['path', 'a table of fields'],
      [{ path: 'string' }, 'a table with the keys type', 'inputs.path'],
      [{ path: {} }, 'It is missing.', 'inputs.path.type'],
      [{ path: { type: 'text' } }, 'Use one of string, number', 'inputs.path.type'],
      [{ path: { type: 'strnig' } }, 'Did you mean "string"?', 'inputs.path.type'],
      [{ path: { type: 'string', requird: true } }, 'Did you mean "required"?', 'inputs.path.requird'],
      [{ n: { type: 'integer', default: 'two' } }, 'It does not fit the field', 'inputs.n.default'],
      [{ n: { type: 'string', enum: [] } }, 'a list of allowed values', 'inputs.n.enum'],
      [{ 'a b': { type: 'string' } }, 'cannot be the name of a field', 'inputs.a b'],
      [{ type: 'object', properties: { n: { type: 'nonsense' } } }, 'not a JSON Schema'],
    ],
  },
  outputs: {
    good: [[{ summary: { type: 'string' } }]],
    bad: [[['summary'], 'a table of fields']],
  },
  model: { good: [['main']], bad: [[4, 'a text']] },
  temperature: {
    good: [[0], [1.5]],
    bad: [
      [2.5, 'a number from 0 to 2'],
      ['hot', 'a number from 0 to 2'],
    ],
  },
  tools: {
    good: [
      [['read', 'Bash(git:*)', 'agent:helper', 'handoff:boss']],
      ['Read, Bash(git log:*, git diff:*), grep', ['Read', 'Bash(git log:*, git diff:*)', 'grep']],
      [['*']],
    ],
    bad: [
      [{ read: true }, 'a list of names of tools'],
      [['rm -rf'], 'the name of a tool', 'tools.0'],
      [['agent:Not A Name'], '"agent:NAME"', 'tools.0'],
      [Array.from({ length: 201 }, () => 'read'), 'Use at most 200'],
    ],
  },
  skills: { good: [[['release-notes']]], bad: [[1, 'a list of names of skills']] },
  constraints: {
    good: [
      [
        {
          max_retries: 2,
          timeout_seconds: 0.5,
          max_iterations: 3,
          max_tool_calls_per_iteration: 1,
          max_tokens: 100,
          parallel_allowed: false,
        },
      ],
    ],
    bad: [
      [[], 'a table with the keys max_retries'],
      [{ max_retries: -1 }, 'a whole number from 0 to 10', 'constraints.max_retries'],
      [{ max_retries: 11 }, 'a whole number from 0 to 10', 'constraints.max_retries'],
      [{ timeout_seconds: 0 }, 'a number of seconds above 0', 'constraints.timeout_seconds'],
      [{ max_iterations: 0 }, 'a whole number of at least 1', 'constraints.max_iterations'],
      [{ max_iterations: 1.5 }, 'a whole number of at least 1', 'constraints.max_iterations'],
      [{ max_tool_calls_per_iteration: 0 }, 'of at least 1', 'constraints.max_tool_calls_per_iteration'],
      [{ max_tokens: '1k' }, 'of at least 1', 'constraints.max_tokens'],
      [{ parallel_allowed: 'yes' }, 'true or false', 'constraints.parallel_allowed'],
      [{ max_retry: 1 }, 'Did you mean "max_retries"?', 'constraints.max_retry'],
    ],
  },
  governance: {
    good: [
      [{ commands: ['git status', 'ls'] }, { commands: { allow: ['git status', 'ls'] } }],
      [{ commands: { ask: ['git push'], deny: ['rm'] } }],
      [{ paths: ['src/**'] }, { paths: { read: ['src/**'], write: ['src/**'] } }],
      [{ paths: { read: ['**'], write: ['docs/**'], deny: ['docs/private/**'] } }],
      [{ domains: 'example.com, *.example.org' }, { domains: { allow: ['example.com', '*.example.org'] } }],
      [{ working_dir: './packages/core/' }, { working_dir: 'packages/core' }],
      [{ approvals: ['write', 'Bash(git push:*)'] }],
      [{ scopes: ['tools:execute:read'] }],
    ],
    bad: [
      [{ command: ['ls'] }, 'Did you mean "commands"?', 'governance.command'],
      [{ commands: { allowed: ['ls'] } }, 'one of "allow", "ask", "deny"', 'governance.commands.allowed'],
      [{ commands: { allow: [''] } }, 'not empty', 'governance.commands.allow.0'],
      [{ paths: { read: 'src' } }, 'a list of texts', 'governance.paths.read'],
      [{ domains: { allow: ['not a host'] } }, 'not a host', 'governance.domains.allow.0'],
      [{ working_dir: '/etc' }, 'a folder inside the working folder', 'governance.working_dir'],
      [{ working_dir: '../x' }, 'a folder inside the working folder', 'governance.working_dir'],
      [{ working_dir: 'a/../../x' }, 'a folder inside the working folder', 'governance.working_dir'],
      [{ working_dir: '~/x' }, 'a folder inside the working folder', 'governance.working_dir'],
      [{ working_dir: 'a*' }, 'a folder inside the working folder', 'governance.working_dir'],
      [{ approvals: { write: true } }, 'a list of tools', 'governance.approvals'],
      [{ scopes: ['admin'] }, '"tools:execute"', 'governance.scopes.0'],
    ],
  },
  autonomy_level: {
    good: [['read-only'], ['read_only', 'read-only'], [2, 'bounded']],
    bad: [
      ['suprevised', 'Did you mean "supervised"?'],
      [4, 'Use one of read-only, supervised, bounded, full'],
    ],
  },
  ownership: {
    good: [[{ owner: 'platform', escalation_target: 'on-call' }]],
    bad: [
      ['platform', 'a table with the keys owner'],
      [{}, 'It is missing.', 'ownership.owner'],
    ],
  },
  dependencies: {
    good: [[['helper'], [{ agent: 'helper' }]], [[{ agent: 'helper', optional: true, purpose: 'Looks things up' }]]],
    bad: [
      [[{ purpose: 'x' }], 'It is missing.', 'dependencies.0.agent'],
      [['Not a name'], 'lower-case letters', 'dependencies.0'],
    ],
  },
  memory: { good: [[true], [false]], bad: [['yes', 'true or false']] },
};

interface FieldCases {
  /** A value, and what it becomes if that is something else. */
  readonly good: readonly (readonly [value: unknown, full?: unknown])[];
  /** A value, a part of the message, and the place if it is inside of the value. */
  readonly bad: readonly (readonly [value: unknown, message: string, path?: string])[];
}

describe.each(Object.entries(FIELDS))('%s', (key, { good, bad }) => {
  test.each(good)('accepts %j', (value, full = value) => {
    expect(checked({ [key]: value })[key as keyof NamedAgent]).toEqual(full);
  });

  test.each(bad)('refuses %j', (value, message, path = key) => {
    const [problem, ...others] = problemsOf({ ...base, [key]: value });
    expect(others).toEqual([]);
    expect(problem!.path.join('.')).toBe(path);
    expect(problem!.message).toContain(message);
  });
});

test('names the nearest key, and all keys', () => {
  const [problem] = problemsOf({ ...base, instruction: 'x' });
  expect(problem).toMatchObject({
    path: ['instruction'],
    message: expect.stringContaining('Did you mean "instructions"?'),
  });
  for (const key of Object.keys(FIELDS)) expect(problem!.message).toContain(key);
});

test('demands a name and a description', () => {
  expect(problemsOf({}).map(({ path }) => path)).toEqual([['name'], ['description']]);
});

test('reports all problems at once', () => {
  expect(problemsOf({ ...base, temperature: 9, memory: 1, tools: ['a b'] })).toHaveLength(3);
});

test.each([
  [null, 'not a table'],
  [[], 'not a table'],
  ['text', 'not a table'],
  [{ ...base, temperature: Infinity }, 'JSON does not have'],
  [{ ...base, capabilities: Array.from({ length: 190 }, () => 'x'.repeat(1_100)) }, 'more than 200000 characters'],
])('refuses what is not a definition: %#', (value, message) => {
  expect(problemsOf(value)).toMatchObject([{ path: [], message: expect.stringContaining(message) }]);
});

test('a key without a value is not set', () => {
  expect(checked({ tools: null, constraints: { max_tokens: null } })).toEqual({ ...base, constraints: {} });
});

test.each([
  [{ governance: null }, 'governance'],
  [{ governance: { commands: null } }, 'governance.commands'],
  [{ governance: { working_dir: null } }, 'governance.working_dir'],
  [{ autonomy_level: null }, 'autonomy_level'],
])('refuses %j, because a restriction without a value would restrict nothing', (definition, place) => {
  const [problem, ...others] = problemsOf({ ...base, ...definition });
  expect(others).toEqual([]);
  expect([problem!.path.join('.'), problem!.message]).toEqual([
    place,
    'It has no value. Give it one, or remove the key.',
  ]);
});

test('warns about what has no effect', () => {
  const result = checkNamedAgent({
    ...base,
    governance: { commands: ['a | b'], approvals: ['write'] },
  });
  expect(result.type === 'agent' && result.warnings.map(({ path }) => path.join('.'))).toEqual([
    'governance.commands',
    'governance.approvals',
    'governance.commands',
  ]);
});
