import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { mqttClient, type TlsFiles } from '@treadle/edge';
import { openLedger, startAgent, type DeviceAgent } from '@treadle/edge/device';
import { inProcessRunner } from '@treadle/edge/device-tools';
import type { Io } from 'treadle';
import { afterEach, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { logLines, useServeFixture } from '../serve/serve-command.ts';
import { freePort } from './brokers.ts';

const fixture = useServeFixture();
const agents: DeviceAgent[] = [];
afterEach(async () => {
  for (const one of agents.splice(0)) await one.close(0);
});

const PI_TOOLS = fileURLToPath(new URL('../../skills/pi-tools', import.meta.url));

async function device(port: number, id = 'pi', tls?: TlsFiles): Promise<void> {
  const folder = join(fixture.play.folder, id);
  mkdirSync(folder, { recursive: true });
  agents.push(
    await startAgent({
      id,
      prefix: 'treadle',
      broker: { url: `${tls ? 'mqtts' : 'mqtt'}://127.0.0.1:${port}`, ...(tls && { tls }) },
      ledger: await openLedger({ folder: join(folder, 'store') }),
      runner: inProcessRunner({
        folder,
        capabilities: ['shell', 'file_read'],
        offer: ['read', 'packages'],
        skills: [PI_TOOLS],
        sandboxing: 'none',
        timeoutMs: 30_000,
        rules: {},
        onAsk: 'allow',
        ops: false,
        hide: [],
      }),
    }),
  );
}

const TEMPERATURE = { calls: [{ name: 'temperature', arguments: '{}' }] };
const edge = (port: number, more = ''): string =>
  `[edge]\nport = ${port}\n${more}[edge.devices.pi]\n[edge.devices.other]\n[policy]\nautonomy = 3\n[policy.devices]\nallow = ["pi"]\n`;

test('looks at devices, calls their tools, and runs with them', async () => {
  const port = await freePort();
  await fixture.configure(edge(port), TEMPERATURE, { text: ['It is warm.'] });
  await fixture.serve();
  await device(port);
  const { folder } = fixture.play;
  const treadle = (...args: readonly string[]) => command(args, folder);

  const listed = await treadle('edge', 'list');
  expect(listed.stdout).toMatch(
    /^NAME +STATUS +TENANT +TOOLS\npi +online +default +read, temperature, gpio_read, gpio_write\n/,
  );
  expect(listed.stdout).toContain('other  unknown');
  expect((await treadle('edge', 'ping', 'pi')).stdout).toMatch(
    /^pi answered in [\d.]+ ms: running 0, queued 0, uptime_s \d+, rss_bytes \d+\n$/,
  );
  expect(await treadle('edge', 'ping', 'pj')).toMatchObject({
    code: 2,
    stderr: 'treadle: There is no device "pj". Did you mean "pi"? Devices: pi, other.\n',
  });

  const called = await treadle('edge', 'call', 'pi', 'temperature', '--yes');
  expect(called).toMatchObject({ code: 0, stdout: expect.stringMatching(/^temp=/) });
  expect(await treadle('edge', 'call', 'pi', 'temprature', '--yes')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('Did you mean "temperature"?'),
  });
  expect(await treadle('run', '--device', 'pi', '--tools', 'read-only', 'x')).toMatchObject({
    code: 2,
    stderr: 'treadle: The device pi has tools of the same names: read. Leave them out of --tools.\n',
  });
  expect(await treadle('edge', 'call', 'other', 'x')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('The device other is not connected to the broker.'),
  });

  const run = await treadle('run', '--device', 'pi', '--yes', 'How warm is it?');
  expect(run).toMatchObject({ code: 0, stdout: 'It is warm.\n' });
  const [request] = fixture.provider.requests;
  expect(request!.tools!.map((one) => one.function.name)).toEqual(['read', 'temperature', 'gpio_read', 'gpio_write']);
  expect(JSON.stringify(fixture.provider.requests[1]!.messages.at(-1))).toContain('temp=');
});

test('says that the port of the broker is taken', async () => {
  const port = await freePort();
  await fixture.configure(edge(port));
  await fixture.serve();
  expect(await command(['serve', '--port', '0'], fixture.play.folder)).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/The embedded broker cannot listen on .*: edge\.port sets another port\.\n$/),
  });
});

