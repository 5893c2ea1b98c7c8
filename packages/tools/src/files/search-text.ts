import type { RE2JS } from 're2js';
import { decodeText, encodingOf } from './text-file.ts';

/** A job for a worker thread, because some expressions take long on large texts. */

export interface TextSearch {
  /** In the syntax of RE2, which never takes exponential time. */
  readonly pattern: string;
  readonly ignoreCase: boolean;
  readonly files: readonly Uint8Array[];
  /** What is returned of each file: lines, whether there is a match, or how many. */
  readonly output: 'content' | 'files' | 'count';
  /** Lines before and after a match. */
  readonly context: number;
  /** No further matches of a file are returned. */
  readonly maxMatches: number;
}

export type TextSearchResult =
  | { readonly type: 'searched'; readonly files: readonly FoundInFile[] }
  | { readonly type: 'invalid-pattern'; readonly problem: string };

export interface FoundInFile {
  readonly isBinary?: true;
  /** Lines that match; with output `files`, 0 or 1. */
  readonly matches: number;
  readonly lines: readonly FoundLine[];
}

export interface FoundLine {
  /** Counted from 1. */
  readonly number: number;
  readonly isMatch: boolean;
  /** A long line is shortened. */
  readonly text: string;
}

const MAX_PROGRAM = 20_000;
const SHOWN_CHARS = 300;
/** How much of a long line is shown before the match. */
const SHOWN_BEFORE = 100;

let last: { readonly key: string; readonly expression: RE2JS } | undefined;

export async function searchTexts(search: TextSearch): Promise<TextSearchResult> {
  let expression: RE2JS;
  try {
    expression = await compiled(search);
  } catch (error) {
    return { type: 'invalid-pattern', problem: (error as Error).message };
  }
  return { type: 'searched', files: search.files.map((bytes) => searchFile(bytes, expression, search)) };
}

async function compiled({ pattern, ignoreCase }: TextSearch): Promise<RE2JS> {
  const key = `${ignoreCase} ${pattern}`;
  if (last?.key === key) return last.expression;
  const { RE2JS } = await import('re2js');
  const expression = RE2JS.compile(pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  if (expression.programSize() > MAX_PROGRAM) throw new Error('the expression is too large');
  last = { key, expression };
  return expression;
}

function searchFile(bytes: Uint8Array, expression: RE2JS, { output, context, maxMatches }: TextSearch): FoundInFile {
  const encoding = encodingOf(bytes);
  if (encoding === undefined) return { isBinary: true, matches: 0, lines: [] };
  const text = decodeText(bytes, encoding);
  const found: FoundLine[] = [];
  let matches = 0;
  /** The last line that is wanted as context. */
  let wanted = 0;
  const before: FoundLine[] = [];
  for (let from = 0, number = 1; from < text.length; number++) {
    const end = text.indexOf('\n', from);
    const next = end < 0 ? text.length : end + 1;
    const stop = end < 0 ? text.length : end;
    const line = text.slice(from, text[stop - 1] === '\r' && stop > from ? stop - 1 : stop);
    from = next;
    const isMatch = matches < maxMatches || output === 'count' ? expression.test(line) : false;
    if (isMatch) matches++;
    if (output === 'files' && isMatch) break;
    if (output !== 'content') continue;
    if (isMatch) {
      found.push(...before.splice(0), { number, isMatch, text: excerpt(line, expression) });
      wanted = number + context;
    } else if (number <= wanted) found.push({ number, isMatch, text: excerpt(line) });
    else if (matches >= maxMatches) break;
    else if (context > 0) {
      before.push({ number, isMatch, text: excerpt(line) });
      if (before.length > context) before.shift();
    }
  }
  return { matches, lines: found };
}

function excerpt(line: string, expression?: RE2JS): string {
  if (line.length <= SHOWN_CHARS) return line;
  const matcher = expression?.matcher(line);
  const start = matcher?.find() ? Math.max(0, matcher.start() - SHOWN_BEFORE) : 0;
  const end = start + SHOWN_CHARS;
  return `${start > 0 ? '…' : ''}${line.slice(start, end)}${end < line.length ? '…' : ''}`;
}
