import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { freePort, hasMosquitto, mosquitto } from '../edge/brokers.ts';
import { PROCESS_ENV } from '../process-env.ts';
import { useServeFixture, type ServeProcess } from '../serve/serve-command.ts';

/*
 * The design document with real processes: `treadle serve`, a broker (in the server, or mosquitto), two devices, and a scripted
 * provider, which is a server in the process of the test.
 */

const fixture = useServeFixture();
const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

const AGENT = fileURLToPath(new URL('../../packages/edge/src/device/main.ts', import.meta.url));

interface DeviceFile {
  readonly port: number;
  readonly capabilities: readonly string[];
  readonly more?: string;
}

async function startDevice(id: string, { port, capabilities, more = '' }: DeviceFile): Promise<void> {
  const folder = join(fixture.play.folder, id);
  const bin = join(folder, 'bin');
  mkdirSync(bin, { recursive: true });
  for (const [name, script] of [
    ['vcgencmd', 'echo "temp=45.6°C"'],
    ['raspi-gpio', 'echo "GPIO $2: level=1 fsel=0 func=INPUT"'],
    ['fails', 'echo out; echo bad >&2; exit 3'],
    ['waits', 'echo one; until [ -e go ]; do sleep 0.1; done; echo two'],
  ] as const) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  const file = join(folder, 'edge.toml');
  writeFileSync(
    file,
    `[agent]\nid = "${id}"\ncapabilities = ${JSON.stringify(capabilities)}\n[tools]\nsandboxing = "none"\nfolder = "."\n` +
      `[edge]\nbroker = "mqtt://127.0.0.1:${port}"\nstore = "store"\n${more}`,
  );
  const child = spawn(
    process.execPath,
    ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning', AGENT, '--config', file],
    { env: { ...PROCESS_ENV, HOME: folder, PATH: `${bin}:${PROCESS_ENV.PATH}` }, stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const exit = once(child, 'exit');
  closing.push(async () => {
    child.kill('SIGKILL');
    await exit;
  });
  await once(child.stdout, 'data');
}

type ChatEvent = Readonly<Record<string, unknown>> & { readonly type: string };

async function chat({ url }: ServeProcess, device: string, message: string): Promise<readonly ChatEvent[]> {
  const answer = await fetch(`${url}/v1/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ message, device }),
  });
  const lines = (await answer.text()).split('\n').filter((line) => line.startsWith('data: '));
  return lines.map((line) => JSON.parse(line.slice('data: '.length)) as ChatEvent);
}

const call = (name: string, args: object, text?: string): Step => ({
  calls: [{ name, arguments: JSON.stringify(args) }],
  ...(text !== undefined && { text: [text] }),
});
const say = (text: string): Step => ({ text: [text] });
const textIn = (events: readonly ChatEvent[]): string =>
  events.flatMap((one) => (one.type === 'token_delta' ? [String(one['delta'] ?? one['text'])] : [])).join('');
/** What the model has got for its calls, in the requests from this one on. */
const resultsFrom = (index: number): readonly string[] =>
  fixture.provider.requests.slice(index).flatMap(({ messages }) => {
    const last = messages.at(-1)!;
    return last.role === 'tool' ? [String(last.content)] : [];
  });

const KINDS = ['embedded', ...(hasMosquitto ? ['mosquitto'] : [])];

describe.each(KINDS)('with the %s broker', (kind) => {
  let port: number;
  beforeEach(async () => {
    if (kind === 'embedded') {
      port = await freePort();
      return;
    }
    const broker = await mosquitto();
    closing.push(() => broker.close());
    ({ port } = broker);
  });

  async function system(steps: readonly Step[], capabilities: readonly string[], more = ''): Promise<ServeProcess> {
    const where = kind === 'embedded' ? `port = ${port}` : `broker = "mqtt://127.0.0.1:${port}"`;
    await fixture.configure(
      `[server]\nchat_titles = false\n[edge]\n${where}\n[edge.devices.living-room-pi]\n[edge.devices.desk]\n` +
        `[policy]\nautonomy = 3\n[policy.devices]\nallow = ["living-room-pi", "desk"]\n`,
      ...steps,
    );
    const server = await fixture.serveProcess();
    const names = ['living-room-pi', 'desk'];
    await Promise.all(names.map((id) => startDevice(id, { port, capabilities, more })));
    for (const name of names) {
      await expect
        .poll(async () => (await server.get(`/v1/devices/${name}`)).body, { timeout: 30_000 })
        .toMatchObject({ status: 'online', tools: expect.arrayContaining([{}].slice(1)) });
    }
    return server;
  }

  it('does the nine steps and the three examples of the document', async () => {
    const hostname = join(fixture.play.folder, 'hostname');
    const server = await system(
      [
        call('bash', { command: 'vcgencmd measure_temp' }, "I'll check the CPU temperature for you. "),
        say('The CPU temperature is 45.6°C, which is within normal operating range.'),
        call('bash', { command: 'raspi-gpio get 17' }),
        say("GPIO pin 17 is currently HIGH (level=1). It's configured as an input."),
        call('read', { path: hostname }),
        say("The hostname is 'raspberrypi'."),
        call('git_log', { max_count: 3 }),
        call('git_diff', { commit: 'HEAD~1..HEAD' }),
        say('Here are the last 3 commits.'),
      ],
      ['file_read', 'file_write', 'shell', 'git'],
    );
    writeFileSync(hostname, 'raspberrypi\n');
    const git = (command: string): unknown =>
      execFileSync('sh', ['-c', command], { cwd: join(fixture.play.folder, 'desk') });
    git('git init -q . && git config user.name Bowen && git config user.email b@example.com');
    for (const [index, subject] of ['Initial commit', 'Add feature', 'Fix bug'].entries())
      git(`echo "line ${index}" >> main.go && git add main.go && git commit -qm "${subject}"`);

    expect(textIn(await chat(server, 'living-room-pi', 'Check the CPU temperature'))).toBe(
      "I'll check the CPU temperature for you. The CPU temperature is 45.6°C, which is within normal operating range.",
    );
    const [first, second] = fixture.provider.requests;
    expect(first!.tools!.map((one) => one.function.name)).toContain('bash');
    expect(second!.messages.slice(-3)).toMatchObject([
      { role: 'user', content: 'Check the CPU temperature' },
      { role: 'assistant', content: "I'll check the CPU temperature for you. ", tool_calls: [{}] },
      { role: 'tool', content: 'temp=45.6°C\n' },
    ]);
    const gpio = await chat(server, 'living-room-pi', 'Check if GPIO pin 17 is high');
    expect(textIn(gpio)).toContain('HIGH (level=1)');
    expect(textIn(await chat(server, 'living-room-pi', "What's in the hostname file?"))).toContain("'raspberrypi'");
    expect(textIn(await chat(server, 'desk', 'List the last 3 commits and show the diff'))).toContain('Here are');
    const [pin, file, log, diff] = resultsFrom(2);
    expect(pin).toBe('GPIO 17: level=1 fsel=0 func=INPUT\n');
    expect(file).toContain('raspberrypi');
    expect(log).toMatch(/Fix bug[^]*Add feature[^]*Initial commit/);
    expect(diff).toContain('+line 2');
  });

  it('gives the model each type of error with what to do, and ends with an answer after three', async () => {
    const server = await system(
      [
        call('bash', { command: 'sleep 60', timeout_ms: 1_000 }),
        call('bash', { command: 'reboot now' }),
        say('First.'),
        call('git_status', {}),
        call('read', {}),
        say('Second.'),
        call('bash', { command: 'fails' }),
        say('Third.'),
        ...Array.from({ length: 3 }, () => call('git_status', {})),
        say('It does not work.'),
      ],
      ['file_read', 'shell'],
      '[policy]\ncommands = { deny = ["reboot"] }\n',
    );
    for (const text of ['First.', 'Second.', 'Third.', 'It does not work.'])
      expect(textIn(await chat(server, 'living-room-pi', 'x'))).toBe(text);
    const [timeout, denied, missing, invalid, failed] = resultsFrom(0);
    expect(timeout).toContain(
      "Error: Tool 'bash' timed out after 1s. Command: 'sleep 60'.\nTry again with a shorter timeout or explain to the user.",
    );
    expect(denied).toContain("Error: Permission denied for tool 'bash' (requires: shell).\nThis agent refused it:");
    // What never reaches the device is refused in the words of the loop.
    expect(missing).toContain('Error: There is no tool "git_status". Available tools: read, glob, grep, bash.');
    expect(invalid).toContain('Its arguments are not valid: missing "path". Required: path. Optional: offset, limit');
    expect(failed).toMatch(/out[^]*bad[^]*3/);
  });

  it('sends the output of a call while it runs', async () => {
    const server = await system([call('bash', { command: 'waits' }), say('Done.')], ['shell']);
    const answer = await fetch(`${server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ message: 'x', device: 'desk' }),
    });
    let text = '';
    for await (const part of answer.body!.pipeThrough(new TextDecoderStream())) {
      text += part;
      // It ends only when its output was seen.
      if (/"tool_call_output"[^\n]*one/.test(text)) writeFileSync(join(fixture.play.folder, 'desk/go'), '');
    }
    expect(text).toMatch(/"tool_call_output"[^]*"tool_call_result"[^\n]*one\\ntwo/);
    expect(resultsFrom(0)).toEqual(['one\ntwo\n']);
  });
});
