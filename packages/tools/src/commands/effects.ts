/*
 * What the arguments of programs mean: the kinds that the table of programs.ts names, and rules for programs whose arguments
 * depend on each other. They report what is touched, and throw `Unclear` for whatever they do not know.
 */
import path from 'node:path/posix';
import { demandNoPrivate } from './repositories.ts';
import {
  checkSetting,
  demandNoMatch,
  isEmpty,
  isPlain,
  joined,
  kindOf,
  note,
  touch,
  touchTree,
  Unclear,
  withTop,
  type Scope,
} from './scope.ts';
import { isAwk, isSed } from './scripts.ts';

/** A program that would run. */
export interface Call {
  readonly name: string;
  readonly args: readonly string[];
  readonly scope: Scope;
  /** Starts another program. There is no shell between, so builtins are programs. */
  run(args: readonly string[]): void;
  /** Runs code in another shell. */
  code(text: string, how: { readonly posix: boolean }): void;
}

export interface Parsed {
  readonly operands: readonly string[];
  readonly options: ReadonlySet<string>;
  readonly values: readonly { readonly option: string; readonly value: string; readonly kind: string }[];
  /** How many operands stand before `--`. */
  readonly before: number;
}

type Use = (text: string, call: Call) => void;

/** Patterns of names that are never private by their ending. */
const SOURCE_FILES =
  /^\*\.((test|spec|d)\.)?(tsx?|jsx?|mjs|cjs|mts|py|rb|go|rs|java|kt|c|h|cc|cpp|hpp|cs|sh|md|txt|css|scss|html?|vue|svelte|sql|log|tmp|bak|pyc|o|map|snap|csv)$/;

