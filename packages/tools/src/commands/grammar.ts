/*
 * The grammar of commands that are known completely. It says yes only to what is written here.
 *
 * 1. What is not in the grammar throws `Unclear`. Nothing is skipped, and nothing is guessed.
 * 2. Every program that the shell would start is reported, and every path that a known program touches.
 * 3. An uncertain branch is taken: the facts of all branches are united.
 * 4. Paths and patterns are looked up now. After a program that may create links, no path is known any more.
 */
import { forEachChild, parse, type Command, type ParsedScript, type Redirection, type SyntaxNode } from 'unbash';
import { analyseProgram } from './programs.ts';
import {
  changesIn,
  checkSetting,
  deeper,
  demandNoMatch,
  inEither,
  inFolder,
  joined,
  kindOf,
  spend,
  touch,
  Unclear,
  type Scope,
  type Value,
} from './scope.ts';
import { expandWord, literalText } from './words.ts';

/** Throws `Unclear` if any part of the code is not known completely. */
export function analyseCode(code: string, scope: Omit<Scope, 'variables' | 'assigned'>): void {
  const script = parse(code);
  const [error] = script.errors ?? [];
  if (error) throw new Unclear(`its syntax is not understood: ${error.message}`);
  if (script.shebang !== undefined) throw new Unclear('it begins with #!');
  if (MISLEADING.test(code)) throw new Unclear('it contains control characters or invisible ones');
  walkList(script.commands, { ...scope, variables: new Map(), assigned: new Map() });
  checkText(code, script);
}

/* Lists, pipes and compound commands. Each function returns what the next part sees. */

function walkList(statements: ParsedScript['commands'], scope: Scope): Scope {
  let here = scope;
  for (const { command, background } of statements) {
    if (background) throw new Unclear('it starts something in the background');
    const after = walk(command, here);
    // A change of the folder may have failed.
    here = command.type === 'AndOr' ? after : inEither(after, here, after);
  }
  return here;
}

function walk(node: SyntaxNode, scope: Scope): Scope {
  spend(scope.budget, 1);
  switch (node.type) {
    case 'Command':
      return walkCommand(node, scope);
    case 'AndOr': {
      // After `&&` the part before has succeeded. Otherwise the folder is any that one of the parts may have left.
      const [first, ...rest] = node.commands;
      const succeeded = walk(first!, scope);
      let [after, any] = [succeeded, inEither(succeeded, scope, succeeded)];
      for (const [at, command] of rest.entries()) {
        const isAnd = node.operators[at] === '&&';
        const next = walk(command, isAnd ? after : any);
        if (rest.length === 1 && !isAnd && isExit(command)) return succeeded;
        any = inEither(any, any, next);
        after = isAnd ? next : any;
      }
      return any;
    }
    case 'Pipeline': {
      if (scope.posix && node.prefixes.some(({ type }) => type === 'Time'))
        throw new Unclear('time is a program in other shells');
      if (node.operators.includes('|&')) throw new Unclear('|& is not analysed');
      // After `!` what follows success follows a failure.
      if (node.commands.length === 1) {
        const after = walk(node.commands[0]!, scope);
        return inEither(after, scope, after);
      }
      const walkAll = (): void =>
        node.commands.forEach((one, at) => walk(one, { ...scope, hasInput: at > 0 || scope.hasInput }));
      const before = changesIn(scope);
      walkAll();
      // They run at the same time, so what one of them changes concerns all.
      if (changesIn(scope) !== before) walkAll();
      return scope;
    }
    case 'Subshell':
      walkList(node.body.commands, scope);
      return scope;
    case 'If': {
      let [tested, any] = [scope, scope];
      for (const { clause, then } of [node, ...node.elif]) {
        tested = walkList(clause.commands, tested);
        any = inEither(scope, any, tested);
        any = inEither(scope, any, walkList(then.commands, tested));
      }
      return node.else ? inEither(scope, any, walkList(node.else.commands, tested)) : any;
    }
    case 'For': {
      let here = scope;
      for (const { texts, isMatch } of (node.wordlist ?? []).map(({ text }) => expandWord(text, scope)))
        for (const text of texts) {
          const variables = setVariable(node.name.text, { text, isMatch }, node, scope);
          here = inEither(scope, here, walkList(node.body.commands, { ...here, variables }));
        }
      if (!node.wordlist?.length) throw new Unclear('the values of a loop are not known');
      return here;
    }
    case 'Redirected':
      return { ...walk(node.command, redirected(node.redirects, scope)), hasInput: scope.hasInput };
    default:
      throw new Unclear(`${node.type} is not analysed`);
  }
}

/** It does not run if a redirection fails. */
function isExit(node: SyntaxNode): boolean {
  return node.type === 'Command' && node.name?.text === 'exit' && node.redirects.length + node.prefix.length === 0;
}

