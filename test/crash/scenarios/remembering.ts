import { tool, type Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, put, WHAT } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

/** Its result depends on the memory, so that lost or repeated changes are noticed. */
function note(life: Life, name: string, key: string): Tool {
  return tool({
    name,
    description: name,
    input: WHAT,
    effect: 'pure',
    remembers: [key],
    async execute({ what }, { key: call, memory }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key: call, tool: name, effect: 'pure' });
      await Promise.resolve();
      const notes = [...((memory![key] as string[] | undefined) ?? []), String(what)];
      memory![key] = notes;
      return `${key}: ${notes.join(', ')}`;
    },
  });
}

function forget(life: Life): Tool {
  return tool({
    name: 'forget',
    description: 'forget',
    effect: 'idempotent',
    remembers: ['seen'],
    execute(_, { key, memory }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'forget', effect: 'idempotent' });
      const had = Object.keys(memory!).join();
      delete memory!['seen'];
      return `forgot ${had}`;
    },
  });
}

/** Calls that change the same and different keys of the memory, a compaction, and a key that is removed. */
export const remembering: Scenario = {
  name: 'tools that remember, and a compaction',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['see', { what: 'a' }],
            ['do', { what: 'b' }],
            ['see', { what: 'c' }],
            ['put', { what: 'd' }],
          ],
        },
        't2.model.0': {
          calls: [
            ['see', { what: 'e' }],
            ['look', { what: 'e' }],
          ],
          usage: { inputTokens: 90, outputTokens: 10, cost: 0 },
        },
        't3.model.0': {
          calls: [
            ['forget', {}],
            ['see', { what: 'f' }],
            ['do', { what: 'g' }],
          ],
        },
        't4.model.0': 'Done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    summariser: keyedModel({ 't2.compact.0': 'They looked.', 't3.compact.0': 'They looked on.' }, { id: 'summariser' }),
    tools: [note(life, 'see', 'seen'), note(life, 'do', 'done'), forget(life), put(life), look(life)],
    compaction: { tokens: 100, keepTurns: 1 },
    memory: { done: ['start'] },
    input: 'Note it all.',
  }),
  interrupted: {},
};

/** Notes a thing under a key of its own. `ask` needs approval. */
function noteByCall(life: Life, name: string, needsApproval: boolean): Tool {
  const keyOf = (what: unknown): string => `seen:${String(what)}`;
  return tool({
    name,
    description: name,
    input: WHAT,
    effect: 'pure',
    needsApproval,
    remembers: ({ what }) => [keyOf(what)],
    async execute({ what }, { key: call, memory }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key: call, tool: name, effect: 'pure' });
      await Promise.resolve();
      const times = Number(memory![keyOf(what)] ?? 0) + 1;
      memory![keyOf(what)] = times;
      return `${Object.keys(memory!).join()}: ${times}`;
    },
  });
}

/** Calls that name what they remember: some of the same key wait for an approval, and others do not. */
export const rememberingByCall: Scenario = {
  name: 'tools that remember what each call names',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['ask', { what: 'a' }],
            ['see', { what: 'b' }],
            ['see', { what: 'a' }],
            ['see', { what: 'b' }],
          ],
        },
        't2.model.0': { calls: [['see', { what: 'a' }]] },
        't3.model.0': 'Done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [noteByCall(life, 'ask', true), noteByCall(life, 'see', false)],
    input: 'Note it all.',
  }),
  interrupted: {},
};
