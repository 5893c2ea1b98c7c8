import { useSignal, type ReadonlySignal, type Signal } from '@preact/signals';
import { durationText, shortId } from '@treadle/core/describe';
import type { JSX, TargetedMouseEvent, TargetedPointerEvent } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { RunModel } from './run-model.ts';
import {
  axisOf,
  spanAt,
  nearestEntry,
  pathsOf,
  rowsOf,
  turnStarts,
  type Axis,
  type AxisMode,
  type Paint,
  type PlacedSpan,
} from './timeline.ts';

/** A part of the axis. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** Entries that the user has selected, both included. */
export interface Selection {
  readonly first: number;
  readonly last: number;
}

export interface TimelineProps {
  readonly model: RunModel;
  readonly version: number;
  readonly children_: ReadonlyMap<string, RunModel>;
  readonly mode: AxisMode;
  readonly cursor: ReadonlySignal<number>;
  /** Undefined: everything is shown. */
  readonly zoom: Signal<Range | undefined>;
  readonly selection: Signal<Selection | undefined>;
  readonly onSeek: (seq: number) => void;
  readonly onOpen: (runId: string) => void;
}

const ROW = 22;
const BAR = 14;
const HEAD = 20;
const PAINTS: readonly Paint[] = ['check', 'model', 'tool', 'wait', 'problem'];
/** Moves of the pointer up to this long are clicks. */
const CLICK_PX = 4;

/** The spans of a run over time. What it shows can also be reached with the slider and the list of entries. */
export function Timeline(props: TimelineProps): JSX.Element {
  const { model, version, children_: children, mode, cursor, zoom, selection, onSeek, onOpen } = props;
  const frame = useRef<HTMLDivElement>(null);
  const width = useSignal(800);
  const drag = useSignal<{ readonly from: number; readonly to: number } | undefined>(undefined);
  const hover = useSignal<{ readonly placed: PlacedSpan; readonly x: number; readonly y: number } | undefined>(
    undefined,
  );
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => (width.value = Math.max(200, entry!.contentRect.width)));
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);

  const axis = useMemo(() => axisOf(model, mode), [model, version, mode]);
  const rows = useMemo(() => rowsOf(model, axis, children), [model, version, axis, children]);
  const starts = useMemo(() => turnStarts(model), [model, version]);
  const { from, to } = zoom.value ?? { from: 0, to: axis.length };
  const scale = width.value / (to - from);
  const paths = useMemo(
    () => pathsOf(rows, { from, to, width: width.value, rowHeight: ROW, barHeight: BAR }),
    [rows, from, to, width.value],
  );
  const x = (position: number): number => (position - from) * scale;
  const positionAt = (event: { readonly clientX: number }): number =>
    from + (event.clientX - frame.current!.getBoundingClientRect().left) / scale;
  const height = HEAD + rows.count * ROW + 4;

  function barUnder(
    event: TargetedMouseEvent<SVGSVGElement> | TargetedPointerEvent<SVGSVGElement>,
  ): PlacedSpan | undefined {
    const top = event.currentTarget.getBoundingClientRect().top;
    const row = Math.floor((event.clientY - top - HEAD) / ROW);
    return spanAt(rows, { row, position: positionAt(event), tolerance: 3 / scale });
  }

  function begin(event: TargetedPointerEvent<SVGSVGElement>): void {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const position = positionAt(event);
    drag.value = { from: position, to: position };
  }

  function move(event: TargetedPointerEvent<SVGSVGElement>): void {
    if (drag.value) {
      drag.value = { ...drag.value, to: positionAt(event) };
      return;
    }
    const placed = barUnder(event);
    hover.value = placed && { placed, x: event.clientX, y: event.clientY };
  }

  function end(event: TargetedPointerEvent<SVGSVGElement>): void {
    const dragged = drag.value;
    drag.value = undefined;
    if (!dragged) return;
    if (Math.abs(dragged.to - dragged.from) * scale <= CLICK_PX) {
      selection.value = undefined;
      const placed = barUnder(event);
      if (placed?.runId !== undefined) return onOpen(placed.runId);
      onSeek(placed ? (placed.span.end ?? placed.span.start) : nearestEntry(axis, dragged.to));
      return;
    }
    const [first, last] = [dragged.from, dragged.to].toSorted((a, b) => a - b).map((one) => nearestEntry(axis, one));
    selection.value = { first: first!, last: last! };
  }

  function onWheel(event: WheelEvent): void {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const at = positionAt(event);
    zoom.value = zoomed({ from, to }, axis, at, event.deltaY > 0 ? 1.25 : 0.8);
  }
  useEffect(() => {
    const element = frame.current!;
    element.addEventListener('wheel', onWheel, { passive: false });
    return () => element.removeEventListener('wheel', onWheel);
  });

  const marked = drag.value
    ? { left: Math.min(drag.value.from, drag.value.to), right: Math.max(drag.value.from, drag.value.to) }
    : selection.value && { left: axis.positions[selection.value.first]!, right: axis.positions[selection.value.last]! };
  const turnWidth = starts.length > 1 ? (x(axis.length) - x(0)) / starts.length : Infinity;
  const every = turnWidth >= 34 ? 1 : turnWidth * 5 >= 34 ? 5 : turnWidth * 25 >= 34 ? 25 : 100;
  return (
    <div class="timeline" ref={frame}>
      <svg
        width={width.value}
        height={height}
        role="img"
        aria-label={`Timeline of ${model.entries.length} entries in ${starts.length} turns. Use the slider below to move through it.`}
        onPointerDown={begin}
        onPointerMove={move}
        onPointerUp={end}
        onPointerLeave={() => (hover.value = undefined)}
      >
        <g class="timeline-turns">
          {starts
            .filter(
              ({ turn, seq }) =>
                (turn === 1 || turn % every === 0) && axis.positions[seq]! >= from && axis.positions[seq]! <= to,
            )
            .map(({ turn, seq }) => (
              <g key={turn} transform={`translate(${x(axis.positions[seq]!)} 0)`}>
                <line y2={height} />
                <text x="4" y="14">
                  {turn}
                </text>
              </g>
            ))}
        </g>
        <g class="timeline-gaps">
          {axis.gaps
            .filter(({ seq }) => axis.positions[seq]! >= from && axis.positions[seq - 1]! <= to)
            .map(({ seq, ms }) => {
              const [left, right] = [x(axis.positions[seq - 1]!), x(axis.positions[seq]!)];
              return (
                <g key={seq}>
                  <rect x={left} y={HEAD} width={Math.max(1, right - left)} height={height - HEAD} />
                  {right - left > 44 && (
                    <text x={right - 3} y="14" text-anchor="end">
                      {durationText(ms)}
                    </text>
                  )}
                </g>
              );
            })}
        </g>
        {rows.children.map(({ row, runId, tool }) => (
          <g key={runId} class="timeline-child" transform={`translate(0 ${HEAD + row * ROW})`}>
            <line x2={width.value} />
            <text x="4" y="15">
              {tool} {shortId(runId)}
            </text>
          </g>
        ))}
        <g transform={`translate(0 ${HEAD})`}>
          {PAINTS.map((paint) => (
            <path key={paint} class={`bar-${paint}`} d={paths[paint]} />
          ))}
        </g>
        {marked && (
          <rect
            class="timeline-selection"
            x={x(marked.left)}
            y="0"
            width={Math.max(1, x(marked.right) - x(marked.left))}
            height={height}
          />
        )}
        <Cursor cursor={cursor} axis={axis} x={x} size={{ width: width.value, height }} />
      </svg>
      {hover.value && <Tip {...hover.value} model={model} />}
    </div>
  );
}

