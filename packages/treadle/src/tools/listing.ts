import type { WalkNotes } from './walk.ts';

/** Below the loop's own limit for a result, so that the notes at its end are not what gets cut. */
const MOST_CHARS = 12_000;

/** Lines of a result, up to a number of them and of characters. */
export interface Listing {
  readonly length: number;
  /** False: it is full, and the line is not in it. */
  add(line: string): boolean;
  /** The lines, then what the reader should know about what is missing. */
  text(notes: readonly string[]): string;
}

export function listing(mostLines: number): Listing {
  const lines: string[] = [];
  let chars = 0;
  return {
    get length() {
      return lines.length;
    },
    add(line) {
      if (lines.length === mostLines || (lines.length > 0 && chars + line.length > MOST_CHARS)) return false;
      lines.push(line);
      chars += line.length + 1;
      return true;
    },
    text: (notes) => [...lines, ...notes.map((note) => `[${note}]`)].join('\n'),
  };
}

export function walkNotes(notes: WalkNotes): string[] {
  const told: string[] = [];
  if (notes.cut) told.push('the folder is too large to be seen whole: give a path further down');
  if (notes.closed > 0) told.push(`${count(notes.closed, 'folder')} could not be listed`);
  if (notes.links > 0) {
    told.push(`${count(notes.links, 'symbolic link')} left out that lead out of the working folder or nowhere`);
  }
  return told;
}

export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
