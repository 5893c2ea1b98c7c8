import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, door, pickInTime } from '../tools.ts';
import { recordRequest } from '../world.ts';

/**
 * Calls with the effect `once` that are parked: one is verified, one gets its result from outside, and one has none in time.
 * A call of the client has none in time, too.
 */
export const parked: Scenario = {
  name: 'parked calls with the effect once, and deadlines',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['door', { what: 'front' }],
            ['door', { what: 'stuck' }],
          ],
        },
        't2.model.0': { calls: [['pick', { what: 'late' }]] },
        't3.model.0': {
          calls: [
            ['door', { what: 'stuck', late: true }],
            ['book', { what: 'it' }],
          ],
        },
        't4.model.0': 'Done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [door(life), pickInTime, book(life)],
    input: 'Open the doors.',
  }),
  decide: ({ arguments: text }) => (text.includes('late') ? 'expire' : 'approve'),
  outside: ({ arguments: text }) => (text.includes('stuck') ? 'opened by hand' : undefined),
  interrupted: { 'run/t3.tool.1': ['16', '17'] },
};

/** The same, but the call with a result from outside has failed. */
export const failedOutside: Scenario = {
  ...parked,
  name: 'parked calls, one of which has failed',
  outside: ({ arguments: text }) =>
    text.includes('stuck')
      ? { content: 'It was too slow.', isError: true, errorType: 'timeout', exitCode: 124, stderr: 'Killed' }
      : undefined,
};
