import {
  runLoop,
  tool,
  type Model,
  type ModelDelta,
  type ModelError,
  type ModelErrorCode,
  type ModelReply,
  type ModelRequest,
} from '@treadle/core';
import { manualClock, memoryJournal, scriptedModel, type ManualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { request } from '../../test/request.ts';
import { router } from './router.ts';

function error(code: ModelErrorCode, fields: Partial<ModelError> = {}): ModelError {
  return { code, message: `It is ${code}.`, retryable: true, ...fields };
}

const failure = (code: ModelErrorCode, fields?: Partial<ModelError>): ModelReply => ({
  type: 'failure',
  error: error(code, fields),
});

function ok(model: string): ModelReply {
  const content = [{ type: 'text', text: `I am ${model}` }] as const;
  return { type: 'reply', content, finish: 'stop', usage: { inputTokens: 1, outputTokens: 1, cost: 0 }, model };
}

/** What a member does for its n-th request. It takes 10 ms. */
type Behaviour = ModelReply | 'hang' | 'throw' | { readonly shows: string; readonly ends: ModelReply };

interface Member extends Model {
  asked: number;
}

function member(id: string, clock: ManualClock, ...script: Behaviour[]): Member {
  return {
    id,
    priced: true,
    asked: 0,
    reply(_request, emit) {
      const step = script[this.asked++] ?? ok(id);
      if (step === 'hang') return new Promise(() => {});
      if (step === 'throw') throw new Error('Oops');
      return new Promise((resolve) => {
        if ('shows' in step) emit({ type: 'text-delta', text: step.shows });
        clock.timer(10, () => resolve('shows' in step ? step.ends : step));
      });
    },
  };
}

interface Asked {
  readonly reply: ModelReply | undefined;
  readonly deltas: readonly ModelDelta[];
}

/** Asks the model and advances the clock. */
async function ask(model: Model, clock: ManualClock, fields: Partial<ModelRequest> = {}, ms = 200_000): Promise<Asked> {
  const deltas: ModelDelta[] = [];
  let reply: ModelReply | undefined;
  void model
    .reply(request(fields), (delta) => deltas.push(delta), new AbortController().signal)
    .then((settled) => (reply = settled));
  await clock.advance(ms);
  return { reply, deltas };
}

const tries = ({ reply }: Asked): unknown =>
  reply?.attempts?.map(({ model, ms, error }) => [model, ms, ...(error ? [error.code] : [])]);
const half = (): number => 0.5;

test('asks the default model, or a model by name', async () => {
  const clock = manualClock();
  const [main, backup] = [member('m', clock), member('b', clock)];
  const route = router({ models: { main, backup }, default: 'main', clock });
  expect([route.id, route.models.map(({ id }) => id)]).toEqual(['main', ['main', 'backup']]);
  expect((await ask(route, clock)).reply).toEqual({ ...ok('m'), attempts: [{ model: 'm', ms: 10 }] });
  expect((await ask(route.model('backup'), clock)).reply).toMatchObject({ model: 'b' });
  expect([main.asked, backup.asked]).toEqual([1, 1]);
});

test('lets prepareTurn choose a model by name', async () => {
  const [main, backup] = [scriptedModel([{ calls: [{ name: 'now' }] }]), scriptedModel(['Done.'])];
  const route = router({ models: { main, backup }, default: 'main' });
  const now = tool({ name: 'now', description: 'The time', execute: () => 'noon' });
  const result = await runLoop({
    model: route,
    models: route.models,
    tools: [now],
    input: 'Go.',
    limits: { cost: 1 },
    prepareTurn: ({ turn }) => (turn === 2 ? { model: 'backup' } : {}),
  });
  expect(result.text).toBe('Done.');
  main.assertDone();
  backup.assertDone();
});

test('retries a retryable failure with growing waits, then asks the fallbacks in order', async () => {
  const clock = manualClock();
  const main = member('m', clock, failure('overloaded'), failure('network'), failure('timeout'));
  const second = member('s', clock, failure('auth', { retryable: false }));
  const third = member('t', clock);
  const models = { main, second, third };
  const route = router({ models, default: 'main', fallback: { main: ['second', 'third'] }, clock, random: half });
  const asked = await ask(route, clock);
  expect(tries(asked)).toEqual([
    ['m', 10, 'overloaded'],
    ['m', 10, 'network'],
    ['m', 10, 'timeout'],
    ['s', 10, 'auth'],
    ['t', 10],
  ]);
  expect(asked.reply).toMatchObject(ok('t'));
});

test('waits with jitter and growth, and at least as long as the server asks for', async () => {
  const clock = manualClock();
  const at: number[] = [];
  const script = [failure('overloaded'), failure('overloaded'), failure('rate-limit', { retryAfterMs: 7_000 })];
  const main = member('m', clock, ...script);
  const timed: Model = { ...main, reply: (...args) => (at.push(clock.now()), main.reply(...args)) };
  const route = router({ models: { main: timed }, default: 'main', maxRetries: 3, clock, random: half });
  await ask(route, clock);
  expect(at).toEqual([0, 10 + 375, 395 + 750, 1_155 + 7_000]);
});

test('waits only shortly if there is a fallback, and up to a minute without one', async () => {
  const clock = manualClock();
  const busy = failure('rate-limit', { retryAfterMs: 30_000 });
  const make = (fallback: { main?: ['backup'] }): Model =>
    router({
      models: { main: member('m', clock, busy), backup: member('b', clock) },
      default: 'main',
      fallback,
      clock,
    });
  expect(tries(await ask(make({ main: ['backup'] }), clock))).toEqual([
    ['m', 10, 'rate-limit'],
    ['b', 10],
  ]);
  expect(tries(await ask(make({}), clock))).toEqual([
    ['m', 10, 'rate-limit'],
    ['m', 10],
  ]);
});

test.each([
  ['network', false, undefined, true],
  ['timeout', false, undefined, true],
  ['overloaded', false, 503, true],
  ['rate-limit', false, 402, true],
  ['protocol', false, undefined, true],
  ['auth', false, 401, true],
  ['context-length', false, 400, true],
  ['invalid-request', false, 404, true],
  ['invalid-request', false, 400, false],
  ['content-filter', false, 400, false],
  ['cancelled', false, undefined, false],
] as const)('%s (retryable %s, status %s) is passed to the fallback: %s', async (code, retryable, status, falls) => {
  const clock = manualClock();
  const main = member('m', clock, failure(code, { retryable, ...(status && { status }) }));
  const backup = member('b', clock);
  const route = router({ models: { main, backup }, default: 'main', fallback: { main: ['backup'] }, clock });
  const { reply } = await ask(route, clock);
  expect([main.asked, backup.asked, reply?.type]).toEqual([1, falls ? 1 : 0, falls ? 'reply' : 'failure']);
});

test('returns the last failure with all reasons, or context-length if there was one', async () => {
  const clock = manualClock();
  const long = failure('context-length', { retryable: false, status: 400 });
  const models = { a: member('a', clock, failure('auth', { retryable: false })), b: member('b', clock, long) };
  const c = member('c', clock, failure('overloaded'));
  const route = router({ models: { ...models, c }, default: 'a', fallback: { a: ['b', 'c'] }, maxRetries: 0, clock });
  const { reply } = await ask(route, clock);
  expect(reply).toMatchObject({
    type: 'failure',
    error: {
      code: 'context-length',
      status: 400,
      message:
        'All models failed. a: It is auth. (auth) b: It is context-length. (context-length) c: It is overloaded. (overloaded)',
    },
    attempts: [{ model: 'a' }, { model: 'b' }, { model: 'c' }],
  });
});

test('neither retries nor falls back after a delta was emitted', async () => {
  const clock = manualClock();
  const main = member('m', clock, { shows: 'Hel', ends: failure('network') });
  const backup = member('b', clock);
  const route = router({ models: { main, backup }, default: 'main', fallback: { main: ['backup'] }, clock });
  const { reply, deltas } = await ask(route, clock);
  expect(reply).toEqual({ ...failure('network'), attempts: [{ model: 'm', ms: 10, error: error('network') }] });
  expect(deltas).toEqual([{ type: 'text-delta', text: 'Hel' }]);
  expect([main.asked, backup.asked]).toEqual([1, 0]);
});

test('treats a model that throws or returns nonsense as failed, and frees its slot', async () => {
  const clock = manualClock();
  const main = member('m', clock, 'throw', undefined as never, { type: 'what' } as never);
  const odd: Model = { id: 'o', reply: async () => ({ type: 'what' }) as never };
  const route = router({ models: { main, odd }, default: 'main', limits: { main: { concurrency: 1 } }, clock });
  expect((await ask(route, clock)).reply).toMatchObject({
    error: { code: 'protocol', message: 'The model threw: Oops' },
  });
  expect((await ask(route, clock)).reply).toMatchObject({ type: 'reply' });
  expect((await ask(route.model('odd'), clock)).reply).toMatchObject({ error: { code: 'protocol' } });
});

test('skips an endpoint that is down, reports that, and probes it once after the cooldown', async () => {
  const clock = manualClock();
  const down = failure('overloaded', { retryable: false });
  const main = member('m', clock, down, down, down);
  const backup = member('b', clock);
  const options = { fallback: { main: ['backup'] }, breaker: { failures: 2, cooldownMs: 60_000 }, clock } as const;
  const route = router({ models: { main, backup }, default: 'main', ...options });
  await ask(route, clock, {}, 100);
  await ask(route, clock, {}, 100);
  const skipped = await ask(route, clock, {}, 100);
  expect(skipped.reply?.attempts).toEqual([
    {
      model: 'm',
      ms: 0,
      error: {
        code: 'overloaded',
        message: '"main" (m) was not asked: it failed repeatedly, so it is skipped for a while.',
        retryable: true,
      },
    },
    { model: 'b', fallback: 'backup', ms: 10 },
  ]);
  expect(main.asked).toBe(2);

  await clock.advance(60_000);
  const [one, two] = await Promise.all([ask(route, clock, {}, 100), ask(route, clock, {}, 100)]);
  expect(main.asked).toBe(3);
  expect([tries(one), tries(two)]).toEqual([
    [
      ['m', 10, 'overloaded'],
      ['b', 10],
    ],
    [
      ['m', 0, 'overloaded'],
      ['b', 10],
    ],
  ]);
  await clock.advance(60_000);
  expect(tries(await ask(route, clock))).toEqual([['m', 10]]);
});

test('does not wait for a slot while the breaker is open', async () => {
  const clock = manualClock();
  const main = member('m', clock, failure('network'), 'hang');
  const options = { limits: { main: { concurrency: 1 } }, breaker: { failures: 1, cooldownMs: 1_000 }, maxRetries: 0 };
  const route = router({ models: { main }, default: 'main', ...options, clock });
  await ask(route, clock, {}, 2_000);
  void route.reply(request(), () => {}, new AbortController().signal);
  await clock.advance(0);
  expect(tries(await ask(route, clock, {}, 0))).toEqual([['m', 0, 'overloaded']]);
  expect(main.asked).toBe(2);
});

test('stops retrying when the breaker opens', async () => {
  const clock = manualClock();
  const main = member('m', clock, failure('network'), failure('network'), failure('network'));
  const route = router({ models: { main }, default: 'main', breaker: { failures: 2 }, maxRetries: 9, clock });
  expect(tries(await ask(route, clock))).toEqual([
    ['m', 10, 'network'],
    ['m', 10, 'network'],
  ]);
  const open = router({
    models: { main: member('m', clock, failure('network')) },
    default: 'main',
    breaker: false,
    clock,
  });
  expect(tries(await ask(open, clock))).toEqual([
    ['m', 10, 'network'],
    ['m', 10],
  ]);
});

test('enforces the limits of each model, and excludes waiting from the time of an attempt', async () => {
  const clock = manualClock();
  let most = 0;
  let inside = 0;
  const main: Model = {
    id: 'm',
    reply: () => {
      most = Math.max(most, ++inside);
      return new Promise((resolve) => clock.timer(10, () => (inside--, resolve(ok('m')))));
    },
  };
  const route = router({ models: { main }, default: 'main', limits: { main: { concurrency: 2 } }, clock });
  const asked = await Promise.all([1, 2, 3, 4, 5].map(() => ask(route, clock, {}, 100)));
  expect(most).toBe(2);
  expect(asked.map(tries)).toEqual(asked.map(() => [['m', 10]]));
});

test('does not wait for a retry or a slot beyond the deadline', async () => {
  const clock = manualClock();
  const main = member('m', clock, failure('overloaded', { retryAfterMs: 5_000 }), ok('m'), ok('m'));
  const backup = member('b', clock);
  const options = { fallback: { main: ['backup'] }, limits: { main: { requestsPerMinute: 2 } }, clock } as const;
  const route = router({ models: { main, backup }, default: 'main', ...options });
  expect(tries(await ask(route, clock, { deadline: 5_010 }, 100))).toEqual([
    ['m', 10, 'overloaded'],
    ['b', 10],
  ]);
  expect(tries(await ask(route, clock, { deadline: 5_010 }, 100))).toEqual([['m', 10]]);
  const third = await ask(route, clock, { deadline: 5_010 }, 100);
  expect(third.reply?.attempts?.[0]).toEqual({
    model: 'm',
    ms: 0,
    error: {
      code: 'rate-limit',
      message: '"main" (m) was not asked: its limits do not allow a request before the deadline of the run.',
      retryable: false,
    },
  });
  expect(tries(third)).toEqual([
    ['m', 0, 'rate-limit'],
    ['b', 10],
  ]);
  const past = await ask(route, clock, { deadline: clock.now() }, 100);
  expect([tries(past), backup.asked]).toEqual([
    [
      ['m', 0, 'rate-limit'],
      ['b', 0, 'rate-limit'],
    ],
    2,
  ]);
});

test.each([
  ['while it answers', 5, 'hang'],
  ['before it is asked', 0, 'hang'],
  ['between retries', 50, failure('network')],
  ['in the queue', 5, 'queue'],
] as const)('cancels at once: %s', async (_, ms, does) => {
  const clock = manualClock();
  const first: Behaviour = does === 'queue' ? 'hang' : does;
  const main = member('m', clock, first, 'hang');
  const backup = member('b', clock);
  const options = { fallback: { main: ['backup'] }, limits: { main: { concurrency: 1 } }, clock } as const;
  const route = router({ models: { main, backup }, default: 'main', ...options });
  if (does === 'queue') void route.reply(request(), () => {}, new AbortController().signal);
  const controller = new AbortController();
  if (ms === 0) controller.abort();
  let reply: ModelReply | undefined;
  void route.reply(request(), () => {}, controller.signal).then((settled) => (reply = settled));
  await clock.advance(ms);
  if (ms > 0) expect(reply).toBeUndefined();
  controller.abort();
  await clock.advance(0);
  expect(reply).toMatchObject({ type: 'failure', error: { code: 'cancelled', retryable: false } });
  expect(backup.asked).toBe(0);
  expect(clock.pending).toBe(0);
});

test('ignores deltas of a cancelled model, which occupies its slot until it settles', async () => {
  const clock = manualClock();
  const deltas: ModelDelta[] = [];
  let emitLate = (): void => {};
  let end = (): void => {};
  const ignoring: Model = {
    id: 'd',
    reply: (_request, emit) => {
      emitLate = () => emit({ type: 'text-delta', text: 'late' });
      return new Promise((resolve) => (end = () => resolve(ok('d'))));
    },
  };
  const route = router({ models: { ignoring }, default: 'ignoring', limits: { ignoring: { concurrency: 1 } }, clock });
  const controller = new AbortController();
  const first = route.reply(request(), (delta) => deltas.push(delta), controller.signal);
  await clock.advance(0);
  controller.abort();
  expect(await first).toMatchObject({ error: { code: 'cancelled' } });
  emitLate();
  const letEnd = end;
  const next = ask(route, clock, {}, 0);
  expect((await next).reply).toBeUndefined();
  letEnd();
  await clock.advance(0);
  end();
  await clock.advance(0);
  expect(deltas).toEqual([]);
});

test('is priced if the model and all of its fallbacks are', () => {
  const clock = manualClock();
  const free: Model = { id: 'f', reply: async () => ok('f') };
  const models = { main: member('m', clock), backup: member('b', clock), free };
  const route = router({ models, default: 'main', fallback: { main: ['backup'], backup: ['free'] } });
  expect([route.priced, ...route.models.map(({ priced }) => priced)]).toEqual([true, true, false, false]);
});

test('costs at most as much as the most expensive model that may reply', () => {
  const clock = manualClock();
  const costing = (id: string, cost: number): Model => ({ ...member(id, clock), maxCost: () => cost });
  const models = { main: costing('m', 1), backup: costing('b', 3), unknown: member('u', clock) };
  const route = router({ models, default: 'main', fallback: { main: ['backup'], backup: ['unknown'] } });
  expect(route.models.map((model) => model.maxCost?.(1, 1))).toEqual([3, undefined, undefined]);
});

test('names the model without a price if there is a cost limit', async () => {
  const clock = manualClock();
  const models = { main: member('m', clock), backup: { id: 'b', reply: async () => ok('b') } };
  const route = router({ models, default: 'main', fallback: { main: ['backup'] }, clock });
  await expect(runLoop({ model: route, input: 'hi', limits: { cost: 1 } })).rejects.toThrow(
    'the run may call "b" without a known price',
  );
});

test.each([
  ['undefined', undefined],
  ['a failure without an error', { type: 'failure' }],
  ['another object', { type: 'other' }],
])('fails if the model returns %s', async (_, returned) => {
  const clock = manualClock();
  const broken: Model = { id: 'b', reply: async () => returned as never };
  const { reply } = await ask(router({ models: { broken }, default: 'broken', clock }), clock);
  expect(reply).toMatchObject({
    type: 'failure',
    error: { code: 'protocol', message: 'The model returned no reply.', retryable: false },
  });
});

test('journals every attempt of replies and failures', async () => {
  const clock = manualClock();
  const down = failure('overloaded', { retryable: false });
  const models = { main: member('m', clock, down, down), backup: member('b', clock, ok('b'), down) };
  const route = router({ models, default: 'main', fallback: { main: ['backup'] }, clock });
  const journal = memoryJournal();
  const attempts: unknown[] = [];
  for (const runId of ['a', 'b']) {
    const done = runLoop({ model: route, input: 'Go.', journal, runId, clock });
    await clock.advance(100);
    await done;
    for (const { event } of await journal.read(runId)) if ('attempts' in event) attempts.push(event.attempts);
  }
  const broken = { model: 'm', ms: 10, error: error('overloaded', { retryable: false }) };
  expect(attempts).toEqual([
    [broken, { model: 'b', fallback: 'backup', ms: 10 }],
    [broken, { ...broken, model: 'b', fallback: 'backup' }],
  ]);
});

const model: Model = { id: 'm', reply: async () => ok('m') };
test.each([
  [undefined, '"models" is missing: pass the models by name, such as { main: openaiChat({ model: \'…\' }) }.'],
  [
    { models: {}, default: 'main' },
    '"models" is missing: pass the models by name, such as { main: openaiChat({ model: \'…\' }) }.',
  ],
  [{ models: { main: {} }, default: 'main' }, '"main" is not a model.'],
  [{ models: { main: 'gpt' }, default: 'main' }, '"main" is not a model. Use openaiChat({ model: "gpt" }).'],
  [{ models: { main: model } }, '"default" names "undefined", which is not one of the models (main).'],
  [
    { models: { main: model }, default: 'toString' },
    '"default" names "toString", which is not one of the models (main).',
  ],
  [
    { models: { main: model }, default: 'main', fallback: { main: ['x'] } },
    '"fallback.main" names "x", which is not one of the models (main).',
  ],
  [
    { models: { main: model }, default: 'main', fallback: { x: [] } },
    '"fallback" names "x", which is not one of the models (main).',
  ],
  [
    { models: { main: model }, default: 'main', fallback: { main: ['main'] } },
    '"fallback.main" names a model twice, or itself.',
  ],
  [
    { models: { main: model, b: model }, default: 'main', fallback: { main: ['b', 'b'] } },
    '"fallback.main" names a model twice, or itself.',
  ],
  [
    { models: { main: model }, default: 'main', limits: { x: {} } },
    '"limits" names "x", which is not one of the models (main).',
  ],
  [
    { models: { main: model }, default: 'main', limits: { main: { concurrency: 0 } } },
    '"limits.main.concurrency" must be a whole number from 1.',
  ],
  [
    { models: { main: model }, default: 'main', limits: { main: { requestsPerMinute: 1.5 } } },
    '"limits.main.requestsPerMinute" must be a whole number from 1.',
  ],
  [{ models: { main: model }, default: 'main', maxRetries: -1 }, '"maxRetries" must be a whole number from 0.'],
  [
    { models: { main: model }, default: 'main', breaker: { failures: 0 } },
    '"breaker.failures" must be a whole number from 1.',
  ],
])('rejects the options %j', (options, message) => {
  expect(() => router(options as Parameters<typeof router>[0])).toThrow(
    expect.objectContaining({ code: 'invalid-options', message: `router: ${message}` }),
  );
});

test('throws for an unknown name', () => {
  const route = router({ models: { main: model }, default: 'main' });
  expect(() => route.model('x' as 'main')).toThrow('router: there is no model "x". The models are: main.');
});
