/* oxlint-disable unicorn/no-thenable -- what only resembles a promise is the subject here */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { SettledResult } from '../machine/events.ts';
import { manualClock, type ManualClock } from '../testing/manual-clock.ts';
import { execute, verify, type Execution, type Running, type Settled } from './execute.ts';
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
  return execute(executionOf(body, setting));
}

function fine(text: string): SettledResult {
  return { type: 'result', content: [{ type: 'text', text }], isError: false };
}

function failed(text: string): SettledResult {
  return { type: 'result', content: [{ type: 'error', text }], isError: true };
}

const TIMED_OUT = failed('The tool "x" timed out after 1000 ms. Ask for less, or try something else.');

describe('what the tool gets', () => {
  test('its input, and all that it may need', () => {
    const principal = { subject: 's', tenant: 't', scopes: [] };
    let got: [unknown, ToolContext] | undefined;
    const report = (): void => {};
    run((...all) => void (got = all), { input: { a: 1 }, context: 'mine', principal, report });
    expect(got![0]).toEqual({ a: 1 });
    expect(got![1]).toMatchObject({ key: 'run/t1.tool.0', context: 'mine', principal });
    expect(got![1].signal.aborted).toBe(false);
  });
});

describe('a result at once', () => {
  test('is not a promise, and needs no timer', () => {
    const clock = manualClock();
    expect(run(() => 'now', { clock }).result).toEqual(fine('now'));
    expect(clock.pending).toBe(0);
  });

  test('what is thrown at once is a result at once', () => {
    const { result } = run(() => {
      throw new Error('ouch');
    });
    expect(result).toEqual(failed('The tool "x" failed: ouch'));
  });
});

