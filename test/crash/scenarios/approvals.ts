import type { Policy, Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look, pick, put, remove } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** Level 2 restricts who may approve a removal. */
function policyOf(level: number): Policy {
  return {
    rules: { level },
    withRules: (rules) => policyOf((rules as { level: number }).level),
    judge: (calls) =>
      calls.map(({ name, touches }) => {
        if (name === 'put') return { type: 'ask', reason: 'It writes.', rule: 'paths', shown: { writes: touches } };
        if (name !== 'remove') return { type: 'allow', rule: 'tools' };
        const approvers = level === 1 ? ['ann', 'bob', 'cid'] : ['ann', 'bob'];
        return { type: 'ask', reason: 'It removes.', required: 2, approvers, rule: 'tools' };
      }),
  };
}

/** Declares what it writes. */
const write = (life: Life): Tool => ({
  ...put(life),
  touches: (input) => [{ type: 'write', path: (input as { what: string }).what }],
  permissions: ['file_write'],
});

/** Approvals by several people, for the rest of the run, and under rules that change. */
export const approvals: Scenario = {
  name: 'approvals by several people, grants and other rules',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['remove', { what: 'a' }],
            ['put', { what: 'a' }],
            ['look', { what: 'a' }],
          ],
        },
        't2.model.0': {
          calls: [
            ['put', { what: 'a' }],
            ['put', { what: 'b' }],
          ],
        },
        't3.model.0': { calls: [['book', { what: 'c' }]] },
        't4.model.0': 'All is done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [look(life), write(life), { ...book(life), needsApproval: true }, remove(life)],
    policy: policyOf(life.entries.length === 0 ? 1 : 2),
    input: 'Do all of it.',
  }),
  forRun: ({ arguments: text }) => text.includes('"a"'),
  interrupted: { 'run/t1.tool.0': ['7'], 'run/t3.tool.0': ['18'] },
};

/** A run that was started without a policy, and has calls that have not started when it gets one. */
export const policed: Scenario = {
  name: 'a policy from the second process on',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['pick', { what: 'a' }],
            ['remove', { what: 'a' }],
            ['put', { what: 'a' }],
          ],
        },
        't2.model.0': { calls: [['put', { what: 'a' }]] },
        't3.model.0': 'All is done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [pick, write(life), remove(life)],
    ...(life.entries.length > 0 && { policy: policyOf(2) }),
    parallel: false,
    input: 'Do all of it.',
  }),
  forRun: () => true,
  interrupted: { 'run/t1.tool.1': ['6'] },
};
