import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import type { Readable } from 'node:stream';
import { workloadOf } from '../workloads/list.ts';
import type { Job, Verdict } from './job.ts';
import { node } from './pinned.ts';

const PROCESS = new URL('./process.ts', import.meta.url).pathname;

/** Telemetry that is switched off by the environment. */
const OFF = {
  OPENAI_AGENTS_DISABLE_TRACING: '1',
  LANGSMITH_TRACING: 'false',
  MASTRA_TELEMETRY_DISABLED: '1',
  NODE_ENV: 'production',
};

/**
 * A measurement in a process of its own, which gets `limitMs` at most. It has the core of what is measured, unless it
 * starts that itself.
 */
export async function measure(job: Job, limitMs: number, flags: readonly string[] = []): Promise<Verdict> {
  const core = workloadOf(job.workload).where === 'served' ? 0 : 1;
  const [command, args] = node(core, ['--expose-gc', ...flags, PROCESS, JSON.stringify(job)]);
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe', 'pipe'], env: { ...process.env, ...OFF } });
  const timer = setTimeout(() => child.kill('SIGKILL'), limitMs);
  const [said, complaint] = await Promise.all([text(child.stdio[3] as Readable), text(child.stderr!)]);
  clearTimeout(timer);
  if (said !== '') return JSON.parse(said) as Verdict;
  if (child.killed) return { type: 'failed', what: `not done after ${limitMs / 1_000} s` };
  return { type: 'failed', what: complaint.trim().split('\n').at(-1) ?? 'it ended without a word' };
}
