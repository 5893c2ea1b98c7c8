import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { manualClock } from '@treadle/core/testing';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openBroker, type Broker } from '../mqtt/broker.ts';
import { mqttClient, type MqttClient } from '../mqtt/client.ts';
import type { Capabilities } from '../protocol/capabilities.ts';
import { topicsOf } from '../protocol/topics.ts';
import { startAgent, type AgentOptions, type DeviceAgent } from './agent.ts';
import { openLedger, type Ledger } from './ledger.ts';
import type { Described, Outcome, Runner, RunnerCall } from './runner.ts';

type Json = Record<string, unknown>;

/** A call that the runner has been given, and that the test ends. */
interface Started extends RunnerCall {
  readonly end: (outcome?: Outcome) => void;
  readonly progress: (progress: unknown) => void;
}

const OK: Outcome = { status: 'success', result: 'temp=45.6°C', stderr: '', exit_code: 0 };
const DESCRIBED: Described = {
  tools: [],
  notices: [],
  skills: [{ name: 'pi-tools', version: '1.0.0' }],
  ops: { exec: true },
};

let folder: string;
let broker: Broker;
let boss: MqttClient;
let reports: Json[];
let statuses: Json[];
let started: Started[];
let operated: string[];
const agents: DeviceAgent[] = [];
const ledgers: Ledger[] = [];
let wake: (() => void)[] = [];

const topics = topicsOf('treadle');
const changed = (): void => wake.splice(0).forEach((done) => done());
async function until(isTrue: () => unknown): Promise<void> {
  while (!isTrue()) await new Promise<void>((done) => wake.push(done));
}

const runner: Runner = {
  describe: async () => DESCRIBED,
  reload: async () => ({ ...DESCRIBED, skills: [{ name: 'pi-tools', version: '2.0.0' }] }),
  call: (call, progress) =>
    new Promise((done) => {
      const end = (outcome: Outcome = OK): void => done(outcome);
      call.signal.addEventListener('abort', () =>
        end({ status: 'error', error: 'cancelled', error_type: 'cancelled' }),
      );
      started.push({ ...call, end, progress });
      changed();
    }),
  async operate(op) {
    operated.push(op);
    if (op === 'stat') throw Object.assign(new Error('no such file'), { code: 'ENOENT' });
    return { done: op };
  },
  close: async () => {},
};

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'treadle-agent-'));
  broker = await openBroker({ prefix: 'treadle' });
  [reports, statuses, started, operated, wake] = [[], [], [], [], []];
  boss = mqttClient({
    url: broker.url,
    clientId: 'boss',
    protocol: 4,
    subscriptions: (['reports', 'status', 'capabilities'] as const).map((kind) => ({
      topic: topics.all(kind),
      qos: 1,
    })),
    onMessage({ topic, payload }) {
      const message = JSON.parse(Buffer.from(payload).toString()) as Json;
      (topic.endsWith('reports') ? reports : statuses).push(message);
      changed();
    },
    onConnect: changed,
  });
  await until(() => boss.isConnected);
});

afterEach(async () => {
  for (const { end } of started) end();
  await Promise.all(agents.splice(0).map((one) => one.close(0)));
  for (const one of ledgers.splice(0)) await one.close();
  await boss.close();
  await broker.close();
  rmSync(folder, { recursive: true });
});

async function agent(options: Partial<AgentOptions> = {}): Promise<DeviceAgent> {
  const ledger = options.ledger ?? (await openLedger({ folder }));
  ledgers.push(ledger);
  const made = await startAgent({
    id: 'pi',
    type: 'desktop',
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    ledger,
    runner,
    random: () => 0,
    ...options,
  });
  agents.push(made);
  const before = statuses.length;
  await until(() => statuses.slice(before).some(({ tools }) => tools));
  return made;
}

async function send(command: string, payload: Json = {}, more: Json = {}): Promise<void> {
  const text = typeof more['raw'] === 'string' ? more['raw'] : JSON.stringify({ command, payload, ...more });
  await boss.publish({ topic: topics.commands('pi'), payload: text, qos: 1 });
}

