import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { edgeLink, openBroker } from '@treadle/edge';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { uses } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';

const root = path.resolve(import.meta.dirname, '../..');
const HAS_SYSTEMD = uses('systemd-analyze', spawnSync('systemd-analyze', ['--version']).status === 0);
const TARBALLS = path.join(root, 'dist/packages');
let folder: string;

function run(command: string, ...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} failed: ${stderr}`);
  return stdout;
}

/** What the container file does, but with the dependencies of the checkout instead of downloaded ones. */
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'treadle-packed-'));
  run('npm', 'run', 'pack');
  const packages = readdirSync(TARBALLS).map((file) => file.replace(/-\d.*$/, '').replace(/^treadle-/, '@treadle/'));
  install(path.join(folder, 'node_modules'), packages);
  install(path.join(folder, 'device/node_modules'), ['@treadle/edge']);
}, 300_000);
afterAll(() => rmSync(folder, { recursive: true }));

/** Installs packages of ours from their tarballs, and only what they depend on. */
function install(modules: string, names: readonly string[]): void {
  const wanted = [...names];
  for (const name of wanted) {
    const target = path.join(modules, name);
    mkdirSync(path.dirname(target), { recursive: true });
    if (!isOurs(name)) {
      symlinkSync(path.join(root, 'node_modules', name), target);
      continue;
    }
    mkdirSync(target);
    const file = readdirSync(TARBALLS).find((one) => one.startsWith(`${name.replace('@treadle/', 'treadle-')}-0`))!;
    run('tar', '-xzf', path.join(TARBALLS, file), '--strip-components', '1', '-C', target);
    const { dependencies = {} } = JSON.parse(readFileSync(path.join(target, 'package.json'), 'utf8')) as {
      readonly dependencies?: object;
    };
    wanted.push(...Object.keys(dependencies).filter((one) => !wanted.includes(one)));
  }
}

function isOurs(name: string): boolean {
  return name === 'treadle' || name.startsWith('@treadle/');
}

test('the packed command serves, answers and stops', async () => {
  const { bin } = JSON.parse(readFileSync(path.join(folder, 'node_modules/treadle/package.json'), 'utf8')) as {
    readonly bin: { readonly treadle: string };
  };
  const command = path.join(folder, 'node_modules/treadle', bin.treadle);
  const args = ['serve', '--port', '0', '--store', `sqlite:${path.join(folder, 'treadle.db')}`, '--cwd', folder];
  const server = spawn(process.execPath, [command, ...args], { cwd: folder, env: PROCESS_ENV });
  try {
    server.stderr.resume();
    const [line] = (await once(server.stdout.setEncoding('utf8'), 'data')) as [string];
    const url = /listens on (\S+)/.exec(line)![1]!;
    for (const file of ['/', '/readyz', '/metrics', '/openapi.json'])
      expect((await fetch(url + file)).status).toBe(200);
    const answer = await fetch(`${url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'Hello' }),
    });
    expect(await answer.json()).toMatchObject({ status: 'completed' });
    const closed = once(server, 'close');
    server.kill('SIGTERM');
    expect(await closed).toEqual([0, null]);
  } finally {
    server.kill('SIGKILL');
  }
});

/** Lists what a program loads: files at once, modules of Node itself when it is asked to. */
const LISTS_MODULES = `
import { appendFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
const list = (line) => appendFileSync(process.env.LOADED, line + '\\n');
// Not what the process loads that describes and runs the tools.
if (!process.argv[1].endsWith('worker.js')) {
  registerHooks({ load: (url, context, next) => (list(url), next(url, context)) });
  process.once('SIGUSR2', () => list(process.moduleLoadList.join('\\n') + '\\nlisted'));
}
`;
/** Packages that an idle agent may load: our own, JSON Schema, TOML, MQTT packets with what they need, and what `debug` finds. */
const OF_AGENT = new Set(
  (
    '@cfworker/json-schema @treadle/core @treadle/edge @treadle/tools bl debug has-flag inherits mqtt-packet ms process ' +
    'process-nextick-args readable-stream safe-buffer smol-toml string_decoder supports-color'
  ).split(' '),
);

function agentIn(modules: string): string {
  const { bin } = JSON.parse(readFileSync(path.join(modules, '@treadle/edge/package.json'), 'utf8')) as {
    readonly bin: Readonly<Record<string, string>>;
  };
  return path.join(modules, '@treadle/edge', bin['treadle-edge']!);
}

