import type { Policy, Tool } from '@treadle/core';
import type { Place } from '@treadle/core/policy';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { put } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

const PI: Place = { type: 'device', name: 'pi' };

/** Only the sandbox of the first process keeps calls from the network. */
function walledPut(life: Life): Tool {
  return {
    ...put(life),
    touches: (input) => {
      const { what } = input as { what: string };
      return [{ type: 'write', path: what, lines: 1, ...(what === 'b' && { on: PI }) }];
    },
    sandbox: (input) => {
      const hasWall = life.entries.length === 0 && (input as { what: string }).what === 'a';
      return hasWall ? ['network', 'root'] : ['root'];
    },
  };
}

/** Asks about what touches a device, and about what can reach the network. */
const policy: Policy = {
  judge: (calls) =>
    calls.map(({ touches = [], sandbox = [] }) => {
      const isElsewhere = touches.some((touch) => 'on' in touch && touch.on);
      if (!isElsewhere && sandbox.includes('network')) return { type: 'allow', rule: 'sandbox' };
      return { type: 'ask', reason: isElsewhere ? 'It uses a device.' : 'It can reach the network.' };
    }),
};

/** A call that waits behind another, and counts on a sandbox that the next process does not have; touches at another place. */
export const walled: Scenario = {
  name: 'promises of a sandbox that do not hold after a restart, and places',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['put', { what: 'b' }],
            ['put', { what: 'a' }],
          ],
        },
        't2.model.0': {
          calls: [
            ['put', { what: 'a' }],
            ['put', { what: 'b' }],
          ],
        },
        't3.model.0': 'All is done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [walledPut(life)],
    policy,
    parallel: false,
    input: 'Do all of it.',
  }),
  forRun: ({ arguments: text }) => text.includes('"b"'),
  interrupted: {},
};
