import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { setImmediate as nextLoopTurn } from 'node:timers/promises';
import { afterEach, expect, test, vi } from 'vitest';
import { readJson } from './body.ts';
import { arrivals, firstTurn, inTurn, LARGE, nextTurn } from './large-work.ts';

/** Counts the turns of the event loop until it is disposed. */
function countTurns(): Disposable & { readonly now: number } {
  let now = 0;
  let timer = setImmediate(function count() {
    now++;
    timer = setImmediate(count);
  });
  return {
    get now() {
      return now;
    },
    [Symbol.dispose]: () => clearImmediate(timer),
  };
}

function readBody(text: string, maxBytes: number): Promise<unknown> {
  const incoming = Object.assign(Readable.from([Buffer.from(text)]), {
    headers: { 'content-type': 'application/json' },
  });
  const unused = undefined as never;
  const [hold, holder, openStream, onEnd, workEnded] = [() => {}, unused, unused, unused, unused];
  const exchange = { requestId: 'r', log: unused, hold, holder, openStream, onEnd, workEnded, durable: unused };
  const env = { incoming: incoming as unknown as IncomingMessage, outgoing: unused, exchange };
  return readJson({ env }, maxBytes);
}

afterEach(async () => {
  vi.restoreAllMocks();
  // No turn is taken when the next test starts.
  await firstTurn('a');
  for (let n = 0; n < 3; n++) await nextLoopTurn();
});

test('large work waits while connections are accepted, but not for ever', async () => {
  using turns = countTurns();
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  let isArriving = true;
  let isEndless = false;
  const accept = (): void => {
    if (!isArriving) return;
    arrivals.connections += 1;
    now += isEndless ? 1 : 0;
    setImmediate(accept);
  };
  await firstTurn('a');
  accept();
  const started = firstTurn('a').then(() => turns.now);
  for (let n = 0; n < 10; n++) await nextLoopTurn();
  const stopped = turns.now;
  isArriving = false;
  expect(await started).toBeGreaterThan(stopped);
  isArriving = true;
  isEndless = true;
  accept();
  await Promise.all([firstTurn('a'), firstTurn('a')]);
  isArriving = false;
});

test('large work starts in turns of its own, with time for a new connection in between', async () => {
  using turns = countTurns();
  const starts = await Promise.all(Array.from({ length: 4 }, () => firstTurn('a').then(() => turns.now)));
  const between = starts.slice(1).map((start, index) => start - starts[index]!);
  expect(Math.min(...between)).toBeGreaterThanOrEqual(2);
});

test('work that has begun is continued before other work begins', async () => {
  const order: string[] = [];
  const perform = async (name: string): Promise<void> => {
    await firstTurn('a');
    order.push(`${name} begins`);
    await nextTurn();
    order.push(`${name} ends`);
  };
  await Promise.all(['one', 'two', 'three'].map(perform));
  expect(order).toEqual(['one begins', 'one ends', 'two begins', 'two ends', 'three begins', 'three ends']);
});

test('tenants take turns, however much one of them asks for', async () => {
  const order: string[] = [];
  const perform = (tenant: string): Promise<void> => firstTurn(tenant).then(() => void order.push(tenant));
  await Promise.all(['a', 'a', 'a', 'a', 'b', 'b', 'c'].map(perform));
  expect(order.join('')).toBe('abcabaa');
});

test('small work starts at once, and nothing waits after it', async () => {
  using turns = countTurns();
  vi.spyOn(performance, 'now').mockReturnValue(0);
  const work = vi.fn<() => Promise<string>>(async () => 'done');
  const results = [inTurn(work, 'a'), inTurn(work, 'a'), inTurn(work, 'a')];
  expect(work).toHaveBeenCalledTimes(3);
  expect(await Promise.all(results)).toEqual(['done', 'done', 'done']);
  expect(turns.now).toBe(0);
});

test('work that turns out to be large is continued in another turn, and the next one waits', async () => {
  using turns = countTurns();
  const ms = vi.spyOn(performance, 'now');
  let now = 0;
  ms.mockImplementation(() => now);
  const began: number[] = [];
  const work = async (): Promise<void> => {
    began.push(turns.now);
    now += 50;
  };
  const first = inTurn(work, 'a').then(() => turns.now);
  await Promise.resolve();
  await Promise.resolve();
  const [firstEnd, secondEnd] = await Promise.all([first, inTurn(work, 'a').then(() => turns.now)]);
  expect(began[0]).toBe(0);
  expect(firstEnd).toBeGreaterThan(0);
  expect(began[1]).toBeGreaterThan(firstEnd);
  expect(secondEnd).toBeGreaterThan(began[1]!);
});

test('work that starts in the same turn as large work waits for a turn of its own', async () => {
  using turns = countTurns();
  let now = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const began: number[] = [];
  const work = async (): Promise<void> => {
    began.push(turns.now);
    now += 50;
  };
  await Promise.all([inTurn(work, 'a'), inTurn(work, 'a'), inTurn(work, 'a')]);
  expect(new Set(began).size).toBe(3);
});

test('large bodies that arrive together are parsed in different turns, and small ones are not delayed', async () => {
  using turns = countTurns();
  const parsedAt: number[] = [];
  const parse = JSON.parse;
  vi.spyOn(JSON, 'parse').mockImplementation((text: string) => {
    if (text.length > LARGE) parsedAt.push(turns.now);
    return parse(text) as unknown;
  });
  const read = (text: string): Promise<unknown> => readBody(text, 2 * LARGE);
  const large = Array.from({ length: 4 }, () => read(JSON.stringify({ input: 'x'.repeat(LARGE) })));
  let isLargeDone = false;
  void Promise.race(large).then(() => (isLargeDone = true));
  expect(await read('{"input":"small"}')).toEqual({ input: 'small' });
  expect(isLargeDone).toBe(false);
  await Promise.all(large);
  expect(new Set(parsedAt).size).toBe(4);
});

test('bodies of medium size that arrive together are parsed in several turns', async () => {
  using turns = countTurns();
  const parse = JSON.parse;
  const parsed = new Map<number, number>();
  vi.spyOn(JSON, 'parse').mockImplementation((text: string) => {
    if (text.length > 1_000) parsed.set(turns.now, (parsed.get(turns.now) ?? 0) + text.length);
    return parse(text) as unknown;
  });
  const bodies = Array.from({ length: 20 }, () => readBody(JSON.stringify({ input: 'x'.repeat(LARGE / 4) }), LARGE));
  const small = Array.from({ length: 20 }, () => readBody('{"input":"small"}', LARGE));
  let isMediumDone = false;
  void Promise.all(bodies).then(() => (isMediumDone = true));
  await Promise.all(small);
  expect(isMediumDone).toBe(false);
  await Promise.all(bodies);
  expect(Math.max(...parsed.values())).toBeLessThan(2 * LARGE);
});

test('a long string of escaped quotes is checked in slices', async () => {
  using turns = countTurns();
  const bodyOf = (quotes: number): Promise<unknown> =>
    readBody(JSON.stringify({ input: '"'.repeat(quotes) }), 10_000_000);
  await bodyOf(LARGE);
  const before = turns.now;
  await bodyOf(1_500_000);
  // A slice is 1 MiB.
  expect(turns.now - 2 * before).toBeGreaterThanOrEqual(2);
});
