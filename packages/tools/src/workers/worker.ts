import { parentPort } from 'node:worker_threads';
import { JOBS, type Job } from './jobs.ts';

export interface Request {
  readonly job: string;
  readonly input: unknown;
}

export type Reply = { readonly value: unknown } | { readonly problem: string };

parentPort!.on('message', (request: Request) => void run(request));

async function run({ job, input }: Request): Promise<void> {
  const jobs: Readonly<Record<string, Job>> = JOBS;
  try {
    parentPort!.postMessage({ value: await jobs[job]!(input as never) } satisfies Reply);
  } catch (error) {
    parentPort!.postMessage({ problem: error instanceof Error ? error.message : String(error) } satisfies Reply);
  }
}
