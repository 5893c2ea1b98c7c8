import { expect, test } from 'vitest';
import { z } from 'zod';
import { forkRun } from '../journal/fork.ts';
import { textOf } from '../messages.ts';
import { policy } from '../policy/policy.ts';
import type { Skill } from '../skills/skill.ts';
import { memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { defineAgent, type AgentDefinition } from './define.ts';
import { executeAgent } from './execute.ts';

const skill = (name: string, more: Partial<Skill> = {}): Skill => ({
  name,
  description: name,
  text: `Text of ${name}.`,
  folder: `/skills/${name}`,
  files: [],
  invocation: 'both',
  execution: 'inline',
  dependencies: [],
  status: 'active',
  ...more,
});

const ANSWER: ScriptStep = { calls: [{ name: 'answer', arguments: { output: 1 } }] };
const helper = (name: string) => ({ definition: { name, description: name }, handler: () => name });

function agentWith(model: ReturnType<typeof scriptedModel>, more: Partial<AgentDefinition<undefined, number>> = {}) {
  return defineAgent({
    name: 'worker',
    description: 'Works',
    model,
    prompts: { user: 'Review it.' },
    tools: {
      helpers: ['read', 'write', 'grep'].map(helper),
      output: { name: 'answer', description: 'The answer' },
    },
    validation: { outputSchema: z.number(), maxAttempts: 1 },
    ...more,
  } as AgentDefinition<undefined, number>);
}

const offered = (model: ReturnType<typeof scriptedModel>): readonly (readonly string[])[] =>
  model.requests.map(({ tools }) => tools.map(({ name }) => name));

test('skills are active from the first turn on, with those that they depend on, and are told to the model', async () => {
  const model = scriptedModel([{ calls: [{ name: 'write' }] }, ANSWER]);
  const review = skill('review', { allowedTools: ['Read', 'Grep'], dependencies: ['style'], text: 'For $ARGUMENTS' });
  const agent = agentWith(model, { skills: [review, skill('style', { invocation: 'model' })] });
  const result = await executeAgent(agent, { input: undefined, skills: [skill('own', { disallowedTools: ['grep'] })] });
  expect(result).toMatchObject({ type: 'success', output: 1 });
  const [first] = model.requests[0]!.messages;
  const told = textOf(first!.content as never);
  expect(told).toMatch(/^Review it\.\n\nThe skill "style" is active\./);
  expect(told).toContain('- Allowed tools: read, grep');
  expect(told).toContain('For Review it.');
  expect(told).toContain('Text of own.');
  expect(offered(model)).toEqual([
    ['read', 'answer'],
    ['read', 'answer'],
  ]);
  expect(JSON.stringify(result.messages)).toContain('The tool \\"write\\" is not allowed here.');
});

test('what narrows an execution is recorded when it starts, and kept by a resume and a fork', async () => {
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: [{ name: 'read' }] }, ANSWER]);
  const agent = agentWith(model, { narrow: { without: ['grep'] }, skills: [skill('review')] });
  const detach = new AbortController();
  const paused = await executeAgent(agent, {
    input: undefined,
    journal,
    runId: 'r',
    narrow: [{ source: 'plan', without: ['write'] }],
    detach: detach.signal,
    onItem: (item) => item.type === 'fact' && item.event.type === 'tool-settled' && detach.abort(),
  });
  expect(paused).toMatchObject({ type: 'failure', error: { code: 'EXECUTION_PAUSED' } });
  const [first] = await journal.read('r');
  expect(first!.event).toMatchObject({
    narrow: [{ without: ['grep'] }, { source: 'plan' }, { source: 'skill:review' }],
  });

  // The code that resumes it has neither.
  const free = agentWith(scriptedModel([]));
  const resumed = await executeAgent(free, { input: undefined, journal, runId: 'r', model });
  expect(resumed).toMatchObject({ type: 'success' });
  const fork = await forkRun({ journal, runId: 'r', at: 2, changes: { instructions: 'Other.' } });
  const forked = scriptedModel([ANSWER]);
  await executeAgent(free, { input: undefined, journal, runId: fork, model: forked });
  expect([...offered(model), ...offered(forked)]).toEqual(Array.from({ length: 3 }, () => ['read', 'answer']));
});

test.each<[string, Partial<AgentDefinition<undefined, number>>, string]>([
  ['a skill that is missing', { skills: [skill('a', { dependencies: ['b'] })] }, 'There is no skill "b"'],
  ['a skill that is disabled', { skills: [skill('a', { status: 'disabled' })] }, 'The skill "a" is disabled.'],
  ['a narrowing that is malformed', { narrow: { tols: [] } as never }, '"narrow" is'],
])('rejects %s', async (_, more, message) => {
  const model = scriptedModel([]);
  await expect(executeAgent(agentWith(model, more), { input: undefined })).rejects.toThrow(message);
  expect(model.requests).toEqual([]);
});

test('the autonomy of a skill limits the iterations, as the policy says', async () => {
  const model = scriptedModel(Array.from({ length: 9 }, () => ({ calls: [{ name: 'read' }] })));
  const agent = agentWith(model, { skills: [skill('careful', { autonomy: 0 })] });
  const started: number[] = [];
  const result = await executeAgent(agent, {
    input: undefined,
    policy: policy({ autonomy: 3 }),
    callbacks: { onAttemptStart: ({ maxIterations }) => void started.push(maxIterations) },
  });
  expect(result).toMatchObject({ type: 'failure', error: { code: 'MAX_ITERATIONS' } });
  expect([model.requests.length, started]).toEqual([5, [5]]);
});
