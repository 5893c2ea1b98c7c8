import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Model } from '../../model.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import type { LiveRun } from '../options.ts';
import { streamLoop } from '../run.ts';

const look = tool({ name: 'look', description: 'x', execute: async () => 'seen' });
const stuck = tool({ name: 'stuck', description: 'x', execute: () => new Promise(() => {}) });

/** A run whose model calls a tool that never returns. */
function stuckRun(): LiveRun {
  return streamLoop({ model: scriptedModel([{ calls: [{ name: 'stuck' }] }]), tools: [stuck], input: 'go' });
}

function twoTurns(): { live: LiveRun; received: Item[] } {
  const received: Item[] = [];
  const model = scriptedModel([{ text: 'let me see', calls: [{ name: 'look' }] }, 'done']);
  const live = streamLoop({ model, tools: [look], input: 'go', onItem: (item) => void received.push(item) });
  return { live, received };
}

describe('leaving the iteration early cancels the run', () => {
  test('by break', async () => {
    const live = stuckRun();
    for await (const item of live) if (item.type === 'turn-started') break;
    expect((await live.result).outcome).toMatchObject({ type: 'cancelled' });
  });

  test('by return', async () => {
    const live = stuckRun();
    await (async () => {
      for await (const item of live) if (item.type === 'call-started') return;
    })();
    expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  });

  test('by an exception', async () => {
    const live = stuckRun();
    const reading = (async () => {
      for await (const item of live) throw new Error(item.type);
    })();
    await expect(reading).rejects.toThrow('fact');
    expect((await live.result).outcome).toMatchObject({ type: 'cancelled' });
  });

  test('without waiting for the next item', async () => {
    let signal: AbortSignal | undefined;
    const model: Model = {
      id: 'm',
      reply: (_request, _emit, modelSignal) => ((signal = modelSignal), new Promise(() => {})),
    };
    const live = streamLoop({ model, input: 'go' });
    const web = ReadableStream.from(live).getReader();
    await web.read();
    await web.read();
    const third = web.read();
    await new Promise((resolve) => setTimeout(resolve, 1));
    await web.cancel();
    expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'model' });
    expect(signal!.aborted).toBe(true);
    await third;
  });

  test('but not after the run has ended', async () => {
    const { live } = twoTurns();
    const result = await live.result;
    for await (const item of live) if (item) break;
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(await live.result).toBe(result);
  });
});

describe('a reader receives every item once', () => {
  test('if it starts at once, late, or after the end', async () => {
    for (const wait of [0, 1, 20]) {
      const { live, received } = twoTurns();
      await new Promise((resolve) => setTimeout(resolve, wait));
      const read = await Array.fromAsync(live);
      expect(read).toEqual(received);
      expect(read.at(-1)).toMatchObject({ type: 'fact', event: { type: 'model-replied' } });
      expect((await live.result).outcome).toEqual({ type: 'completed' });
    }
  });

  test('and does not slow down the run', async () => {
    const { live, received } = twoTurns();
    const reader = live[Symbol.asyncIterator]();
    await reader.next();
    await live.result;
    const rest: Item[] = [];
    for (let next = await reader.next(); !next.done; next = await reader.next()) rest.push(next.value);
    expect([received[0], ...rest]).toEqual(received);
  });

  test('and the run ends without a reader', async () => {
    const { live, received } = twoTurns();
    expect((await live.result).outcome).toEqual({ type: 'completed' });
    expect(received.length).toBeGreaterThan(5);
  });
});

test('rejects the iteration after the items so far if the journal fails', async () => {
  const model = scriptedModel(['done']);
  let appends = 0;
  const journal = {
    append: () => {
      if (appends++ > 0) throw new Error('disk full');
    },
    read: async () => [],
  };
  const live = streamLoop({ model, input: 'go', journal });
  const got: Item[] = [];
  const reading = (async () => {
    for await (const item of live) got.push(item);
  })();
  await expect(reading).rejects.toMatchObject({
    code: 'journal-failed',
    message: expect.stringContaining('disk full'),
  });
  expect(got[0]).toMatchObject({ type: 'fact', event: { type: 'run-started' } });
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
});

test('does not end the process if a rejected result is ignored', async () => {
  const core = join(import.meta.dirname, '../../index.ts');
  const program = `
    const { streamLoop, runLoop } = await import(${JSON.stringify(core)});
    const model = { id: 'm', reply: async () => ({ type: 'reply', content: [{ type: 'text', text: 'x' }], finish: 'stop', usage: { inputTokens: 0, outputTokens: 0 }, model: 'm' }) };
    const broken = { append() { throw new Error('disk full'); }, read: async () => [] };
    const rejecting = { append: async () => { throw new Error('disk full'); }, read: async () => { throw new Error('disk failure'); } };
    const stuck = { id: 'm', reply: () => new Promise(() => {}) };
    streamLoop({ model, input: 'x', journal: broken });
    streamLoop({ model, input: 'x', journal: rejecting });
    streamLoop({ model, journal: rejecting, runId: 'r', answers: [] });
    streamLoop({ model, journal: { ...broken, read: async () => [] }, runId: 'r', answers: [] });
    const cancelled = streamLoop({ model: stuck, input: 'x' });
    for await (const item of cancelled) break;
    const iterated = streamLoop({ model, input: 'x', journal: rejecting });
    void iterated[Symbol.asyncIterator]();
    setTimeout(() => console.log('still running'), 50);
  `;
  const run = promisify(execFile)(process.execPath, [
    '--conditions=treadle-source',
    '--input-type=module',
    '-e',
    program,
  ]);
  expect((await run).stdout).toBe('still running\n');
});
