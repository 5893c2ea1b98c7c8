/**
 * Measures calls on devices over MQTT on loopback: the time of a call beside one that is executed directly, commands a second, and
 * memory. The broker and the devices are processes of their own: `npm run bench:edge [embedded|mosquitto]`.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { edgeLink, type EdgeLink } from '@treadle/edge';

const CALLS = 2_000;
const PROCESS = fileURLToPath(new URL('process.ts', import.meta.url));
const AGENT = fileURLToPath(new URL('../../packages/edge/dist/device/main.js', import.meta.url));
/** Until the agent is connected and idle. */
const SETTLE_MS = 5_000;
const children: ChildProcess[] = [];
const folders: string[] = [];

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

async function launch(program: string, args: readonly string[], isReady: RegExp): Promise<ChildProcess> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  await new Promise<void>((done, fail) => {
    const look = (bytes: Buffer): void => void (isReady.test(bytes.toString()) && done());
    child.stdout.on('data', look);
    child.stderr.on('data', look);
    child.once('exit', (code) => fail(new Error(`${program} ended with ${code}`)));
  });
  return child;
}

const node = (...args: readonly string[]): Promise<ChildProcess> =>
  launch(
    process.execPath,
    ['--conditions=treadle-source', '--disable-warning=ExperimentalWarning', PROCESS, ...args],
    /ready/,
  );

function temporary(under: string): string {
  const folder = mkdtempSync(join(under, 'treadle-bench-edge-'));
  folders.push(folder);
  return folder;
}

async function broker(kind: string): Promise<{ readonly url: string; readonly process: ChildProcess }> {
  const port = await freePort();
  const url = `mqtt://127.0.0.1:${port}`;
  if (kind === 'embedded') return { url, process: await node('broker', String(port)) };
  const config = join(temporary(tmpdir()), 'mosquitto.conf');
  writeFileSync(
    config,
    `listener ${port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n`,
  );
  return { url, process: await launch('/usr/sbin/mosquitto', ['-c', config, '-v'], / running/) };
}

function residentKb({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
}

let lastId = 0;

async function callOnce(link: EdgeLink, device: string): Promise<void> {
  const payload = { tool: 'echo', parameters: { text: 'temp=45.6°C' }, timeout_ms: 30_000 };
  const sent = { type: 'tool', payload, requestId: `bench-${process.pid}-${++lastId}` } as const;
  const reported = await link.send(device, sent, { timeoutMs: 60_000 });
  if (reported.type !== 'report' || reported.report.status !== 'success') throw new Error(JSON.stringify(reported));
}

function percentile(times: readonly number[], part: number): string {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * part)]!.toFixed(2);
}

async function latency(link: EdgeLink): Promise<string> {
  const times: number[] = [];
  for (let call = 0; call < CALLS + 200; call++) {
    const before = performance.now();
    await callOnce(link, 'd0');
    if (call >= 200) times.push(performance.now() - before);
  }
  return `p50 ${percentile(times, 0.5)} ms, p99 ${percentile(times, 0.99)} ms`;
}

async function throughput(link: EdgeLink, count: number): Promise<string> {
  const perDevice = Math.ceil((CALLS * 3) / count);
  const atOnce = count === 1 ? 32 : 1;
  const before = performance.now();
  await Promise.all(
    Array.from({ length: count * atOnce }, async (_, index) => {
      for (let call = 0; call < perDevice / atOnce; call++) await callOnce(link, `d${index % count}`);
    }),
  );
  return `${Math.round((perDevice * count) / ((performance.now() - before) / 1000))}`;
}

async function linkTo(url: string, count: number): Promise<EdgeLink> {
  const devices = Array.from({ length: count }, (_, number) => ({ name: `d${number}` }));
  const link = edgeLink({ prefix: 'treadle', broker: { url }, devices });
  for (const { name } of devices) if (!(await link.whenReady(name, 30_000))) throw new Error(`${name} is not ready`);
  return link;
}

/** The idle agent as it is installed, after a build, beside a process of bare Node. */
async function agentMemory(url: string): Promise<string> {
  if (!existsSync(AGENT)) return 'not measured: run npm run build first';
  const folder = temporary(tmpdir());
  const file = join(folder, 'edge.toml');
  writeFileSync(
    file,
    `[agent]\nid = "idle"\ncapabilities = ["shell"]\n[tools]\nsandboxing = "none"\n` +
      `[edge]\nbroker = "${url}"\nstore = "store"\n`,
  );
  const bare = await launch(process.execPath, ['-e', 'console.log("ready"); setInterval(() => {}, 1e6)'], /ready/);
  const agent = await launch(process.execPath, [AGENT, '--config', file], /is ready/);
  await new Promise((done) => setTimeout(done, SETTLE_MS));
  const [own, least] = [agent, bare].map((one) => residentKb(one) / 1024);
  return `${own!.toFixed(1)} MB, bare Node ${least!.toFixed(1)} MB, ${(own! - least!).toFixed(1)} MB more`;
}

const [kind = 'embedded'] = process.argv.slice(2);
try {
  for (const [where, under] of [
    ['memory', '/dev/shm'],
    ['disk', tmpdir()],
  ] as const) {
    const { url } = await broker(kind);
    const devices = await node('devices', url, '1', temporary(under));
    const link = await linkTo(url, 1);
    console.log(
      `${kind}, ledger on ${where}: one call ${await latency(link)}; ${await throughput(link, 1)} calls a second`,
    );
    await link.close();
    devices.kill('SIGKILL');
  }
  const { url, process: serving } = await broker(kind);
  const before = residentKb(serving);
  await node('devices', url, '100', temporary('/dev/shm'));
  const link = await linkTo(url, 100);
  const perDevice = (residentKb(serving) - before) / 100;
  console.log(
    `${kind}, 100 devices: ${await throughput(link, 100)} calls a second, ${perDevice.toFixed(0)} kB of the broker for each`,
  );
  await link.close();
  console.log(`the idle agent of a device: ${await agentMemory(url)}`);
} finally {
  for (const child of children) child.kill('SIGKILL');
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}