const call = (id: string, more: Json = {}, payload: Json = {}): Promise<void> =>
  send('tool', { tool: 'temperature', parameters: {}, ...payload }, { request_id: id, ...more });

const reportsOf = (id: string): readonly Json[] =>
  reports.filter((one) => one['request_id'] === id && one['report_type'] === undefined);

async function reportOf(id: string, count = 1): Promise<Json> {
  await until(() => reportsOf(id).length >= count);
  return reportsOf(id)[count - 1]!;
}

async function startedCall(count: number): Promise<Started> {
  await until(() => started.length >= count);
  return started[count - 1]!;
}

it('says who it is, executes a call, and reports its result with the id', async () => {
  const { session } = await agent();
  expect(statuses).toMatchObject([
    { agent_id: 'pi', agent_type: 'desktop', status: 'online', session, version: 1 },
    { agent_id: 'pi', ledger: true, session, limits: { parallel: 4, queue: 32 } } satisfies Partial<Capabilities>,
  ]);
  await call('r1', {}, { parameters: { unit: 'C' }, timeout_ms: 5_000 });
  const { end, ...given } = await startedCall(1);
  expect(given).toMatchObject({ tool: 'temperature', parameters: { unit: 'C' }, key: 'r1' });
  expect(given.timeoutMs).toBeLessThanOrEqual(5_000);
  end();
  expect(await reportOf('r1')).toMatchObject({ ...OK, tool: 'temperature', request_id: 'r1', session, version: 1 });
  expect((await reportOf('r1'))['elapsed_ms']).toEqual(expect.any(Number));
});

it('executes a call once however often it is delivered, and reports the same again', async () => {
  await agent();
  await Promise.all([call('r1'), call('r1'), call('r1')]);
  (await startedCall(1)).end();
  const first = await reportOf('r1');
  await call('r1');
  expect(await reportOf('r1', 2)).toEqual(first);
  expect(started).toHaveLength(1);
});

it('knows after a restart what it has executed, and does not execute it again', async () => {
  const first = await agent();
  await call('done');
  (await startedCall(1)).end();
  await reportOf('done');
  await call('cut');
  await startedCall(2);
  // A second process with the same ledger, as after a kill.
  const second = await agent();
  expect(second.session).not.toBe(first.session);
  // It sends what nobody has acknowledged.
  expect(await reportOf('done', 2)).toMatchObject({ status: 'success' });
  expect(await reportOf('cut')).toMatchObject({ status: 'error', error_type: 'interrupted' });
  await Promise.all([call('done'), call('cut')]);
  expect(await reportOf('cut', 2)).toMatchObject({ error_type: 'interrupted' });
  await reportOf('done', 3);
  expect(started).toHaveLength(2);
});

it('sends a result until it is acknowledged', async () => {
  const one = await agent();
  await call('r1');
  (await startedCall(1)).end();
  await reportOf('r1');
  await one.close();
  await agent();
  await reportOf('r1', 2);
  await send('ack', { targets: ['r1'] }, { request_id: 'a' });
  await send('query', { target: 'r1' }, { request_id: 'q' });
  expect(await reportOf('q')).toMatchObject({ result: { state: 'done', report: { request_id: 'r1', ...OK } } });
  await agents.at(-1)!.close();
  await agent();
  await send('ping', {}, { request_id: 'p' });
  await reportOf('p');
  expect(reportsOf('r1')).toHaveLength(2);
});

