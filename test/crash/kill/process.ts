import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { PROCESS_ENV } from '../../process-env.ts';

/** The programs: a run of the loop, one of a typed agent, and a workflow. */
const PROGRAMS = {
  program: new URL('./program.ts', import.meta.url),
  'agent-program': new URL('./agent-program.ts', import.meta.url),
  'workflow-program': new URL('./workflow-program.ts', import.meta.url),
};

export type Program = keyof typeof PROGRAMS;

/** When a process is killed: after so many printed lines. */
export interface Kill {
  readonly after: number;
  /** `self`: the process kills itself exactly then. `other`: the test kills it `ms` milliseconds after it read the line. */
  readonly by: 'self' | 'other';
  readonly ms: number;
}

export interface FinishedProcess {
  readonly lines: readonly string[];
  readonly end: 'killed' | 'paused' | 'ended';
}

const running = new Set<ChildProcess>();

export interface ProcessOptions {
  readonly program: Program;
  /** Of the ledger. */
  readonly folder: string;
  /** The URL of the store. */
  readonly store: string;
  readonly kill?: Kill | undefined;
}

/** Runs one process until it exits or is killed. */
export async function runProcess({ program, folder, store, kill }: ProcessOptions): Promise<FinishedProcess> {
  const file = fileURLToPath(PROGRAMS[program]);
  const own = kill?.by === 'self' ? kill.after : 0;
  const child = spawn(process.execPath, ['--conditions=treadle-source', file, folder, store, String(own)], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: PROCESS_ENV,
  });
  running.add(child);
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (errors += text));
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    lines.push(line);
    if (kill?.by !== 'other' || lines.length !== kill.after) return;
    // A timer is too coarse: it waits for at least a millisecond, and for the event loop.
    for (const until = performance.now() + kill.ms; performance.now() < until;);
    child.kill('SIGKILL');
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  running.delete(child);
  if (signal === 'SIGKILL') return { lines, end: 'killed' };
  const end = lines.at(-1);
  if (code === 0 && (end === 'ended' || end === 'paused')) return { lines, end };
  throw new Error(`The process ended with ${code ?? signal} after "${lines.at(-1)}":\n${errors}`);
}

/** For `afterEach`: kills the processes that a failed test left running. */
export function stopLeftovers(): void {
  for (const child of running) child.kill('SIGKILL');
}
