import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  memoryJournal,
  runLoop,
  startLoop,
  systemClock,
  textOf,
  type LoopResult,
  type Tool,
  type ToolContext,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import { plainDevice } from '../../test/plain-device.ts';
import { startAgent, type AgentOptions, type DeviceAgent } from '../device/agent.ts';
import { openLedger } from '../device/ledger.ts';
import type { Described, Outcome, Runner, RunnerCall } from '../device/runner.ts';
import { openBroker, type Broker } from '../mqtt/broker.ts';
import { mqttClient } from '../mqtt/client.ts';
import type { OfferedTool } from '../protocol/capabilities.ts';
import { deviceTools } from './device-tools.ts';
import { deviceExecutor } from './executor.ts';
import { nodesTool } from './nodes.ts';
import { edgeLink, type DeviceOptions, type EdgeLink, type EdgeLogLine, type EdgeOptions } from './link.ts';

const BASH: OfferedTool = {
  name: 'bash',
  description: 'Execute shell commands',
  parameters: {
    type: 'object',
    properties: { command: { type: 'string' }, timeout_ms: { type: 'integer', maximum: 300_000 } },
    required: ['command'],
  },
  permissions: ['shell'],
};
const DESCRIBED: Described = {
  tools: [BASH],
  notices: [],
  capabilities: ['shell'],
  folder: '/home/pi',
  home: '/home/pi',
};

interface Started extends RunnerCall {
  readonly end: (outcome: Outcome) => void;
  readonly progress: (progress: unknown) => void;
}

let folder: string;
let broker: Broker;
let started: Started[];
let onStart: (() => void) | undefined;
const closing: { close(): Promise<unknown> }[] = [];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'treadle-link-'));
  broker = await openBroker({ prefix: 'treadle' });
  started = [];
  onStart = undefined;
});
afterEach(async () => {
  for (const { end } of started) end(success('late'));
  for (const one of closing.splice(0).toReversed()) await one.close();
  await broker.close();
  rmSync(folder, { recursive: true });
});

const success = (result: unknown): Outcome => ({ status: 'success', result, stderr: '', exit_code: 0 });
const failed = (type: Outcome['error_type'], error: string, more: Partial<Outcome> = {}): Outcome => ({
  status: 'error',
  error,
  ...(type && { error_type: type }),
  ...more,
});

/** Answers each call, or leaves it open. */
function runner(answer?: (call: RunnerCall) => Outcome | undefined): Runner {
  return {
    describe: async () => DESCRIBED,
    reload: async () => DESCRIBED,
    call: (call, progress) =>
      new Promise((done) => {
        started.push({ ...call, end: done, progress });
        call.signal.addEventListener('abort', () => done(failed('cancelled', 'cancelled')));
        const outcome = answer?.(call);
        if (outcome) done(outcome);
        onStart?.();
      }),
    operate: async () => ({}),
    close: async () => {},
  };
}

async function startedCall(count: number): Promise<Started> {
  while (started.length < count) await new Promise<void>((done) => (onStart = done));
  return started[count - 1]!;
}

async function device(run: Runner, options: Partial<AgentOptions> = {}): Promise<DeviceAgent> {
  const made = await startAgent({
    id: 'pi',
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    ledger: options.ledger ?? (await openLedger({ folder })),
    runner: run,
    random: () => 0,
    ...options,
  });
  let isClosed = false;
  const close = async (graceMs = 0): Promise<void> => {
    if (!isClosed) await made.close(graceMs);
    isClosed = true;
  };
  const closable = { ...made, id: made.id, session: made.session, isConnected: true, close };
  closing.push(closable);
  return closable;
}

async function link(options: Partial<DeviceOptions> = {}, more: Partial<EdgeOptions> = {}): Promise<EdgeLink> {
  const made = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url, protocol: 4 },
    devices: [{ name: 'pi', ...options }],
    offlineGraceMs: 0,
    random: () => 0,
    ...more,
  });
  closing.push(made);
  await made.whenConnected(10_000);
  return made;
}

async function ready(options: Partial<DeviceOptions> = {}, more: Partial<EdgeOptions> = {}): Promise<EdgeLink> {
  const made = await link(options, more);
  expect(await made.whenReady('pi', 10_000)).toBe(true);
  return made;
}

