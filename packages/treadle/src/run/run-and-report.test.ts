import type { LoopResult } from '@treadle/core';
import { expect, test } from 'vitest';
import { nextSteps } from './run-and-report.ts';

const RUN = 'run_0123456789abcdef0123456789abcdef';
const result = (more: Partial<LoopResult>): LoopResult => ({
  runId: RUN,
  waiting: [],
  text: '',
  messages: [],
  usage: { inputTokens: 0, outputTokens: 0 },
  turns: 1,
  calls: 0,
  durationMs: 0,
  ...more,
});
const about = { kept: true, canRetry: false, canAsk: false, values: {} };
const call = {
  turn: 1,
  index: 0,
  id: 'c',
  name: 'read',
  arguments: '{}',
  resources: [],
  effect: 'pure',
  exclusive: false,
  client: false,
  verifiable: false,
} as const;
const approval = { type: 'approval', effect: 't1.approval.0', call, digest: 'd', expiresAt: 0 } as const;
const client = { type: 'client', effect: 't1.client.1', call } as const;
const failed = { type: 'failed', error: { code: 'auth', message: 'No.' } } as const;

test.each<[string, LoopResult, Partial<typeof about>, readonly string[]]>([
  ['completed', result({ outcome: { type: 'completed' } }), {}, []],
  ['failed', result({ outcome: failed }), {}, []],
  [
    'failed with its model',
    result({ outcome: failed }),
    { canRetry: true },
    ['Try again with: treadle runs resume run_01234567'],
  ],
  ['failed, not kept', result({ outcome: failed }), { canRetry: true, kept: false }, []],
  [
    'left',
    result({ detached: true }),
    {},
    ['Go on with: treadle runs resume run_01234567', 'End it with: treadle runs cancel run_01234567'],
  ],
  ['left before it began', result({ detached: true, turns: 0 }), {}, ['Nothing had begun.']],
  [
    'paused',
    result({ waiting: [approval, client] }),
    {},
    [
      'There is no terminal to ask on.',
      'Go on with: treadle runs resume run_01234567 --approve t1.approval.0 --answer t1.client.1=RESULT',
    ],
  ],
  [
    'paused in a terminal',
    result({ waiting: [client] }),
    { canAsk: true },
    ['Go on with: treadle runs resume run_01234567 --answer t1.client.1=RESULT'],
  ],
  [
    'paused, not kept',
    result({ waiting: [approval] }),
    { kept: false },
    ['There is no terminal to ask on.', 'Run it in a terminal, without --ask, or with a store to go on with it later.'],
  ],
])('%s', (_, from, changes, steps) => {
  expect(nextSteps(from, { ...about, ...changes })).toEqual(steps);
});
