import type { Colours } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { durationText } from '../terminal/quantities.ts';
import type { Line } from './event-lines.ts';
import { momentLines } from './moment-lines.ts';
import type { Moment } from './moments.ts';

export interface TimelineOptions {
  readonly colours: Colours;
  readonly width: number;
  /** Whole texts, and what is of little interest too. */
  readonly full: boolean;
  /** The ids of runs that work for this one. */
  readonly children: ReadonlySet<string>;
}

/** A run as lines: each entry with its number and when it came, under the turn that it belongs to. */
export function timeline(moments: readonly Moment[], options: TimelineOptions): readonly string[] {
  const { colours, full, children } = options;
  const began = moments[0]?.entry.event.at ?? 0;
  const clocks = moments.map(({ entry }) => `+${durationText(entry.event.at - began)}`);
  const widest = Math.max(...clocks.map(({ length }) => length));
  const digits = Math.max(3, String(moments.length - 1).length);
  const margin = ' '.repeat(digits + 2 + widest + 2);
  let turn = 0;
  return moments.flatMap((moment, index) => {
    const prefix = `${String(moment.entry.seq).padStart(digits)}  ${clocks[index]!.padEnd(widest)}  `;
    const lines = momentLines(moment, children).filter(({ detail }) => full || !detail);
    const shown = lines.flatMap((line, at) => {
      const [first, ...rest] = lineTexts(line, options, margin.length);
      const painted = colours[line.tone];
      return [
        `${at === 0 ? colours.dim(prefix) : margin}${painted(first!)}`,
        ...rest.map((text) => `${margin}${painted(text)}`),
      ];
    });
    const next = turnOf(moment);
    if (next === undefined || next === turn) return shown;
    turn = next;
    return [...shown, colours.bold(`Turn ${turn}`)];
  });
}

function turnOf({ items }: Moment): number | undefined {
  return items.flatMap((item) => (item.type === 'turn-started' ? item.turn : [])).at(-1);
}

/** One line, shortened; or all of it, a text of several lines below its heading. */
export function lineTexts(
  { head, note, body }: Line,
  { width, full }: Pick<TimelineOptions, 'width' | 'full'>,
  margin: number,
): readonly string[] {
  const indent = /^ */.exec(head)![0];
  const heading = `${head.trimStart()}${note === undefined ? '' : ` (${note})`}`;
  if (body === undefined) return [indent + heading];
  const lines = (full ? printable(body) : body.trim()).split('\n');
  if (full) {
    if (lines.length === 1) return [`${indent}${heading}: ${lines[0]}`];
    return [`${indent}${heading}:`, ...lines.map((line) => `${indent}  ${line}`)];
  }
  const room = Math.max(20, width - margin - indent.length);
  const short = lines.length > 1 ? `${lines.length} lines: ${lines[0]}` : lines[0]!;
  return [indent + oneLine(`${heading}: ${short}`, room)];
}