const call = (command: string) => ({ calls: [{ name: 'bash', arguments: { command } }] });

function resultText({ messages }: LoopResult): string {
  const [first] = messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
  return textOf(first!.content);
}

async function run(tools: readonly Tool[], command = 'vcgencmd measure_temp'): Promise<LoopResult> {
  return runLoop({ model: scriptedModel([call(command), 'Done.']), tools, input: 'Check the CPU temperature' });
}

describe('a call', () => {
  it('runs on the device under the key of the call, with progress', async () => {
    await device(runner());
    const made = await ready();
    const [bash] = deviceTools(made, 'pi');
    expect(bash).toMatchObject({ name: 'bash', effect: 'once', permissions: ['shell'] });
    const seen: unknown[] = [];
    const running = runLoop({
      runId: 'run_1',
      model: scriptedModel([call('vcgencmd measure_temp'), 'It is 45.6°C.']),
      tools: [bash!],
      input: 'Check the CPU temperature',
      onItem: (item) => item.type === 'tool-report' && seen.push(item.progress),
    });
    const { key, parameters, timeoutMs, progress, end } = await startedCall(1);
    expect([key, parameters]).toEqual(['run_1/t1.tool.0', { command: 'vcgencmd measure_temp' }]);
    expect(timeoutMs).toBeLessThanOrEqual(30_000);
    progress('temp');
    while (seen.length === 0) await new Promise((done) => setImmediate(done));
    end(success('temp=45.6°C'));
    const result = await running;
    expect([resultText(result), result.text, seen]).toEqual(['temp=45.6°C', 'It is 45.6°C.', ['temp']]);
    expect(made.device('pi')).toMatchObject({
      status: 'online',
      calls: [{ requestId: 'run_1/t1.tool.0', tool: 'bash', result: 'success' }],
    });
  });

  test.each<[string, Outcome, string]>([
    ['JSON', success({ temp: 45.6 }), '{"temp":45.6}'],
    ['stderr', { ...success('out'), stderr: 'warning', exit_code: 2 }, 'out\n[stderr]\nwarning\n[exit code 2]'],
    [
      'a tool that is gone',
      failed('not_found', 'no'),
      "Error: Tool 'git_status' not found. Available tools: bash.\nPlease choose an available tool or explain to the user.",
    ],
    ['what a tool has not found', failed('not_found', 'No "x". Use glob.'), 'Error: No "x". Use glob.'],
    [
      'a timeout',
      failed('timeout', ''),
      "Error: Tool 'bash' timed out after 30s. Command: 'sleep 60'.\nTry again with a shorter timeout or explain to the user.",
    ],
    [
      'a permission',
      failed('permission_denied', 'Permission denied (requires: shell).', { requires: ['shell'] }),
      "Error: Permission denied for tool 'bash' (requires: shell).\nThis agent does not have shell access. Explain to the user.",
    ],
    [
      'wrong parameters',
      failed('invalid_params', "Its arguments are not valid: missing 'command'. Required: command."),
      "Error: Invalid parameters for 'bash': missing 'command'.\nRequired: [command]. Optional: [timeout_ms].",
    ],
    ['a failure', failed('execution_failed', '[exit code 1]', { exit_code: 1, stderr: 'no' }), '[exit code 1]'],
  ])('gives the model %s in the words of the document', async (_, outcome, text) => {
    await device(runner(() => outcome));
    const made = await ready();
    const tools = deviceTools(made, 'pi');
    const name = text.includes('git_status') ? 'git_status' : 'bash';
    const offered = name === 'bash' ? tools : deviceTools(linkWith(made, [{ ...BASH, name }]), 'pi');
    const result = await runLoop({
      model: scriptedModel([{ calls: [{ name, arguments: { command: 'sleep 60' } }] }, 'Done.']),
      tools: offered,
      input: 'x',
    });
    expect(resultText(result)).toBe(text);
    const [first] = result.messages.flatMap((message) => (message.role === 'tool' ? message.content : []));
    expect(first).toMatchObject({ isError: outcome.status === 'error' });
    if (outcome.status === 'error') expect(first!.errorType).toBe(outcome.error_type);
  });

  it('has images and files as blocks, and large results in whole', async () => {
    const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
    const large = 'x'.repeat(3_000_000);
    const outcomes = [
      { ...success(''), content: [image, { type: 'text', text: 'a screenshot' } as const] },
      success(large),
    ];
    await device(runner(() => outcomes.shift()));
    const [bash] = deviceTools(await ready(), 'pi');
    const context = (key: string): ToolContext =>
      ({ key, signal: new AbortController().signal, report: () => {} }) as never;
    expect(await bash!.execute!({ command: 'shot' }, context('a'))).toEqual({
      content: [image, { type: 'text', text: 'a screenshot' }],
    });
    expect(await bash!.execute!({ command: 'cat' }, context('b'))).toEqual({
      content: [{ type: 'text', text: large }],
    });
  });

  it('is cancelled on the device when the run is', async () => {
    await device(runner());
    const tools = deviceTools(await ready(), 'pi');
    const controller = new AbortController();
    const running = runLoop({ model: scriptedModel([call('sleep 60')]), tools, input: 'x', signal: controller.signal });
    const { signal } = await startedCall(1);
    controller.abort();
    expect((await running).outcome?.type).toBe('cancelled');
    if (!signal.aborted) await new Promise<void>((done) => signal.addEventListener('abort', () => done()));
  });

  it('is acknowledged, so that the device need not keep its result', async () => {
    const { session } = await device(runner(() => success('ok')));
    await run(deviceTools(await ready(), 'pi'));
    const ledger = join(folder, 'ledger.jsonl');
    const { readFileSync } = await import('node:fs');
    while (!readFileSync(ledger, 'utf8').includes('"ack"')) await new Promise((done) => setTimeout(done, 5));
    expect(session).toBeTruthy();
  });
});

