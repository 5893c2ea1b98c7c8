import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test, vi } from 'vitest';
import { collectorAt, openOutbox } from './otlp-exporter.ts';

/** A collector that answers when it is told to. */
function slowCollector() {
  const bodies: number[][] = [];
  const answers: ((isTaken: boolean) => void)[] = [];
  const outbox = openOutbox(
    (json) => {
      bodies.push(JSON.parse(json) as number[]);
      return new Promise((resolve) => void answers.push(resolve));
    },
    (records) => `[${records}]`,
  );
  const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);
  const add = (from: number, to: number): void => {
    for (const number of numbers(from, to)) outbox.add(number as unknown as object);
  };
  return { bodies, answers, outbox, add, numbers };
}

test('sends a full batch at once, and keeps the order when one could not be sent', async () => {
  const { bodies, answers, outbox, add, numbers } = slowCollector();
  add(0, 600);
  expect(bodies).toEqual([numbers(0, 512)]);
  answers[0]!(false);
  const flushed = outbox.flush();
  await expect.poll(() => bodies.length).toBe(2);
  answers[1]!(true);
  await expect.poll(() => bodies.length).toBe(3);
  answers[2]!(true);
  await flushed;
  expect(bodies.slice(1)).toEqual([numbers(0, 512), numbers(512, 600)]);
});

test('a collector that does not answer costs at most 2,048 records of memory, and only spans', async () => {
  const { bodies, answers, outbox, add, numbers } = slowCollector();
  add(0, 10_000);
  expect(bodies).toEqual([numbers(0, 512)]);
  answers[0]!(false);
  const flushed = outbox.flush();
  for (let batch = 1; batch <= 4; batch++) {
    await expect.poll(() => answers.length).toBe(batch + 1);
    answers[batch]!(true);
  }
  await flushed;
  expect(bodies.slice(1).flat()).toEqual(numbers(0, 2_048));
});

test('large records go in small requests, and cost a collector that is away at most 32 MiB of memory', async () => {
  const sizes: number[] = [];
  let isAway = true;
  const outbox = openOutbox(
    async (body) => (isAway || sizes.push(body.length), !isAway),
    (records) => records,
  );
  for (let record = 0; record < 100; record++) outbox.add({ text: 'x'.repeat(1024 * 1024) });
  outbox.add({ text: 'x'.repeat(9 * 1024 * 1024) });
  await outbox.flush();
  isAway = false;
  await outbox.flush();
  outbox.add({ text: 'x'.repeat(9 * 1024 * 1024) });
  outbox.add({ text: 'small' });
  await outbox.flush();
  const mebibytes = sizes.map((size) => Math.round(size / 1024 / 1024));
  expect(mebibytes).toEqual([...Array.from({ length: 10 }, () => 3), 2, 9, 0]);
});

/** A collector that answers with these statuses by path. */
async function answering(
  statuses: Readonly<Record<string, number>>,
  end: (response: ServerResponse) => void = (response) => void response.end(),
) {
  const problems: string[] = [];
  const server = createServer(({ url }, response) => end(response.writeHead(statuses[url!]!)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    problems,
    endpoint,
    to: collectorAt({ endpoint, headers: {}, onProblem: (why) => problems.push(why) }),
    [Symbol.dispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}

test('what a collector cannot take now is kept, and what it will never take is dropped', async () => {
  const statuses = { '/v1/traces': 200 };
  using collector = await answering(statuses);
  const send = collector.to('/v1/traces');
  const isDone: Record<number, boolean> = {};
  for (const status of [200, 302, 400, 413, 429, 500, 502, 503, 504]) {
    statuses['/v1/traces'] = status;
    isDone[status] = await send('{}');
  }
  const kept = { 429: false, 502: false, 503: false, 504: false };
  expect(isDone).toEqual({ 200: true, 302: true, 400: true, 413: true, 500: true, ...kept });
});

test.each(['nothing', 'only headers'])(
  'a collector that sends %s does not answer, and is sent the same again',
  async (sent) => {
    using collector = await answering(
      { '/v1/traces': 200 },
      sent === 'nothing' ? () => {} : (head) => head.flushHeaders(),
    );
    const { timeout } = AbortSignal;
    vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => timeout.call(AbortSignal, 50));
    try {
      expect(await collector.to('/v1/traces')('{}')).toBe(false);
    } finally {
      vi.restoreAllMocks();
    }
    expect(collector.problems).toEqual([
      `Telemetry cannot be sent to ${collector.endpoint}/v1/traces: it does not answer. What would be sent is lost meanwhile.`,
    ]);
  },
);

test('a collector that takes only spans is a problem that is told once', async () => {
  const statuses = { '/v1/traces': 200, '/v1/metrics': 404 };
  using collector = await answering(statuses);
  const [spans, metrics] = [collector.to('/v1/traces'), collector.to('/v1/metrics')];
  for (const send of [metrics, spans, metrics, spans, metrics]) await send('{}');
  expect(collector.problems).toEqual([
    `Telemetry cannot be sent to ${collector.endpoint}/v1/metrics: it answered with status 404. What would be sent is lost meanwhile.`,
  ]);
  statuses['/v1/metrics'] = 200;
  await metrics('{}');
  statuses['/v1/metrics'] = 503;
  await metrics('{}');
  statuses['/v1/traces'] = 503;
  await spans('{}');
  expect(collector.problems).toHaveLength(2);
});
