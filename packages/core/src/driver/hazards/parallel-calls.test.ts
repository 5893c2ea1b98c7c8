import { expect, test } from 'vitest';
import { textOf, type ToolMessage } from '../../messages.ts';
import { manualClock, type ManualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool, type ToolDefinition } from '../../tools/tool.ts';
import type { LoopOptions, LoopResult } from '../options.ts';
import { runLoop } from '../run.ts';

const input = {
  type: 'object',
  properties: { n: { type: 'integer' }, ms: { type: 'integer' }, path: { type: 'string' } },
} as const;

interface Watch {
  running: Set<number>;
  most: number;
  readonly started: number[];
  readonly ended: number[];
}

/** A tool that takes `ms` of the time of the clock, and records its calls in `watch`. */
function watched(
  clock: ManualClock,
  watch: Watch,
  more: Partial<ToolDefinition<typeof input>> = {},
): ReturnType<typeof tool> {
  return tool({
    name: 'work',
    description: 'x',
    input,
    execute: async ({ n, ms }) => {
      watch.running.add(n as number);
      watch.most = Math.max(watch.most, watch.running.size);
      watch.started.push(n as number);
      await new Promise<void>((resolve) => clock.timer(ms as number, resolve));
      watch.running.delete(n as number);
      watch.ended.push(n as number);
      return `result ${String(n)}`;
    },
    ...more,
  });
}

function watch(): Watch {
  return { running: new Set(), most: 0, started: [], ended: [] };
}

/** Different for each call, so that they do not settle in call order. */
function msOf(n: number): number {
  return 10 + ((n * 37) % 64);
}

const NUMBERS = Array.from({ length: 64 }, (_, n) => n);

async function run(
  clock: ManualClock,
  tools: readonly ReturnType<typeof tool>[],
  more: Partial<LoopOptions> & {
    readonly argumentsOf?: (n: number) => object;
    readonly nameOf?: (n: number) => string;
  } = {},
): Promise<LoopResult> {
  const { argumentsOf = (n) => ({ n, ms: msOf(n) }), nameOf = () => 'work', ...options } = more;
  using model = scriptedModel([
    { calls: NUMBERS.map((n) => ({ name: nameOf(n), arguments: argumentsOf(n) })) },
    'done',
  ]);
  const running = runLoop({ model, tools, input: 'go', clock, ...options });
  await clock.advance(10_000);
  return running;
}

function textsOf({ messages }: LoopResult): string[] {
  return (messages[2] as ToolMessage).content.map(({ content }) => textOf(content));
}

const IN_ORDER = NUMBERS.map((n) => `result ${n}`);

test('runs 64 calls with maxParallel 5: always 5 at once, results in call order', async () => {
  const clock = manualClock();
  const seen = watch();
  const result = await run(clock, [watched(clock, seen)], { maxParallel: 5 });
  expect(seen.most).toBe(5);
  expect(seen.started).toEqual(NUMBERS);
  expect(seen.ended).not.toEqual(NUMBERS);
  expect(textsOf(result)).toEqual(IN_ORDER);
  expect(result).toMatchObject({ outcome: { type: 'completed' }, calls: 64 });
  // At most a fifth of the total time, plus the time of the longest call.
  const work = NUMBERS.reduce((sum, n) => sum + msOf(n), 0);
  expect(result.durationMs).toBeLessThanOrEqual(work / 5 + 74);
});

test.each([1, 2, 63, 64, 100])('runs 64 calls with maxParallel %d', async (maxParallel) => {
  const clock = manualClock();
  const seen = watch();
  const result = await run(clock, [watched(clock, seen)], { maxParallel });
  expect(seen.most).toBe(Math.min(maxParallel, 64));
  expect(textsOf(result)).toEqual(IN_ORDER);
});

test('runs 64 calls one by one with parallel: false', async () => {
  const clock = manualClock();
  const seen = watch();
  const result = await run(clock, [watched(clock, seen)], { parallel: false });
  expect(seen.most).toBe(1);
  expect(seen.ended).toEqual(NUMBERS);
  expect(textsOf(result)).toEqual(IN_ORDER);
});