test('prints commands and reports as they happen', async () => {
  const port = await freePort();
  await fixture.configure(edge(port));
  await fixture.serve();
  await device(port);
  const { folder } = fixture.play;
  const stdout = new PassThrough().setEncoding('utf8');
  let printed = '';
  stdout.on('data', (text: string) => (printed += text));
  let interrupt = (): void => {};
  const onInterrupt: Io['onInterrupt'] = (listener) => {
    interrupt = listener;
    return () => {};
  };
  const logging = command(['edge', 'logs', 'pi'], folder, { stdout, onInterrupt });
  // It may begin to listen after the first command.
  while (!printed.includes('"command":"ping"')) await command(['edge', 'ping', 'pi'], folder);
  interrupt();
  expect(await logging).toMatchObject({ code: 0 });
  expect(printed).toMatch(/"device":"pi","kind":"commands","message":\{"command":"ping"/);
  expect(printed).toMatch(/"device":"pi","kind":"reports","message":\{"request_id"/);
});

test('serves chats with a device, and refuses those that nobody has', async () => {
  const port = await freePort();
  await fixture.configure(edge(port), TEMPERATURE, { text: ['It is warm.'] }, { text: ['A title'] });
  const server = await fixture.serve();
  await device(port);
  const post = (body: object): Promise<Response> =>
    fetch(`${server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const answered = await (await post({ message: 'How warm is it?', device: 'pi', approvals: 'ask' })).text();
  const asked = answered.includes('approval_request');
  expect([asked, answered.includes('temp=')]).toEqual([false, true]);
  const unknown = await post({ message: 'x', device: 'nobody' });
  expect([unknown.status, await unknown.json()]).toMatchObject([404, { error: { code: 'device_not_found' } }]);
});

test('offers the tools of a device to every request, if the configuration says so', async () => {
  const port = await freePort();
  const listed = (name: string): string => `[server]\ndefault_tools = ["device:${name}"]\n${edge(port)}`;
  await fixture.configure(listed('pj'));
  expect(await command(['serve'], fixture.play.folder)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('There is no device "pj". Did you mean "pi"?'),
  });
  await fixture.configure(listed('pi'), TEMPERATURE, { text: ['It is warm.'] });
  const server = await fixture.serve();
  await device(port);
  await expect
    .poll(async () => (await server.get('/v1/devices/pi')).body, { timeout: 10_000 })
    .toMatchObject({ status: 'online', tools: [{ name: 'read' }, {}, {}, {}] });
  expect((await server.respond({ input: 'How warm is it?' })).body.output).toMatchObject([
    { type: 'mcp_call', server_label: 'device:pi', name: 'temperature', output: expect.stringContaining('temp=') },
    { type: 'message' },
  ]);
  const { stderr } = await server.stop();
  expect(logLines(stderr).find(({ msg }) => msg === 'a tool was called')).toMatchObject({
    tool: 'temperature',
    server: 'device:pi',
    success: true,
    elapsedMs: expect.any(Number),
  });
});

test('uses its own broker, also if the certificate is for another name and clients need one', async () => {
  const [port, { folder }] = [await freePort(), fixture.play];
  const subject = '-subj /CN=broker.example -addext subjectAltName=DNS:broker.example';
  const files = '-keyout broker-key.pem -out broker.pem';
  execFileSync(
    'openssl',
    `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 ${subject} ${files}`.split(' '),
    { cwd: folder, stdio: 'ignore' },
  );
  const tls = 'cert = "broker.pem"\nkey = "broker-key.pem"\nca = "broker.pem"\n';
  await fixture.configure(edge(port, tls));
  const server = await fixture.serve();
  const [cert, key] = ['broker.pem', 'broker-key.pem'].map((name) => readFileSync(join(folder, name), 'utf8'));
  await device(port, 'pi', { pin: cert!, cert: cert!, key: key! });
  await expect
    .poll(async () => (await fetch(`${server.url}/v1/devices/pi`)).json(), { timeout: 10_000 })
    .toMatchObject({ status: 'online' });
  expect((await command(['edge', 'ping', 'pi'], folder)).stdout).toContain('pi answered');
  const { promise, resolve } = Promise.withResolvers<string>();
  const nobody = mqttClient({
    url: `mqtts://127.0.0.1:${port}`,
    tls: { pin: cert! },
    clientId: 'nobody',
    onMessage: () => {},
    onConnect: () => resolve('connected'),
    onProblem: resolve,
  });
  expect(await promise).toContain('certificate required');
  await nobody.close();
});

test('answers a prompt that comes over MQTT, with the tools of the device', async () => {
  const port = await freePort();
  await fixture.configure(edge(port, 'prompts = true\n'), TEMPERATURE, { text: ['It is warm.'] });
  await fixture.serve();
  await device(port);
  const reports: Record<string, unknown>[] = [];
  const client = mqttClient({
    url: `mqtt://127.0.0.1:${port}`,
    clientId: 'person',
    subscriptions: [{ topic: 'treadle/agents/pi/reports', qos: 1 }],
    onMessage({ payload }) {
      const report = JSON.parse(Buffer.from(payload).toString()) as Record<string, unknown>;
      if (String(report['request_id']).startsWith('question-')) reports.push(report);
    },
  });
  await expect.poll(() => client.isConnected, { timeout: 10_000 }).toBe(true);
  const ask = (id: string, prompt: string, more = {}): Promise<boolean> => {
    const payload = JSON.stringify({ command: 'prompt', payload: { prompt, request_id: id }, ...more });
    return client.publish({ topic: 'treadle/agents/pi/commands', payload, qos: 1 });
  };
  const answers = async (count: number): Promise<void> => {
    await expect.poll(() => reports.length, { timeout: 10_000 }).toBe(count);
  };
  const answer = { request_id: 'question-1', status: 'success', result: 'It is warm.' };
  // Delivered twice.
  await Promise.all([ask('question-1', 'How warm is it?'), ask('question-1', 'How warm is it?')]);
  await answers(1);
  await ask('question-1', 'How warm is it?');
  await answers(2);
  await ask('question-1', 'How cold is it?');
  await answers(3);
  await ask('question-2', 'How warm is it?', { expires_at: Date.now() - 60_000, unknown: 'field' });
  await answers(4);
  expect(reports).toMatchObject([
    answer,
    answer,
    { request_id: 'question-1', error_type: 'invalid_params' },
    { request_id: 'question-2', error_type: 'expired' },
  ]);
  expect(fixture.provider.requests).toHaveLength(2);
  await client.close();
});

test('refuses a demo device with a broker that it cannot connect to', async () => {
  await fixture.configure(
    '[edge]\nusername = "server"\npassword_env = "PASSWORD"\n[edge.devices.pi]\npassword_env = "PASSWORD"\n',
  );
  expect(await command(['serve', '--demo-device'], fixture.play.folder, { env: { PASSWORD: 'secret' } })).toMatchObject(
    {
      code: 2,
      stderr: expect.stringContaining('--demo-device needs a broker without certificates and passwords.'),
    },
  );
});

test('a demo device starts with the server, and ends with it', async () => {
  await fixture.configure('[server]\ndefault_tools = ["device:demo-device"]\n');
  expect((await command(['serve'], fixture.play.folder)).stderr).toContain('There is no device "demo-device".');
  const server = await fixture.serve('--demo-device', '--model', 'demo');
  await server.logged!('a device is online');
  // Its tools are published after its status.
  await expect
    .poll(async () => (await server.get('/v1/devices')).body, { timeout: 10_000 })
    .toMatchObject({ data: [{ name: 'demo-device', status: 'online', skills: [{ name: 'pi-tools' }] }] });
  const asked = { model: 'demo', input: 'nodes', tools: [{ type: 'mcp', server_label: 'device:demo-device' }] };
  expect((await server.respond(asked)).body.output[0]).toMatchObject({
    type: 'mcp_list_tools',
    server_label: 'device:demo-device',
  });
});

test('tool_loop_enabled = false gives one text reply', async () => {
  const port = await freePort();
  const answers = Array.from({ length: 3 }, () => ({ text: ['I cannot look.'] }));
  await fixture.configure(
    `[server]\nchat_titles = false\n${edge(port)}[orchestrator]\ntool_loop_enabled = false\n`,
    ...answers,
  );
  const server = await fixture.serve();
  await device(port);
  expect(await command(['run', '--device', 'pi', 'How warm is it?'], fixture.play.folder)).toMatchObject({
    stdout: 'I cannot look.\n',
  });
  const chat = await fetch(`${server.url}/v1/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ message: 'How warm is it?', device: 'pi' }),
  });
  expect(await chat.text()).toContain('I cannot look.');
  const tools = [{ type: 'mcp', server_label: 'device:pi' }];
  expect((await server.respond({ input: 'How warm is it?', tools })).body.output.at(-1)).toMatchObject({
    type: 'message',
  });
  expect(fixture.provider.requests.map((one) => one.tools)).toEqual([undefined, undefined, undefined]);
});

test('says what is missing', async () => {
  const { folder } = fixture.play;
  expect(await command(['edge', 'list'], folder)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('the configuration has no [edge]'),
  });
  await fixture.configure(edge(await freePort()));
  expect(await command(['edge', 'list'], folder)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('"treadle serve": start it first'),
  });
  expect(await command(['edge'], folder)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('There is no edge.toml'),
  });
  const refusal = async (file: string): Promise<object> => {
    writeFileSync(join(folder, 'edge.toml'), `[agent]\nid = "pi"\ncapabilities = []\n[edge]\nstore = "store"\n${file}`);
    const { code, stderr } = await command(['edge'], folder);
    return { code, stderr };
  };
  expect(await refusal('[tools]\noffer = ["nothing"]')).toEqual({
    code: 2,
    stderr: expect.stringMatching(/^treadle: \[tools\] offer names nothing\..*\.\n$/),
  });
  mkdirSync(join(folder, 'store/pi'), { recursive: true });
  writeFileSync(join(folder, 'store/pi/ledger.jsonl'), 'damaged\n');
  expect(await refusal('')).toEqual({
    code: 2,
    stderr: expect.stringMatching(/ledger\.jsonl:1 is damaged.*\.\n$/),
  });
  expect((await command(['edge', '--help'], folder)).stdout).toContain('edge logs');
});
