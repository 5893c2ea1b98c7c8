import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, put, wire } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** A process dies during calls with the effect `once`: one acted, one did not, and one is unknown. */
export const verify: Scenario = {
  name: 'a crash during calls with the effect once',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['wire', { what: 'done' }],
            ['wire', { what: 'lost' }],
            ['wire', { what: 'hazy' }],
            ['put', { what: 'a' }],
            ['book', { what: 'a' }],
          ],
        },
        't2.model.0': { calls: [['wire', { what: 'more' }]] },
        't3.model.0': 'Wired.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [wire(life, (what) => fateOf(what, life)), put(life), book(life)],
    maxParallel: 3,
    input: 'Wire it.',
  }),
  interrupted: {
    // The unknown one: from its start in the process that died on, because its result does not change later.
    'run/t1.tool.2': ['2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14'],
    'run/t1.tool.4': ['8', '9', '10'],
  },
};

/** The first process dies during the first three calls. */
function fateOf(what: string, { world, kill }: Life): ReturnType<Parameters<typeof wire>[1]> {
  if (!world.fault(what)) return 'on';
  if (what === 'hazy') kill();
  return what === 'lost' ? 'lost' : 'done';
}
