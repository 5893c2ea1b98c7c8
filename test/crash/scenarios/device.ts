import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, job } from '../tools.ts';
import { noteAsked } from '../world.ts';

/** A call that goes on elsewhere, and nobody here has to answer anything: going on with the run is enough. */
export const device: Scenario = {
  name: 'a call that goes on at a device',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['job', { what: 'it' }],
            ['book', { what: 'it' }],
          ],
        },
        't2.model.0': 'Done there.',
      },
      { onAsk: (request) => noteAsked(life, request) },
    ),
    tools: [job(life), book(life)],
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.1': ['2', '3'] },
};