/** The same link, with other tools. */
function linkWith(made: EdgeLink, tools: readonly OfferedTool[]): EdgeLink {
  let first = true;
  return new Proxy(made, {
    get(target, key) {
      if (key !== 'device') return Reflect.get(target, key, target).bind?.(target) ?? Reflect.get(target, key, target);
      return (name: string) => {
        const view = target.device(name);
        if (!first) return view;
        first = false;
        return { ...view, capabilities: { ...view!.capabilities, tools } };
      };
    },
  });
}

describe('a device that is away', () => {
  it('is said to be, and nothing is sent', async () => {
    const pi = await device(runner(() => success('ok')));
    const tools = deviceTools(await ready(), 'pi');
    await pi.close();
    const result = await run(tools);
    expect(resultText(result)).toBe(
      "Error: The device 'pi' is offline (it was shut down), so tool 'bash' was not executed.\nTry again later or explain to the user.",
    );
    expect(started).toEqual([]);
  });

  it('settles its calls when it goes away', async () => {
    const pi = await device(runner());
    const tools = deviceTools(await ready(), 'pi');
    const running = run(tools);
    await startedCall(1);
    // Another client with its id: the broker ends its connection, and publishes its will.
    const thief = mqttClient({ url: broker.url, clientId: 'treadle-edge-pi', protocol: 4, onMessage: () => {} });
    closing.push(thief);
    expect(resultText(await running)).toContain(
      "The device 'pi' went offline (the connection was lost) while tool 'bash' ran",
    );
    await thief.close();
    expect(pi.id).toBe('pi');
  });

  it('parks its calls if it is told to, and executes each once when it is back, also after a restart of this side', async () => {
    const pi = await device(runner(() => success('never')));
    const first = await ready({ onOffline: 'wait', waitMs: 60_000 });
    const known = deviceTools(first, 'pi');
    await pi.close();
    while (first.device('pi')?.status !== 'offline') await new Promise((done) => setImmediate(done));
    const journal = memoryJournal();
    const model = scriptedModel([call('open the door'), 'It is open.']);
    const paused = await runLoop({ runId: 'door', model, tools: known, journal, input: 'Open the door' });
    expect(paused.waiting).toMatchObject([{ type: 'parked', on: 'device:pi' }]);
    expect(paused.wakeAt).toBeGreaterThan(Date.now());
    await first.close();
    // Still away.
    const second = await link({ onOffline: 'wait', waitMs: 60_000 });
    const again = await runLoop({ runId: 'door', model, tools: known.map((one) => rebound(one, second)), journal });
    expect(again.waiting).toHaveLength(1);
    await device(runner(() => success('open')));
    await second.whenReady('pi', 10_000);
    const done = await runLoop({ runId: 'door', model, tools: deviceTools(second, 'pi'), journal });
    expect([resultText(done), done.text, started.length]).toEqual(['open', 'It is open.', 1]);
  });

  it('keeps the result of a parked call until the run has asked for it', async () => {
    const ledger = await openLedger({ folder });
    await device(runner(), { ledger });
    const made = await ready({ onOffline: 'wait', waitMs: 60_000 });
    const journal = memoryJournal();
    const model = scriptedModel([call('open the door'), 'It is open.']);
    const tools = deviceTools(made, 'pi');
    const running = runLoop({ runId: 'door', model, tools, journal, input: 'Open the door' });
    const { end } = await startedCall(1);
    const thief = mqttClient({ url: broker.url, clientId: 'treadle-edge-pi', protocol: 4, onMessage: () => {} });
    expect((await running).waiting).toMatchObject([{ type: 'parked', on: 'device:pi' }]);
    await thief.close();
    const reported = new Promise<void>((done) => made.watch(({ kind, message }) => isResult(kind, message) && done()));
    end(success('open'));
    await reported;
    // Sends what it would acknowledge.
    await made.close();
    const second = await ready({ onOffline: 'wait', waitMs: 60_000 });
    await second.ping('pi');
    expect(ledger.unacknowledged()).toEqual(['door/t1.tool.0']);
    const done = await runLoop({ runId: 'door', model, tools: deviceTools(second, 'pi'), journal });
    expect([resultText(done), started.length]).toEqual(['open', 1]);
    await second.close();
    const third = await ready();
    await third.ping('pi');
    expect(ledger.unacknowledged()).toEqual([]);
  });

  it('says that a call has run whose large result cannot be fetched, or parks it', async () => {
    const large = success('x'.repeat(1_000_000));
    for (const onOffline of ['error', 'wait'] as const) {
      const ledger = await openLedger({ folder: join(folder, onOffline) });
      const pi = await device(
        runner(() => large),
        { ledger },
      );
      const made = await ready({ onOffline });
      // It goes away as soon as it has said where the result is.
      made.watch(({ kind, message }) => {
        if (kind === 'reports' && JSON.stringify(message).includes('result_blob')) void pi.close();
      });
      const result = await run(deviceTools(made, 'pi'));
      if (onOffline === 'wait') expect(result.waiting).toMatchObject([{ type: 'parked', on: 'device:pi' }]);
      else expect(resultText(result)).toContain("The device 'pi' went offline");
      await pi.close();
      await made.close();
    }
  });

  it('sends the command again when the device comes back during a call', async () => {
    await device(runner());
    const made = await ready({}, { offlineGraceMs: 60_000 });
    const running = run(deviceTools(made, 'pi'));
    await startedCall(1);
    const port = Number(new URL(broker.url).port);
    await broker.close();
    started[0]!.end(success('after all'));
    broker = await openBroker({ prefix: 'treadle', port });
    expect(resultText(await running)).toBe('after all');
    expect(started).toHaveLength(1);
  });
});

