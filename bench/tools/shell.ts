/** `bash` beside `child_process`, and memory while 1 GB streams through it. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { registry } from '@treadle/core';
import { bashTool, local } from '@treadle/tools';

const ROUNDS = 15;
const CALLS = 20;
const GIGABYTE = 1_000_000_000;

const run = promisify(execFile);

export async function measureShell(folder: string): Promise<void> {
  const tools = registry();
  tools.register(bashTool(local(folder)), 'bench');
  const bash = async (command: string): Promise<void> => {
    const result = await tools.execute('bash', { command, timeout_ms: 300_000 });
    if (result.type !== 'result' || result.isError) throw new Error(JSON.stringify(result));
  };
  const direct = (command: string): Promise<unknown> => run('bash', ['--norc', '-c', command], { cwd: folder });

  const times: Record<'bash' | 'direct', number[]> = { bash: [], direct: [] };
  for (let round = -2; round < ROUNDS; round++) {
    const sample = {
      bash: await msPerCall(() => bash('echo hello')),
      direct: await msPerCall(() => direct('echo hello')),
    };
    if (round < 0) continue; // warming up
    times.bash.push(sample.bash);
    times.direct.push(sample.direct);
  }
  const ratios = times.bash.map((ms, index) => ms / times.direct[index]!);
  console.log(`bash beside child_process, "echo hello", median of ${ROUNDS} rounds of ${CALLS} calls`);
  console.log(`  child_process  ${shown(times.direct)} ms a call`);
  console.log(`  bash           ${shown(times.bash)} ms a call`);
  console.log(`  ratio          ${shown(ratios)}`);

  let peak = 0;
  const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 20);
  for (const [name, command] of [
    ['first', `head -c ${GIGABYTE / 10} /dev/zero | tr '\\0' x`],
    ['1 GB', `head -c ${GIGABYTE} /dev/zero | tr '\\0' x`],
  ] as const) {
    peak = process.memoryUsage.rss();
    const before = peak;
    const start = performance.now();
    await bash(command);
    const seconds = (performance.now() - start) / 1000;
    const [from, to] = [before, peak].map((bytes) => Math.round(bytes / 1e6));
    console.log(
      `  ${name.padEnd(8)} through bash: ${seconds.toFixed(1)} s, memory ${from} MB before, at most ${to} MB`,
    );
  }
  clearInterval(watch);
}

async function msPerCall(call: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  for (let i = 0; i < CALLS; i++) await call();
  return (performance.now() - start) / CALLS;
}

function shown(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, mid, high] = [sorted[0]!, sorted[Math.floor(sorted.length / 2)]!, sorted.at(-1)!];
  return `${mid.toFixed(2).padStart(6)}   (${low.toFixed(2)} to ${high.toFixed(2)})`;
}
