import type { Journal } from '@treadle/core';
import type { ResponseRecord } from '@treadle/store';
import { expect, test } from 'vitest';
import { recollection, type RecollectionOptions } from './recalled.ts';

const usage = { inputTokens: 1, outputTokens: 1 };
const replied = (turn: number, signature?: string) => ({
  type: 'model-replied',
  effect: `t${turn}.model.0`,
  content: [{ type: 'reasoning', text: 'Hm.', ...(signature !== undefined && { signature }) }],
  finish: 'stop',
  usage,
});

function stored(options: Partial<RecollectionOptions> = {}) {
  const reads: string[] = [];
  const events = [replied(1), replied(2, 'sig'), { type: 'run-started' }];
  const recalls = recollection({
    runs: { read: async () => events.map((event) => ({ event })) } as unknown as Journal,
    responses: {
      get: async (tenant, id) => {
        reads.push(`${tenant} ${id}`);
        if (tenant !== 'a' || id === 'gone') return undefined;
        const status = id === 'running' ? 'in_progress' : 'completed';
        return { id, status, runId: id, response: { output: [{ type: 'message', id }] } } as unknown as ResponseRecord;
      },
    },
    ...options,
  });
  return { recalls, reads };
}

test('a response is read once, with the replies that hold what the model needs back', async () => {
  const { recalls, reads } = stored();
  const first = await recalls.recall('a', 'r1');
  expect(first).toEqual({
    output: [{ type: 'message', id: 'r1' }],
    replies: new Map([[2, replied(2, 'sig').content]]),
  });
  expect(await recalls.recall('a', 'r1')).toBe(first);
  expect(reads).toEqual(['a r1']);
});

test('what another tenant has is not there', async () => {
  const { recalls } = stored();
  await recalls.recall('a', 'r1');
  expect(await recalls.recall('b', 'r1')).toBeUndefined();
  expect(await recalls.recall('a', 'gone')).toBeUndefined();
});

test('the one that was not asked for the longest is forgotten, and so is what is deleted', async () => {
  const { recalls, reads } = stored({ entries: 2 });
  for (const id of ['r1', 'r2', 'r1', 'r3', 'r1', 'r2']) await recalls.recall('a', id);
  expect(reads).toEqual(['a r1', 'a r2', 'a r3', 'a r2']);
  recalls.forget('a', 'r2');
  await recalls.recall('a', 'r2');
  expect(reads).toHaveLength(5);
});

test.each([
  ['a response that still runs', 'running', {}],
  ['one that is large', 'r1', { largest: 10 }],
])('%s is read each time', async (_, id, options) => {
  const { recalls, reads } = stored(options);
  await recalls.recall('a', id);
  await recalls.recall('a', id);
  expect(reads).toHaveLength(2);
});
