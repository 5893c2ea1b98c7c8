/*
 * The grammar of commands that are known completely. It says yes only to what is written here.
 *
 * 1. What is not in the grammar throws `Unclear`. Nothing is skipped, and nothing is guessed.
 * 2. Every program that the shell would start is reported, and every path that a known program touches.
 * 3. An uncertain branch is taken: the facts of all branches are united.
 * 4. Paths and patterns are looked up now. After a program that may create links, no path is known any more.
 */
import path from 'node:path/posix';
import type { CommandFacts, Program } from '@treadle/core/policy';
import {
  parse,
  type Command,
  type ParsedScript,
  type CommandNode,
  type AndOr,
  type PipelineNode,
  type Redirection,
  type Statement,
  type SyntaxNode,
  forEachChild,
} from 'unbash';
import { joinedArg, type Call } from './arguments.ts';
import { analyseProgram, checkPrintf } from './programs.ts';
import {
  expandWord,
  literalText,
  spend,
  Unclear,
  type Arg,
  type Budget,
  type Files,
  type WordContext,
} from './words.ts';

export interface Surroundings {
  /** The folder that the command runs in, absolute. */
  readonly folder: string | undefined;
  readonly files: Files;
  readonly budget: Budget;
  /** Whether a path is private, given absolute. */
  isPrivate(file: string): boolean;
}

/** Code, and what the parser makes of it. */
interface Parsed {
  readonly code: string;
  readonly script: ParsedScript;
}

export type KnownFacts = Pick<CommandFacts, 'programs' | 'touches' | 'urls'>;

/** What a part of a command sees. */
interface Scope {
  /** Folders that it may run in: absolute, or as seen from the one of the command. */
  readonly folders: readonly string[];
  readonly variables: ReadonlyMap<string, string>;
  readonly posix: boolean;
  readonly stdin: Call['stdin'];
}

/** Assignments that change nothing but what a program prints, or how much it does. */
const ASSIGNABLE: Readonly<Record<string, RegExp | undefined>> = Object.assign(Object.create(null), {
  ...Object.fromEntries(
    'CI NODE_ENV FORCE_COLOR NO_COLOR DEBUG PYTHONUNBUFFERED RUST_BACKTRACE GOOS GOARCH CGO_ENABLED PORT LOG_LEVEL COLUMNS'
      .split(' ')
      .map((name) => [name, /^[\w.:*,-]*$/]),
  ),
  ...Object.fromEntries(['LANG', 'LC_ALL'].map((name) => [name, /^(C|POSIX|C\.UTF-8|en_US\.UTF-8)$/])),
  TZ: /^[A-Z]\w+(\/[A-Z]\w+)?$/,
});

/** Names that mean something to a shell or, in the environment, to programs. Names with other characters are never used. */
const SPECIAL_NAMES: ReadonlySet<string> = new Set(
  'argv cdpath fignore fpath histchars mailpath manpath path prompt psvar pipestatus status watch words signals keymap options commands functions aliases parameters reply'.split(
    ' ',
  ),
);

const MAX_DEPTH = 12;

/** Builtins that start nothing and read nothing, with a check of their arguments. */
const BUILTINS: Readonly<Record<string, ((args: readonly string[]) => void) | undefined>> = Object.assign(
  Object.create(null) as Record<string, (args: readonly string[]) => void>,
  {
    ...Object.fromEntries([':', 'true', 'false'].map((name) => [name, () => {}])),
    ...Object.fromEntries(['exit', 'break', 'continue'].map((name) => [name, only(/^\d{0,3}$/, 1)])),
    pwd: only(/^-[LP]$/, 1),
    set: (args: readonly string[]) => only(/^(-[eu]+|-[eu]*o pipefail)( -o pipefail)?$/, 1)([args.join(' ')]),
    command: (args: readonly string[]) => only(/^-v [\w.-]+$/, 1)([args.join(' ')]),
    printf: (args: readonly string[]) => checkPrintf(args),
    test: checkTest,
    '[': (args: readonly string[]) => {
      if (args.at(-1) !== ']') throw new Unclear('a test does not end');
      checkTest(args.slice(0, -1));
    },
  },
);

