/*
 * Words of a shell command, expanded as far as that is possible without running anything.
 *
 * 1. A field has a value only if bash would produce exactly this text. Everything else is computed.
 * 2. Every substitution inside a word is handed to `visitScript`, whether the word is used or not.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path/posix';
import type {
  ArithmeticExpression,
  DoubleQuotedChild,
  ParameterExpansionPart,
  ParsedScript,
  Word,
  WordPart,
} from 'unbash';

/** One argument after expansion. */
export interface Field {
  /** Undefined: computed. */
  readonly value: string | undefined;
  /** It begins with an unquoted tilde, which stands for a home folder. */
  readonly home: boolean;
  /** The known text before the first computed part. */
  readonly start: string;
  /** What it might become, such as the text that remains when variables are empty. Only to find destructive forms. */
  readonly guesses: readonly string[];
  /** The name of a pipe, from a process substitution. */
  readonly pipe: boolean;
}

/** What the expansion of a word needs to know, and whom it tells. */
export interface WordContext {
  /** Variables that have one known value here. */
  readonly variables: ReadonlyMap<string, string>;
  /** Every literal text that is assigned to a variable anywhere. Only for guesses. */
  readonly assigned: ReadonlyMap<string, readonly string[]>;
  /** The only folder that globs can start at, absolute; undefined if it is not known. */
  readonly globFolder: string | undefined;
  /** The command runs in a shell that may not be bash. */
  readonly posix: boolean;
  visitScript(script: ParsedScript | undefined): void;
  unclear(reason: string): void;
  /** A variable is assigned to by an expansion. */
  assigns(name: string): void;
  /** The names of files decided about the result, so it must not be cached. */
  usedFiles(): void;
}

type Piece =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'glob'; readonly text: string }
  | { readonly type: 'choice'; readonly texts: readonly string[] }
  | { readonly type: 'computed'; readonly guesses: readonly string[]; readonly pipe?: boolean };

const MAX_FIELDS = 256;
const MAX_MATCHES = 1000;
const COMPUTED: Piece = { type: 'computed', guesses: [''] };
const PLAIN_NAME = /^[A-Za-z_]\w*$/;

export function literalField(value: string): Field {
  return { value, home: false, start: value, guesses: [value], pipe: false };
}

export const COMPUTED_FIELD: Field = { value: undefined, home: false, start: '', guesses: [''], pipe: false };

/** The fields that a word expands to. */
export function expandWord(word: Word, context: WordContext): Field[] {
  const home = word.text.startsWith('~');
  if (hasStrayBrace(word)) {
    for (const part of word.parts ?? []) piecesOf(part, context);
    context.unclear(`the braces in ${word.text} are not analysed`);
    return [COMPUTED_FIELD];
  }
  if (!word.parts) return [{ value: word.value, home, start: word.value, guesses: [word.value], pipe: false }];
  const pieces = word.parts.flatMap((part) => piecesOf(part, context));
  const fields: Field[] = [];
  for (const variant of variantsOf(pieces)) {
    if (fields.length >= MAX_FIELDS) {
      context.unclear('a brace expansion has too many words');
      return [...fields, COMPUTED_FIELD];
    }
    const first = variant[0];
    // $HOME at the start of a word is the home folder.
    fields.push(...fieldsOf(variant, home || (first?.type === 'text' && first === HOME), context));
  }
  return fields;
}

/** Braces that are not a plain expansion. Bash still expands some of them, such as `{a}\{b,c}`. */
function hasStrayBrace({ text, parts }: Word): boolean {
  if (!/,|\.\./.test(text) || !/[{}]/.test(text)) return false;
  const bare = parts ? parts.map((part) => (part.type === 'Literal' ? part.text : '')).join('') : text;
  return /[{}]/.test(bare);
}

/** The text of a word that is neither split nor globbed: an assigned value, a here-string, a here-document. */
export function textOf(parts: readonly WordPart[], context: WordContext): string | undefined {
  let text: string | undefined = '';
  for (const part of parts) {
    for (const piece of piecesOf(part, context)) {
      text =
        text === undefined || piece.type === 'computed' || piece === HOME
          ? undefined
          : text + (piece.type === 'choice' ? part.text : piece.text);
    }
  }
  return text;
}

const HOME: Piece = { type: 'text', text: '~' };

