import { agentTool, type Policy, type Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, endless, look, pick, put, remove } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

const policy: Policy = {
  judge: (calls) => calls.map(({ name }) => ({ type: name === 'remove' ? 'ask' : 'allow' })),
};

function helper(life: Life): Tool {
  return agentTool({
    name: 'helper',
    description: 'Helps',
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['book', { what: 'inside' }],
            ['put', { what: 'inside' }],
            ['remove', { what: 'inside' }],
          ],
        },
        't2.model.0': { calls: [['pick', { what: 'inside' }]] },
        't3.model.0': { calls: [['book', { what: 'after all' }]] },
        't4.model.0': 'Helped.',
      },
      { id: 'small', onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life), put(life), remove(life), pick],
    policy,
  });
}

/** A child run that waits for an approval, parallel to a call with the effect `once`. */
export const child: Scenario = {
  name: 'a child that waits for an approval and for a client',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['helper', { task: 'Help.' }],
            ['book', { what: 'outside' }],
          ],
        },
        't2.model.0': { calls: [['look', { what: 'it' }]] },
        't3.model.0': 'Done, with help.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [helper(life), book(life), look(life)],
    limits: { tokens: 10_000 },
    input: 'Get help.',
  }),
  interrupted: {
    'run/t1.tool.1': ['2/0', '2/1', '3/1', '3/2', '3/3', '3/4', '3/5'],
    'run.t1.tool.0/t1.tool.0': ['3/3', '4/3'],
    'run.t1.tool.0/t1.tool.2': ['6/6'],
    'run.t1.tool.0/t3.tool.0': ['8/12'],
  },
};

/** A child of a child: both parents report what it waits for, and pass the answer on. */
export const grandchild: Scenario = {
  name: 'a child of a child whose approval is denied',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const inner = agentTool({
      name: 'inner',
      description: 'Helps the helper',
      model: keyedModel(
        { 't1.model.0': { calls: [['remove', { what: 'deep' }]] }, 't2.model.0': 'Not removed.' },
        { onAsk },
      ),
      tools: [remove(life)],
      policy,
    });
    const middle = agentTool({
      name: 'middle',
      description: 'Helps',
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['book', { what: 'deep' }],
              ['inner', { task: 'Help the helper.' }],
            ],
          },
          't2.model.0': 'Passed on.',
        },
        { onAsk },
      ),
      tools: [book(life), inner],
    });
    return {
      model: keyedModel(
        { 't1.model.0': { calls: [['middle', { task: 'Help.' }]] }, 't2.model.0': 'So be it.' },
        { onAsk },
      ),
      tools: [middle],
      input: 'Get help.',
    };
  },
  decide: () => 'deny',
  interrupted: { 'run.t1.tool.0/t1.tool.0': ['3/2/0', '3/2/1', '3/3/1', '3/3/2', '3/3/3'] },
};

/** The approval that a child waits for expires. */
export const expiring: Scenario = {
  name: 'a child whose approval expires',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const inner = agentTool({
      name: 'inner',
      description: 'Helps',
      model: keyedModel(
        { 't1.model.0': { calls: [['remove', { what: 'it' }]] }, 't2.model.0': 'Nobody said yes.' },
        { onAsk },
      ),
      tools: [remove(life)],
      policy,
    });
    return {
      model: keyedModel(
        { 't1.model.0': { calls: [['inner', { task: 'Help.' }]] }, 't2.model.0': 'So be it.' },
        { onAsk },
      ),
      tools: [inner],
      input: 'Get help.',
    };
  },
  decide: () => 'expire',
  interrupted: {},
};

/** A child that never ends, whose parent is cancelled. */
export const orphaned: Scenario = {
  name: 'a child that is cancelled with its parent',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const cancel = (): void => life.live!.cancel();
    const inner = agentTool({
      name: 'inner',
      description: 'Helps',
      model: keyedModel(
        { 't1.model.0': { calls: [['book', { what: 'it' }]] }, 't2.model.0': { calls: [['endless', { what: 'it' }]] } },
        { onAsk },
      ),
      tools: [book(life), endless(life, cancel)],
    });
    return {
      model: keyedModel({ 't1.model.0': { calls: [['inner', { task: 'Help.' }]] } }, { onAsk }),
      tools: [inner],
      input: 'Get help.',
    };
  },
  abandoned: ['run.t1.tool.0'],
  // In the second case the run has ended, and its child is not resumed.
  interrupted: { 'run.t1.tool.0/t1.tool.0': ['3/2', '4/2'] },
};
