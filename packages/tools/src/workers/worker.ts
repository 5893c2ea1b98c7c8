import { parentPort } from 'node:worker_threads';
import { JOBS, type Job } from './jobs.ts';

export interface Request {
  readonly job: string;
  readonly input: unknown;
}

export type Reply = { readonly hasBegun: true } | { readonly value: unknown } | { readonly problem: string };

parentPort!.on('message', (request: Request) => void run(request));

/** A job with a time limit calls it when everything is loaded. */
function begin(): void {
  parentPort!.postMessage({ hasBegun: true } satisfies Reply);
}

async function run({ job, input }: Request): Promise<void> {
  const jobs: Readonly<Record<string, Job>> = JOBS;
  try {
    parentPort!.postMessage({ value: await jobs[job]!(input as never, begin) } satisfies Reply);
  } catch (error) {
    parentPort!.postMessage({ problem: error instanceof Error ? error.message : String(error) } satisfies Reply);
  }
}
