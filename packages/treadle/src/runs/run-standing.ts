import type { RunStatus, RunStore, RunSummary } from '@treadle/core';

/** `interrupted`: it is in the middle, and no process drives it any more. */
export type Standing = RunStatus | 'interrupted';

export const STANDINGS: readonly Standing[] = [
  'running',
  'interrupted',
  'paused',
  'completed',
  'exhausted',
  'failed',
  'cancelled',
];

export async function standingOf(store: RunStore, { runId, status }: RunSummary): Promise<Standing> {
  return status === 'running' && !(await store.isDriven(runId)) ? 'interrupted' : status;
}
