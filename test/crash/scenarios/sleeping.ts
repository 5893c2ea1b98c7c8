import { sleepTool } from '@treadle/core/timers';
import { keyedModel, unable } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look } from '../tools.ts';
import { recordRequest } from '../world.ts';

/** A run whose model asks to wait for an hour. */
export const retrying: Scenario = {
  name: 'a model that asks to wait for an hour',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': { calls: [['look', { what: 'a' }]] },
        't2.model.0': () => (life.world.fault('wait') ? busyForAnHour() : 'Done.'),
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [look(life)],
    retryLater: true,
    input: 'Go.',
  }),
  interrupted: {},
};

function busyForAnHour(): ReturnType<typeof unable> {
  const { type, error } = unable('overloaded');
  return { type, error: { ...error, retryable: true, retryAfterMs: 3_600_000 } };
}

/** A run that sleeps for a week, twice. */
export const sleeping: Scenario = {
  name: 'a run that sleeps for a week',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['sleep', { seconds: 604_800 }],
            ['look', { what: 'it' }],
          ],
        },
        't2.model.0': { calls: [['sleep', { seconds: 604_800 }]] },
        't3.model.0': { calls: [['book', { what: 'it' }]] },
        't4.model.0': 'Two weeks have passed.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [sleepTool({ clock: life.world.clock }), look(life), book(life)],
    input: 'Wait.',
  }),
  interrupted: { 'run/t3.tool.0': ['11'] },
};
