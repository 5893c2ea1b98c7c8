import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineAgent } from '../agents/define.ts';
import { executeAgent } from '../agents/execute.ts';
import { forkRun } from '../journal/fork.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { RunFacts } from '../machine/rules.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { runLoop } from './run.ts';

const trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
const facts: RunFacts = { session: 'chat 7', task: 'TRE-12', trace, labels: { team: 'sales', tier: '2' } };

test('the first entry of a run has its session, task, trace and labels, and a fork has them too', async () => {
  const journal = memoryJournal();
  const labels = { ...facts.labels };
  const running = runLoop({ ...facts, labels, model: scriptedModel(['Hi.']), journal, runId: 'run', input: 'Hello' });
  labels['team'] = 'changed later';
  await running;
  const [first] = await journal.read('run');
  expect(first?.event).toMatchObject(facts);
  const fork = await forkRun({ journal, runId: 'run', at: 0 });
  const [copied] = await journal.read(fork);
  expect(copied?.event).toMatchObject(facts);
});

test('a run without them has none of the fields', async () => {
  const journal = memoryJournal();
  await runLoop({ model: scriptedModel(['Hi.']), journal, runId: 'run', input: 'Hello' });
  const [first] = await journal.read('run');
  for (const name of Object.keys(facts)) expect(first?.event).not.toHaveProperty(name);
});

test('a run of a typed agent has them', async () => {
  const journal = memoryJournal();
  const agent = defineAgent({
    name: 'greeter',
    description: 'Greets',
    model: scriptedModel([{ calls: [{ name: 'greet', arguments: { text: 'Hi.' } }] }]),
    prompts: { user: 'Hello' },
    tools: {
      output: {
        name: 'greet',
        description: 'Greets',
      },
    },
    validation: { maxAttempts: 1, outputSchema: z.object({ text: z.string() }) },
  });
  await executeAgent(agent, { ...facts, input: undefined, journal, runId: 'run' });
  const [first] = await journal.read('run');
  expect(first?.event).toMatchObject(facts);
});

test.each([
  ['a session that is not a text', { session: 7 }, 'A run has 7 as "session". Use a text.'],
  ['a trace that is not a traceparent', { trace: 'abc' }, 'trace is "abc". Use a traceparent'],
  ['labels that are not an object', { labels: ['a'] }, 'A run has an array as "labels". Use an object.'],
  ['a label that is not a text', { labels: { tier: 2 } }, 'labels.tier is 2. Use a text.'],
])('rejects %s', async (_, wrong, message) => {
  const run = runLoop({ ...(wrong as RunFacts), model: scriptedModel([]), input: 'Hello' });
  await expect(run).rejects.toMatchObject({ code: 'invalid-options', message: expect.stringContaining(message) });
});