const isResult = (kind: string, message: unknown): boolean =>
  kind === 'reports' && (message as { readonly tool?: string }).tool === 'bash';

/** A tool of a link that is closed, for another one. */
function rebound(one: Tool, made: EdgeLink): Tool {
  const [other] = deviceTools(linkWith(made, [BASH]), 'pi');
  return { ...one, execute: other!.execute!, verify: other!.verify! };
}

describe('after a crash of this side', () => {
  async function interrupted(
    answer: (call: RunnerCall) => Outcome | undefined,
    onSecond = (): void => {},
  ): Promise<LoopResult> {
    await device(runner(answer));
    const first = await ready();
    const journal = memoryJournal();
    const options = { runId: 'crash', journal, input: 'x' };
    const controller = new AbortController();
    const model = scriptedModel([call('pay'), 'Paid.']);
    // Detached: as if the process had died after the command was sent.
    const live = startLoop({ ...options, model, tools: deviceTools(first, 'pi') });
    await startedCall(1);
    await live.detach();
    controller.abort();
    await first.close();
    const second = await ready();
    onSecond();
    return runLoop({ runId: 'crash', journal, model, tools: deviceTools(second, 'pi') });
  }

  it('a call that still runs goes on, and its result is waited for', async () => {
    const result = await interrupted(
      () => undefined,
      () => started[0]!.end(success(started[0]!.signal.aborted ? 'cancelled' : 'paid once')),
    );
    expect([resultText(result), started.length]).toEqual(['paid once', 1]);
  });

  it('a call that has ended has its result, and does not run again', async () => {
    const result = await interrupted(() => success('paid once'));
    expect([resultText(result), started.length]).toEqual(['paid once', 1]);
  });

  it('verify tells what never began from what ran', async () => {
    await device(runner(() => success('ok')));
    const [bash] = deviceTools(await ready(), 'pi');
    const context = (key: string): ToolContext =>
      ({ key, signal: new AbortController().signal, report: () => {}, recipient: bash!.recipient!({}) }) as never;
    expect(await bash!.verify!({ command: 'x' }, context('new'))).toEqual({ type: 'not-done' });
    await bash!.execute!({ command: 'x' }, context('old'));
    expect(await bash!.verify!({ command: 'x' }, context('old'))).toEqual({
      type: 'done',
      result: { content: [{ type: 'text', text: 'ok' }] },
    });
  });
});