it('does not execute what is late, of another time, malformed or unknown', async () => {
  const { session } = await agent();
  await call('late', { expires_at: Date.now() - 1 });
  await call('old', { session: 'another' });
  await call('soon', { expires_at: Date.now() + 60_000, session });
  (await startedCall(1)).end();
  expect(await reportOf('late')).toMatchObject({ error_type: 'expired' });
  expect(await reportOf('old')).toMatchObject({ error_type: 'expired' });
  expect(await reportOf('soon')).toMatchObject({ status: 'success' });
  await send('tool', { parameters: {} }, { request_id: 'nameless' });
  expect(await reportOf('nameless')).toMatchObject({ error_type: 'invalid_params' });
  await send('evolution', {}, { request_id: 'evo' });
  expect(await reportOf('evo')).toMatchObject({ error_type: 'unsupported' });
  await send('', {}, { raw: '{' });
  await boss.publish({ topic: topics.strategy('pi'), payload: '{"request_id":"s"}', qos: 1 });
  expect(await reportOf('s')).toMatchObject({ error_type: 'unsupported' });
  await send('prompt', { prompt: 'for the orchestrator' }, { request_id: 'prompt' });
  const everybody = (command: string, id: string): Promise<boolean> =>
    boss.publish({
      topic: topics.broadcast,
      payload: JSON.stringify({ command, payload: { tool: 'x' }, request_id: id }),
      qos: 1,
    });
  await everybody('tool', 'all');
  expect(await reportOf('all')).toMatchObject({ error_type: 'unsupported' });
  await everybody('ping', 'ping');
  expect(await reportOf('ping')).toMatchObject({ result: { pong: true, running: 0, queued: 0 } });
  expect(reportsOf('prompt')).toEqual([]);
  expect(started).toHaveLength(1);
});

it('runs a limited number of calls, lets a limited number wait, and refuses others', async () => {
  await agent({ maxParallel: 1, maxQueued: 1 });
  await call('a');
  await startedCall(1);
  await call('b');
  await call('c');
  expect(await reportOf('c')).toMatchObject({ error_type: 'busy', error: 'The device runs 1 calls, and 1 wait.' });
  await send('query', { target: 'b' }, { request_id: 'q' });
  expect(await reportOf('q')).toMatchObject({ result: { state: 'queued' } });
  started[0]!.end();
  (await startedCall(2)).end();
  expect(started.map(({ key }) => key)).toEqual(['a', 'b']);
  await reportOf('b');
  // It was not executed, so it may be sent again.
  await call('c');
  (await startedCall(3)).end();
  expect(await reportOf('c', 2)).toMatchObject({ status: 'success' });
});

it('a call that waits for longer than its time is not executed', async () => {
  const clock = manualClock(Date.now());
  await agent({ maxParallel: 1, clock });
  await call('a', {}, { timeout_ms: 60_000 });
  await startedCall(1);
  await call('b', {}, { timeout_ms: 1_000 });
  await send('query', { target: 'b' }, { request_id: 'q' });
  await reportOf('q');
  await clock.advance(1_000);
  expect(await reportOf('b')).toMatchObject({ error_type: 'timeout' });
  started[0]!.end();
  await reportOf('a');
  expect(started).toHaveLength(1);
});

it('cancels a call that runs, one that waits, and one whose command has not come yet', async () => {
  await agent({ maxParallel: 1 });
  await call('runs');
  await startedCall(1);
  await call('waits');
  const cancel = (target: string): Promise<void> => send('cancel', { target }, { request_id: `cancel-${target}` });
  for (const target of ['waits', 'comes', 'runs']) await cancel(target);
  expect(await reportOf('runs')).toMatchObject({ error_type: 'cancelled', elapsed_ms: expect.any(Number) });
  expect(await reportOf('waits')).toMatchObject({ error_type: 'cancelled' });
  expect(await reportOf('cancel-comes')).toMatchObject({ result: { state: 'cancelled' } });
  await call('comes');
  expect(await reportOf('comes')).toMatchObject({ error_type: 'cancelled' });
  await cancel('runs');
  expect(await reportOf('cancel-runs', 2)).toMatchObject({ result: { state: 'done' } });
  expect(started).toHaveLength(1);
});

