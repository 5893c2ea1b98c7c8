/* oxlint-disable unicorn/no-thenable -- thenables are the subject here */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { SettledResult } from '../machine/events.ts';
import type { ErrorFacts } from '../messages.ts';
import { manualClock, type ManualClock } from '../testing/manual-clock.ts';
import { executeTool, verifyTool, type Execution, type Running, type Settled } from './execute.ts';
import { tool, type ToolContext, type ToolDefinition } from './tool.ts';

type Body = NonNullable<ToolDefinition['execute']>;

interface Setting extends Partial<Execution> {
  readonly definition?: Partial<ToolDefinition>;
}

function executionOf(body: Body | undefined, { definition, ...rest }: Setting = {}): Execution {
  return {
    tool: tool({ name: 'x', description: 'x', ...(body && { execute: body }), ...definition }),
    input: {},
    key: 'run/t1.tool.0',
    timeoutMs: 1_000,
    clock: manualClock(),
    report: () => {},
    context: undefined,
    principal: undefined,
    ...rest,
  };
}

function run(body: Body, setting?: Setting): Running {
  return executeTool(executionOf(body, setting));
}

function fine(text: string): SettledResult {
  return { type: 'result', content: [{ type: 'text', text }], isError: false };
}

function failed(text: string, facts?: ErrorFacts): SettledResult {
  return { type: 'result', content: [{ type: 'error', text }], isError: true, ...facts };
}

const TIMEOUT: ErrorFacts = { errorType: 'timeout' };
const TIMED_OUT = failed(
  'The tool "x" timed out after 1000 ms, and it is not known whether it took effect. Find out before you call it again.',
  TIMEOUT,
);

describe('arguments of the tool', () => {
  test('the input and the context', () => {
    const principal = { subject: 's', tenant: 't', scopes: [] };
    let got: [unknown, ToolContext] | undefined;
    const report = (): void => {};
    run((...all) => void (got = all), { input: { a: 1 }, context: 'mine', principal, report });
    expect(got![0]).toEqual({ a: 1 });
    expect(got![1]).toMatchObject({ key: 'run/t1.tool.0', context: 'mine', principal });
    expect(got![1].signal.aborted).toBe(false);
  });
});

describe('a synchronous tool', () => {
  test('has a result that is not a promise, and sets no timer', () => {
    const clock = manualClock();
    expect(run(() => 'now', { clock }).result).toEqual(fine('now'));
    expect(clock.pending).toBe(0);
  });

  test('that throws has an error result', () => {
    const { result } = run(() => {
      throw new Error('ouch');
    });
    expect(result).toEqual(failed('The tool "x" failed: ouch'));
  });
});

describe('an asynchronous tool', () => {
  test('cancels its timer when it ends', async () => {
    const clock = manualClock();
    const { result } = run(async () => 'later', { clock });
    expect(clock.pending).toBe(1);
    expect(await result).toEqual(fine('later'));
    expect(clock.pending).toBe(0);
  });

  test('that rejects has an error result', async () => {
    const clock = manualClock();
    const { result } = run(() => Promise.reject(new Error('ouch')), { clock });
    expect(await result).toEqual(failed('The tool "x" failed: ouch'));
    expect(clock.pending).toBe(0);
  });

  test('may return any thenable', async () => {
    const thenable = { then: (resolve: (value: unknown) => void) => resolve('late') };
    expect(await run(() => thenable).result).toEqual(fine('late'));
    const bad = {
      then: (_: unknown, reject: (reason: unknown) => void) => reject('no'),
    };
    expect(await run(() => bad).result).toEqual(failed('The tool "x" failed: no'));
    const broken = {
      then: () => {
        throw new Error('no then');
      },
    };
    expect(await run(() => broken).result).toEqual(failed('The tool "x" failed: no then'));
    expect(await run(async () => thenable).result).toEqual(fine('late'));
  });

  test('that resolves twice has its first value as the result', async () => {
    const twice = {
      then: (resolve: (value: unknown) => void) => {
        resolve('first');
        resolve('second');
      },
    };
    expect(await run(() => twice).result).toEqual(fine('first'));
  });
});

