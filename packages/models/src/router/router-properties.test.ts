import type { Model, ModelErrorCode, ModelReply } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { request } from '../../test/request.ts';
import { router } from './router.ts';

/** The requests to a member, and the state that its breaker should have. */
interface Observed {
  concurrent: number;
  readonly starts: number[];
  consecutiveFailures: number;
  openUntil: number | undefined;
  probes: number;
  openings: number;
}

const CODES = ['network', 'overloaded', 'rate-limit', 'auth', 'invalid-request', 'context-length'] as const;
const DOWN: readonly ModelErrorCode[] = ['network', 'overloaded', 'rate-limit'];

const behaviour = fc.record({
  ms: fc.integer({ min: 0, max: 3_000 }),
  code: fc.option(fc.constantFrom(...CODES), { nil: undefined, freq: 2 }),
  shows: fc.boolean(),
});
const scenario = fc.record({
  behaviours: fc.array(behaviour, { minLength: 1, maxLength: 40 }),
  starts: fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 1, maxLength: 12 }),
  cancels: fc.array(fc.option(fc.integer({ min: 0, max: 25_000 }), { nil: undefined, freq: 4 }), { maxLength: 12 }),
  deadline: fc.option(fc.integer({ min: 0, max: 30_000 }), { nil: undefined }),
  concurrency: fc.integer({ min: 1, max: 3 }),
  requestsPerMinute: fc.integer({ min: 1, max: 8 }),
  failures: fc.integer({ min: 1, max: 3 }),
  cooldownMs: fc.integer({ min: 1, max: 20_000 }),
  maxRetries: fc.integer({ min: 0, max: 3 }),
  random: fc.double({ min: 0, max: 0.999, noNaN: true }),
});

const REPLY = { type: 'reply', content: [], finish: 'stop', usage: { inputTokens: 1, outputTokens: 1 } } as const;
const NAMES = ['a', 'b', 'c'] as const;

test('keeps order, limits, breaker and attempt counts with any failures at any time', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async (run) => {
      const { concurrency, requestsPerMinute, failures, cooldownMs, maxRetries } = run;
      const clock = manualClock();
      const violations: string[] = [];
      let next = 0;
      const observedModel = (member: string): Model => {
        const observed: Observed = {
          concurrent: 0,
          starts: [],
          consecutiveFailures: 0,
          openUntil: undefined,
          probes: 0,
          openings: 0,
        };
        const startRequest = (): ((sign?: 'up' | 'down') => void) => {
          const now = clock.now();
          const { openUntil, openings } = observed;
          const isProbe = openUntil !== undefined;
          observed.starts.push(now);
          if (++observed.concurrent > concurrency) violations.push(`${member}: too many at once`);
          const minute = observed.starts.filter((at) => at > now - 60_000);
          if (minute.length > requestsPerMinute) violations.push(`${member}: too many in a minute`);
          if (isProbe && (now < openUntil || observed.probes++ > 0))
            violations.push(`${member}: asked while it is open`);
          return (sign) => {
            observed.concurrent--;
            if (isProbe) observed.probes--;
            if (sign === undefined || openings !== observed.openings) return;
            if (sign === 'up') Object.assign(observed, { consecutiveFailures: 0, openUntil: undefined });
            else if (++observed.consecutiveFailures >= failures || isProbe) {
              observed.openings++;
              observed.openUntil = clock.now() + cooldownMs;
            }
          };
        };
        return {
          id: member,
          reply: (_request, emit, signal) =>
            new Promise((resolve) => {
              const { ms, code, shows } = run.behaviours[next++ % run.behaviours.length]!;
              const end = startRequest();
              if (shows && code !== undefined) emit({ type: 'text-delta', text: 'x' });
              const cancel = (): void => {
                stop();
                end();
                resolve({ type: 'failure', error: { code: 'cancelled', message: '', retryable: false } });
              };
              const stop = clock.timer(ms, () => {
                signal.removeEventListener('abort', cancel);
                end(code !== undefined && DOWN.includes(code) ? 'down' : 'up');
                if (code === undefined) resolve({ ...REPLY, model: member });
                else resolve({ type: 'failure', error: { code, message: code, retryable: DOWN.includes(code) } });
              });
              signal.addEventListener('abort', cancel, { once: true });
            }),
        };
      };
      const limit = { concurrency, requestsPerMinute };
      const route = router({
        models: { a: observedModel('a'), b: observedModel('b'), c: observedModel('c') },
        default: 'a',
        fallback: { a: ['b', 'c'] },
        limits: { a: limit, b: limit, c: limit },
        breaker: { failures, cooldownMs },
        maxRetries,
        clock,
        random: () => run.random,
      });

      const replies: (ModelReply & { readonly shown: number })[] = [];
      for (const [index, start] of run.starts.entries()) {
        clock.timer(start, () => {
          const controller = new AbortController();
          const cancelAt = run.cancels[index];
          let shown = 0;
          if (cancelAt !== undefined) clock.timer(Math.max(0, cancelAt - start), () => controller.abort());
          const { deadline } = run;
          const asked = request(deadline === undefined ? {} : { deadline: clock.now() + deadline });
          void route
            .reply(asked, () => shown++, controller.signal)
            .then((reply) => {
              replies.push({ ...reply, shown });
            });
        });
      }
      await clock.advance(3_600_000);

      expect(violations).toEqual([]);
      // Every request has a reply, and no timer is pending.
      expect(replies).toHaveLength(run.starts.length);
      expect(clock.pending).toBe(0);

      for (const { type, attempts = [], shown } of replies) {
        // Only an attempt whose failure is returned can have emitted a delta.
        expect(shown).toBeLessThanOrEqual(type === 'reply' ? 0 : 1);
        const members = attempts.map(({ model }) => model);
        // Attempts are in the order of the route, at most 1 + maxRetries for each model, and only the last succeeds.
        expect(members).toEqual(members.toSorted());
        for (const name of NAMES)
          expect(members.filter((each) => each === name).length).toBeLessThanOrEqual(1 + maxRetries);
        expect(attempts.slice(0, -1).every(({ error }) => error !== undefined)).toBe(true);
        if (type === 'reply') expect(attempts.at(-1)).not.toHaveProperty('error');
      }
    }),
    { numRuns: 300 },
  );
}, 60_000);