test('a device is an install of its own, which systemd starts, and which loads little', async () => {
  const device = path.join(folder, 'device');
  const modules = path.join(device, 'node_modules');
  expect(readdirSync(path.join(modules, '@treadle')).toSorted()).toEqual(['core', 'edge', 'store', 'tools']);

  const broker = await openBroker({ prefix: 'treadle' });
  const at = (name: string): string => path.join(device, name);
  writeFileSync(at('lists-modules.mjs'), LISTS_MODULES);
  writeFileSync(
    at('edge.toml'),
    `[agent]\nid = "pi"\ncapabilities = ["shell"]\n[tools]\nsandboxing = "none"\nfolder = "${device}"\n` +
      `[edge]\nbroker = "${broker.url}"\nstore = "store"\n`,
  );
  const program = at('treadle-edge');
  symlinkSync(agentIn(modules), program);
  chmodSync(program, 0o755);
  const unit = readFileSync(path.join(root, 'deploy/treadle-edge.service'), 'utf8')
    .replace('/usr/local/bin/treadle-edge', program)
    .replace('/etc/treadle/edge.toml', at('edge.toml'));
  writeFileSync(at('treadle-edge.service'), unit);
  if (HAS_SYSTEMD) expect(run('systemd-analyze', 'verify', at('treadle-edge.service'))).toBe('');

  // `#!/usr/bin/env node` finds the Node of the tests.
  const PATH = `${path.dirname(process.execPath)}:${process.env['PATH']}`;
  const env = { ...PROCESS_ENV, PATH, LOADED: at('loaded'), NODE_OPTIONS: `--import=${at('lists-modules.mjs')}` };
  const [command, ...args] = /^ExecStart=(.*)$/m.exec(unit)![1]!.split(' ');
  const agent = spawn(command!, args, { env });
  const link = edgeLink({ prefix: 'treadle', broker: { url: broker.url }, devices: [{ name: 'pi' }] });
  try {
    agent.stderr.resume();
    await once(agent.stdout, 'data');
    expect(await link.whenReady('pi', 20_000)).toBe(true);
    agent.kill('SIGUSR2');
    await expect.poll(() => readFileSync(at('loaded'), 'utf8'), { timeout: 10_000 }).toMatch(/^listed$/m);
    const loaded = readFileSync(at('loaded'), 'utf8').split('\n');
    const own = loaded.flatMap((line) => /.*\/node_modules\/((?:@[\w-]+\/)?[\w-]+)\//.exec(line)?.[1] ?? []);
    expect(own).toContain('mqtt-packet');
    expect(own.filter((name) => !OF_AGENT.has(name))).toEqual([]);
    const builtIn = loaded.filter((line) => line.startsWith('NativeModule '));
    for (const name of ['http', 'https', 'http2', 'tls', 'zlib', 'internal/deps/undici/undici'])
      expect(builtIn).not.toContain(`NativeModule ${name}`);

    const call = {
      type: 'tool',
      payload: { tool: 'bash', parameters: { command: 'echo ran' } },
      requestId: 'one',
    } as const;
    expect(await link.send('pi', call, { timeoutMs: 20_000 })).toMatchObject({
      report: { status: 'success', result: expect.stringContaining('ran') },
    });
    const exit = once(agent, 'exit');
    agent.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
    expect(link.device('pi')).toMatchObject({ status: 'offline', reason: 'it was shut down' });
  } finally {
    agent.kill('SIGKILL');
    await link.close();
    await broker.close();
  }
});

test.runIf(process.platform === 'linux')('an idle device takes at most 25 MB more than Node, with TLS', async () => {
  const at = (name: string): string => path.join(folder, 'device', name);
  const kind = 'ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost';
  const files = `-addext subjectAltName=IP:127.0.0.1 -keyout ${at('key.pem')} -out ${at('cert.pem')}`;
  run('openssl', ...`req -x509 -newkey ${kind} ${files}`.split(' '));
  const [cert, key] = [readFileSync(at('cert.pem'), 'utf8'), readFileSync(at('key.pem'), 'utf8')];
  const broker = await openBroker({ prefix: 'treadle', tls: { cert, key } });
  writeFileSync(
    at('tls.toml'),
    `[agent]\nid = "idle"\ncapabilities = ["shell"]\n[tools]\nsandboxing = "none"\nfolder = "."\n` +
      `[edge]\nbroker = "${broker.url}"\nca = "cert.pem"\nstore = "idle"\n`,
  );
  const env = { ...PROCESS_ENV, NODE_OPTIONS: '' };
  const agent = spawn(process.execPath, [agentIn(at('node_modules')), '--config', at('tls.toml')], { env });
  const bare = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e6); console.log("ready")'], { env });
  const link = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url, tls: { ca: cert } },
    devices: [{ name: 'idle' }],
  });
  try {
    agent.stderr.resume();
    await once(bare.stdout, 'data');
    expect(await link.whenReady('idle', 20_000)).toBe(true);
    const residentMb = ({ pid }: typeof agent): number =>
      Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;
    expect(residentMb(agent) - residentMb(bare)).toBeLessThan(25);
  } finally {
    for (const child of [agent, bare]) child.kill('SIGKILL');
    await link.close();
    await broker.close();
  }
});
