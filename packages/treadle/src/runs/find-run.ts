import type { RunStore, RunSummary } from '@treadle/core';
import { CommandError } from '../command-line/command.ts';
import { nearest } from '../command-line/nearest.ts';
import { oneLine } from '../terminal/printable.ts';
import { shortId } from './run-id.ts';

/** The run that an id, or the beginning of one, stands for. Throws if it is none or could be several. */
export async function findRun(store: RunStore, given: string): Promise<RunSummary> {
  const all = await store.list({ limit: Infinity });
  const exact = all.find(({ runId }) => runId === given);
  if (exact) return exact;
  const found = all.filter(({ runId }) => runId.startsWith(given) || runId.startsWith(`run_${given}`));
  // Runs that work for another bear its id too.
  const shortest = found.reduce<RunSummary | undefined>(
    (a, b) => (a && a.runId.length <= b.runId.length ? a : b),
    undefined,
  );
  if (shortest && found.every((one) => one === shortest || one.runId.startsWith(`${shortest.runId}.`))) return shortest;
  throw new CommandError(found.length === 0 ? unknown(given, all) : ambiguous(given, found));
}

function unknown(given: string, all: readonly RunSummary[]): string {
  const ids = new Map(all.map(({ runId }) => [runId.slice(0, Math.max(given.length, shortId(runId).length)), runId]));
  const meant = nearest(given, ids.keys());
  const suggestion = meant === undefined ? '' : ` Did you mean ${shortId(ids.get(meant)!)}?`;
  return `There is no run ${JSON.stringify(given)}.${suggestion} "treadle runs list" shows those that there are.`;
}

const SHOWN = 5;

function ambiguous(given: string, found: readonly RunSummary[]): string {
  const lines = found.slice(0, SHOWN).map(({ runId, title }) => `  ${runId}  ${oneLine(title, 60)}`);
  const more = found.length > SHOWN ? [`  and ${found.length - SHOWN} more`] : [];
  return [`${JSON.stringify(given)} could be ${found.length} runs. Give more of the id:`, ...lines, ...more].join('\n');
}
