import { describe, expect, test } from 'vitest';
import { policy } from '../policy/policy.ts';
import type { PolicyRules } from '../policy/rules.ts';
import type { Touch } from '../policy/port.ts';
import { scriptedModel } from '../testing/index.ts';
import { tool, type Tool } from '../tools/tool.ts';
import { agentNarrowings, agentRun, checkNamedAgent, type AgentHost, type NamedAgent } from './index.ts';

const model = scriptedModel([]);

function agent(definition: object = {}): NamedAgent {
  const result = checkNamedAgent({ name: 'a', description: 'Does a.', ...definition });
  if (result.type === 'agent') return result.agent;
  throw new Error(JSON.stringify(result.problems));
}

const named = (name: string, touches: readonly Touch[] = []): Tool =>
  tool({ name, description: name, effect: 'pure', touches: () => touches, execute: () => 'done' });

const TOOLS = ['read', 'grep', 'write', 'bash', 'background_write'].map((name) => named(name));
const host: AgentHost = { model: () => model, tools: TOOLS, policy: policy({ autonomy: 3 }) };

const toolNames = (definition: object): readonly string[] =>
  agentRun(agent(definition), {}, host).tools!.map(({ name }) => name);

describe('tools', () => {
  test('are those that the definition names', () => {
    expect(toolNames({})).toEqual([]);
    expect(toolNames({ tools: ['write', 'Read'] })).toEqual(['read', 'write']);
    expect(toolNames({ tools: ['*'] })).toEqual(['read', 'grep', 'write', 'bash', 'background_write']);
    expect(toolNames({ tools: 'Bash(git:*)' })).toEqual(['bash', 'background_write']);
  });

  test('that the host does not have are an error with the nearest name', () => {
    expect(() => toolNames({ tools: ['wirte'] })).toThrow(
      'The agent "a" cannot run here: there is no tool "wirte". Did you mean "write"? The tools are read, grep,',
    );
    expect(() => toolNames({ tools: ['agent:b'] })).toThrow('its tools have "agent:b", and there is no agent "b".');
    expect(() => toolNames({ tools: ['handoff:b'] })).toThrow('its tools have "handoff:b", and there is no agent "b".');
    expect(() => toolNames({ dependencies: ['b'] })).toThrow('it depends on the agent "b", which does not exist.');
    expect(toolNames({ dependencies: [{ agent: 'b', optional: true }] })).toEqual([]);
  });

  test('a single call has none', () => {
    expect(agentRun(agent({ tools: ['read'] }), { mode: 'single' }, host)).toMatchObject({
      tools: [],
      maxTurns: 1,
      finish: 'plain',
    });
  });
});

describe('bounds', () => {
  const run = (constraints: object, options: object = {}, bounds: object = {}): object =>
    agentRun(agent({ tools: ['read'], constraints }), { options }, { ...host, bounds });

  test('have the defaults of the agents API', () => {
    expect(run({})).toMatchObject({
      maxTurns: 20,
      maxCallsPerTurn: 5,
      errorLimit: 3,
      repeatLimit: 3,
      toolTimeoutMs: 60_000,
      finish: 'confirm',
    });
  });

  test.each([
    ['the definition', { max_iterations: 3, max_tool_calls_per_iteration: 2, timeout_seconds: 5 }, {}, {}],
    [
      'the definition, if the request is laxer',
      { max_iterations: 3, max_tool_calls_per_iteration: 2, timeout_seconds: 5 },
      { max_iterations: 50, max_tool_calls_per_iteration: 50 },
      {},
    ],
    [
      'the request, if it is stricter',
      { max_iterations: 9, max_tool_calls_per_iteration: 9, timeout_seconds: 5 },
      { max_iterations: 3, max_tool_calls_per_iteration: 2 },
      {},
    ],
    [
      'the host, if it is stricter',
      { max_iterations: 9, max_tool_calls_per_iteration: 9, timeout_seconds: 9 },
      { max_iterations: 8, max_tool_calls_per_iteration: 8 },
      { maxTurns: 3, maxCallsPerTurn: 2, limits: { durationMs: 5_000 } },
    ],
  ])('are those of %s', (_, constraints, options, bounds) => {
    expect(run(constraints, options, bounds)).toMatchObject({
      maxTurns: 3,
      maxCallsPerTurn: 2,
      limits: { durationMs: 5_000 },
    });
  });

  test('a request can raise the defaults, and not the bounds of the host', () => {
    const options = {
      max_iterations: 50,
      error_threshold: 9,
      loop_detection_threshold: 9,
      tool_call_timeout_seconds: 90,
      enable_double_confirmation: false,
    };
    expect(run({}, options)).toMatchObject({
      maxTurns: 50,
      errorLimit: 9,
      repeatLimit: 9,
      toolTimeoutMs: 90_000,
      finish: 'plain',
    });
    const bounds = { maxTurns: 4, errorLimit: 2, repeatLimit: 0, toolTimeoutMs: 1_000, limits: { tokens: 10 } };
    expect(run({}, options, bounds)).toMatchObject({
      maxTurns: 4,
      errorLimit: 2,
      repeatLimit: 9,
      toolTimeoutMs: 1_000,
      limits: { tokens: 10 },
    });
  });

  test('max_tokens, parallel_allowed and the facts of the request', () => {
    expect(
      agentRun(
        agent({ constraints: { max_tokens: 9, parallel_allowed: false } }),
        {
          options: { task_id: 't', session_id: 's' },
        },
        host,
      ),
    ).toMatchObject({
      settings: { maxOutputTokens: 9, temperature: 0.7 },
      parallel: false,
      task: 't',
      session: 's',
      labels: { agent: 'a', 'agent-chain': 'a' },
    });
  });
});

