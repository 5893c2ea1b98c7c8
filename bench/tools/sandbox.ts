/** Starting `bash -c true` in each sandbox that is installed, beside bare `spawn` and beside `local`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { local, type ExecOps, type Room } from '@treadle/tools';
import { ENGINE_NAMES, installedEngine, sandboxed } from '@treadle/tools/sandbox';

const ROUNDS = 60;
/** Engines that take longer than this are started in every sixth round. */
const SLOW_MS = 100;
const FOLDERS = 250;
const FILES = 20;

export async function measureSandbox(folder: string): Promise<void> {
  const ops = local(folder);
  const contenders = new Map<string, () => Promise<unknown>>([
    ['spawn', () => once(spawn('bash', ['-c', 'true'], { cwd: folder, stdio: 'ignore' }), 'close')],
    ['no sandbox', () => startAndEnd(ops.exec)],
  ]);
  const rooms: Room[] = [];
  for (const name of ENGINE_NAMES) {
    const engine = installedEngine(name);
    if (!engine) continue;
    const { exec } = sandboxed(ops, engine);
    const room = await exec.sandbox!.openRoom();
    rooms.push(room);
    if ((await startAndEnd(exec, room)) === 0) contenders.set(name, () => startAndEnd(exec, room));
    else console.log(`${name} does not work here`);
  }
  const times = new Map([...contenders.keys()].map((name) => [name, [] as number[]]));
  // In turns, so that what else the machine does affects all.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [name, run] of contenders) {
      const isSlow = times.get(name)!.some((ms) => ms > SLOW_MS);
      if (isSlow && round % 6 !== 0) continue;
      const startedAt = performance.now();
      await run();
      if (round > 0) times.get(name)!.push(performance.now() - startedAt);
    }
  }
  const load = loadavg()[0]!.toFixed(1);
  const user = process.getuid?.() === 0 ? 'root' : 'a plain user';
  console.log(`Sandboxes. bash -c true as ${user}, load ${load}, ${ROUNDS} rounds in turns`);
  console.log('               best    over spawn   median   commands a second, one after the other');
  const spawned = Math.min(...times.get('spawn')!);
  for (const [name, list] of times) {
    const sorted = list.toSorted((a, b) => a - b);
    const total = list.reduce((sum, one) => sum + one, 0);
    const [best, median] = [sorted[0]!, sorted[Math.floor(list.length / 2)]!];
    const over = `${(best - spawned).toFixed(1)} ms, x${(best / spawned).toFixed(1)}`;
    const rate = ((1000 * list.length) / total).toFixed(0);
    console.log(`  ${name.padEnd(12)} ${best.toFixed(1)} ms  ${over.padEnd(14)} ${median.toFixed(1)} ms  ${rate}/s`);
  }
  await measureLargeFolder(folder);
  for (const name of ENGINE_NAMES) {
    const engine = installedEngine(name);
    if (engine && contenders.has(name))
      console.log(`  ${name.padEnd(12)} ${await memoryOf(sandboxed(ops, engine).exec)} kB for its own processes`);
  }
  await Promise.all(rooms.map((room) => room.close()));
}

/** What a large working folder adds to the first command, and to one after the scan has become old. */
async function measureLargeFolder(top: string): Promise<void> {
  const engine = installedEngine('bubblewrap');
  if (!engine) return;
  const folder = join(top, 'large');
  for (let at = 0; at < FOLDERS; at++) {
    mkdirSync(join(folder, String(at)), { recursive: true });
    for (let file = 0; file < FILES; file++) writeFileSync(join(folder, String(at), `${file}.ts`), '');
  }
  // Folders that have just changed are read each time.
  await new Promise((done) => setTimeout(done, 3_500));
  const { exec } = sandboxed(local(folder), engine);
  const costs: string[] = [];
  for (let at = 0; at < 3; at++) {
    const startedAt = performance.now();
    await startAndEnd(exec);
    costs.push((performance.now() - startedAt).toFixed(0));
    await new Promise((done) => setTimeout(done, 10 * Number(costs[0]) + 1_000));
  }
  console.log(
    `  ${FOLDERS * FILES} files: first command ${costs[0]} ms, later ones ${costs.slice(1).join(' and ')} ms`,
  );
}

async function startAndEnd(exec: ExecOps, room?: Room): Promise<number | undefined> {
  const execution = await exec.start({ argv: ['bash', '-c', 'true'], ...(room && { room }) });
  for await (const _ of execution.output);
  return (await execution.exit).exitCode;
}

/** The private memory of the first process of a sandbox. A setuid program does not show it. */
async function memoryOf(exec: ExecOps): Promise<number | string> {
  const execution = await exec.start({ argv: ['cat'], writable: true });
  try {
    await execution.write('x\n');
    await execution.output[Symbol.asyncIterator]().next();
    const rollup = readFileSync(`/proc/${execution.process.pid}/smaps_rollup`, 'utf8');
    return Number(/^Private_Dirty:\s+(\d+)/m.exec(rollup)?.[1]);
  } catch {
    return 'unknown';
  } finally {
    await execution.kill();
  }
}
