import { defineAgent, executeAgent, type Agent, type HelperTool, type Policy } from '@treadle/core';
import { keyedModel, type Script } from '../keyed-model.ts';
import type { AgentScenario } from '../scenario.ts';
import { look, put, WHAT } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

interface Task {
  readonly what: string;
}

interface Sum {
  readonly total: number;
}

interface Seen {
  seen: string[];
}

interface Tried {
  notes: number;
}

/** The turn in which each attempt is validated, and the call that shows each output. */
interface Places {
  readonly validated: readonly number[];
  readonly shown: Readonly<Record<number, string>>;
}

/** Records an action under the key of its effect. */
function done({ world }: Life, effect: string, what: string): void {
  world.actions.push({ key: `${world.runId}/${effect}`, tool: what, effect: 'pure' });
}

/** Its result depends on the memory, so that lost memory is noticed. */
function note(life: Life): HelperTool<Seen, Tried> {
  return {
    definition: { name: 'note', description: 'note', input_schema: WHAT, effect: 'idempotent' },
    async handler(input, { state, key, attempt }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'note', effect: 'idempotent' });
      await Promise.resolve();
      state.run.seen.push((input as { what: string }).what);
      state.attempt.notes++;
      return `Noted ${state.run.seen.join(', ')}; ${state.attempt.notes} in attempt ${attempt}.`;
    },
  };
}

/** Reads the memory that others wrote. */
function recall(life: Life): HelperTool<Seen, Tried> {
  return {
    definition: { name: 'recall', description: 'recall', effect: 'pure' },
    handler(_, { state, key }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'recall', effect: 'pure' });
      return `Seen ${state.run.seen.length}, noted ${state.attempt.notes}.`;
    },
  };
}

function adder(life: Life, script: Script, { validated, shown }: Places): Agent<Task, Sum, Seen, Tried, unknown> {
  const checked = (attempt: number, validator: string): void =>
    done(life, `t${validated[attempt - 1]}.validate.0`, validator);
  const reflects = Object.keys(shown).length > 0;
  return defineAgent<Task, Sum, Seen, Tried, unknown>({
    name: 'adder',
    description: 'Adds it up',
    model: keyedModel(script, { onAsk: (request) => recordRequest(life, request) }),
    prompts: {
      system: 'Add it up.',
      user: ({ what }) => `Add ${what}.`,
      error: async ({ message }, { attempt, maxAttempts }) => `Attempt ${attempt} of ${maxAttempts}: ${message}`,
    },
    tools: {
      helpers: [look(life), put(life), note(life), recall(life)],
      output: {
        name: 'answer',
        description: 'The sum',
        ...(reflects && {
          async reflectionHandler({ total }, { attempt }) {
            if (!life.alive()) return never();
            done(life, shown[total]!, 'reflect');
            await Promise.resolve();
            return `In attempt ${attempt} it is ${total}.`;
          },
        }),
      },
    },
    state: { run: () => ({ seen: [] }), attempt: () => ({ notes: 0 }) },
    validation: {
      outputSchema: { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] },
      customValidators: [
        {
          name: 'even',
          validate({ total }, { attempt }) {
            if (!life.alive()) return never();
            checked(attempt, 'even');
            return total % 2 === 0 || `${total} is odd`;
          },
        },
        {
          name: 'large',
          async validate({ total }, { attempt }) {
            if (!life.alive()) return never();
            checked(attempt, 'large');
            await Promise.resolve();
            return total > 5 ? undefined : [`${total} is small`, 'it must be above 5'];
          },
        },
      ],
      maxAttempts: 3,
      maxIterationsPerAttempt: 4,
      textOnly: 'feedback',
      earlySubmit: 'feedback',
    },
    projectFinalState: ({ output, run, attempt }) => ({ ...output, ...run, ...attempt }),
    maxParallel: 2,
  });
}

/** Helpers with state, reflection in every form, a rejection by each kind of validator, and success. */
export const reflecting: AgentScenario = {
  name: 'a typed agent with reflection and two rejections',
  execute: (life, around) =>
    executeAgent(
      adder(
        life,
        {
          't1.model.0': {
            text: 'First I look.',
            calls: [
              ['look', { what: 'a' }],
              ['note', { what: 'a' }],
              ['put', { what: 'a' }],
              ['note', { what: 'b' }],
              ['nothing', {}],
            ],
          },
          't2.model.0': {
            calls: [
              ['submit', {}],
              ['recall', {}],
            ],
          },
          't3.model.0': {
            calls: [
              ['answer', { total: 1 }],
              ['note', { what: 'c' }],
              ['answer', { total: 3 }],
            ],
          },
          't4.model.0': {
            calls: [
              ['submit', {}],
              ['recall', {}],
              ['submit', {}],
            ],
          },
          't5.model.0': {
            calls: [
              ['answer', { total: 'four' }],
              ['note', { what: 'd' }],
            ],
          },
          't6.model.0': {
            calls: [
              ['submit', {}],
              ['answer', { total: 4 }],
            ],
          },
          't7.model.0': 'It must be larger.',
          't8.model.0': {
            calls: [
              ['answer', { total: 10 }],
              ['note', { what: 'e' }],
              ['submit', {}],
            ],
          },
        },
        {
          validated: [4, 6, 8],
          shown: { 1: 't3.tool.0', 3: 't3.tool.2', 4: 't6.tool.1', 10: 't8.tool.0' },
        },
      ),
      { input: { what: 'all of it' }, ...around },
    ),
  interrupted: {},
};

const policy: Policy = {
  judge: (calls) =>
    calls.map(({ name, input }) => {
      if (name !== 'put') return { type: 'allow' };
      const { what } = input as { what: string };
      return what === 'forbidden' ? { type: 'deny', reason: 'Not that.' } : { type: 'ask', reason: 'It puts.' };
    }),
};

/** An output that counts at once, together with helpers that wait for an approval. */
export const direct: AgentScenario = {
  name: 'a typed agent without reflection, under a policy',
  execute: (life, around) =>
    executeAgent(
      adder(
        life,
        {
          't1.model.0': {
            calls: [
              ['put', { what: 'a' }],
              ['answer', { total: 'many' }],
              ['note', { what: 'a' }],
            ],
          },
          't2.model.0': {
            calls: [
              ['answer', { total: 3 }],
              ['put', { what: 'forbidden' }],
              ['answer', { total: 5 }],
              ['recall', {}],
            ],
          },
          't3.model.0': {
            calls: [
              ['note', { what: 'b' }],
              ['put', { what: 'b' }],
            ],
          },
          't4.model.0': { calls: [['answer', { total: 6 }]] },
        },
        { validated: [1, 2, 4], shown: {} },
      ),
      { input: { what: 'half of it' }, policy, ...around },
    ),
  decide: ({ arguments: text }) => (text.includes('"b"') ? 'deny' : 'approve'),
  interrupted: {},
};

/** Every output is rejected. */
export const hopeless: AgentScenario = {
  name: 'a typed agent that uses up its attempts',
  execute: (life, around) =>
    executeAgent(
      adder(
        life,
        {
          't1.model.0': {
            calls: [
              ['note', { what: 'a' }],
              ['answer', { total: 1 }],
            ],
          },
          't2.model.0': { calls: [['answer', { total: 2 }]] },
          't3.model.0': {
            calls: [
              ['answer', { total: 3 }],
              ['look', { what: 'a' }],
            ],
          },
        },
        { validated: [1, 2, 3], shown: {} },
      ),
      { input: { what: 'nothing' }, ...around },
    ),
  interrupted: {},
};
