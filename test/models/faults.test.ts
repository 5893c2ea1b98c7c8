import { userText, type ModelDelta, type ModelReply, type ModelRequest } from '@treadle/core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import { startProvider, type Provider } from '../provider/provider.ts';
import type { FormName, ScriptedFault, Step } from '../provider/script.ts';
import { eagerClock } from './clock.ts';
import { KEY, modelOf, PROTOCOLS, type ProtocolOptions } from './protocols.ts';

let provider: Provider;
beforeAll(async () => {
  provider = await startProvider();
});
afterAll(() => provider[Symbol.asyncDispose]());

// Whatever has happened, nothing hangs on: at most the one connection that is kept for the next request.
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
  readonly shown: string;
}

async function ask(form: FormName, steps: readonly Step[], options: ProtocolOptions): Promise<Asked> {
  const script = await provider.script(steps);
  let shown = '';
  const emit = (delta: ModelDelta): void => {
    if (delta.type === 'text-delta') shown += delta.text;
  };
  const reply = await modelOf(form, script, options).reply(request, emit, new AbortController().signal);
  expect(JSON.stringify(reply).slice(0, 100_000)).not.toContain(KEY);
  expect((await script.requests()).filter(({ refused }) => refused !== undefined)).toEqual([]);
  return { reply, shown };
}

const failed = (error: object): object => ({ type: 'failure', error });
const TEXT = 'The weather in Oslo is fine today.';
const good = { type: 'reply', content: [{ type: 'text', text: TEXT }], finish: 'stop' };
const SHORT = { headers: 50, idle: 50 };

interface Case {
  readonly fault: ScriptedFault;
  readonly outcome: object;
  readonly timeouts?: ProtocolOptions['timeouts'];
}

const cases: readonly Case[] = [
  { fault: { fault: 'status', status: 401 }, outcome: failed({ code: 'auth', retryable: false, status: 401 }) },
  {
    fault: { fault: 'status', status: 429, retryAfter: 7 },
    outcome: failed({ code: 'rate-limit', retryable: true, status: 429, retryAfterMs: 7_000 }),
  },
  { fault: { fault: 'status', status: 500 }, outcome: failed({ code: 'overloaded', retryable: true, status: 500 }) },
  { fault: { fault: 'status', status: 529 }, outcome: failed({ code: 'overloaded', retryable: true, status: 529 }) },
  { fault: { fault: 'slow-headers' }, timeouts: SHORT, outcome: failed({ code: 'timeout', retryable: true }) },
  { fault: { fault: 'stall' }, timeouts: SHORT, outcome: failed({ code: 'timeout', retryable: true }) },
  { fault: { fault: 'reset' }, outcome: failed({ code: 'network', retryable: true }) },
  { fault: { fault: 'reset-at-once' }, outcome: failed({ code: 'network', retryable: true }) },
  { fault: { fault: 'close' }, outcome: failed({ code: 'protocol', retryable: true }) },
  { fault: { fault: 'garbage' }, outcome: failed({ code: 'protocol', retryable: true }) },
  { fault: { fault: 'wrong-content-type' }, outcome: good },
  { fault: { fault: 'web-page' }, outcome: failed({ code: 'protocol', retryable: false }) },
  { fault: { fault: 'error-in-200', status: 500 }, outcome: failed({ code: 'overloaded', retryable: true }) },
  { fault: { fault: 'huge-error' }, outcome: failed({ code: 'overloaded', retryable: true, status: 500 }) },
];

describe.each(PROTOCOLS)('%s', (form) => {
  describe.each([true, false])('streamed: %s', (stream) => {
    test.each(cases)('$fault', async ({ fault, outcome, timeouts }) => {
      const { reply, shown } = await ask(form, [fault], { stream, ...(timeouts && { timeouts }) });
      expect(reply).toMatchObject(outcome);
      expect(TEXT.startsWith(shown)).toBe(true);
      expect(reply.attempts).toHaveLength(1);
      if (reply.type === 'failure') expect(reply.error.message.length).toBeLessThan(3_000);
    });

    test('50 MB of text', async () => {
      const { reply } = await ask(form, [{ fault: 'huge' }], { stream });
      if (reply.type === 'failure') throw new Error(reply.error.message);
      expect(reply.finish).toBe('stop');
      expect(reply.content).toHaveLength(1);
      const [part] = reply.content;
      expect(part?.type === 'text' && part.text.length).toBeGreaterThanOrEqual(10 * 1024 * 1024);
    });

    test('what may pass is tried again, as late as the provider wants it', async () => {
      const clock = eagerClock();
      const faults: Step[] = [{ fault: 'status', status: 429, retryAfter: 7 }, { fault: 'reset-at-once' }];
      const { reply } = await ask(form, [...faults, { text: TEXT }], { stream, clock, maxRetries: 2, random: () => 0 });
      expect(reply).toMatchObject({
        ...good,
        attempts: [{ error: { code: 'rate-limit' } }, { error: { code: 'network' } }, { model: 'm-1' }],
      });
      expect(clock.waits.slice(0, 2)).toEqual([7_000, 500]);
    });
  });

  test('an error in the middle of a stream', async () => {
    const { reply, shown } = await ask(form, [{ fault: 'error-in-stream' }], {});
    expect(reply).toMatchObject(failed({ code: 'overloaded', retryable: true }));
    expect(shown).not.toBe('');
  });

  test.each(['close', 'reset', 'garbage', 'error-in-stream'] as const)('%s in the middle of a call', async (fault) => {
    const calls = [{ name: 'add', arguments: '{"first":1,"second":2,"third":3}' }];
    const { reply } = await ask(form, [{ fault, reply: { calls } }], {});
    const codes = { close: 'protocol', reset: 'network', garbage: 'protocol', 'error-in-stream': 'overloaded' };
    expect(reply).toMatchObject(failed({ code: codes[fault], retryable: true }));
  });

  test('what broke off after something was shown is not tried again', async () => {
    const { reply, shown } = await ask(form, [{ fault: 'reset' }, { text: TEXT }], { maxRetries: 2 });
    expect(reply).toMatchObject(failed({ code: 'network' }));
    expect(reply.attempts).toHaveLength(1);
    expect(shown).not.toBe('');
  });

  test.each(['slow-headers', 'stall'] as const)('cancelled during %s', async (fault) => {
    const script = await provider.script([{ fault }]);
    const stop = new AbortController();
    const replied = modelOf(form, script).reply(request, () => stop.abort(), stop.signal);
    if (fault === 'slow-headers') stop.abort();
    expect(await replied).toMatchObject(failed({ code: 'cancelled', retryable: false }));
  });
});
