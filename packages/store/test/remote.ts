import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { TreadleError, type JournalEntry } from '@treadle/core';
import type { ResponseStore, SqliteOptions } from '../src/index.ts';
import type { Answer, Deed } from './remote-main.ts';

/** A store that another process has open. What it rejects with there it rejects with here. */
export interface Remote extends AsyncDisposable {
  readonly pid: number;
  /** The token. */
  readonly acquire: (runId: string) => Promise<number>;
  readonly release: (token: number) => Promise<void>;
  readonly append: (runId: string, entries: readonly JournalEntry[], token?: number) => Promise<void>;
  /** How many runs there are. */
  readonly list: () => Promise<number>;
  readonly responses: ResponseStore;
  /** Keeps the file to itself: all of it, or the right to write. */
  readonly lock: (what: 'all' | 'writing') => Promise<void>;
  readonly unlock: () => Promise<void>;
  readonly signal: (signal: NodeJS.Signals) => void;
  /** Resolves when it is gone. */
  readonly kill: () => Promise<void>;
}

export interface RemoteOptions {
  readonly store?: Omit<SqliteOptions, 'clock'>;
  /** Another user to run as. */
  readonly uid?: number;
}

/** Rejects if the process cannot open the store, as opening it here would throw. */
export async function remote(file: string, options: RemoteOptions = {}): Promise<Remote> {
  const main = new URL('./remote-main.ts', import.meta.url);
  const child = fork(main, [file, JSON.stringify(options.store ?? {})], {
    execArgv: ['--conditions=treadle-source'],
    ...(options.uid !== undefined && { uid: options.uid, gid: options.uid }),
  });
  const gone = once(child, 'exit');
  const answers = conversation(child);
  let asked = 0;

  async function ask(deed: Deed): Promise<unknown> {
    const id = ++asked;
    const answer = answers.of(id);
    child.send({ id, deed });
    return answer;
  }

  async function kill(): Promise<void> {
    child.kill('SIGKILL');
    await gone;
  }

  try {
    await answers.of(0);
  } catch (error) {
    await kill();
    throw error;
  }
  return {
    pid: child.pid!,
    acquire: (runId) => ask({ type: 'acquire', runId }) as Promise<number>,
    release: (token) => ask({ type: 'release', token }) as Promise<void>,
    append: (runId, entries, token) => ask({ type: 'append', runId, entries, token }) as Promise<void>,
    list: () => ask({ type: 'list' }) as Promise<number>,
    responses: {
      create: (...args) => ask({ type: 'respond', method: 'create', args }) as never,
      finish: (...args) => ask({ type: 'respond', method: 'finish', args }) as never,
      get: (...args) => ask({ type: 'respond', method: 'get', args }) as never,
      delete: (...args) => ask({ type: 'respond', method: 'delete', args }) as never,
      unfinished: (...args) => ask({ type: 'respond', method: 'unfinished', args }) as never,
      prune: (...args) => ask({ type: 'respond', method: 'prune', args }) as never,
      hasRun: (...args) => ask({ type: 'respond', method: 'hasRun', args }) as never,
    },
    lock: (what) => ask({ type: 'lock', what }) as Promise<void>,
    unlock: () => ask({ type: 'unlock' }) as Promise<void>,
    signal: (signal) => void child.kill(signal),
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

/** Matches answers to questions; if the process ends, all that is open rejects. */
function conversation(child: ChildProcess): { readonly of: (id: number) => Promise<unknown> } {
  const open = new Map<number, PromiseWithResolvers<unknown>>();
  child.on('message', ({ id, value, error }: Answer) => {
    if (error) open.get(id)?.reject(new TreadleError(error.code, error.message));
    else open.get(id)?.resolve(value);
    open.delete(id);
  });
  child.on('exit', () => {
    for (const { reject } of open.values()) reject(new Error('the process ended'));
  });
  return {
    of(id) {
      const answer = Promise.withResolvers<unknown>();
      open.set(id, answer);
      return answer.promise;
    },
  };
}
