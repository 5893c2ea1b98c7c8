import { ToolError } from '../tool-error.ts';

/**
 * Matches paths against a glob: `*` and `?` within a name, `**` for any number of folders, `[a-z]`, `{a,b}`, and `\` to
 * escape the next character. Names that begin with a dot match like others.
 *
 * path.matchesGlob builds a regular expression, whose time can be exponential in the length of the name, as for
 * `*a*a*a*a*b`. Patterns come from a model, so here the time is at most the product of both lengths.
 */
export interface GlobPattern {
  matches(path: string): boolean;
  /** Whether a path below this folder can match. */
  leadsInto(folder: string): boolean;
  /** Whether the pattern contains this name literally. */
  names(segment: string): boolean;
  /** Simple globs for the last name of a path that matches: without brackets, escapes and braces. Undefined: any name. */
  readonly lastNames: readonly string[] | undefined;
}

type Piece =
  | { readonly type: 'char'; readonly char: string }
  | { readonly type: 'any' }
  | { readonly type: 'star' }
  | { readonly type: 'set'; readonly negated: boolean; readonly ranges: readonly (readonly [string, string])[] };

type Segment =
  | { readonly type: 'folders' }
  /** `name`, or `*name`: most segments are like that, and fast to match. */
  | { readonly type: 'literal'; readonly text: string }
  | { readonly type: 'ending'; readonly text: string }
  | { readonly type: 'name'; readonly pieces: readonly Piece[] };

const MAX_CHARS = 1_000;
/** Of all alternatives together. */
const MAX_EXPANDED_CHARS = 8_000;

/** Throws a `ToolError` if the pattern leaves the folder or is too large. */
export function globPattern(pattern: string): GlobPattern {
  if (pattern === '' || pattern.includes('\0')) throw invalid('The pattern is empty. Give one such as "**/*.ts".');
  if (pattern.length > MAX_CHARS)
    throw invalid(`The pattern is longer than ${MAX_CHARS} characters. Use a shorter one.`);
  const spelled = expandBraces(pattern).map((one) => one.split('/').filter((name) => name !== '' && name !== '.'));
  if (/^(\/|[a-zA-Z]:[\\/])/.test(pattern) || spelled.some((names) => names.includes('..'))) {
    throw invalid(
      `The pattern ${JSON.stringify(pattern)} leads out of the working folder. Patterns are relative to it and have no ` +
        `"..", such as "src/**/*.ts".`,
    );
  }
  const alternatives = spelled.map((names) => names.map(parseSegment));
  return {
    matches(path) {
      const names = path.split('/');
      return alternatives.some((segments) => matchSegments(segments, names));
    },
    leadsInto(folder) {
      const names = folder.split('/');
      return alternatives.some((segments) => leadsInto(segments, names));
    },
    names: (segment) => spelled.some((names) => names.includes(segment)),
    lastNames: spelled.every((names) => /^(?!\*\*$)[^[\]{}\\:]+$/.test(names.at(-1) ?? ''))
      ? spelled.map((names) => names.at(-1)!)
      : undefined,
  };
}

/** The folders that a pattern begins with literally, and the rest: `src/a` and `*.ts` for `src/a/*.ts`. */
export function splitPattern(pattern: string): { readonly folder: string; readonly rest: string } {
  const [folder = ''] = /^(?:[^*?[\]{}\\/]+\/+)*/.exec(pattern) ?? [];
  return { folder, rest: pattern.slice(folder.length) };
}

function expandBraces(pattern: string): readonly string[] {
  const done = new Set<string>();
  for (let open = [pattern]; open.length > 0;) {
    const next: string[] = [];
    let chars = 0;
    for (const one of open) {
      const group = firstGroup(one);
      for (const option of group?.options ?? []) {
        next.push(group!.before + option + group!.after);
        chars += next.at(-1)!.length;
      }
      if (!group) done.add(one);
      if (chars + done.size > MAX_EXPANDED_CHARS)
        throw invalid('The pattern has too many alternatives in braces. Use fewer.');
    }
    open = next;
  }
  return [...done];
}

function invalid(message: string): ToolError {
  return new ToolError(message, 'invalid_params');
}

