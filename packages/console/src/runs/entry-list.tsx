import { useSignal, type ReadonlySignal } from '@preact/signals';
import { durationText, entryLines, type EntryLine } from '@treadle/core/describe';
import type { JSX, TargetedKeyboardEvent } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { RunModel } from './run-model.ts';
import { oneLine } from './texts.tsx';
import { lastAtOrBefore } from './timeline.ts';
import type { Selection } from './timeline-chart.tsx';

const ROW = 34;
/** Rows beyond the visible ones, on each side. */
const MARGIN = 6;

export interface EntryListProps {
  readonly model: RunModel;
  readonly version: number;
  readonly cursor: ReadonlySignal<number>;
  readonly search: ReadonlySignal<string>;
  readonly selection: ReadonlySignal<Selection | undefined>;
  readonly onSeek: (seq: number) => void;
  readonly onFound: (count: number) => void;
}

/** All entries of a run. Only the rows that can be seen exist. */
export function EntryList({ model, version, cursor, search, selection, onSeek, onFound }: EntryListProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(400);
  const texts = useMemo(() => [] as string[], [model]);
  const word = search.value.trim().toLowerCase();
  const range = selection.value;
  const rows = useMemo(() => foundEntries(model, texts, word, range), [model, version, word, range]);
  useEffect(() => onFound(rows.length), [rows]);

  useEffect(() => {
    const element = box.current!;
    const observer = new ResizeObserver(() => (height.value = element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const at = cursor.value;
  const current = lastAtOrBefore(rows, at);
  useEffect(() => {
    const element = box.current!;
    // What is known, because reading it from the element would force a layout for each step.
    const [first, last] = [top.peek(), top.peek() + height.peek() - ROW];
    const wanted = Math.max(0, current) * ROW;
    if (wanted < first || wanted > last) element.scrollTop = Math.max(0, wanted - height.peek() / 2);
  }, [current, rows]);

  function onKeyDown(event: TargetedKeyboardEvent<HTMLDivElement>): void {
    const page = Math.max(1, Math.floor(height.value / ROW) - 1);
    const moves: Readonly<Record<string, number>> = {
      ArrowUp: current - 1,
      ArrowDown: current + 1,
      PageUp: current - page,
      PageDown: current + page,
      Home: 0,
      End: rows.length - 1,
    };
    const next = moves[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const seq = rows[Math.max(0, Math.min(rows.length - 1, next))];
    if (seq !== undefined) onSeek(seq);
  }

  const first = Math.max(0, Math.floor(top.value / ROW) - MARGIN);
  const visible = rows.slice(first, first + Math.ceil(height.value / ROW) + 2 * MARGIN);
  const isVisible = current >= first && current < first + visible.length && rows[current] !== undefined;
  return (
    <div
      ref={box}
      class="entries"
      role="listbox"
      tabIndex={0}
      aria-label="Entries"
      aria-activedescendant={isVisible ? `entry-${rows[current]}` : undefined}
      onKeyDown={onKeyDown}
      onScroll={({ currentTarget }) => (top.value = currentTarget.scrollTop)}
    >
      <div class="entries-all" role="presentation" style={{ height: `${rows.length * ROW}px` }}>
        {visible.map((seq, index) => (
          <EntryRow
            key={seq}
            model={model}
            seq={seq}
            position={first + index}
            count={rows.length}
            isCurrent={seq === rows[current]}
            isFuture={seq > at}
            onSeek={onSeek}
          />
        ))}
      </div>
      {rows.length === 0 && <p class="muted entries-none">No entry matches.</p>}
    </div>
  );
}

/** `texts`: what was searched in before, by `seq`. */
function foundEntries(
  { entries }: RunModel,
  texts: string[],
  word: string,
  range: Selection | undefined,
): readonly number[] {
  const found: number[] = [];
  for (let seq = range?.first ?? 0; seq <= (range?.last ?? entries.length - 1); seq++) {
    if (word === '' || (texts[seq] ??= JSON.stringify(entries[seq]!.event).toLowerCase()).includes(word))
      found.push(seq);
  }
  return found;
}

interface RowProps {
  readonly model: RunModel;
  readonly seq: number;
  readonly position: number;
  readonly count: number;
  readonly isCurrent: boolean;
  readonly isFuture: boolean;
  readonly onSeek: (seq: number) => void;
}

function EntryRow({ model, seq, position, count, isCurrent, isFuture, onSeek }: RowProps): JSX.Element {
  const line = lineOf(model, seq);
  const since = model.times[seq]! - model.times[0]!;
  return (
    // The list itself has the focus and handles the keys.
    <div
      id={`entry-${seq}`}
      class={`entry tone-${line.tone}${isFuture ? ' future' : ''}`}
      role="option"
      aria-selected={isCurrent}
      aria-setsize={count}
      aria-posinset={position + 1}
      style={{ transform: `translateY(${position * ROW}px)` }}
      onClick={() => onSeek(seq)}
    >
      <span class="entry-seq">{seq}</span>
      <span class="entry-time">+{durationText(since)}</span>
      <span class="entry-text">
        <span class="entry-head">{line.head.trim()}</span>
        {line.body !== undefined && <span class="entry-body"> {oneLine(line.body, 160)}</span>}
      </span>
      {line.note !== undefined && <span class="entry-note">{line.note}</span>}
    </div>
  );
}

/** The line about an entry that says most, with the names of tools instead of the ids of their calls. */
export function lineOf(model: RunModel, seq: number): EntryLine {
  const line = mainLine(model, seq);
  const head = line.head
    .replace(CALL, (effect) => model.toolOf(effect) ?? effect)
    .replace(/^t\d+\.model\.\d+/, 'model');
  return head === line.head ? line : { ...line, head };
}

const CALL = /t\d+\.(?:tool|verify|approval|client)\.\d+/;

function mainLine({ shown }: RunModel, seq: number): EntryLine {
  const lines = entryLines(shown[seq]!).filter(({ detail }) => !detail);
  return (
    lines.find(({ tone }) => tone === 'red') ??
    // The answer says more than that the run is complete.
    lines.find(({ tone, head }) => tone === 'bold' && head !== 'completed') ??
    lines.find(({ tone, head }) => tone === 'plain' && !head.startsWith(' ')) ??
    lines[0] ?? { head: shown[seq]!.entry.event.type, tone: 'dim' }
  );
}
