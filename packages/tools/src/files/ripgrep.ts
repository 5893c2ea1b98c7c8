import type { ExecOps } from '../ops.ts';

/*
 * Finds files with the ripgrep binary. It only proposes: what it finds is checked, read and searched again by our own code,
 * so that guards hold, and answers are the same without it. So it has to find at least what our code finds.
 */

/** More output than this is not used. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export interface RipgrepRequest {
  /** The folder where it searches. */
  readonly folder: string;
  /** Names of folders that are left out. */
  readonly skipped: readonly string[];
  /** Only files with a line that matches. */
  readonly search?:
    | { readonly pattern: string; readonly ignoreCase: boolean; readonly maxFileBytes: number }
    | undefined;
  /** Only files with such a name, as globs. */
  readonly names?: readonly string[] | undefined;
}

/** The paths that it found, each followed by a NUL byte. Undefined: it is missing, or cannot answer. */
export async function ripgrepPaths(
  exec: ExecOps,
  request: RipgrepRequest,
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  const args = argumentsFor(request);
  if (exec.ripgrep === undefined || args === undefined) return undefined;
  signal.throwIfAborted();
  const running = await exec.start({ argv: [exec.ripgrep, ...args], workdir: request.folder }).catch(() => undefined);
  if (!running) return undefined;
  const stop = (): void => void running.kill().catch(() => {});
  signal.addEventListener('abort', stop);
  try {
    const parts: Uint8Array[] = [];
    let length = 0;
    let hasComplained = false;
    for await (const { stream, bytes } of running.output) {
      if (stream === 'stderr') hasComplained = true;
      else parts.push(bytes);
      length += bytes.length;
      if (length > MAX_OUTPUT_BYTES) {
        await running.kill();
        return undefined;
      }
    }
    const { exitCode } = await running.exit;
    signal.throwIfAborted();
    // 1: nothing found. 2 without a message: some files could not be read.
    const isUsable = exitCode === 0 || exitCode === 1 || (exitCode === 2 && !hasComplained);
    return isUsable ? Buffer.concat(parts) : undefined;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function argumentsFor({ skipped, search, names }: RipgrepRequest): string[] | undefined {
  const args = [
    '--no-config',
    '--color=never',
    '--null',
    '--hidden',
    '--no-messages',
    // Only .gitignore files count, in a repository and elsewhere, and not those above the folder.
    '--no-ignore-dot',
    '--no-ignore-exclude',
    '--no-ignore-global',
    '--no-ignore-parent',
    '--no-require-git',
    ...skipped.map((name) => `--glob=!${name}/`),
    ...(names ? [...names.map((name) => `--type-add=searched:${name}`), '--type=searched'] : []),
  ];
  if (!search) return [...args, '--files', '--', './'];
  const pattern = rustPattern(search.pattern);
  if (pattern === undefined) return undefined;
  const flags = ['--text', '--files-with-matches', `--max-filesize=${search.maxFileBytes}`];
  return [
    ...args,
    ...flags,
    search.ignoreCase ? '--ignore-case' : '--case-sensitive',
    `--regexp=${pattern}`,
    '--',
    './',
  ];
}

/** A character that our decoder makes of bytes that are not valid UTF-8. */
const UNDECODED = '(?-u:[\\x80-\\xff]{1,3})';
const CLASSES: Readonly<Record<string, string>> = { d: '0-9', w: '0-9A-Za-z_', s: '\\t\\n\\x0c\\r\\x20' };

/**
 * The pattern in the syntax of ripgrep, such that it matches at least the lines that it matches in the syntax of RE2. Differences:
 * classes have ASCII characters only, line ends and the byte order mark are not part of a line, bytes that are not valid
 * UTF-8 are characters. Undefined: it contains something that cannot be translated simply.
 */
export function rustPattern(pattern: string): string | undefined {
  if (pattern.includes('\uFFFD')) return undefined;
  let out = '';
  for (let at = 0; at < pattern.length; at++) {
    const char = pattern[at]!;
    if (char === '\\') {
      const escape = translateEscape(pattern, ++at);
      if (escape === undefined) return undefined;
      out += escape;
    } else if (char === '[') {
      const found = translateClass(pattern, at);
      if (!found) return undefined;
      out += found.text;
      at = found.end;
    } else if (char === '(' && pattern[at + 1] === '?') {
      const [group] = /^\(\?(:|-?i[:)]|P?<\w+>)/.exec(pattern.slice(at, at + 100)) ?? [];
      if (group === undefined) return undefined;
      out += group;
      at += group.length - 1;
    } else if (char === '.') out += orUndecoded('.');
    else if (char === '^') out += '(?:^\\x{FEFF}?)';
    else if (char === '$') out += '(?:\\r?$)';
    else out += char;
  }
  return out;
}

function orUndecoded(text: string): string {
  return `(?:${text}|${UNDECODED})`;
}

function translateEscape(pattern: string, at: number): string | undefined {
  const char = pattern[at] ?? '';
  const lower = char.toLowerCase();
  if (CLASSES[char] !== undefined) return `[${CLASSES[char]}]`;
  if (CLASSES[lower] !== undefined) return orUndecoded(`[^${CLASSES[lower]}]`);
  if (char === 'b') return '(?-u:\\b)';
  if (char === 'A') return '(?:^\\x{FEFF}?)';
  if (char === 'z') return '(?:\\r?$)';
  return translateCharacter(char);
}

/** An escaped character, outside and inside of a class. */
function translateCharacter(char: string): string | undefined {
  if (char === '<' || char === '>' || char === ' ') return `\\x${char.charCodeAt(0).toString(16)}`;
  return /^[aftrnvx!-/:-@[-`{-~]$/.test(char) ? `\\${char}` : undefined;
}

function translateClass(pattern: string, start: number): { readonly text: string; readonly end: number } | undefined {
  let at = start + 1;
  const isNegated = pattern[at] === '^';
  if (isNegated) at++;
  let text = '';
  // A bracket at the beginning does not end the class.
  for (let first = true; first || pattern[at] !== ']'; first = false, at++) {
    const char = pattern[at];
    if (char === undefined || (char === '[' && pattern[at + 1] === ':') || (char === '-' && pattern[at + 1] === '-'))
      return undefined;
    if (char === '\\') {
      const escaped = pattern[++at] ?? '';
      const lower = escaped.toLowerCase();
      const translated =
        CLASSES[escaped] ?? (CLASSES[lower] === undefined ? translateCharacter(escaped) : `[^${CLASSES[lower]}]`);
      if (translated === undefined) return undefined;
      text += translated;
    } else text += /[[\]&~]/.test(char) ? `\\${char}` : char;
  }
  const isAscii = !isNegated && /^[\0-\x7f]*$/.test(text) && !/\\x\{|\[\^/.test(text);
  const inside = `[${isNegated ? '^' : ''}${text}]`;
  return { text: isAscii ? inside : orUndecoded(inside), end: at };
}
