/*
 * The grammar of commands that are known completely. It says yes only to what is written here.
 *
 * 1. What is not in the grammar throws `Unclear`. Nothing is skipped, and nothing is guessed.
 * 2. Every program that the shell would start is reported, and every path that a known program touches.
 * 3. An uncertain branch is taken: the facts of all branches are united.
 * 4. Paths and patterns are looked up now. After a program that may create links, no path is known any more.
 */
import path from 'node:path/posix';
import type { CommandFacts } from '@treadle/core/policy';
import {
  forEachChild,
  parse,
  type AndOr,
  type Command,
  type CommandNode,
  type For,
  type If,
  type ParsedScript,
  type PipelineNode,
  type Redirection,
  type Statement,
  type SyntaxNode,
} from 'unbash';
import { KINDS, type Call } from './effects.ts';
import { analyseProgram } from './programs.ts';
import {
  changesIn,
  checkSetting,
  deeper,
  firstScope,
  inEither,
  inFolder,
  joined,
  touch,
  type Scope,
  type Surroundings,
} from './scope.ts';
import { expandWord, isPattern, literalText, spend, Unclear, type WordContext } from './words.ts';

/** Throws `Unclear` if any part of the command is not known completely. */
export function analyseCommand(
  { code, script }: { readonly code: string; readonly script: ParsedScript },
  posix: boolean,
  around: Surroundings,
): Pick<CommandFacts, 'programs' | 'touches' | 'urls'> {
  const scope = firstScope(around, posix);
  walkScript(code, script, scope);
  const { programs, touches, urls } = scope.found;
  return { programs: [...programs.values()], touches: [...touches.values()], urls: [...urls] };
}

/* Lists, pipes and compound commands. Each function returns what the next part sees. */

function walkScript(code: string, script: ParsedScript, scope: Scope): void {
  const [error] = script.errors ?? [];
  if (error) throw new Unclear(`its syntax is not understood: ${error.message}`);
  if (script.shebang !== undefined) throw new Unclear('it begins with #!');
  if (MISLEADING.test(code)) throw new Unclear('it contains control characters or invisible ones');
  walkList(script.commands, { ...scope, variables: new Map(), once: assignedOnce(script) });
  checkText(code, script);
}

function walkList(statements: readonly Statement[], scope: Scope): Scope {
  let here = scope;
  for (const { command, background } of statements) {
    spend(scope.budget, 1);
    if (background) throw new Unclear('it starts something in the background');
    if (command.type === 'AndOr') here = walkAndOr(command, here);
    else {
      const after = walkNode(command, here);
      // A change of the folder may have failed.
      here = inEither(after, here, after);
    }
  }
  return here;
}

/** After `&&` the part before has succeeded. Otherwise the folder is any that one of the parts may have left. */
function walkAndOr({ commands, operators }: AndOr, scope: Scope): Scope {
  const first = walkNode(commands[0]!, scope);
  let [after, any] = [first, inEither(first, scope, first)];
  for (const [at, operator] of operators.entries()) {
    const next = walkNode(commands[at + 1]!, operator === '&&' ? after : any);
    if (commands.length === 2 && operator === '||' && isExit(commands[1]!)) return first;
    any = inEither(first, any, next);
    after = operator === '&&' ? next : any;
  }
  return any;
}

/** It does not run if a redirection fails. */
function isExit(node: PipelineNode): boolean {
  return node.type === 'Command' && node.name?.text === 'exit' && node.redirects.length + node.prefix.length === 0;
}

function walkNode(node: PipelineNode, scope: Scope): Scope {
  spend(scope.budget, 1);
  switch (node.type) {
    case 'Command':
      return walkCommand(node, scope);
    case 'Pipeline': {
      if (scope.posix && node.prefixes.some(({ type }) => type === 'Time'))
        throw new Unclear('time is a program in other shells');
      if (node.operators.includes('|&')) throw new Unclear('|& is not analysed');
      if (node.commands.length !== 1) return walkPipes(node.commands, scope);
      const after = walkNode(node.commands[0]!, scope);
      // After `!` what follows success follows a failure.
      return inEither(after, scope, after);
    }
    case 'Subshell':
      walkList(node.body.commands, scope);
      return scope;
    case 'If':
      return walkIf(node, scope);
    case 'For':
      return walkFor(node, scope);
    case 'Redirected':
      if (!['Subshell', 'If', 'For'].includes(node.command.type)) break;
      return { ...walkNode(node.command, redirected(node.redirects, scope)), hasInput: scope.hasInput };
    default:
  }
  throw new Unclear(`${NAMES[node.type] ?? node.type} is not analysed`);
}

/** What is not in the grammar, in words. */
const NAMES: Readonly<Record<string, string | undefined>> = {
  BraceGroup: 'a group { }',
  While: 'a loop with while or until',
  ArithmeticFor: 'a loop with numbers',
  Function: 'a function',
  TestCommand: '[[ ]]',
  ArithmeticCommand: 'arithmetic',
};

