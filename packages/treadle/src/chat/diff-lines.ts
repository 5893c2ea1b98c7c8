import { structuredPatch } from 'diff';
import { span, wrapLine, type Line } from '../screen/spans.ts';
import { exactLine } from '../terminal/printable.ts';

/** A text before and after a change. Absent: there is no file then. */
export interface FileChange {
  readonly path: string;
  readonly before?: string | undefined;
  readonly after?: string | undefined;
  /** Both are parts of the file, so the numbers of their lines are not known. */
  readonly isPart?: true;
}

const CONTEXT_LINES = 3;
/** Two texts that take longer to compare are shown as wholly different. */
const TIMEOUT_MS = 200;

/**
 * The changes of a file with line numbers, the lines around them, and everything visible that could hide a part. No lines if
 * nothing has changed.
 */
export function changeLines({ path, before, after, isPart }: FileChange, width: number): readonly Line[] {
  if (before === after) return [];
  const [from, to] = [before ?? '', after ?? ''];
  const hunks = hunksOf(from, to);
  const count = (mark: string): number =>
    hunks.flatMap(({ lines }) => lines).filter((line) => line.startsWith(mark)).length;
  const what = before === undefined ? ' (new)' : after === undefined ? ' (removed)' : '';
  const digits = String(
    Math.max(1, ...hunks.map(({ newStart, oldStart, lines }) => Math.max(newStart, oldStart) + lines.length)),
  ).length;
  const head: Line = [
    span('  '),
    span(exactLine(path), 'bold'),
    span(what, 'dim'),
    span(` +${count('+')}`, 'green'),
    span(` -${count('-')}`, 'red'),
  ];
  return [
    ...wrapLine(head, width, { indent: 4 }),
    ...hunks.flatMap(({ oldStart, newStart, lines }, index) => {
      const shown: Line[] = index === 0 ? [] : [[span(`  ${' '.repeat(digits)} ⋮`, 'dim')]];
      let [old, now] = [oldStart, newStart];
      for (const line of lines) {
        const [mark = ' '] = line;
        // "\ No newline at end of file"
        const number = mark === '\\' || isPart ? '' : String(mark === '-' ? old : now);
        if (mark !== '+' && mark !== '\\') old++;
        if (mark !== '-' && mark !== '\\') now++;
        shown.push(...diffLine(mark, line.slice(1), { number: isPart ? '' : number.padStart(digits), width }));
      }
      return shown;
    }),
  ];
}

/** The content that a file gets, whatever it contains now. */
export function contentLines(
  { path, content }: { readonly path: string; readonly content: string },
  width: number,
): readonly Line[] {
  const lines = content.replace(/\n$/, '').split('\n');
  const digits = String(lines.length).length;
  return [
    ...wrapLine([span('  '), span(exactLine(path), 'bold'), span(' (the whole file)', 'dim')], width, { indent: 4 }),
    ...lines.flatMap((line, index) => diffLine('+', line, { number: String(index + 1).padStart(digits), width })),
  ];
}

/** A patch, coloured. */
export function patchLines(patch: string, width: number): readonly Line[] {
  return patch.split('\n').flatMap((line) => {
    const isHead = /^(\*\*\*|---|\+\+\+|@@|diff |index )/.test(line);
    if (isHead) return wrapLine([span('  '), span(exactLine(line), 'bold')], width, { indent: 4, breaks: 'anywhere' });
    const [mark = ''] = line;
    if (mark === '+' || mark === '-') return diffLine(mark, line.slice(1), { number: '', width });
    return diffLine(' ', line.slice(mark === ' ' ? 1 : 0), { number: '', width });
  });
}

function diffLine(
  mark: string,
  text: string,
  { number, width }: { readonly number: string; readonly width: number },
): readonly Line[] {
  const gutter = number === '' ? '  ' : `  ${number} `;
  const shown = `${mark} ${exactLine(text).replaceAll('\\t', '  ')}`;
  const body =
    mark === '+'
      ? span(shown, 'green')
      : mark === '-'
        ? span(shown, 'red')
        : span(shown, ...(mark === '\\' ? (['dim'] as const) : []));
  return wrapLine([span(gutter, 'dim'), body], width, { indent: gutter.length + 2, breaks: 'anywhere' });
}

interface Hunk {
  readonly oldStart: number;
  readonly newStart: number;
  readonly lines: readonly string[];
}

function hunksOf(before: string, after: string): readonly Hunk[] {
  const found = structuredPatch('', '', before, after, '', '', { context: CONTEXT_LINES, timeout: TIMEOUT_MS });
  if (found) return found.hunks;
  const lines = (text: string, mark: string): string[] =>
    text
      .replace(/\n$/, '')
      .split('\n')
      .map((line) => mark + line);
  return [{ oldStart: 1, newStart: 1, lines: [...lines(before, '-'), ...lines(after, '+')] }];
}