/** Names in lower case that mean something to a shell. */
const SPECIAL_NAMES =
  /^(argv|cdpath|fignore|fpath|histchars|mailpath|manpath|path|prompt|psvar|pipestatus|status|watch|words|signals|keymap|options|commands|functions|aliases|parameters|reply)$/;

/** A variable is assigned at one place of the code. */
function setVariable(
  name: string,
  value: Value,
  place: SyntaxNode,
  { assigned, variables }: Scope,
): Scope['variables'] {
  if (!/^[a-z][a-z0-9]*$/.test(name) || SPECIAL_NAMES.test(name))
    throw new Unclear(`the variable ${name} may have a meaning`);
  if ((assigned.get(name) ?? place) !== place) throw new Unclear(`the variable ${name} is assigned twice`);
  assigned.set(name, place);
  return new Map([...variables, [name, value]]);
}

/* Simple commands */

const TEXT = String.raw`[^\0]*`;
const TEST = String.raw`(!\0)?(${TEXT}|-[abcdefghknprstuwxzLOGSN]\0${TEXT}|${TEXT}\0(=|==|!=|-nt|-ot|-ef)\0${TEXT}|-?\d+\0-(eq|ne|lt|le|gt|ge)\0-?\d+)`;

/** Builtins that start nothing and read nothing, and their arguments, with NUL between them. */
const BUILTINS: ReadonlyMap<string, RegExp> = new Map([
  ...['echo', ':', 'true', 'false'].map((name) => [name, /^/] as const),
  ...['exit', 'break', 'continue'].map((name) => [name, /^\d{0,3}$/] as const),
  ['pwd', /^(-[LP])?$/],
  // Other directives assign variables, or are numbers, which some shells evaluate.
  ['printf', /^(?!-)([^%\0]|%%|%-?\d*(\.\d+)?[sbq])*(\0[^]*)?$/],
  ['set', /^(-[eu]+|-[eu]*o\0pipefail)(\0-o\0pipefail)?$/],
  ['command', /^-v\0[\w.-]+$/],
  ['test', new RegExp(`^${TEST}$`)],
  ['[', new RegExp(String.raw`^(${TEST}\0)?\]$`)],
]);

/** Other builtins and reserved words of any shell. */
const OTHER_BUILTINS: ReadonlySet<string> = new Set(
  'alias autoload bg bind builtin caller case compgen complete compopt coproc declare dirs disown do done elif else emulate enable esac eval exec fc fg fi for function getopts hash help history if in jobs kill let local logout mapfile popd print pushd read readarray readonly return select shift shopt source suspend then time times trap type typeset ulimit umask unalias unset until wait whence where while zmodload .'.split(
    ' ',
  ),
);

function walkCommand({ name: program, prefix, args: words, redirects }: Command, scope: Scope): Scope {
  let { variables } = scope;
  for (const part of prefix) {
    if (part.type !== 'Assignment') continue;
    const [, variable = '', raw = ''] = /^(\w+)=([^]*)$/.exec(part.text) ?? [];
    const text = literalText(raw, scope);
    if (program) checkSetting(`${variable}=${text}`);
    else
      variables = setVariable(variable, { text, isMatch: scope.found.matched.has(text) }, part, {
        ...scope,
        variables,
      });
  }
  const inner = redirected(redirects, scope);
  if (!program && redirects.length > 0) throw new Unclear('a redirection without a command is not analysed');
  if (!program) return { ...scope, variables };
  // Without variables and without a folder, so that a computed name or a pattern is unclear.
  const [name = ''] = expandWord(program.text, { ...scope, variables: new Map(), root: undefined }).texts;
  const args = words.flatMap(({ text }) => expandWord(name === 'echo' ? withoutCode(text) : text, scope).texts);
  spend(scope.budget, args.length);
  if (name === 'cd') return changeFolder(args, scope);
  if (name === 'export') args.forEach(checkSetting);
  else if (BUILTINS.has(name)) {
    if (!BUILTINS.get(name)!.test(args.join('\0'))) throw new Unclear(`the arguments of ${name} are not analysed`);
  } else if (OTHER_BUILTINS.has(name) || !/^[\w./][\w./+@-]*$/.test(name)) throw new Unclear(`${name} is not analysed`);
  else runProgram(name, args, inner);
  return scope;
}

/** The exit code is a number. */
function withoutCode(raw: string): string {
  return raw === '$?' ? '0' : raw.replace(/^"([^"\\$`]*)\$\?([^"\\$`]*)"$/, '"$1$2"');
}

function changeFolder(args: readonly string[], scope: Scope): Scope {
  const [target = '', ...more] = args[0] === '--' ? args.slice(1) : args;
  if (more.length > 0 || /^-|^$/.test(target)) throw new Unclear('it changes to a folder that is not known');
  return inFolder(target, scope);
}