describe('timeout', () => {
  test('settles a tool that never ends, and aborts its signal', async () => {
    const clock = manualClock();
    let signal: AbortSignal | undefined;
    const { result } = run(
      (_, context) => {
        signal = context.signal;
        return new Promise(() => {});
      },
      { clock },
    );
    await clock.advance(999);
    expect(signal!.aborted).toBe(false);
    await clock.advance(1);
    expect(await result).toEqual(TIMED_OUT);
    expect(signal!.aborted).toBe(true);
    expect(clock.pending).toBe(0);
  });

  test('aborts a signal that is first read after the timeout', async () => {
    const clock = manualClock();
    let context: ToolContext | undefined;
    const { result } = run((_, given) => ((context = given), new Promise(() => {})), { clock });
    await clock.advance(1_000);
    await result;
    expect(context!.signal.aborted).toBe(true);
  });

  test('a value after the timeout is ignored', async () => {
    const clock = manualClock();
    const { promise, resolve } = Promise.withResolvers();
    const { result } = run(() => promise, { clock });
    await clock.advance(1_000);
    resolve('too late');
    expect(await result).toEqual(TIMED_OUT);
  });

  test('includes the validation of the output', async () => {
    const clock = manualClock();
    const output = z.string().refine(() => new Promise<boolean>(() => {}));
    for (const body of [() => 'text', async () => 'text']) {
      const { result } = run(body, { clock, definition: { output } });
      await clock.advance(1_000);
      expect(await result).toEqual(TIMED_OUT);
    }
  });
});

