import type { Span, SpanKind } from '@treadle/core/trace';
import type { RunModel } from './run-model.ts';

/** Where each entry is on the timeline. */
export interface Axis {
  /** By `seq`. Increases or stays. */
  readonly positions: readonly number[];
  readonly length: number;
  /** Idle times that are shown shorter than they were. */
  readonly gaps: readonly Gap[];
  /** Where a time is, for child runs. */
  positionOf(time: number): number;
}

export interface Gap {
  /** The entry that ended it. */
  readonly seq: number;
  readonly ms: number;
}

/** `time`: by the time that passed, with idle times compressed. `entries`: one step for each entry. */
export type AxisMode = 'time' | 'entries';

/** Idle times up to this long are shown as they were. */
const SHORT_IDLE_MS = 1_000;
/** The part of the timeline that a compressed gap takes, and the most that all of them take together. */
const GAP_SHARE = 0.06;
const ALL_GAPS_SHARE = 0.4;

export function axisOf({ times, idle, spans }: RunModel, mode: AxisMode): Axis {
  const count = times.length;
  const steps = times.map((time, seq) => (seq === 0 ? 0 : time - times[seq - 1]!));
  const isGap = steps.map((ms, seq) => mode === 'time' && idle[seq]! && ms > SHORT_IDLE_MS);
  const active = steps.reduce((sum, ms, seq) => (isGap[seq] ? sum : sum + ms), 0);
  const gapCount = isGap.filter(Boolean).length;
  const width = Math.max(1, active * Math.min(GAP_SHARE, ALL_GAPS_SHARE / Math.max(1, gapCount)));
  const gaps: Gap[] = [];
  const positions: number[] = [];
  let at = 0;
  for (let seq = 0; seq < count; seq++) {
    if (mode === 'entries') at = seq;
    else at += isGap[seq] ? width : steps[seq]!;
    if (isGap[seq]) gaps.push({ seq, ms: steps[seq]! });
    positions.push(at);
  }
  // What is still open extends beyond the last entry.
  const isOpen = spans.some(({ end }) => end === undefined);
  const length = Math.max(at + (isOpen ? Math.max(1, at * 0.04) : 0), 1);
  return {
    positions,
    length,
    gaps,
    positionOf(time) {
      const seq = lastAtOrBefore(times, time);
      if (seq < 0) return 0;
      const next = times[seq + 1];
      if (next === undefined) return Math.min(length, positions[seq]! + (mode === 'time' ? time - times[seq]! : 1));
      const part = next === times[seq] ? 0 : (time - times[seq]!) / (next - times[seq]!);
      return positions[seq]! + part * (positions[seq + 1]! - positions[seq]!);
    },
  };
}

