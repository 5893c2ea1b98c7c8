import type { Model, ModelErrorCode, ModelReply } from '@treadle/core';
import { manualClock } from '@treadle/core/testing';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { request } from '../../test/request.ts';
import { router } from './router.ts';

/** What a member has seen, and what a breaker before it has to know of that. */
interface Watched {
  inside: number;
  readonly began: number[];
  inARow: number;
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

test('whatever fails and whenever: order, limits, breaker and counts hold', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async (given) => {
      const { concurrency, requestsPerMinute, failures, cooldownMs, maxRetries } = given;
      const clock = manualClock();
      const wrong: string[] = [];
      let next = 0;
      const made = (member: string): Model => {
        const watched: Watched = { inside: 0, began: [], inARow: 0, openUntil: undefined, probes: 0, openings: 0 };
        const begin = (): ((sign?: 'up' | 'down') => void) => {
          const now = clock.now();
          const { openUntil, openings } = watched;
          const isProbe = openUntil !== undefined;
          watched.began.push(now);
          if (++watched.inside > concurrency) wrong.push(`${member}: too many at once`);
          const minute = watched.began.filter((at) => at > now - 60_000);
          if (minute.length > requestsPerMinute) wrong.push(`${member}: too many in a minute`);
          if (isProbe && (now < openUntil || watched.probes++ > 0)) wrong.push(`${member}: asked while it is open`);
          return (sign) => {
            watched.inside--;
            if (isProbe) watched.probes--;
            if (sign === undefined || openings !== watched.openings) return;
            if (sign === 'up') Object.assign(watched, { inARow: 0, openUntil: undefined });
            else if (++watched.inARow >= failures || isProbe) {
              watched.openings++;
              watched.openUntil = clock.now() + cooldownMs;
            }
          };
        };
        return {
          id: member,
          reply: (_request, emit, signal) =>
            new Promise((resolve) => {
              const { ms, code, shows } = given.behaviours[next++ % given.behaviours.length]!;
              const end = begin();
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
        models: { a: made('a'), b: made('b'), c: made('c') },
        default: 'a',
        fallback: { a: ['b', 'c'] },
        limits: { a: limit, b: limit, c: limit },
        breaker: { failures, cooldownMs },
        maxRetries,
        clock,
        random: () => given.random,
      });

      const replies: (ModelReply & { readonly shown: number })[] = [];
      for (const [index, start] of given.starts.entries()) {
        clock.timer(start, () => {
          const controller = new AbortController();
          const cancelAt = given.cancels[index];
          let shown = 0;
          if (cancelAt !== undefined) clock.timer(Math.max(0, cancelAt - start), () => controller.abort());
          const { deadline } = given;
          const asked = request(deadline === undefined ? {} : { deadline: clock.now() + deadline });
          void route
            .reply(asked, () => shown++, controller.signal)
            .then((reply) => {
              replies.push({ ...reply, shown });
            });
        });
      }
      await clock.advance(3_600_000);

      expect(wrong).toEqual([]);
      // Everybody has an answer, and nothing is left behind.
      expect(replies).toHaveLength(given.starts.length);
      expect(clock.pending).toBe(0);

      for (const { type, attempts = [], shown } of replies) {
        // Only the attempt whose failure is told can have shown something.
        expect(shown).toBeLessThanOrEqual(type === 'reply' ? 0 : 1);
        const members = attempts.map(({ model }) => model);
        // Attempts stand in the order of the route, not too many with each, and only the last one succeeds.
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
