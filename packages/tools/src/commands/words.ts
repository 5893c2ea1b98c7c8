/*
 * Words of a shell command, read character by character. A word is known only if every shell passes exactly this text, or
 * exactly the files that match it. Everything else throws `Unclear`.
 */
import { compileGlob, matchesGlob } from '@treadle/core/policy';
import { entriesIn, joined, placesOf, statsOf, Unclear, type Scope } from './scope.ts';

type Piece = { readonly text: string; readonly isGlob: boolean };

/** Characters without a meaning for any shell, inside a word. Others than ASCII are checked before. */
const PLAIN = /[\w./:=@%+,\-^!\]}#]|\P{ASCII}/u;
/** After these a dollar sign is only a dollar sign, in double quotes. */
const PLAIN_AFTER_DOLLAR = /^["\s|)/]/;

/** The arguments that a word becomes. `isMatch`: they are files that match a pattern. */
export function expandWord(
  raw: string,
  scope: Scope,
): { readonly texts: readonly string[]; readonly isMatch: boolean } {
  const document = quotedDocument(raw);
  if (document !== undefined) return { texts: [document], isMatch: false };
  const pieces = readWord(raw, scope);
  const text = pieces.map((piece) => piece.text).join('');
  if (!pieces.some(({ isGlob }) => isGlob)) return { texts: [text], isMatch: false };
  if (pieces[0]!.isGlob || text.startsWith('-') || text === '')
    throw new Unclear(`the pattern ${raw} does not begin with the name of a folder or file`);
  return { texts: matchesOf(pieces, text, scope), isMatch: true };
}

/** The text of a word that becomes one argument and matches no files: a value, the target of a redirection. */
export function literalText(raw: string, scope: Scope): string {
  return readWord(raw, scope)
    .map((piece) => piece.text)
    .join('');
}

/** `"$(cat <<'X' …)"`: a text of several lines as one argument. */
function quotedDocument(raw: string): string | undefined {
  const [, mark, body = ''] = /^"\$\(cat <<'(\w+)'\n([^]*\n)?\1\n?[ \t]*\)"$/.exec(raw) ?? [];
  if (mark === undefined) return undefined;
  if (body.split('\n').includes(mark)) throw new Unclear('a here-document ends before its last line');
  return body.replace(/\n+$/, '');
}

function readWord(raw: string, { variables }: Scope): Piece[] {
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
    } else if (char === '\\') add(take(/\\[^\n]/y)?.[1] ?? computed());
    else if (char === '$') add(raw.length === at + 1 ? take(/\$/y)! : variable('bare'));
    else if (char === '*') add(take(/\*+/y)!, true);
    // Which characters a set means depends on the language.
    else if (char === '[') add(raw === '[' ? take(/\[/y)! : computed('not analysed: brackets'));
    else if (char === '{') add(/,|\.\./.test(raw) ? computed() : take(/\{/y)!);
    else if (char === '~') add(/(^|[=:])$/.test(raw.slice(0, at)) ? computed('a home folder') : take(/~/y)!);
    else add(PLAIN.test(char) ? take(/[^]/y)! : computed());
  }
  return pieces;

  function computed(what = 'not analysed'): never {
    throw new Unclear(`${JSON.stringify(raw[at])} in ${JSON.stringify(raw)} is ${what}`);
  }

  function doubleQuoted(): string {
    let text = '';
    while (raw[at] !== '"') {
      const char = raw[at];
      if (char === undefined || char === '`') computed();
      if (char === '$' && !PLAIN_AFTER_DOLLAR.test(raw.slice(at + 1))) text += variable('quoted');
      else if (char === '\\') text += (take(/\\[^]/y) ?? computed()).replace(/^\\(?:\n|(?=[$`"\\]))/, '');
      else text += raw[at++];
    }
    at++;
    return text;
  }

  function variable(how: 'quoted' | 'bare'): string {
    const found = take(/\$(?:([a-z]\w*)|\{[a-z]\w*\})/y);
    const value = found === undefined ? found : variables.get(found.replaceAll(/[${}]/g, ''));
    if (value === undefined) throw new Unclear(`${found ?? raw} is computed`);
    if (how === 'bare' && (value.isMatch || value.text === '' || /[\s*?[\\]/.test(value.text)))
      throw new Unclear(`the shell splits or expands the value of ${found}`);
    return value.text;
  }
}

/** The files that match, as the shell finds them. */
function matchesOf(pieces: readonly Piece[], text: string, scope: Scope): readonly string[] {
  const [folder, ...others] = placesOf('', scope);
  if (folder === undefined || others.length > 0) throw new Unclear(`it is not known which files ${text} matches`);
  if (pieces.some((piece) => !piece.isGlob && /[*?{}]/.test(piece.text)) || text.endsWith('/'))
    throw new Unclear(`the pattern ${text} is not analysed`);
  const components = text.split('/');
  let found = [''];
  for (const [index, component] of components.entries()) {
    const glob = component.includes('*') && compileGlob(component.replaceAll(/\*+/g, '*'));
    found = found.flatMap((base) => {
      const start = index === 0 ? base : `${base}/`;
      if (!glob) return start + component;
      const isLast = components.length === index + 1;
      const entries = entriesIn(joined(folder, start), scope);
      // Some versions of shells also find the folder and the one above.
      const names = ['.', '..'];
      for (const one of entries) if (isLast || one.isDirectory() || one.isSymbolicLink()) names.push(one.name);
      const isHidden = component.startsWith('.');
      const matches = names.filter((name) => name.startsWith('.') === isHidden && matchesGlob(glob, [name]));
      // Whether a mark stands for a byte or for a character depends on the language.
      if (matches.some((name) => name.includes('\ufffd'))) throw new Unclear(`the names in ${start} are not known`);
      return matches.map((name) => start + name);
    });
  }
  // Names after a star have to exist.
  found = found.filter((file) => statsOf(joined(folder, file), scope));
  if (found.length > 500) throw new Unclear(`${text} matches too many files`);
  return found.length === 0 ? [text] : found.sort();
}
