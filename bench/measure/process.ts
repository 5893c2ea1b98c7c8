/** Performs one measurement: loads a contender, checks it, warms it up, measures it, reports and exits. */
import { writeSync } from 'node:fs';
import type { Contender } from '../contenders/contender.ts';
import { entryOf, load, loadFront } from '../contenders/list.ts';
import { CHECK_SCRIPTS, problemOfFront } from '../serving/check.ts';
import type { Front } from '../serving/front.ts';
import { workloadOf } from '../workloads/list.ts';
import type { Served } from '../workloads/served.ts';
import { problemOf } from './check.ts';
import type { Job, Verdict } from './job.ts';

const job = JSON.parse(process.argv[2]!) as Job;

async function verdict(): Promise<Verdict> {
  const { mode, check, measure, served } = workloadOf(job.workload);
  if (served) return servedVerdict(served);
  let contender: Contender;
  try {
    contender = await load(entryOf(job.contender));
  } catch (thrown) {
    return { type: 'absent', what: messageOf(thrown) };
  }
  for (const one of check) {
    const what = await problemOf(contender, one, { baseURL: job.baseURL, stream: mode === 'stream' });
    if (what !== undefined) return { type: 'wrong', what: `${one}: ${what}` };
  }
  return { type: 'measured', values: await measure!({ ...job, contender, mode }) };
}

async function servedVerdict({ check, scripts, attacked = false, measure }: Served): Promise<Verdict> {
  let front: Front;
  try {
    front = await loadFront(entryOf(job.contender));
  } catch (thrown) {
    return { type: 'absent', what: messageOf(thrown) };
  }
  const { baseURL: provider, serverFlags: flags } = job;
  const open = await front.open({ provider, scripts: [...CHECK_SCRIPTS, ...scripts], attacked, flags });
  for (const one of check) {
    const what = await problemOfFront(open, one);
    if (what !== undefined) return { type: 'wrong', what: `${one}: ${what}` };
  }
  const values = await measure({ ...job, provider, front: open });
  await open.close();
  return { type: 'measured', values };
}

function messageOf(thrown: unknown): string {
  return String(thrown).split('\n', 1)[0]!;
}

function report(verdict: Verdict): never {
  writeSync(3, JSON.stringify(verdict));
  process.exit();
}

process.on('unhandledRejection', (thrown) => report({ type: 'failed', what: messageOf(thrown) }));
report(await verdict().catch((thrown: unknown): Verdict => ({ type: 'failed', what: messageOf(thrown) })));