/** What an argument means, by the names in the table. */
export const KINDS: Readonly<Record<string, Use>> = {
  /** Nothing by itself: a pattern, a text, another program, what a rule looks at. */
  ...each(['text', 'words', 'command'], () => {}),
  number: matching(/^[-+]?\d+(\.\d+)?[a-zA-Z]?$/),
  /** A plain word: a script, a branch. */
  name: matching(/^\w[\w.:@/+~^-]*$/),
  mode: matching(/^(0?[0-7]{3}|[ugoa]*[-+=][rwxX]+)$/),
  time: matching(/^\+/),
  target: matching(/^[\w.-]+$|^[A-Z_]+=(\d+|yes|no|true|false)$/),
  /** `@` would mean a file. */
  data: matching(/^[^@]/),
  /** The only ways of jq to open a file by itself. */
  jq: matching(/^(?![^]*\b(import|include|modulemeta)\b)/),
  sed: matching({ test: isSed }),
  awk: matching({ test: isAwk }),
  /** Neither a path, an address, nor the name of a file or folder, which would be installed instead. A version begins with no dot. */
  package(text, call) {
    matching(
      /^(?!.*\.(t?gz|tar|whl|zip|t?bz2?|t?xz|t?lz|lzma)(\[|$))(@[\w.-]+\/)?\w[\w.-]*(\[[\w,]+\])?([@=<>~!]{1,2}[\w*^~][\w.*^~-]*)?$/i,
    )(text, call);
    // Pip takes extras from the end of a path.
    if ([text, text.replace(/\[.*/, '')].some((one) => kindOf(one, call.scope) !== 'none'))
      throw new Unclear(`${text} is a file or folder too`);
  },
  read(text, call) {
    checkFile(text, call);
    if (text !== '-') touch('read', text, call.scope);
  },
  /** One file: a folder would be searched. */
  file(text, call) {
    if (text !== '-' && !isPlain(text, call.scope))
      throw new Unclear(`it is not known which files of ${text} ${call.name} reads`);
    KINDS['read']!(text, call);
  },
  /** Unzip adds an ending to what has none, and looks for files that match. */
  zip(text, call) {
    matching(/^[^*?[\\]+\.zip$/i)(text, call);
    KINDS['read']!(text, call);
  },
  write: (text, { scope }) => touch('write', text, scope),
  tree(text, call) {
    checkFile(text, call);
    touchTree(text, call.scope);
  },
  /** All sources in a folder. The programs print lines of them. */
  go: sources(/\.go$/i),
  python: sources(/\.(pyi?|ipynb|toml)$/i),
  /** With everything below, also a repository. */
  remove(text, { name, scope }) {
    if (/^:|[*?[\\]/.test(text)) throw new Unclear(`${text} has a meaning for ${name} that is not analysed`);
    touch('write', text, scope);
    const repository = joined(text, '.git');
    if (!['none', 'unknown'].includes(kindOf(repository, scope))) touch('write', repository, scope);
  },
  /** Code that the program runs. */
  script(text, { name, scope }) {
    if (/^(-|\/dev\/|\/proc\/|inspect$)/.test(text)) throw new Unclear(`${name} runs what it reads`);
    note('read', text, scope);
  },
  /** An argument of code that is not known. */
  free(text, call) {
    if (text.startsWith('@')) throw new Unclear(`${call.name} may read arguments from ${text.slice(1)}`);
    touchNamed(text, call);
  },
  /** A package of the folder: others are downloaded. */
  local(text, { name, scope }) {
    if (!/^\.[^@]*$|^[\w/-]+\.go$/.test(text)) throw new Unclear(`${name} may download ${text}`);
    touch('read', text, scope);
  },
  /** Programs expand brackets and braces, and read other characters in different ways. */
  url(text, call) {
    matching(/^https?:\/\/[\w.-]+(:\d+)?([/?#][\w./?#:@!$&'()*+,;=%~-]*)?$/)(text, call);
    call.scope.found.urls.add(text);
  },
  /** A path for git, which has patterns and signs of its own. */
  pathspec(text, { scope }) {
    if (/^(:|$)/.test(text) || (/[*?[\\]/.test(text) && !SOURCE_FILES.test(path.basename(text))))
      throw new Unclear(`${text} has a meaning for git that is not analysed`);
    touch('read', text, scope);
  },
  /** A commit, a file of a commit, or a path. */
  revision(text, call) {
    if (/^(:|$)|:.*:|[{}]/.test(text)) throw new Unclear(`${text} has a meaning for git that is not analysed`);
    const [, file] = /^[^:]*:(?:\.?\/)?([^]*)$/.exec(text) ?? [];
    // From the top of the repository, or with `./` from here.
    if (file !== undefined) touch('read', file || '.', withTop(call.scope));
    else if (/[*?[\\]/.test(text) || kindOf(text, call.scope) !== 'none') KINDS['pathspec']!(text, call);
  },
  repository(text, call) {
    const host = /^[\w.-]+@([\w.-]+):(?!:)[\w./~-]+$/.exec(text)?.[1];
    if (/^https?:/.test(text)) KINDS['url']!(text, call);
    else if (host !== undefined) call.scope.found.urls.add(`ssh://${host}`);
    else if (!/^\w[\w.-]*$/.test(text) || isLocalRepository(text, call.scope))
      throw new Unclear(`the repository ${text} is not known`);
  },
};

function matching(pattern: Pick<RegExp, 'test'>): Use {
  return (text, { name }) => {
    if (!pattern.test(text)) throw new Unclear(`the argument ${text} of ${name} is not known`);
  };
}

function sources(pattern: RegExp): Use {
  return (text, call) => {
    checkFile(text, call);
    touchTree(text, call.scope, (name, isFolder) => (isFolder ? name !== '.git' : pattern.test(name)));
  };
}

/** Programs read lists of arguments from `@FILE`, fetch addresses, and take what is before a colon for a machine. */
function checkFile(text: string, { name }: Call): void {
  if (/^@|^[^/]*:|^\/inet/i.test(text)) throw new Unclear(`${name} may take ${text} for something else than a file`);
}

/** The name of a remote may also be one of a folder or an archive, whose hooks git runs without the settings of commands. */
function isLocalRepository(name: string, scope: Scope): boolean {
  const names = [name, `${name}.git`, `${name}.bundle`];
  const isWritten = [...scope.found.touches.values()].some(
    (one) => one.type === 'write' && one.path.split('/').some((part) => names.includes(part)),
  );
  return isWritten || names.some((one) => kindOf(one, withTop(scope)) !== 'none');
}

/** Reports everything that an argument may name. */
export function touchNamed(text: string, { scope }: Pick<Call, 'scope'>): void {
  const { paths, urls } = namesIn(text);
  for (const url of urls) scope.found.urls.add(url);
  for (const file of paths) touch('read', file, scope);
}

/** Paths and addresses that an argument of any program may name: `a/b`, `--file=a/b`, `-fa/b`, `@a/b`. */
export function namesIn(text: string): { readonly paths: readonly string[]; readonly urls: readonly string[] } {
  const parts = [text, text.replace(/^[^=]*=/, ''), text.replace(/^--?\w/, '')].map((part) => part.replace(/^@/, ''));
  const isUrl = (part: string): boolean => /^[a-z][a-z0-9+.-]*:\/\/[^\s]+$/i.test(part);
  const isPath = (part: string): boolean =>
    /^\.{0,2}\/|^~|^\.\.?$|^id_/.test(part) || (/[/.]/.test(part) && !/^-|\s/.test(part));
  const paths = parts.filter((part) => !isUrl(part) && isPath(part));
  return { paths: [...new Set(paths)], urls: [...new Set(parts.filter(isUrl))] };
}

/* Rules, by the names in the table. */

export const RULES: Readonly<Record<string, (call: Call, parsed: Parsed) => void>> = {
  /** The first operand is a pattern, unless an option has it. */
  ...each(['grep', 'rg'], (call, { operands, options, values }) => {
    const files = options.has('-e') || options.has('--files') ? operands : operands.slice(1);
    const isRg = call.name === 'rg';
    if (!isRg && !options.has('-r')) return files.forEach((file) => KINDS['read']!(file, call));
    if (files.length === 0 && isRg && call.scope.hasInput === true && !options.has('--files')) return;
    const included = values.flatMap(({ option, value }) => (option === '--include' ? value : []));
    // Its order with --exclude decides, and globs, types and files in the folder bring names back that rg ignores.
    const isAny = isRg ? !options.has('--files') : included.length === 0 || options.has('--exclude');
    const isRead = (name: string, isFolder: boolean): boolean => isAny || (isFolder ? !isRg : mayMatch(name, included));
    for (const file of files.length === 0 ? ['.'] : files) touchTree(file, call.scope, isRead);
  }),
  sed(call, { operands, options, values }) {
    const isInPlace = options.has('-i') || options.has('--in-place');
    // On other systems the next argument belongs to it, and what follows is the script.
    if (isInPlace && process.platform !== 'linux') throw new Unclear('the script of sed -i is not known here');
    if (values.length === 0) {
      demandNoMatch(operands[0] ?? '', call.scope);
      KINDS['sed']!(operands[0] ?? '', call);
    }
    for (const file of values.length === 0 ? operands.slice(1) : operands) {
      KINDS['read']!(file, call);
      if (isInPlace) touch('write', file, call.scope);
    }
  },
  cp(call, { operands, options }) {
    copyInto(call, operands);
    if (!['-r', '-R', '-a', '--recursive', '--archive'].some((one) => options.has(one))) return;
    for (const source of operands.slice(0, -1)) {
      touchTree(source, call.scope);
      // A file is written through a link that has its name.
      const target = joined(operands.at(-1)!, path.basename(source));
      if (kindOf(target, call.scope) !== 'none') throw new Unclear(`links in ${target} may lead elsewhere`);
    }
    call.scope.found.linker = call.name;
  },
  ...each(['mv', 'git mv'], (call, { operands }) => {
    const sources = operands.slice(0, -1);
    for (const source of sources) {
      touchTree(source, call.scope);
      touch('write', source, call.scope);
    }
    copyInto(call, operands);
    // A file that an earlier part of the command writes is not there yet, and is no link.
    if (sources.some((source) => !isPlain(source, call.scope))) call.scope.found.linker = call.name;
  }),
  /** An archive chooses the names of files, so it gets a folder without a repository and without our configuration. */
  ...each(['tar x', 'unzip'], (call, { options, values }) => {
    if (options.has('-l')) return;
    const [folder, ...more] = values.flatMap(({ kind, value }) => (kind === 'write' ? value : []));
    if (folder === undefined || more.length > 0 || /^(\.?\/?)*$|\.\./.test(folder))
      throw new Unclear('an archive chooses which files are written: extract it into a folder of its own');
    // Files are written through links that are there.
    if (!isEmpty(folder, call.scope)) throw new Unclear(`it is not known what ${call.name} replaces in ${folder}`);
    call.scope.found.linker = call.name;
    call.scope.found.newRepositories = 'unpacked';
  }),
  /** What it passes on is not known. */
  xargs({ run }, { operands }) {
    if ((operands[0] ?? 'echo') !== 'echo') throw new Unclear('it is not known what xargs passes on');
    run(operands.length > 0 ? operands : ['echo']);
  },
  /** It searches the files that git knows, also private ones. */
  'git grep'({ scope }, { operands, before }) {
    const files = operands.slice(before);
    if (files.length === 0 && operands.length > 1)
      throw new Unclear('it is not known which files git grep reads: name them after --');
    for (const file of files.length === 0 ? ['.'] : files)
      touchTree(file, scope, (name) => name !== '.git' && name !== 'node_modules');
  },
  ...each(['git log', 'git show', 'git diff'], ({ name, scope }, { operands, options, before }) => {
    const isDiff = name === 'git diff';
    const isSummary = name === 'git log' || [...options].some((one) => /^--(\w*stat|name-.*)$/.test(one));
    const isPath = (text: string, at: number): boolean => at >= before || kindOf(text, scope) !== 'none';
    const paths = operands.filter(isPath);
    // Outside a repository, and if one of the paths is, it compares all files of two folders.
    if (
      isDiff &&
      (operands.some((one) => /^\/|(^|\/)\.\.(\/|$)/.test(one)) ||
        kindOf('.git', { ...scope, folders: [''] }) === 'none')
    )
      for (const file of operands) if (kindOf(file, scope) !== 'none') touchTree(file, scope);
    // What is named by `COMMIT:FILE` is one file.
    if (operands.length > 0 && operands.every((text) => /.:./.test(text))) return;
    if (isSummary && !options.has('-p') && !options.has('--unified')) return;
    const isOfIndex = paths.length < operands.length || options.has('--cached') || options.has('--staged');
    demandNoPrivate(paths, isDiff && !isOfIndex, scope);
  }),
  'git clone'({ scope }, { operands: [repository = '', folder] }) {
    const name = /^[^?#]*[/:]([\w.-]+?)(\.git)?\/?$/.exec(repository)?.[1];
    // Without a path, git takes a port away.
    if (name === undefined || /^\.*$/.test(name) || /^(https?:\/\/)?[^/]*:\d+\/?$/.test(repository))
      throw new Unclear('it is not known where git clones to');
    if (folder === undefined) touch('write', name, scope);
  },
};

function each<T>(names: readonly string[], one: T): Record<string, T> {
  return Object.fromEntries(names.map((name) => [name, one]));
}

/** Whether one of the patterns may match a name. */
function mayMatch(name: string, patterns: readonly string[]): boolean {
  return patterns.some((one) => !SOURCE_FILES.test(one) || name.toLowerCase().endsWith(one.slice(1).toLowerCase()));
}

/** The last operand may be a folder. */
function copyInto({ name, scope }: Call, operands: readonly string[]): void {
  const target = operands.at(-1);
  const sources = operands.slice(0, -1);
  if (target === undefined || sources.length === 0) throw new Unclear(`${name} has no target`);
  const isFile = !/(^|\/)(\.\.?)?$/.test(target) && isPlain(target, scope);
  if (sources.length === 1 && isFile) return;
  for (const source of sources.map((one) => path.basename(one))) {
    if (/^\.{0,2}$/.test(source)) throw new Unclear(`it is not known what ${name} writes into ${target}`);
    touch('write', joined(target, source), scope);
  }
}

/* Programs whose arguments have a form of their own. */

const FIND_TEST = String.raw`-(?:(?:i?name|i?path|type|size|mtime|mmin|perm|printf)\0[^\0]*|(?:max|min)depth\0\d+|a|o|not|print0?|prune|empty|quit)\0|[()!]\0`;
/** Roots, tests, and at most one action, which has to be the last. Each argument ends with NUL. */
const FIND = new RegExp(
  String.raw`^((?:[^-()!,\0][^\0]*\0)*)((?:${FIND_TEST})*)(-delete\0|-exec\0((?:(?![;+]\0)[^\0]*\0)+)[;+]\0)?$`,
);

function find(call: Call): void {
  const { args, scope, run } = call;
  const [whole, roots = '', tests = '', action, command = ''] = FIND.exec([...args, ''].join('\0')) ?? [];
  if (whole === undefined) throw new Unclear('a test of find is not known, or it acts before its last test');
  const named = [...tests.matchAll(/(?<=^|\0)-i?name\0([^\0]*)/g)].map(([, name = '']) => name);
  const isPlainName = named.length > 0 && named.every((name) => SOURCE_FILES.test(name));
  const isBounded = isPlainName && !/(^|\0)(-o|-not|!)\0/.test(tests);
  for (const root of roots === '' ? ['.'] : roots.slice(0, -1).split('\0')) {
    KINDS['read']!(root, call);
    if (action === '-delete\0') KINDS[isBounded ? 'write' : 'remove']!(root, call);
    if (command === '') continue;
    const words = command.slice(0, -1).split('\0');
    const isFile = /(^|\0)-type\0f\0/.test(tests);
    if (!isFile || !isBounded || words.some((text) => text !== '{}' && text.includes('{}')))
      throw new Unclear('it is not known which files find passes on: use -type f and -name with an ending');
    touchTree(root, scope, (name, isFolder) => (isFolder ? name !== '.git' : mayMatch(name, named)));
    for (const name of named) run(words.map((text) => (text === '{}' ? joined(root, `NAME${name.slice(1)}`) : text)));
  }
  if ([...scope.found.touches.values()].some((one) => one.type === 'write' && one.path.includes('/NAME.')))
    throw new Unclear('it is not known which files find changes');
}

function env({ args, run }: Call): void {
  const count = args.findIndex((text) => !/^\w+=/.test(text));
  const settings = count === -1 ? args : args.slice(0, count);
  settings.forEach(checkSetting);
  if (args[settings.length]?.startsWith('-')) throw new Unclear('an option of env is not known');
  if (count !== -1) run(args.slice(count));
}

/** `sh -c CODE`, `sh -n FILE`, `sh FILE ARGUMENTS`; also as the tools start a shell: `bash --norc -c -- CODE`. */
const SHELL =
  /^(?:bash\0--norc|(?:ba|da)?sh)\0(?:-[eu]*c\0(?:--\0)?(?<code>[^\0]*)\0|-n\0(?<file>[^\0]*)\0|(?<script>[^-+\0][^\0]*)\0(?<rest>[^]*))$/;

function shell(call: Call): void {
  const { name, args, scope } = call;
  const { code, file, script, rest = '' } = SHELL.exec([name, ...args, ''].join('\0'))?.groups ?? {};
  if (code !== undefined) call.code(code, { posix: name !== 'bash' });
  else if (file !== undefined) touch('read', file, scope);
  else if (script !== undefined) {
    KINDS['script']!(script, call);
    for (const arg of rest.split('\0')) touchNamed(arg, call);
  } else throw new Unclear(`${name} runs code that is not known`);
}

export const FORMS: ReadonlyMap<string, (call: Call) => void> = new Map([
  ['env', env],
  ['find', find],
  ...['sh', 'dash', 'bash'].map((name) => [name, shell] as const),
]);
