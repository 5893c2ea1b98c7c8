import { TreadleError, runLoop, type Model, type ModelReply } from '@treadle/core';
import { expect, test } from 'vitest';
import { hurriedClock } from '../../test/clocks.ts';
import { request } from '../../test/request.ts';
import { chunk, says, scriptedServer, status, stream } from '../../test/scripted-server.ts';
import { openaiChat } from '../openai-chat/openai-chat.ts';

const ask = (model: Model, deadline?: number): Promise<ModelReply> =>
  model.reply(request(deadline === undefined ? {} : { deadline }), () => {}, new AbortController().signal);

const USAGE = {
  prompt_tokens: 1_000_000,
  completion_tokens: 100_000,
  prompt_tokens_details: { cached_tokens: 400_000 },
};
const replying = (usage: object): ReturnType<typeof stream> =>
  stream(chunk({ content: 'Hi' }, 'stop'), `data: ${JSON.stringify({ choices: [], usage })}\n\n`, 'data: [DONE]\n\n');

test.each([
  ['of a known model', { model: 'gpt-5-mini-2025-08-07' }, true, 0.15 + 0.01 + 0.2],
  ['from the price option', { model: 'm', price: { input: 1, output: 10, cachedInput: 0.5 } }, true, 0.6 + 0.2 + 1],
  ['from the price option instead of the table', { model: 'gpt-5-mini', price: { input: 1, output: 0 } }, true, 1],
  ['of a free model', { model: 'm', price: { input: 0, output: 0 } }, true, 0],
  ['of an unknown model', { model: 'm' }, false, undefined],
])('computes the cost %s', async (_, options, priced, cost) => {
  await using server = await scriptedServer(replying(USAGE));
  const model = openaiChat({ ...options, baseURL: server.url });
  expect(model.priced).toBe(priced);
  const reply = await ask(model);
  const usage = { inputTokens: 1_000_000, outputTokens: 100_000, cachedTokens: 400_000 };
  expect(reply).toMatchObject({ type: 'reply', usage });
  if (reply.type !== 'reply') return;
  if (cost === undefined) expect(reply.usage).not.toHaveProperty('cost');
  else expect(reply.usage.cost).toBeCloseTo(cost, 9);
});

test('prefers the cost that the provider reports to the price', async () => {
  await using server = await scriptedServer(replying({ ...USAGE, cost: 0.0123 }));
  const reply = await ask(openaiChat({ model: 'gpt-5', baseURL: server.url }));
  expect(reply).toMatchObject({ usage: { cost: 0.0123 } });
});

test('a host that does not report tokens has an unknown cost, not zero', async () => {
  await using server = await scriptedServer(says('Hello'));
  const reply = await ask(openaiChat({ model: 'gpt-5', baseURL: server.url }));
  expect(reply.type === 'reply' && reply.usage).toEqual({ inputTokens: 0, outputTokens: 0 });
});

test('a cost limit ends a run, and a run without a known price does not start', async () => {
  await using server = await scriptedServer(replying(USAGE));
  const limits = { cost: 0.1 };
  await expect(
    runLoop({ model: openaiChat({ model: 'm', baseURL: server.url }), input: 'Go.', limits }),
  ).rejects.toThrow(TreadleError);
  expect(server.seen).toEqual([]);
  const model = openaiChat({ model: 'm', baseURL: server.url, price: { input: 1, output: 10 } });
  const result = await runLoop({ model, input: 'Go.', limits });
  expect(result.usage.cost).toBeCloseTo(2, 9);
});

test('rejects an invalid price', () => {
  expect(() => openaiChat({ model: 'm', price: { input: -1, output: 1 } })).toThrow(
    'openaiChat: "price" has a wrong "input"',
  );
});

test('does not retry after the deadline', async () => {
  const slow = status(503, { error: { message: 'Down' } }, { 'retry-after': '5' });
  await using server = await scriptedServer(slow, slow, says('Hello'));
  const clock = hurriedClock();
  const model = openaiChat({ model: 'm', baseURL: server.url, clock });
  const late = await ask(model, clock.now() + 5_000);
  expect(late).toMatchObject({ type: 'failure', error: { code: 'overloaded' }, attempts: [{ model: 'm' }] });
  expect(await ask(model, clock.now() + 50_000)).toMatchObject({ type: 'reply', attempts: [{}, {}] });
});

test('the most that a reply costs includes writing its input to the cache', () => {
  const price = { input: 1, output: 10, cachedInput: 0.1, cacheWrite: 1.25 };
  expect(openaiChat({ model: 'm', price }).maxCost?.(1_000_000, 100_000)).toBeCloseTo(1.25 + 1, 9);
  expect(openaiChat({ model: 'm', price: { input: 1, output: 10 } }).maxCost?.(1_000_000, 0)).toBeCloseTo(1, 9);
  expect(openaiChat({ model: 'm' }).maxCost).toBeUndefined();
});
