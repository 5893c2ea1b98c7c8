import type { Item, Waiting } from '@treadle/core';
import { expect, test } from 'vitest';
import { itemId, newResponseId } from '../../ids.ts';
import type { AnswerPart, ChatEvent } from './wire.ts';
import { walkRun } from '../../requests/projection.ts';
import { askRequest, chatProjection } from './projection.ts';

test('a text that was sent before a crash stays in an answer that was cancelled, and is marked once', () => {
  const runId = newResponseId();
  const id = itemId('message', runId, 1, 0);
  const sent: ChatEvent[] = [{ type: 'token_delta', id, delta: 'It is no' }];
  const ended = (): readonly AnswerPart[] => {
    const out = walkRun(chatProjection(runId), { sent: [...sent], emit: (event) => void sent.push(event) });
    void out.add({ type: 'turn-started', turn: 1 });
    return out.end({ ending: { type: 'cancelled', at: 5, usage: { inputTokens: 0, outputTokens: 0 } } });
  };
  const parts = [{ type: 'text', text: 'It is no', stopped: true }];
  expect(ended()).toEqual(parts);
  expect(sent.slice(1)).toMatchObject([
    { type: 'warning', code: 'item_stopped', item: id },
    { type: 'error', code: 'cancelled' },
    { type: 'usage' },
  ]);
  expect(ended()).toEqual(parts);
  expect(sent).toHaveLength(4);
});

test('the reason of an approval shows characters that could hide a part of it', () => {
  const call = { turn: 1, index: 0, id: 'c', name: 'run', arguments: '{}' } as Waiting['call'];
  const wait: Waiting = { type: 'approval', effect: 'a', call, digest: 'd', expiresAt: 0, reason: 'runs "a\u3164b"' };
  expect(askRequest(newResponseId(), wait)).toMatchObject({ reason: 'runs "a\\u3164b"' });
});

test('a text of a model that failed stays if the run ends, and is discarded if the model is called again', () => {
  const error = { code: 'network', message: 'The connection was cut.', retryable: true } as const;
  const failure: Item = { type: 'fact', seq: 1, event: { type: 'model-failed', at: 3, effect: 't1.model.0', error } };
  const usage = { inputTokens: 0, outputTokens: 0 };
  const run = (...items: readonly Item[]): { events: ChatEvent[]; parts: readonly AnswerPart[] } => {
    const events: ChatEvent[] = [];
    const out = walkRun(chatProjection(newResponseId()), { emit: (event: ChatEvent) => void events.push(event) });
    const begun: Item[] = [{ type: 'turn-started', turn: 1 }, { type: 'text-delta', text: 'It is no' }, failure];
    for (const item of [...begun, ...items]) void out.add(item);
    return { events, parts: out.end({ ending: { type: 'failed', error, at: 5, usage } }) };
  };
  const failed = run();
  expect(failed.parts).toEqual([{ type: 'text', text: 'It is no', stopped: true }]);
  expect(failed.events).toMatchObject([
    { type: 'token_delta' },
    { type: 'warning', code: 'item_stopped' },
    { type: 'error', code: 'network' },
    { type: 'usage' },
  ]);
  // With a shorter conversation, in the same turn.
  const again: Item = { type: 'turn-started', turn: 1 };
  const content = [{ type: 'text', text: 'Noon.' }] as const;
  const reply = { type: 'model-replied', at: 4, effect: 't1.model.1', content, finish: 'stop' } as const;
  const replied: Item = { type: 'fact', seq: 2, event: { ...reply, checks: [], usage, model: 'm' } };
  for (const items of [[again, { type: 'text-delta', text: 'Noon.' }], [again], [{ type: 'text-delta', text: 'No' }]]) {
    const { events, parts } = run(...(items as Item[]), replied);
    expect(parts).toEqual([{ type: 'text', text: 'Noon.' }]);
    const [first, discarded, ...rest] = events;
    expect(discarded).toMatchObject({ code: 'item_incomplete', item: (first as { id: string }).id });
    const deltas = rest.flatMap((event) => (event.type === 'token_delta' ? event.delta : []));
    expect(deltas.join('')).toBe('Noon.');
    expect(JSON.stringify(rest)).not.toContain('item_stopped');
  }
});

test('a refusal is a text, streamed or not, and does not extend the text before it', () => {
  const runId = newResponseId();
  const content = [
    { type: 'text', text: 'Well. ' },
    { type: 'text', text: 'No.', refusal: true },
  ] as const;
  const usage = { inputTokens: 0, outputTokens: 0 };
  const reply = { type: 'model-replied', at: 4, effect: 't1.model.0', content, finish: 'stop', usage } as const;
  const replied: Item = { type: 'fact', seq: 2, event: { ...reply, checks: [], model: 'm' } };
  const deltas: Item[] = content.map((part) => ({ ...part, type: 'text-delta' }));
  for (const streamed of [deltas, []]) {
    const events: ChatEvent[] = [];
    const out = walkRun(chatProjection(runId), { emit: (event) => void events.push(event) });
    for (const item of [{ type: 'turn-started', turn: 1 } as const, ...streamed, replied]) void out.add(item);
    expect(events).toEqual([
      { type: 'token_delta', id: itemId('message', runId, 1, 0), delta: 'Well. ' },
      { type: 'token_delta', id: itemId('message', runId, 1, 1), delta: 'No.' },
    ]);
    expect(out.result()).toEqual([
      { type: 'text', text: 'Well. ' },
      { type: 'text', text: 'No.' },
    ]);
  }
});
