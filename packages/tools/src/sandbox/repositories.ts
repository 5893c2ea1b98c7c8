import { basename, dirname, join, resolve } from 'node:path';
import { entriesOf, exists, isClosed, isLink, isWithin, lstatOf, realOf, textOf } from './lookups.ts';

/*
 * What in a repository decides which programs git runs on the host, and where it looks for them. Everything else in it stays
 * writable: objects, branches, the index, and `.gitattributes`, which names only programs that the settings know.
 */

/** What git runs, its settings, and where it looks for both. The last two are an old form of settings of remotes. */
const TRUSTED = ['hooks', 'config', 'config.worktree', 'commondir', 'objects/info/alternates', 'remotes', 'branches'];
const MAX_INCLUDES = 5;
/** Slashes in the name of a submodule. */
const MAX_DEPTH = 10;

/**
 * The files and folders in the repository `git` that the host's git trusts, also in its submodules. `top`: its working folder.
 * `userHooks`: `core.hooksPath` of the user's own settings.
 */
export function trustedFiles(
  git: string,
  {
    top,
    userHooks,
    home,
  }: { readonly top: string; readonly userHooks?: string | undefined; readonly home?: string | undefined },
): readonly string[] {
  const found = [...TRUSTED.map((name) => join(git, name)), ...startingSteps(git)];
  const settings = settingsOf([join(git, 'config'), join(git, 'config.worktree')], { home, depth: 0 });
  found.push(...settings.files);
  const place = settings.last('core.worktree');
  const hooks = [...settings.all('core.hookspath'), ...(userHooks === undefined ? [] : [userHooks])];
  const folder = place === undefined ? top : resolve(git, place);
  for (const path of hooks) found.push(hooksFolder(resolve(folder, withHome(path, home))));
  for (const worktree of worktreesIn(git)) {
    for (const one of ['commondir', 'config.worktree']) found.push(join(worktree, one));
    found.push(...startingSteps(worktree));
  }
  for (const module of modulesIn(join(git, 'modules'), MAX_DEPTH)) {
    found.push(...trustedFiles(module, { top: module, userHooks, home }));
  }
  return found;
}

function worktreesIn(git: string): readonly string[] {
  return entriesOf(join(git, 'worktrees')).map(({ name }) => join(git, 'worktrees', name));
}

/** Steps of a rebase that start no program. */
const PLAIN_STEP =
  /^\s*(#.*|(pick|reword|edit|squash|fixup|drop|break|label|reset|merge|noop|update-ref|[presfdbltmu])(\s.*)?)?$/;
const PLAIN_STRATEGY = /^(ort|recursive|resolve|octopus|ours|subtree)?\s*$/;

/** Files of a rebase that has stopped, if git would start programs that they name to continue it. */
export function startingSteps(git: string): readonly string[] {
  const [steps, strategy] = [join(git, 'rebase-merge/git-rebase-todo'), join(git, 'rebase-merge/strategy')];
  const isPlain = textOf(steps)
    .split('\n')
    .every((line) => PLAIN_STEP.test(line));
  // Of a cherry-pick or a revert.
  const options = join(git, 'sequencer/opts');
  const picked = parsed(options).settings.flatMap(({ name, value }) => (name === 'options.strategy' ? value : []));
  return [
    ...(isPlain ? [] : [steps]),
    ...(PLAIN_STRATEGY.test(textOf(strategy)) ? [] : [strategy]),
    ...(picked.every((value) => PLAIN_STRATEGY.test(value)) ? [] : [options]),
  ];
}

/** The hooks in `.husky/_` start the files beside that folder. */
function hooksFolder(path: string): string {
  return basename(path) === '_' ? dirname(path) : path;
}

/** The repositories of submodules, whose names may contain slashes. */
function modulesIn(folder: string, depth: number): readonly string[] {
  if (depth === 0) return [];
  return entriesOf(folder).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (!entry.isDirectory()) return [];
    return isClosed(path) || exists(join(path, 'HEAD')) ? [path] : modulesIn(path, depth - 1);
  });
}

/** A worktree names the folder of its repository, and that one names the worktree. Only then is it shown. */
export function worktreeOf(git: string): readonly string[] {
  const named = /^gitdir: (.+)$/m.exec(textOf(git))?.[1];
  const own = named === undefined ? undefined : realOf(resolve(dirname(git), named));
  if (own === undefined || realOf(resolve(own, textOf(join(own, 'gitdir')).trim())) !== realOf(git)) return [];
  const common = realOf(resolve(own, textOf(join(own, 'commondir')).trim()));
  if (common === undefined || !isWithin(common, own)) return [];
  return lstatOf(join(common, 'objects'))?.isDirectory() ? [common, own] : [];
}

/* Repositories that a command has created */

/** Settings that make git start no program. */
const PLAIN =
  /^(core\.(repositoryformatversion|filemode|bare|worktree|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol|safecrlf|quotepath)|extensions\.objectformat|user\.(name|email)|init\.defaultbranch|commit\.gpgsign|gc\.auto|pull\.(rebase|ff)|push\.default|branch\..+\.(remote|merge|rebase)|remote\..+\.(url|fetch)|submodule\..+\.(url|active))$/;

/**
 * What of a repository that a program may have created the host's git must not see. `git`: its folder, or a file or link in its
 * place. `top`: the folder that the program works in.
 */
