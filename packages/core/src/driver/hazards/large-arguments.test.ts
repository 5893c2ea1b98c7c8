/* oxlint-disable no-extend-native -- counts what the language itself does, and puts it back */
import { describe, expect, test, vi } from 'vitest';
import type { Model, ModelDelta } from '../../model.ts';
import { tool } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import { runLoop, streamLoop } from '../run.ts';

vi.setConfig({ testTimeout: 60_000 });

const USAGE = { inputTokens: 1, outputTokens: 1 };
const input = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } as const;

/** Sends the arguments character by character, as many models do, then a text. */
function talkative(argumentsText: string): Model {
  let turn = 0;
  return {
    id: 'talkative',
    async reply(_request, emit) {
      if (turn++ > 0)
        return { type: 'reply', content: [{ type: 'text', text: 'done' }], finish: 'stop', usage: USAGE, model: 'm' };
      for (const char of argumentsText) emit({ type: 'call-delta', call: 0, name: 'write', arguments: char });
      const call = { type: 'tool-call', id: 'a', name: 'write', arguments: argumentsText } as const;
      return { type: 'reply', content: [call], finish: 'tool-calls', usage: USAGE, model: 'm' };
    },
  };
}

function write(taken: number[]): ReturnType<typeof tool> {
  return tool({
    name: 'write',
    description: 'x',
    input,
    execute: ({ text }) => void taken.push(String(text).length),
  });
}

const TEN_MB = 10 * 1024 * 1024;

describe('10 MB of arguments in deltas of one character', () => {
  const text = JSON.stringify({ text: 'x'.repeat(TEN_MB) });

  test('nobody listens', async () => {
    const taken: number[] = [];
    const { outcome, messages } = await runLoop({ model: talkative(text), tools: [write(taken)], input: 'go' });
    expect(outcome).toEqual({ type: 'completed' });
    expect(taken).toEqual([TEN_MB]);
    // The text itself, not a copy.
    expect(messages[1]).toMatchObject({ content: [{ arguments: text }] });
  });

  test('somebody listens, and gets every one of them, in order', async () => {
    const taken: number[] = [];
    let [deltas, wrong] = [0, 0];
    const onItem = (item: Item): void => {
      if (item.type === 'call-delta' && item.arguments !== text[deltas++]) wrong++;
    };
    const { outcome } = await runLoop({ model: talkative(text), tools: [write(taken)], input: 'go', onItem });
    expect(outcome).toEqual({ type: 'completed' });
    expect([deltas, wrong]).toEqual([text.length, 0]);
    expect(taken).toEqual([TEN_MB]);
  });

  test('they are never put together by the loop: each delta is handed on as it came', async () => {
    const small = JSON.stringify({ text: 'y'.repeat(2_000) });
    const sent: ModelDelta[] = [];
    const inner = talkative(small);
    const model: Model = {
      id: 'm',
      reply: (request, emit, signal) =>
        inner.reply(
          request,
          (delta) => {
            sent.push(delta);
            emit(delta);
          },
          signal,
        ),
    };
    const live = streamLoop({ model, tools: [write([])], input: 'go' });
    const got = (await Array.fromAsync(live)).filter(({ type }) => type === 'call-delta');
    expect(got).toHaveLength(small.length);
    expect(got.every((delta, index) => delta === sent[index])).toBe(true);
  });
});

describe('the work that a large call makes grows with its size and no faster', () => {
  /** How many characters and how many deltas are looked at, whoever looks. */
  async function cost(size: number): Promise<{ units: number; strings: number }> {
    const argumentsText = JSON.stringify({ text: 'x'.repeat(size) });
    let [units, strings] = [0, 0];
    const { charCodeAt, slice, trim, replace } = String.prototype;
    const { parse, stringify } = JSON;
    function count(text: unknown): void {
      if (typeof text !== 'string') return;
      strings++;
      units += text.length;
    }
    String.prototype.charCodeAt = function (this: string, index: number) {
      units++;
      return charCodeAt.call(this, index);
    };
    String.prototype.slice = function (this: string, ...range: [number?, number?]) {
      const piece = slice.apply(this, range);
      count(piece);
      return piece;
    };
    String.prototype.trim = function (this: string) {
      count(this.valueOf());
      return trim.call(this);
    };
    String.prototype.replace = function (this: string, ...all: Parameters<string['replace']>) {
      count(this.valueOf());
      return replace.apply(this, all);
    } as string['replace'];
    JSON.parse = (text: string, ...more: []) => (count(text), parse(text, ...more));
    JSON.stringify = ((...all: Parameters<typeof stringify>) => {
      const text = stringify(...all);
      count(text);
      return text;
    }) as typeof stringify;
    try {
      await runLoop({ model: talkative(argumentsText), tools: [write([])], input: 'go', onItem: () => {} });
    } finally {
      Object.assign(String.prototype, { charCodeAt, slice, trim, replace });
      Object.assign(JSON, { parse, stringify });
    }
    return { units, strings };
  }

  test('counted at one size and at eight times that', async () => {
    await cost(1_000);
    const small = await cost(20_000);
    const large = await cost(160_000);
    expect(large.units).toBeLessThanOrEqual(small.units * 8);
    expect(large.strings).toBe(small.strings);
    expect(large.units).toBeLessThan(160_000 * 12);
  });
});

test('broken arguments of 10 MB are refused in few words', async () => {
  const taken: number[] = [];
  const model = talkative(`{"text": ${'x'.repeat(TEN_MB)}`);
  const { messages } = await runLoop({ model, tools: [write(taken)], input: 'go' });
  expect(taken).toEqual([]);
  expect(JSON.stringify(messages[2]).length).toBeLessThan(1_000);
});

test('sloppy arguments of 10 MB are repaired', async () => {
  const taken: number[] = [];
  const model = talkative(`{"text": "${'fifteen chars..\n'.repeat(TEN_MB / 16)}",}`);
  const { outcome } = await runLoop({ model, tools: [write(taken)], input: 'go' });
  expect(outcome).toEqual({ type: 'completed' });
  expect(taken).toEqual([TEN_MB]);
});
