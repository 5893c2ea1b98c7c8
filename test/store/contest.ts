import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { ContenderReport } from './contender-main.ts';

/** Short, so that much is taken over. */
const LEASE_MS = 60;

/** Processes that compete for one run. */
export interface Contest extends AsyncDisposable {
  /** Starts one more process, which claims to run on `host`; by default on this host. */
  readonly join: (host?: string) => void;
  /** All reports so far. */
  readonly reports: readonly ContestReport[];
  /** Resolves to the next report that matches. */
  readonly next: (matches: (report: ContestReport) => boolean) => Promise<ContestReport>;
  /** Stops all processes and waits until they have ended. */
  readonly stop: () => Promise<void>;
}

export interface Contender {
  readonly host: string | undefined;
  readonly child: ChildProcess;
  readonly exited: Promise<unknown>;
}

export type ContestReport = ContenderReport & { readonly by: Contender };

/** `store`: its URL. */
export function contest(store: string, runId: string): Contest {
  const contenders = new Set<Contender>();
  const reports: ContestReport[] = [];
  const listeners = new Set<(report: ContestReport) => void>();

  function join(host?: string): void {
    const options = { leaseTtlMs: LEASE_MS, ...(host !== undefined && { holder: { host, pid: 1 } }) };
    const main = new URL('./contender-main.ts', import.meta.url);
    const child = fork(main, [store, runId, JSON.stringify(options)], { execArgv: ['--conditions=treadle-source'] });
    const by: Contender = { host, child, exited: once(child, 'exit').then(() => contenders.delete(by)) };
    child.on('message', (message: ContenderReport) => {
      const report = { ...message, by };
      reports.push(report);
      for (const listener of listeners) listener(report);
    });
    contenders.add(by);
  }

  function next(matches: (report: ContestReport) => boolean): Promise<ContestReport> {
    return new Promise((resolve) => {
      const listener = (report: ContestReport): void => {
        if (!matches(report)) return;
        listeners.delete(listener);
        resolve(report);
      };
      listeners.add(listener);
    });
  }

  return {
    join,
    reports,
    next,
    async stop() {
      for (const { child } of contenders) child.send('stop');
      await Promise.all([...contenders].map(({ exited }) => exited));
    },
    async [Symbol.asyncDispose]() {
      for (const { child } of contenders) child.kill('SIGKILL');
      await Promise.all([...contenders].map(({ exited }) => exited));
    },
  };
}