describe('a device that has lost its ledger', () => {
  const UNKNOWN = 'it is not known whether it took effect: the device has lost its record of calls';
  /** The same id with a fresh store. It takes the connection of the first one. */
  const replaced = async (run: Runner): Promise<DeviceAgent> =>
    device(run, { ledger: await openLedger({ folder: join(folder, 'fresh') }) });
  const contextOf = (more: Partial<ToolContext>): ToolContext =>
    ({ key: 'k', signal: new AbortController().signal, report: () => {}, ...more }) as never;

  it('does not get a call that the first ledger may have begun, and the log names two devices with one id', async () => {
    const lines: EdgeLogLine[] = [];
    await device(runner());
    const made = await ready({}, { offlineGraceMs: 60_000, log: (line) => lines.push(line) });
    const running = run(deviceTools(made, 'pi'));
    await startedCall(1);
    await replaced(runner(() => success('again')));
    expect(resultText(await running)).toContain(UNKNOWN);
    expect(started).toHaveLength(1);
    // Both connect again whenever the other one has taken their connection.
    while (!lines.some(({ level }) => level === 'error')) await new Promise((done) => setTimeout(done, 5));
    expect(lines.find(({ level }) => level === 'error')).toMatchObject({
      message: 'two devices have the same id',
      device: 'pi',
    });
  });

  it.each(['crashed', 'parked'] as const)('does not run a call again whose run was %s', async (how) => {
    const pi = await device(runner());
    const options = { onOffline: 'wait', waitMs: 60_000 } as const;
    const first = await ready(options);
    const journal = memoryJournal();
    const model = scriptedModel([call('pay'), 'Paid.']);
    const live = startLoop({ runId: 'pay', journal, input: 'x', model, tools: deviceTools(first, 'pi') });
    await startedCall(1);
    if (how === 'crashed') await live.detach();
    else {
      const thief = mqttClient({ url: broker.url, clientId: 'treadle-edge-pi', protocol: 4, onMessage: () => {} });
      expect((await live.result).waiting).toMatchObject([{ type: 'parked', on: 'device:pi' }]);
      await thief.close();
    }
    await first.close();
    for (const { end } of started) end(success('late'));
    await pi.close();
    await replaced(runner(() => success('again')));
    const second = await ready(options);
    const result = await runLoop({ runId: 'pay', journal, model, tools: deviceTools(second, 'pi') });
    expect(resultText(result)).toContain(UNKNOWN);
    expect(started).toHaveLength(1);
  });

  it('runs a call again that is idempotent', async () => {
    const described = { ...DESCRIBED, tools: [{ ...BASH, effect: 'idempotent' as const }] };
    await device({ ...runner(), describe: async () => described });
    const made = await ready({}, { offlineGraceMs: 60_000 });
    const running = run(deviceTools(made, 'pi'));
    await startedCall(1);
    await replaced({ ...runner(() => success('again')), describe: async () => described });
    expect(resultText(await running)).toBe('again');
    expect(started).toHaveLength(2);
  });

  it('gets a parked call that was never sent after the journal says to whom', async () => {
    await device(runner(() => success('ok')));
    const made = await ready({ onOffline: 'wait' });
    const { ledger } = made.device('pi')!;
    const [bash] = deviceTools(made, 'pi');
    const parked = { on: 'device:pi', expiresAt: Date.now() + 60_000 };
    expect(await bash!.verify!({ command: 'x' }, contextOf({ parked }))).toMatchObject({ on: `device:pi ${ledger}` });
    expect(started).toEqual([]);
    expect(
      await bash!.verify!({ command: 'x' }, contextOf({ parked: { ...parked, on: `device:pi ${ledger}` } })),
    ).toMatchObject({ type: 'done', result: { content: [{ type: 'text', text: 'ok' }] } });
  });

  it('does not make a call run of which nobody knows which ledger it was sent to', async () => {
    await device(runner(() => success('ok')));
    const [bash] = deviceTools(await ready(), 'pi');
    expect(await bash!.verify!({ command: 'x' }, contextOf({}))).toEqual({ type: 'unknown' });
  });
});

