import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, put, wire } from '../tools.ts';
import { noteAsked, type Life } from '../world.ts';

/** A process that dies in the middle of calls that act once: of one that took effect, of one that did not, of a hazy one. */
export const verify: Scenario = {
  name: 'a crash in the middle of calls that act once',
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
      { onAsk: (request) => noteAsked(life, request) },
    ),
    tools: [wire(life, (what) => fateOf(what, life)), put(life), book(life)],
    maxParallel: 3,
    input: 'Wire it.',
  }),
  interrupted: {
    // The hazy one: from when it had begun in the process that died. Its answer stands, so it stays that way.
    'run/t1.tool.2': ['2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14'],
    'run/t1.tool.4': ['8', '9', '10'],
  },
};

/** The first process gets no further than the first three of them. */
function fateOf(what: string, { world, kill }: Life): ReturnType<Parameters<typeof wire>[1]> {
  if (!world.fault(what)) return 'on';
  if (what === 'hazy') kill();
  return what === 'lost' ? 'lost' : 'done';
}
