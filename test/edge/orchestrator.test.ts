import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { deviceExecutor, edgeLink, nodesTool, type DeviceOptions, type EdgeLink } from '@treadle/edge';
import { openLedger, startAgent, type DeviceAgent, type ToolSettings } from '@treadle/edge/device';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import { BROKERS, type TestBroker } from './brokers.ts';
import { inProcessRunner } from '@treadle/edge/device-tools';
import { hashKey, type ApiKey, type Scope } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { startInProcess, type InProcessServer, type JsonAnswer } from '../server/support/in-process.ts';

/*
 * The design document from end to end: an HTTP server with a scripted model, a broker, and devices with real tools.
 */

let root: string;
const closing: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-edge-')));
});
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
  rmSync(root, { recursive: true });
});

type Reply = Parameters<typeof scriptedModel>[0][number];

const PI_TOOLS = fileURLToPath(new URL('../../skills/pi-tools', import.meta.url));

/** A device with the built-in tools, the tools of a Pi, and programs that only a Pi has. */
async function device(broker: TestBroker, id: string, changed: Partial<ToolSettings> = {}): Promise<DeviceAgent> {
  const folder = join(root, id);
  mkdirSync(join(folder, 'bin'), { recursive: true });
  for (const [name, script] of [
    ['vcgencmd', 'echo "temp=45.6\'C"'],
    ['raspi-gpio', 'echo "GPIO $2: level=1 fsel=0 func=INPUT"'],
  ] as const) {
    writeFileSync(join(folder, 'bin', name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  const settings: ToolSettings = {
    folder,
    capabilities: ['file_read', 'file_write', 'shell', 'git'],
    offer: ['coding', 'packages'],
    skills: [PI_TOOLS],
    sandboxing: 'none',
    timeoutMs: 30_000,
    rules: {},
    onAsk: 'allow',
    ops: true,
    hide: [],
    ...changed,
  };
  const agent = await startAgent({
    id,
    type: 'desktop',
    prefix: 'treadle',
    broker: { url: broker.url },
    ledger: await openLedger({ folder: join(root, `${id}-store`) }),
    runner: inProcessRunner(settings),
  });
  closing.push(() => agent.close(0));
  return agent;
}

async function orchestrator(
  broker: TestBroker,
  replies: readonly Reply[],
  devices: readonly DeviceOptions[],
  prefix = 'treadle',
): Promise<{
  readonly server: InProcessServer;
  readonly link: EdgeLink;
  readonly model: ReturnType<typeof scriptedModel>;
}> {
  const link = edgeLink({ prefix, broker: { url: broker.url }, devices, offlineGraceMs: 0 });
  closing.push(() => link.close());
  const model = scriptedModel([...replies]);
  const server = await startInProcess(model, {
    executors: [deviceExecutor(link)],
    tools: [nodesTool(link)],
    devices: link,
  });
  closing.push(async () => server[Symbol.asyncDispose]());
  for (const { name, tools } of devices) if (!tools) expect(await link.whenReady(name, 20_000)).toBe(true);
  return { server, link, model };
}

type ChatEvent = Record<string, unknown> & { readonly type: string };

async function chat(
  { url }: InProcessServer,
  body: object,
): Promise<{ readonly events: readonly ChatEvent[]; readonly text: string }> {
  const answer = await fetch(`${url}/v1/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const events = (await answer.text())
    .split('\n')
    .flatMap((line) => (line.startsWith('data: ') ? [JSON.parse(line.slice(6)) as ChatEvent] : []));
  const text = events
    .flatMap((one) => (one.type === 'token_delta' ? [String(one['delta'] ?? one['text'])] : []))
    .join('');
  return { events, text };
}

const call = (name: string, args: object, text?: string): Reply => ({
  calls: [{ name, arguments: args }],
  ...(text !== undefined && { text }),
});

const resultsIn = (events: readonly ChatEvent[]): readonly string[] =>
  events.filter(({ type }) => type === 'tool_call_result').map((one) => JSON.stringify(one));

describe.each(BROKERS)('with the $name broker', ({ open }) => {
  let broker: TestBroker;
  beforeEach(async () => {
    broker = await open();
    closing.push(() => broker.close());
  });

  it('does the nine steps of the document', async () => {
    await device(broker, 'living-room-pi');
    const { server, model } = await orchestrator(
      broker,
      [
        call(
          'bash',
          { command: 'PATH=$PWD/bin:$PATH vcgencmd measure_temp' },
          "I'll check the CPU temperature for you.",
        ),
        'The CPU temperature is 45.6°C, which is within normal operating range.',
      ],
      [{ name: 'living-room-pi' }],
    );
    const { events, text } = await chat(server, { message: 'Check the CPU temperature', device: 'living-room-pi' });
    expect(text).toContain("I'll check the CPU temperature for you.");
    expect(text).toContain('The CPU temperature is 45.6°C, which is within normal operating range.');
    expect(resultsIn(events)).toEqual([expect.stringContaining("temp=45.6'C")]);
    const [first, second] = model.requests;
    expect(first!.tools.map(({ name }) => name)).toContain('bash');
    expect(JSON.stringify(second!.messages.at(-1))).toContain("temp=45.6'C");
  });

  it('does its three examples, with the tools of two devices', async () => {
    await Promise.all([device(broker, 'pi'), device(broker, 'desk')]);
    writeFileSync(join(root, 'hostname'), 'raspberrypi\n');
    const git = (command: string): unknown => execFileSync('sh', ['-c', command], { cwd: join(root, 'desk') });
    git('git init -q . && git config user.name Bowen && git config user.email b@example.com');
    for (const [index, subject] of ['Initial commit', 'Add feature', 'Fix bug'].entries()) {
      git(`echo "line ${index}" >> main.go && git add main.go && git commit -qm "${subject}"`);
    }
    const { server } = await orchestrator(
      broker,
      [
        call('bash', { command: 'PATH=$PWD/bin:$PATH raspi-gpio get 17' }),
        "GPIO pin 17 is currently HIGH (level=1). It's configured as an input.",
        call('read', { path: join(root, 'hostname') }),
        "The hostname is 'raspberrypi'.",
        call('git_log', { max_count: 3 }),
        call('git_diff', { commit: 'HEAD~1..HEAD' }),
        'Here are the last 3 commits.',
      ],
      [{ name: 'pi' }, { name: 'desk' }],
    );
    const gpio = await chat(server, { message: 'Check if GPIO pin 17 is high', device: 'pi' });
    expect(resultsIn(gpio.events)[0]).toContain('GPIO 17: level=1 fsel=0 func=INPUT');
    const file = await chat(server, { message: "What's in the hostname file?", device: 'pi' });
    expect(resultsIn(file.events)[0]).toContain('raspberrypi');
    const commits = await chat(server, { message: 'List the last 3 commits and show the diff', device: 'desk' });
    expect(resultsIn(commits.events)[0]).toMatch(/Fix bug.*Add feature.*Initial commit/);
    expect(resultsIn(commits.events)[1]).toContain('+line 2');
  });

  it('gives the model each type of error with what to do, and goes on', async () => {
    await device(broker, 'pi', { capabilities: ['file_read', 'shell'], rules: { commands: { deny: ['reboot'] } } });
    const { server, link } = await orchestrator(
      broker,
      [
        call('bash', { command: 'sleep 60', timeout_ms: 300 }),
        call('bash', { command: 'reboot now' }),
        call('bash', { command: 'echo out; echo bad >&2; exit 3' }),
        call('temperature', {}),
        'Done.',
      ],
      [{ name: 'pi' }],
    );
    const { events } = await chat(server, { message: 'x', device: 'pi' });
    expect(resultsIn(events)).toEqual([
      expect.stringContaining(
        "Error: Tool 'bash' timed out after 300ms. Command: 'sleep 60'.\\nTry again with a shorter timeout",
      ),
      expect.stringContaining("Error: Permission denied for tool 'bash' (requires: shell).\\nThis agent refused it:"),
      expect.stringContaining('[exit code 3]'),
      expect.stringContaining('temp='),
    ]);
    // What the loop refuses itself never reaches the device, so these are sent past it.
    const send = async (tool: string, parameters: object): Promise<unknown> => {
      const payload = { tool, parameters: { ...parameters }, timeout_ms: 5_000 };
      const reported = await link.send(
        'pi',
        { type: 'tool', payload, requestId: `direct-${tool}` },
        { timeoutMs: 5_000 },
      );
      return reported.type === 'report' && reported.report;
    };
    expect(await send('git_status', {})).toMatchObject({ error_type: 'permission_denied', requires: ['git'] });
    expect(await send('nothing', {})).toMatchObject({ error_type: 'not_found' });
    expect(await send('read', {})).toMatchObject({ error_type: 'invalid_params' });
    expect(await send('bash', { command: 'x'.repeat(2_000_000) })).toMatchObject({
      error_type: 'invalid_params',
      error: expect.stringContaining('at most 1048576 can be sent'),
    });
  });

  it('offers devices in Responses, over the runs of a tenant, and lists them', async () => {
    await device(broker, 'pi');
    const { server, link } = await orchestrator(
      broker,
      [call('temperature', {}), 'It is warm.', call('nodes', { device: 'pi' }), 'There is one.'],
      [{ name: 'pi' }, { name: 'theirs', tenant: 'other', tools: [] }],
    );
    const everywhere = deviceExecutor(link, { defaults: ['theirs', 'pi', 'nobody'] });
    const defaults = await everywhere.defaults({ subject: 'x', tenant: 'default', scopes: [] });
    expect(defaults).toEqual([{ type: 'mcp', server_label: 'device:pi' }]);
    const ask = async (tool: object): Promise<Record<string, unknown>> => {
      const { text } = await server.post({ model: 'm', input: 'How warm is it?', tools: [tool] });
      return JSON.parse(text) as Record<string, unknown>;
    };
    const { output } = (await ask({ type: 'mcp', server_label: 'device:pi', require_approval: 'never' })) as {
      output: ChatEvent[];
    };
    expect(output.map(({ type }) => type)).toEqual(['mcp_list_tools', 'mcp_call', 'message']);
    expect(output[1]).toMatchObject({ server_label: 'device:pi', name: 'temperature', error: null });
    const nodes = await ask({ type: 'mcp', server_label: 'treadle' });
    expect(JSON.stringify(nodes)).toContain('pi-tools');
    const { body } = await server.send('GET', '/v1/devices');
    expect(body).toMatchObject({
      data: [{ name: 'pi', status: 'online', last_calls: [{ tool: 'temperature', result: 'success' }] }],
    });
    expect((await server.send('GET', '/v1/devices/theirs')).status).toBe(404);
    const pinged = await server.send('POST', '/v1/devices/pi/ping', {});
    expect(pinged.body).toMatchObject({ latency_ms: expect.any(Number), load: { running: 0, queued: 0 } });
  });

  it('has the tools of a device that is away', async () => {
    const pi = await device(broker, 'pi');
    const { server, link } = await orchestrator(broker, [call('temperature', {}), 'It is away.'], [{ name: 'pi' }]);
    await pi.close(0);
    await expect.poll(() => link.device('pi')?.status).toBe('offline');
    const { events } = await chat(server, { message: 'How warm is it?', device: 'pi' });
    expect(resultsIn(events)).toEqual([expect.stringContaining("The device 'pi' is offline (it was shut down)")]);
  });

  it('calls a tool of a device over HTTP, under scopes and for its tenant only', async () => {
    await device(broker, 'pi');
    const link = edgeLink({ prefix: 'treadle', broker: { url: broker.url }, devices: [{ name: 'pi' }] });
    closing.push(() => link.close());
    expect(await link.whenReady('pi', 20_000)).toBe(true);
    const key = (name: string, scopes: readonly Scope[], tenant = 'default'): ApiKey => ({
      name,
      hash: hashKey(`tk_${name}`),
      scopes,
      tenant,
    });
    const server = await startInProcess(scriptedModel([]), {
      executors: [deviceExecutor(link)],
      devices: link,
      keys: [
        key('all', ['agents:invoke', 'tools:execute']),
        key('one', ['agents:invoke', 'tools:execute:temperature']),
        key('none', ['agents:invoke']),
        key('theirs', ['agents:invoke', 'tools:execute'], 'other'),
      ],
    });
    closing.push(async () => server[Symbol.asyncDispose]());
    const calls = '/v1/devices/pi/calls';
    const as = (name: string): { authorization: string } => ({ authorization: `Bearer tk_${name}` });
    const start = (name: string, body: object): Promise<JsonAnswer> => server.send('POST', calls, body, as(name));
    const started = await start('one', { tool: 'temperature' });
    expect(started).toMatchObject({ status: 202, body: { status: 'in_progress', device: 'pi', tool: 'temperature' } });
    const path = `${calls}/${started.body.run_id}`;
    await expect
      .poll(async () => (await server.send('GET', path, undefined, as('one'))).body, { timeout: 10_000 })
      .toMatchObject({ status: 'ended', is_error: false, content: [{ text: expect.stringContaining('temp=') }] });
    expect((await server.send('GET', path, undefined, as('theirs'))).status).toBe(404);
    expect(await start('one', { tool: 'bash', arguments: { command: 'true' } })).toMatchObject({ status: 403 });
    expect(await start('none', { tool: 'temperature' })).toMatchObject({ status: 403 });
    expect(await start('theirs', { tool: 'temperature' })).toMatchObject({ status: 404 });
    expect(await start('all', { tool: 'nothing' })).toMatchObject({
      status: 400,
      body: { error: { code: 'unknown_tool' } },
    });
    expect(await start('all', { tool: 'bash', command: 'x' })).toMatchObject({ status: 400 });
    const wrong = await start('all', { tool: 'bash', arguments: {} });
    await expect
      .poll(async () => (await server.send('GET', `${calls}/${wrong.body.run_id}`, undefined, as('all'))).body)
      .toMatchObject({ status: 'ended', is_error: true, error_type: 'invalid_params' });
  });
});

test.each<[string, object]>([
  ['by default', {}],
  ['in the request', { tools: [{ type: 'mcp', server_label: 'device:pi', require_approval: 'never' }] }],
])('a run that has got a device %s waits for it after a restart, if nobody has heard of it', async (_, tools) => {
  const store = sqliteStore(join(root, 'runs.db'));
  closing.push(() => store.close());
  const open = async (url: string): Promise<{ close(): Promise<void>; link: EdgeLink; server: InProcessServer }> => {
    const connected = edgeLink({
      prefix: 'treadle',
      broker: { url },
      devices: [{ name: 'pi', onOffline: 'wait' }],
      offlineGraceMs: 0,
    });
    const link = impatient(connected);
    // The history decides what is next, so it goes on where another process has ended.
    const model: Model = {
      id: 'm',
      reply: (request, emit, signal) => {
        const isDone = request.messages.at(-1)!.role === 'tool';
        return scriptedModel([isDone ? 'Done.' : call('bash', { command: SLOW })]).reply(request, emit, signal);
      },
    };
    const defaults = 'tools' in tools ? [] : ['pi'];
    await link.whenConnected(10_000);
    const server = await startInProcess(model, {
      store,
      executors: [deviceExecutor(link, { defaults })],
      devices: link,
    });
    const close = async (): Promise<void> => {
      await server[Symbol.asyncDispose]();
      await link.close();
    };
    return { close, link, server };
  };
  const SLOW = 'touch begun; until [ -e go ]; do sleep 0.02; done; echo ran >> ran; cat ran';
  const first = await BROKERS[0]!.open();
  const pi = await device(first, 'pi');
  const one = await open(first.url);
  expect(await one.link.whenReady('pi', 20_000)).toBe(true);
  const posted = await one.server.post({ model: 'm', input: 'x', background: true, ...tools });
  const { id } = JSON.parse(posted.text) as { id: string };
  const inFolder = (name: string): string => join(root, 'pi', name);
  await expect.poll(() => existsSync(inFolder('begun')), { timeout: 10_000 }).toBe(true);
  await one.close();
  writeFileSync(inFolder('go'), '');
  const ledger = join(root, 'pi-store', 'ledger.jsonl');
  await expect.poll(() => readFileSync(ledger, 'utf8').includes('"end"'), { timeout: 10_000 }).toBe(true);
  await pi.close(0);
  await first.close();
  // It remembers nothing of the device.
  const second = await BROKERS[0]!.open();
  closing.push(() => second.close());
  const two = await open(second.url);
  closing.push(() => two.close());
  await expect.poll(async () => (await store.list({ limit: 1 }))[0]?.status, { timeout: 10_000 }).toBe('paused');
  expect(await two.server.get(id)).toMatchObject({ status: 'in_progress' });
  await device(second, 'pi');
  const { status, output } = await two.server.getEnded(id);
  expect([status, readFileSync(inFolder('ran'), 'utf8')]).toEqual(['completed', 'ran\n']);
  expect(JSON.stringify(output)).toContain('"output":"ran\\n"');
});

/** The same link, for which devices have less time to be heard. */
function impatient(link: EdgeLink): EdgeLink {
  return new Proxy(link, {
    get(target, key) {
      if (key === 'whenReady') return (name: string, ms: number) => target.whenReady(name, ms > 10_000 ? ms : 20);
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value as () => unknown).bind(target) : value;
    },
  });
}

test('refuses a chat with a device that was never there', async () => {
  const broker = await BROKERS[0]!.open();
  closing.push(() => broker.close());
  const link = edgeLink({ prefix: 'treadle', broker: { url: broker.url }, devices: [{ name: 'pi' }] });
  closing.push(() => link.close());
  const server = await startInProcess(scriptedModel([]), { executors: [deviceExecutor(link)], devices: link });
  closing.push(async () => server[Symbol.asyncDispose]());
  expect(await server.send('POST', '/v1/chat', { message: 'How warm is it?', device: 'pi' })).toMatchObject({
    status: 503,
    body: { error: { code: 'device_offline', message: 'The device "pi" is not online.' } },
  });
});

test('a device that was written from the document alone works with the prefix evoclaw', async () => {
  const broker = await BROKERS[0]!.open({ prefix: 'evoclaw' });
  closing.push(() => broker.close());
  const script = fileURLToPath(new URL('document.py', import.meta.url));
  const child = spawn('python3', [script, String(broker.port), 'living-room-pi'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  closing.push(async () => {
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  });
  await once(child.stdout, 'data');
  const bash = {
    name: 'bash',
    description: 'Execute shell commands',
    parameters: {
      type: 'object',
      properties: { command: { type: 'string' }, timeout_ms: { type: 'integer' } },
      required: ['command'],
    },
  };
  const { server } = await orchestrator(
    broker,
    [
      call('bash', { command: 'echo "temp=45.6°C"' }),
      call('bash', { command: 'echo oops >&2; exit 2' }),
      call('bash', { command: 'exec sleep 30', timeout_ms: 200 }),
      call('read', { path: '/etc/hostname' }),
      'Done.',
    ],
    [{ name: 'living-room-pi', tools: [bash, { ...bash, name: 'read', parameters: { type: 'object' } }] }],
    'evoclaw',
  );
  const { events, text } = await chat(server, { message: 'Check the CPU temperature', device: 'living-room-pi' });
  expect(resultsIn(events)).toEqual([
    expect.stringContaining('temp=45.6°C'),
    expect.stringContaining('[stderr]\\noops\\n[exit code 2]'),
    expect.stringContaining("Error: Tool 'bash' timed out after 200ms. Command: 'exec sleep 30'."),
    expect.stringContaining(
      "Error: Tool 'read' not found. Available tools: bash.\\nPlease choose an available tool or explain to the user.",
    ),
  ]);
  expect(text).toContain('Done.');
});
