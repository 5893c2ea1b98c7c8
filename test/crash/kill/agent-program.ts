/**
 * The same as program.ts for a typed agent: helpers with state, reflection, a rejected output, another attempt, success.
 * It exits with an error if an output is validated or shown again although the result is in the journal.
 */
import { setImmediate } from 'node:timers/promises';
import { defineAgent, executeAgent, type HelperTool } from '@treadle/core';
import { openStore } from '@treadle/store';
import { act, acting, report, reportingModel, reportingStore, storeUrl, WHAT } from './reporting.ts';

interface Seen {
  seen: string[];
}

const RUN = 'run';
const store = await openStore(storeUrl);
const settled = new Set(
  (await store.read(RUN)).flatMap(({ event }) =>
    event.type === 'output-checked' || event.type === 'tool-settled' ? event.effect : [],
  ),
);

/** Acts under the key of an effect that has no result yet. */
async function perform(effect: string): Promise<void> {
  if (settled.has(effect)) {
    process.stderr.write(`${effect} has a result and runs again\n`);
    process.exit(3);
  }
  await act('pure', `${RUN}/${effect}`);
}

const note: HelperTool<Seen> = {
  definition: { name: 'note', description: 'note', input_schema: WHAT, effect: 'idempotent' },
  async handler(input, { state, key }) {
    await act('idempotent', key);
    state.run.seen.push((input as { what: string }).what);
    await setImmediate();
    return `Noted ${state.run.seen.join(', ')}.`;
  },
};

const VALIDATED = ['t3.validate.0', 't5.validate.0'];
const SHOWN: Readonly<Record<number, string>> = { 1: 't2.tool.1', 3: 't3.tool.0', 4: 't5.tool.1' };

const agent = defineAgent<string, { total: number }, Seen>({
  name: 'adder',
  description: 'Adds it up',
  model: reportingModel({
    't1.model.0': {
      calls: [
        ['look', { what: 'a' }],
        ['note', { what: 'a' }],
        ['put', { what: 'a' }],
      ],
    },
    't2.model.0': {
      calls: [
        ['note', { what: 'b' }],
        ['answer', { total: 1 }],
      ],
    },
    't3.model.0': {
      calls: [
        ['answer', { total: 3 }],
        ['submit', {}],
        ['put', { what: 'b' }],
      ],
    },
    't4.model.0': {
      calls: [
        ['note', { what: 'c' }],
        ['look', { what: 'c' }],
      ],
    },
    't5.model.0': {
      calls: [
        ['submit', {}],
        ['answer', { total: 4 }],
      ],
    },
  }),
  prompts: { user: (what) => `Add ${what}.`, error: ({ message }) => `Again: ${message}` },
  tools: {
    helpers: [acting('look', 'pure'), acting('put', 'idempotent'), note],
    output: {
      name: 'answer',
      description: 'The sum',
      async reflectionHandler({ total }) {
        await perform(SHOWN[total]!);
        return `It is ${total}.`;
      },
    },
  },
  state: { run: () => ({ seen: [] }) },
  validation: {
    outputSchema: { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] },
    customValidators: [
      {
        name: 'even',
        async validate({ total }, { attempt }) {
          await perform(VALIDATED[attempt - 1]!);
          return total % 2 === 0 || 'it is odd';
        },
      },
    ],
    maxAttempts: 2,
    maxIterationsPerAttempt: 3,
  },
});

const result = await executeAgent(agent, { input: 'all of it', journal: reportingStore(store), runId: RUN });
await store.close();
if (result.type === 'success' && result.output.total === 4) report('ended');
else process.stderr.write(JSON.stringify(result));
