import { userText, type Clock, type ModelDelta, type ModelReply, type ModelRequest } from '@treadle/core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { FormName, ScriptedFault, Step } from '../provider/script.ts';
import { KEY, modelOf, PROTOCOLS, type ProtocolOptions } from './protocols.ts';

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

// At most one connection stays open after each test, for the next request.
afterEach(() => provider.quiet(1));

const request: ModelRequest = {
  messages: [userText('How is the weather in Oslo?')],
  tools: [],
  toolChoice: 'auto',
  parallel: true,
  settings: {},
  key: 'r/t1',
};

interface Asked {
  readonly reply: ModelReply;
  readonly emitted: string;
}

async function ask(form: FormName, steps: readonly Step[], options: ProtocolOptions): Promise<Asked> {
  const script = await provider.script(steps);
  let emitted = '';
  const emit = (delta: ModelDelta): void => {
    if (delta.type === 'text-delta') emitted += delta.text;
  };
  const reply = await modelOf(form, script, options).reply(request, emit, new AbortController().signal);
  expect(JSON.stringify(reply).slice(0, 100_000)).not.toContain(KEY);
  expect((await script.requests()).filter(({ refused }) => refused !== undefined)).toEqual([]);
  return { reply, emitted };
}

const failureOf = (error: object): object => ({ type: 'failure', error });
const TEXT = 'The weather in Oslo is fine today.';
const GOOD_REPLY = { type: 'reply', content: [{ type: 'text', text: TEXT }], finish: 'stop' };
/** A clock that records waits of up to a minute and ends them at once. Longer waits, the timeouts of a model, never end. */
function eagerClock(): Clock & { readonly waits: readonly number[] } {
  const waits: number[] = [];
  return {
    waits,
    now: () => 0,
    timer(ms, fire) {
      if (ms > 60_000) return () => {};
      waits.push(ms);
      const timer = setImmediate(fire);
      return () => clearImmediate(timer);
    },
  };
}

const SHORT = { headers: 50, idle: 50 };

interface Case {
  readonly fault: ScriptedFault;
  readonly outcome: object;
  readonly timeouts?: ProtocolOptions['timeouts'];
}

const cases: readonly Case[] = [
  { fault: { fault: 'status', status: 401 }, outcome: failureOf({ code: 'auth', retryable: false, status: 401 }) },
  {
    fault: { fault: 'status', status: 429, retryAfter: 7 },
    outcome: failureOf({ code: 'rate-limit', retryable: true, status: 429, retryAfterMs: 7_000 }),
  },
  { fault: { fault: 'status', status: 500 }, outcome: failureOf({ code: 'overloaded', retryable: true, status: 500 }) },
  { fault: { fault: 'status', status: 529 }, outcome: failureOf({ code: 'overloaded', retryable: true, status: 529 }) },
  { fault: { fault: 'slow-headers' }, timeouts: SHORT, outcome: failureOf({ code: 'timeout', retryable: true }) },
  { fault: { fault: 'stall' }, timeouts: SHORT, outcome: failureOf({ code: 'timeout', retryable: true }) },
  { fault: { fault: 'reset' }, outcome: failureOf({ code: 'network', retryable: true }) },
  { fault: { fault: 'reset-at-once' }, outcome: failureOf({ code: 'network', retryable: true }) },
  { fault: { fault: 'close' }, outcome: failureOf({ code: 'protocol', retryable: true }) },
  { fault: { fault: 'garbage' }, outcome: failureOf({ code: 'protocol', retryable: true }) },
  { fault: { fault: 'wrong-content-type' }, outcome: GOOD_REPLY },
  { fault: { fault: 'web-page' }, outcome: failureOf({ code: 'protocol', retryable: false }) },
  { fault: { fault: 'error-in-200', status: 500 }, outcome: failureOf({ code: 'overloaded', retryable: true }) },
  { fault: { fault: 'huge-error' }, outcome: failureOf({ code: 'overloaded', retryable: true, status: 500 }) },
];

describe.each(PROTOCOLS)('%s', (form) => {
  describe.each([true, false])('streamed: %s', (stream) => {
    test.each(cases)('returns the right result for $fault', async ({ fault, outcome, timeouts }) => {
      const { reply, emitted } = await ask(form, [fault], { stream, ...(timeouts && { timeouts }) });
      expect(reply).toMatchObject(outcome);
      expect(TEXT.startsWith(emitted)).toBe(true);
      expect(reply.attempts).toHaveLength(1);
      if (reply.type === 'failure') expect(reply.error.message.length).toBeLessThan(3_000);
    });

    test('ends a reply of many megabytes as a failure that says so', async () => {
      const { reply } = await ask(form, [{ fault: 'huge' }], { stream });
      expect(reply).toMatchObject(failureOf({ code: 'protocol', message: expect.stringContaining('8') }));
    });

    test('retries after the time that the provider asks for', async () => {
      const clock = eagerClock();
      const faults: Step[] = [{ fault: 'status', status: 429, retryAfter: 7 }, { fault: 'reset-at-once' }];
      const { reply } = await ask(form, [...faults, { text: TEXT }], { stream, clock, maxRetries: 2, random: () => 0 });
      expect(reply).toMatchObject({
        ...GOOD_REPLY,
        attempts: [{ error: { code: 'rate-limit' } }, { error: { code: 'network' } }, { model: 'm-1' }],
      });
      expect(clock.waits.slice(0, 2)).toEqual([7_000, 500]);
    });
  });

  test('fails with the error in the middle of a stream', async () => {
    const { reply, emitted } = await ask(form, [{ fault: 'error-in-stream' }], {});
    expect(reply).toMatchObject(failureOf({ code: 'overloaded', retryable: true }));
    expect(emitted).not.toBe('');
  });

  test.each(['close', 'reset', 'garbage', 'error-in-stream'] as const)(
    'fails after %s in the middle of a call',
    async (fault) => {
      const calls = [{ name: 'add', arguments: '{"first":1,"second":2,"third":3}' }];
      const { reply } = await ask(form, [{ fault, reply: { calls } }], {});
      const codes = { close: 'protocol', reset: 'network', garbage: 'protocol', 'error-in-stream': 'overloaded' };
      expect(reply).toMatchObject(failureOf({ code: codes[fault], retryable: true }));
    },
  );

  test('does not retry after text was emitted', async () => {
    const { reply, emitted } = await ask(form, [{ fault: 'reset' }, { text: TEXT }], { maxRetries: 2 });
    expect(reply).toMatchObject(failureOf({ code: 'network' }));
    expect(reply.attempts).toHaveLength(1);
    expect(emitted).not.toBe('');
  });

  test.each(['slow-headers', 'stall'] as const)('can be cancelled during %s', async (fault) => {
    const script = await provider.script([{ fault }]);
    const stop = new AbortController();
    const replied = modelOf(form, script).reply(request, () => stop.abort(), stop.signal);
    if (fault === 'slow-headers') stop.abort();
    expect(await replied).toMatchObject(failureOf({ code: 'cancelled', retryable: false }));
  });
});
