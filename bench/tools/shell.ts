/** `bash` beside `child_process`, and memory while 1 GB streams through it. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { ToolContext, ToolOutput } from '@treadle/core';
import { bashTool, local } from '@treadle/tools';
import { median, msOf, quantile, shown } from './times.ts';

const CALLS = 300;
const GIGABYTE = 1_000_000_000;

const run = promisify(execFile);

export async function measureShell(folder: string): Promise<void> {
  const tool = bashTool(local(folder));
  /** What the tool gets from a run. */
  let held: unknown;
  const context = {
    signal: new AbortController().signal,
    key: 'run/t1.tool.0',
    report() {},
    hold: async (_: string, open: () => unknown) => ({ resource: (held ??= await open()), isNew: false }),
  } as unknown as ToolContext;
  const bash = async (command: string): Promise<void> => {
    const result = (await tool.execute!({ command, timeout_ms: 300_000 }, context)) as ToolOutput;
    if (result.isError) throw new Error(JSON.stringify(result));
  };
  const direct = (command: string): Promise<unknown> => run('bash', ['--norc', '-c', command], { cwd: folder });

  const times = { bash: [] as number[], direct: [] as number[] };
  for (let call = -10; call < CALLS; call++) {
    // One after the other, so that both see the same load of the machine.
    const [viaBash, viaDirect] = [await msOf(() => bash('echo hello')), await msOf(() => direct('echo hello'))];
    if (call < 0) continue; // warming up
    times.bash.push(viaBash);
    times.direct.push(viaDirect);
  }
  const [low, high] = [
    quantile(times.bash, 0.1) / quantile(times.direct, 0.1),
    median(times.bash) / median(times.direct),
  ];
  console.log(`bash beside child_process: "echo hello", ${CALLS} calls of each, ms a call`);
  console.log(`  child_process  ${shown(times.direct)}`);
  console.log(`  bash           ${shown(times.bash)}`);
  console.log(`  ratio          ${high.toFixed(2)} of the medians, ${low.toFixed(2)} of the fastest tenth`);

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
