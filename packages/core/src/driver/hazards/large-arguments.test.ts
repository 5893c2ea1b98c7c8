/* oxlint-disable no-extend-native -- replaces built-in functions by ones that count, and restores them */
import { describe, expect, test, vi } from 'vitest';
import type { Model, ModelDelta } from '../../model.ts';
import { parseArguments } from '../../tools/execute.ts';
import { tool } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import { runLoop, streamLoop } from '../run.ts';

vi.setConfig({ testTimeout: 60_000 });

const USAGE = { inputTokens: 1, outputTokens: 1 };
const input = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } as const;

/** A model that calls `write` and sends the arguments character by character; then it answers. */
function charByChar(argumentsText: string): Model {
  let turn = 0;
  return {
    id: 'char-by-char',
    async reply(_request, emit) {
      if (turn++ > 0)
        return { type: 'reply', content: [{ type: 'text', text: 'done' }], finish: 'stop', usage: USAGE, model: 'm' };
      for (const char of argumentsText) emit({ type: 'call-delta', call: 0, name: 'write', arguments: char });
      const call = { type: 'tool-call', id: 'a', name: 'write', arguments: argumentsText } as const;
      return { type: 'reply', content: [call], finish: 'tool-calls', usage: USAGE, model: 'm' };
    },
  };
}

function write(lengths: number[]): ReturnType<typeof tool> {
  return tool({
    name: 'write',
    description: 'x',
    input,
    execute: ({ text }) => void lengths.push(String(text).length),
  });
}

const TEN_MB = 10 * 1024 * 1024;

describe('10 MB of arguments in deltas of one character', () => {
  const text = JSON.stringify({ text: 'x'.repeat(TEN_MB) });

  test('without a listener', async () => {
    const lengths: number[] = [];
    const { outcome, messages } = await runLoop({ model: charByChar(text), tools: [write(lengths)], input: 'go' });
    expect(outcome).toEqual({ type: 'completed' });
    expect(lengths).toEqual([TEN_MB]);
    // The same text as the model sent.
    expect(messages[1]).toMatchObject({ content: [{ arguments: text }] });
  });

  test('with a listener, which receives all deltas in order', async () => {
    const lengths: number[] = [];
    let [deltas, wrong] = [0, 0];
    const onItem = (item: Item): void => {
      if (item.type === 'call-delta' && item.arguments !== text[deltas++]) wrong++;
    };
    const { outcome } = await runLoop({ model: charByChar(text), tools: [write(lengths)], input: 'go', onItem });
    expect(outcome).toEqual({ type: 'completed' });
    expect([deltas, wrong]).toEqual([text.length, 0]);
    expect(lengths).toEqual([TEN_MB]);
  });

  test('passes each delta object of the model on to the listener', async () => {
    const small = JSON.stringify({ text: 'y'.repeat(2_000) });
    const sent: ModelDelta[] = [];
    const inner = charByChar(small);
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
    const received = (await Array.fromAsync(live)).filter(({ type }) => type === 'call-delta');
    expect(received).toHaveLength(small.length);
    expect(received.every((delta, index) => delta === sent[index])).toBe(true);
  });
});

describe('the work for a large call grows linearly with its size', () => {
  /** The number of strings and characters that built-in functions visit. */
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
      await runLoop({ model: charByChar(argumentsText), tools: [write([])], input: 'go', onItem: () => {} });
    } finally {
      Object.assign(String.prototype, { charCodeAt, slice, trim, replace });
      Object.assign(JSON, { parse, stringify });
    }
    return { units, strings };
  }

  test('at eight times the size it is at most eight times as much', async () => {
    await cost(1_000);
    const small = await cost(20_000);
    const large = await cost(160_000);
    expect(large.units).toBeLessThanOrEqual(small.units * 8);
    expect(large.strings).toBe(small.strings);
    expect(large.units).toBeLessThan(160_000 * 12);
  });
});

test('refuses invalid arguments of 10 MB with a short error', async () => {
  const lengths: number[] = [];
  const model = charByChar(`{"text": ${'x'.repeat(TEN_MB)}`);
  const { messages } = await runLoop({ model, tools: [write(lengths)], input: 'go' });
  expect(lengths).toEqual([]);
  expect(JSON.stringify(messages[2]).length).toBeLessThan(1_000);
});

test('repairs arguments of 10 MB', async () => {
  const lengths: number[] = [];
  const model = charByChar(`{"text": "${'fifteen chars..\n'.repeat(TEN_MB / 16)}",}`);
  const { outcome } = await runLoop({ model, tools: [write(lengths)], input: 'go' });
  expect(outcome).toEqual({ type: 'completed' });
  expect(lengths).toEqual([TEN_MB]);
});

test('parses a megabyte of white space in linear time', () => {
  const parsed = parseArguments(`{"a":${'\n'.repeat(1_000_000)}x}`, false);
  expect(parsed.type).toBe('problem');
  expect(parseArguments('```json\n{"a":1}\n```', false)).toMatchObject({ type: 'parsed', value: { a: 1 } });
});
