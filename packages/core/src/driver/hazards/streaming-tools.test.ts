import { describe, expect, test } from 'vitest';
import { textOf, type ToolMessage } from '../../messages.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool, type ToolContext, type ToolDefinition } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import type { LoopOptions, LoopResult } from '../options.ts';
import { runLoop, streamLoop } from '../run.ts';

interface Streamed {
  readonly result: LoopResult;
  readonly text: string;
  readonly reports: unknown[];
  readonly items: Item[];
}

async function run(
  execute: NonNullable<ToolDefinition['execute']>,
  options: Partial<LoopOptions> = {},
): Promise<Streamed> {
  const items: Item[] = [];
  using model = scriptedModel([{ calls: [{ name: 'work', id: 'a' }] }, 'done']);
  const work = tool({ name: 'work', description: 'x', execute });
  const result = await runLoop({
    model,
    tools: [work],
    input: 'go',
    onItem: (item) => void items.push(item),
    ...options,
  });
  const reports = items.flatMap((item) => (item.type === 'tool-report' ? [item.progress] : []));
  return { result, text: textOf((result.messages[2] as ToolMessage).content[0]!.content), reports, items };
}

describe('progress', () => {
  test('is emitted with its call between call-started and call-answered', async () => {
    const { items, result } = await run(async (_, { report }) => {
      report({ percent: 50 });
      await Promise.resolve();
      report('nearly');
      return 'all';
    });
    const call = { type: 'tool-call', id: 'a', name: 'work', arguments: '{}' };
    const types = items.map(({ type }) => type);
    expect(types.slice(types.indexOf('call-started'), types.indexOf('call-answered'))).toEqual([
      'call-started',
      'tool-report',
      'tool-report',
      'fact',
    ]);
    expect(items.filter(({ type }) => type === 'tool-report')).toEqual([
      { type: 'tool-report', call, progress: { percent: 50 } },
      { type: 'tool-report', call, progress: 'nearly' },
    ]);
    expect(JSON.stringify(result.messages)).not.toContain('nearly');
  });

  test('is not emitted after the call has settled', async () => {
    const clock = manualClock();
    let context: ToolContext | undefined;
    const items: Item[] = [];
    using model = scriptedModel([
      { calls: [{ name: 'work' }] },
      () => {
        context!.report('too late');
        return 'done';
      },
    ]);
    const work = tool({
      name: 'work',
      description: 'x',
      execute: (_, toolContext) => {
        context = toolContext;
        toolContext.report('in time');
        return 'all';
      },
    });
    const result = await runLoop({ model, tools: [work], input: 'go', clock, onItem: (item) => void items.push(item) });
    context!.report('much too late');
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(items.flatMap((item) => (item.type === 'tool-report' ? [item.progress] : []))).toEqual(['in time']);
  });

  test('is not emitted after the call has timed out', async () => {
    const clock = manualClock();
    const items: Item[] = [];
    using model = scriptedModel([{ calls: [{ name: 'work' }] }, () => clock.advance(200).then(() => 'done')]);
    const work = tool({
      name: 'work',
      description: 'x',
      timeoutMs: 100,
      execute: (_, { report }) => {
        const reportTime = (): void => {
          report(clock.now());
          clock.timer(40, reportTime);
        };
        reportTime();
        return new Promise(() => {});
      },
    });
    const running = runLoop({ model, tools: [work], input: 'go', clock, onItem: (item) => void items.push(item) });
    await clock.advance(100);
    expect((await running).outcome).toEqual({ type: 'completed' });
    expect(items.flatMap((item) => (item.type === 'tool-report' ? [item.progress] : []))).toEqual([0, 40, 80]);
  });

  test('is ignored without a listener', async () => {
    using model = scriptedModel([{ calls: [{ name: 'work' }] }, 'done']);
    const work = tool({ name: 'work', description: 'x', execute: (_, { report }) => report('half') });
    expect((await runLoop({ model, tools: [work], input: 'go' })).outcome).toEqual({ type: 'completed' });
  });

  test('may be any value', async () => {
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    const odd = [undefined, () => 1, Symbol('s'), 1n, cycle];
    const { reports, result } = await run((_, { report }) => odd.forEach(report));
    expect(reports).toEqual(odd);
    expect(result.outcome).toEqual({ type: 'completed' });
  });
});

describe('an async iterable', () => {
  test('of texts: each is progress, and the result is all of them', async () => {
    const { text, reports } = await run(async function* () {
      yield 'one ';
      yield 'two';
    });
    expect([text, reports]).toEqual(['one two', ['one ', 'two']]);
  });

  test('that returns a value: the value is the result', async () => {
    const { text, reports } = await run(async function* () {
      yield { percent: 50 };
      return 'whole';
    });
    expect([text, reports]).toEqual(['whole', [{ percent: 50 }]]);
  });

  test('of other values: the last one is the result', async () => {
    const { text, reports } = await run(async function* () {
      yield { rows: 1 };
      yield { rows: 2 };
    });
    expect([text, reports]).toEqual(['{"rows":2}', [{ rows: 1 }, { rows: 2 }]]);
  });

  test('that throws after a value: the call gets an error result', async () => {
    const { text, reports, result } = await run(async function* () {
      yield 'one';
      throw new Error('ouch');
    });
    expect([text, reports]).toEqual(['The tool "work" failed: ouch', ['one']]);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('that never ends: the call times out, and the iterator is closed', async () => {
    const clock = manualClock();
    let [yielded, ended] = [0, false];
    const running = run(
      async function* () {
        try {
          for (;;) {
            await new Promise<void>((resolve) => clock.timer(10, resolve));
            yield String(++yielded);
          }
        } finally {
          ended = true;
        }
      },
      { clock, toolTimeoutMs: 55 },
    );
    await clock.advance(55);
    const { text, reports } = await running;
    expect(text).toMatch(/timed out after 55 ms/);
    expect(reports).toEqual(['1', '2', '3', '4', '5']);
    await clock.advance(1_000);
    expect(ended).toBe(true);
    expect(yielded).toBeLessThanOrEqual(6);
    expect(clock.pending).toBe(0);
  });

  test('that never ends and never waits: the call times out with the system clock', async () => {
    const { text, result } = await run(
      async function* () {
        for (;;) yield 'x';
      },
      { toolTimeoutMs: 30 },
    );
    expect(text).toMatch(/timed out after 30 ms/);
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  test('is closed when the run is cancelled', async () => {
    const { promise: ended, resolve } = Promise.withResolvers<string>();
    const work = tool({
      name: 'work',
      description: 'x',
      async *execute() {
        try {
          for (;;) {
            await new Promise((next) => setTimeout(next, 1));
            yield 'more';
          }
        } finally {
          resolve('ended');
        }
      },
    });
    const live = streamLoop({ model: scriptedModel([{ calls: [{ name: 'work' }] }]), tools: [work], input: 'go' });
    for await (const item of live) if (item.type === 'tool-report') break;
    expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
    expect(await ended).toBe('ended');
  });

  test('whose return method throws: the call times out', async () => {
    const clock = manualClock();
    const iterator = {
      next: () => new Promise<never>(() => {}),
      return: () => {
        throw new Error('not closed');
      },
    };
    const running = run(() => ({ [Symbol.asyncIterator]: () => iterator }), { clock, toolTimeoutMs: 10 });
    await clock.advance(10);
    expect((await running).result.outcome).toEqual({ type: 'completed' });
  });
});
