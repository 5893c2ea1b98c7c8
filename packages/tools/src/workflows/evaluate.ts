import { JobTimeout, runJob } from '../workers/run-job.ts';
import { EVALUATE_MS } from './expressions.ts';

/** Evaluates expressions in a worker thread, which has a second for them. Rejects with the first one that fails. */
export async function evaluate(
  expressions: Readonly<Record<string, string>>,
  values: Readonly<Record<string, unknown>>,
  signal: AbortSignal = new AbortController().signal,
): Promise<Readonly<Record<string, unknown>>> {
  try {
    return await runJob('evaluateAll', { expressions, values }, signal, EVALUATE_MS);
  } catch (error) {
    if (!(error instanceof JobTimeout)) throw error;
    const texts = Object.values(expressions).join(', ');
    throw new Error(`Evaluating ${texts} took longer than ${EVALUATE_MS / 1_000} second.`, { cause: error });
  }
}