it('serves a large result in parts', async () => {
  await agent();
  await call('large');
  const text = 'ä'.repeat(600_000);
  (await startedCall(1)).end({ ...OK, result: text });
  const { result_blob: blob } = (await reportOf('large')) as { result_blob: { id: string; bytes: number } };
  const parts: Buffer[] = [];
  for (let offset = 0; offset < blob.bytes; offset += 262_144) {
    const id = `part-${offset}`;
    await send('blob', { blob: blob.id, offset, length: 262_144 }, { request_id: id });
    const { result } = (await reportOf(id)) as { result: { data: string } };
    parts.push(Buffer.from(result.data, 'base64'));
  }
  expect(JSON.parse(Buffer.concat(parts).toString())).toMatchObject({ request_id: 'large', result: text });
  await send('blob', { blob: '0'.repeat(64), offset: 0, length: 1 }, { request_id: 'none' });
  expect(await reportOf('none')).toMatchObject({ error_type: 'expired' });
});

it('sends what a call prints, if it is asked to', async () => {
  await agent();
  await call('loud', {}, { stream: true });
  const loud = await startedCall(1);
  loud.progress('one ');
  for (const word of ['two ', 'three']) loud.progress(word);
  loud.progress({ percent: 50 });
  loud.end();
  await reportOf('loud');
  await until(() => reports.filter(({ report_type: kind }) => kind === 'progress').length === 3);
  const parts = reports.filter(({ report_type: kind }) => kind === 'progress');
  expect(parts.map(({ seq, progress }) => [seq, progress])).toEqual([
    [0, 'one '],
    [1, 'two three'],
    [2, { percent: 50 }],
  ]);
  await call('quiet');
  const quiet = await startedCall(2);
  quiet.progress('x');
  quiet.end();
  await reportOf('quiet');
  expect(reports.filter(({ report_type: kind }) => kind === 'progress')).toHaveLength(3);
});

it('does not execute a call that it cannot record', async () => {
  const ledger = await openLedger({ folder });
  await agent({ ledger });
  await ledger.close();
  await call('a');
  expect(await reportOf('a')).toMatchObject({
    error_type: 'execution_failed',
    error: expect.stringContaining('cannot record'),
  });
  expect(started).toEqual([]);
});

it('goes on if a recorded result cannot be read, and says that the call has ended', async () => {
  const first = await agent();
  await call('a');
  (await startedCall(1)).end({ ...OK, result: 'x'.repeat(20_000) });
  await reportOf('a');
  await first.close(0);
  rmSync(join(folder, 'blobs'), { recursive: true });
  const lines: string[] = [];
  await agent({ log: ({ message }) => lines.push(message) });
  await call('a');
  expect(await reportOf('a', 2)).toMatchObject({ status: 'error', error_type: 'interrupted' });
  await send('query', { target: 'a' }, { request_id: 'q' });
  expect(await reportOf('q')).toMatchObject({ result: { state: 'done', report: { error_type: 'interrupted' } } });
  expect(started).toHaveLength(1);
  expect(lines).toContain('a result could not be read');
});

it('says which ledger it has, and does not execute what is for another one', async () => {
  const ledger = await openLedger({ folder });
  await agent({ ledger });
  expect(statuses[0]).toMatchObject({ status: 'online', ledger: ledger.id });
  await call('a', { ledger: 'another' });
  expect(await reportOf('a')).toMatchObject({ error_type: 'other_ledger', ledger: ledger.id });
  await send('query', { target: 'a' }, { request_id: 'q', ledger: 'another' });
  expect(await reportOf('q')).toMatchObject({ error_type: 'other_ledger' });
  await call('b', { ledger: ledger.id });
  (await startedCall(1)).end();
  expect(await reportOf('b')).toMatchObject({ status: 'success', ledger: ledger.id });
});

it('shuts down, and says nothing about calls, if another process has opened its ledger', async () => {
  const reasons: (string | undefined)[] = [];
  const lost = (reason: string | undefined): void => {
    reasons.push(reason);
    changed();
  };
  await agent({ onShutdown: lost });
  ledgers.push(await openLedger({ folder }));
  await send('query', { target: 'a' }, { request_id: 'q' });
  await call('a');
  await until(() => reasons.length > 0);
  await send('ping', {}, { request_id: 'p' });
  await reportOf('p');
  expect([reports.length, started.length, reasons]).toEqual([1, 0, [expect.stringContaining('another process')]]);
});

