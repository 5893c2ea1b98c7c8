/*
 * Reads the arguments of a program by its entry in the table. An option is known by its exact spelling: neither beginnings of
 * long options nor unknown letters in a cluster are accepted.
 */
import path from 'node:path/posix';
import { Unclear, type Arg } from './words.ts';

/** What an argument means. */
export type Kind =
  /** Nothing: a pattern, a format, a name. */
  | 'text'
  | 'number'
  /** A plain word: the name of a target, a script or a branch. */
  | 'name'
  | 'read'
  | 'write'
  /** Read with everything below it. */
  | 'tree'
  /** Removed with everything below it. */
  | 'remove'
  /** Both read and removed. */
  | 'move'
  /** Code that the program runs. */
  | 'script'
  /** An argument of code that is not known. It may be a path or an address. */
  | 'free'
  | 'url'
  /** A revision or a path of git, a path only, a repository, and the range of `git log -L`. */
  | 'revision'
  | 'pathspec'
  | 'repository'
  | 'range'
  /** The name of a package, without a path or an address. */
  | 'package';

export interface Spec {
  /** Letters of options without a value, which can stand together: `la` means `-l`, `-a` and `-la`. */
  readonly flags?: string;
  /** Longer options without a value. `--color=` can also have a value, which means nothing. */
  readonly words?: string;
  /** Options with a value, by what it means. */
  readonly values?: Readonly<Partial<Record<Kind, string>>>;
  /** `-20` is a number of lines. */
  readonly lines?: true;
  /** What the operands mean, in order; the last entry stands for all further ones. Empty: none are allowed. Absent: see `check`. */
  readonly operands?: readonly Kind[];
  /** What the last of several operands means. */
  readonly last?: Kind;
  /** What it acts on without an operand. */
  readonly alone?: readonly [Kind, string];
  /** Options end at the first operand: the rest belongs to something else. */
  readonly stops?: true;
  /** Looks at the whole. */
  readonly check?: (call: Call, parsed: Parsed) => void;
  /** The first operand chooses. */
  readonly verbs?: Readonly<Record<string, Spec>>;
}

export interface Parsed {
  readonly operands: readonly Arg[];
  readonly options: ReadonlySet<string>;
  readonly values: readonly { readonly option: string; readonly value: Arg }[];
  /** How many operands stand before `--`. */
  readonly before: number;
}

/** A program that would run, and how to report what it does. */
export interface Call {
  readonly name: string;
  readonly args: readonly Arg[];
  /** Text on standard input. Undefined: it is not known. Null: it is not redirected. */
  readonly stdin: string | undefined | null;
  read(arg: Arg): void;
  write(arg: Arg): void;
  /** Reads everything below. `names` says which names of files and folders are looked at. */
  tree(arg: Arg, names?: (name: string, isFolder: boolean) => boolean): void;
  script(arg: Arg): void;
  url(url: string): void;
  kindOf(arg: Arg): 'file' | 'folder' | 'link' | 'none' | 'unknown';
  /** The same program in another folder. */
  inFolder(folder: Arg): Call;
  /** Another program. */
  run(args: readonly Arg[]): void;
  code(text: string, how: { readonly posix: boolean }): void;
  assign(name: string, value: string): void;
  /** Paths may lead elsewhere from here on: links may have been created. */
  reshape(): void;
  /** Any file of the folder of the command may be written. */
  writeAll(): void;
  /** Whether the folder may belong to another repository, which has settings of its own. */
  isInside(): boolean;
}

export function literal(text: string): Arg {
  return { text, home: false };
}

export function joinedArg(folder: Arg, name: string): Arg {
  return { text: `${folder.text.replace(/(?<=[^/])\/+$/, '')}/${name}`, home: folder.home };
}

/** Reports what a program does, by its entry. */
export function applySpec(call: Call, spec: Spec, args: readonly Arg[] = call.args): void {
  const parsed = parseArgs(call, spec, args);
  const { operands, values } = parsed;
  for (const { option, value } of values) use(call, optionsOf(spec).get(option)!, value);
  if (spec.verbs) {
    spec.check?.(call, parsed);
    applyVerb(call, spec.verbs, parsed);
    return;
  }
  const kinds = spec.operands;
  for (const [at, operand] of kinds ? operands.entries() : []) {
    const kind =
      spec.last && at > 0 && at === operands.length - 1 ? spec.last : kinds?.[Math.min(at, kinds.length - 1)];
    if (kind === undefined) throw new Unclear(`the argument ${operand.text} of ${call.name} is not known`);
    use(call, kind === 'revision' && at >= parsed.before ? 'pathspec' : kind, operand);
  }
  if (operands.length === 0 && spec.alone) use(call, spec.alone[0], literal(spec.alone[1]));
  spec.check?.(call, parsed);
}