function* variantsOf(pieces: readonly Piece[]): Generator<readonly Piece[]> {
  const at = pieces.findIndex(({ type }) => type === 'choice');
  const choice = pieces[at];
  if (choice?.type !== 'choice') {
    yield pieces;
    return;
  }
  for (const text of choice.texts) {
    yield* variantsOf([...pieces.slice(0, at), { type: 'text', text }, ...pieces.slice(at + 1)]);
  }
}

function fieldsOf(pieces: readonly Piece[], home: boolean, context: WordContext): Field[] {
  let start = '';
  let isKnown = true;
  let hasGlob = false;
  let guesses: string[] = [''];
  let pipe = false;
  for (const piece of pieces) {
    if (piece.type === 'computed') {
      isKnown = false;
      pipe ||= piece.pipe ?? false;
      guesses = guesses.flatMap((guess) => piece.guesses.map((more) => guess + more)).slice(0, MAX_FIELDS);
    } else if (piece.type !== 'choice') {
      hasGlob ||= piece.type === 'glob';
      if (isKnown) start += piece.text;
      guesses = guesses.map((guess) => guess + piece.text);
    }
  }
  if (!isKnown) return [{ value: undefined, home, start, guesses, pipe: pipe && pieces.length === 1 }];
  if (!hasGlob) return [{ value: start, home, start, guesses, pipe: false }];
  return globFields(pieces, { start, home, guesses }, context);
}

function globFields(
  pieces: readonly Piece[],
  { start, home, guesses }: Pick<Field, 'start' | 'home' | 'guesses'>,
  context: WordContext,
): Field[] {
  context.usedFiles();
  const matches = home ? undefined : matchesOf(pieces, context);
  if (!matches) {
    context.unclear(`it is not known which files ${start} matches`);
    return [{ value: undefined, home, start: '', guesses, pipe: false }];
  }
  // Without a match the shell passes the pattern itself.
  if (matches.length === 0) return [{ value: start, home, start, guesses, pipe: false }];
  return matches.map((value) => ({ value, home, start: value, guesses: [value, ...guesses], pipe: false }));
}

/** The files that match, as the shell lists them: hidden files only for a component that begins with a dot. */
function matchesOf(pieces: readonly Piece[], { globFolder }: WordContext): string[] | undefined {
  const pattern = pieces.map((piece) => ('text' in piece ? piece.text : '')).join('');
  // A bracket or an extended pattern that contains a slash is too unusual to be matched here.
  if (
    globFolder === undefined ||
    pieces.some((piece) => piece.type === 'glob' && !/^(\*|\?|\[[^/]*\])+$/.test(piece.text))
  ) {
    return undefined;
  }
  const isAbsolute = pattern.startsWith('/');
  let found = [isAbsolute ? '/' : ''];
  const components = componentsOf(pieces);
  for (const [at, component] of components.entries()) {
    const isLast = at === components.length - 1;
    if (component.expression === undefined) {
      found = found.map((base) => base + component.text + (isLast ? '' : '/'));
      continue;
    }
    const { expression, text } = component;
    const next: string[] = [];
    for (const base of found) {
      let entries;
      try {
        entries = readdirSync(path.resolve(globFolder, base || '.'), { withFileTypes: true });
      } catch {
        continue;
      }
      for (const entry of entries) {
        if (entry.name.startsWith('.') !== text.startsWith('.') || !expression.test(entry.name)) continue;
        if (isLast) next.push(base + entry.name);
        else if (entry.isDirectory() || entry.isSymbolicLink()) next.push(`${base}${entry.name}/`);
        if (next.length > MAX_MATCHES) return undefined;
      }
    }
    found = next;
  }
  return found.sort();
}

function componentsOf(pieces: readonly Piece[]): { readonly text: string; readonly expression: RegExp | undefined }[] {
  const components: { text: string; source: string; isGlob: boolean }[] = [{ text: '', source: '', isGlob: false }];
  for (const piece of pieces) {
    if (!('text' in piece)) continue;
    for (const [at, text] of (piece.type === 'glob' ? [piece.text] : piece.text.split('/')).entries()) {
      if (at > 0) components.push({ text: '', source: '', isGlob: false });
      const last = components.at(-1);
      if (!last) continue;
      last.text += text;
      last.isGlob ||= piece.type === 'glob';
      last.source += piece.type === 'glob' ? globSource(text) : text.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&');
    }
  }
  return components
    .filter(({ text }, at) => text !== '' || at === components.length - 1)
    .map(({ text, source, isGlob }) => ({ text, expression: isGlob ? globExpression(source) : undefined }));
}

