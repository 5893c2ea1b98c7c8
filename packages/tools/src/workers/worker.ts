import { parentPort } from 'node:worker_threads';
import { JOBS, type Job } from './jobs.ts';

export interface Request {
  readonly id: number;
  readonly job: string;
  readonly input: unknown;
}

export type Reply = { readonly id: number } & ({ readonly value: unknown } | { readonly problem: string });

parentPort!.on('message', (request: Request) => void run(request));

async function run({ id, job, input }: Request): Promise<void> {
  const jobs: Readonly<Record<string, Job>> = JOBS;
  let reply: Reply;
  try {
    reply = { id, value: await jobs[job]!(input as never) };
  } catch (error) {
    reply = { id, problem: error instanceof Error ? error.message : String(error) };
  }
  parentPort!.postMessage(reply);
}
