import { describe, expect, test } from 'vitest';
import { approve } from '../driver/make-answer.ts';
import { memoryJournal } from '../journal/memory.ts';
import { textOf } from '../messages.ts';
import type { ModelRequest } from '../model.ts';
import { policy } from '../policy/policy.ts';
import { scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { agentChange, agentRegistry, agentRuntime, pinnedAgent, type AgentRuntimeOptions } from './index.ts';

const look = tool({ name: 'look', description: 'Looks', effect: 'pure', touches: () => [], execute: () => 'seen' });
const act = tool({ name: 'act', description: 'Acts', touches: () => [], needsApproval: true, execute: () => 'acted' });
const plain = { enable_double_confirmation: false };

const call = (name: string, args: object = name.startsWith('agent_') ? { task: 'go' } : {}): ScriptStep => ({
  calls: [{ name, arguments: args }],
});

function runtimeOf(
  definitions: readonly object[],
  models: Readonly<Record<string, ReturnType<typeof scriptedModel>>>,
  options: Partial<AgentRuntimeOptions> = {},
): ReturnType<typeof agentRuntime> {
  const registry = agentRegistry(definitions.map((one) => ({ description: 'Helps.', ...one })));
  return agentRuntime({ registry, model: (name) => models[name ?? 'main']!, tools: [look, act], ...options });
}

/** The texts of the last results that a model got. */
function lastResults({ requests }: { readonly requests: readonly ModelRequest[] }): readonly string[] {
  const last = requests.at(-1)!.messages.findLast(({ role }) => role === 'tool');
  return last?.role === 'tool' ? last.content.map(({ content }) => textOf(content)) : [];
}

describe('an agent as a tool', () => {
  test('is a child run with the inputs as JSON, and its answer is the result', async () => {
    using main = scriptedModel([call('agent_helper', { what: 'x' }), 'Done.']);
    using helper = scriptedModel([call('look'), '{"found": "y"}', '{"found": "y"}']);
    const journal = memoryJournal();
    const definitions = [
      { name: 'boss', tools: ['agent:helper'] },
      {
        name: 'helper',
        model: 'helper',
        tools: ['look'],
        inputs: { what: { type: 'string', required: true }, deep: { type: 'boolean', default: true } },
        outputs: { found: { type: 'string', required: true } },
      },
    ];
    const runtime = runtimeOf(definitions, { main, helper }, { environment: { journal } });
    const result = await runtime.invokeIterative('boss', {}, { ...plain, runId: 'r' });
    expect(result).toMatchObject({ output: { result: 'Done.' }, tools_used: ['agent_helper'], tool_calls_made: 2 });
    expect(main.requests[0]!.tools).toMatchObject([
      { name: 'agent_helper', parameters: { properties: { what: { type: 'string' } }, required: ['what'] } },
    ]);
    expect(helper.requests[0]!.messages).toMatchObject([{ content: [{ text: '{"deep":true,"what":"x"}' }] }]);
    expect(lastResults(main)).toEqual(['{"found": "y"}']);
    expect(await pinnedAgent(journal, 'r.t1.tool.0')).toMatchObject({ name: 'helper', model: 'helper' });
  });

  test('gets its inputs checked', async () => {
    using main = scriptedModel([call('agent_helper', { wat: 1 }), 'Done.']);
    const helper = { name: 'helper', inputs: { what: { type: 'string' } } };
    const runtime = runtimeOf([{ name: 'boss', dependencies: ['helper'] }, helper], { main });
    await runtime.invokeIterative('boss', {}, plain);
    expect(lastResults(main)).toEqual([expect.stringContaining('Did you mean "what"?')]);
  });

  test('is under the governance of its caller, and under its own', async () => {
    const reads = { ...look, touches: () => [{ type: 'read', path: 'b/x' } as const] };
    const models = (): Parameters<typeof runtimeOf>[1] => ({
      main: scriptedModel([call('agent_helper'), 'Done.']),
      helper: scriptedModel([call('look'), 'Done.', 'Done.']),
    });
    for (const [boss, helper] of [
      [{ governance: { paths: ['a/**'] } }, {}],
      [{}, { governance: { paths: ['a/**'] } }],
    ]) {
      const used = models();
      const definitions = [
        { name: 'boss', tools: ['agent:helper'], ...boss },
        { name: 'helper', model: 'helper', tools: ['look'], ...helper },
      ];
      const options = { tools: [reads], policy: policy({ autonomy: 3 }) };
      await runtimeOf(definitions, used, options).invokeIterative('boss', {}, plain);
      expect(lastResults(used['helper']!)).toEqual([expect.stringContaining('Only reads of "a/**" are allowed.')]);
    }
  });

  test('that waits is resumed by the definition that its run was started with', async () => {
    const journal = memoryJournal();
    const boss = { name: 'boss', tools: ['agent:helper'] };
    const before = { name: 'helper', model: 'helper', tools: ['act'] };
    using main = scriptedModel([call('agent_helper')]);
    using helper = scriptedModel([call('act')]);
    const first = runtimeOf([boss, before], { main, helper }, { environment: { journal } });
    const { waiting } = await first.invokeIterative('boss', {}, { ...plain, runId: 'r' });
    expect(waiting).toMatchObject([{ type: 'approval', effect: 't1.tool.0/t1.approval.0' }]);
    using later = scriptedModel(['Done.']);
    using latest = scriptedModel(['Acted.', 'Acted.']);
    const after = { ...before, description: 'Changed.', tools: ['look'] };
    const second = runtimeOf([boss, after], { main: later, helper: latest }, { environment: { journal } });
    const done = await second.resume('r', { answers: [approve(waiting[0]!)] });
    expect(done).toMatchObject({ termination_reason: 'completed', tools_used: ['agent_helper'] });
    expect(latest.requests[0]!.instructions).not.toContain('Changed.');
  });
});

describe('agents that call each other in a cycle', () => {
  const ring = (count: number): readonly object[] =>
    Array.from({ length: count }, (_, index) => ({
      name: `a${index}`,
      model: `a${index}`,
      tools: [`agent:a${(index + 1) % count}`],
    }));

  /** Each asks the next one, and passes on what it gets. */
  const asking = (index: number, count: number): ReturnType<typeof scriptedModel> => {
    const step: ScriptStep = ({ messages }) => {
      const last = messages.at(-1)!;
      if (last.role === 'tool') return textOf(last.content[0]!.content);
      return messages.some(({ role }) => role === 'tool') ? 'Done.' : call(`agent_a${(index + 1) % count}`);
    };
    return scriptedModel(Array.from({ length: 200 }, () => step));
  };

  const models = (count: number): Readonly<Record<string, ReturnType<typeof scriptedModel>>> =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`a${index}`, asking(index, count)]));

  test('are cut, and the error says why', async () => {
    const chosen = models(10);
    const result = await runtimeOf(ring(10), chosen).invokeIterative('a0', {}, plain);
    expect(result.termination_reason).toBe('completed');
    const refused = Object.values(chosen).flatMap(({ requests }) =>
      requests.flatMap(({ messages }) => messages.flatMap((one) => (one.role === 'tool' ? one.content : []))),
    );
    expect(refused.find(({ isError }) => isError)).toMatchObject({
      content: [
        {
          text:
            'The agent "a0" was not called: 10 agents are inside each other (a0 > a1 > a2 > a3 > a4 > a5 > a6 > a7 > a8 > a9), ' +
            'and at most 10 may be. Answer without it.',
        },
      ],
    });
  });

  test('are cut by the limits of the outermost run before', async () => {
    const chosen = models(10);
    const bounds = { limits: { calls: 8 } };
    await runtimeOf(ring(10), chosen, { bounds }).invokeIterative('a0', {}, plain);
    const asked = Object.values(chosen).filter(({ requests }) => requests.length > 0);
    expect(asked.length).toBeLessThan(6);
    expect(JSON.stringify(asked.map(({ requests }) => requests))).toContain('tool calls of this run are used up');
  });

  test('can have another depth', async () => {
    const chosen = models(2);
    await runtimeOf(ring(2), chosen, { maxDepth: 3 }).invokeIterative('a0', {}, plain);
    expect(JSON.stringify(Object.values(chosen).map(({ requests }) => requests))).toContain('a0 > a1 > a0)');
  });
});

