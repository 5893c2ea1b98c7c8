/** One measurement: loads a contender, checks it, warms it up, measures it, says what it found and exits. */
import { writeSync } from 'node:fs';
import type { Contender } from '../contenders/contender.ts';
import { entryOf, load } from '../contenders/list.ts';
import { workloadOf } from '../workloads/list.ts';
import { wrong } from './check.ts';
import type { Job, Verdict } from './job.ts';

const job = JSON.parse(process.argv[2]!) as Job;

async function verdict(): Promise<Verdict> {
  const { mode, check, measure } = workloadOf(job.workload);
  let contender: Contender;
  try {
    contender = await load(entryOf(job.contender));
  } catch (thrown) {
    return { type: 'absent', what: messageOf(thrown) };
  }
  for (const one of check) {
    const what = await wrong(contender, one, { baseURL: job.baseURL, stream: mode === 'stream' });
    if (what !== undefined) return { type: 'wrong', what: `${one}: ${what}` };
  }
  return { type: 'measured', values: await measure!({ ...job, contender, mode }) };
}

function messageOf(thrown: unknown): string {
  return String(thrown).split('\n', 1)[0]!;
}

function say(verdict: Verdict): never {
  writeSync(3, JSON.stringify(verdict));
  process.exit();
}

process.on('unhandledRejection', (thrown) => say({ type: 'failed', what: messageOf(thrown) }));
say(await verdict().catch((thrown: unknown): Verdict => ({ type: 'failed', what: messageOf(thrown) })));
