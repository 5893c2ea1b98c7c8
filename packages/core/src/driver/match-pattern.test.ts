import { expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { defineAgent } from '../agents/define.ts';
import { executeAgent } from '../agents/execute.ts';
import { memoryJournal, scriptedModel } from '../testing/index.ts';
import { registry } from '../tools/registry.ts';
import { tool } from '../tools/tool.ts';
import { runLoop } from './run.ts';

/** `RegExp` would not return. */
const HOSTILE = `${'a'.repeat(60)}!`;
const text = { type: 'string', pattern: '^(a+)+$' } as const;
const act = tool({
  name: 'act',
  description: 'act',
  input: { type: 'object', properties: { text } },
  output: { type: 'object', properties: { result: text } },
  execute: ({ text: given }) => ({ result: given }),
});
const callAct = { calls: [{ name: 'act', arguments: { text: HOSTILE } }] };

/** A matcher that records what it is asked, and answers in turn. */
function recording(...answers: readonly boolean[]) {
  const asked: string[][] = [];
  const matchPattern = (...one: [string, string]): boolean => answers[asked.push(one) - 1] ?? true;
  return { asked, matchPattern };
}

const ASKED = [text.pattern, HOSTILE];

test('the matcher of the run decides about arguments and outputs of tools', async () => {
  const { asked, matchPattern } = recording(false, true, false, true, true);
  using model = scriptedModel([callAct, callAct, callAct, 'Done.']);
  const result = await runLoop({ model, tools: [act], input: 'Go.', matchPattern });
  expect(resultTexts(result)).toEqual([
    expect.stringContaining('text: String does not match pattern'),
    expect.stringContaining('result: String does not match pattern'),
    JSON.stringify({ result: HOSTILE }),
  ]);
  expect(asked).toEqual([ASKED, ASKED, ASKED, ASKED, ASKED]);
});

test('a matcher that throws makes the value invalid', async () => {
  using model = scriptedModel([callAct, 'Done.']);
  const matchPattern = (): never => {
    throw new Error('it takes too long');
  };
  const result = await runLoop({ model, tools: [act], input: 'Go.', matchPattern });
  expect(resultTexts(result)).toEqual([expect.stringContaining('the check itself failed: it takes too long')]);
});

test('the matcher of the run decides about its answer', async () => {
  const { asked, matchPattern } = recording(false, true);
  const answer = JSON.stringify(HOSTILE);
  using model = scriptedModel([answer, answer]);
  expect(await runLoop({ model, input: 'Go.', output: text, matchPattern })).toMatchObject({ output: HOSTILE });
  expect(asked).toEqual([ASKED, ASKED]);
});

test('the matcher of the run decides about answers to questions', async () => {
  const { asked, matchPattern } = recording(false, true);
  const ask = tool({
    name: 'ask',
    description: 'asks',
    execute: (_, context) => context.ask({ prompt: 'Which?', schema: text }),
  });
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: [{ name: 'ask' }] }, 'Done.']);
  const run = { model, tools: [ask], journal, runId: 'run', matchPattern };
  const { waiting } = await runLoop({ ...run, input: 'Go.' });
  const answers = [{ type: 'answer', effect: waiting[0]!.effect, value: HOSTILE }] as const;
  await expect(runLoop({ ...run, answers })).rejects.toMatchObject({ code: 'answer-unfit' });
  expect(await runLoop({ ...run, answers })).toMatchObject({ text: 'Done.' });
  expect(asked).toEqual([ASKED, ASKED]);
});

test('the matcher of the run applies to child runs', async () => {
  const { asked, matchPattern } = recording(false);
  const child = agentTool({
    name: 'child',
    description: 'works',
    model: scriptedModel([callAct, 'Worked.']),
    tools: [act],
  });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'Go.' } }] }, 'Done.']);
  await runLoop({ model, tools: [child], input: 'Go.', matchPattern });
  expect(asked).toEqual([ASKED]);
});

test('the matcher of a typed agent decides about its output', async () => {
  const { asked, matchPattern } = recording(false, true, true, true);
  const answer = { calls: [{ name: 'answer', arguments: { output: HOSTILE } }] };
  const agent = defineAgent<unknown, string>({
    name: 'typed',
    description: 'Answers',
    model: scriptedModel([answer, answer]),
    prompts: { user: 'Go.' },
    tools: { output: { name: 'answer', description: 'The answer' } },
    validation: { outputSchema: text, maxAttempts: 2 },
  });
  expect(await executeAgent(agent, { input: undefined, matchPattern })).toMatchObject({ output: HOSTILE });
  expect(asked.length).toBeGreaterThan(1);
});

test('the matcher of a registry call decides about its arguments', async () => {
  const { asked, matchPattern } = recording(false);
  const tools = registry();
  tools.register(act, 'test');
  expect(await tools.execute('act', { text: HOSTILE }, { matchPattern })).toMatchObject({ isError: true });
  expect(asked).toEqual([ASKED]);
});