describe('handing over', () => {
  test('lasts over a pause, although the files have changed', async () => {
    const journal = memoryJournal();
    const desk = { name: 'desk', tools: ['handoff:expert'] };
    const expert = { name: 'expert', model: 'expert', tools: ['act'] };
    using main = scriptedModel([call('hand_off_to_expert')]);
    using other = scriptedModel([call('act')]);
    const models = { main, expert: { ...other, id: 'expert' } };
    const first = runtimeOf([desk, expert], models, { environment: { journal } });
    const { waiting } = await first.invokeIterative('desk', {}, { ...plain, runId: 'r' });
    using later = scriptedModel(['Acted.']);
    const now = { main: scriptedModel([]), expert: { ...later, id: 'expert' } };
    const changed = [
      { ...desk, tools: [] },
      { ...expert, instructions: 'Changed.' },
    ];
    const second = runtimeOf(changed, now, { environment: { journal } });
    const result = await second.resume('r', { answers: [approve(waiting[0]!)] });
    expect(result).toMatchObject({ termination_reason: 'completed', tools_used: ['act', 'hand_off_to_expert'] });
    expect(later.requests[0]!.instructions).not.toContain('Changed.');
  });

  test('continues with the other agent, under the governance of both', async () => {
    const reads = { ...look, touches: () => [{ type: 'read', path: 'b/x' } as const] };
    using main = scriptedModel([call('hand_off_to_expert')]);
    using expert = scriptedModel([call('look'), 'Denied.', 'Denied.']);
    const definitions = [
      { name: 'desk', tools: ['handoff:expert'] },
      { name: 'expert', model: 'expert', tools: ['look', 'handoff:desk'], governance: { paths: ['a/**'] } },
    ];
    const options = { tools: [reads], policy: policy({ autonomy: 3 }) };
    const models = { main, expert: { ...expert, id: 'expert' } };
    const result = await runtimeOf(definitions, models, options).invokeIterative('desk', {});
    expect(result.tools_used).toEqual(['hand_off_to_expert']);
    expect(expert.requests[0]!.instructions).toContain('You are "expert".');
    expect(expert.requests[0]!.tools.map(({ name }) => name)).toEqual(['look', 'hand_off_to_desk']);
    expect(JSON.stringify(expert.requests[1]!.messages)).toContain('agent:expert: reads of \\"b/x\\" are denied');
  });
});

test('says what has changed in a definition', () => {
  const registry = agentRegistry([{ name: 'a', description: 'New.', tools: ['look'] }]);
  const pinned = { name: 'a', description: 'Old.', version: '1', tools: ['look'] };
  expect(agentChange(pinned, registry)).toBe(
    'The definition of the agent "a" has changed (description, version). The run keeps the definition that it was started with.',
  );
  expect(agentChange(registry.get('a')!, registry)).toBeUndefined();
  expect(agentChange({ ...pinned, name: 'b' }, registry)).toContain('The agent "b" does not exist any more.');
});
