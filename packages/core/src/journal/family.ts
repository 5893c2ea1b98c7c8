import type { JournalEntry, RunStore, RunSummary } from './port.ts';

/**
 * The run whose call started a run, from the first entry of that run; undefined if it is not a child run. A fork also has
 * a parent, but no call started it.
 */
export function callerOf(first: JournalEntry | undefined): string | undefined {
  const parent = first?.event.type === 'run-started' ? first.event.parent : undefined;
  return parent?.effect === undefined ? undefined : parent.runId;
}

/** The id of the child run that a call starts. */
export function childRunId(runId: string, effect: string): string {
  return `${runId}.${effect}`;
}

/** The child runs of a run, without those of its children and without its forks. */
export async function childRuns(store: Pick<RunStore, 'list' | 'read'>, runId: string): Promise<readonly RunSummary[]> {
  const children: RunSummary[] = [];
  for (const run of await store.list({ parent: runId, limit: Infinity })) {
    // Forks are not read: a damaged one is no problem of this run.
    const [first] = run.runId.startsWith(`${runId}.`) ? await store.read(run.runId) : [];
    if (callerOf(first) === runId) children.push(run);
  }
  return children;
}
