import { agentTool, type Ledger } from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look, put } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** A ledger that has outlived the earlier processes: every call that they issued is reserved. */
function ledgerOf({ world }: Life, calls: number): Ledger {
  const ledger = memoryBudgets({ all: { calls } }).ledger(['all']);
  for (const item of world.log) {
    if (item.type !== 'entry') continue;
    for (const id of item.entry.issued) {
      const about = { runId: item.runId, effect: 'call-tool', name: '', context: undefined } as const;
      if (id.includes('.tool.')) void ledger.reserve(`${item.runId}/${id}`, { calls: 1 }, about);
    }
  }
  return ledger;
}

/** The ledger refuses the second call of a reply. The call before it has its result, the one after it never starts. */
export const spent: Scenario = {
  name: 'a run whose budget is used up during a turn',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['book', { what: 'a' }],
            ['look', { what: 'a' }],
          ],
        },
        't2.model.0': {
          calls: [
            ['put', { what: 'b' }],
            ['look', { what: 'b' }],
            ['book', { what: 'b' }],
          ],
        },
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life), look(life), put(life)],
    policy: { judge: (calls) => calls.map(() => ({ type: 'allow' })) },
    ledger: ledgerOf(life, 3),
    parallel: false,
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['3'] },
};

/** The child run uses up the budget of both. The calling run continues without another call. */
export const sharedBudget: Scenario = {
  name: 'a child run that uses up the budget of its parent',
  code: (life) => ({
    model: keyedModel(
      { 't1.model.0': { calls: [['helper', { task: 'Book both.' }]] }, 't2.model.0': 'Only one is booked.' },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [
      agentTool({
        name: 'helper',
        description: 'Helps',
        model: keyedModel(
          { 't1.model.0': { calls: [['put', { what: 'a' }]] }, 't2.model.0': { calls: [['put', { what: 'b' }]] } },
          { id: 'inner', onAsk: (request) => recordRequest(life, request) },
        ),
        tools: [put(life)],
      }),
    ],
    ledger: ledgerOf(life, 2),
    input: 'Go.',
  }),
  interrupted: {},
};

/**
 * Every call and the second model call exceed their budgets. People approve the first call and the model call, and deny the
 * second call.
 */
export const exceeding: Scenario = {
  name: 'a run that exceeds its budgets',
  decide: ({ name }) => (name === 'put' ? 'deny' : 'approve'),
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['book', { what: 'a' }],
            ['put', { what: 'a' }],
            ['look', { what: 'a' }],
          ],
        },
        't2.model.0': 'It is booked.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life), look(life), put(life)],
    ledger: escalating(),
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['2', '6'] },
};

/** Asks people about two tools and the model call of the second turn, unless they have approved. */
function escalating(): Ledger {
  const asked = ['run/t1.tool.0', 'run/t1.tool.1', 'run/t2.model.0'];
  return {
    reserve(key, _, { approved }) {
      if (!asked.includes(key) || approved) return { type: 'reserved' };
      return { type: 'escalated', reason: `The budget lacks what ${key} needs.` };
    },
    settle() {},
    release() {},
  };
}
