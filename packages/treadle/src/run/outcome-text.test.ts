import type { Outcome } from '@treadle/core';
import { expect, test } from 'vitest';

import { exitCodeOf, outcomeText } from './outcome-text.ts';

type Result = Parameters<typeof outcomeText>[0];

const result = (outcome?: Outcome): Result => ({
  runId: 'r',
  ...(outcome && { outcome }),
  waiting: [],
  text: '',
  messages: [],
  model: 'm',
  toolsUsed: [],
  usage: { inputTokens: 0, outputTokens: 0 },
  turns: 2,
  calls: 1,
  durationMs: 5,
});

test.each<[Outcome, string | undefined, number]>([
  [{ type: 'completed' }, undefined, 0],
  [
    { type: 'completed', truncated: true },
    'Completed, but the answer was cut off at the length limit of the model.',
    0,
  ],
  [{ type: 'failed', error: { code: 'auth', message: 'No.' } }, 'Failed (auth): No.', 1],
  [{ type: 'exhausted', limit: 'turns' }, 'Stopped at the turn limit (--max-turns), after 2 turns and 1 call.', 3],
  [{ type: 'cancelled', phase: 'model' }, 'Cancelled while the model was replying, after 2 turns and 1 call.', 130],
])('%j', (outcome, text, code) => {
  expect(outcomeText(result(outcome))).toBe(text);
  expect(exitCodeOf(result(outcome))).toBe(code);
});

test('names what a paused run waits for', () => {
  const call = {
    turn: 1,
    index: 0,
    id: 'c',
    name: 'read',
    arguments: '{"path":"a"}',
    resources: [],
    effect: 'pure',
    exclusive: false,
    client: false,
    verifiable: false,
  } as const;
  const paused: Result = {
    ...result(),
    waiting: [
      { type: 'approval', effect: 't1.tool.0', call, digest: 'd', expiresAt: 0 },
      { type: 'client', effect: 't1.tool.1', call: { ...call, name: 'ask' } },
      { type: 'question', effect: 't1.question.2.0', call, question: { prompt: 'Which one?' } },
    ],
  };
  expect(outcomeText(paused)).toBe(
    'Paused: waits for approval of read {"path":"a"}; the result of ask {"path":"a"}; the answer to "Which one?" of ' +
      'read {"path":"a"}.',
  );
  expect(exitCodeOf(paused)).toBe(4);
});

test('reports the turns and calls of a detached run', () => {
  const detached: Result = { ...result(), detached: true };
  expect(outcomeText(detached)).toBe('Stopped after 2 turns and 1 call.');
  expect(exitCodeOf(detached)).toBe(130);
});