function applyVerb(call: Call, verbs: NonNullable<Spec['verbs']>, { operands: [verb, ...rest], values }: Parsed): void {
  if (!verb) return;
  const chosen = Object.hasOwn(verbs, verb.text) ? verbs[verb.text] : undefined;
  if (!chosen) throw new Unclear(`${call.name} ${verb.text} is not known`);
  const folders = values.flatMap(({ option, value }) => (option === '-C' ? value : []));
  const place = folders.reduce<Call>((at, folder) => at.inFolder(folder), call);
  if (call.name === 'git' && place.isInside())
    throw new Unclear('a repository inside may have settings that run programs');
  applySpec({ ...place, name: `${call.name} ${verb.text}` }, chosen, rest);
}

const tables = new WeakMap<Spec, ReadonlyMap<string, Kind>>();

function optionsOf(spec: Spec): ReadonlyMap<string, Kind> {
  let table = tables.get(spec);
  if (!table) {
    const pairs = Object.entries(spec.values ?? {}).flatMap(([kind, names]) =>
      names.split(' ').map((name) => [name, kind as Kind] as const),
    );
    tables.set(spec, (table = new Map(pairs)));
  }
  return table;
}

export function parseArgs(call: Pick<Call, 'name'>, spec: Spec, args: readonly Arg[]): Parsed {
  const table = optionsOf(spec);
  const words = new Set(spec.words?.split(' '));
  const operands: Arg[] = [];
  const options = new Set<string>();
  const values: { option: string; value: Arg }[] = [];
  let before: number | undefined;
  const take = (option: string, value: Arg | undefined): void => {
    if (!value) throw new Unclear(`the option ${option} of ${call.name} has no value`);
    options.add(option);
    values.push({ option, value });
  };
  for (let at = 0; at < args.length; at++) {
    const arg = args[at]!;
    const { text } = arg;
    const equals = text.startsWith('--') ? text.indexOf('=') : -1;
    const name = equals === -1 ? text : text.slice(0, equals);
    if (before !== undefined || !text.startsWith('-') || text === '-' || arg.home) {
      if (spec.stops || (spec.verbs && before === undefined)) {
        operands.push(...args.slice(at));
        break;
      }
      operands.push(arg);
    } else if (text === '--') before = operands.length;
    else if (words.has(text) || (spec.lines && /^-\d+$/.test(text))) options.add(text);
    else if (words.has(`${name}=`)) options.add(name);
    else if (table.has(name)) take(name, equals === -1 ? args[++at] : literal(text.slice(equals + 1)));
    else if (text.startsWith('--')) throw new Unclear(`the option ${name} of ${call.name} is not known`);
    else at += cluster(text, args[at + 1]);
  }
  return { operands, options, values, before: before ?? operands.length };

  /** Returns 1 if the next argument is a value. */
  function cluster(text: string, next: Arg | undefined): 0 | 1 {
    for (let at = 1; at < text.length; at++) {
      const option = `-${text[at]}`;
      if (spec.flags?.includes(text[at]!)) options.add(option);
      else if (table.has(option)) {
        const attached = text.slice(at + 1);
        take(option, attached === '' ? next : literal(attached));
        return attached === '' ? 1 : 0;
      } else throw new Unclear(`the option ${option} of ${call.name} is not known`);
    }
    return 0;
  }
}

