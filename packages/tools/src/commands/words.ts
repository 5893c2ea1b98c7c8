/*
 * Words of a shell command, read character by character. A word is known only if every shell passes exactly this text, or
 * exactly the files that match it. Everything else throws `Unclear`.
 */
import { lstatSync, readdirSync, readFileSync, type Dirent } from 'node:fs';
import { compileGlob, matchesGlob } from '@treadle/core/policy';

/** Why a command is not in the grammar that is known completely. Ends the analysis: people are asked. */
export class Unclear extends Error {}

/** The analysis has to look at files, which may take long. It starts again where that harms nobody. */
export class NeedsFiles extends Error {}

/** What one command may cost, in all of its parts together. */
export interface Budget {
  /** Parts of the command, words, values of loops, matches, guesses. */
  steps: number;
  /** Entries of folders that are read. */
  entries: number;
}

export function newBudget(): Budget {
  return { steps: 10_000, entries: 20_000 };
}

export function spend(budget: Budget, count: number, what: 'steps' | 'entries' = 'steps'): void {
  budget[what] -= count;
  if (budget[what] < 0)
    throw new Unclear(what === 'steps' ? 'it has too many parts' : 'it takes too long to look at all folders');
}

/** What the words of a command mean at one place of it. */
export interface WordContext {
  readonly variables: ReadonlyMap<string, Value>;
  /** A shell that may not be bash. */
  readonly posix: boolean;
  /** The only folder that globs can start at, absolute. Undefined: it is not known. */
  readonly folder: string | undefined;
  readonly files: Files;
}

/** What a variable holds. `isMatch`: the name of a file, which may be another one when the command runs. */
export interface Value {
  readonly text: string;
  readonly isMatch: boolean;
}

type Piece = { readonly text: string; readonly isGlob: boolean };

