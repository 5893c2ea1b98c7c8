import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { TreadleError, type JournalEntry } from '@treadle/core';
import type { RequestStore, SqliteOptions } from '../src/index.ts';
import type { RemoteAnswer, RemoteRequest } from './remote-main.ts';

/** A store that is open in another process. Its errors are passed on to this process. */
export interface Remote extends AsyncDisposable {
  readonly pid: number;
  /** Resolves to the token of the lease. */
  readonly acquire: (runId: string) => Promise<number>;
  readonly release: (token: number) => Promise<void>;
  readonly append: (runId: string, entries: readonly JournalEntry[], token?: number) => Promise<void>;
  /** Resolves to the number of runs. */
  readonly list: () => Promise<number>;
  readonly requests: RequestStore;
  /** Locks the file, either completely or only for writing. */
  readonly lock: (what: 'all' | 'writing') => Promise<void>;
  readonly unlock: () => Promise<void>;
  readonly signal: (signal: NodeJS.Signals) => void;
  /** Resolves when the process has ended. */
  readonly kill: () => Promise<void>;
}

export interface RemoteOptions {
  readonly store?: Omit<SqliteOptions, 'clock'>;
  /** Runs the process as this user. */
  readonly uid?: number;
}

/** Rejects if the process cannot open the store. */
export async function remote(file: string, options: RemoteOptions = {}): Promise<Remote> {
  const main = new URL('./remote-main.ts', import.meta.url);
  const child = fork(main, [file, JSON.stringify(options.store ?? {})], {
    execArgv: ['--conditions=treadle-source'],
    ...(options.uid !== undefined && { uid: options.uid, gid: options.uid }),
  });
  const exited = once(child, 'exit');
  const answers = answersOf(child);
  let requests = 0;

  async function ask(request: RemoteRequest): Promise<unknown> {
    const id = ++requests;
    const answer = answers.of(id);
    child.send({ id, request });
    return answer;
  }

  async function kill(): Promise<void> {
    child.kill('SIGKILL');
    await exited;
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
    requests: {
      create: (...args) => ask({ type: 'respond', method: 'create', args }) as never,
      addKeys: (...args) => ask({ type: 'respond', method: 'addKeys', args }) as never,
      removeKeys: (...args) => ask({ type: 'respond', method: 'removeKeys', args }) as never,
      findKey: (...args) => ask({ type: 'respond', method: 'findKey', args }) as never,
      finish: (...args) => ask({ type: 'respond', method: 'finish', args }) as never,
      reopen: (...args) => ask({ type: 'respond', method: 'reopen', args }) as never,
      markWaiting: (...args) => ask({ type: 'respond', method: 'markWaiting', args }) as never,
      get: (...args) => ask({ type: 'respond', method: 'get', args }) as never,
      head: (...args) => ask({ type: 'respond', method: 'head', args }) as never,
      delete: (...args) => ask({ type: 'respond', method: 'delete', args }) as never,
      unfinished: (...args) => ask({ type: 'respond', method: 'unfinished', args }) as never,
      undriven: (...args) => ask({ type: 'respond', method: 'undriven', args }) as never,
      prune: (...args) => ask({ type: 'respond', method: 'prune', args }) as never,
      pruneExpired: (...args) => ask({ type: 'respond', method: 'pruneExpired', args }) as never,
      sizeOf: (...args) => ask({ type: 'respond', method: 'sizeOf', args }) as never,
      headOfRun: (...args) => ask({ type: 'respond', method: 'headOfRun', args }) as never,
      hasRun: (...args) => ask({ type: 'respond', method: 'hasRun', args }) as never,
    },
    lock: (what) => ask({ type: 'lock', what }) as Promise<void>,
    unlock: () => ask({ type: 'unlock' }) as Promise<void>,
    signal: (signal) => void child.kill(signal),
    kill,
    [Symbol.asyncDispose]: kill,
  };
}

/** Matches answers to requests. If the process ends, all open requests reject. */
function answersOf(child: ChildProcess): { readonly of: (id: number) => Promise<unknown> } {
  const open = new Map<number, PromiseWithResolvers<unknown>>();
  child.on('message', ({ id, value, error }: RemoteAnswer) => {
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