function walkPipes(commands: readonly CommandNode[], scope: Scope): Scope {
  const before = changesIn(scope);
  const walkAll = (): void => {
    for (const [at, command] of commands.entries()) walkNode(command, { ...scope, hasInput: scope.hasInput || at > 0 });
  };
  walkAll();
  // They run at the same time, so what one of them changes concerns all.
  if (changesIn(scope) !== before) walkAll();
  return scope;
}

function walkIf({ clause, then, elif, else: otherwise }: If, scope: Scope): Scope {
  let tested = walkList(clause.commands, scope);
  const ends = [walkList(then.commands, tested)];
  for (const branch of elif) {
    tested = walkList(branch.clause.commands, tested);
    ends.push(walkList(branch.then.commands, tested));
  }
  if (otherwise) ends.push(walkList(otherwise.commands, tested));
  return ends.reduce((all, end) => inEither(scope, all, end), tested);
}

function walkFor({ name: { text: name }, wordlist, body }: For, scope: Scope): Scope {
  if (!isVariable(name, scope) || !wordlist) throw new Unclear('the variable of a loop is not known');
  const context = wordContext(scope);
  let here = scope;
  for (const { text: word } of wordlist) {
    const isMatch = isPattern(word, context);
    for (const text of expandWord(word, context)) {
      const variables = new Map([...scope.variables, [name, { text, isMatch }]]);
      here = inEither(scope, here, walkList(body.commands, { ...here, variables }));
    }
  }
  return here;
}

/* Variables */

/** Names in lower case that mean something to a shell. */
const SPECIAL_NAMES =
  /^(argv|cdpath|fignore|fpath|histchars|mailpath|manpath|path|prompt|psvar|pipestatus|status|watch|words|signals|keymap|options|commands|functions|aliases|parameters|reply)$/;

function isVariable(name: string, { once }: Scope): boolean {
  return /^[a-z][a-z0-9]*$/.test(name) && !SPECIAL_NAMES.test(name) && once.has(name);
}

function assignedOnce(script: SyntaxNode): ReadonlySet<string> {
  const names: string[] = [];
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'Assignment') names.push(node.name);
    if (node.type === 'For') names.push(node.name.text);
    forEachChild(node, visit);
  };
  forEachChild(script, visit);
  return new Set(names.filter((name) => names.indexOf(name) === names.lastIndexOf(name)));
}

/** Assignments before a command, or without one. Returns the variables that they set. */
function assigned({ name: program, prefix }: Command, scope: Scope): Scope['variables'] {
  const variables = new Map(scope.variables);
  for (const part of prefix) {
    if (part.type !== 'Assignment') continue;
    const [, name = '', raw = ''] = /^([A-Za-z_]\w*)=([^]*)$/.exec(part.text) ?? [];
    const value = literalText(raw, wordContext(scope));
    if (program) checkSetting(`${name}=${value}`);
    else if (!isVariable(name, scope)) throw new Unclear(`the variable ${part.text} may have a meaning`);
    else variables.set(name, { text: value, isMatch: false });
  }
  return variables;
}

function wordContext({ variables, posix, folder, folders, files }: Scope): WordContext {
  const isKnown = folder !== undefined && folders.length === 1;
  return { variables, posix, folder: isKnown ? path.resolve(folder, folders[0]!) : undefined, files };
}

/* Simple commands */

const WORD = String.raw`[^\0]*`;
const TEST = String.raw`(!\0)?(${WORD}|-[abcdefghknprstuwxzLOGSN]\0${WORD}|${WORD}\0(=|==|!=|-nt|-ot|-ef)\0${WORD}|-?\d+\0-(eq|ne|lt|le|gt|ge)\0-?\d+)`;

/** Builtins that start nothing and read nothing, and their arguments, with NUL between them. */
const BUILTINS: ReadonlyMap<string, RegExp> = new Map([
  ...[':', 'true', 'false'].map((name) => [name, /^/] as const),
  ...['exit', 'break', 'continue'].map((name) => [name, /^\d{0,3}$/] as const),
  ['pwd', /^(-[LP])?$/],
  ['set', /^(-[eu]+|-[eu]*o\0pipefail)(\0-o\0pipefail)?$/],
  ['command', /^-v\0[\w.-]+$/],
  ['test', new RegExp(`^${TEST}$`)],
  ['[', new RegExp(String.raw`^(${TEST}\0)?\]$`)],
]);

/** Other builtins and words of any shell. */
const OTHER_BUILTINS: ReadonlySet<string> = new Set(
  'alias autoload bg bind builtin caller compgen complete compopt coproc declare dirs disown emulate enable eval exec fc fg getopts hash help history jobs kill let local logout mapfile popd print pushd read readarray readonly return select shift shopt source suspend time times trap type typeset ulimit umask unalias unset until wait whence where zmodload . { } [[ function if for while case'.split(
    ' ',
  ),
);

