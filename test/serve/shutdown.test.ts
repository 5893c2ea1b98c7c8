import { describe, expect, test } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { useServeFixture, type ResponseBody, type ServeCommand } from './serve-command.ts';

const WEATHER = [{ type: 'function', name: 'get_weather' }] as const;

const fixture = useServeFixture();

interface StartedStream {
  readonly id: string;
  /** The text of the whole stream, or of the part that was received before the connection closed. */
  readonly text: Promise<string>;
}

/** Starts a streamed response; resolves at its first text delta. */
async function startStream(server: ServeCommand): Promise<StartedStream> {
  const answer = await fetch(`${server.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ input: 'go', stream: true }),
  });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let received = '';
  while (!received.includes('response.output_text.delta')) received += (await reader.read()).value ?? '';
  const text = (async () => {
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) received += next.value;
    } catch {}
    return received;
  })();
  return { id: /"id":"(resp_[0-9a-f]{32})"/.exec(received)![1]!, text };
}

/** Fetches the response until it is no longer in progress. */
async function retrieveEnded(server: ServeCommand, id: string): Promise<ResponseBody> {
  for (;;) {
    const { body } = await server.get(`/v1/responses/${id}`);
    if (body.status !== 'in_progress') return body;
  }
}

describe.each(['SIGINT', 'SIGTERM'] as const)('%s', (signal) => {
  test('lets a stream complete, then exits with 0', async () => {
    await fixture.configure('', { hang: 'Half' });
    const server = await fixture.serveProcess();
    const stream = await startStream(server);
    const ended = server.stop(signal);
    await server.process.shows('shutting down', 'stderr');
    fixture.provider.resume();
    const text = await stream.text;
    expect(text).toContain('event: response.completed\n');
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect(await ended).toMatchObject({ code: 0, signal: null });
  });

  test('detaches a response that exceeds the grace period, and the next server resumes it', async () => {
    await fixture.configure('[server]\nshutdown_grace_ms = 0', { hang: 'Half' }, { text: ['Whole.'] });
    const server = await fixture.serveProcess();
    const stream = await startStream(server);
    expect(await server.stop(signal)).toMatchObject({ code: 0, signal: null });
    expect(await stream.text).not.toContain('event: response.completed\n');

    const next = await fixture.serve();
    const response = await retrieveEnded(next, stream.id);
    expect(response).toMatchObject({ status: 'completed', output: [{ content: [{ text: 'Whole.' }] }] });
    expect((await next.stop()).code).toBe(0);
  });

  test('sent twice ends the server at once, with exit code 1', async () => {
    await fixture.configure('[server]\nshutdown_grace_ms = 600000', { hang: 'Half' });
    const server = await fixture.serveProcess();
    await startStream(server);
    server.process.child.kill(signal);
    await server.process.shows('shutting down', 'stderr');
    // Signals within 300 ms count as one, so the signal is repeated until the process ends.
    const repeat = setInterval(() => server.process.child.kill(signal), 50);
    expect(await server.process.ended).toMatchObject({ code: 1, signal: null });
    clearInterval(repeat);
  });
});

describe('after SIGKILL the next server', () => {
  test('resumes a running response', async () => {
    await fixture.configure('', { hang: 'Half' }, { text: ['Whole.'] });
    const server = await fixture.serveProcess();
    const { id } = await startStream(server);
    expect(await server.stop('SIGKILL')).toMatchObject({ signal: 'SIGKILL' });

    const next = await fixture.serve();
    expect(await retrieveEnded(next, id)).toMatchObject({
      id,
      status: 'completed',
      output: [{ content: [{ text: 'Whole.' }] }],
    });
    expect((await next.stop()).code).toBe(0);
  });

  test('continues a response that waits for the client', async () => {
    const call: Step = { calls: [{ name: 'get_weather', arguments: '{"city":"Oslo"}' }] };
    await fixture.configure('', call, { text: ['Rain.'] });
    const server = await fixture.serveProcess();
    const { body: first } = await server.respond({ input: 'Weather?', tools: WEATHER });
    expect(first.pending_call_ids).toHaveLength(1);
    await server.stop('SIGKILL');

    const next = await fixture.serve();
    expect((await next.get(`/v1/responses/${first.id}`)).body).toEqual(first);
    const { body: second } = await next.respond({
      previous_response_id: first.id,
      input: [{ type: 'function_call_output', call_id: first.pending_call_ids[0], output: 'rain' }],
      tools: WEATHER,
    });
    expect(second).toMatchObject({ status: 'completed', output: [{ content: [{ text: 'Rain.' }] }] });
    expect(fixture.provider.requests[1]!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
    expect((await next.stop()).code).toBe(0);
  });
});

test('two servers on one store can continue the same conversation', async () => {
  await fixture.configure('', { text: ['One.'] }, { text: ['Two.'] });
  const one = await fixture.serve();
  const two = await fixture.serveProcess();
  const { body: first } = await one.respond({ input: 'first' });
  const { body: second } = await two.respond({ input: 'second', previous_response_id: first.id });
  expect(second).toMatchObject({ status: 'completed', previous_response_id: first.id });
  expect(fixture.provider.requests[1]!.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
  expect([(await one.stop()).code, (await two.stop()).code]).toEqual([0, 0]);
});

test('keeps running when its output is closed', async () => {
  await fixture.configure('', { text: ['One.'] }, { text: ['Two.'] });
  const server = await fixture.serveProcess();
  server.process.child.stderr.destroy();
  server.process.child.stdout.destroy();
  for (const text of ['One.', 'Two.']) {
    expect((await server.respond({ input: 'go' })).body).toMatchObject({ output: [{ content: [{ text }] }] });
  }
  expect(await server.stop()).toMatchObject({ code: 0, signal: null });
});
