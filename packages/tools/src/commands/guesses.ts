/*
 * What a command that is not known completely might do. Nothing is allowed because of this: it finds programs and paths that
 * lists deny, and destructive forms, however they are written. So it looks for what a text might mean, and not for certainty.
 */
import path from 'node:path/posix';
import type { CommandFacts, Program } from '@treadle/core/policy';
import {
  forEachChild,
  parse,
  type Command,
  type Function as FunctionNode,
  type ParsedScript,
  type Statement,
  type SyntaxNode,
  type Word,
  type WordPart,
} from 'unbash';
import { useFree } from './arguments.ts';
import { destructiveProgram, destructiveWrite } from './destructive.ts';
import { spend, Unclear, type Budget } from './words.ts';

export type Guesses = Omit<CommandFacts, 'unclear' | 'unchecked'>;

const WRAPPERS =
  /^(sudo|doas|env|nice|ionice|timeout|xargs|busybox|toybox|command|builtin|exec|nohup|setsid|stdbuf|time|find|watch|flock|parallel|chroot|unbuffer|su|ssh|script|unshare|nsenter)$/;
const SHELLS = /^(ba|da|a|z|k|mk|rba)?sh$/;
const TAKES_CODE = /^(eval|trap|su|ssh|watch|script|flock|env|npx|npm)$/;
const MAX_DEPTH = 12;
const MAX_GUESSES = 16;

/** Throws `Unclear` if there is too much to look at. */
export function guessCommand(source: ParsedScript, folder: string | undefined, budget: Budget): Guesses {
  const programs = new Map<string, Program>();
  const touches = new Map<string, CommandFacts['touches'][number]>();
  const urls = new Set<string>();
  const values = new Map<string, string[]>([['HOME', ['~']]]);
  /** Folders that the command changes to. */
  const bases: string[] = [];
  let destructive: string | undefined;
  let depth = 0;

  visitScript(source);
  return {
    programs: [...programs.values()],
    touches: [...touches.values()],
    urls: [...urls],
    ...(destructive !== undefined && { destructive }),
  };

  function visitCode(code: string): void {
    if (++depth > MAX_DEPTH) throw new Unclear('it is nested too deeply');
    visitScript(parse(code));
    depth--;
  }

  function visitScript(script: ParsedScript): void {
    collectValues(script);
    visit(script);
    destroys(forkBomb(script));
  }

  function destroys(reason: string | undefined): void {
    destructive ??= reason;
  }

  function collectValues(node: SyntaxNode): void {
    const add = (name: string, words: readonly Word[]): void => {
      values.set(name, [...(values.get(name) ?? []), ...words.flatMap(textsOf)].slice(0, MAX_GUESSES));
    };
    if (node.type === 'Assignment' && node.value.type === 'Word') add(node.name, [node.value]);
    if (node.type === 'For' || node.type === 'Select') add(node.name.text, node.wordlist ?? []);
    forEachChild(node, collectValues);
  }

  function visit(node: SyntaxNode, input?: string): void {
    spend(budget, 1);
    if (node.type === 'Command') visitCommand(node, input);
    if (node.type === 'Redirect' && node.target && !/&/.test(node.operator)) {
      const isWrite = node.operator !== '<';
      for (const text of textsOf(node.target)) {
        for (const one of placed(text)) if (isWrite) destroys(destructiveWrite(one));
        if (text !== '') touch(isWrite ? 'write' : 'read', text);
      }
    }
    if (node.type === 'Pipeline') {
      let printed: string | undefined;
      for (const command of node.commands) {
        visit(command, printed);
        printed = command.type === 'Command' ? printedBy(command) : undefined;
      }
    } else forEachChild(node, (child) => visit(child));
  }

  function touch(type: 'read' | 'write', file: string): void {
    touches.set(`${type} ${file}`, { type, path: file });
  }

  /** The text, also seen from the folders that the command changes to. */
  function placed(text: string): string[] {
    const isAbove = folder !== undefined && /(^|\/)\.\.(\/|$)/.test(text) && !/^[/~]/.test(text);
    return [
      text,
      ...(/^[/~-]/.test(text) ? [] : bases.map((base) => `${base}/${text}`)),
      ...(isAbove ? [path.resolve(folder, text)] : []),
    ];
  }

  function visitCommand(command: Command, input: string | undefined): void {
    if (!command.name) return;
    const args = command.args.map((arg) => (arg.type === 'Word' ? textsOf(arg) : [arg.text]));
    const stdin = [
      ...(input === undefined ? [] : [input]),
      ...command.redirects.flatMap((one) =>
        one.type === 'HereDoc' ? one.body.text : one.type === 'HereString' && one.target ? textsOf(one.target) : [],
      ),
    ];
    for (const name of textsOf(command.name)) if (name !== '') visitProgram(name, args, stdin);
  }

  function visitProgram(name: string, args: readonly (readonly string[])[], stdin: readonly string[]): void {
    spend(budget, 1 + args.length);
    const base = path.basename(name);
    const given = args.map((texts) => (texts.length === 1 ? texts[0] : undefined));
    programs.set(JSON.stringify([name, given]), { name, args: given });
    if (base === 'cd' || base === 'pushd') bases.push(...(args.find(([text]) => !text?.startsWith('-')) ?? ['~']));
    const candidates = [
      ...args.map((texts) => texts.flatMap(placed)),
      ...(base === 'xargs' ? stdin.map((one) => one.trim().split(/\s+/)) : []),
    ];
    destroys(destructiveProgram(base, candidates));
    const written = /^(tee|touch|truncate)$/.test(base)
      ? candidates.flat()
      : /^(cp|mv|ln|install|rsync)$/.test(base)
        ? (candidates.at(-1) ?? [])
        : [];
    for (const file of written) destroys(destructiveWrite(file));
    if (!/^(echo|printf)$/.test(base)) for (const text of args.flat()) useParts(text);
    if (SHELLS.test(base))
      for (const code of [...args.flat().filter((text) => /\s/.test(text)), ...stdin]) visitCode(code);
    if (TAKES_CODE.test(base)) {
      visitCode(args.map(([text = '']) => text).join(' '));
      for (const [text = ''] of args) if (/\s/.test(text)) visitCode(text);
    }
    if (!WRAPPERS.test(base)) return;
    for (const [at, texts] of args.entries()) {
      for (const text of texts) {
        if (!/^[\w./-]+$/.test(text) || text.startsWith('-')) continue;
        visitProgram(text, candidates.slice(at + 1), SHELLS.test(path.basename(text)) ? stdin : []);
      }
      if (texts.some((text) => /^[a-z/]/.test(text))) break;
    }
  }

  function useParts(text: string): void {
    const report = {
      read: ({ text: file }: { text: string }) => touch('read', file),
      url: (url: string) => urls.add(url),
    };
    for (const part of new Set([text, ...text.split(/[=@,:]+/)])) {
      if (part !== '' && part.length < 4096) useFree(report, { text: part, home: part.startsWith('~') });
    }
  }

  /* Words */

  function textsOf(word: Word): string[] {
    spend(budget, 1);
    const texts = word.parts ? combined(word.parts.map(partTexts)) : [word.value];
    return [...new Set(texts)];
  }

  function combined(parts: readonly (readonly string[])[]): string[] {
    let texts = [''];
    for (const choices of parts) {
      texts = texts.flatMap((text) => choices.map((choice) => text + choice)).slice(0, MAX_GUESSES);
      spend(budget, texts.length);
    }
    return texts;
  }

  function partTexts(part: WordPart): readonly string[] {
    switch (part.type) {
      case 'DoubleQuoted':
      case 'LocaleString':
        return combined(part.parts.map(partTexts));
      case 'SimpleExpansion':
        return valueTexts(part.text.slice(1));
      case 'ParameterExpansion': {
        const { operation } = part;
        const more =
          operation?.type === 'Default' ? textsOf(operation.operand) : operation?.type === 'Slice' ? ['/'] : [];
        return [...valueTexts(part.parameter), ...more];
      }
      case 'CommandExpansion':
        return ['', ...printedTexts(part.script)];
      case 'BraceExpansion':
        return braceTexts(part.text);
      case 'ProcessSubstitution':
      case 'ArithmeticExpansion':
        return [''];
      default:
        return ['value' in part ? part.value : part.text];
    }
  }

  function valueTexts(name: string): readonly string[] {
    return ['', ...(values.get(name) ?? [])];
  }

  function printedTexts(script: ParsedScript | undefined): string[] {
    const command = script?.commands[0]?.command;
    const text = command?.type === 'Command' ? printedBy(command) : undefined;
    return text === undefined ? [] : [text.trim()];
  }

  function printedBy({ name, args }: Command): string | undefined {
    if (name?.text !== 'echo' && name?.text !== 'printf') return undefined;
    return args.map((arg) => (arg.type === 'Word' ? arg.value : arg.text)).join(' ');
  }
}

