import { agentTool, tool, type Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, WHAT } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

const DAY = 86_400_000;

/** Asks twice, then acts. */
const reserve = (life: Life): Tool =>
  tool({
    name: 'reserve',
    description: 'reserve',
    input: WHAT,
    execute: async ({ what }, { ask, key }) => {
      const seat = await ask({ prompt: `Which seat for ${String(what)}?`, choices: ['aisle', 'window'] });
      const sure = await ask(`Really ${seat}?`);
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'reserve', effect: 'once' });
      return `reserved ${seat} for ${String(what)}, because of "${sure}"`;
    },
  });

/** Asks two questions at once. One of them may expire. */
const plan = (life: Life): Tool =>
  tool({
    name: 'plan',
    description: 'plan',
    input: WHAT,
    effect: 'idempotent',
    execute: async ({ what }, { ask, key }) => {
      const [from, to] = await Promise.all([
        ask({ id: 'from', prompt: 'From where?' }),
        ask({ id: 'to', prompt: 'Where to?', ...(what === 'late' && { ttlMs: DAY }) }).catch(() => 'nowhere'),
      ]);
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'plan', effect: 'idempotent' });
      return `from ${from} to ${to}`;
    },
  });

/** Tools that ask one thing after the other, several at once, in a child run, and something that nobody answers. */
export const asking: Scenario = {
  name: 'tools that ask',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const helper = agentTool({
      name: 'helper',
      description: 'Helps',
      model: keyedModel(
        { 't1.model.0': { calls: [['reserve', { what: 'bob' }]] }, 't2.model.0': 'Helped.' },
        { onAsk },
      ),
      tools: [reserve(life)],
    });
    return {
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['reserve', { what: 'ann' }],
              ['look', { what: 'it' }],
            ],
          },
          't2.model.0': {
            calls: [
              ['plan', { what: 'now' }],
              ['plan', { what: 'late' }],
            ],
          },
          't3.model.0': { calls: [['helper', { task: 'Help.' }]] },
          't4.model.0': 'All is arranged.',
        },
        { onAsk },
      ),
      tools: [reserve(life), plan(life), look(life), helper],
      input: 'Arrange it.',
    };
  },
  decide: ({ arguments: text }) => (text.includes('late') ? 'expire' : 'approve'),
  // At its start, and after an answer: only while it waits is it known that it has not acted.
  interrupted: {
    'run/t1.tool.0': ['2/0', '3/0', '5/0', '7/0'],
    'run.t3.tool.0/t1.tool.0': ['19/2', '21/4', '23/6'],
  },
};
