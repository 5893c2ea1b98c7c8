import { Worker } from 'node:worker_threads';
import type { Jobs } from './jobs.ts';
import type { Reply, Request } from './worker.ts';

/** Idle workers are kept, because starting one takes about 50 ms. They do not keep the process alive. */
const idle: Worker[] = [];
const MAX_IDLE = 2;
/** Limits the memory of a job, which fails then. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 512 };

const SCRIPT = new URL(import.meta.url.endsWith('.ts') ? './worker.ts' : './worker.js', import.meta.url);

/** Thrown by a job. */
export class JobError extends Error {
  override readonly name = 'JobError';
}

/**
 * Runs a job in a worker thread. If the signal aborts first, the thread is terminated, whatever it is doing. Rejects with the
 * reason of the signal, or with a `JobError`.
 */
export async function runJob<K extends keyof Jobs>(
  job: K,
  input: Jobs[K] extends (input: infer I) => unknown ? I : never,
  signal: AbortSignal,
): Promise<Jobs[K] extends (input: never) => infer O ? Awaited<O> : never> {
  signal.throwIfAborted();
  const worker = idle.pop() ?? startWorker();
  worker.ref();
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const onAbort = (): void => reject(signal.reason);
  const onExit = (): void => reject(new JobError('The worker thread ended before the job was done.'));
  const onMessage = (reply: Reply): void =>
    'value' in reply ? resolve(reply.value) : reject(new JobError(reply.problem));
  signal.addEventListener('abort', onAbort);
  worker.on('message', onMessage).on('error', reject).on('exit', onExit);
  let isFree = false;
  try {
    worker.postMessage({ id: 0, job: String(job), input } satisfies Request);
    const value = await promise;
    isFree = true;
    return value as never;
  } catch (error) {
    isFree = error instanceof JobError && worker.threadId > 0;
    throw error;
  } finally {
    signal.removeEventListener('abort', onAbort);
    worker.off('message', onMessage).off('error', reject).off('exit', onExit);
    if (isFree && idle.length < MAX_IDLE) {
      worker.unref();
      idle.push(worker);
    } else await worker.terminate();
  }
}

function startWorker(): Worker {
  const worker = new Worker(SCRIPT, { resourceLimits: RESOURCE_LIMITS });
  // An idle worker that fails is replaced; while it works, `runJob` handles the error.
  worker.on('error', () => {});
  worker.on('exit', () => {
    const at = idle.indexOf(worker);
    if (at >= 0) idle.splice(at, 1);
  });
  return worker;
}