/**
 * Between two stars the first match is as good as any later one. A lookahead is not tried again, so the time does not grow
 * exponentially with the number of stars.
 */
function globExpression(source: string): RegExp {
  const [first, ...parts] = source.split('.*');
  const last = parts.pop();
  const middle = parts.map((part, index) => `(?=(.*?${part}))\\${index + 1}`).join('');
  return new RegExp(`^${first}${middle}${last === undefined ? '' : `.*${last}`}$`, 'su');
}

function globSource(text: string): string {
  return text.replaceAll(
    /\*+|\?|\[([!^]?)([^\]]*)\]/g,
    (match, negated: string | undefined, set: string | undefined) => {
      if (match.startsWith('*')) return '.*';
      if (match === '?') return '.';
      // A class in which anything unusual occurs matches every character: too many files rather than too few.
      return set && /^[\w-]+$/.test(set) && !/-.*-|^-|-$/.test(set) && isAscending(set)
        ? `[${negated ? '^' : ''}${set}]`
        : '.';
    },
  );
}

function isAscending(set: string): boolean {
  const range = /(.)-(.)/.exec(set);
  return !range || (range[1] ?? '') <= (range[2] ?? '');
}

function piecesOf(part: WordPart, context: WordContext): Piece[] {
  switch (part.type) {
    case 'Literal':
      return [{ type: 'text', text: part.value }];
    case 'SingleQuoted':
      return [{ type: 'text', text: part.value }];
    case 'AnsiCQuoted':
      if (context.posix || part.text.includes("\\'"))
        context.unclear(`${part.text} has another meaning in sh than in bash`);
      return part.value.includes('\0') ? [COMPUTED] : [{ type: 'text', text: part.value }];
    case 'DoubleQuoted':
      return quotedPieces(part.parts, context);
    case 'LocaleString':
      for (const child of part.parts) piecesOf(child, context);
      context.unclear('a translated string ($"…") depends on files');
      return [COMPUTED];
    case 'SimpleExpansion':
      return [variablePiece(part.text.slice(1), { isQuoted: false }, context)];
    case 'ParameterExpansion':
      return [parameterPiece(part, { isQuoted: false }, context)];
    case 'CommandExpansion':
      context.visitScript(part.script);
      return [{ type: 'computed', guesses: echoGuesses(part.script) }];
    case 'ArithmeticExpansion':
      checkArithmetic(part.expression, context);
      return [COMPUTED];
    case 'ProcessSubstitution':
      context.visitScript(part.script);
      return [{ type: 'computed', guesses: [''], pipe: true }];
    case 'Glob':
      for (const inner of part.parts ?? []) piecesOf(inner, context);
      if (part.parts?.some(({ type }) => type !== 'Literal')) {
        context.unclear(`the pattern ${part.text} is computed`);
        return [COMPUTED];
      }
      return [{ type: 'glob', text: part.value }];
    case 'ExtendedGlob':
      for (const inner of part.parts ?? []) piecesOf(inner, context);
      context.unclear(`the pattern ${part.text} is not analysed`);
      return [COMPUTED];
    case 'BraceExpansion':
      for (const inner of part.parts ?? []) piecesOf(inner, context);
      return [bracePiece(part.text, context)];
    default:
      part satisfies never;
      context.unclear('a part of a word is not known');
      return [COMPUTED];
  }
}

function quotedPieces(parts: readonly DoubleQuotedChild[], context: WordContext): Piece[] {
  if (parts.length === 0) return [{ type: 'text', text: '' }];
  return parts.flatMap((part) => {
    if (part.type === 'SimpleExpansion') return variablePiece(part.text.slice(1), { isQuoted: true }, context);
    if (part.type === 'ParameterExpansion') return parameterPiece(part, { isQuoted: true }, context);
    return piecesOf(part, context);
  });
}

