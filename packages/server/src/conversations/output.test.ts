import type { Waiting } from '@treadle/core';
import { expect, test } from 'vitest';
import { itemId, newResponseId } from '../ids.ts';
import type { ChatEvent } from './events.ts';
import { askRequest, chatOutput, type ChatOutput } from './output.ts';

test('a text that was sent before a crash stays in an answer that was cancelled, and is marked once', () => {
  const runId = newResponseId();
  const id = itemId('message', runId, 1, 0);
  const sent: ChatEvent[] = [{ type: 'token_delta', id, delta: 'It is no' }];
  const ended = (): ChatOutput => {
    const out = chatOutput({ runId, sent: [...sent], emit: (event) => void sent.push(event) });
    void out.addItem({ type: 'turn-started', turn: 1 });
    out.end({ type: 'cancelled', at: 5, usage: { inputTokens: 0, outputTokens: 0 } });
    return out;
  };
  const parts = [{ type: 'text', text: 'It is no', stopped: true }];
  expect(ended().parts).toEqual(parts);
  expect(sent.slice(1)).toMatchObject([
    { type: 'warning', code: 'item_stopped', item: id },
    { type: 'error', code: 'cancelled' },
    { type: 'usage' },
  ]);
  expect(ended().parts).toEqual(parts);
  expect(sent).toHaveLength(4);
});

test('the reason of an approval shows characters that could hide a part of it', () => {
  const call = { turn: 1, index: 0, id: 'c', name: 'run', arguments: '{}' } as Waiting['call'];
  const wait: Waiting = { type: 'approval', effect: 'a', call, digest: 'd', expiresAt: 0, reason: 'runs "a\u3164b"' };
  expect(askRequest(newResponseId(), wait)).toMatchObject({ reason: 'runs "a\\u3164b"' });
});