/** Characters without a meaning for any shell, inside a word. Others than ASCII are checked before. */
const PLAIN = /[\w./:=@%+,\-^!\]}#]|\P{ASCII}/u;
/** After these a dollar sign is only a dollar sign, in double quotes. */
const PLAIN_AFTER_DOLLAR = /^["\s|)/]/;

/** The arguments that a word becomes. */
export function expandWord(raw: string, context: WordContext): readonly string[] {
  const document = quotedDocument(raw);
  if (document !== undefined) return [document];
  const pieces = readWord(raw, context);
  const text = pieces.map((piece) => piece.text).join('');
  if (!pieces.some(({ isGlob }) => isGlob)) return [text];
  if (pieces[0]!.isGlob || text.startsWith('-') || text === '')
    throw new Unclear(`the pattern ${raw} does not begin with the name of a folder or file`);
  return matchesOf(pieces, text, context);
}

export function isPattern(raw: string, context: WordContext): boolean {
  return quotedDocument(raw) === undefined && readWord(raw, context).some(({ isGlob }) => isGlob);
}

/** The text of a word that becomes one argument and matches no files: a value, the target of a redirection. */
export function literalText(raw: string, context: WordContext): string {
  return readWord(raw, context)
    .map((piece) => piece.text)
    .join('');
}

/** `"$(cat <<'X' …)"`: a text of several lines as one argument. */
function quotedDocument(raw: string): string | undefined {
  const [, mark, body] = /^"\$\(cat <<'(\w+)'\n([^]*\n)?\1\n?[ \t]*\)"$/.exec(raw)?.slice(0, 3) ?? [];
  if (mark === undefined) return undefined;
  if ((body ?? '').split('\n').includes(mark)) throw new Unclear('a here-document ends before its last line');
  return (body ?? '').replace(/\n+$/, '');
}

function readWord(raw: string, context: WordContext): Piece[] {
  const pieces: Piece[] = [];
  const add = (text: string, isGlob = false): unknown => pieces.push({ text, isGlob });
  let at = 0;
  const take = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    const found = pattern.exec(raw)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  while (at < raw.length) {
    const char = raw[at]!;
    const quoted = char === "'" ? take(/'[^']*'/y) : undefined;
    if (quoted !== undefined) add(quoted.slice(1, -1));
    else if (char === '"') {
      at++;
      add(doubleQuoted());
    } else if (char === '\\') {
      const next = raw[at + 1];
      if (next === undefined) throw new Unclear('it ends with a backslash');
      if (next !== '\n') add(next);
      at += 2;
    } else if (char === '$') add(raw.length === at + 1 ? take(/\$/y)! : variable('bare'));
    else if (char === '*') add(take(/\*+/y)!, true);
    else if (char === '[') {
      if (raw === '[') return [{ text: raw, isGlob: false }];
      // Which characters a set means depends on the language.
      throw new Unclear(`the brackets in ${raw} are not analysed`);
    } else if (char === '{') {
      if (/,|\.\./.test(raw)) throw new Unclear(`the braces in ${raw} are not analysed`);
      add(take(/\{/y)!);
    } else if (char === '~') {
      if (/(^|[=:])(\\\n)*$/.test(raw.slice(0, at))) throw new Unclear(`~ in ${raw} is a home folder`);
      add(take(/~/y)!);
    } else if (PLAIN.test(char)) {
      add(char);
      at++;
    } else throw new Unclear(`${JSON.stringify(char)} in ${JSON.stringify(raw)} is not analysed`);
  }
  return pieces;

  function doubleQuoted(): string {
    let text = '';
    while (raw[at] !== '"') {
      const char = raw[at];
      if (char === undefined || char === '`') throw new Unclear('a quoted text is computed or does not end');
      if (char === '$') {
        if (PLAIN_AFTER_DOLLAR.test(raw.slice(at + 1))) text += raw[at++];
        else text += variable('quoted');
      } else if (char === '\\') {
        const next = raw[at + 1] ?? '';
        text += /[$`"\\]/.test(next) ? next : next === '\n' ? '' : `\\${next}`;
        at += 2;
      } else {
        text += char;
        at++;
      }
    }
    at++;
    return text;
  }

  function variable(how: 'quoted' | 'bare'): string {
    const found = take(/\$(?:([a-z]\w*)|\{[a-z]\w*\})/y);
    const value = found === undefined ? found : context.variables.get(found.replaceAll(/[${}]/g, ''));
    if (value === undefined) throw new Unclear(`${found ?? raw} is computed`);
    if (how === 'bare' && (value.isMatch || value.text === '' || /[\s*?[\\]/.test(value.text)))
      throw new Unclear(`the shell splits or expands the value of ${found}`);
    return value.text;
  }
}

/* Files */

/** What the analysis may see of the file system. */
export interface Files {
  /** Something was looked up, so another time the answer may be another one. */
  readonly isUsed: boolean;
  /** Undefined: there is nothing of that name. */
  kindOf(file: string): 'file' | 'folder' | 'link' | undefined;
  /** Whether a file has this size, and this time of its last change. */
  isUnchanged(file: string, size: number, seconds: number): boolean;
  /** The bytes of a file, empty if there is none. Throws `Unclear` if it is too large. */
  bytesOf(file: string): Buffer;
  /** Throws `NeedsFiles` if folders must not be read here. */
  namesIn(folder: string): readonly { readonly name: string; readonly isFolder: boolean; readonly isLink: boolean }[];
  /** Whether there is a repository below a folder, besides that of the folder. Throws as `namesIn` does. */
  hasRepositoryBelow(folder: string): boolean;
}

const MAX_BYTES = 32 * 1024 * 1024;
/** Looking for one name takes less than what other entries are read for. */
const MAX_NAMES = 300_000;

export function filesWith(budget: Budget, { mayList }: { readonly mayList: boolean }): Files {
  let isUsed = false;
  return {
    get isUsed() {
      return isUsed;
    },
    kindOf(file) {
      isUsed = true;
      spend(budget, 1);
      let found;
      try {
        found = lstatSync(file, { throwIfNoEntry: false });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOTDIR') throw new Unclear(`${file} cannot be looked up`);
      }
      if (!found) return undefined;
      return found.isSymbolicLink() ? 'link' : found.isDirectory() ? 'folder' : 'file';
    },
    isUnchanged(file, size, seconds) {
      isUsed = true;
      const found = lstatSync(file, { throwIfNoEntry: false });
      return found?.size === size && Math.floor(found.mtimeMs / 1000) === seconds;
    },
    bytesOf(file) {
      isUsed = true;
      const found = lstatSync(file, { throwIfNoEntry: false });
      if (!found?.isFile()) return Buffer.alloc(0);
      if (found.size > MAX_BYTES) throw new Unclear(`${file} is too large to be looked at`);
      return readFileSync(file);
    },
    namesIn(folder) {
      if (!mayList) throw new NeedsFiles();
      isUsed = true;
      const entries = entriesIn(folder);
      spend(budget, entries.length + 10, 'entries');
      return entries.map((entry) => ({
        name: entry.name,
        isFolder: entry.isDirectory(),
        isLink: entry.isSymbolicLink(),
      }));
    },
    hasRepositoryBelow(folder) {
      if (!mayList) throw new NeedsFiles();
      isUsed = true;
      let left = MAX_NAMES;
      const open = [folder];
      for (let next = open.pop(); next !== undefined; next = open.pop()) {
        const entries = entriesIn(next);
        left -= entries.length;
        if (left < 0) throw new Unclear('there are too many files to look for repositories among them');
        for (const entry of entries) {
          if (entry.name.toLowerCase() === '.git') {
            if (next !== folder) return true;
          } else if (entry.isDirectory()) open.push(`${next}/${entry.name}`);
        }
      }
      return false;
    },
  };
}

function entriesIn(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return [];
  }
}

/** `..` is left to the system, because it may follow a link. */
function placeOf(folder: string, file: string): string {
  return file.startsWith('/') ? file : `${folder}/${file}`;
}

/** The files that match, as the shell finds them. */
function matchesOf(pieces: readonly Piece[], text: string, { folder, files }: WordContext): string[] {
  if (folder === undefined) throw new Unclear(`it is not known which files ${text} matches`);
  if (pieces.some((piece) => !piece.isGlob && /[*?{}]/.test(piece.text)) || text.endsWith('/'))
    throw new Unclear(`the pattern ${text} is not analysed`);
  let found = [''];
  for (const [index, component] of text.split('/').entries()) {
    const glob = component.includes('*') && compileGlob(component.replaceAll(/\*+/g, '*'));
    found = found.flatMap((base) => {
      const start = index === 0 ? base : `${base}/`;
      if (!glob) return start + component;
      const isLast = text.split('/').length === index + 1;
      const entries = files.namesIn(placeOf(folder, start)).filter((one) => isLast || one.isFolder || one.isLink);
      // Some versions of shells also find the folder and the one above.
      const names = ['.', '..', ...entries.map(({ name }) => name)];
      const isHidden = component.startsWith('.');
      const matches = names.filter((name) => name.startsWith('.') === isHidden && matchesGlob(glob, [name]));
      // Whether a mark stands for a byte or for a character depends on the language.
      if (matches.some((name) => name.includes('\ufffd'))) throw new Unclear(`the names in ${start} are not known`);
      return matches.map((name) => start + name);
    });
  }
  // Names after a star have to exist.
  found = found.filter((file) => files.kindOf(placeOf(folder, file)));
  if (found.length > 500) throw new Unclear(`${text} matches too many files`);
  return found.length === 0 ? [text] : found.sort();
}