/** The index of the last value that is not greater; -1 if there is none. The values do not decrease. */
export function lastAtOrBefore(values: readonly number[], value: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The entry whose position is nearest. */
export function nearestEntry({ positions }: Axis, position: number): number {
  const before = lastAtOrBefore(positions, position);
  if (before < 0) return 0;
  const after = Math.min(before + 1, positions.length - 1);
  return position - positions[before]! <= positions[after]! - position ? before : after;
}

/** A span, where it is drawn. */
export interface PlacedSpan {
  readonly span: Span;
  readonly row: number;
  readonly from: number;
  readonly to: number;
  /** Set if it belongs to a child run. */
  readonly runId?: string;
  /** It is an attempt of the span that failed: its number, from 1 on, and why. */
  readonly attempt?: { readonly number: number; readonly code: string };
}

/** The lanes of a run, and below them those of its child runs. */
export interface Rows {
  readonly spans: readonly PlacedSpan[];
  readonly count: number;
  /** The rows at which child runs begin, and the tools whose calls started them. */
  readonly children: readonly { readonly row: number; readonly runId: string; readonly tool: string | undefined }[];
}

export function rowsOf(model: RunModel, axis: Axis, children: ReadonlyMap<string, RunModel> = new Map()): Rows {
  const spans: PlacedSpan[] = [];
  const place = (span: PlacedSpan, of: RunModel): void => void spans.push(span, ...failedAttempts(span, of));
  for (const span of model.spans) {
    const to = span.end === undefined ? axis.length : axis.positions[span.end]!;
    place({ span, row: span.lane, from: axis.positions[span.start]!, to }, model);
  }
  const nested: Rows['children'][number][] = [];
  const tools = new Map<string, string>();
  for (const { spans: some } of children.size > 0 ? [model, ...children.values()] : [])
    for (const { child, label } of some) if (child !== undefined) tools.set(child, label);
  let count = model.lanes;
  for (const [runId, child] of children) {
    nested.push({ row: count, runId, tool: tools.get(runId) });
    const end = child.spans.some((span) => span.end === undefined) ? axis.length : 0;
    for (const span of child.spans) {
      const to = span.end === undefined ? end : axis.positionOf(child.times[span.end]!);
      place({ span, row: count + span.lane, from: axis.positionOf(child.times[span.start]!), to, runId }, child);
    }
    count += child.lanes;
  }
  return { spans, count, children: nested };
}

/** The attempts of a model call that failed. When each began is not recorded: the pauses between them are taken as equal. */
function failedAttempts(placed: PlacedSpan, { times }: RunModel): readonly PlacedSpan[] {
  const { span, from, to } = placed;
  if (!span.attempts || span.end === undefined) return [];
  const took = span.attempts.reduce((sum, { ms }) => sum + ms, 0);
  const all = Math.max(1, took, times[span.end]! - times[span.start]!);
  const scale = (to - from) / all;
  const pause = ((all - took) / (span.attempts.length - 1)) * scale;
  const found: PlacedSpan[] = [];
  let at = from;
  for (const [index, { ms, error }] of span.attempts.entries()) {
    const end = at + ms * scale;
    const attempt = { number: index + 1, code: error?.code ?? '' };
    if (error) found.push({ ...placed, span: { ...span, problem: 'error' }, from: at, to: end, attempt });
    at = end + pause;
  }
  return found;
}

/** The colours of spans. What went wrong has one of its own. */
export type Paint = SpanKind | 'problem';

export interface View {
  /** The part of the axis that is shown. */
  readonly from: number;
  readonly to: number;
  /** In pixels. */
  readonly width: number;
  readonly rowHeight: number;
  readonly barHeight: number;
}

/** The narrowest span, in pixels. */
const LEAST_WIDTH = 2;

/**
 * The spans that are visible as one path for each colour: the number of elements does not depend on that of the spans. Bars that
 * would cover the same pixels are drawn once.
 */
export function pathsOf({ spans }: Rows, view: View): Readonly<Record<Paint, string>> {
  const paths: Record<Paint, string[]> = { model: [], tool: [], wait: [], check: [], problem: [] };
  const drawn = new Map<string, number>();
  const scale = view.width / (view.to - view.from);
  const inset = (view.rowHeight - view.barHeight) / 2;
  for (const { span, row, from, to } of spans) {
    if (to < view.from || from > view.to) continue;
    const left = Math.max(0, (from - view.from) * scale);
    const right = Math.max(left + LEAST_WIDTH, Math.min(view.width, (to - view.from) * scale));
    const paint: Paint = span.problem ? 'problem' : span.kind;
    const key = `${row} ${paint}`;
    const [x, end] = [Math.round(left * 10) / 10, Math.round(right * 10) / 10];
    if (end <= (drawn.get(key) ?? -1)) continue;
    drawn.set(key, end);
    paths[paint].push(
      `M${x} ${row * view.rowHeight + inset}h${Math.round((end - x) * 10) / 10}v${view.barHeight}H${x}z`,
    );
  }
  const joined = Object.entries(paths).map(([paint, parts]) => [paint, parts.join('')]);
  return Object.fromEntries(joined) as Record<Paint, string>;
}

/** The span at a point; the shortest one if there are several. */
export function spanAt(
  { spans }: Rows,
  { row, position, tolerance }: { readonly row: number; readonly position: number; readonly tolerance: number },
): PlacedSpan | undefined {
  let found: PlacedSpan | undefined;
  for (const placed of spans) {
    if (placed.row !== row || placed.from - tolerance > position || placed.to + tolerance < position) continue;
    if (!found || placed.to - placed.from < found.to - found.from) found = placed;
  }
  return found;
}

/** The first entry of each turn. */
export function turnStarts({ shown }: RunModel): readonly { readonly turn: number; readonly seq: number }[] {
  const starts: { turn: number; seq: number }[] = [];
  for (const { entry, items } of shown) {
    for (const item of items) {
      if (item.type === 'turn-started' && item.turn > (starts.at(-1)?.turn ?? 0))
        starts.push({ turn: item.turn, seq: entry.seq });
    }
  }
  return starts;
}