describe('temperature', () => {
  const settings = (definition: object, of: object, options: object = {}): object | undefined =>
    agentRun(agent(definition), { options }, { ...host, model: () => ({ ...model, ...of }) }).settings;

  test('is 0.7 for models that take one', () => {
    expect(settings({}, {})).toEqual({ temperature: 0.7 });
    expect(settings({ temperature: 0 }, {})).toEqual({ temperature: 0 });
    expect(settings({ temperature: 0 }, {}, { temperature: 1 })).toEqual({ temperature: 1 });
    expect(settings({}, { takes: ['maxOutputTokens'] })).toEqual({});
    expect(settings({}, { omits: () => ['temperature'] })).toEqual({});
  });
});

describe('governance', () => {
  /** What the policy of the host and the narrowings of an agent say about a call. */
  async function verdict(definition: object, touch: Touch, rules: PolicyRules = { autonomy: 3 }): Promise<string> {
    const judge = policy(rules, { folder: '/work' });
    const all = [
      judge,
      ...agentNarrowings(agent(definition)).map((one) => judge.withRules({ autonomy: 3, ...one.rules })),
    ];
    const verdicts = await Promise.all(
      all.map((one) =>
        one.judge(
          [
            {
              id: '1',
              name: 'read',
              input: {},
              effect: 'pure',
              client: false,
              touches: [touch],
              permissions: [],
              operation: undefined,
            },
          ],
          { runId: 'r', turn: 1, context: undefined, signal: new AbortController().signal },
        ),
      ),
    );
    const types = verdicts.map(([one]) => one!.type);
    return types.includes('deny') ? 'deny' : types.includes('ask') ? 'ask' : 'allow';
  }

  const read = (path: string): Touch => ({ type: 'read', path });
  const write = (path: string): Touch => ({ type: 'write', path });
  const url = (host_: string): Touch => ({ type: 'url', url: `https://${host_}/` });

  test.each<[object, Touch, string]>([
    [{ paths: { read: ['src/**'] } }, read('src/a.ts'), 'allow'],
    [{ paths: { read: ['src/**'] } }, read('docs/a.md'), 'deny'],
    [{ paths: { read: ['src/**'] } }, read('/etc/passwd'), 'deny'],
    [{ paths: { read: ['src/**'] } }, write('docs/a.md'), 'allow'],
    [{ paths: { write: ['src/**'] } }, write('docs/a.md'), 'deny'],
    [{ paths: { write: [] } }, write('src/a.ts'), 'deny'],
    [{ paths: { deny: ['src/private/**'] } }, read('src/private/a'), 'deny'],
    [{ working_dir: 'src' }, read('src/a.ts'), 'allow'],
    [{ working_dir: 'src' }, read('src'), 'allow'],
    [{ working_dir: 'src' }, read('a.ts'), 'deny'],
    [{ working_dir: 'src' }, write('src/../a.ts'), 'deny'],
    [{ working_dir: 'src', paths: { read: ['lib/**', '/etc/**'] } }, read('src/lib/a'), 'allow'],
    [{ working_dir: 'src', paths: { read: ['lib/**', '/etc/**'] } }, read('lib/a'), 'deny'],
    [{ working_dir: 'src', paths: { read: ['lib/**', '/etc/**'] } }, read('/etc/a'), 'deny'],
    [{ domains: ['example.com'] }, url('example.com'), 'allow'],
    [{ domains: ['example.com'] }, url('example.org'), 'deny'],
    [{ domains: { deny: ['example.com'] } }, url('example.com'), 'deny'],
    [{ domains: { ask: ['example.com'] } }, url('example.com'), 'ask'],
    [{ domains: ['*'] }, url('example.org'), 'allow'],
    [{ domains: { allow: ['*'], deny: ['example.org'] } }, url('example.org'), 'deny'],
    [{ commands: { deny: ['rm'] } }, { type: 'command', command: 'rm x' }, 'deny'],
    [{ commands: ['ls'] }, { type: 'command', command: 'pwd' }, 'deny'],
    [{ commands: ['*'] }, { type: 'command', command: 'pwd' }, 'allow'],
  ])('%j makes %j: %s', async (governance, touch, expected) => {
    expect(await verdict({ tools: ['*'], governance }, touch)).toBe(expected);
  });

  test('never allows more than the host', async () => {
    const strict: PolicyRules = { autonomy: 3, paths: { deny: ['**'] }, domains: { deny: ['*'] } };
    const lax = { paths: ['**'], domains: ['example.com'] };
    expect(await verdict({ tools: ['*'], governance: lax, autonomy_level: 'full' }, read('a'), strict)).toBe('deny');
    expect(await verdict({ tools: ['*'], governance: lax }, url('example.com'), strict)).toBe('deny');
    expect(await verdict({ tools: ['*'], autonomy_level: 'full' }, write('a'), { autonomy: 1 })).toBe('ask');
  });

  test('is recorded as narrowings that nobody can lift', () => {
    const { narrow } = agentRun(
      agent({
        tools: ['Bash(git:*)', 'write'],
        autonomy_level: 'supervised',
        governance: {
          commands: ['git', 'ls'],
          working_dir: 'src',
          approvals: ['write', 'Bash(git push:*)'],
          scopes: ['tools:execute:bash'],
        },
      }),
      { options: { autonomy_level: 'read-only' } },
      host,
    );
    const ours = { source: 'agent:a', fixed: true };
    expect(narrow).toEqual([
      {
        ...ours,
        ask: ['write'],
        rules: { commands: { allow: ['git'], ask: ['git push'], deny: ['*'] } },
      },
      {
        ...ours,
        autonomy: 1,
        rules: { commands: { allow: ['git', 'ls'], deny: ['*'] } },
        tools: ['bash'],
      },
      {
        ...ours,
        rules: { paths: { read: ['src/**'], write: ['src/**'], only: ['read', 'write'] } },
        defaults: { bash: { workdir: 'src' }, glob: { path: 'src' }, grep: { path: 'src' } },
      },
      { ...ours, autonomy: 0 },
    ]);
  });

  test('is refused by a host that could not enforce it', () => {
    const { policy: _, ...without } = host;
    for (const definition of [{ governance: { paths: ['src/**'] } }, { autonomy_level: 'read-only' }]) {
      expect(() => agentRun(agent({ tools: ['read'], ...definition }), {}, without)).toThrow('enforced by a policy');
    }
    expect(agentRun(agent({ tools: ['read'], autonomy_level: 'full' }), {}, without).tools).toHaveLength(1);
    expect(agentRun(agent({ governance: { paths: ['src/**'] } }), {}, without).narrow).toBeUndefined();
  });
});

test('skills are active from the start', () => {
  const skill = {
    name: 'notes',
    description: 'Writes notes.',
    text: 'Write short notes.',
    folder: '/skills/notes',
    files: [],
    disallowedTools: ['write'],
    invocation: 'both',
    execution: 'inline',
    dependencies: [],
    status: 'active',
  } as const;
  const run = agentRun(agent({ tools: ['read', 'write'], skills: ['notes'] }), {}, { ...host, skills: [skill] });
  expect(run.instructions).toMatch(/# Skills\nThe skill "notes" is active[^]*Write short notes\.$/);
  expect(run.narrow).toEqual([{ source: 'skill:notes', without: ['write'] }]);
  expect(() => agentRun(agent({ skills: ['note'] }), {}, { ...host, skills: [skill] })).toThrow(
    'Did you mean "notes"?',
  );
});
