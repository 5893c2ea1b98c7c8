import { expect, test } from 'vitest';
import { timestampText } from '../terminal/quantities.ts';
import { nextSteps } from './run-and-report.ts';

const RUN = 'run_0123456789abcdef0123456789abcdef';
type Result = Parameters<typeof nextSteps>[0];

const result = (more: Partial<Result>): Result => ({
  runId: RUN,
  waiting: [],
  text: '',
  messages: [],
  model: 'm',
  toolsUsed: [],
  usage: { inputTokens: 0, outputTokens: 0 },
  turns: 1,
  calls: 0,
  durationMs: 0,
  ...more,
});
const options = { stored: true, canRetry: false, canAsk: false, values: {} };
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

test.each<[string, Result, Partial<typeof options>, readonly string[]]>([
  ['completed', result({ outcome: { type: 'completed' } }), {}, []],
  ['failed', result({ outcome: failed }), {}, []],
  [
    'failed because of its model',
    result({ outcome: failed }),
    { canRetry: true },
    ['Retry with: treadle runs resume run_01234567'],
  ],
  ['failed, not stored', result({ outcome: failed }), { canRetry: true, stored: false }, []],
  [
    'detached',
    result({ detached: true }),
    {},
    ['Resume with: treadle runs resume run_01234567', 'Cancel with: treadle runs cancel run_01234567'],
  ],
  ['detached before the first turn', result({ detached: true, turns: 0 }), {}, ['The run had not started.']],
  [
    'paused',
    result({ waiting: [approval, client] }),
    {},
    [
      'There is no terminal to ask for approval.',
      `Without an approval until ${timestampText(0)}, t1.approval.0 is denied.`,
      'Resume with: treadle runs resume run_01234567 --approve t1.approval.0 --answer t1.client.1=RESULT',
    ],
  ],
  [
    'paused in a terminal',
    result({ waiting: [client] }),
    { canAsk: true },
    ['Resume with: treadle runs resume run_01234567 --answer t1.client.1=RESULT'],
  ],
  [
    'paused, not stored',
    result({ waiting: [approval] }),
    { stored: false },
    [
      'There is no terminal to ask for approval.',
      `Without an approval until ${timestampText(0)}, t1.approval.0 is denied.`,
      'Run it in a terminal, without --ask, or with a store to resume it later.',
    ],
  ],
])('prints the next steps of a run: %s', (_, from, changes, steps) => {
  expect(nextSteps(from, { ...options, ...changes })).toEqual(steps);
});
