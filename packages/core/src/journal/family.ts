import type { Parent } from '../machine/rules.ts';
import { sha256 } from '../machine/sha256.ts';
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

/** What says which trace a run belongs to. */
interface TracedRun {
  readonly runId: string;
  readonly parent?: Parent | undefined;
  readonly trace?: string | undefined;
}

/** The trace id of a `traceparent`, or one derived from the id of the run that child runs and forks come from. */
export function traceIdOf(run: TracedRun): string {
  const given = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(run.trace ?? run.parent?.trace ?? '')?.[1];
  if (given !== undefined) return given;
  const root = (run.parent?.runId ?? run.runId).replace(/(\.t\d+\.tool\.\d+)+$/, '');
  return sha256(`trace ${root}`).slice(0, 32);
}

/** The `traceparent` of a run that continues none, for its forks: so theirs, and their child runs, are in the same trace. */
export function traceOfFork(original: TracedRun): string {
  return original.parent?.trace ?? `00-${traceIdOf(original)}-${sha256(`span ${original.runId}`).slice(0, 16)}-01`;
}
