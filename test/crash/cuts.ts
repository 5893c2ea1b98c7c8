import { runsOf, type Logged } from './logged-store.ts';
import { RUN } from './world.ts';

/** What a crash leaves behind. */
export interface Cut {
  /** So many entries of the run, and of each of its children. */
  readonly label: string;
  readonly log: readonly Logged[];
}

type Entry = Extract<Logged, { type: 'entry' }> & { readonly index: number; readonly needs: readonly number[] };

/**
 * Every state in which a crash can leave the journals of a run and its children: each of them after any of its entries,
 * as long as nothing is there without what caused it.
 */
export function cutsOf(log: readonly Logged[]): readonly Cut[] {
  const entries = log.flatMap((item, index): Entry[] =>
    item.type === 'entry' ? [{ ...item, index, needs: needsOf(log, item, index) }] : [],
  );
  const runs = runsOf(log).filter((runId) => runId === RUN || runId.startsWith(`${RUN}.`));
  const others = entries.filter(({ runId }) => !runs.includes(runId));
  const lengths = runs.map((runId) => possible(entries.filter((entry) => entry.runId === runId)));
  return combinations(lengths).flatMap((counts): Cut[] => {
    const kept = [
      ...others,
      ...runs.flatMap((runId, at) => entries.filter((entry) => entry.runId === runId).slice(0, counts[at])),
    ];
    const there = new Set(kept.map(({ index }) => index));
    if (kept.some(({ needs }) => needs.some((index) => !there.has(index)))) return [];
    return [
      {
        label: counts.join('/'),
        log: log.filter((item, index) => there.has(index) || isKeptBlob(log, item, index, there)),
      },
    ];
  });
}

/** How many of a run's entries can be there: what it begins with is there as a whole. */
function possible(entries: readonly Entry[]): readonly number[] {
  const first = entries.filter(({ batch }) => batch === entries[0]!.batch).length;
  const isFork = first > 1;
  return Array.from({ length: entries.length + 1 }, (_, count) => count).filter(
    (count) => count >= first || (count === 0 && !isFork),
  );
}

function combinations(lengths: readonly (readonly number[])[]): readonly (readonly number[])[] {
  return lengths.reduce<readonly (readonly number[])[]>(
    (found, counts) => found.flatMap((before) => counts.map((count) => [...before, count])),
    [[]],
  );
}

/**
 * Of a child: the entry by which its parent's call had begun, and the one by which its parent was cancelled if it was.
 * Of what a parent says of a child: all that the child had done.
 */
function needsOf(
  log: readonly Logged[],
  { runId, entry }: Extract<Logged, { type: 'entry' }>,
  index: number,
): readonly number[] {
  const before = [...log.entries()].slice(0, index);
  const calls = before.filter(
    ([, item]) => item.type === 'entry' && item.entry.issued.some((effect) => `${item.runId}.${effect}` === runId),
  );
  const { event } = entry;
  const cancels = before.filter(
    ([, item]) => item.type === 'entry' && event.type === 'cancel-requested' && item.entry.event.type === event.type,
  );
  const told = event.type === 'tool-settled' || event.type === 'tool-parked' ? `${runId}.${event.effect}` : undefined;
  const done = before.filter(([, item]) => item.type === 'entry' && item.runId === told);
  return [...calls.slice(-1), ...cancels, ...done].map(([at]) => at);
}

/** A blob is there if the run did not get beyond it without it. */
function isKeptBlob(log: readonly Logged[], item: Logged, index: number, there: ReadonlySet<number>): boolean {
  if (item.type !== 'blob') return false;
  const next = log.findIndex((other, at) => at > index && other.type === 'entry' && other.runId === item.runId);
  const previous = log.findLastIndex((other, at) => at < index && other.type === 'entry' && other.runId === item.runId);
  return there.has(next) || there.has(previous);
}
