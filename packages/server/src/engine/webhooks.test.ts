import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { runLoop, tool } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkWebhooks, handleNotices, webhookSender, type WebhookOptions } from './webhooks.ts';

interface Delivery {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const SECRET = 'a secret of 20 chars';
let logged: string;
const log = pino({ level: 'warn' }, { write: (line) => void (logged += line) });
let store: SqliteStore;
let receiver: Server;
let url: string;
let deliveries: Delivery[];
/** How the receiver answers; then with 204. */
let replies: ((outgoing: ServerResponse) => void)[];
let stops: (() => Promise<void>)[];

beforeEach(async () => {
  store = sqliteStore(':memory:');
  logged = '';
  deliveries = [];
  replies = [];
  stops = [];
  receiver = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      deliveries.push({ headers: incoming.headers, body: Buffer.concat(chunks).toString() });
      const reply = replies.shift() ?? ((out) => out.writeHead(204).end());
      reply(outgoing);
    });
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
  url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
});
afterEach(async () => {
  for (const stop of stops) await stop();
  receiver.close();
  receiver.closeAllConnections();
  await store.close();
});

const clock = manualClock();
type Parts = Parameters<typeof handleNotices>[0] & Omit<Parameters<typeof webhookSender>[1], 'signal'>;
function sendWebhooks(options: WebhookOptions, parts: Parts): () => Promise<void> {
  const stopping = new AbortController();
  const handling = handleNotices(parts);
  handling.setHandlers([webhookSender(options, { ...parts, signal: stopping.signal })]);
  return async () => {
    stopping.abort();
    await handling.stop();
  };
}
function send(more: Partial<WebhookOptions> = {}): void {
  stops.push(sendWebhooks({ url, secret: SECRET, allowPrivate: true, ...more }, { store, log, clock }));
}

async function waitUntil(isDone: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isDone())) {
    await new Promise(setImmediate);
    // For timers that were set when their time had come.
    await clock.advance(0);
  }
}
const delivered = (count: number): Promise<void> => waitUntil(() => deliveries.length === count);
/** The notice was removed, or has another time. */
const settled = async (): Promise<number | undefined> => {
  let due: number | undefined;
  // While it is sent, it is due after 25 s.
  await waitUntil(async () => (due = await store.notices.nextDue()) !== clock.now() + 25_000);
  return due;
};

const principal = { subject: 'ann', tenant: 'acme', scopes: [] };
function endRun(runId: string): Promise<unknown> {
  return runLoop({ model: scriptedModel(['Hello.']), journal: store, runId, input: 'Hi', principal, clock });
}

test('a run that waits and then ends is reported, with a signature over id, time and body', async () => {
  send();
  const tools = [tool({ name: 'pick', description: '' })];
  const started = clock.now();
  const run = { tools, journal: store, runId: 'run', clock };
  const model = scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']);
  const { waiting } = await runLoop({ ...run, model, input: 'Choose', principal });
  await delivered(1);
  await runLoop({ ...run, model, answers: [{ type: 'result', effect: waiting[0]!.effect, content: 'red' }] });
  await delivered(2);
  const data = {
    id: 'run',
    object: 'run',
    tenant: 'acme',
    model: 'scripted',
    title: 'Choose',
    parent: null,
    started_at: started,
    updated_at: started,
  };
  expect(deliveries.map(({ body }) => JSON.parse(body) as unknown)).toEqual([
    {
      id: 'msg_run_1',
      type: 'run.waiting',
      created_at: started,
      data: {
        ...data,
        status: 'paused',
        entries: 2,
        waiting: [{ type: 'client', effect: 't1.client.0', tool: 'pick', expires_at: null }],
      },
    },
    {
      id: 'msg_run_3',
      type: 'run.completed',
      created_at: started,
      data: { ...data, status: 'completed', entries: 4, waiting: [] },
    },
  ]);
  for (const { headers, body } of deliveries) {
    const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signed } = headers;
    expect(JSON.parse(body)).toMatchObject({ id });
    const expected = createHmac('sha256', SECRET)
      .update(`${String(id)}.${String(timestamp)}.${body}`)
      .digest('base64');
    expect(signed).toBe(`v1,${expected}`);
  }
  expect(await settled()).toBeUndefined();
});

test('nothing is reported that cannot be made durable', async () => {
  const failing = { ...store, durable: () => Promise.reject(new Error('EIO')) };
  stops.push(sendWebhooks({ url, secret: SECRET, allowPrivate: true }, { store: failing, log, clock }));
  await endRun('run');
  await waitUntil(() => logged.includes('"why":"EIO"'));
  expect(deliveries).toEqual([]);
});

test('a secret with whsec_ is the base64 of the key', async () => {
  const key = Buffer.from('0123456789abcdef');
  send({ secret: `whsec_${key.toString('base64')}` });
  await endRun('run');
  await delivered(1);
  const { headers, body } = deliveries[0]!;
  const text = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
  expect(headers['webhook-signature']).toBe(`v1,${createHmac('sha256', key).update(text).digest('base64')}`);
});

