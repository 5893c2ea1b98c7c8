/**
 * Runs the conformance program of `test/runtimes` on Node, Bun, Deno and workerd, with the packages as built:
 * `npm run build && npm run runtimes`. The runtimes are fetched from the registry into `.cache/runtimes` once. They take
 * 350 MB, so they are not dependencies.
 */
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { rolldown } from 'rolldown';
import { startProvider, type Provider } from '../test/provider/provider.ts';
import type { Providers } from '../test/runtimes/conformance.ts';

const FOLDER = '.cache/runtimes';
const VERSIONS = { bun: '1.4.4', deno: '2.9.6', workerd: '1.20261104.1' } as const;
/** The binaries. Their packages are the optional dependencies of those in `VERSIONS`, one for each platform. */
const BINARIES = {
  bun: '@oven/bun-*/bin/bun{,.exe}',
  deno: '@deno/*/deno{,.exe}',
  workerd: '@cloudflare/workerd-*/bin/workerd{,.exe}',
} as const;
/** A worker may reach this machine only if it is allowed to. */
const CONFIG = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.js")],
  compatibilityDate = "2026-08-01",
  compatibilityFlags = ["nodejs_compat"],
);
`;

const MAIN = 'test/runtimes/main.ts';
const LONGEST_MS = 60_000;

fetchRuntimes();
await using provider = await startProvider();
const programs: Readonly<Record<string, () => Promise<string>>> = {
  node: async () => runProgram(process.execPath, MAIN, await scriptedProviders(provider)),
  bun: async () => runProgram(binaryOf('bun'), 'run', MAIN, await scriptedProviders(provider)),
  deno: async () =>
    runProgram(binaryOf('deno'), 'run', '--no-check', '--allow-net', MAIN, await scriptedProviders(provider)),
  workerd: async () => runWorker(await scriptedProviders(provider)),
};
let expected: string | undefined;
for (const [name, run] of Object.entries(programs)) {
  const start = performance.now();
  try {
    const passed = await run();
    expected ??= passed;
    if (passed !== expected) throw new Error(`passed ${passed} instead of ${expected}`);
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    console.log(`${name.padEnd(8)} ${(JSON.parse(passed) as string[]).length} checks passed  ${seconds} s`);
  } catch (thrown) {
    const { stderr, message } = thrown as { readonly stderr?: string; readonly message: string };
    console.error(`${name.padEnd(8)} failed: ${stderr || message}`);
    process.exitCode = 1;
  }
}

function fetchRuntimes(): void {
  const wanted = JSON.stringify(VERSIONS);
  mkdirSync(FOLDER, { recursive: true });
  const fetched = globSync(`${FOLDER}/fetched.json`).map((file) => readFileSync(file, 'utf8'))[0];
  if (fetched === wanted) return;
  const packages = Object.entries(VERSIONS).map(([name, version]) => `${name}@${version}`);
  // Their install scripts only link the binaries.
  execFileSync('npm', ['install', '--prefix', FOLDER, '--no-save', '--ignore-scripts', '--no-audit', ...packages], {
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: process.platform === 'win32',
  });
  writeFileSync(`${FOLDER}/fetched.json`, wanted);
}

function binaryOf(name: keyof typeof BINARIES): string {
  const [binary] = globSync(`${FOLDER}/node_modules/${BINARIES[name]}`);
  if (binary === undefined) throw new Error(`there is no ${name} for ${process.platform} on ${process.arch}`);
  return path.resolve(binary);
}

/** The base URLs of new scripts. */
async function scriptedProviders(provider: Provider): Promise<string> {
  const call = { name: 'add', arguments: '{"a":2,"b":40}' };
  const turns = [{ reasoning: 'I add.', calls: [call] }, { text: 'Es ist 42. 🌨️' }];
  const script = async (form: keyof Providers['protocols']): Promise<readonly [string, string]> =>
    [form, (await provider.script([...turns, ...turns])).baseURL(form)] as const;
  const forms = ['openai-chat', 'openai-responses', 'anthropic', 'google', 'ollama'] as const;
  const rejecting = { fault: 'status', status: 401 } as const;
  return JSON.stringify({
    protocols: Object.fromEntries(await Promise.all(forms.map(script))),
    rejecting: (await provider.script([rejecting, rejecting])).baseURL('openai-chat'),
    stalling: (await provider.script([{ fault: 'stall' }])).baseURL('openai-chat'),
  } satisfies Record<keyof Providers, unknown>);
}

async function runProgram(file: string, ...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)(file, args, { encoding: 'utf8', timeout: LONGEST_MS });
  return stdout.trim();
}

/** A worker is one file, as the tools of Cloudflare make it. */
async function runWorker(providers: string): Promise<string> {
  const bundle = await rolldown({
    input: 'test/runtimes/worker.ts',
    platform: 'neutral',
    resolve: { conditionNames: ['workerd', 'worker', 'browser', 'import'], mainFields: ['module', 'main'] },
    external: /^(node|cloudflare):/,
    onLog: () => {},
  });
  await bundle.write({ file: `${FOLDER}/worker.js`, codeSplitting: false });
  await bundle.close();
  writeFileSync(`${FOLDER}/worker.capnp`, CONFIG);
  const server = spawn(binaryOf('workerd'), ['serve', `${FOLDER}/worker.capnp`, '--control-fd=3'], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  try {
    const listening = once(createInterface(server.stdio[3] as Readable), 'line') as Promise<[string]>;
    const ended = once(server, 'exit').then(() => {
      throw new Error('workerd ended before it was asked');
    });
    const [line] = await Promise.race([listening, ended]);
    const { port } = JSON.parse(line) as { readonly port: number };
    const signal = AbortSignal.timeout(LONGEST_MS);
    const response = await fetch(`http://127.0.0.1:${port}`, { method: 'POST', body: providers, signal });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return text;
  } finally {
    server.kill();
  }
}