export function untrustedFiles(git: string, top: string): readonly string[] {
  const found = lstatOf(git);
  if (!found) return [];
  if (!found.isDirectory()) {
    const place = repositoryNamedBy(git, top);
    return place === undefined ? [git] : untrustedFiles(place, top);
  }
  const closed = [git, ...['hooks', 'worktrees', 'modules'].map((name) => join(git, name))].find(isClosed);
  if (closed !== undefined) return [closed];
  const config = join(git, 'config');
  const others = TRUSTED.filter((name) => !['hooks', 'config'].includes(name)).map((name) => join(git, name));
  const hooks = join(git, 'hooks');
  const hasHooks = isLink(hooks) || entriesOf(hooks).some(({ name }) => !name.endsWith('.sample'));
  return [
    ...(hasPlainSettings(config, top) ? [] : [config]),
    ...(hasHooks ? [hooks] : []),
    ...others.filter((path) => exists(path) && !isEmptyFolder(path)),
    ...startingSteps(git),
    ...worktreesIn(git).flatMap((worktree) => [
      ...(textOf(join(worktree, 'commondir')).trim() === '../..' ? [] : [join(worktree, 'commondir')].filter(exists)),
      ...[join(worktree, 'config.worktree')].filter((path) => exists(path) && !hasPlainSettings(path, top)),
      ...startingSteps(worktree),
    ]),
    ...modulesIn(join(git, 'modules'), MAX_DEPTH).flatMap((module) => untrustedFiles(module, top)),
  ];
}

/** What a file in place of a repository leads to: the repository of a worktree or a submodule, in the folder. */
function repositoryNamedBy(git: string, top: string): string | undefined {
  const named = isLink(git) || git === join(top, '.git') ? undefined : /^gitdir: (.+)$/m.exec(textOf(git))?.[1];
  const own = named === undefined ? undefined : realOf(resolve(dirname(git), named));
  if (own === undefined || !isWithin(top, own) || !lstatOf(own)?.isDirectory()) return undefined;
  if (/\/\.git\/worktrees\/[^/]+$/.test(own)) return dirname(dirname(own));
  return /\/\.git\/modules\/.+$/.test(own) ? own : undefined;
}

function isEmptyFolder(path: string): boolean {
  return lstatOf(path)?.isDirectory() === true && entriesOf(path).length === 0;
}

function hasPlainSettings(config: string, top: string): boolean {
  const { settings, isUnderstood } = parsed(config);
  return (
    isUnderstood &&
    hasOneName(config) &&
    !isClosed(config) &&
    settings.every(({ name, value }) => PLAIN.test(name) && isPlainValue(name, value, { git: dirname(config), top }))
  );
}

/** A plain file, or nothing: neither what another name changes, nor a pipe that a program fills later. */
function hasOneName(path: string): boolean {
  const found = lstatOf(path);
  return !found || (found.isFile() && found.nlink === 1);
}

function isPlainValue(
  name: string,
  value: string,
  { git, top }: { readonly git: string; readonly top: string },
): boolean {
  if (name === 'core.bare') return basename(git) !== '.git' || value === 'false';
  if (name === 'core.worktree') return isWithin(top, resolve(git, value));
  // An address may name a program: `ext::sh -c …`.
  return !name.endsWith('.url') || !/::|^-/.test(value);
}

/* Settings */

interface Setting {
  /** `section.subsection.key`; all but the subsection in small letters. */
  readonly name: string;
  readonly value: string;
}

interface Settings {
  /** The files that were included. */
  readonly files: readonly string[];
  all(name: string): readonly string[];
  last(name: string): string | undefined;
}

function settingsOf(
  configs: readonly string[],
  { home, depth }: { home?: string | undefined; depth: number },
): Settings {
  const files: string[] = [];
  const found: Setting[] = [];
  for (const config of configs) {
    const { settings } = parsed(config);
    found.push(...settings);
    const included = settings
      .filter(({ name }) => /^include(if)?\..*path$/.test(name))
      .map(({ value }) => resolve(dirname(config), withHome(value, home)));
    files.push(...included);
    if (depth === MAX_INCLUDES || included.length === 0) continue;
    const inner = settingsOf(included, { home, depth: depth + 1 });
    files.push(...inner.files);
    for (const name of ['core.hookspath', 'core.worktree']) {
      found.push(...inner.all(name).map((value) => ({ name, value })));
    }
  }
  const all = (name: string): readonly string[] => found.flatMap((one) => (one.name === name ? one.value : []));
  return { files, all, last: (name) => all(name).at(-1) };
}

function withHome(path: string, home = '~'): string {
  return path.startsWith('~/') ? join(home, path.slice(2)) : path;
}

/** The settings in a file. Lines that are not understood are left out. */
function parsed(file: string): { readonly settings: readonly Setting[]; readonly isUnderstood: boolean } {
  const settings: Setting[] = [];
  let isUnderstood = true;
  let section = '';
  for (const raw of textOf(file).split('\n')) {
    const head = /^\s*\[([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\]/.exec(raw);
    if (head) section = [head[1]!.toLowerCase(), ...(head[2] === undefined ? [] : [head[2]])].join('.');
    const line = raw.slice(head?.[0].length ?? 0).trim();
    if (line === '' || /^[#;]/.test(line)) continue;
    const [, key, text = 'true'] = /^([A-Za-z][\w-]*)\s*(?:=\s*(.*))?$/.exec(line) ?? [];
    const quoted = /^"((?:[^"\\]|\\.)*)"$/.exec(text)?.[1]?.replaceAll(/\\(.)/g, '$1');
    const value = quoted ?? text.replace(/\s*[#;].*$/, '');
    if (key === undefined || section === '' || /["\\]/.test(quoted === undefined ? value : '')) isUnderstood = false;
    if (key !== undefined) settings.push({ name: `${section}.${key.toLowerCase()}`, value });
  }
  return { settings, isUnderstood };
}