function runProgram(name: string, args: readonly string[], outer: Scope): void {
  const scope = deeper(outer);
  spend(scope.budget, 1 + args.length);
  const isKnown = analyseProgram({
    name,
    args,
    scope,
    run([program, ...rest]) {
      if (program === undefined) throw new Unclear(`${name} runs nothing`);
      runProgram(program, rest, scope);
    },
    code(code, { posix }) {
      demandNoMatch(code, scope);
      analyseCode(code, { ...deeper(scope), posix });
    },
  });
  if (!isKnown && scope.hasInput) throw new Unclear(`${name} is not known, and reads an input`);
  if (!isKnown) scope.found.linker = name;
  const isRelative = name.includes('/') && !name.startsWith('/');
  if (isRelative && scope.folders.length > 1) throw new Unclear(`it is not known in which folder ${name} is`);
  const program = { name: isRelative ? joined(scope.folders[0]!, name) : name, args };
  scope.found.programs.set(JSON.stringify(program), { ...program, ...(!isKnown && { unknown: true }) });
}

/* Redirections */

/** Reports what is opened. Returns the scope with standard input. */
function redirected(redirections: readonly Redirection[], scope: Scope): Scope {
  return redirections.reduce((last, one) => ({ ...scope, hasInput: openRedirection(one, last) }), scope);
}

/** Returns what standard input is afterwards. */
function openRedirection(redirection: Redirection, scope: Scope): Scope['hasInput'] {
  const { descriptor, type } = redirection;
  const sign = type === 'Redirect' ? redirection.operator : '<';
  const number = descriptor?.type === 'FileDescriptor' ? String(descriptor.value) : descriptor ? '?' : '';
  if (!(sign === '<' ? /^0?$/ : /^[12]?$/).test(number)) throw new Unclear('a descriptor is not known');
  if (type === 'HereDoc') return checkDocument(redirection);
  const raw = redirection.target?.text ?? '';
  const target = literalText(raw, scope);
  if (scope.posix && (type === 'HereString' || sign.startsWith('&')))
    throw new Unclear(`${sign} has another meaning in other shells`);
  if (type === 'HereString') return true;
  if (sign === '>&' && /^[12]$/.test(raw)) return scope.hasInput;
  if (!/^(<|&?>>?)$/.test(sign) || /[*?[]|^$/.test(raw) || target === '' || /^\/dev\/(?!null$)/.test(target))
    throw new Unclear(`the redirection ${sign} ${raw} is not analysed`);
  if (target !== '/dev/null') touch(sign === '<' ? 'read' : 'write', target, scope);
  if (sign !== '<') return scope.hasInput;
  // With this one, programs that look at their input take it for none.
  if (target === '/dev/null') return false;
  return (kindOf(target, scope) === 'file' && changesIn(scope).startsWith('0 ')) || 'unsure';
}

function checkDocument({ delimiter, body, closing }: Extract<Redirection, { readonly type: 'HereDoc' }>): true {
  const [, quote, mark] = /^(['"]?)(\w+)\1$/.exec(delimiter?.text ?? '') ?? [];
  if (mark === undefined || !closing || (quote === '' && /[$`\\]/.test(body.text)))
    throw new Unclear('a here-document is computed');
  if (body.text.split('\n').some((line) => line.replace(/^\t+/, '') === mark))
    throw new Unclear('a here-document ends before its last line');
  return true;
}

/* What the parser may have overlooked */

/**
 * Characters that end a word for people but not for the shell, or the other way round, or that hide text. U+FE0F is a part of
 * many pictographs.
 */
const MISLEADING = /(?![\n\t ]|\ufe0f)[\p{Cc}\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** Code with \0\x01… for words and \x02… for here-documents: blanks, comments, signs and reserved words are left. */
const COVERED =
  // oxlint-disable-next-line no-control-regex
  /^(?:\0\x01*(?![\0#])|\x02|[ \t\n]|\\\n|#[^\n\0-\x02]*(?=\n|$)|[;|<>()!012]|&&|&(?=>)|(?<=[<>])&|(?<=<<)-|if|then|elif|else|fi|for|in|do|done|time|-p|--)*$/;

/** Checks that everything between the words that the parser has found is known, so that it has overlooked nothing. */
function checkText(code: string, script: SyntaxNode): void {
  const text = code.split('');
  const cover = ({ pos, end }: { readonly pos: number; readonly end: number }, mark: string): void => {
    for (let at = pos; at < end; at++) text[at] = text[at]! < '\t' ? '?' : at > pos && mark === '\0' ? '\x01' : mark;
  };
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'HereDoc' && node.closing) cover(node.closing, '\x02');
    if (node.type === 'HereDocBody') cover(node, '\x02');
    else if (/^(Word|Assignment|HereDocDelimiter)$/.test(node.type)) cover(node, '\0');
    else forEachChild(node, visit);
  };
  forEachChild(script, visit);
  if (!COVERED.test(text.join(''))) throw new Unclear('its syntax is not understood');
}
