import { createHash, randomInt } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { homedir, release, tmpdir } from 'node:os';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { local } from '../local/local.ts';
import type { ExecOps } from '../ops.ts';
import { ENGINE_NAMES, PROMISE_NAMES, PROXY_PORT, type Engine, type EngineName, type PromiseName } from './engine.ts';
import { installedEngine } from './engines.ts';
import { FILLS, FORKS, LINUX_SCRIPT, MACOS_SCRIPT } from './probe-scripts.ts';
import { isListedVariable, sandboxed } from './sandboxed.ts';
import { isWithin, lstatOf } from './lookups.ts';

/*
 * Tests what an engine keeps on this machine: it starts programs in a sandbox that try what each promise forbids. A promise
 * that was not tested counts as broken. What was seen is kept until the machine is started again.
 */

export interface ProbeResult {
  readonly engine: EngineName;
  readonly version: string;
  /** Seen to hold. */
  readonly kept: readonly PromiseName[];
  /** Made, and not seen to hold, with what was seen. */
  readonly broken: readonly { readonly promise: PromiseName; readonly seen: string }[];
  /** Why nothing could be started. */
  readonly problem?: string;
}

/** Increase it when the tests or the engines change. */
const EDITION = 10;
const PROBE_MS = 20_000;
const FILLED_BYTES = 16 * 1024 ** 2;
const LIMITS = { cpuSeconds: 30, memoryBytes: 64 * 1024 ** 2, fileBytes: 1024 ** 2, processes: 40 };

const probed = new Map<string, Promise<ProbeResult>>();

/** Tests an engine, or reads what was seen since the machine was started. What fails is tried a second time. */
export function probeEngine(engine: Engine): Promise<ProbeResult> {
  const file = cacheFile(engine);
  if (file === undefined) return testTwice(engine).then(({ result }) => result);
  let result = probed.get(file);
  if (!result) {
    result = readOrTest(engine, file);
    probed.set(file, result);
  }
  return result;
}

async function readOrTest(engine: Engine, file: string): Promise<ProbeResult> {
  const known = readCache(file);
  if (known) return known;
  const { result, isCertain } = await testTwice(engine);
  if (isCertain) writeCache(file, result);
  return result;
}

/**
 * A busy machine may let a test fail, and a command would run without a sandbox then. `isCertain`: everything was kept, or both tests
 * have seen the same.
 */
async function testTwice(engine: Engine): Promise<{ readonly result: ProbeResult; readonly isCertain: boolean }> {
  const first = await testEngine(engine);
  if (keepsAll(first)) return { result: first, isCertain: true };
  const result = await testEngine(engine);
  const isSame = String(result.kept) === String(first.kept) && result.problem === undefined;
  return { result, isCertain: keepsAll(result) || isSame };
}

function keepsAll({ broken, problem }: ProbeResult): boolean {
  return broken.length === 0 && problem === undefined;
}

/** Why an engine does not keep what is required. Undefined if it does. */
export function engineProblem(
  { engine, kept, broken, problem }: ProbeResult,
  required: readonly PromiseName[],
): string | undefined {
  if (problem !== undefined) return `${engine} does not start (tried twice): ${problem.replace(/\.?$/, '.')}`;
  if (required.every((promise) => kept.includes(promise))) return undefined;
  const missing = broken.filter(({ promise }) => required.includes(promise));
  const names = missing.map(({ promise, seen }) => `${promise} (${seen})`).join(', ');
  return names === ''
    ? `${engine} does not promise all that the policy requires.`
    : `${engine} does not keep (tried twice): ${names}.`;
}

/** The first engine that keeps all of the promises, with what was seen of each that was tried. */
export async function findEngine(
  required: readonly PromiseName[],
  names: readonly EngineName[] = ENGINE_NAMES,
): Promise<{
  readonly found?: { readonly engine: Engine; readonly probe: ProbeResult };
  readonly tried: readonly ProbeResult[];
}> {
  const tried: ProbeResult[] = [];
  for (const name of names) {
    const engine = installedEngine(name);
    if (!engine) continue;
    const probe = await probeEngine(engine);
    tried.push(probe);
    if (engineProblem(probe, required) === undefined) return { found: { engine, probe }, tried };
  }
  return { tried };
}

