import { request as httpRequest } from 'node:http';
import { setImmediate as nextLoopTurn } from 'node:timers/promises';
import type { Model, ModelReply } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { responseIdIn, startInProcess } from './support/in-process.ts';

/** Answers requests that say so, and leaves the others waiting. `waiting` resolves when so many requests wait. */
function waitingModel(): {
  readonly model: Model;
  readonly waiting: (count: number) => Promise<void>;
  readonly count: () => number;
} {
  const answering = scriptedModel(Array<string>(6).fill('Done.'));
  let count = 0;
  let onRequest = (): void => {};
  const model: Model = {
    ...answering,
    async reply(request, emit, signal) {
      if (!JSON.stringify(request.messages.at(-1)).includes('wait')) return answering.reply(request, emit, signal);
      count += 1;
      onRequest();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      return { type: 'failure', error: { code: 'cancelled', message: '', retryable: false } } satisfies ModelReply;
    },
  };
  return {
    model,
    count: () => count,
    waiting: (expected) =>
      new Promise((resolve) => {
        onRequest = () => void (count >= expected && resolve());
        onRequest();
      }),
  };
}

const MESSAGE = { role: 'user', content: 'x'.repeat(800_000) };

test('large conversations in progress are limited by their bytes, although requests that continue them are small', async () => {
  const { model, waiting } = waitingModel();
  await using server = await startInProcess(model, { maxBytesInProgress: 3_400_000 });
  const first = await server.post({ input: [MESSAGE] });
  const request = { input: 'wait', previous_response_id: responseIdIn(first.text) };
  const stop = new AbortController();
  const others = [1, 2].map(() => streamed(server.url, '/v1/responses', request, stop.signal));
  await waiting(2);
  const refused = await streamed(server.url, '/v1/responses', request, stop.signal);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '2']);
  expect(await refused.json()).toMatchObject({ error: { type: 'rate_limit_error', code: 'too_many_bytes' } });
  expect((await fetch(`${server.url}/v1/models`)).status).toBe(200);
  await Promise.all(others);
  stop.abort();
});

test('completions in progress are limited by the bytes of their conversations', async () => {
  const { model, waiting } = waitingModel();
  await using server = await startInProcess(model, { maxBytesInProgress: 3_400_000 });
  const request = { model: 'm', messages: [MESSAGE, { role: 'user', content: 'wait' }] };
  const stop = new AbortController();
  const other = streamed(server.url, '/v1/chat/completions', request, stop.signal);
  await waiting(1);
  const refused = await streamed(server.url, '/v1/chat/completions', request, stop.signal);
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '2']);
  await other;
  stop.abort();
});

test('a run that is resumed is limited by its bytes too, and stays in progress', async () => {
  const { model, waiting, count } = waitingModel();
  await using server = await startInProcess(model, { maxBytesInProgress: 3_400_000 });
  const stop = new AbortController();
  const request = { input: [MESSAGE, { role: 'user', content: 'wait' }] };
  const first = await streamed(server.url, '/v1/responses', request, stop.signal);
  const reader = first.body!.pipeThrough(new TextDecoderStream()).getReader();
  const id = responseIdIn((await reader.read()).value!);
  await waiting(1);
  const postTo = async (path: string, body?: object): Promise<{ readonly id: string }> => {
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'POST', ...(body && { headers, body: JSON.stringify(body) }) };
    return (await fetch(server.url + path, init)).json() as Promise<{ readonly id: string }>;
  };
  await postTo(`/v1/responses/${id}/cancel`);
  for (const expected of [2, 3]) {
    await postTo(`/v1/runs/${id}/fork`, { at: 0 });
    await waiting(expected);
  }
  const third = await postTo(`/v1/runs/${id}/fork`, { at: 0 });
  // It is resumed for as long as it takes to see that there is no room.
  for (let isDriven = true; isDriven;) ({ driven: isDriven } = await runOf(server.url, third.id));
  for (let turn = 0; turn < 100; turn++) await nextLoopTurn();
  expect(count()).toBe(3);
  expect(await runOf(server.url, third.id)).toMatchObject({ status: 'running', driven: false });
  stop.abort();
});