describe('touches', () => {
  it('are on the device, whatever it says', async () => {
    const tools: OfferedTool[] = [
      { ...BASH, name: 'cat', touches: [{ type: 'read', path: '{command}' }] },
      { ...BASH, name: 'odd' },
    ];
    await device({ ...runner(), describe: async () => ({ ...DESCRIBED, tools }) });
    const [cat, odd] = deviceTools(await ready(), 'pi');
    const on = { type: 'device', name: 'pi' };
    expect(cat!.touches!({ command: '/etc/hostname' })).toEqual([
      { type: 'device', device: 'pi' },
      { type: 'read', path: '/etc/hostname', on },
    ]);
    expect([odd!.touches!({ command: 'x' }), odd!.exposes]).toEqual([
      [{ type: 'device', device: 'pi' }, { type: 'unknown' }],
      'outside',
    ]);
  });

  it.each([
    { why: 'names an argument that the call does not have', touches: [{ type: 'read', path: '{path}' }] },
    { why: 'has another field than its type', touches: [{ type: 'read', command: 'x' }] },
  ])('include the device if a template $why', async ({ touches }) => {
    await device({ ...runner(), describe: async () => ({ ...DESCRIBED, tools: [{ ...BASH, touches }] }) });
    const [cat] = deviceTools(await ready(), 'pi');
    expect(cat!.touches!({ command: 'x' })).toEqual([{ type: 'device', device: 'pi' }, { type: 'unknown' }]);
  });
});

describe('clocks', () => {
  it('a device whose clock is wrong gets commands in its own time', async () => {
    const clock = {
      now: () => Date.now() + 3_600_000,
      timer: (ms: number, fire: () => void) => {
        const timer = setTimeout(fire, ms);
        return () => clearTimeout(timer);
      },
    };
    await device(
      runner(() => success('ok')),
      { clock },
    );
    const made = await ready();
    expect(resultText(await run(deviceTools(made, 'pi')))).toBe('ok');
    expect(made.device('pi')!.clockOffsetMs).toBeGreaterThan(3_599_000);
  });
});