describe('a tool that times out', () => {
  const hang: Body = () => new Promise(() => {});
  type Verify = NonNullable<ToolDefinition['verify']>;

  function timeOut(definition: Partial<ToolDefinition>, body = hang): { clock: ManualClock; running: Running } {
    const clock = manualClock();
    return { clock, running: run(body, { clock, definition }) };
  }

  test.each(['pure', 'idempotent'] as const)('and is %s may be called again, and is not verified', async (effect) => {
    let verified = 0;
    const verify: Verify = () => (verified++, { type: 'done', result: 'paid' });
    const { clock, running } = timeOut({ effect, verify });
    await clock.advance(1_000);
    expect(await running.result).toEqual(
      failed(
        'The tool "x" timed out after 1000 ms. Ask for less, try another way, or say what could not be done.',
        TIMEOUT,
      ),
    );
    expect(verified).toBe(0);
  });

  test.each([
    ['pure', 300_000, 'Call it again with a larger timeout_ms, at most 300000, or ask for less'],
    ['pure', 1_000, 'Ask for less'],
    ['once', 300_000, 'Find out before you call it again with a larger timeout_ms, at most 300000.'],
    ['once', 1_000, 'Find out before you call it again.'],
  ] as const)(
    'and is %s with timeout_ms up to %i: the text names the arguments and the remedy',
    async (effect, maximum, remedy) => {
      const properties = { command: { type: 'string' }, timeout_ms: { type: 'integer', maximum } };
      const definition = { effect, input: { type: 'object', properties } };
      const clock = manualClock();
      const running = executeTool({ ...executionOf(hang, { clock, definition }), input: { command: 'sleep 60' } });
      await clock.advance(1_000);
      const text = JSON.stringify(await running.result);
      expect(text).toContain(JSON.stringify('Arguments: {"command":"sleep 60"}. ').slice(1, -1) + remedy);
    },
  );

  test.each([
    ['long arguments are cut', { text: '😀'.repeat(1_000) }, /Arguments: \{"text":"😀{95}\uFFFD…\./u],
    ['arguments without a JSON form are left out', { n: 1n }, /ms\. Ask/],
  ])('%s', async (_, input, pattern) => {
    const clock = manualClock();
    const running = executeTool({ ...executionOf(hang, { clock, definition: { effect: 'pure' } }), input });
    await clock.advance(1_000);
    const result = await running.result;
    expect('content' in result && result.content[0]).toMatchObject({ text: expect.stringMatching(pattern) });
  });

  test('and has the effect "once" may have taken effect', async () => {
    const { clock, running } = timeOut({ effect: 'once' });
    await clock.advance(1_000);
    expect(await running.result).toEqual(TIMED_OUT);
    expect(clock.pending).toBe(0);
  });

  test('has the result that verify reports, with the same key, after its signal was aborted', async () => {
    const signals: AbortSignal[] = [];
    const seen: unknown[] = [];
    const body: Body = (_, { signal }) => (signals.push(signal), hang({}, {} as ToolContext));
    const verify: Verify = async (_, { key, signal }) => {
      seen.push(key, signals[0]!.aborted, signal.aborted);
      return { type: 'done', result: 'paid' };
    };
    const { clock, running } = timeOut({ verify }, body);
    await clock.advance(999);
    expect(seen).toEqual([]);
    await clock.advance(1);
    expect(await running.result).toEqual(fine('paid'));
    expect(seen).toEqual(['run/t1.tool.0', true, false]);
    expect(clock.pending).toBe(0);
  });

  test.each<[string, Verify]>([
    ['reports not-done, because the tool may still be running', () => ({ type: 'not-done' })],
    ['reports unknown', async () => ({ type: 'unknown' })],
    ['throws', () => Promise.reject(new Error('no'))],
    ['never returns', () => new Promise(() => {})],
  ])('may have taken effect if verify %s', async (_, verify) => {
    const { clock, running } = timeOut({ verify });
    await clock.advance(2_000);
    expect(await running.result).toEqual(TIMED_OUT);
    expect(clock.pending).toBe(0);
  });

  test('is verified once, and its late value is ignored meanwhile', async () => {
    const late = Promise.withResolvers<string>();
    const answer = Promise.withResolvers<{ type: 'done'; result: string }>();
    let verified = 0;
    const verify: Verify = () => (verified++, answer.promise);
    const { clock, running } = timeOut({ verify }, () => late.promise);
    await clock.advance(1_000);
    late.resolve('late');
    await clock.advance(0);
    answer.resolve({ type: 'done', result: 'verified' });
    expect(await running.result).toEqual(fine('verified'));
    expect(verified).toBe(1);
  });

  test('abort stops the verification', async () => {
    let signal: AbortSignal | undefined;
    const verify: Verify = (_, context) => ((signal = context.signal), new Promise(() => {}));
    const { clock, running } = timeOut({ verify });
    await clock.advance(1_000);
    running.abort('reason');
    expect(signal!.reason).toBe('reason');
    expect(await running.result).toEqual(TIMED_OUT);
    expect(clock.pending).toBe(0);
  });
});

describe('abort', () => {
  test('aborts the signal, settles without waiting for the tool, and leaves no timer', async () => {
    const clock = manualClock();
    let signal: AbortSignal | undefined;
    const { result, abort } = run((_, context) => ((signal = context.signal), new Promise(() => {})), { clock });
    abort();
    expect(signal!.aborted).toBe(true);
    expect(await result).toMatchObject({ type: 'result', isError: true });
    expect(clock.pending).toBe(0);
    abort();
  });
});

describe('progress', () => {
  test.each<[string, (context: ToolContext) => unknown]>([
    ['synchronous tool', () => 'done'],
    ['asynchronous tool', async () => 'done'],
    ['rejected tool', () => Promise.reject(new Error('ouch'))],
  ])('is ignored after the end of a %s', async (_, body) => {
    const reports: unknown[] = [];
    let context: ToolContext | undefined;
    const { result } = run(
      (_input, given) => {
        context = given;
        given.report('in time');
        return body(given);
      },
      { report: (progress) => void reports.push(progress) },
    );
    await result;
    context!.report('too late');
    expect(reports).toEqual(['in time']);
  });
});

describe('an output schema', () => {
  const output = z.object({ n: z.number() });

  test('a valid value becomes the result as the schema transforms it', async () => {
    expect(run(() => ({ n: 1, more: 2 }), { definition: { output } }).result).toEqual(fine('{"n":1}'));
    expect(await run(async () => ({ n: 1 }), { definition: { output } }).result).toEqual(fine('{"n":1}'));
  });

  test('an invalid value is an error result', async () => {
    const refused = failed(
      'The tool "x" returned a value that does not match its output schema: n: Invalid input: expected number, received string',
    );
    expect(run(() => ({ n: 'one' }), { definition: { output } }).result).toEqual(refused);
    expect(await run(async () => ({ n: 'one' }), { definition: { output } }).result).toEqual(refused);
  });

  test('may validate asynchronously', async () => {
    const slow = output.refine(async ({ n }) => n > 0, 'must be above 0');
    expect(await run(() => ({ n: 1 }), { definition: { output: slow } }).result).toEqual(fine('{"n":1}'));
    expect(await run(async () => ({ n: 0 }), { definition: { output: slow } }).result).toEqual(
      failed('The tool "x" returned a value that does not match its output schema: must be above 0'),
    );
  });
});

describe('an async iterable', () => {
  async function reported(body: Body): Promise<[Settled, unknown[]]> {
    const reports: unknown[] = [];
    return [await run(body, { report: (progress) => void reports.push(progress) }).result, reports];
  }

  test('of texts: each is progress, and the result is the joined text', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'a';
      yield 'b';
    });
    expect(result).toEqual(fine('ab'));
    expect(reports).toEqual(['a', 'b']);
  });

  test('of other values: the result is the last item', async () => {
    const [result, reports] = await reported(async function* () {
      yield { percent: 50 };
      yield { percent: 100 };
    });
    expect(result).toEqual(fine('{"percent":100}'));
    expect(reports).toEqual([{ percent: 50 }, { percent: 100 }]);
  });

  test('with a return value: that is the result', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'half';
      return { content: 'all' };
    });
    expect(result).toEqual(fine('all'));
    expect(reports).toEqual(['half']);
  });

  test('may be empty and returned by a promise', async () => {
    const [result, reports] = await reported(async () => (async function* () {})());
    expect(result).toEqual(fine(''));
    expect(reports).toEqual([]);
  });

  test('that throws midway has an error result', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'half';
      throw new Error('ouch');
    });
    expect(result).toEqual(failed('The tool "x" failed: ouch'));
    expect(reports).toEqual(['half']);
  });

  test.each([
    ['returns no iterator', { [Symbol.asyncIterator]: () => undefined }],
    ['is not a function', { [Symbol.asyncIterator]: 7 }],
    ['returns an iterator without next', { [Symbol.asyncIterator]: () => ({}) }],
    [
      'returns an iterator whose next gives undefined',
      { [Symbol.asyncIterator]: () => ({ next: async () => undefined }) },
    ],
  ])('is an error result if Symbol.asyncIterator %s', async (_, iterable) => {
    const [result] = await reported(() => iterable);
    expect(result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('The tool "x" failed: ') }],
    });
  });

  test('has a result even if the listener throws', async () => {
    const { result } = run(
      async function* () {
        yield 'a';
      },
      {
        report: () => {
          throw new Error('listener failed');
        },
      },
    );
    expect(await result).toMatchObject({ isError: true });
  });

  test.each(['timeout', 'abort'])('is no longer read after the %s, and is closed', async (how) => {
    const clock = manualClock();
    const reports: unknown[] = [];
    let [yielded, closed] = [0, false];
    const { result, abort } = run(
      async function* (_, { signal: _signal }) {
        try {
          for (;;) {
            await tick(clock, 300);
            yielded++;
            yield yielded;
          }
        } finally {
          closed = true;
        }
      },
      { clock, report: (progress) => void reports.push(progress) },
    );
    await clock.advance(how === 'abort' ? 900 : 1_000);
    if (how === 'abort') abort();
    await result;
    await clock.advance(60_000);
    expect(yielded).toBeLessThanOrEqual(4);
    expect(reports).toEqual([1, 2, 3]);
    expect(closed).toBe(true);
    expect(clock.pending).toBe(0);
  });

  test('without a return method is no longer read after the timeout', async () => {
    const clock = manualClock();
    let yielded = 0;
    const next = async (): Promise<IteratorResult<number>> => {
      await tick(clock, 300);
      return { done: false, value: ++yielded };
    };
    const { result } = run(() => ({ [Symbol.asyncIterator]: () => ({ next }) }), { clock });
    await clock.advance(1_000);
    expect(await result).toEqual(TIMED_OUT);
    await clock.advance(60_000);
    expect(yielded).toBe(4);
    expect(clock.pending).toBe(0);
  });

  test('that never ends and never waits is stopped by the timeout', async () => {
    let now = 0;
    const clock = { now: () => now, timer: () => () => {} };
    const { result } = run(
      async function* () {
        for (;;) {
          now += 10;
          yield 'again';
        }
      },
      { clock },
    );
    expect(await result).toEqual(TIMED_OUT);
  });
});

