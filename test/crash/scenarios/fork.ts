import { forkRun, runLoop } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { LoopScenario, Scenario } from '../scenario.ts';
import { book, look, put } from '../tools.ts';
import { life, recordRequest, RUN, type Life, type World } from '../world.ts';

const code = (now: Life, ...last: readonly [string, string]): ReturnType<LoopScenario['code']> => ({
  model: keyedModel(
    {
      't1.model.0': {
        calls: [
          ['book', { what: 'a' }],
          ['look', { what: 'a' }],
        ],
      },
      't2.model.0': { calls: [[last[0], { what: 'b' }]] },
      't3.model.0': last[1],
    },
    { onAsk: (request) => recordRequest(now, request) },
  ),
  tools: [book(now), look(now), ...(last[0] === 'put' ? [put(now)] : [])],
  instructions: 'Be brief.',
  input: 'Go.',
});

/** A run that is forked while its calls are in progress, with other instructions and another tool. */
export const fork: Scenario = {
  name: 'a fork',
  code: (now) => code(now, 'put', 'Put instead.'),
  async begin(world: World) {
    const { store: journal, clock } = world;
    const now = life(world, []);
    await runLoop({ ...code(now, 'book', 'Booked.'), journal, clock, runId: 'original' });
    const tools = [book(now), look(now), put(now)];
    const changes = { instructions: 'Put, do not book.', tools, model: 'another' };
    await forkRun({ journal, runId: 'original', at: 1, newRunId: RUN, changes });
  },
  interrupted: {},
};