function variablePiece(name: string, { isQuoted }: { isQuoted: boolean }, context: WordContext): Piece {
  const value = context.variables.get(name);
  if (value === HOME_VALUE) return HOME;
  const isSplit = !isQuoted && (value === '' || /[\s*?[\]\\]/.test(value ?? ''));
  if (value !== undefined && !isSplit && !value.startsWith('~')) return { type: 'text', text: value };
  return { type: 'computed', guesses: ['', ...(name === 'HOME' ? ['~'] : []), ...(context.assigned.get(name) ?? [])] };
}

/** The value of HOME as long as the command does not change it. It is no text that a command could assign. */
export const HOME_VALUE = '\0home';

function parameterPiece(part: ParameterExpansionPart, quoted: { isQuoted: boolean }, context: WordContext): Piece {
  const { operation, index, prefix, parameter } = part;
  if (prefix === '!') context.unclear(`${part.text} reads a variable whose name is computed`);
  if (index) checkIndex(index, context);
  if (!operation) {
    return prefix || index ? COMPUTED : variablePiece(parameter, quoted, context);
  }
  switch (operation.type) {
    case 'Default': {
      if (operation.operator.endsWith('=')) context.assigns(parameter);
      const guesses = expandWord(operation.operand, context).flatMap(({ guesses }) => guesses);
      return { type: 'computed', guesses: ['', ...guesses, ...(context.assigned.get(parameter) ?? [])] };
    }
    case 'Remove':
      expandWord(operation.operand, { ...context, globFolder: undefined, unclear: ignorePattern(context) });
      return COMPUTED;
    case 'Replace':
      expandWord(operation.pattern, { ...context, globFolder: undefined, unclear: ignorePattern(context) });
      return {
        type: 'computed',
        guesses: ['', ...expandWord(operation.replacement, context).flatMap(({ guesses }) => guesses)],
      };
    case 'Slice':
      checkIndex(operation.offset, context);
      if (operation.length) checkIndex(operation.length, context);
      return { type: 'computed', guesses: ['', '/'] };
    case 'CaseModification':
      if (operation.operand) expandWord(operation.operand, context);
      return COMPUTED;
    case 'Transform':
      if (!/^[QULuaAEKk]$/.test(operation.operand.value))
        context.unclear(`${part.text} runs code in the value of a variable`);
      return COMPUTED;
    case 'Names':
      return COMPUTED;
    case 'Unknown':
      context.unclear(`the expansion ${part.text} is not known`);
      return COMPUTED;
    default:
      operation satisfies never;
      context.unclear(`the expansion ${part.text} is not known`);
      return COMPUTED;
  }
}

/** Patterns inside of `${x%…}` match text and not files. */
function ignorePattern(context: WordContext): (reason: string) => void {
  return (reason) => {
    if (!/^it is not known which files|^the pattern /.test(reason)) context.unclear(reason);
  };
}