describe('verify', () => {
  function verifyWith(answer: unknown): Running {
    return verifyTool(executionOf(() => 'ran', { definition: { verify: (() => answer) as never } }));
  }

  test('returns the result of a call that is done', () => {
    expect(verifyWith({ type: 'done', result: { n: 1 } }).result).toEqual(fine('{"n":1}'));
  });

  test('returns not-done and unknown', async () => {
    expect(verifyWith({ type: 'not-done' }).result).toEqual({ type: 'not-done' });
    expect(verifyWith({ type: 'unknown' }).result).toEqual({ type: 'unknown' });
    expect(await verifyWith(Promise.resolve({ type: 'not-done' })).result).toEqual({ type: 'not-done' });
  });

  test('treats an invalid answer as unknown', () => {
    for (const answer of [{}, { type: 'maybe' }, 'done', 7])
      expect(verifyWith(answer).result).toEqual({ type: 'unknown' });
  });

  test('returns unknown if it throws, rejects or times out', async () => {
    const clock = manualClock();
    const unknown = { type: 'unknown' };
    expect(verifyWith(undefined).result).toEqual(unknown);
    expect(await verifyWith(Promise.reject(new Error('offline'))).result).toEqual(unknown);
    const never = verifyTool(executionOf(() => 'ran', { clock, definition: { verify: () => new Promise(() => {}) } }));
    await clock.advance(1_000);
    expect(await never.result).toEqual(unknown);
  });
});

function tick(clock: ManualClock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(ms, resolve));
}
