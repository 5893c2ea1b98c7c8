import { describe, expect, test } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { until, type Body, type Serving } from './serve-command.ts';
import { serveStage } from './stage.ts';

const WEATHER = [{ type: 'function', name: 'get_weather' }] as const;

const here = serveStage();
const { scripted } = here;

/** A stream that has begun, up to its first words. */
interface Begun {
  readonly id: string;
  /** All of it, once it has ended; what came until it was cut off. */
  readonly rest: Promise<string>;
}

async function begin(server: Serving): Promise<Begun> {
  const answer = await fetch(`${server.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: 'go', stream: true }),
  });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('response.output_text.delta')) text += (await reader.read()).value ?? '';
  const rest = (async () => {
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) text += next.value;
    } catch {}
    return text;
  })();
  return { id: /"id":"(resp_[0-9a-f]{32})"/.exec(text)![1]!, rest };
}

const stored = (server: Serving, id: string): Promise<Body> =>
  until(
    async () => (await server.get(`/v1/responses/${id}`)).body,
    ({ status }) => status !== 'in_progress',
  );

describe.each(['SIGINT', 'SIGTERM'] as const)('%s', (signal) => {
  test('lets a stream come to its end', async () => {
    const server = await scripted('', { hang: 'Half' });
    const stream = await begin(server);
    const ended = server.stop(signal);
    await server.process.shows('shutting down', 'stderr');
    here.provider.resume();
    const text = await stream.rest;
    expect(text).toContain('event: response.completed\n');
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect(await ended).toMatchObject({ code: 0, signal: null });
  });

  test('puts aside what does not end in time, and the next server goes on with it', async () => {
    const server = await scripted('[server]\nshutdown_grace_ms = 0', { hang: 'Half' }, { text: ['Whole.'] });
    const stream = await begin(server);
    expect(await server.stop(signal)).toMatchObject({ code: 0, signal: null });
    expect(await stream.rest).not.toContain('event: response.completed\n');

    const next = await here.serving();
    const response = await stored(next, stream.id);
    expect(response).toMatchObject({ status: 'completed', output: [{ content: [{ text: 'Whole.' }] }] });
    expect((await next.stop()).code).toBe(0);
  });

  test('a second one ends it at once', async () => {
    const server = await scripted('[server]\nshutdown_grace_ms = 600000', { hang: 'Half' });
    await begin(server);
    server.process.child.kill(signal);
    await server.process.shows('shutting down', 'stderr');
    // What comes at the same moment is no second one, so it is sent until it is.
    const again = setInterval(() => server.process.child.kill(signal), 50);
    expect(await server.process.ended).toMatchObject({ code: 1, signal: null });
    clearInterval(again);
  });
});

describe('killed', () => {
  test('in the middle of a response: the next server goes on with it', async () => {
    const server = await scripted('', { hang: 'Half' }, { text: ['Whole.'] });
    const { id } = await begin(server);
    expect(await server.stop('SIGKILL')).toMatchObject({ signal: 'SIGKILL' });

    const next = await here.serving();
    expect(await stored(next, id)).toMatchObject({
      id,
      status: 'completed',
      output: [{ content: [{ text: 'Whole.' }] }],
    });
    expect((await next.stop()).code).toBe(0);
  });

  test('with calls that wait for the client: the conversation goes on at the next server', async () => {
    const call: Step = { calls: [{ name: 'get_weather', arguments: '{"city":"Oslo"}' }] };
    const server = await scripted('', call, { text: ['Rain.'] });
    const { body: first } = await server.respond({ input: 'Weather?', tools: WEATHER });
    expect(first.pending_call_ids).toHaveLength(1);
    await server.stop('SIGKILL');

    const next = await here.serving();
    expect((await next.get(`/v1/responses/${first.id}`)).body).toEqual(first);
    const { body: second } = await next.respond({
      previous_response_id: first.id,
      input: [{ type: 'function_call_output', call_id: first.pending_call_ids[0], output: 'rain' }],
      tools: WEATHER,
    });
    expect(second).toMatchObject({ status: 'completed', output: [{ content: [{ text: 'Rain.' }] }] });
    expect(here.provider.requests[1]!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
    expect((await next.stop()).code).toBe(0);
  });
});

test('two servers share a store: a conversation goes on at the other', async () => {
  const one = await scripted('', { text: ['One.'] }, { text: ['Two.'] });
  const two = await here.serving();
  const { body: first } = await one.respond({ input: 'first' });
  const { body: second } = await two.respond({ input: 'second', previous_response_id: first.id });
  expect(second).toMatchObject({ status: 'completed', previous_response_id: first.id });
  expect(here.provider.requests[1]!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
  expect([(await one.stop()).code, (await two.stop()).code]).toEqual([0, 0]);
});

test('it is no reason to end that nobody reads its log', async () => {
  const server = await scripted('', { text: ['One.'] }, { text: ['Two.'] });
  server.process.child.stderr.destroy();
  server.process.child.stdout.destroy();
  for (const text of ['One.', 'Two.']) {
    expect((await server.respond({ input: 'go' })).body).toMatchObject({ output: [{ content: [{ text }] }] });
  }
  expect(await server.stop()).toMatchObject({ code: 0, signal: null });
});
