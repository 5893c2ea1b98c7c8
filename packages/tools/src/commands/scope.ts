/* What a part of a command sees, and what was found about it: programs, paths and addresses. */
import { lstatSync, readdirSync, type Dirent, type Stats } from 'node:fs';
import path from 'node:path/posix';
import type { CommandFacts, Program } from '@treadle/core/policy';

/** Why a command is not in the grammar that is known completely. Ends the analysis: people are asked. */
export class Unclear extends Error {}

/** The analysis has to list folders, which may take long. It starts again where that harms nobody. */
export class NeedsFiles extends Error {}

/** What one command may still cost, in all of its parts together: words, walks, entries of folders, guesses. */
export interface Budget {
  steps: number;
}

export function spend(budget: Budget, count: number): void {
  budget.steps -= count;
  if (budget.steps < 0) throw new Unclear('it has too many parts');
}

/** What was found in all parts of the command. */
export interface Findings {
  readonly programs: Map<string, Program>;
  readonly touches: Map<string, CommandFacts['touches'][number]>;
  readonly urls: Set<string>;
  /** Words with names that match a pattern. Others may match when the command runs, so these are never code. */
  readonly matched: Set<string>;
  /** The program that may have created links. */
  linker?: string;
  /** Where git looks for repositories inside may have changed: by itself, or because an archive or .gitmodules leads to some. */
  newRepositories?: 'named' | 'unpacked';
  hasRepositoryBelow?: boolean;
}

export interface Scope {
  /** The folder of the command, absolute. */
  readonly root: string | undefined;
  readonly budget: Budget;
  /** Folders may be listed. */
  readonly mayList: boolean;
  /** Whether a path is private, given absolute. */
  isPrivate(file: string): boolean;
  readonly found: Findings;
  /** Folders that it may run in: absolute, or as seen from the one of the command. */
  readonly folders: readonly string[];
  readonly variables: ReadonlyMap<string, Value>;
  /** What assigns each variable of this code. */
  readonly assigned: Map<string, object>;
  /** The shell may not be bash. */
  readonly posix: boolean;
  /** Standard input is redirected. `unsure`: perhaps from a folder, which some programs do not take for an input. */
  readonly hasInput: boolean | 'unsure';
  /** How many programs and codes contain this part. */
  readonly depth: number;
}

/** What a variable holds. `isMatch`: the name of a file, which may be another one when the command runs. */
export interface Value {
  readonly text: string;
  readonly isMatch: boolean;
}

export function newFindings(): Findings {
  return { programs: new Map(), touches: new Map(), urls: new Set(), matched: new Set() };
}

export function factsOf({ programs, touches, urls }: Findings): Pick<CommandFacts, 'programs' | 'touches' | 'urls'> {
  return { programs: [...programs.values()], touches: [...touches.values()], urls: [...urls] };
}

const MAX_DEPTH = 12;
const MAX_FOLDERS = 16;

export function demandNoMatch(code: string, { found }: Scope): void {
  if (found.matched.has(code)) throw new Unclear('names of files are a part of the code that it runs');
}

export function deeper(scope: Scope): Scope {
  if (scope.depth >= MAX_DEPTH) throw new Unclear('it is nested too deeply');
  return { ...scope, depth: scope.depth + 1 };
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

/** What is certain of a scope, in the folders of two others. */
export function inEither(certain: Scope, one: Scope, other: Scope): Scope {
  const folders = [...new Set([...one.folders, ...other.folders])];
  if (folders.length > MAX_FOLDERS) throw new Unclear('it changes the folder too often');
  return { ...certain, folders };
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

/* Files. They are looked up now. `..` is left to the system, because it may follow a link. */

/** Where a path may be; none if the folder of the command is not known. */
export function placesOf(file: string, { root, folders }: Scope): readonly string[] {
  return root === undefined ? [] : folders.map((base) => joined(root, joined(base, file)));
}

/** Undefined if nothing is there. */
export function statsOf(place: string, { budget }: Scope): Stats | undefined {
  spend(budget, 1);
  try {
    return lstatSync(place, { throwIfNoEntry: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return undefined;
    throw new Unclear(`${place} cannot be looked up`);
  }
}

export function kindOf(file: string, scope: Scope): 'file' | 'folder' | 'link' | 'none' | 'unknown' {
  const [kind = 'unknown', ...others] = placesOf(file, scope).map((place) => {
    const found = statsOf(place, scope);
    return !found ? 'none' : found.isSymbolicLink() ? 'link' : found.isDirectory() ? 'folder' : 'file';
  });
  return others.every((other) => other === kind) ? kind : 'unknown';
}

/** A file, or nothing. */
export function isPlain(file: string, scope: Scope): boolean {
  return ['file', 'none'].includes(kindOf(file, scope));
}

/** None if it is no folder. `share`: of a step for each. */
export function entriesIn(place: string, { mayList, budget }: Scope, share = 0.5): readonly Dirent[] {
  if (!mayList) throw new NeedsFiles();
  let entries: Dirent[] = [];
  try {
    entries = readdirSync(place, { withFileTypes: true });
  } catch {}
  spend(budget, (entries.length + 10) * share);
  return entries;
}

/** Files and folders below, without what is in repositories and behind links. */
export function* entriesBelow(
  place: string,
  scope: Scope,
  isWanted: (name: string, isFolder: boolean) => boolean = () => true,
  share?: number,
): Generator<{ readonly file: string; readonly isFolder: boolean; readonly isRepository: boolean }> {
  const open = [place];
  for (const folder of open)
    for (const entry of entriesIn(folder, scope, share)) {
      const [file, isFolder] = [joined(folder, entry.name), entry.isDirectory()];
      if (!isWanted(entry.name, isFolder)) continue;
      const isRepository = entry.name.toLowerCase() === '.git';
      yield { file, isFolder, isRepository };
      if (isFolder && !isRepository) open.push(file);
    }
}

/** Reports everything below. Where private files are, people decide: the command does not name them, and a sandbox hides them. */
export function touchTree(file: string, scope: Scope, isRead?: (name: string, isFolder: boolean) => boolean): void {
  touch('read', file, scope);
  if (isPlain(file, scope)) return;
  if (scope.root === undefined) throw new Unclear(`it is not known what is below ${file}`);
  let repository: string | undefined;
  for (const place of placesOf(file, scope)) {
    if (/\/\.git(\/|$)/i.test(place)) repository = file;
    else
      for (const one of entriesBelow(place, scope, isRead)) {
        const name = joined(file, path.relative(place, one.file));
        if (one.isFolder && one.isRepository) repository = name;
        else if (!one.isFolder && scope.isPrivate(one.file))
          throw new Unclear(`it would read ${name}, which is private`);
      }
  }
  if (repository !== undefined) throw new Unclear(`it would read ${repository}, which may have keys`);
}

/** Whether nothing is there, or a folder without entries. */
export function isEmpty(file: string, scope: Scope): boolean {
  const kind = kindOf(file, scope);
  const isFolder = kind === 'folder' && placesOf(file, scope).every((place) => entriesIn(place, scope).length === 0);
  return kind === 'none' || isFolder;
}
