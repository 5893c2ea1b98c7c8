import type { Policy } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look, pick, put, remove } from '../tools.ts';
import { recordRequest } from '../world.ts';

const policy: Policy = {
  judge: (calls) =>
    calls.map(({ name, input }) => {
      const { what } = input as { what: string };
      if (what === 'forbidden') return { type: 'deny', reason: 'It is forbidden.' };
      return name === 'remove' ? { type: 'ask', reason: 'It removes.', ttlMs: 86_400_000 } : { type: 'allow' };
    }),
};

/** Parallel calls of every effect class under a policy, with approvals and a client call. */
export const calls: Scenario = {
  name: 'calls, verdicts, approvals and a client',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          text: 'All at once.',
          calls: [
            ['look', { what: 'a' }],
            ['put', { what: 'a' }],
            ['book', { what: 'a' }],
            ['remove', { what: 'kept' }],
            ['remove', { what: 'a' }],
            ['remove', { what: 'forgotten' }],
            ['look', { what: 'forbidden' }],
            ['pick', { what: 'a' }],
            ['nothing', {}],
          ],
        },
        't2.model.0': { calls: [['book', { what: 'b' }]] },
        't3.model.0': 'All is done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [look(life), put(life), book(life), remove(life), pick],
    policy,
    maxParallel: 2,
    input: 'Do all of it.',
  }),
  decide: ({ arguments: text }) => {
    if (text.includes('kept')) return 'deny';
    return text.includes('forgotten') ? 'expire' : 'approve';
  },
  interrupted: { 'run/t1.tool.2': ['4', '5'], 'run/t1.tool.4': ['8'], 'run/t2.tool.0': ['13'] },
};
