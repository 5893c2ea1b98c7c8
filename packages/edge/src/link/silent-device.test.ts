import { manualClock, type ManualClock } from '@treadle/core/testing';
import { Parked, type ToolContext } from '@treadle/core';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openBroker, type Broker } from '../mqtt/broker.ts';
import { mqttClient, type MqttClient } from '../mqtt/client.ts';
import { deviceTools } from './device-tools.ts';
import { edgeLink, type DeviceOptions, type EdgeLink } from './link.ts';

/* A broker says that a device is there which is not: both have died, and the broker has kept the last status on its disk. */

const PING_MS = 10_000;

let broker: Broker;
let clock: ManualClock;
let link: EdgeLink;
let raw: MqttClient;
let pings: string[];

beforeEach(async () => {
  broker = await openBroker({ prefix: 'treadle' });
  clock = manualClock(1_000);
  pings = [];
  raw = mqttClient({
    url: broker.url,
    protocol: 4,
    clientId: 'raw',
    random: () => 0,
    subscriptions: [{ topic: 'treadle/agents/pi/commands', qos: 1 }],
    onMessage({ payload }) {
      const { command, request_id: id } = JSON.parse(Buffer.from(payload).toString()) as Record<string, string>;
      if (command !== 'ping') return;
      pings.push(id!);
    },
  });
  link = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    devices: [{ name: 'pi' }],
    offlineGraceMs: 0,
    random: () => 0,
    clock,
  });
  await until(() => raw.isConnected);
  const bash = { name: 'bash', description: 'x', parameters: { type: 'object' } };
  await say('capabilities', { tools: [bash], ledger: true });
  await say('status', { status: 'online', session: 's1' });
});
afterEach(async () => {
  await link.close();
  await raw.close();
  await broker.close();
});

async function until(isTrue: () => boolean): Promise<void> {
  while (!isTrue()) await new Promise((done) => setImmediate(done));
}

async function say(kind: 'status' | 'capabilities', message: object): Promise<void> {
  await raw.publish({ topic: `treadle/agents/pi/${kind}`, payload: JSON.stringify(message), qos: 1, retain: true });
}

/** A link that knows of the device only what the broker has kept. */
async function laterLink(options: Partial<DeviceOptions> = {}): Promise<void> {
  await link.close();
  pings = [];
  link = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    devices: [{ name: 'pi', ...options }],
    offlineGraceMs: 0,
    clock,
  });
  await until(() => pings.length > 0 && link.device('pi')!.status === 'online');
}

async function answer(session: string | undefined): Promise<void> {
  const report = { request_id: pings[0], status: 'success', result: { pong: true }, session };
  await raw.publish({ topic: 'treadle/agents/pi/reports', payload: JSON.stringify(report), qos: 1 });
}

const isOffline = (): boolean => link.device('pi')!.status === 'offline';

it('is offline if a broker has kept its status and it does not answer, and its calls are settled', async () => {
  await laterLink();
  const payload = { tool: 'bash', parameters: {} };
  const call = link.send('pi', { type: 'tool', payload, requestId: 'r' }, { timeoutMs: 60_000 });
  await clock.advance(PING_MS);
  await until(isOffline);
  expect(link.device('pi')).toMatchObject({ reason: 'it does not answer', since: 11_000 });
  await clock.advance(0);
  expect(await call).toEqual({ type: 'offline', reason: 'it does not answer' });
});

it('is online again as soon as something is heard of it', async () => {
  await laterLink();
  await clock.advance(PING_MS);
  await until(isOffline);
  // Before each message.
  const seen: unknown[] = [];
  link.watch(() => seen.push(link.device('pi')!.status));
  // Of an earlier start, and of another orchestrator that answers a prompt.
  await answer('s0');
  await answer(undefined);
  await answer('s1');
  await until(() => link.device('pi')!.status === 'online');
  expect(seen).toEqual(['offline', 'offline', 'offline']);
  expect(link.device('pi')!.reason).toBeUndefined();
});

it('stays online if it answers', async () => {
  await laterLink();
  await answer('s1');
  await until(() => link.device('pi')!.latencyMs !== undefined);
  await clock.advance(PING_MS);
  expect(link.device('pi')!.status).toBe('online');
});

it('is offline if the broker was started again and it does not answer', async () => {
  await until(() => link.device('pi')?.status === 'online' && pings.length > 0);
  await answer('s1');
  await until(() => link.device('pi')!.latencyMs !== undefined);
  pings = [];
  const port = Number(new URL(broker.url).port);
  await broker.close();
  await until(() => !link.isConnected);
  broker = await openBroker({ prefix: 'treadle', port });
  await until(() => raw.isConnected);
  await clock.advance(1_000);
  await until(() => pings.length > 0);
  expect(link.device('pi')!.status).toBe('online');
  await clock.advance(PING_MS);
  await until(isOffline);
});

it('is offline after 5 seconds without a broker, its calls are settled, and it is back with the broker', async () => {
  await laterLink();
  await answer('s1');
  await until(() => link.device('pi')!.latencyMs !== undefined);
  const payload = { tool: 'bash', parameters: {} };
  const call = link.send('pi', { type: 'tool', payload, requestId: 'r' }, { timeoutMs: 60_000 });
  pings = [];
  const port = Number(new URL(broker.url).port);
  await broker.close();
  await until(() => !link.isConnected);
  await clock.advance(4_999);
  expect(link.device('pi')!.status).toBe('online');
  await clock.advance(1);
  await clock.advance(0);
  expect(await call).toEqual({ type: 'offline', reason: 'there is no connection to the broker' });
  expect(link.device('pi')).toMatchObject({ status: 'offline', reason: 'there is no connection to the broker' });
  // A broker that has forgotten the status.
  broker = await openBroker({ prefix: 'treadle', port });
  await until(() => raw.isConnected);
  // An attempt to connect must not take long by the clock.
  for (; pings.length === 0; await new Promise((done) => setImmediate(done))) await clock.advance(50);
  await answer('s1');
  await until(() => link.device('pi')!.status === 'online');
});

it.each([
  { onOffline: 'error', expected: expect.objectContaining({ content: expect.stringContaining('was not executed') }) },
  { onOffline: 'wait', expected: expect.any(Parked) },
] as const)('a call while there is no broker is not sent: $onOffline', async ({ onOffline, expected }) => {
  await laterLink({ onOffline });
  await answer('s1');
  await until(() => link.device('pi')!.latencyMs !== undefined);
  await broker.close();
  await until(() => !link.isConnected);
  const [bash] = deviceTools(link, 'pi');
  const context = { key: 'k', signal: new AbortController().signal, report: () => {} } as unknown as ToolContext;
  const output = bash!.execute!({}, context);
  await clock.advance(5_000);
  expect(await output).toEqual(expected);
  expect(link.device('pi')!.calls).toEqual([]);
});
