/*
 * What a command might do, whatever it is. Nothing is allowed because of this: it finds programs and paths that lists deny, and
 * forms that destroy a machine, so that they are denied also where people, an entry or a sandbox would allow the command. It looks
 * for what a text might mean, and never for certainty, so it is advice: a wall is a sandbox.
 */
import path from 'node:path/posix';
import { compileGlob, matchesGlob, type CommandFacts } from '@treadle/core/policy';
import { forEachChild, parse, type Command, type SyntaxNode, type Word, type WordPart } from 'unbash';
import { namesIn } from './effects.ts';
import { factsOf, newFindings, spend, Unclear, type Budget, type Findings } from './scope.ts';

export type Guesses = Omit<CommandFacts, 'unclear' | 'unchecked'>;

interface Search {
  readonly folder: string | undefined;
  readonly budget: Budget;
  readonly found: Findings;
  /** What variables might hold. */
  readonly values: Map<string, readonly string[]>;
  /** What programs might find on their standard input. */
  readonly inputs: string[];
  /** Folders that the command changes to. */
  readonly bases: string[];
  destructive?: string | undefined;
  depth: number;
}

const WRAPPERS =
  /^(sudo|doas|env|nice|ionice|timeout|xargs|busybox|toybox|command|builtin|exec|nohup|setsid|stdbuf|time|find|watch|flock|parallel|chroot|unbuffer|su|ssh|script|unshare|nsenter)$/;
const SHELLS = /^(ba|da|a|z|k|mk|rba)?sh$/;
const TAKES_CODE = /^(eval|trap|su|ssh|watch|script|flock|env|npx|npm)$/;
const MAX_DEPTH = 12;
const MAX_TEXTS = 16;

/** Throws `Unclear` if there is too much to look at. */
export function guessCommand(command: string, folder: string | undefined, budget: Budget): Guesses {
  const found = newFindings();
  const search: Search = { folder, budget, found, values: new Map([['HOME', ['~']]]), inputs: [], bases: [], depth: 0 };
  visitCode(command, search);
  return { ...factsOf(found), ...(search.destructive !== undefined && { destructive: search.destructive }) };
}

function visitCode(code: string, search: Search): void {
  if (++search.depth > MAX_DEPTH) throw new Unclear('it is nested too deeply');
  const nodes = nodesIn(parse(code));
  spend(search.budget, nodes.length);
  for (const node of nodes) collectTexts(node, search);
  for (const node of nodes) {
    if (node.type === 'Command') {
      const args = node.args.map((arg) => (arg.type === 'Word' ? textsOf(arg, search) : [arg.text]));
      for (const name of node.name ? textsOf(node.name, search) : []) if (name !== '') visitProgram(name, args, search);
    } else if (node.type === 'Redirect' && node.target && !node.operator.includes('&'))
      for (const text of textsOf(node.target, search)) touch(node.operator === '<' ? 'read' : 'write', text, search);
  }
  if (isForkBomb(nodes)) search.destructive ??= 'it starts itself or other processes without end (a fork bomb)';
  search.depth--;
}

function nodesIn(node: SyntaxNode, found: SyntaxNode[] = []): readonly SyntaxNode[] {
  found.push(node);
  forEachChild(node, (child) => void nodesIn(child, found));
  return found;
}

function collectTexts(node: SyntaxNode, search: Search): void {
  const { values, inputs } = search;
  const texts = (words: readonly Word[] = []): string[] => words.flatMap((word) => textsOf(word, search));
  const assign = (name: string, words?: readonly Word[]): unknown =>
    values.set(name, [...(values.get(name) ?? []), ...texts(words)].slice(0, MAX_TEXTS));
  if (node.type === 'Assignment' && node.value.type === 'Word') assign(node.name, [node.value]);
  else if (node.type === 'For' || node.type === 'Select') assign(node.name.text, node.wordlist);
  else if (node.type === 'HereDoc') inputs.push(node.body.text);
  else if (node.type === 'HereString') inputs.push(...texts(node.target && [node.target]));
  else if (node.type === 'Command') inputs.push(printedBy(node));
}

function printedBy({ name, args }: Command): string {
  const isPrinter = name?.text === 'echo' || name?.text === 'printf';
  return isPrinter ? args.map((arg) => (arg.type === 'Word' ? arg.value : arg.text)).join(' ') : '';
}

function touch(type: 'read' | 'write', file: string, search: Search): void {
  if (file === '') return;
  search.found.touches.set(`${type} ${file}`, { type, path: file });
  if (type === 'write') for (const one of placesOf(file, search)) search.destructive ??= destructiveWrite(one);
}

/** The text, also as seen from the folders that the command changes to. */
function placesOf(text: string, { folder, bases }: Search): string[] {
  if (/^[/~-]/.test(text)) return [text];
  const isAbove = folder !== undefined && /(^|\/)\.\.(\/|$)/.test(text);
  return [text, ...bases.map((base) => `${base}/${text}`), ...(isAbove ? [path.resolve(folder, text)] : [])];
}

