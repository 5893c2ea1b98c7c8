import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Told } from './contender-main.ts';

/** Processes that fight for one run. */
export interface Contest extends AsyncDisposable {
  /** One more, which says that it is on that host; on this one if there is none. */
  readonly join: (host?: string) => void;
  /** All that was told so far. */
  readonly told: readonly Heard[];
  /** The next thing told from now on that is meant. */
  readonly next: (isMeant: (heard: Heard) => boolean) => Promise<Heard>;
  /** Asks all of them to stop, and waits until they have. */
  readonly stop: () => Promise<void>;
}

export interface Contender {
  readonly host: string | undefined;
  readonly child: ChildProcess;
  readonly gone: Promise<unknown>;
}

export type Heard = Told & { readonly by: Contender };

export function contest(file: string, runId: string): Contest {
  const contenders = new Set<Contender>();
  const told: Heard[] = [];
  const listeners = new Set<(heard: Heard) => void>();

  function join(host?: string): void {
    const options = { leaseTtlMs: 60, busyTimeoutMs: 100, ...(host !== undefined && { holder: { host, pid: 1 } }) };
    const main = new URL('./contender-main.ts', import.meta.url);
    const child = fork(main, [file, runId, JSON.stringify(options)], { execArgv: ['--conditions=treadle-source'] });
    const by: Contender = { host, child, gone: once(child, 'exit').then(() => contenders.delete(by)) };
    child.on('message', (message: Told) => {
      const heard = { ...message, by };
      told.push(heard);
      for (const listener of listeners) listener(heard);
    });
    contenders.add(by);
  }

  function next(isMeant: (heard: Heard) => boolean): Promise<Heard> {
    return new Promise((resolve) => {
      const listener = (heard: Heard): void => {
        if (!isMeant(heard)) return;
        listeners.delete(listener);
        resolve(heard);
      };
      listeners.add(listener);
    });
  }

  return {
    join,
    told,
    next,
    async stop() {
      for (const { child } of contenders) child.send('stop');
      await Promise.all([...contenders].map(({ gone }) => gone));
    },
    async [Symbol.asyncDispose]() {
      for (const { child } of contenders) child.kill('SIGKILL');
      await Promise.all([...contenders].map(({ gone }) => gone));
    },
  };
}
