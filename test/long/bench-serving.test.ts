import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { front as direct } from '../../bench/contenders/direct.ts';
import { front as proxy } from '../../bench/contenders/proxy.ts';
import { front as treadleServer } from '../../bench/contenders/treadle-server.ts';
import { front as storedServer } from '../../bench/contenders/treadle-server-stored.ts';
import { startServer, type Server } from '../../bench/measure/server.ts';
import { CHECK_SCRIPTS, problemOfFront, type FrontCheck } from '../../bench/serving/check.ts';
import { ask, count } from '../../bench/serving/client.ts';
import type { Front, OpenFront } from '../../bench/serving/front.ts';
import { words } from '../../bench/server/script.ts';
import { workloadOf } from '../../bench/workloads/list.ts';

let provider: Server;
beforeAll(async () => {
  provider = await startServer();
});
afterAll(() => provider.stop());

const flags = ['--conditions=treadle-source'];

function open(front: Front, scripts: readonly string[] = []): Promise<OpenFront> {
  return front.open({ provider: provider.baseURL, scripts: [...CHECK_SCRIPTS, ...scripts], flags });
}

describe.for([
  ['the model directly', direct, ['stream', 'whole']],
  ['the bare proxy', proxy, ['stream', 'whole']],
  ['the Treadle server', treadleServer, ['stream', 'whole', 'tools']],
  ['the Treadle server with a store', storedServer, ['stream', 'whole', 'tools']],
] as const)('%s', ([, front, checks]) => {
  let opened: OpenFront;
  beforeAll(async () => {
    opened = await open(front);
  });
  afterAll(() => opened.close());

  test.for(checks)('passes the check %s', async (check) => {
    expect(await problemOfFront(opened, check)).toBeUndefined();
  });
});

describe('the check of fronts', () => {
  /** Runs the check on a server that changes the answers of the model. */
  async function problem(
    check: FrontCheck,
    change: (body: string) => string,
    status = 200,
  ): Promise<string | undefined> {
    const server = createServer(async (incoming, outgoing) => {
      const body = (await incoming.toArray()).join('');
      const answer = await fetch(`${provider.baseURL}/responses`, { method: 'POST', body });
      outgoing.writeHead(status).end(change(await answer.text()));
    });
    await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
    const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const never = (): Promise<never> => Promise.reject(new Error('not expected'));
    try {
      return await problemOfFront({ baseURL, fields: {}, usage: never, close: never }, check);
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }

  const withoutFrame = (mark: string) => (body: string) => {
    const frames = body.split('\n\n');
    return frames.toSpliced(
      frames.findIndex((frame) => frame.includes(mark)),
      1,
    );
  };
  const renumbered = (frames: readonly string[]): string =>
    frames.map((frame, at) => frame.replace(/"sequence_number":\d+/, `"sequence_number":${at}`)).join('\n\n');

  test('detects a stream without one of its deltas, also with correct numbers', async () => {
    const without = withoutFrame('wörd7');
    expect(await problem('stream', (body) => without(body).join('\n\n'))).toBe('event 11 is numbered 12 (text:60)');
    expect(await problem('stream', (body) => renumbered(without(body)))).toBe('59 of 60 deltas delivered (text:60)');
  });

  test('detects a stream without an end', async () => {
    const what = await problem('stream', (body) => renumbered(withoutFrame('response.completed')(body)));
    expect(what).toBe('from response.created to response.output_item.done (text:60)');
  });

  test('detects a changed text, in the deltas and at the end', async () => {
    expect(await problem('stream', (body) => body.replace('"delta":"wörd3', '"delta":"word3'))).toMatch(
      /^text "wörd0 /,
    );
    expect(await problem('whole', (body) => body.replace('wörd3', 'word3'))).toMatch(/^text "wörd0 /);
  });

  test('detects calls that were not executed', async () => {
    expect(await problem('tools', (body) => body)).toBe('0 of 4 calls executed');
  });

  test('reports an error status with its body', async () => {
    expect(await problem('whole', () => '{"error":"no"}', 429)).toBe('status 429: {"error":"no"}');
  });
});

describe('the client', () => {
  const front = (): Pick<OpenFront, 'baseURL' | 'fields'> => ({ baseURL: provider.baseURL, fields: {} });

  test('measures the times of an answer', async () => {
    const { body, firstByteMs, firstDeltaMs, wholeMs } = await ask(front(), { model: 'text:5:0:1', stream: true })
      .answer;
    expect(count(body, 'event: response.output_text.delta\n')).toBe(5);
    expect(firstByteMs).toBeGreaterThan(0);
    expect(firstDeltaMs).toBeGreaterThanOrEqual(firstByteMs);
    expect(wholeMs).toBeGreaterThan(firstDeltaMs);
    const whole = await ask(front(), { model: 'text:5', stream: false }).answer;
    expect(whole.body.toString()).toContain(words(5));
  });

  test('can abort a started stream', async () => {
    const { started, answer, abort } = ask(front(), { model: 'text:1000:0:50', stream: true });
    await started;
    abort();
    await expect(answer).rejects.toThrow(/destroyed/);
  });
});

describe('a server process', () => {
  test('reports its usage and ends', async () => {
    const opened = await open(proxy);
    const before = await opened.usage();
    for (let n = 0; n < 20; n++) await ask(opened, { model: 'text:20', stream: true }).answer;
    const after = await opened.usage();
    expect(after.cpu).toBeGreaterThan(before.cpu);
    expect(after.rss).toBeGreaterThan(after.heap);
    await opened.close();
    await expect(ask(opened, { model: 'text:20', stream: true }).answer).rejects.toThrow(/ECONNREFUSED|closed|reset/i);
  });

  test('reports why it did not start', async () => {
    const options = { provider: provider.baseURL, scripts: CHECK_SCRIPTS, flags: ['--no-such-flag'] };
    await expect(proxy.open(options)).rejects.toThrow(/^the server ended: .*--no-such-flag/);
  });
});

describe('a workload', () => {
  const IDS = ['S1-stream', 'S1-whole', 'S2-whole', 'S2-stream', 'S2-tools', 'S3-burst', 'S3-paced', 'S5-first'];
  IDS.push('S5-reconnect', 'S6');
  let front: OpenFront;
  beforeAll(async () => {
    front = await open(treadleServer, [...new Set(IDS.flatMap((id) => workloadOf(id).served!.scripts))]);
  });
  afterAll(() => front.close());

  test.for(IDS)('%s returns a value for each of its metrics', async (id) => {
    const { metrics, served } = workloadOf(id);
    const measurement = { front, provider: provider.baseURL, warmUpMs: 1, measureMs: 1 };
    const values = await served!.measure(measurement);
    expect(Object.keys(values).toSorted()).toEqual(metrics.map((metric) => metric.id).toSorted());
    for (const value of Object.values(values)) expect(value).toBeTypeOf('number');
    for (const value of Object.values(values)) expect(value).not.toBeNaN();
  });
});