/** Builtins of any shell that are not analysed. */
const OTHER_BUILTINS: ReadonlySet<string> = new Set(
  'alias autoload bg bind builtin caller compgen complete compopt coproc declare dirs disown emulate enable eval exec fc fg getopts hash help history jobs kill let local logout mapfile popd print pushd read readarray readonly return select shift shopt source suspend time times trap type typeset ulimit umask unalias unset until wait whence where zmodload . { } [[ function if for while case'.split(
    ' ',
  ),
);

function only(pattern: RegExp, most: number): (args: readonly string[]) => void {
  return (args) => {
    if (args.length > most || !args.every((arg) => pattern.test(arg)))
      throw new Unclear(`${args.join(' ')} is not analysed`);
  };
}

/** One test, without names of variables, and without numbers that a shell could evaluate. */
function checkTest(args: readonly string[]): void {
  const [first = '', second = '', third = '', ...more] = args[0] === '!' && args.length > 1 ? args.slice(1) : args;
  const count = args[0] === '!' && args.length > 1 ? args.length - 1 : args.length;
  const isKnown =
    count <= 1 ||
    (count === 2 && /^-[abcdefghknprstuwxzLOGSN]$/.test(first)) ||
    (count === 3 && /^(=|==|!=|-nt|-ot|-ef)$/.test(second)) ||
    (count === 3 && /^-(eq|ne|lt|le|gt|ge)$/.test(second) && [first, third].every((one) => /^-?\d+$/.test(one)));
  if (!isKnown || more.length > 0) throw new Unclear('a test is not analysed');
}

/** Text that is no word: blanks, comments, and the signs and reserved words of the grammar. */
const BETWEEN =
  /^(?:[ \t\n]|\\\n|#[^\n]*(?![^\n])|;|\|\|?|&&|&?>>?|[<>]&?|<<-|[()!]|[012]|if|then|elif|else|fi|for|in|do|done|time|-p|--)*$/;

/**
 * Characters that end a word for people but not for the shell, or the other way round, or that hide text. U+FE0F is a part of
 * many pictographs.
 */
const MISLEADING = /(?![\n\t ]|\ufe0f)[\p{Cc}\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** Checks that everything between the words that the parser has found is known, so that it has overlooked nothing. */
function checkText(code: string, script: SyntaxNode): void {
  const spans: { readonly pos: number; readonly end: number; readonly isBody?: true }[] = [];
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'HereDoc' && node.closing) spans.push({ ...node.closing, isBody: true });
    if (node.type === 'HereDocBody') spans.push({ pos: node.pos, end: node.end, isBody: true });
    else if (node.type === 'Word' || node.type === 'Assignment' || node.type === 'HereDocDelimiter') spans.push(node);
    else forEachChild(node, visit);
  };
  forEachChild(script, visit);
  let last: (typeof spans)[number] = { pos: 0, end: 0, isBody: true };
  for (const span of [
    ...spans.sort((a, b) => a.pos - b.pos),
    { pos: code.length, end: code.length, isBody: true as const },
  ]) {
    const between = code.slice(last.end, span.pos);
    const isJoined =
      span.pos < last.end || (between === '' && !span.isBody) || (between.startsWith('#') && !last.isBody);
    if ((isJoined && spans[0] !== span) || !BETWEEN.test(between)) throw new Unclear('its syntax is not understood');
    last = span;
  }
}