test('keeps results in call order for synchronous, asynchronous and unknown tools', async () => {
  const clock = manualClock();
  const seen = watch();
  const quick = tool({ name: 'quick', description: 'x', input, execute: ({ n }) => `result ${String(n)}` });
  const names = ['work', 'quick', 'unknown'];
  const result = await run(clock, [watched(clock, seen), quick], { nameOf: (n) => names[n % 3]! });
  const texts = textsOf(result);
  for (const n of NUMBERS) expect(texts[n]).toMatch(n % 3 === 2 ? /^There is no tool "unknown"/ : `result ${n}`);
  expect(seen.most).toBe(5);
});

test('runs an exclusive tool alone, in call order', async () => {
  const clock = manualClock();
  const seen = watch();
  const alone: number[][] = [];
  const exclusive = watched(clock, seen, {
    name: 'alone',
    exclusive: true,
    execute: async ({ n, ms }) => {
      const others = (): number[] => [...seen.running];
      alone.push(others());
      seen.started.push(n as number);
      await new Promise<void>((resolve) => clock.timer(ms as number, resolve));
      alone.push(others());
      return `result ${String(n)}`;
    },
  });
  const isAlone = (n: number): boolean => n % 10 === 5;
  const result = await run(clock, [watched(clock, seen), exclusive], {
    nameOf: (n) => (isAlone(n) ? 'alone' : 'work'),
  });
  expect(alone).toHaveLength(NUMBERS.filter(isAlone).length * 2);
  expect(alone.flat()).toEqual([]);
  expect(seen.started).toEqual(NUMBERS);
  expect(textsOf(result)).toEqual(IN_ORDER);
});

test('runs calls that share a resource in call order, and others in parallel', async () => {
  const clock = manualClock();
  const seen = watch();
  const clashes: string[] = [];
  const open = new Set<string>();
  const order = new Map<string, number[]>();
  const edit = tool({
    name: 'work',
    description: 'x',
    input,
    resources: ({ path }) => [String(path)],
    execute: async ({ n, ms, path }) => {
      const file = String(path);
      if (open.has(file)) clashes.push(file);
      open.add(file);
      order.set(file, [...(order.get(file) ?? []), n as number]);
      seen.running.add(n as number);
      seen.most = Math.max(seen.most, seen.running.size);
      seen.started.push(n as number);
      await new Promise<void>((resolve) => clock.timer(ms as number, resolve));
      seen.running.delete(n as number);
      open.delete(file);
      return `result ${String(n)}`;
    },
  });
  const pathOf = (n: number): string => `file${n < 32 ? 0 : n % 4}`;
  const result = await run(clock, [edit], { argumentsOf: (n) => ({ n, ms: msOf(n), path: pathOf(n) }) });
  expect(clashes).toEqual([]);
  for (const numbers of order.values()) expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  expect(seen.most).toBeGreaterThan(1);
  expect(seen.started.indexOf(33)).toBeLessThan(seen.started.indexOf(31));
  expect(textsOf(result)).toEqual(IN_ORDER);
});

test('refuses the 129th call of a reply and all later ones with an error result', async () => {
  const clock = manualClock();
  const quick = tool({ name: 'quick', description: 'x', input, execute: ({ n }) => `result ${String(n)}` });
  using model = scriptedModel([
    { calls: Array.from({ length: 200 }, (_, n) => ({ name: 'quick', arguments: { n } })) },
    'done',
  ]);
  const result = await runLoop({ model, tools: [quick], input: 'go', clock });
  const texts = textsOf(result);
  expect(texts).toHaveLength(200);
  expect(texts.slice(0, 128)).toEqual(Array.from({ length: 128 }, (_, n) => `result ${n}`));
  expect(new Set(texts.slice(128))).toEqual(
    new Set(['Not executed: at most 128 calls are taken from one reply. Call it again if it is still needed.']),
  );
  expect(result.calls).toBe(128);
});