/** The index of an array: `@`, `*`, or arithmetic. */
export function checkIndex(index: Word, context: WordContext): void {
  for (const part of index.parts ?? []) if (part.type !== 'Glob') piecesOf(part, context);
  if (!/^\s*(-?\d+|@|\*|\$#|)\s*$/.test(index.text)) {
    context.unclear(`the index or offset ${index.text} is evaluated, which can run code`);
  }
}

/**
 * Arithmetic evaluates the values of variables again, and an index in such a value can run code. So only numbers, and
 * variables that are known to be numbers, are clear.
 */
export function checkArithmetic(expression: ArithmeticExpression | undefined, context: WordContext): void {
  if (!expression) return;
  switch (expression.type) {
    case 'ArithmeticBinary':
      checkArithmetic(expression.left, context);
      checkArithmetic(expression.right, context);
      return;
    case 'ArithmeticUnary':
      checkArithmetic(expression.operand, context);
      return;
    case 'ArithmeticTernary':
      checkArithmetic(expression.test, context);
      checkArithmetic(expression.consequent, context);
      checkArithmetic(expression.alternate, context);
      return;
    case 'ArithmeticGroup':
      checkArithmetic(expression.expression, context);
      return;
    case 'ArithmeticWord': {
      for (const part of expression.parts ?? []) piecesOf(part, context);
      const name = expression.value.replace(/^\$\{?(\w+)\}?$/, '$1');
      if (/^(0[xX][\da-fA-F]+|\d+(#\w+)?|\$[#?]|)$/.test(expression.value)) return;
      if (PLAIN_NAME.test(name) && isNumberVariable(name, context)) return;
      context.unclear(`arithmetic with ${expression.value} evaluates a value that is not known to be a number`);
      return;
    }
    case 'ArithmeticCommandExpansion':
      context.visitScript(expression.script);
      context.unclear('arithmetic evaluates the output of a command, which can run code');
      return;
    default:
      expression satisfies never;
      context.unclear('an arithmetic expression is not known');
  }
}

/** Only whole numbers are ever assigned to it by this command. */
export function isNumberVariable(name: string, { assigned }: WordContext): boolean {
  const texts = assigned.get(name);
  return texts !== undefined && texts.length > 0 && texts.every((text) => /^\d+$/.test(text));
}

/** What `$(echo …)` prints. */
function echoGuesses(script: ParsedScript | undefined): string[] {
  const command = script?.commands.length === 1 ? script.commands[0]?.command : undefined;
  if (command?.type !== 'Command' || !command.name || !['echo', 'printf'].includes(command.name.value)) return [''];
  return [
    '',
    command.args.map((arg) => (arg.type === 'Word' ? arg.value : arg.text)).join(' '),
    ...command.args.map(({ text }) => text),
  ];
}

function bracePiece(text: string, context: WordContext): Piece {
  if (/["'$\\`<>*?[\]]|(\{[^}]*){9}/.test(text)) {
    context.unclear(`the brace expansion ${text} is not analysed`);
    return COMPUTED;
  }
  const texts = expandBraces(text);
  if (!texts) {
    context.unclear(`the brace expansion ${text} has too many words`);
    return COMPUTED;
  }
  return { type: 'choice', texts };
}

function expandBraces(text: string): string[] | undefined {
  const open = text.indexOf('{');
  const close = closingBrace(text, open);
  if (open === -1 || close === -1) return [text];
  const inner = text.slice(open + 1, close);
  const range = /^(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?$/.exec(inner);
  const choices = range ? rangeOf(range) : commaParts(inner);
  if (!choices) return undefined;
  const tails = expandBraces(text.slice(close + 1));
  const middles = range ? choices : expandEach(choices);
  if (!tails || !middles || middles.length * tails.length > MAX_FIELDS) return undefined;
  const isExpanded = range !== null || choices.length > 1;
  return middles.flatMap((middle) =>
    tails.map((tail) => `${text.slice(0, open)}${isExpanded ? middle : `{${middle}}`}${tail}`),
  );
}

function expandEach(choices: readonly string[]): string[] | undefined {
  const all: string[] = [];
  for (const choice of choices) {
    const texts = expandBraces(choice);
    if (!texts || all.length + texts.length > MAX_FIELDS) return undefined;
    all.push(...texts);
  }
  return all;
}

function closingBrace(text: string, open: number): number {
  let depth = 0;
  for (let at = open; at >= 0 && at < text.length; at++) {
    if (text[at] === '{') depth++;
    else if (text[at] === '}' && --depth === 0) return at;
  }
  return -1;
}

function commaParts(inner: string): string[] {
  const parts = [''];
  let depth = 0;
  for (const char of inner) {
    if (char === '{') depth++;
    else if (char === '}') depth--;
    if (char === ',' && depth === 0) parts.push('');
    else parts[parts.length - 1] += char;
  }
  return parts;
}

function rangeOf([, from = '', to = '', step = '1']: readonly string[]): string[] | undefined {
  const isNumber = /\d/.test(from) && /\d/.test(to);
  if (!isNumber && (/\d/.test(from) || /\d/.test(to))) return undefined;
  const [first, last] = isNumber ? [Number(from), Number(to)] : [from.charCodeAt(0), to.charCodeAt(0)];
  const by = Math.abs(Number(step)) || 1;
  // Leading zeros pad the numbers, and letters of both cases have others between them.
  if (Math.abs(last - first) / by > MAX_FIELDS || /^-?0\d/.test(from) || /^-?0\d/.test(to)) return undefined;
  if (!isNumber && /[a-z]/.test(from) !== /[a-z]/.test(to)) return undefined;
  const values: string[] = [];
  for (let at = first; first <= last ? at <= last : at >= last; at += first <= last ? by : -by) {
    values.push(isNumber ? String(at) : String.fromCharCode(at));
  }
  return values;
}