describe('a result later', () => {
  test('calls its timer off', async () => {
    const clock = manualClock();
    const { result } = run(async () => 'later', { clock });
    expect(clock.pending).toBe(1);
    expect(await result).toEqual(fine('later'));
    expect(clock.pending).toBe(0);
  });

  test('what is thrown later is a result', async () => {
    const clock = manualClock();
    const { result } = run(() => Promise.reject(new Error('ouch')), { clock });
    expect(await result).toEqual(failed('The tool "x" failed: ouch'));
    expect(clock.pending).toBe(0);
  });

  test('whatever can be awaited is awaited', async () => {
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

  test('something that resolves twice counts once', async () => {
    const twice = {
      then: (resolve: (value: unknown) => void) => {
        resolve('first');
        resolve('second');
      },
    };
    expect(await run(() => twice).result).toEqual(fine('first'));
  });
});

describe('the timeout is hard', () => {
  test('there is a result even if the tool never ends, and its signal says so', async () => {
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

  test('a signal that is looked at only afterwards is aborted too', async () => {
    const clock = manualClock();
    let context: ToolContext | undefined;
    const { result } = run((_, given) => ((context = given), new Promise(() => {})), { clock });
    await clock.advance(1_000);
    await result;
    expect(context!.signal.aborted).toBe(true);
  });

  test('what comes after it is nobody’s', async () => {
    const clock = manualClock();
    const { promise, resolve } = Promise.withResolvers();
    const { result } = run(() => promise, { clock });
    await clock.advance(1_000);
    resolve('too late');
    expect(await result).toEqual(TIMED_OUT);
  });

  test('a check of the output that never ends is the tool’s time too', async () => {
    const clock = manualClock();
    const output = z.string().refine(() => new Promise<boolean>(() => {}));
    for (const body of [() => 'text', async () => 'text']) {
      const { result } = run(body, { clock, definition: { output } });
      await clock.advance(1_000);
      expect(await result).toEqual(TIMED_OUT);
    }
  });
});

describe('abort', () => {
  test('reaches the tool, is answered without it, and leaves no timer', async () => {
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
    ['at once', () => 'done'],
    ['later', async () => 'done'],
    ['with an error', () => Promise.reject(new Error('ouch'))],
  ])('counts until the tool has ended, here %s', async (_, body) => {
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

  test('what fits is told as the schema gives it', async () => {
    expect(run(() => ({ n: 1, more: 2 }), { definition: { output } }).result).toEqual(fine('{"n":1}'));
    expect(await run(async () => ({ n: 1 }), { definition: { output } }).result).toEqual(fine('{"n":1}'));
  });

  test('what does not fit is an error', async () => {
    const refused = failed(
      'The tool "x" returned something else than it promises: n: Invalid input: expected number, received string',
    );
    expect(run(() => ({ n: 'one' }), { definition: { output } }).result).toEqual(refused);
    expect(await run(async () => ({ n: 'one' }), { definition: { output } }).result).toEqual(refused);
  });

  test('it may take its time', async () => {
    const slow = output.refine(async ({ n }) => n > 0, 'must be above 0');
    expect(await run(() => ({ n: 1 }), { definition: { output: slow } }).result).toEqual(fine('{"n":1}'));
    expect(await run(async () => ({ n: 0 }), { definition: { output: slow } }).result).toEqual(
      failed('The tool "x" returned something else than it promises: must be above 0'),
    );
  });
});

describe('an async iterable', () => {
  async function reported(body: Body): Promise<[Settled, unknown[]]> {
    const reports: unknown[] = [];
    return [await run(body, { report: (progress) => void reports.push(progress) }).result, reports];
  }

  test('its texts are progress, and joined they are the result', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'a';
      yield 'b';
    });
    expect(result).toEqual(fine('ab'));
    expect(reports).toEqual(['a', 'b']);
  });

  test('or its last item is', async () => {
    const [result, reports] = await reported(async function* () {
      yield { percent: 50 };
      yield { percent: 100 };
    });
    expect(result).toEqual(fine('{"percent":100}'));
    expect(reports).toEqual([{ percent: 50 }, { percent: 100 }]);
  });

  test('or what it returns', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'half';
      return { content: 'all' };
    });
    expect(result).toEqual(fine('all'));
    expect(reports).toEqual(['half']);
  });

  test('it may come later, and be empty', async () => {
    const [result, reports] = await reported(async () => (async function* () {})());
    expect(result).toEqual(fine(''));
    expect(reports).toEqual([]);
  });

  test('what it throws midway is the result', async () => {
    const [result, reports] = await reported(async function* () {
      yield 'half';
      throw new Error('ouch');
    });
    expect(result).toEqual(failed('The tool "x" failed: ouch'));
    expect(reports).toEqual(['half']);
  });

  test.each([
    ['no iterator', { [Symbol.asyncIterator]: () => undefined }],
    ['no function', { [Symbol.asyncIterator]: 7 }],
    ['an iterator without next', { [Symbol.asyncIterator]: () => ({}) }],
    ['an iterator that gives nothing', { [Symbol.asyncIterator]: () => ({ next: async () => undefined }) }],
  ])('one that gives %s is an error', async (_, iterable) => {
    const [result] = await reported(() => iterable);
    expect(result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining('The tool "x" failed: ') }],
    });
  });

  test('a listener that fails does not leave it without a result', async () => {
    const { result } = run(
      async function* () {
        yield 'a';
      },
      {
        report: () => {
          throw new Error('no ears');
        },
      },
    );
    expect(await result).toMatchObject({ isError: true });
  });

  test.each(['timeout', 'abort'])('after the %s no more is taken from it, and it is told to end', async (how) => {
    const clock = manualClock();
    const reports: unknown[] = [];
    let [taken, ended] = [0, false];
    const { result, abort } = run(
      async function* (_, { signal: _signal }) {
        try {
          for (;;) {
            await tick(clock, 300);
            taken++;
            yield taken;
          }
        } finally {
          ended = true;
        }
      },
      { clock, report: (progress) => void reports.push(progress) },
    );
    await clock.advance(how === 'abort' ? 900 : 1_000);
    if (how === 'abort') abort();
    await result;
    await clock.advance(60_000);
    expect(taken).toBeLessThanOrEqual(4);
    expect(reports).toEqual([1, 2, 3]);
    expect(ended).toBe(true);
    expect(clock.pending).toBe(0);
  });

  test('one that has no text form to end is not taken from any more either', async () => {
    const clock = manualClock();
    let taken = 0;
    const next = async (): Promise<IteratorResult<number>> => {
      await tick(clock, 300);
      return { done: false, value: ++taken };
    };
    const { result } = run(() => ({ [Symbol.asyncIterator]: () => ({ next }) }), { clock });
    await clock.advance(1_000);
    expect(await result).toEqual(TIMED_OUT);
    await clock.advance(60_000);
    expect(taken).toBe(4);
    expect(clock.pending).toBe(0);
  });

  test('one that never ends and never waits does not outlive its time', async () => {
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
  function ask(answer: unknown): Running {
    return verify(executionOf(() => 'ran', { definition: { verify: (() => answer) as never } }));
  }

  test('done: with its result', () => {
    expect(ask({ type: 'done', result: { n: 1 } }).result).toEqual(fine('{"n":1}'));
  });

  test('not done, or nobody can tell', async () => {
    expect(ask({ type: 'not-done' }).result).toEqual({ type: 'not-done' });
    expect(ask({ type: 'unknown' }).result).toEqual({ type: 'unknown' });
    expect(await ask(Promise.resolve({ type: 'not-done' })).result).toEqual({ type: 'not-done' });
  });

  test('an answer that is none is not taken for one', () => {
    for (const answer of [{}, { type: 'maybe' }, 'done', 7]) expect(ask(answer).result).toEqual({ type: 'unknown' });
  });

  test('if asking fails, nobody can tell', async () => {
    const clock = manualClock();
    const unknown = { type: 'unknown' };
    expect(ask(undefined).result).toEqual(unknown);
    expect(await ask(Promise.reject(new Error('offline'))).result).toEqual(unknown);
    const never = verify(executionOf(() => 'ran', { clock, definition: { verify: () => new Promise(() => {}) } }));
    await clock.advance(1_000);
    expect(await never.result).toEqual(unknown);
  });
});

function tick(clock: ManualClock, ms: number): Promise<void> {
  return new Promise((resolve) => clock.timer(ms, resolve));
}