describe('a device of the original protocol', () => {
  async function plain(options: Partial<EdgeOptions> = {}) {
    await broker.close();
    broker = await openBroker({ prefix: 'evoclaw' });
    const pi = await plainDevice(broker.url);
    closing.push(pi);
    const made = await link({ name: 'living-room-pi', tools: [BASH] }, { prefix: 'evoclaw', ...options });
    return { tools: deviceTools(made, 'living-room-pi'), pi, link: made };
  }

  it('gets the command of the document, and its flat report without an id is taken', async () => {
    const { tools, pi } = await plain();
    const running = run(tools);
    expect(await pi.received(1)).toMatchObject({
      command: 'tool',
      payload: { tool: 'bash', parameters: { command: 'vcgencmd measure_temp' }, timeout_ms: 30_000 },
    });
    await pi.report({
      status: 'success',
      tool: 'bash',
      result: 'temp=45.6°C',
      stderr: '',
      exit_code: 0,
      elapsed_ms: 123,
    });
    expect(resultText(await running)).toBe('temp=45.6°C');
  });

  it('gets one call at a time, and a late report is not taken for that of the next call', async () => {
    const { tools, pi } = await plain();
    const [bash] = tools;
    const controller = new AbortController();
    const context = (key: string, { signal }: AbortController): ToolContext =>
      ({ key, signal, report: () => {} }) as never;
    const first = bash!.execute!({ command: 'slow' }, context('a', controller)) as Promise<unknown>;
    await pi.received(1);
    const second = bash!.execute!({ command: 'fast' }, context('b', new AbortController())) as Promise<unknown>;
    controller.abort();
    await first;
    await pi.report({ status: 'success', tool: 'bash', result: 'slow' });
    // It does not know `cancel`, and what it would answer could be taken for the report.
    expect(await pi.received(2)).toMatchObject({ command: 'tool', request_id: 'b' });
    await pi.report({
      agent_id: 'x',
      agent_type: 'y',
      report_type: 'result',
      payload: { status: 'success', tool: 'bash', result: 'fast' },
      timestamp: 1,
    });
    expect(await second).toEqual({ content: [{ type: 'text', text: 'fast' }] });
  });

  it('answers a ping without an id, which is not taken for the report of a call', async () => {
    const { tools, pi, link: made } = await plain();
    const running = run(tools);
    await pi.received(1);
    const pinged = made.ping('living-room-pi');
    await pi.received(2);
    const payload = { pong: true };
    await pi.report({ agent_id: 'x', agent_type: 'y', report_type: 'result', payload, timestamp: 1 });
    expect((await pinged).load).toEqual({ pong: true });
    await pi.report({ status: 'success', tool: 'bash', result: 'temp=45.6°C' });
    expect(resultText(await running)).toBe('temp=45.6°C');
  });

  it('is online while it is heard, and lists the tools that are configured for it', async () => {
    let later = 0;
    const { pi, link: made } = await plain({ clock: { ...systemClock, now: () => Date.now() + later } });
    const status = (): string => made.device('living-room-pi')!.status;
    const heard = (): Promise<void> =>
      new Promise((done) => {
        const stop = made.onChange(() => {
          stop();
          done();
        });
      });
    expect(status()).toBe('unknown');
    const beating = heard();
    await pi.report({ agent_id: 'x', agent_type: 'y', report_type: 'heartbeat', payload: {}, timestamp: 1 });
    await beating;
    expect(status()).toBe('online');
    expect(await nodesTool(made).execute!({}, {} as never)).toEqual({
      devices: [{ name: 'living-room-pi', status: 'online', tools: ['bash'] }],
    });
    later = 5 * 60_000;
    expect(status()).toBe('unknown');

    const payload = { tool: 'bash', parameters: { command: 'x' } };
    const call = async (requestId: string): Promise<string> =>
      (await made.send('living-room-pi', { type: 'tool', payload, requestId }, { timeoutMs: 200 })).type;
    const answered = call('a');
    await pi.received(1);
    await pi.report({ status: 'success', tool: 'bash', result: 'ok' });
    expect([await answered, status()]).toEqual(['report', 'online']);
    expect([await call('b'), status()]).toEqual(['timeout', 'unknown']);
  });

  it('cannot say what became of a call', async () => {
    const { tools } = await plain();
    const context = { key: 'k', signal: new AbortController().signal } as unknown as ToolContext;
    expect(await tools[0]!.verify!({ command: 'x' }, context)).toEqual({ type: 'unknown' });
  });
});

