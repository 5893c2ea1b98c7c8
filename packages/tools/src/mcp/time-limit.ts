import { abortError } from './errors.ts';
import { McpError } from './options.ts';

/** Runs `work` with a signal that aborts with `signal`, and after `timeoutMs`. Rejects then, also if `work` goes on. */
export async function within<T>(
  name: string,
  timeoutMs: number,
  signal: AbortSignal | undefined,
  work: (limited: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  const timer = setTimeout(() => {
    const remedy = 'Call it with less to do, or raise its time limit.';
    controller.abort(new McpError('timeout', `MCP server "${name}" took longer than ${timeoutMs} ms. ${remedy}`));
  }, timeoutMs);
  signal?.addEventListener('abort', abort);
  if (signal?.aborted) abort();
  try {
    return await abortable(work(controller.signal), controller.signal);
  } catch (error) {
    throw controller.signal.aborted ? abortError(name, controller.signal) : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

/** Rejects when the signal aborts, also if the work goes on. */
export async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