async function runOf(url: string, id: string): Promise<{ readonly driven: boolean }> {
  return (await fetch(`${url}/v1/runs/${id}`)).json() as Promise<{ readonly driven: boolean }>;
}

function streamed(url: string, path: string, body: object, signal: AbortSignal): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return fetch(url + path, { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }), signal });
}

test('by default, one of several tenants gets half of the runs', async () => {
  const { model, waiting } = waitingModel();
  const keys = ['a', 'b'].map((tenant) => ({ name: tenant, hash: hashKey(`tk_${tenant}`), tenant }));
  await using server = await startInProcess(model, { keys, maxConcurrentRuns: 2 });
  const asTenant = (tenant: string): Record<string, string> => ({ authorization: `Bearer tk_${tenant}` });
  const running = server.post({ input: 'wait', stream: true }, asTenant('a'));
  await waiting(1);
  const { status, text } = await server.post({ input: 'Hello' }, asTenant('a'));
  expect([status, JSON.parse(text)]).toMatchObject([429, { error: { code: 'too_many_runs' } }]);
  expect((await server.post({ input: 'Hello' }, asTenant('b'))).status).toBe(200);
  await server[Symbol.asyncDispose]();
  await running.catch(() => {});
});

test('by default, a body of more than 16 MiB is rejected before it arrives', async () => {
  await using server = await startInProcess(scriptedModel(['Done.']));
  const headers = { 'content-type': 'application/json', 'content-length': 16 * 1024 * 1024 + 1 };
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const sent = httpRequest(`${server.url}/v1/responses`, { method: 'POST', headers, agent: false }, (answer) => {
      resolve(answer.statusCode);
      sent.destroy();
    });
    sent.on('error', reject);
    sent.flushHeaders();
  });
  expect(status).toBe(413);
});

test('the pieces of large requests start in different turns of the event loop', async () => {
  let turn = 0;
  let timer = setImmediate(function count() {
    turn++;
    timer = setImmediate(count);
  });
  const starts: [string, number][] = [];
  const created = new Map<string, number>();
  const appended = new Map<string, number>();
  const answering = scriptedModel(Array<string>(6).fill('Done.'));
  const model: Model = {
    ...answering,
    reply(...request) {
      starts.push(['model', turn]);
      return answering.reply(...request);
    },
  };
  const opened = sqliteStore(':memory:');
  const store = {
    ...opened,
    append: (...[run, entries, ...more]: Parameters<typeof opened.append>) => {
      if (entries[0]?.seq === 0) {
        starts.push(['append', turn]);
        appended.set(run, turn);
      }
      return opened.append(run, entries, ...more);
    },
    responses: {
      ...opened.responses,
      async create(...request: Parameters<typeof opened.responses.create>) {
        await opened.responses.create(...request);
        created.set(request[0].runId, turn);
      },
      get(tenant: string, id: string) {
        starts.push(['read', turn]);
        // As long as a large response takes.
        for (const end = performance.now() + 6; performance.now() < end;);
        return opened.responses.get(tenant, id);
      },
    },
  };
  await using server = await startInProcess(model, { store });
  const input = 'x'.repeat(300_000);
  const answers = await Promise.all(
    [true, true, true, false, false, false].map((stored) => server.post({ input, store: stored })),
  );
  expect(answers.map(({ status }) => status)).toEqual(Array(6).fill(200));
  expect(starts.map(([kind]) => kind).toSorted()).toEqual([...Array(3).fill('append'), ...Array(6).fill('model')]);
  const id = responseIdIn(answers[0]!.text);
  await Promise.all([1, 2, 3].map(() => server.get(id)));
  clearImmediate(timer);
  // The run starts as soon as the response is created.
  expect([...appended].filter(([run, at]) => created.get(run) === at)).toEqual([]);
  expect([created.size, appended.size]).toEqual([3, 3]);
  expect(new Set(starts.map(([, at]) => at)).size).toBe(starts.length);
});