async function testEngine(engine: Engine): Promise<ProbeResult> {
  const { name, version } = engine;
  const top = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-probe-')));
  const folder = join(top, 'folder');
  mkdirSync(join(folder, '.git', 'hooks'), { recursive: true });
  writeFileSync(join(folder, '.git', 'config'), '');
  for (const name of ['treadle.toml', 'AGENTS.md']) writeFileSync(join(folder, name), '');
  writeFileSync(join(folder, '.env'), 'SECRET=1\n');
  writeFileSync(join(top, 'secret'), 'secret\n');
  const socket = createServer(() => {});
  try {
    await new Promise<void>((done, fail) => socket.once('error', fail).listen(join(folder, 'socket'), done));
    const hosts = engine.promises.includes('hosts') ? { hosts: () => 'not allowed' } : {};
    const { exec } = sandboxed(local(folder), engine, { limits: LIMITS, ...hosts });
    const room = await exec.sandbox!.openRoom();
    try {
      const run: Run = (script, ...args) => outputOf(exec, { argv: ['/bin/sh', '-c', script, 'sh', ...args], room });
      const seen = await facts(engine, run, top);
      if (typeof seen === 'string') return { engine: name, version, kept: [], broken: [], problem: seen };
      seen.set('disk', await diskFact(engine, folder));
      const broken = engine.promises.flatMap((promise) => {
        const what = seen.get(promise) ?? 'it was not tested';
        return what === 'ok' ? [] : [{ promise, seen: what }];
      });
      const kept = PROMISE_NAMES.filter((one) => engine.promises.includes(one) && seen.get(one) === 'ok');
      return { engine: name, version, kept, broken };
    } finally {
      await room.close();
    }
  } catch (error) {
    return { engine: name, version, kept: [], broken: [], problem: (error as Error).message };
  } finally {
    socket.close();
    await rm(top, { recursive: true, force: true });
  }
}

type Run = (script: string, ...args: string[]) => Promise<string>;

/** What was seen of each promise: `ok`, or what is wrong. A text: why the sandbox does not work. */
async function facts(engine: Engine, run: Run, top: string): Promise<Map<string, string> | string> {
  const changedAt = deviceChangedAt();
  const output = engine.name === 'seatbelt' ? await runOnMacOS(run, top) : await run(LINUX_SCRIPT, top);
  const lines = output.split('\n').map((line) => line.split(' '));
  const seen = new Map<string, string>();
  for (const [name = '', verdict, ...what] of lines) {
    if (verdict === 'ok') seen.set(name, 'ok');
    else if (verdict === 'no') seen.set(name, what.join(' ') || 'it worked');
  }
  if (!seen.has('root')) return output.trim().slice(0, 500) || 'it printed nothing';
  const listOf = (name: string): readonly string[] =>
    lines
      .find(([first]) => first === name)
      ?.slice(1)
      .filter((one) => one !== '') ?? [];
  const say = (promise: string, problem: string | undefined): unknown => seen.set(promise, problem ?? 'ok');
  if (existsSync(join(top, 'written'))) say('root', join(top, 'written'));
  const variables = listOf('env').filter((one) => !isListedVariable(one));
  say('environment', variables.length === 0 && listOf('env').length > 0 ? undefined : variables.join(' '));
  const forked = await run(FORKS);
  say('count', forked.includes('count no') ? 'more processes than the limit' : undefined);
  if (engine.name !== 'seatbelt') await addLinuxFacts({ run, top, seen, listOf, say });
  if (deviceChangedAt() !== changedAt) say('devices', 'the times of /dev/full can be changed');
  return seen;
}

function deviceChangedAt(): number | undefined {
  return lstatOf('/dev/full')?.ctimeMs;
}

/** With a reserve that a program reaches after a few files. */
async function diskFact(engine: Engine, folder: string): Promise<string> {
  const { bavail, bsize } = statfsSync(folder);
  const reserveBytes = bavail * bsize - FILLED_BYTES;
  const { exec } = sandboxed(local(folder), engine, { limits: { ...LIMITS, reserveBytes } });
  const output = await outputOf(exec, { argv: ['/bin/sh', '-c', FILLS] });
  return output.includes('was ended') ? 'ok' : 'a program wrote as much as it wanted';
}

