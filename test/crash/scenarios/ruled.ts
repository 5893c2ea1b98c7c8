import { agentTool, type Tool, type Touch } from '@treadle/core';
import { policy, type RulePolicy } from '@treadle/core/policy';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, put, remove } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** From the second process on, the rules are stricter. */
function rulesFor(life: Life): RulePolicy {
  const denied = life.entries.length === 0 ? [] : ['late/**'];
  const rate = { second: 1000, minute: 1000 };
  return policy({ paths: { deny: ['secret/**', ...denied] }, tools: { remove: 'ask' }, rate }, { folder: '/project' });
}

function touching(tool: Tool, type: 'read' | 'write'): Tool {
  return { ...tool, touches: (input): Touch[] => [{ type, path: (input as { what: string }).what }] };
}

function helper(life: Life): Tool {
  return agentTool({
    name: 'helper',
    description: 'Helps',
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['put', { what: 'inside' }],
            ['put', { what: 'secret/inside' }],
          ],
        },
        't2.model.0': 'Helped.',
      },
      { id: 'small', onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [touching(put(life), 'write')],
    touches: () => [],
  });
}

/** A policy of rules: what asks, denies and allows, grants that answer only asks of the autonomy rule, and a child run. */
export const ruled: Scenario = {
  name: 'a policy of rules that escalates, in a run and in its child run',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['look', { what: 'a' }],
            ['put', { what: 'a' }],
            ['put', { what: 'secret/a' }],
            ['remove', { what: 'a' }],
          ],
        },
        't2.model.0': { calls: [['helper', { task: 'Help.' }]] },
        't3.model.0': {
          calls: [
            ['put', { what: 'a' }],
            ['remove', { what: 'a' }],
            ['put', { what: 'late/a' }],
          ],
        },
        't4.model.0': 'All is done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [touching(look(life), 'read'), touching(put(life), 'write'), touching(remove(life), 'write'), helper(life)],
    policy: rulesFor(life),
    input: 'Do all of it.',
  }),
  forRun: () => true,
  interrupted: { 'run/t1.tool.3': ['8/0'], 'run/t3.tool.1': ['19/6'] },
};

/** An approval needs a second process, and from that on the level allows five turns. */
export const limited: Scenario = {
  name: 'a run that is resumed at a lower level, which has smaller limits',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': { calls: [['look', { what: 'a' }]] },
        't2.model.0': { calls: [['look', { what: 'b' }]] },
        't3.model.0': { calls: [['look', { what: 'c' }]] },
        't4.model.0': { calls: [['look', { what: 'd' }]] },
        't5.model.0': { calls: [['look', { what: 'e' }]] },
        't6.model.0': 'One turn too many.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [{ ...touching(look(life), 'read'), needsApproval: (input) => (input as { what: string }).what === 'a' }],
    policy: policy({ autonomy: life.entries.length === 0 ? 3 : 0 }, { folder: '/project' }),
    input: 'Look at all of it.',
  }),
  interrupted: {},
};