function use(call: Call, kind: Kind, arg: Arg): void {
  const { text } = arg;
  switch (kind) {
    case 'text':
      return;
    case 'number':
      if (!/^[-+]?\d+(\.\d+)?[a-zA-Z]?$/.test(text)) throw new Unclear(`${text} for ${call.name} is not a number`);
      return;
    case 'name':
      if (!/^\w[\w.:@/+~^-]*$/.test(text)) throw new Unclear(`the argument ${text} of ${call.name} is not known`);
      return;
    case 'read':
      noList(call, text);
      if (text !== '-') call.read(arg);
      return;
    case 'write':
      call.write(arg);
      return;
    case 'tree':
      call.tree(arg);
      return;
    case 'remove':
      call.write(arg);
      // Removing a folder removes the repository in it.
      if (!['none', 'unknown'].includes(call.kindOf(joinedArg(arg, '.git')))) call.write(joinedArg(arg, '.git'));
      return;
    case 'move':
      call.tree(arg);
      call.write(arg);
      return;
    case 'script':
      call.script(arg);
      return;
    case 'free':
      noList(call, text);
      useFree(call, arg);
      return;
    case 'url':
      useUrl(call, text);
      return;
    case 'revision':
      useRevision(call, arg);
      return;
    case 'pathspec':
      if (text.startsWith(':') || text === '' || (/[*?[\\]/.test(text) && !SOURCE_FILES.test(path.basename(text))))
        throw new Unclear(`${text} has a meaning for git that is not analysed`);
      call.read(arg);
      return;
    case 'range':
      if (text.includes(':')) call.read(literal(text.slice(text.lastIndexOf(':') + 1)));
      return;
    case 'repository':
      useRepository(call, arg);
      return;
    case 'package':
      if (
        !/^(@[\w.-]+\/)?\w[\w.-]*(\[[\w,]+\])?([@=<>~!]{1,2}[\w.*^~-]+)?$/.test(text) ||
        /\.(t?gz|tar|whl|zip)$/.test(text)
      )
        throw new Unclear(`${call.name} installs from ${text}`);
      return;
    default:
      kind satisfies never;
      throw new Unclear(`an argument of ${call.name} is not known`);
  }
}

/** Many programs read further arguments from a file that is given so. */
function noList({ name }: Call, text: string): void {
  if (text.startsWith('@')) throw new Unclear(`${name} may read arguments from ${text.slice(1)}`);
}

function useUrl(call: Call, text: string): void {
  // Programs expand brackets and braces, and read other characters in different ways.
  if (!/^https?:\/\/[\w.-]+(:\d+)?([/?#][\w./?#:@!$&'()*+,;=%~-]*)?$/.test(text))
    throw new Unclear(`the address ${text} is not analysed`);
  call.url(text);
}

/** Reports everything that the argument may name. */
export function useFree(call: Pick<Call, 'read' | 'url'>, arg: Arg): void {
  if (arg.home) {
    call.read(arg);
    return;
  }
  const { text } = arg;
  for (const part of new Set([text, text.replace(/^[^=]*=/, ''), text.replace(/^--?\w/, '')])) {
    const named = part.replace(/^@/, '');
    if (/^[a-z][a-z0-9+.-]*:\/\/[^\s]+$/i.test(named)) call.url(named);
    else if (/^\.{0,2}\/|^~|^\.\.?$|^id_/.test(named) || (/[/.]/.test(named) && !/^-|\s/.test(named)))
      call.read(literal(named.startsWith('~') ? `./${named}` : named));
  }
}

function useRevision(call: Call, arg: Arg): void {
  const { text } = arg;
  if (text.startsWith(':') || /:.*:/.test(text) || /[{}]/.test(text) || text === '')
    throw new Unclear(`${text} has a meaning for git that is not analysed`);
  const colon = text.indexOf(':');
  if (colon !== -1) call.read(literal(text.slice(colon + 1).replace(/^\.?\//, '') || '.'));
  else if (arg.home || /[*?[\\]/.test(text) || call.kindOf(arg) !== 'none') use(call, 'pathspec', arg);
}

/** Patterns that match no private files. */
export const SOURCE_FILES: RegExp =
  /^\*\.((test|spec|d|module)\.)?(tsx?|jsx?|mjs|cjs|mts|cts|py|rb|go|rs|java|kt|c|h|cc|cpp|hpp|cs|php|swift|sh|md|mdx|txt|css|scss|less|html?|vue|svelte|sql|log|tmp|bak|orig|rej|pyc|o|map|snap|proto|graphql|csv)$/;

function useRepository(call: Call, arg: Arg): void {
  const { text } = arg;
  const host = /^(?:[\w.-]+@)?([\w.-]+):(?!:)[\w./~-]+$/.exec(text)?.[1];
  if (/^https?:/.test(text)) useUrl(call, text);
  else if (host !== undefined && text.includes('@')) call.url(`ssh://${host}`);
  else if (!/^\w[\w.-]*$/.test(text) || call.kindOf(arg) !== 'none')
    throw new Unclear(`the repository ${text} is not known`);
}

function isFolderLike(call: Call, arg: Arg): boolean {
  return /(^|\/)(\.\.?)?$/.test(arg.text) || call.kindOf(arg) !== 'file';
}

/** What is written when sources are copied to a target that may be a folder. */
export function writeInto(call: Call, sources: readonly Arg[], target: Arg): void {
  if (sources.length < 2 && call.kindOf(target) === 'none' && !target.text.endsWith('/')) return;
  if (!isFolderLike(call, target)) return;
  for (const source of sources) {
    const name = path.basename(source.text);
    if (/^\.{0,2}$|^~$/.test(name)) throw new Unclear(`it is not known what ${call.name} writes into ${target.text}`);
    call.write(joinedArg(target, name));
  }
}
