import { runLoop, type ModelReply } from '@treadle/core';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { request } from '../../test/request.ts';
import { chunk, reset, says, scriptedServer, status } from '../../test/scripted-server.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';
import { router } from './router.ts';

const never = new AbortController().signal;
const codes = ({ attempts = [] }: ModelReply): unknown => attempts.map(({ model, error }) => [model, error?.code]);
const busy = (seconds?: number): ReturnType<typeof status> =>
  status(
    429,
    { error: { message: 'Slow down', code: 'rate_limit_exceeded' } },
    seconds === undefined ? {} : { 'retry-after': `${seconds}` },
  );
const broken = status(503, { error: { message: 'Down' } });

test('only the router retries, so retries do not multiply', async () => {
  await using main = await scriptedServer(...Array(20).fill(broken));
  const clock = hurriedClock();
  const model = openaiChat({ model: 'm', baseURL: main.url, maxRetries: 5, clock });
  const route = router({ models: { main: model }, default: 'main', maxRetries: 2, breaker: false, clock });
  const reply = await route.reply(request(), () => {}, never);
  expect(codes(reply)).toEqual([1, 2, 3].map(() => ['m', 'overloaded']));
  expect(main.seen).toHaveLength(3);
});

test('respects a short retry-after, and falls back for a long one', async () => {
  await using main = await scriptedServer(busy(3), busy(30));
  await using backup = await scriptedServer(says('Hello'));
  const clock = hurriedClock();
  const models = {
    main: openaiChat({ model: 'm', baseURL: main.url, clock }),
    backup: openaiChat({ model: 'b', baseURL: backup.url, clock }),
  };
  const route = router({ models, default: 'main', fallback: { main: ['backup'] }, clock, random: () => 0 });
  const reply = await route.reply(request(), () => {}, never);
  expect(codes(reply)).toEqual([
    ['m', 'rate-limit'],
    ['m', 'rate-limit'],
    ['m-2025', undefined],
  ]);
  expect(clock.waits.filter((ms) => ms > 1_000)).toEqual([3_000]);
});

test('does not connect to an endpoint while its breaker is open', async () => {
  await using main = await scriptedServer(broken, broken, says('Back'));
  await using backup = await scriptedServer(says('Hello'), says('Hello'), says('Hello'));
  let now = 0;
  const clock = { now: () => now, timer: () => () => {} };
  const models = {
    main: openaiChat({ model: 'm', baseURL: main.url }),
    backup: openaiChat({ model: 'b', baseURL: backup.url }),
  };
  const breaker = { failures: 2, cooldownMs: 1_000 };
  const route = router({ models, default: 'main', fallback: { main: ['backup'] }, maxRetries: 0, breaker, clock });
  for (let turn = 0; turn < 3; turn++)
    expect(await route.reply(request(), () => {}, never)).toMatchObject({ type: 'reply' });
  expect([main.seen.length, backup.seen.length]).toEqual([2, 3]);
  now = 1_000;
  expect(await route.reply(request(), () => {}, never)).toMatchObject({ content: [{ text: 'Back' }] });
});

test('does not fall back if a stream breaks after its first delta', async () => {
  await using main = await scriptedServer(reset(chunk({ content: 'Hel' })));
  await using backup = await scriptedServer();
  const models = {
    main: openaiChat({ model: 'm', baseURL: main.url }),
    backup: openaiChat({ model: 'b', baseURL: backup.url }),
  };
  const route = router({ models, default: 'main', fallback: { main: ['backup'] } });
  const result = await runLoop({ model: route, input: 'Go.' });
  expect(result.outcome).toMatchObject({ type: 'failed', error: { code: 'network' } });
  expect([main.seen.length, backup.seen.length]).toEqual([1, 0]);
});

test('falls back from a model without tools, or asks it without them', async () => {
  const refusal = status(404, { error: { message: 'No endpoints found that support tool use.', code: 404 } });
  const tools = [{ name: 'now', description: 'The time', parameters: { type: 'object' } }];
  await using main = await scriptedServer(refusal, refusal, says('Hello'));
  await using backup = await scriptedServer(says('Hello'));
  const models = {
    main: openaiChat({ model: 'm', baseURL: main.url }),
    degraded: openaiChat({ model: 'd', baseURL: main.url, toolSupport: 'degrade' }),
    backup: openaiChat({ model: 'b', baseURL: backup.url }),
  };
  const fallback = { main: ['backup'], degraded: ['backup'] } as const;
  const route = router({ models, default: 'main', fallback });
  const withTools = await route.reply(request({ tools }), () => {}, never);
  expect(codes(withTools)).toEqual([
    ['m', 'invalid-request'],
    ['m-2025', undefined],
  ]);
  const without = await route.model('degraded').reply(request({ tools }), () => {}, never);
  expect(codes(without)).toEqual([
    ['d', 'invalid-request'],
    ['m-2025', undefined],
  ]);
  expect(main.seen.map(({ body }) => 'tools' in (body as object))).toEqual([true, true, false]);
});
