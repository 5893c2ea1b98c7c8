import type { RunFilter, RunSummary } from './port.ts';

/* Which runs a filter names. Loaded when runs in memory are listed. */

/** The runs that a filter names, in its order. `all` are in the order in which they were created. */
export function wantedRuns(all: readonly RunSummary[], filter: RunFilter): readonly RunSummary[] {
  const { after } = filter;
  const last = after && all.findIndex(({ runId }) => runId === after.runId);
  const found = all.filter((summary, index) => {
    const later = after && summary.startedAt - after.startedAt;
    // Without the last run of the previous page, all that started at its time are listed again.
    return isWanted(summary, filter) && !(later! > 0 || (later === 0 && last! >= 0 && index >= last!));
  });
  return found
    .reverse()
    .sort((a, b) => (filter.due ? a.wakeAt! - b.wakeAt! : b.startedAt - a.startedAt))
    .slice(0, filter.limit ?? 100);
}

/** What a filter names, a run has to have. */
const COMPARED = ['runId', 'model', 'parent', 'tenant', 'session', 'task'] as const;

function isWanted(summary: RunSummary, filter: RunFilter): boolean {
  const { status, startedAt, recovered, wakeAt } = summary;
  const { due } = filter;
  return (
    COMPARED.every((name) => filter[name] === undefined || filter[name] === summary[name]) &&
    (filter.title === undefined || lowerCase(summary.title).includes(lowerCase(filter.title))) &&
    startedAt >= (filter.since ?? -Infinity) &&
    startedAt < (filter.before ?? Infinity) &&
    (!due || (wakeAt !== undefined && wakeAt >= (due.from ?? -Infinity) && wakeAt <= due.to)) &&
    (filter.recovered === undefined || recovered !== undefined) &&
    (filter.status?.includes(status) ?? true) &&
    Object.entries(filter.labels ?? {}).every(([name, value]) => hasLabel(summary, name, value))
  );
}

function hasLabel({ labels = {} }: RunSummary, name: string, value: string): boolean {
  return Object.hasOwn(labels, name) && labels[name] === value;
}

/** Of ASCII letters, as databases do it. */
function lowerCase(text: string): string {
  return text.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}
