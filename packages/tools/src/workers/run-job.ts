import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Jobs } from './jobs.ts';
import type { Reply, Request } from './worker.ts';

/** Idle workers are kept, because starting one takes about 50 ms. They do not keep the process alive. */
const idle: Worker[] = [];
const MAX_IDLE = 2;
/** Further jobs wait, so that many calls at once cannot take all memory. */
const MAX_RUNNING = Math.max(2, availableParallelism());
/** A warning that types are stripped would be printed by each worker. */
const QUIET = ['--disable-warning=ExperimentalWarning'];
/** From sources, other packages of the workspace are found by their sources too. */
const FROM_SOURCES = [...QUIET, '--conditions=treadle-source'];
let running = 0;
const waiting: (() => void)[] = [];
/** Limits the memory of a job, which fails then. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 512 };

/** Published, this module is part of a file in `dist/`, and the worker is in `dist/workers/`. */
const [, EXTENSION] = /\/workers\/run-job\.(ts|js)$/.exec(import.meta.url) ?? [];
const SCRIPT = new URL(EXTENSION ? `./worker.${EXTENSION}` : './workers/worker.js', import.meta.url);

/** A job failed. The message says why. */
export class JobError extends Error {
  override readonly name = 'JobError';
}

/** A job had a time limit, and took longer. */
export class JobTimeout extends JobError {}

type InputOf<K extends keyof Jobs> = Parameters<Jobs[K]>[0];
type OutputOf<K extends keyof Jobs> = Awaited<ReturnType<Jobs[K]>>;

/**
 * Runs a job in a worker thread. If the signal aborts first, the thread is terminated, whatever it is doing. Rejects with the
 * reason of the signal, or with a `JobError`. `limitMs`: how long the job itself may take, without the start of the thread: on a busy
 * machine that takes seconds. Then it rejects with a `JobTimeout`. The job has to call `begin`.
 */
export async function runJob<K extends keyof Jobs>(
  job: K,
  input: InputOf<K>,
  signal: AbortSignal,
  limitMs?: number,
): Promise<OutputOf<K>> {
  await turn(signal);
  try {
    return (await runIn(idle.pop() ?? startWorker(), { job, input }, { signal, limitMs })) as OutputOf<K>;
  } finally {
    running--;
    waiting.shift()?.();
  }
}

/** Waits until another job may run, and counts it. */
async function turn(signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  while (running >= MAX_RUNNING) {
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.push(resolve);
    signal.addEventListener('abort', resolve as () => void);
    await promise;
    signal.removeEventListener('abort', resolve as () => void);
    const at = waiting.indexOf(resolve);
    if (at >= 0) waiting.splice(at, 1);
    if (signal.aborted) {
      // It may have been this one's turn.
      if (at < 0) waiting.shift()?.();
      throw signal.reason;
    }
  }
  running++;
}

interface Limits {
  readonly signal: AbortSignal;
  readonly limitMs: number | undefined;
}

async function runIn(worker: Worker, request: Request, { signal, limitMs }: Limits): Promise<unknown> {
  worker.ref();
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const onAbort = (): void => reject(signal.reason);
  const onExit = (): void => reject(new JobError('The worker thread ended before the job was done.'));
  const onError = (error: Error & { code?: string }): void =>
    reject(new JobError(error.code === 'ERR_WORKER_OUT_OF_MEMORY' ? 'It takes too much memory.' : error.message));
  let isFree = false;
  let timer: NodeJS.Timeout | undefined;
  const onMessage = (reply: Reply): void => {
    if ('hasBegun' in reply) {
      const stop = (): void => reject(new JobTimeout('It takes too long.'));
      // The answer may have arrived while this thread was busy.
      if (limitMs !== undefined) timer = setTimeout(() => setImmediate(stop), limitMs);
      return;
    }
    isFree = true;
    if ('value' in reply) resolve(reply.value);
    else reject(new JobError(reply.problem));
  };
  signal.addEventListener('abort', onAbort);
  worker.on('message', onMessage).on('error', onError).on('exit', onExit);
  try {
    signal.throwIfAborted();
    worker.postMessage(request);
    return await promise;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
    worker.off('message', onMessage).off('error', onError).off('exit', onExit);
    if (isFree && idle.length < MAX_IDLE) {
      worker.unref();
      idle.push(worker);
    } else await worker.terminate();
  }
}

function startWorker(): Worker {
  const worker = new Worker(SCRIPT, {
    resourceLimits: RESOURCE_LIMITS,
    execArgv: EXTENSION === 'ts' ? FROM_SOURCES : QUIET,
  });
  // While it works, `runIn` handles the error.
  worker.on('error', () => {});
  worker.on('exit', () => {
    const at = idle.indexOf(worker);
    if (at >= 0) idle.splice(at, 1);
  });
  return worker;
}