test('what the receiver does not accept is sent again after growing pauses, until it is accepted', async () => {
  replies = [
    (out) => out.writeHead(500).end(),
    (out) => out.destroy(),
    (out) => out.writeHead(302, { location: url }).end(),
    (out) => out.writeHead(202).end(),
  ];
  send();
  await endRun('run');
  for (const [index, pauseMs] of [5_000, 10_000, 20_000].entries()) {
    await delivered(index + 1);
    expect(await settled()).toBe(clock.now() + pauseMs);
    await clock.advance(pauseMs - 1);
    expect(deliveries).toHaveLength(index + 1);
    await clock.advance(1);
  }
  await delivered(4);
  await waitUntil(async () => (await store.notices.nextDue()) === undefined);
  expect(new Set(deliveries.map(({ headers }) => headers['webhook-id']))).toEqual(new Set(['msg_run_1']));
});

test('after 15 attempts, or a day, it is dropped', async () => {
  replies = Array.from({ length: 40 }, () => (out: ServerResponse) => out.writeHead(503).end());
  send();
  await endRun('many');
  for (let attempt = 1; attempt <= 15; attempt++) {
    await delivered(attempt);
    const due = await settled();
    if (due !== undefined) await clock.advance(due - clock.now());
  }
  expect(await store.notices.nextDue()).toBeUndefined();
  // One that nobody could send for a day.
  await stops.pop()!();
  await endRun('old');
  await clock.advance(24 * 3_600_000 + 1);
  send();
  await waitUntil(async () => (await store.notices.nextDue()) === undefined);
  expect(deliveries).toHaveLength(15);
});

test('notices that were not sent before a restart are sent after it, also those of before the start', async () => {
  replies = [(out) => void out.once('close', () => {})];
  send();
  await endRun('run');
  await delivered(1);
  // The receiver has not answered yet.
  await stops.pop()!();
  send();
  await delivered(2);
  expect(deliveries[1]!.body).toBe(deliveries[0]!.body);
  expect(await settled()).toBeUndefined();
});

test('only the chosen events are reported, and not those of runs that were deleted', async () => {
  send({ events: ['run.failed'] });
  await endRun('fine');
  replies = [(out) => out.writeHead(500).end()];
  const failure = { type: 'failure', error: { code: 'server', message: 'no', retryable: false } } as const;
  const model = { id: 'm', reply: async () => failure } as never;
  await runLoop({ model, journal: store, runId: 'bad', input: 'Hi', clock });
  await delivered(1);
  expect(JSON.parse(deliveries[0]!.body)).toMatchObject({ type: 'run.failed', data: { id: 'bad' } });
  const due = await settled();
  await store.delete('bad');
  await clock.advance(due! - clock.now());
  await waitUntil(async () => (await store.notices.nextDue()) === undefined);
  expect(deliveries).toHaveLength(1);
});

test('a private address gets no request unless it is allowed, and the path of the URL is not logged', async () => {
  send({ allowPrivate: false, url: `${url}/T0KEN?key=hush` });
  await endRun('run');
  expect(await settled()).toBe(clock.now() + 5_000);
  expect(deliveries).toEqual([]);
  expect(logged).toContain(`${new URL(url).origin} is not a public address`);
  expect(logged).not.toMatch(/T0KEN|hush/);
});

test('a status of 2xx counts, whatever the body is', async () => {
  replies = [
    // It never ends.
    (out) => void out.writeHead(200).write('x'),
    (out) => void out.writeHead(200, { 'content-encoding': 'zstd' }).end('x'),
    (out) => void out.writeHead(200).end('x'.repeat(100_000)),
  ];
  send();
  for (const [index, runId] of ['endless', 'packed', 'long'].entries()) {
    await endRun(runId);
    await delivered(index + 1);
    expect(await settled()).toBeUndefined();
  }
});

test('a run that cannot be read does not delay the others', async () => {
  store.notices.enable(['paused', 'completed']);
  const tools = [tool({ name: 'pick', description: '' })];
  const model = scriptedModel([{ calls: [{ name: 'pick' }] }]);
  await runLoop({ tools, journal: store, runId: 'damaged', clock, model, input: 'Choose', principal });
  for (let n = 0; n < 20; n++) await endRun(`run${n}`);
  const damaged = {
    ...store,
    read: async (runId: string) => {
      if (runId === 'damaged') throw new Error('it is damaged');
      return store.read(runId);
    },
  };
  stops.push(sendWebhooks({ url, secret: SECRET, allowPrivate: true }, { store: damaged, log, clock }));
  await delivered(20);
  expect(await settled()).toBe(clock.now() + 5_000);
  expect(logged).toContain('it is damaged');
});

describe('options', () => {
  test.each([
    [{ url: 'example.com' }, 'webhooks.url must be a URL'],
    [{ url: 'ftp://example.com' }, 'webhooks.url must be a URL'],
    [{ url: 'https://a:b@example.com' }, 'without a user name'],
    [{ url: 'https://:b@example.com' }, 'without a user name'],
    [{ secret: 'short' }, 'at least 16 characters'],
    [{ secret: `whsec_${'!'.repeat(40)}` }, 'at least 16 bytes'],
    [{ secret: 'whsec_c2hvcnQgc2VjcmV0' }, 'at least 16 bytes'],
    [{ events: ['run.started' as never] }, 'webhooks.events contains "run.started"'],
    [{ events: [] }, 'webhooks.events is empty'],
  ])('%j are rejected', (wrong, message) => {
    expect(() => checkWebhooks({ url: 'https://example.com', secret: SECRET, ...wrong })).toThrow(message);
  });
});
