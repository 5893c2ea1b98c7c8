/*
 * Words of a shell command. A word is known only if every shell passes exactly this text, or exactly the files that match it.
 * Everything else throws `Unclear`.
 */
import { compileGlob, matchesGlob } from '@treadle/core/policy';
import { entriesIn, joined, placesOf, spend, statsOf, touch, Unclear, type Scope } from './scope.ts';

type Piece = { readonly text: string; readonly isGlob: boolean };

/**
 * A piece of a word: quoted, escaped, stars, a variable, or a character without a meaning for any shell. Characters that hide text
 * are checked before. Which characters a set in brackets means depends on the language.
 */
const PIECE =
  /'(?<single>[^']*)'|"(?<double>(?:[^"\\`$]|\\[^]|\$(?=["\s|)/])|\$[a-z]\w*|\$\{[a-z]\w*\})*)"|\\(?<escaped>[^\n])|(?<stars>\*+)|\$(?<name>[a-z]\w*)|\$\{(?<braced>[a-z]\w*)\}|(?<plain>[\w./:=@%+,\-^!\]}#]|\P{ASCII}|^\[$|\{|(?<!^|[=:])~|\$$)/guy;

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
  const texts = matchesOf(pieces, text, scope);
  for (const one of texts) scope.found.matched.add(one);
  return { texts, isMatch: true };
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

function readWord(raw: string, { variables, budget, found }: Scope): Piece[] {
  const pieces: Piece[] = [];
  const isExpanded = /,|\.\./.test(raw);
  let at = 0;
  let hasMatch = false;
  for (const { 0: whole, groups = {} } of raw.matchAll(PIECE)) {
    const { single, double, escaped, stars, name = groups['braced'], plain } = groups;
    if (plain === '{' && isExpanded) break;
    const quoted = double?.replaceAll(/\\([^])|\$\{?([a-z]\w*)\}?/g, (escape, char: string, variable?: string) =>
      variable !== undefined ? valueOf(variable, false) : /[$`"\\]/.test(char) ? char : char === '\n' ? '' : escape,
    );
    const text = single ?? quoted ?? escaped ?? stars ?? plain ?? valueOf(name!, true);
    pieces.push({ text, isGlob: stars !== undefined });
    at += whole.length;
  }
  if (hasMatch) found.matched.add(pieces.map((piece) => piece.text).join(''));
  if (at === raw.length) return pieces;
  const why = raw[at] === '~' ? 'is a home folder' : raw[at] === '[' ? 'begins brackets' : 'is not analysed';
  throw new Unclear(`${JSON.stringify(raw[at])} in ${JSON.stringify(raw)} ${why}`);

  function valueOf(name: string, isBare: boolean): string {
    const { text, isMatch } = variables.get(name) ?? {};
    if (text === undefined) throw new Unclear(`$${name} is computed`);
    // Values that contain others twice grow without end.
    spend(budget, text.length / 100);
    hasMatch ||= isMatch === true;
    if (isBare && (isMatch || /^$|[\s*?[\\]/.test(text)))
      throw new Unclear(`the shell splits or expands the value of $${name}`);
    return text;
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
      // What the pattern becomes names what is there, whatever the program does with it.
      if (base !== '') touch('read', base, scope);
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
