import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, job } from '../tools.ts';
import { recordRequest } from '../world.ts';

/** A call that is parked on a device. Resuming the run is enough to get its result. */
export const device: Scenario = {
  name: 'a call that is parked on a device',
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
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [job(life), book(life)],
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.1': ['2', '3'] },
};