it('gives the same answer to a refused call that is delivered twice, and takes another attempt', async () => {
  await agent({ maxParallel: 1, maxQueued: 0 });
  const expires_at = Date.now() + 60_000;
  await call('a');
  const { end } = await startedCall(1);
  await call('b', { expires_at });
  expect(await reportOf('b')).toMatchObject({ error_type: 'busy' });
  end();
  await reportOf('a');
  // The orchestrator was told that it did not run.
  await call('b', { expires_at });
  expect(await reportOf('b', 2)).toMatchObject({ error_type: 'busy' });
  expect(started).toHaveLength(1);
  await call('b', { expires_at: expires_at + 1 });
  (await startedCall(2)).end();
  expect(await reportOf('b', 3)).toMatchObject({ status: 'success' });
});

it('waits for what runs when it shuts down, and takes nothing new', async () => {
  const shutdowns: unknown[] = [];
  const one = await agent({ maxParallel: 1, onShutdown: (reason) => shutdowns.push(reason) });
  await call('runs');
  await startedCall(1);
  await call('waits');
  await send('shutdown', { reason: 'update' }, { request_id: 's' });
  expect(await reportOf('s')).toMatchObject({ status: 'success' });
  expect(shutdowns).toEqual(['update']);
  const closing = one.close();
  await until(() => statuses.at(-1)!['status'] === 'draining');
  expect(await reportOf('waits')).toMatchObject({ error_type: 'busy' });
  await call('late');
  expect(await reportOf('late')).toMatchObject({ error_type: 'busy' });
  started[0]!.end();
  await closing;
  expect(await reportOf('runs')).toMatchObject({ status: 'success' });
  await until(() => statuses.at(-1)!['status'] === 'offline');
});

it('executes an operation once, for this start of it only', async () => {
  const { session } = await agent();
  const ops = (id: string, op: string, more: Json = { session }): Promise<void> =>
    send('ops', { op, args: {} }, { request_id: id, ...more });
  await Promise.all([ops('o', 'write'), ops('o', 'write')]);
  expect(await reportOf('o', 2)).toMatchObject({ status: 'success', result: { done: 'write' } });
  expect(operated).toEqual(['write']);
  await ops('missing', 'stat');
  expect(await reportOf('missing')).toMatchObject({ error_type: 'not_found', result: { code: 'ENOENT' } });
  await ops('old', 'write', { session: 'x' });
  expect(await reportOf('old')).toMatchObject({ error_type: 'expired' });
  await ops('none', 'write', {});
  expect(await reportOf('none')).toMatchObject({ error_type: 'invalid_params' });
  expect(operated).toEqual(['write', 'stat']);
});

it('does not execute an operation again whose answer is not kept any more', async () => {
  const large = { ...runner, operate: async (op: string) => (operated.push(op), { data: 'x'.repeat(300_000) }) };
  const { session } = await agent({ runner: large });
  const ops = (id: string): Promise<void> => send('ops', { op: 'read', args: {} }, { request_id: id, session });
  for (let index = 0; index < 20; index++) {
    await ops(`o${index}`);
    await reportOf(`o${index}`);
  }
  await Promise.all([ops('o0'), ops('o19')]);
  expect(await reportOf('o0', 2)).toMatchObject({ status: 'error', error_type: 'expired' });
  expect(await reportOf('o19', 2)).toMatchObject({ status: 'success' });
  expect(operated).toHaveLength(20);
});

it('lists and reloads its packages, and publishes what has changed', async () => {
  await agent();
  await send('skill', {}, { request_id: 'list' });
  expect(await reportOf('list')).toMatchObject({ result: { skills: [{ name: 'pi-tools', version: '1.0.0' }] } });
  await send('skill', { action: 'reload' }, { request_id: 'reload' });
  expect(await reportOf('reload')).toMatchObject({ result: { skills: [{ version: '2.0.0' }] } });
  await until(() => JSON.stringify(statuses.at(-1)).includes('2.0.0'));
  await send('tools_list', {}, { request_id: 'tools' });
  expect(await reportOf('tools')).toMatchObject({ result: { tools: [], ledger: true } });
});
