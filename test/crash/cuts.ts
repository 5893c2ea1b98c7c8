import { runsOf, type Logged } from './logged-store.ts';
import { RUN } from './world.ts';

/** The journals after a crash. */
export interface Cut {
  /** The number of entries of the run and of each of its children, such as `4/2`. */
  readonly label: string;
  readonly log: readonly Logged[];
}

type Entry = Extract<Logged, { type: 'entry' }> & { readonly index: number; readonly needs: readonly number[] };

/**
 * Every combination of entries that a crash can leave in the journals of a run and its children: each journal after any
 * of its entries, if no entry lacks the entry that caused it.
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

/** The possible numbers of entries of a run. Its first batch is stored as a whole or not at all. */
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
 * The entries that must exist before an entry. For an entry of a child: the one that started the call of its parent, the
 * one that recorded the start of the child, unless it is the first of the child, and the one that cancelled its parent, if
 * any. For an entry about a child: all entries of the child until then, or the first if it records the start.
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
  const about = ABOUT_CHILD.has(event.type) ? `${runId}.${(event as { effect: string }).effect}` : undefined;
  const done = before.filter(([, item]) => item.type === 'entry' && item.runId === about);
  const starts = before.filter(
    ([, { runId: caller, ...item }]) =>
      SETTLING.has(event.type) &&
      item.type === 'entry' &&
      item.entry.event.type === 'child-started' &&
      `${caller}.${item.entry.event.effect}` === runId,
  );
  return [...calls.slice(-1), ...cancels, ...done, ...starts].map(([at]) => at);
}

const ABOUT_CHILD: ReadonlySet<string> = new Set(['child-started', 'tool-settled', 'tool-parked']);

/** Events that are the result of an effect, which starts only when the start of the child is recorded. */
const SETTLING: ReadonlySet<string> = new Set([
  'model-replied',
  'model-failed',
  'calls-judged',
  'tool-settled',
  'tool-parked',
  'turn-prepared',
  'history-compacted',
  'output-checked',
]);

/** A blob exists if the entry before or after it does. */
function isKeptBlob(log: readonly Logged[], item: Logged, index: number, there: ReadonlySet<number>): boolean {
  if (item.type !== 'blob') return false;
  const next = log.findIndex((other, at) => at > index && other.type === 'entry' && other.runId === item.runId);
  const previous = log.findLastIndex((other, at) => at < index && other.type === 'entry' && other.runId === item.runId);
  return there.has(next) || there.has(previous);
}