function walkCommand(node: Command, scope: Scope): Scope {
  const variables = assigned(node, scope);
  const inner = redirected(node.redirects, scope);
  if (!node.name) {
    if (node.redirects.length > 0) throw new Unclear('a redirection without a command is not analysed');
    return { ...scope, variables };
  }
  const context = wordContext(scope);
  // Without variables and without a folder, so that a computed name or a pattern is unclear.
  const [name = ''] = expandWord(node.name.text, { ...context, variables: new Map(), folder: undefined });
  if (name === '') throw new Unclear('the name of a program is not known');
  const raws = node.args.map((arg) => arg.text);
  const args = (name === 'echo' ? raws.map(withoutCode) : raws).flatMap((raw) => expandWord(raw, context));
  spend(scope.budget, args.length);
  if (name === 'cd') return changeFolder(args, scope);
  if (name === 'export') for (const arg of args) checkSetting(arg);
  else if (name === 'printf') KINDS.format(args[0] ?? '', callOf(name, args, inner));
  else if (BUILTINS.has(name)) checkBuiltin(name, args);
  else if (OTHER_BUILTINS.has(name)) throw new Unclear(`${name} is not analysed`);
  else if (name !== 'echo') runProgram(name, args, inner);
  return scope;
}

/** The exit code is a number. */
function withoutCode(raw: string): string {
  return raw === '$?' ? '0' : raw.replace(/^"([^"\\$`]*)\$\?([^"\\$`]*)"$/, '"$1$2"');
}

function checkBuiltin(name: string, args: readonly string[]): void {
  if (!BUILTINS.get(name)!.test(args.join('\0'))) throw new Unclear(`the arguments of ${name} are not analysed`);
}

function changeFolder(args: readonly string[], scope: Scope): Scope {
  const [target = '', ...more] = args[0] === '--' ? args.slice(1) : args;
  if (more.length > 0 || /^-|^$/.test(target)) throw new Unclear('it changes to a folder that is not known');
  return inFolder(target, scope);
}

function runProgram(name: string, args: readonly string[], scope: Scope): void {
  spend(scope.budget, 1);
  const isRelative = name.includes('/') && !name.startsWith('/');
  if (isRelative && scope.folders.length > 1) throw new Unclear(`it is not known in which folder ${name} is`);
  const isKnown = analyseProgram(callOf(name, args, deeper(scope)));
  if (!isKnown && scope.hasInput) throw new Unclear(`${name} is not known, and reads an input`);
  if (!isKnown) scope.found.linker = name;
  const program = { name: isRelative ? joined(scope.folders[0]!, name) : name, args };
  scope.found.programs.set(JSON.stringify(program), { ...program, ...(!isKnown && { unknown: true }) });
}

function callOf(name: string, args: readonly string[], scope: Scope): Call {
  return {
    name,
    args,
    scope,
    run([program, ...rest]) {
      if (program === undefined) throw new Unclear(`${name} runs nothing`);
      runProgram(program, rest, scope);
    },
    code: (code, { posix }) => walkScript(code, parse(code), { ...deeper(scope), posix }),
  };
}

/* Redirections */

/** Reports what is opened. Returns the scope with standard input. */
function redirected(redirections: readonly Redirection[], scope: Scope): Scope {
  return redirections.reduce((last, one) => ({ ...scope, hasInput: openRedirection(one, last) }), scope);
}

/** Returns whether standard input is redirected afterwards. */
function openRedirection(redirection: Redirection, scope: Scope): boolean {
  const { descriptor, type } = redirection;
  const isInput = type !== 'Redirect' || redirection.operator === '<';
  const number = descriptor ? (descriptor.type === 'FileDescriptor' ? descriptor.value : NaN) : isInput ? 0 : 1;
  if (isInput ? number !== 0 : number !== 1 && number !== 2) throw new Unclear('a descriptor is not known');
  if (type === 'HereDoc') return checkDocument(redirection);
  const raw = redirection.target?.text;
  if (raw === undefined) throw new Unclear('a redirection has no target');
  const target = literalText(raw, wordContext(scope));
  if (type === 'HereString') {
    if (scope.posix) throw new Unclear('a here-string has another meaning in other shells');
    return true;
  }
  const { operator } = redirection;
  if (operator === '>&' && /^[12]$/.test(raw)) return scope.hasInput;
  const isKnown = /^(<|>>?)$/.test(operator) || (/^&>>?$/.test(operator) && !scope.posix);
  if (!isKnown || /[*?[]/.test(raw) || target === '' || /^\/dev\/(?!null$)/.test(target))
    throw new Unclear(`the redirection ${operator} ${raw} is not analysed`);
  if (target !== '/dev/null') touch(isInput ? 'read' : 'write', target, scope);
  // With this one, programs that look at their input take it for none.
  return isInput ? target !== '/dev/null' : scope.hasInput;
}

function checkDocument({ delimiter, body, closing }: Extract<Redirection, { readonly type: 'HereDoc' }>): true {
  const mark = /^(['"]?)(\w+)\1$/.exec(delimiter?.text ?? '');
  const isPlain = mark?.[1] !== '' || !/[$`\\]/.test(body.text);
  if (!mark || !closing || !isPlain) throw new Unclear('a here-document is computed');
  if (body.text.split('\n').some((line) => line.replace(/^\t+/, '') === mark[2]))
    throw new Unclear('a here-document ends before its last line');
  return true;
}

/* What the parser may have overlooked */

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