function firstGroup(pattern: string): { before: string; options: string[]; after: string } | undefined {
  const start = indexOutsideEscapes(pattern, '{');
  if (start < 0) return undefined;
  const options: string[] = [];
  let depth = 0;
  let from = start + 1;
  for (let at = start; at < pattern.length; at++) {
    const char = pattern[at];
    if (char === '\\') at++;
    else if (char === '{') depth++;
    else if (char === ',' && depth === 1) {
      options.push(pattern.slice(from, at));
      from = at + 1;
    } else if (char === '}' && --depth === 0) {
      options.push(pattern.slice(from, at));
      return { before: pattern.slice(0, start), options, after: pattern.slice(at + 1) };
    }
  }
  throw invalid(`The pattern ${JSON.stringify(pattern)} has a "{" without a "}". Write "\\{" for the character.`);
}

function indexOutsideEscapes(text: string, char: string): number {
  for (let at = 0; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === char) return at;
  }
  return -1;
}

function parseSegment(text: string): Segment {
  if (text === '**') return { type: 'folders' };
  if (!/[*?[\\]/.test(text)) return { type: 'literal', text };
  if (/^\*[^*?[\\]*$/.test(text)) return { type: 'ending', text: text.slice(1) };
  const pieces: Piece[] = [];
  const chars = [...text];
  for (let at = 0; at < chars.length; at++) {
    const char = chars[at]!;
    const end = char === '[' ? chars.indexOf(']', at + (/[!^]/.test(chars[at + 1] ?? '') ? 3 : 2)) : -1;
    if (char === '*') {
      if (pieces.at(-1)?.type !== 'star') pieces.push({ type: 'star' });
    } else if (char === '?') pieces.push({ type: 'any' });
    else if (end > 0) {
      pieces.push(parseSet(chars.slice(at + 1, end)));
      at = end;
    } else if (char === '\\' && at + 1 < chars.length) pieces.push({ type: 'char', char: chars[++at]! });
    else pieces.push({ type: 'char', char });
  }
  return { type: 'name', pieces };
}

function parseSet(chars: readonly string[]): Piece {
  const negated = chars[0] === '!' || chars[0] === '^';
  const ranges: [string, string][] = [];
  for (let at = negated ? 1 : 0; at < chars.length; at++) {
    if (chars[at + 1] === '-' && at + 2 < chars.length) {
      ranges.push([chars[at]!, chars[at + 2]!]);
      at += 2;
    } else ranges.push([chars[at]!, chars[at]!]);
  }
  return { type: 'set', negated, ranges };
}

function matchSegments(segments: readonly Segment[], names: readonly string[]): boolean {
  return matchStarred(
    segments.length,
    names.length,
    (segment) => segments[segment]!.type === 'folders',
    (segment, name) => matchName(segments[segment]!, names[name]!),
  );
}

function leadsInto(segments: readonly Segment[], names: readonly string[]): boolean {
  for (const [i, name] of names.entries()) {
    const segment = segments[i];
    if (!segment) return false;
    if (segment.type === 'folders') return true;
    if (!matchName(segment, name)) return false;
  }
  return segments.length > names.length;
}

function matchName(segment: Segment, name: string): boolean {
  if (segment.type === 'folders') return true;
  if (segment.type === 'literal') return name === segment.text;
  if (segment.type === 'ending') return name.endsWith(segment.text);
  const { pieces } = segment;
  const chars = [...name];
  return matchStarred(
    pieces.length,
    chars.length,
    (piece) => pieces[piece]!.type === 'star',
    (piece, char) => matchChar(pieces[piece]!, chars[char]!),
  );
}

/**
 * Whether a sequence matches a sequence of patterns, where a starred pattern matches any number of elements. Only the last
 * star is retried, so the time is not exponential.
 */
function matchStarred(
  patterns: number,
  elements: number,
  starred: (pattern: number) => boolean,
  matches: (pattern: number, element: number) => boolean,
): boolean {
  let pattern = 0;
  let element = 0;
  let star = -1;
  let taken = 0;
  while (element < elements) {
    if (pattern < patterns && starred(pattern)) {
      star = pattern++;
      taken = element;
    } else if (pattern < patterns && matches(pattern, element)) {
      pattern++;
      element++;
    } else if (star >= 0) {
      pattern = star + 1;
      element = ++taken;
    } else return false;
  }
  while (pattern < patterns && starred(pattern)) pattern++;
  return pattern === patterns;
}

function matchChar(piece: Piece, char: string): boolean {
  switch (piece.type) {
    case 'char':
      return piece.char === char;
    case 'set':
      return piece.ranges.some(([from, to]) => from <= char && char <= to) !== piece.negated;
    default:
      return true;
  }
}