/** With a port that programs inside must not reach. */
async function runOnMacOS(run: Run, top: string): Promise<string> {
  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((done, fail) => server.once('error', fail).listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  try {
    return await run(MACOS_SCRIPT, top, String(process.pid), String(port), homedir());
  } finally {
    server.close();
  }
}

async function addLinuxFacts({
  run,
  top,
  seen,
  listOf,
  say,
}: {
  readonly run: Run;
  readonly top: string;
  readonly seen: ReadonlyMap<string, string>;
  readonly listOf: (name: string) => readonly string[];
  readonly say: (promise: PromiseName, problem: string | undefined) => unknown;
}): Promise<void> {
  const [network] = listOf('ns-net');
  const isOwnNetwork = network !== undefined && network !== namespaceOf('net');
  say('network', isOwnNetwork && seen.get('interfaces') === 'ok' ? undefined : 'it has the network of the host');
  const [pids, count] = listOf('ns-pid');
  say(
    'processes',
    pids !== undefined && pids !== namespaceOf('pid') && Number(count) < 20 ? undefined : `${count} processes`,
  );
  const devices = listOf('dev').filter((one) => !DEVICES.has(one));
  say('devices', devices.length === 0 && listOf('dev').length > 0 ? undefined : devices.join(' '));
  // Temporary files may be in the home folder.
  const leadsHere = (one: string): boolean => isWithin(join(homedir(), one), top);
  const files = listOf('home').filter((one) => !MADE_IN_HOME.has(one) && !isToolName(one) && !leadsHere(one));
  say('home', files.length === 0 ? undefined : files.join(' '));
  // A number that no other program has.
  const seconds = String(randomInt(1e9, 1e10));
  await run(`setsid sleep ${seconds} >/dev/null 2>&1 & sleep 0.1`);
  say('tree', (await hasEnded(`sleep\0${seconds}\0`)) ? undefined : 'a process was left');
  const again = await run('readlink /proc/self/ns/net');
  say('loopback', again.trim() === network ? undefined : 'each program has its own');
  const listening = await run(
    `grep -qi ':${PROXY_PORT.toString(16).padStart(4, '0')} 00000000:0000 0A' /proc/net/tcp && echo yes`,
  );
  say('hosts', listening.trim() === 'yes' && isOwnNetwork ? undefined : 'there is no proxy');
}

const DEVICES = new Set(
  'console core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero mqueue log'.split(' '),
);

/** By Treadle, and by firejail. */
const MADE_IN_HOME = new Set(['.gitconfig', '.inputrc']);

/** Folders of tools begin with a dot and are not those with keys. */
function isToolName(name: string): boolean {
  return (process.env.PATH ?? '').includes(join(homedir(), name)) || name === '.rustup';
}

async function outputOf(exec: ExecOps, request: Parameters<ExecOps['start']>[0]): Promise<string> {
  const execution = await exec.start(request);
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    void execution.kill();
  }, PROBE_MS);
  let text = '';
  for await (const { bytes } of execution.output) text += Buffer.from(bytes).toString();
  clearTimeout(timer);
  if (isLate) throw new Error(`A test took longer than ${PROBE_MS / 1_000} seconds.`);
  return text;
}

/** Waits shortly, because a process is killed a moment after its namespace. */
async function hasEnded(commandLine: string): Promise<boolean> {
  for (let tries = 0; tries < 20; tries++) {
    const found = readdirSync('/proc').some((pid) => {
      try {
        return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(commandLine);
      } catch {
        return false;
      }
    });
    if (!found) return true;
    await new Promise((done) => setTimeout(done, 25));
  }
  return false;
}

function namespaceOf(name: string): string {
  return readlinkSync(`/proc/self/ns/${name}`);
}

/** Undefined if the machine does not tell when it was started. */
function cacheFile({ name, program, version, promises }: Engine): string | undefined {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    const { mtimeMs } = statSync(program);
    const facts = [
      EDITION,
      boot,
      release(),
      process.getuid?.(),
      process.env.PATH,
      tmpdir(),
      name,
      program,
      mtimeMs,
      version,
      promises,
    ];
    const key = createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 16);
    const { XDG_CACHE_HOME: named = '' } = process.env;
    const folder = isAbsolute(named) ? named : join(homedir(), '.cache');
    return join(folder, 'treadle', `sandbox-${boot.slice(0, 8)}-${name}-${key}.json`);
  } catch {
    return undefined;
  }
}

function readCache(file: string): ProbeResult | undefined {
  try {
    const known = JSON.parse(readFileSync(file, 'utf8')) as ProbeResult;
    return Array.isArray(known.kept) && Array.isArray(known.broken) ? known : undefined;
  } catch {
    return undefined;
  }
}

function writeCache(file: string, result: ProbeResult): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    // Of earlier starts of the machine.
    const isNow = basename(file).split('-', 2).join('-');
    for (const old of readdirSync(dirname(file))) {
      if (old.startsWith('sandbox-') && !old.startsWith(`${isNow}-`)) rmSync(join(dirname(file), old), { force: true });
    }
    const draft = `${file}.${process.pid}`;
    writeFileSync(draft, JSON.stringify(result), { mode: 0o600 });
    renameSync(draft, file);
  } catch {
    // It is tested again the next time.
  }
}
