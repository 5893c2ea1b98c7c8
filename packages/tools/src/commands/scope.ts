/* What a part of a command sees, and what was found about it: programs, paths and addresses. */
import type { CommandFacts, Program } from '@treadle/core/policy';
import { Unclear, type Budget, type Files, type Value } from './words.ts';

export interface Surroundings {
  /** The folder that the command runs in, absolute. */
  readonly folder: string | undefined;
  readonly files: Files;
  readonly budget: Budget;
  /** Whether a path is private, given absolute. */
  isPrivate(file: string): boolean;
}

/** What was found in all parts of the command. */
interface Findings {
  readonly programs: Map<string, Program>;
  readonly touches: Map<string, CommandFacts['touches'][number]>;
  readonly urls: Set<string>;
  /** The program that may have created links. */
  linker?: string;
  /** Where git looks for repositories inside may have changed: by itself, or because an archive or .gitmodules leads to some. */
  newRepositories?: 'named' | 'unpacked';
}

export interface Scope extends Surroundings {
  readonly found: Findings;
  /** Folders that it may run in: absolute, or as seen from the one of the command. */
  readonly folders: readonly string[];
  readonly variables: ReadonlyMap<string, Value>;
  /** Names of variables that are assigned at one place only. */
  readonly once: ReadonlySet<string>;
  /** The shell may not be bash. */
  readonly posix: boolean;
  /** Standard input is redirected. */
  readonly hasInput: boolean;
  /** How many programs and codes contain this part. */
  readonly depth: number;
}

const MAX_DEPTH = 12;
const MAX_FOLDERS = 16;

export function firstScope(around: Surroundings, posix: boolean): Scope {
  const found = { programs: new Map(), touches: new Map(), urls: new Set<string>() };
  return { ...around, found, folders: [''], variables: new Map(), once: new Set(), posix, hasInput: false, depth: 0 };
}

export function deeper(scope: Scope): Scope {
  if (scope.depth >= MAX_DEPTH) throw new Unclear('it is nested too deeply');
  return { ...scope, depth: scope.depth + 1 };
}

/** What is certain of a scope, in the folders of two others. */
export function inEither(certain: Scope, one: Scope, other: Scope): Scope {
  const folders = [...new Set([...one.folders, ...other.folders])];
  if (folders.length > MAX_FOLDERS) throw new Unclear('it changes the folder too often');
  return { ...certain, folders };
}

/** Assignments that change nothing but what a program prints, or how much it does. */
const SETTINGS =
  /^((CI|NODE_ENV|FORCE_COLOR|NO_COLOR|DEBUG|PYTHONUNBUFFERED|RUST_BACKTRACE|GOOS|GOARCH|CGO_ENABLED|PORT|LOG_LEVEL|COLUMNS)=[\w.:*,-]*|(LANG|LC_ALL)=(C|POSIX|C\.UTF-8|en_US\.UTF-8)|TZ=[A-Z]\w+(\/[A-Z]\w+)?)$/;

export function checkSetting(text: string): void {
  if (!SETTINGS.test(text)) throw new Unclear(`the variable ${text} may change what programs do`);
}

/** The scope in a folder that is changed to. */
export function inFolder(folder: string, scope: Scope): Scope {
  touch('read', folder, scope);
  if (/(^|\/)\.\.(\/|$)/.test(folder)) throw new Unclear('it is not known where .. leads after a change of the folder');
  return { ...scope, folders: scope.folders.map((base) => joined(base, folder)) };
}

/** As if it could also run in the folder of the command, where git is at the top of its repository. */
export function withTop(scope: Scope): Scope {
  return { ...scope, folders: [...new Set(['', ...scope.folders])] };
}

/** A path seen from a folder. `..` is resolved by whoever knows the links. */
export function joined(base: string, file: string): string {
  return base === '' || file.startsWith('/') ? file : `${base.replace(/(?<=[^/])\/+$/, '')}/${file}`;
}

export function touch(type: 'read' | 'write', file: string, scope: Scope): void {
  const { linker } = scope.found;
  if (linker !== undefined)
    throw new Unclear(`${linker} may change where ${file} leads: run what follows as a command of its own`);
  note(type, file, scope);
}

/** Reports a path that is touched wherever it leads. */
export function note(type: 'read' | 'write', file: string, { found, folders }: Scope): void {
  if (file === '') throw new Unclear('a path is empty');
  if (type === 'write' && /\.gitmodules$/i.test(file)) found.newRepositories = 'unpacked';
  for (const base of folders) {
    const name = joined(base, file.startsWith('~') ? `./${file}` : file);
    found.touches.set(`${type} ${name}`, { type, path: name });
  }
}

/** Differs when a part of the command has changed something that other parts look at. */
export function changesIn({ found: { touches, linker, newRepositories } }: Scope): string {
  const writes = [...touches.values()].filter(({ type }) => type === 'write');
  return `${writes.length} ${linker} ${newRepositories}`;
}

export function kindOf(file: string, scope: Scope): 'file' | 'folder' | 'link' | 'none' | 'unknown' {
  const kinds = placesOf(file, scope).map((place) => scope.files.kindOf(place) ?? 'none');
  return kinds.length > 0 && kinds.every((kind) => kind === kinds[0]) ? kinds[0]! : 'unknown';
}

/** Where a path may lead; none if that is not known. `..` is left to the system, because it may follow a link. */
function placesOf(file: string, { folder, folders }: Scope): string[] {
  return folder === undefined ? [] : folders.map((base) => joined(folder, joined(base, file)));
}

/** Reads everything below. Where private files are, people decide: the command does not name them, and a sandbox hides them. */
export function touchTree(
  file: string,
  scope: Scope,
  isRead: (name: string, isFolder: boolean) => boolean = () => true,
): void {
  touch('read', file, scope);
  if (['file', 'none'].includes(kindOf(file, scope))) return;
  if (scope.folder === undefined) throw new Unclear(`it is not known what is below ${file}`);
  const open = [file];
  let repository: string | undefined;
  for (let next = open.pop(); next !== undefined; next = open.pop())
    for (const place of placesOf(next, scope)) {
      if (/\/\.git(\/|$)/i.test(place)) {
        repository ??= next;
        continue;
      }
      for (const { name, isFolder } of scope.files.namesIn(place)) {
        if (!isRead(name, isFolder)) continue;
        const below = joined(next, name);
        if (isFolder) open.push(below);
        else if (scope.isPrivate(`${place}/${name}`)) throw new Unclear(`it would read ${below}, which is private`);
      }
    }
  if (repository !== undefined) throw new Unclear(`it would read ${repository}, which may have keys`);
}

/** Whether nothing is there, or a folder without entries. */
export function isEmpty(file: string, scope: Scope): boolean {
  const places = kindOf(file, scope) === 'folder' ? placesOf(file, scope) : [];
  return places.length === 0
    ? kindOf(file, scope) === 'none'
    : places.every((one) => scope.files.namesIn(one).length === 0);
}
