import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import { workloadOf } from '../workloads/list.ts';
import type { Job, Verdict } from './job.ts';
import { node } from './pinned.ts';
import { slowDiskEnvironment } from './slow-disk.ts';

const PROCESS = new URL('./process.ts', import.meta.url).pathname;

/** Environment variables that switch off telemetry. */
const OFF = {
  OPENAI_AGENTS_DISABLE_TRACING: '1',
  LANGSMITH_TRACING: 'false',
  MASTRA_TELEMETRY_DISABLED: '1',
  NODE_ENV: 'production',
};

/**
 * Performs a measurement in its own process, which is killed after `limitMs`. The process runs on the measured core, unless
 * it starts the measured server itself.
 */
export async function measure(job: Job, limitMs: number, flags: readonly string[] = []): Promise<Verdict> {
  const { where, slowDisk } = workloadOf(job.workload);
  const slow = slowDisk && slowDiskEnvironment();
  if (slowDisk && !slow) return { type: 'absent', what: `${job.workload} needs Linux and a C compiler` };
  const core = where === 'served' ? 0 : 1;
  const [command, args] = node(core, ['--expose-gc', ...flags, PROCESS, JSON.stringify(job)]);
  const env = { ...process.env, ...OFF, ...slow };
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe', 'pipe'], env });
  const timer = setTimeout(() => child.kill('SIGKILL'), limitMs);
  const [result, errors] = await Promise.all([text(child.stdio[3] as Readable), text(child.stderr!)]);
  clearTimeout(timer);
  if (result !== '') return JSON.parse(result) as Verdict;
  if (child.killed) return { type: 'failed', what: `not done after ${limitMs / 1_000} s` };
  return { type: 'failed', what: errors.trim().split('\n').at(-1) ?? 'the process ended without a result' };
}