describe('hosts', () => {
  it('a tenant gets the tools of its own devices, and does not learn of others', async () => {
    await device(runner(() => success('ok')));
    const made = await ready({ tenant: 'acme' });
    const executor = deviceExecutor(made);
    const asked = { type: 'mcp', server_label: 'device:pi' };
    const principal = (tenant: string) => ({ subject: 'key', tenant, scopes: [] });
    expect(executor.canExecute(asked)).toBe(true);
    expect(executor.canExecute({ type: 'mcp', server_label: 'pi' })).toBe(false);
    expect((await executor.functions(asked, principal('acme'))).map(({ name }) => name)).toEqual(['bash']);
    await expect(executor.functions(asked, principal('other'))).rejects.toThrow(
      'There is no device "pi". Devices: none.',
    );
    const nodes = nodesTool(made);
    const ask = (tenant: string, input: object): unknown =>
      nodes.execute!(input, { principal: principal(tenant) } as never);
    expect(ask('acme', {})).toEqual({ devices: [{ name: 'pi', status: 'online', tools: ['bash'] }] });
    expect(ask('other', {})).toEqual({ devices: [] });
    expect(ask('acme', { device: 'pi' })).toMatchObject({
      name: 'pi',
      capabilities: ['shell'],
      tools: [{ name: 'bash' }],
    });
    expect(() => ask('other', { device: 'pi' })).toThrow('There is no device');
  });

  it('a resumed run asks about its calls on a device that nobody has heard of, and makes no new ones', async () => {
    const pi = await device(runner(() => success('ok')));
    const made = await ready();
    const recorded = deviceTools(made, 'pi');
    const other = await link({ name: 'pj', onOffline: 'wait' });
    expect(deviceExecutor(other).recorded({ type: 'mcp', server_label: 'device:pj' }, recorded)).toEqual([]);
    await pi.close();
    await broker.close();
    broker = await openBroker({ prefix: 'treadle' });
    const unheard = new Proxy(await link({ onOffline: 'wait' }), {
      get: (target, key) =>
        key === 'whenReady' ? async () => false : (Reflect.get(target, key, target) as () => unknown).bind(target),
    });
    const [bash] = deviceExecutor(unheard).recorded({ type: 'mcp', server_label: 'device:pi' }, recorded);
    const { name, description, parameters, effect, fingerprint } = recorded[0]!;
    expect(bash).toMatchObject({ name, description, parameters, effect, fingerprint });
    expect(bash!.touches!({ command: 'x' })).toEqual([{ type: 'device', device: 'pi' }, { type: 'unknown' }]);
    const context = (recipient?: string): ToolContext =>
      ({ key: 'k', signal: new AbortController().signal, report: () => {}, recipient }) as never;
    expect(await bash!.execute!({ command: 'x' }, context())).toMatchObject({
      isError: true,
      content: expect.stringContaining('nobody has heard of it since the run was resumed'),
    });
    expect(bash!.recipient).toBeUndefined();
    expect(await bash!.verify!({ command: 'x' }, context('a'))).toMatchObject({ on: 'device:pi' });
    expect(await bash!.verify!({ command: 'x' }, context())).toEqual({ type: 'unknown' });
  });

  it('a run gets tools that a device has added', async () => {
    let tools = [BASH];
    await device({
      ...runner(),
      describe: async () => ({ ...DESCRIBED, tools }),
      reload: async () => ({ ...DESCRIBED, tools }),
    });
    const made = await ready();
    const { promise, resolve } = Promise.withResolvers<readonly Tool[]>();
    const stop = deviceExecutor(made).follow({ type: 'mcp', server_label: 'device:pi' }, async (changed) =>
      resolve(changed),
    );
    tools = [BASH, { ...BASH, name: 'gpio' }];
    await made.ask('pi', { type: 'skill', payload: { action: 'reload' } });
    expect((await promise).map(({ name }) => name)).toEqual(['bash', 'gpio']);
    stop();
  });
});

it('leaves nothing behind', async () => {
  await device(runner(() => success('ok')));
  const made = await ready();
  const tools = deviceTools(made, 'pi');
  const timers = (): number => process.getActiveResourcesInfo().filter((one) => one === 'Timeout').length;
  await run(tools);
  const before = timers();
  for (let round = 0; round < 50; round++) await run(tools);
  expect(timers()).toBeLessThanOrEqual(before + 2);
});