/** Names of variables that are assigned at one place only. */
function assignedOnce(script: SyntaxNode): ReadonlySet<string> {
  const counts = new Map<string, number>();
  const visit = (node: SyntaxNode): void => {
    const name = node.type === 'Assignment' ? node.name : node.type === 'For' ? node.name.text : undefined;
    if (name !== undefined) counts.set(name, (counts.get(name) ?? 0) + 1);
    forEachChild(node, visit);
  };
  forEachChild(script, visit);
  return new Set([...counts].flatMap(([name, count]) => (count === 1 ? name : [])));
}

function isVariable(name: string, once: ReadonlySet<string>): boolean {
  return /^[a-z][a-z0-9]*$/.test(name) && !SPECIAL_NAMES.has(name) && once.has(name);
}

/** A path seen from a folder. `..` is resolved by whoever knows the links. */
function joined(base: string, file: string): string {
  return base === '' || /^[/~]/.test(file) ? file : `${base.replace(/\/+$/, '')}/${file}`;
}

/** Where a path leads. `..` is left to the system, because it may follow a link. */
function placed(folder: string, base: string, text: string): string {
  return [folder, base, text].reduce((at, part) => (part.startsWith('/') ? part : part === '' ? at : `${at}/${part}`));
}

/** It does not run if a redirection fails. */
function isExit(command: PipelineNode): boolean {
  return (
    command.type === 'Command' &&
    command.name?.text === 'exit' &&
    command.redirects.length === 0 &&
    command.prefix.length === 0
  );
}

/** Several programs read the same input, so it is not known what each of them gets. */
function shared(scope: Scope): Scope {
  return typeof scope.stdin === 'string' ? { ...scope, stdin: undefined } : scope;
}

/** What is not in the grammar, in words. */
const NAMES: Readonly<Record<string, string | undefined>> = {
  BraceGroup: 'a group { }',
  While: 'a loop with while or until',
  ArithmeticFor: 'a loop with numbers',
  Select: 'select',
  Case: 'case',
  Function: 'a function',
  Coproc: 'a coprocess',
  TestCommand: '[[ ]]',
  ArithmeticCommand: 'arithmetic',
};

