import { durationText, entryLines, type EntryLine, type ShownEntry } from '@treadle/core/describe';
import type { Colours } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';

/** The entries of a run with their numbers and times, under the turns that they belong to. */
export function timeline(
  steps: readonly ShownEntry[],
  children: ReadonlySet<string>,
  layout: TextLayout,
): readonly string[] {
  const { colours, width, full } = layout;
  const startedAt = steps[0]?.entry.event.at ?? 0;
  const times = steps.map(({ entry }) => `+${durationText(entry.event.at - startedAt)}`);
  const timeWidth = times.reduce((longest, { length }) => Math.max(longest, length), 0);
  const digits = Math.max(3, String(steps.length - 1).length);
  const margin = ' '.repeat(digits + 2 + timeWidth + 2);
  let turn = 0;
  return steps.flatMap((step, index) => {
    const prefix = colours.dim(`${String(step.entry.seq).padStart(digits)}  ${times[index]!.padEnd(timeWidth)}  `);
    const lines = entryLines(step, children).filter(({ detail }) => full || !detail);
    const texts = lines.flatMap((one) => {
      const whole = full ? fullLines(one) : [shortLine(one, width - margin.length)];
      return whole.map((text) => colours[one.tone](text));
    });
    const rows = texts.map((text, at) => (at === 0 ? prefix : margin) + text);
    const started = step.items.findLast((item) => item.type === 'turn-started');
    if (!started || started.turn === turn) return rows;
    turn = started.turn;
    return [...rows, colours.bold(`Turn ${turn}`)];
  });
}

export interface TextLayout {
  readonly colours: Colours;
  readonly width: number;
  /** Print whole texts and details instead of one line each. */
  readonly full: boolean;
}

/** The line, shortened to `width` columns. */
export function shortLine(line: EntryLine, width: number): string {
  if (line.body === undefined) return headingOf(line);
  const lines = line.body.trim().split('\n');
  const body = lines.length > 1 ? `${lines.length} lines: ${lines[0]}` : lines[0]!;
  const indent = ' '.repeat(line.head.search(/\S/));
  return indent + oneLine(`${headingOf(line)}: ${body}`, Math.max(20, width - indent.length));
}

/** The whole text, below its heading if it has several lines. */
function fullLines(line: EntryLine): readonly string[] {
  const lines = line.body === undefined ? [] : printable(line.body).split('\n');
  if (lines.length < 2) return [[headingOf(line), ...lines].join(': ')];
  const indent = ' '.repeat(line.head.search(/\S/) + 2);
  return [`${headingOf(line)}:`, ...lines.map((text) => indent + text)];
}

function headingOf({ head, note }: EntryLine): string {
  return note === undefined ? head : `${head} (${note})`;
}