function visitProgram(name: string, args: readonly (readonly string[])[], search: Search): void {
  spend(search.budget, 1 + args.length);
  const { found, inputs, bases } = search;
  const base = path.basename(name);
  const given = args.map((texts) => (texts.length === 1 ? texts[0] : undefined));
  found.programs.set(JSON.stringify([name, given]), { name, args: given });
  if (base === 'cd' || base === 'pushd') bases.push(...(args.find(([text]) => !text?.startsWith('-')) ?? ['~']));
  const candidates = args.map((texts) => texts.flatMap((text) => placesOf(text, search)));
  if (base === 'xargs') candidates.push(inputs.flatMap((one) => one.trim().split(/\s+/)));
  search.destructive ??= destructiveProgram(base, candidates);
  const written = /^(tee|touch|truncate)$/.test(base) ? 0 : /^(cp|mv|ln|install|rsync)$/.test(base) ? -1 : Infinity;
  for (const file of candidates.slice(written).flat()) search.destructive ??= destructiveWrite(file);
  if (!/^(echo|printf)$/.test(base))
    for (const part of args.flat().flatMap((text) => [text, ...text.split(/[=@,:]+/)])) {
      const { paths, urls } = part.length < 4096 ? namesIn(part) : { paths: [], urls: [] };
      for (const file of paths) touch('read', file, search);
      for (const url of urls) found.urls.add(url);
    }
  const codes = args.flat().filter((text) => /\s/.test(text));
  if (SHELLS.test(base)) codes.push(...inputs.splice(0));
  if (TAKES_CODE.test(base)) codes.push(args.map(([text = '']) => text).join(' '));
  if (SHELLS.test(base) || TAKES_CODE.test(base)) for (const code of codes) visitCode(code, search);
  const at = WRAPPERS.test(base) ? args.findIndex((texts) => texts.some((text) => /^[a-z/]/.test(text))) : -1;
  for (const [index, texts] of args.slice(0, at + 1).entries())
    for (const text of texts)
      if (/^[\w./][\w./-]*$/.test(text)) visitProgram(text, candidates.slice(index + 1), search);
}

/* What words might become */

function textsOf({ parts, value }: Word, search: Search): readonly string[] {
  spend(search.budget, 1);
  return parts ? [...new Set(combined(parts, search))] : [value];
}

function combined(parts: readonly WordPart[], search: Search): readonly string[] {
  let texts = [''];
  for (const part of parts) {
    const choices = partTexts(part, search);
    texts = texts.flatMap((text) => choices.map((choice) => text + choice)).slice(0, MAX_TEXTS);
    spend(search.budget, texts.length);
  }
  return texts;
}

