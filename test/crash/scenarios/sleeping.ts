import { sleepTool } from '@treadle/core/timers';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look } from '../tools.ts';
import { recordRequest } from '../world.ts';

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