/** Throws `Unclear` if any part of the command is not known completely. */
export function analyseCommand(source: Parsed, posix: boolean, surroundings: Surroundings): KnownFacts {
  const { folder, files, budget } = surroundings;
  const programs = new Map<string, Program>();
  const touches = new Map<string, CommandFacts['touches'][number]>();
  const urls = new Set<string>();
  /** The program that may have created links. */
  let reshaper: string | undefined;
  let depth = 0;
  let touchCount = 0;

  walkScript(source, { folders: [''], variables: new Map(), posix, stdin: null });
  return { programs: [...programs.values()], touches: [...touches.values()], urls: [...urls] };

  function walkCode(code: string, scope: Scope): void {
    if (++depth > MAX_DEPTH) throw new Unclear('it is nested too deeply');
    walkScript({ code, script: parse(code) }, scope);
    depth--;
  }

  function walkScript({ code, script }: Parsed, scope: Scope): void {
    const [error] = script.errors ?? [];
    if (error) throw new Unclear(`its syntax is not understood: ${error.message}`);
    if (script.shebang !== undefined) throw new Unclear('it begins with #!');
    if (MISLEADING.test(code)) throw new Unclear('it contains control characters or invisible ones');
    walkList(script.commands, { ...scope, variables: new Map() }, assignedOnce(script));
    checkText(code, script);
  }

  /** Returns what the next part sees. */
  function walkList(statements: readonly Statement[], scope: Scope, once: ReadonlySet<string>): Scope {
    let here = scope;
    for (const { command, background } of statements) {
      spend(budget, 1);
      if (background) throw new Unclear('it starts something in the background');
      const after = command.type === 'AndOr' ? walkAndOr(command, here, once) : walkNode(command, here, once);
      // A change of the folder may have failed.
      here = command.type === 'AndOr' ? after : inEither(after, here, after);
    }
    return here;
  }

  function walkAndOr({ commands, operators }: AndOr, scope: Scope, once: ReadonlySet<string>): Scope {
    const first = walkNode(commands[0]!, scope, once);
    let [success, failure] = [first, inEither(first, scope, first)];
    for (const [at, operator] of operators.entries()) {
      const command = commands[at + 1]!;
      const start = operator === '&&' ? success : failure;
      const after = walkNode(command, start, once);
      const either = inEither(first, start, after);
      if (operator === '&&') {
        success = after;
        failure = inEither(first, failure, either);
      } else if (isExit(command)) {
        failure = success;
      } else {
        success = inEither(first, success, after);
        failure = either;
      }
    }
    return inEither(first, success, failure);
  }

  /** What is certain of a scope, in the folders of two others. */
  function inEither(certain: Scope, one: Scope, other: Scope): Scope {
    const folders = [...new Set([...one.folders, ...other.folders])];
    if (folders.length > 16) throw new Unclear('it changes the folder too often');
    return { ...certain, folders };
  }

  function walkNode(node: PipelineNode, scope: Scope, once: ReadonlySet<string>): Scope {
    spend(budget, 1);
    switch (node.type) {
      case 'Command':
        return walkCommand(node, scope, once);
      case 'Pipeline':
        if (scope.posix && node.prefixes.some(({ type }) => type === 'Time'))
          throw new Unclear('time is a program in other shells');
        if (node.commands.length === 1) {
          const after = walkNode(node.commands[0]!, scope, once);
          // After `!` what follows success follows a failure.
          return node.prefixes.every(({ type }) => type === 'Time') ? after : inEither(after, scope, after);
        }
        if (node.operators.includes('|&')) throw new Unclear('|& is not analysed');
        walkPipeline(node.commands, scope, once);
        return scope;
      case 'Subshell':
        walkList(node.body.commands, shared(scope), once);
        return scope;
      case 'If': {
        let tested = walkList(node.clause.commands, shared(scope), once);
        let after = walkList(node.then.commands, tested, once);
        for (const { clause, then } of node.elif) {
          tested = walkList(clause.commands, tested, once);
          after = inEither(scope, after, walkList(then.commands, tested, once));
        }
        if (node.else) after = inEither(scope, after, walkList(node.else.commands, tested, once));
        return inEither(scope, tested, after);
      }
      case 'For': {
        const name = node.name.text;
        if (!isVariable(name, once) || !node.wordlist) throw new Unclear('the variable of a loop is not known');
        const values = node.wordlist.flatMap((word) => expandWord(word.text, wordContext(scope)));
        let here = scope;
        for (const { text, home } of values) {
          if (home) throw new Unclear('a loop has a value with ~');
          const variables = new Map([...scope.variables, [name, text]]);
          here = inEither(scope, here, walkList(node.body.commands, shared({ ...here, variables }), once));
        }
        return here;
      }
      case 'Redirected':
        if (node.command.type !== 'Subshell' && node.command.type !== 'If' && node.command.type !== 'For')
          throw new Unclear(`${NAMES[node.command.type] ?? node.command.type} is not analysed`);
        return {
          ...walkNode(node.command, { ...scope, ...redirected(node.redirects, scope) }, once),
          stdin: scope.stdin,
        };
      default:
        throw new Unclear(`${NAMES[node.type] ?? node.type} is not analysed`);
    }
  }

  function walkPipeline(commands: readonly CommandNode[], scope: Scope, once: ReadonlySet<string>): void {
    let { stdin } = scope;
    const before = reshaper;
    const others: number[] = [];
    for (const command of commands) {
      const [count, known] = [touchCount, reshaper];
      walkNode(command, { ...scope, stdin }, once);
      if (known === reshaper) others.push(touchCount - count);
      stdin = printed(command, scope);
    }
    // They run at the same time, so what one of them changes concerns all.
    if (before !== reshaper && others.some((count) => count > 0))
      throw new Unclear(`${reshaper} may change where other paths of the pipe lead`);
  }

  /** What a command prints, if that is plain to see. */
  function printed(command: CommandNode, scope: Scope): string | undefined {
    if (command.type !== 'Command' || command.redirects.length > 0 || command.name?.text !== 'echo') return undefined;
    const texts = command.args.flatMap((arg) => expandWord(arg.text, wordContext(scope)).map(({ text }) => text));
    return texts.some((text) => /[\\]|^-/.test(text)) ? undefined : `${texts.join(' ')}\n`;
  }

  function wordContext({ variables, posix: isPosix, folders }: Scope): WordContext {
    const [only] = folders;
    const place =
      folder !== undefined && folders.length === 1 && !only!.startsWith('~') ? path.resolve(folder, only!) : undefined;
    return { variables, posix: isPosix, folder: place, files };
  }

  function walkCommand(node: Command, scope: Scope, once: ReadonlySet<string>): Scope {
    const context = wordContext(scope);
    const variables = new Map(scope.variables);
    for (const part of node.prefix) {
      if (part.type !== 'Assignment') continue;
      const [, name = '', raw = ''] = /^([A-Za-z_]\w*)=([^]*)$/.exec(part.text) ?? [];
      const { text, home } = literalText(raw, context);
      if (home || name === '') throw new Unclear(`the assignment ${part.text} is not known`);
      if (node.name) assign(name, text);
      else if (!isVariable(name, once)) throw new Unclear(`the variable ${name} may have a meaning`);
      else variables.set(name, text);
    }
    const input = redirected(node.redirects, scope);
    if (!node.name) {
      if (node.redirects.length > 0) throw new Unclear('a redirection without a command is not analysed');
      return { ...scope, variables };
    }
    // Without variables and without a folder, so that a computed name or a pattern is unclear.
    const [name = { text: '', home: false }] = expandWord(node.name.text, {
      ...context,
      variables: new Map(),
      folder: undefined,
    });
    if (name.home || name.text === '') throw new Unclear('the name of a program is not known');
    const raws = node.args.map((arg) => arg.text);
    if (name.text === 'echo') return echo(raws, scope);
    const args = raws.flatMap((raw) => expandWord(raw, context));
    spend(budget, args.length);
    if (name.text === 'cd') return cd(args, scope);
    if (name.text === 'export') {
      for (const { text } of args) assign(text.replace(/=.*$/s, ''), text.replace(/^[^=]*=/, ''));
      return scope;
    }
    const check = BUILTINS[name.text];
    if (check) {
      check(args.map(({ text }) => text));
      return scope;
    }
    if (OTHER_BUILTINS.has(name.text)) throw new Unclear(`${name.text} is not analysed`);
    runProgram(name.text, args, { ...scope, ...input });
    return scope;
  }

  function echo(raws: readonly string[], scope: Scope): Scope {
    for (const raw of raws) {
      // The exit code is a number.
      const known = raw === '$?' ? '' : raw.replace(/^"([^"\\$`]*)\$\?([^"\\$`]*)"$/, '"$1$2"');
      if (known !== '') expandWord(known, wordContext(scope));
    }
    return scope;
  }

  /** Reports what is opened. Returns standard input if it is redirected. */
  function redirected(redirections: readonly Redirection[], scope: Scope): Partial<Pick<Scope, 'stdin'>> {
    let found: Partial<Pick<Scope, 'stdin'>> = {};
    const context = wordContext(scope);
    for (const redirection of redirections) {
      const { descriptor } = redirection;
      const number = descriptor?.type === 'FileDescriptor' ? descriptor.value : undefined;
      if (descriptor && (number === undefined || number > 2)) throw new Unclear('a descriptor is not known');
      if (redirection.type === 'HereDoc') {
        const { delimiter, body, closing } = redirection;
        const mark = /^(['"]?)(\w+)\1$/.exec(delimiter?.text ?? '');
        const isPlain = mark?.[1] !== '' || !/[$`\\]/.test(body.text);
        if (!mark || !closing || !isPlain || (number ?? 0) !== 0) throw new Unclear('a here-document is computed');
        if (body.text.split('\n').some((line) => line.replace(/^\t+/, '') === mark[2]))
          throw new Unclear('a here-document ends before its last line');
        found = { stdin: body.text };
        continue;
      }
      const { target } = redirection;
      if (!target) throw new Unclear('a redirection has no target');
      const arg = literalText(target.text, context);
      if (redirection.type === 'HereString') {
        if (scope.posix || arg.home || (number ?? 0) !== 0) throw new Unclear('a here-string is not analysed');
        found = { stdin: `${arg.text}\n` };
        continue;
      }
      const { operator } = redirection;
      if (operator === '>&') {
        if (!/^[12]$/.test(target.text) || number === 0) throw new Unclear('a descriptor is not known');
        continue;
      }
      const isWrite =
        operator === '>' || operator === '>>' || ((operator === '&>' || operator === '&>>') && !scope.posix);
      if (!isWrite && operator !== '<') throw new Unclear(`the redirection ${operator} is not analysed`);
      if (/[*?[]/.test(target.text) || (arg.text.startsWith('/dev/') && arg.text !== '/dev/null') || arg.text === '')
        throw new Unclear(`the redirection to ${target.text} is not analysed`);
      if ((operator === '<') !== ((number ?? (operator === '<' ? 0 : 1)) === 0))
        throw new Unclear('a descriptor is not known');
      if (operator === '<') found = { stdin: arg.text === '/dev/null' ? null : undefined };
      if (arg.text !== '/dev/null') touch(isWrite ? 'write' : 'read', arg, scope);
    }
    return found;
  }

  function assign(name: string, value: string): void {
    if (!ASSIGNABLE[name]?.test(value)) throw new Unclear(`the variable ${name} may change what programs do`);
  }

  /* Programs */

  function runProgram(name: string, args: readonly Arg[], scope: Scope): void {
    if (++depth > MAX_DEPTH) throw new Unclear('it is nested too deeply');
    spend(budget, 1);
    const isRelative = name.includes('/') && !name.startsWith('/');
    if (isRelative && scope.folders.length > 1) throw new Unclear(`it is not known in which folder ${name} is`);
    const shown = isRelative ? joined(scope.folders[0]!, name) : name;
    const texts = args.map(({ text }) => text);
    const key = JSON.stringify([shown, texts]);
    const known = analyseProgram(callOf(name, args, scope));
    if (!known && scope.stdin !== null) throw new Unclear(`${name} is not known, and reads an input`);
    programs.set(key, { name: shown, args: texts, ...(!known && { unknown: true }) });
    depth--;
  }

  function callOf(name: string, args: readonly Arg[], scope: Scope): Call {
    return {
      name,
      args,
      stdin: scope.stdin,
      read: (arg) => touch('read', arg, scope),
      write: (arg) => touch('write', arg, scope),
      tree: (arg, names) => touchTree(arg, names ?? (() => true), scope),
      script(arg) {
        if (/^(-|\/dev\/|\/proc\/)/.test(arg.text)) throw new Unclear(`${name} runs what it reads`);
        note('read', arg, scope);
      },
      url: (url) => urls.add(url),
      kindOf: (arg) => kindOf(arg, scope),
      inFolder(target) {
        touch('read', target, scope);
        return callOf(name, args, moved(target, scope));
      },
      run([program, ...rest]) {
        if (!program) throw new Unclear(`${name} runs nothing`);
        // It is started without a shell, so builtins are programs here.
        runProgram(program.text, rest, { ...scope, stdin: name === 'xargs' ? null : scope.stdin });
      },
      code: (code, { posix: isPosix }) => walkCode(code, { ...shared(scope), posix: isPosix }),
      assign,
      reshape() {
        reshaper = name;
      },
      writeAll: () => note('write', { text: '.', home: false }, { ...scope, folders: [''] }),
      isInside: () => scope.folders.some(isInsideRepository),
    };
  }

  function touch(type: 'read' | 'write', arg: Arg, scope: Scope): void {
    if (reshaper !== undefined)
      throw new Unclear(`${reshaper} may change where ${arg.text} leads: run what follows as a command of its own`);
    note(type, arg, scope);
  }

  function note(type: 'read' | 'write', { text, home }: Arg, scope: Scope): void {
    if (text === '') throw new Unclear('a path is empty');
    const named = !home && text.startsWith('~') ? `./${text}` : text;
    touchCount++;
    for (const base of scope.folders) {
      const file = joined(base, named);
      touches.set(`${type} ${file}`, { type, path: file });
    }
  }

  function kindOf({ text, home }: Arg, { folders }: Scope): ReturnType<Call['kindOf']> {
    if (folder === undefined || home || folders.some((base) => base.startsWith('~'))) return 'unknown';
    const kinds = new Set(folders.map((base) => files.kindOf(placed(folder, base, text)) ?? 'none'));
    return kinds.size === 1 ? [...kinds][0]! : 'unknown';
  }

  /** Whether a folder may belong to another repository than the one of the command, or leads elsewhere through links. */
  function isInsideRepository(base: string): boolean {
    if (folder === undefined) return false;
    // It can make git look into repositories inside.
    const isWritten = [...touches.values()].some(
      ({ type, path: file }) => type === 'write' && /\.gitmodules$/i.test(file),
    );
    if (isWritten || files.kindOf(`${folder}/.gitmodules`) !== undefined) return true;
    const relative = base.startsWith('/') ? path.relative(folder, base) : base;
    if (/^(\.\.(\/|$)|~)/.test(relative)) return true;
    const parts = relative.split('/').filter((part) => part !== '' && part !== '.');
    return parts.some((_, at) => {
      const place = `${folder}/${parts.slice(0, at + 1).join('/')}`;
      return files.kindOf(place) === 'link' || files.kindOf(`${place}/.git`) !== undefined;
    });
  }

  /** Where private files are below, people decide: the command does not name them, and a sandbox hides them. */
  function touchTree(arg: Arg, names: (name: string, isFolder: boolean) => boolean, scope: Scope): void {
    touch('read', arg, scope);
    const kind = kindOf(arg, scope);
    if (kind === 'file' || kind === 'none') return;
    if (folder === undefined || arg.home) throw new Unclear(`it is not known what is below ${arg.text}`);
    const open = [arg];
    let repository: string | undefined;
    for (let next = open.pop(); next; next = open.pop()) {
      for (const base of scope.folders) {
        const place = placed(folder, base, next.text);
        for (const { name, isFolder } of files.namesIn(place)) {
          if (!names(name, isFolder)) continue;
          const inner = joinedArg(next, name);
          if (name === '.git' && isFolder) repository ??= inner.text;
          else if (isFolder) open.push(inner);
          else if (surroundings.isPrivate(`${place}/${name}`))
            throw new Unclear(`it would read ${inner.text}, which is private`);
        }
      }
    }
    if (repository !== undefined) throw new Unclear(`it would read ${repository}/config, which may have keys`);
  }

  function moved(target: Arg, scope: Scope): Scope {
    const { text, home } = target;
    if (/(^|\/)\.\.(\/|$)/.test(text)) throw new Unclear('it is not known where .. leads after a change of the folder');
    const folders = home || text.startsWith('/') ? [text] : scope.folders.map((base) => joined(base, text));
    return { ...scope, folders: [...new Set(folders)] };
  }

  function cd(args: readonly Arg[], scope: Scope): Scope {
    const [target, ...more] = args[0]?.text === '--' ? args.slice(1) : args;
    if (!target || more.length > 0 || /^-|^$/.test(target.text))
      throw new Unclear('it changes to a folder that is not known');
    touch('read', target, scope);
    return moved(target, scope);
  }
}