interface CursorProps {
  readonly cursor: ReadonlySignal<number>;
  readonly axis: Axis;
  readonly x: (position: number) => number;
  readonly size: { readonly width: number; readonly height: number };
}

/** Only this is drawn again while the user moves through the run. What comes later is dimmed. */
function Cursor({ cursor, axis, x, size }: CursorProps): JSX.Element {
  const last = axis.positions.length - 1;
  const left = x(axis.positions[Math.min(cursor.value, last)] ?? 0);
  const dimmed = cursor.value >= last ? 0 : Math.max(0, size.width - left);
  return (
    <g class="timeline-cursor">
      <rect x={left} y="0" width={dimmed} height={size.height} />
      <line x1={left} x2={left} y2={size.height} />
      <circle cx={Math.min(left, size.width - 5)} cy="5" r="5" />
    </g>
  );
}

/** `x` and `y`: of the pointer, in the window. */
function Tip(props: {
  readonly placed: PlacedSpan;
  readonly x: number;
  readonly y: number;
  readonly model: RunModel;
}): JSX.Element {
  const { placed, x, y, model } = props;
  const { span, runId, attempt } = placed;
  const took = span.end === undefined ? undefined : model.times[span.end]! - model.times[span.start]!;
  // Not in the timeline, which may be lower than the tip.
  const style = { left: `${Math.min(x + 12, innerWidth - 260)}px`, top: `${Math.min(y + 14, innerHeight - 110)}px` };
  return (
    <div class="timeline-tip" style={style}>
      <strong>{span.label}</strong>
      <span class="muted">
        {span.effect}
        {span.repeats > 0 && `, attempt ${span.repeats + 1}`}
        {attempt && `, attempt ${attempt.number} of ${span.attempts!.length}`}
      </span>
      <span>
        {attempt ? attempt.code : span.kind === 'wait' ? 'waited' : (span.problem ?? span.kind)}
        {attempt
          ? `, ${durationText(span.attempts![attempt.number - 1]!.ms)}`
          : runId === undefined && (took === undefined ? ', in progress' : `, ${durationText(took)}`)}
      </span>
      {(runId ?? span.child) !== undefined && <span class="muted">child run {shortId(runId ?? span.child!)}</span>}
    </div>
  );
}

/** The range, larger or smaller around a position. */
export function zoomed({ from, to }: Range, axis: Axis, at: number, factor: number): Range | undefined {
  const size = Math.min(axis.length, Math.max((to - from) * factor, axis.length / 2_000));
  if (size >= axis.length) return undefined;
  const part = (at - from) / (to - from);
  const start = Math.max(0, Math.min(axis.length - size, at - part * size));
  return { from: start, to: start + size };
}