function braceTexts(text: string): readonly string[] {
  const inner = /^\{([^{}]*,[^{}]*)\}$/.exec(text)?.[1];
  return inner === undefined ? [text] : inner.split(',').slice(0, MAX_GUESSES);
}

/** Functions that start themselves, a shell that starts itself, and endless loops that start processes. */
function forkBomb(script: SyntaxNode): string | undefined {
  const bodies = new Map<string, { readonly calls: ReadonlySet<string>; readonly spawns: boolean }>();
  let found: string | undefined;
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'Function') bodies.set(node.name.text, describe(node));
    const isEndless =
      (node.type === 'While' && /^(true|:|false)$/.test(commandName(node.clause.commands[0]) ?? '')) ||
      (node.type === 'ArithmeticFor' && !node.test);
    if (
      isEndless &&
      (node.type === 'While' || node.type === 'ArithmeticFor') &&
      spawnsWithoutWaiting(node.body.commands)
    )
      found = 'it starts processes in an endless loop (a fork bomb)';
    if (node.type === 'Statement' && node.background && commandName(node) === '$0')
      found = 'a shell starts itself again and again (a fork bomb)';
    forEachChild(node, visit);
  };
  visit(script);
  for (const [name] of bodies) {
    const reached = new Set<string>();
    const open = [name];
    let spawns = false;
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const body = bodies.get(next);
      spawns ||= body?.spawns ?? false;
      for (const called of body?.calls ?? []) {
        if (reached.has(called)) continue;
        reached.add(called);
        open.push(called);
      }
    }
    if (reached.has(name) && spawns) found = `the function ${name} starts itself again and again (a fork bomb)`;
  }
  return found;
}

function describe(body: FunctionNode): { readonly calls: ReadonlySet<string>; readonly spawns: boolean } {
  const calls = new Set<string>();
  let spawns = false;
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'Command' && node.name) calls.add(node.name.value);
    spawns ||=
      (node.type === 'Statement' && node.background === true) || (node.type === 'Pipeline' && node.commands.length > 1);
    forEachChild(node, visit);
  };
  forEachChild(body, visit);
  return { calls, spawns };
}

function commandName(statement: Statement | undefined): string | undefined {
  return statement?.command.type === 'Command' ? statement.command.name?.text : undefined;
}

function spawnsWithoutWaiting(body: readonly Statement[]): boolean {
  const waits = (one: Statement): boolean =>
    !one.background && /^(wait|sleep|read|break|exit|return)$/.test(commandName(one) ?? '');
  return body.some(({ background }) => background) && !body.some(waits);
}
