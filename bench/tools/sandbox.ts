/** Starting `bash -c true` in each sandbox that is installed, beside bare `spawn` and beside `local`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { local, type ExecOps, type Room } from '@treadle/tools';
import { ENGINE_NAMES, installedEngine, sandboxed } from '@treadle/tools/sandbox';

const ROUNDS = 60;

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
    contenders.set(name, () => startAndEnd(exec, room));
  }
  const times = new Map([...contenders.keys()].map((name) => [name, [] as number[]]));
  // In turns, so that what else the machine does affects all.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const [name, run] of contenders) {
      const startedAt = performance.now();
      await run();
      if (round > 0) times.get(name)!.push(performance.now() - startedAt);
    }
  }
  console.log(`Sandboxes. bash -c true, ${ROUNDS} rounds: best, median, and commands a second one after the other`);
  for (const [name, list] of times) {
    const sorted = list.toSorted((a, b) => a - b);
    const total = list.reduce((sum, one) => sum + one, 0);
    const [best, median] = [sorted[0]!, sorted[ROUNDS / 2]!];
    console.log(
      `  ${name.padEnd(12)} ${best.toFixed(1)} ms  ${median.toFixed(1)} ms  ${((1000 * ROUNDS) / total).toFixed(0)}/s`,
    );
  }
  for (const name of ENGINE_NAMES) {
    const engine = installedEngine(name);
    if (engine)
      console.log(`  ${name.padEnd(12)} ${await memoryOf(sandboxed(ops, engine).exec)} kB for its own processes`);
  }
  await Promise.all(rooms.map((room) => room.close()));
}

async function startAndEnd(exec: ExecOps, room?: Room): Promise<void> {
  const execution = await exec.start({ argv: ['bash', '-c', 'true'], ...(room && { room }) });
  for await (const _ of execution.output);
  await execution.exit;
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