function partTexts(part: WordPart, search: Search): readonly string[] {
  const { type, text } = part;
  if (type === 'DoubleQuoted' || type === 'LocaleString') return combined(part.parts, search);
  if ('value' in part) return [part.value];
  if (type === 'CommandExpansion') {
    const command = part.script?.commands[0]?.command;
    return ['', command?.type === 'Command' ? printedBy(command) : ''];
  }
  const [, name, rest = ''] = /^\$\{?[!#]?(\w+)([^]*?)\}?$/.exec(text) ?? [];
  if (name === undefined)
    return /^[$<>]/.test(text)
      ? ['']
      : (/^\{([^{}]*,[^{}]*)\}$/.exec(text)?.[1]?.split(',').slice(0, MAX_TEXTS) ?? [text]);
  // The value of a variable, and its default. A part of it may be the first letter of a path.
  const more = /^:?[-=+]/.test(rest) ? rest.replace(/^:?[-=+]/, '') : rest.startsWith(':') ? '/' : '';
  return [...new Set(['', ...(search.values.get(name) ?? []), more])];
}

/* Forms that destroy a machine or that survive the run */

const SYSTEM_FOLDERS: readonly (readonly string[])[] = (
  '/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr /var ' +
  '/usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var/lib /var/log ' +
  '/applications /library /private /system /users /volumes'
)
  .split(' ')
  .map((folder) => (folder === '/' ? [''] : folder.split('/')));

const START_UP_FILES =
  /(^|\/)(\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|mkshrc|cshrc|tcshrc|login|xprofile|xinitrc|xsessionrc|inputrc|pam_environment)|\.config\/fish\/(config\.fish|conf\.d\/[^/]+|functions\/[^/]+))$|^\/etc\/(profile|bash\.bashrc|bashrc|zshrc|zshenv|environment|(profile\.d|zsh|fish)\/.+)$/;

const DISKS =
  /^\/dev\/((sd|hd|vd|xvd|nvme|mmcblk|loop|md|dm-|ram|sr|zd|nbd|rdisk|disk)[^/]*$|(disk|mapper|block)\/|(mem|kmem|port)$)/;
const DISK_TOOLS =
  /^(mkfs(\..*)?|mke2fs|mkswap|mkdosfs|mkntfs|newfs.*|wipefs|blkdiscard|sgdisk|[cs]?fdisk|parted|cryptsetup)$/;

/** Why writing to this path destroys something. */
function destructiveWrite(file: string): string | undefined {
  const resolved = resolveText(file);
  if (DISKS.test(resolved)) return `it overwrites the device ${resolved}`;
  if (START_UP_FILES.test(resolved)) return `it changes ${file}, which shells run when they start`;
  return resolved === '/proc/sysrq-trigger' ? 'it makes the kernel act at once' : undefined;
}

function resolveText(file: string): string {
  const resolved = path
    .normalize(file)
    .replace(/^(\/proc\/(self|thread-self|\d+|\$\$)(\/task\/\d+)?\/(root|cwd)(?=\/|$))+/, '/');
  return path.normalize(resolved).replace(/(?<=.)\/+$/, '');
}

/** Whether a path is a folder of the system or a home folder, or everything in one. A glob counts if it could match one. */
function isSystemFolder(file: string): boolean {
  if (/^~[^/]*\/*(\.?\*+\/*)?$/.test(file)) return true;
  // `~/..` and above.
  if (/^~[^/]*\//.test(file))
    return path.normalize(`/home/user/${file.replace(/^[^/]*\//, '')}`).split('/').length <= 3;
  if (!file.startsWith('/')) return false;
  const folder =
    resolveText(file)
      .toLowerCase()
      .replace(/\/(\*+|\.\*|\.\[.*|\?+)$/, '') || '/';
  const glob = compileGlob(folder.replaceAll(/(\*|\[[^\]]*\]|\{[^}]*\}|[{}])+/g, '*'));
  return /^\/(home|users)\/[^/]+$/.test(folder) || SYSTEM_FOLDERS.some((system) => matchesGlob(glob, system));
}

/** Why this program with these arguments destroys something. `candidates[i]` is what argument `i` might be. */
function destructiveProgram(name: string, candidates: readonly (readonly string[])[]): string | undefined {
  const flat = candidates.flat();
  const hasOption = (pattern: RegExp): boolean => flat.some((arg) => arg.startsWith('-') && pattern.test(arg));
  if (DISK_TOOLS.test(name) && flat.some((arg) => !/^-{1,2}(V|h|l|L|help|version|list)$/.test(arg)))
    return `${name} destroys file systems`;
  if (/^(rm|srm)$/.test(name) && hasOption(/^--no-p/)) return `${name} is told not to preserve /`;
  if (name === 'kill' && flat.length > 1 && flat.at(-1) === '-1') return 'it ends every process';
  const device = name === 'dd' ? flat.find((arg) => DISKS.test(resolveText(arg.replace(/^of=/, '')))) : undefined;
  if (device !== undefined) return `it overwrites the device ${device.slice(3)}`;
  const system = flat.find((arg) => !arg.startsWith('-') && isSystemFolder(arg));
  if (system === undefined) return undefined;
  const isDestroyed =
    /^(srm|trash|rimraf|del)$/.test(name) ||
    (/^(rm|chmod|chown|chgrp|setfacl|chattr|chcon)$/.test(name) && hasOption(/^-[a-z]*r|^--re?/i)) ||
    (name === 'mv' && flat.findLast((arg) => !arg.startsWith('-')) !== system) ||
    (name === 'rsync' && hasOption(/^--del/)) ||
    (name === 'find' &&
      /(^| )-(delete|(exec|ok)(dir)? (\S*\/)?(rm|shred|unlink|chmod|chown|mv))( |$)/.test(flat.join(' ')));
  return isDestroyed ? `${name} removes or changes ${system}` : undefined;
}

/** Functions that start themselves, a shell that starts itself, and endless loops that start processes without waiting. */
function isForkBomb(nodes: readonly SyntaxNode[]): boolean {
  const nameOf = (node: SyntaxNode): string | undefined => {
    const command = node.type === 'Statement' ? node.command : node;
    return command.type === 'Command' ? command.name?.value : undefined;
  };
  const isAsync = (node: SyntaxNode): boolean =>
    node.type === 'Statement' ? node.background === true : node.type === 'Pipeline' && node.commands.length > 1;
  /** What each function starts, and `&` if some of it runs at the same time. */
  const calls = new Map<string, ReadonlySet<string | undefined>>();
  for (const node of nodes) {
    if (node.type === 'Function')
      calls.set(node.name.text, new Set(nodesIn(node.body).map((one) => (isAsync(one) ? '&' : nameOf(one)))));
    if (node.type === 'Statement' && node.background && nameOf(node) === '$0') return true;
    const isEndless =
      (node.type === 'While' && /^(true|:|false)$/.test(nameOf(node.clause.commands[0]!) ?? '')) ||
      (node.type === 'ArithmeticFor' && !node.test);
    if (!isEndless || !('commands' in node.body)) continue;
    const { commands } = node.body;
    const waits = commands.some(
      (one) => !one.background && /^(wait|sleep|read|break|exit|return)$/.test(nameOf(one) ?? ''),
    );
    if (!waits && commands.some(isAsync)) return true;
  }
  return [...calls.keys()].some((name) => {
    const reached = new Set(calls.get(name));
    // A set that grows while it is walked.
    for (const called of reached) for (const next of calls.get(called ?? '') ?? []) reached.add(next);
    return reached.has(name) && reached.has('&');
  });
}
