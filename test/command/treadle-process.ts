import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { PROCESS_ENV } from '../process-env.ts';
import { withoutSandboxLine } from './in-process.ts';

const MAIN = fileURLToPath(new URL('../../packages/treadle/src/main.ts', import.meta.url));

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface TreadleProcess {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<Ended>;
  /** The output so far. */
  readonly seen: { readonly stdout: string; readonly stderr: string };
  /** Resolves when standard output (or error) contains the text; rejects when the process ends without it. */
  shows(text: string, where?: 'stdout' | 'stderr'): Promise<void>;
}

const running = new Set<ChildProcessWithoutNullStreams>();

/** Starts the command in a process. Without `stdin`, standard input stays open for the test to write to. */
export function treadle(
  args: readonly string[],
  options: { readonly cwd: string; readonly env?: Record<string, string>; readonly stdin?: string },
): TreadleProcess {
  const child = spawn(process.execPath, ['--conditions=treadle-source', MAIN, ...args], {
    cwd: options.cwd,
    env: { ...PROCESS_ENV, ...options.env },
  });
  running.add(child);
  const seen = { stdout: '', stderr: '' };
  const watchers = new Set<() => void>();
  for (const where of ['stdout', 'stderr'] as const) {
    child[where].setEncoding('utf8').on('data', (text: string) => {
      seen[where] = withoutSandboxLine(seen[where] + text);
      for (const watcher of watchers) watcher();
    });
  }
  child.stdin.on('error', () => {});
  if (options.stdin !== undefined) child.stdin.end(options.stdin);

  const ended = new Promise<Ended>((resolve) => {
    child.on('close', (code, signal) => {
      running.delete(child);
      resolve({ code, signal, ...seen });
    });
  });
  return {
    child,
    ended,
    seen,
    shows: (text, where = 'stdout') =>
      new Promise((resolve, reject) => {
        const watcher = (): void => {
          if (!seen[where].includes(text)) return;
          watchers.delete(watcher);
          resolve();
        };
        watchers.add(watcher);
        watcher();
        void ended.then((end) => reject(new Error(`It ended without ${JSON.stringify(text)}: ${JSON.stringify(end)}`)));
      }),
  };
}

/** For `afterEach`: ends the processes that a failed test has left running. */
export function stopLeftovers(): void {
  for (const child of running) child.kill('SIGKILL');
}
