import { fork, type ChildProcess } from 'node:child_process';
import type { Fields } from '../protocol/message.ts';
import { DEVICE_EXEC_ARGV, deviceProgram } from './program-file.ts';
import type { Described, Outcome, Runner, RunnerCall, ToolSettings } from './runner.ts';

/*
 * Runs the tools of a device in a process of its own, which is started when it is needed and ended when it is idle. So an idle
 * device needs little memory, and a tool that takes the process with it does not take the connection and the ledger.
 */

export type ToWorker =
  | { readonly type: 'open'; readonly settings: ToolSettings }
  | { readonly type: 'describe' | 'reload'; readonly id: number }
  | { readonly type: 'operate'; readonly id: number; readonly op: string; readonly args: Fields }
  | { readonly type: 'call'; readonly id: number; readonly call: Omit<RunnerCall, 'signal'> }
  | { readonly type: 'cancel'; readonly id: number }
  | { readonly type: 'close' };

export type FromWorker =
  | { readonly type: 'answer'; readonly id: number; readonly value: unknown }
  | {
      readonly type: 'failed';
      readonly id: number;
      readonly problem: string;
      readonly code?: string;
      readonly path?: string;
      readonly name: string;
    }
  | { readonly type: 'progress'; readonly id: number; readonly progress: unknown };

export interface ProcessRunnerOptions {
  /** The process ends if it had nothing to do for this time; default 30 seconds. */
  readonly idleMs?: number;
}

const IDLE_MS = 30_000;
/** A process that does not end by itself is killed. */
const CLOSE_MS = 5_000;
/** A call ends at its time limit, and its programs are killed. If that hangs, the process is killed. */
const HUNG_MS = 15_000;

interface Waiting {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  readonly onProgress?: (progress: unknown) => void;
}

interface Worker {
  readonly child: ChildProcess;
  readonly waiting: Map<number, Waiting>;
}

export function processRunner(settings: ToolSettings, { idleMs = IDLE_MS }: ProcessRunnerOptions = {}): Runner {
  let worker: Worker | undefined;
  let described: Promise<Described> | undefined;
  let lastId = 0;
  let idleTimer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function start(): Worker {
    const child = fork(deviceProgram('worker'), {
      execArgv: [...DEVICE_EXEC_ARGV],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const started: Worker = { child, waiting: new Map() };
    child.on('message', (message: FromWorker) => receive(started, message));
    child.once('error', () => gone(started));
    child.once('exit', () => gone(started));
    child.send({ type: 'open', settings } satisfies ToWorker, ignore);
    return started;
  }

  function receive({ waiting }: Worker, message: FromWorker): void {
    const one = waiting.get(message.id);
    if (!one) return;
    if (message.type === 'progress') return one.onProgress?.(message.progress);
    waiting.delete(message.id);
    if (waiting.size === 0) restIn(idleMs);
    if (message.type === 'answer') return one.resolve(message.value as never);
    const { type: _, id: __, problem, ...facts } = message;
    return one.reject(Object.assign(new Error(problem), facts));
  }

  function gone(ended: Worker): void {
    if (worker === ended) worker = undefined;
    clearTimeout(idleTimer);
    for (const { reject } of ended.waiting.values()) reject(new Error('The process that runs the tools has ended.'));
    ended.waiting.clear();
  }

  function restIn(ms: number): void {
    clearTimeout(idleTimer);
    idleTimer = setTimeout(() => void stop(), ms);
    idleTimer.unref();
  }

  async function stop(): Promise<void> {
    const ending = worker;
    if (!ending) return;
    worker = undefined;
    clearTimeout(idleTimer);
    const exit = new Promise((done) => ending.child.once('exit', done));
    const timer = setTimeout(() => ending.child.kill('SIGKILL'), CLOSE_MS);
    ending.child.send({ type: 'close' } satisfies ToWorker, ignore);
    await exit;
    clearTimeout(timer);
  }

  function ask<T>(
    message: (id: number) => ToWorker,
    onProgress?: (progress: unknown) => void,
  ): { readonly id: number; readonly answer: Promise<T> } {
    const id = ++lastId;
    if (isClosed) return { id, answer: Promise.reject(new Error('The device is shutting down.')) };
    clearTimeout(idleTimer);
    worker ??= start();
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    worker.waiting.set(id, { resolve: resolve as never, reject, ...(onProgress && { onProgress }) });
    worker.child.send(message(id), ignore);
    return { id, answer: promise };
  }

  const describe = (type: 'describe' | 'reload'): Promise<Described> => {
    described = ask<Described>((id) => ({ type, id })).answer;
    described.catch(() => (described = undefined));
    return described;
  };

  return {
    describe: () => described ?? describe('describe'),
    reload: () => describe('reload'),
    async call({ signal, ...call }, onProgress) {
      const { id, answer } = ask<Outcome>((own) => ({ type: 'call', id: own, call }), onProgress);
      const cancel = (): void => void worker?.child.send({ type: 'cancel', id } satisfies ToWorker, ignore);
      signal.addEventListener('abort', cancel, { once: true });
      if (signal.aborted) cancel();
      const hung = worker?.child;
      const timer = setTimeout(() => hung?.kill('SIGKILL'), call.timeoutMs + HUNG_MS);
      try {
        return await answer;
      } catch (error) {
        return {
          status: 'error',
          error: `${(error as Error).message} It is not known whether the call took effect.`,
          error_type: 'interrupted',
        };
      } finally {
        clearTimeout(timer);
        signal.removeEventListener('abort', cancel);
      }
    },
    operate: (op, args) => ask<Fields>((id) => ({ type: 'operate', id, op, args })).answer,
    async close() {
      isClosed = true;
      await stop();
    },
  };
}

function ignore(): void {}
