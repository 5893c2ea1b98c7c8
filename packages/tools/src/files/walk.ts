import { setImmediate } from 'node:timers/promises';
import type { FolderEntry } from '../ops.ts';
import type { GlobPattern } from './glob-pattern.ts';
import { ignoreRules, isIgnored, type IgnoreRules } from './ignore-rules.ts';
import { decodeText, encodingOf, readBytes } from './text-file.ts';
import type { Located, Workspace } from './workspace.ts';

/** Folders with generated content. They are entered only if the pattern names them. */
const SKIPPED_FOLDERS: readonly string[] = ['node_modules', '.git', '.treadle'];

const MAX_FILES = 200_000;
/** What follows in a .gitignore file is not used. */
const MAX_RULES_BYTES = 64 * 1024;
/** Other work of the process waits no longer than this. */
const SLICE_MS = 20;

/**
 * The files below a folder that searches show: plain files that no .gitignore excludes, in folders that may be listed and are
 * not excluded either. Links are not followed. Paths are relative to the folder where the search starts.
 */
export interface VisibleFiles {
  /** All of them, or, with `isCut`, those that were found before the limit. */
  walk(): Promise<{ readonly paths: readonly string[]; readonly isCut: boolean }>;
  /** Whether `walk` would find this file. */
  includes(path: string): Promise<boolean>;
  /** The names of folders that are left out wherever they are. */
  readonly skipped: readonly string[];
}

interface Folder {
  readonly entries: ReadonlyMap<string, FolderEntry['type']>;
  readonly rules: IgnoreRules | undefined;
}

export interface VisibleOptions {
  readonly space: Workspace;
  readonly from: Located;
  /** Folders where it cannot match are not entered; absent: all are. */
  readonly pattern?: GlobPattern | undefined;
  readonly signal: AbortSignal;
}

export function visibleFiles({ space, from, pattern, signal }: VisibleOptions): VisibleFiles {
  const skipped = SKIPPED_FOLDERS.filter((name) => !pattern?.names(name));
  const known = new Map<string, Promise<Folder | undefined>>();
  let sliceEnd = performance.now() + SLICE_MS;
  let checked = Promise.resolve();

  async function breathe(): Promise<void> {
    signal.throwIfAborted();
    if (performance.now() < sliceEnd) return;
    await setImmediate();
    sliceEnd = performance.now() + SLICE_MS;
    signal.throwIfAborted();
  }

  return {
    skipped,
    async walk() {
      const paths: string[] = [];
      const ahead: { readonly path: string; readonly folder: Folder | undefined }[] = [
        { path: '', folder: await top() },
      ];
      for (let next = ahead.pop(); next; next = ahead.pop()) {
        for (const [name, type] of next.folder?.entries ?? []) {
          await breathe();
          if (!isShown(next.folder!, next.path, name, type)) continue;
          const path = below(next.path, name);
          if (type === 'file') {
            if (paths.push(path) === MAX_FILES) return { paths, isCut: true };
          } else if (pattern?.leadsInto(path) ?? true)
            ahead.push({ path, folder: await enter(path, next.folder!.rules) });
        }
      }
      return { paths, isCut: false };
    },
    async includes(path) {
      const { folder, name } = split(path);
      const found = await find(folder);
      // Rules are compared one path after another, so that there are pauses between them.
      checked = checked.then(breathe);
      await checked;
      return found !== undefined && found.entries.get(name) === 'file' && isShown(found, folder, name, 'file');
    },
  };

  function isShown({ rules }: Folder, folder: string, name: string, type: FolderEntry['type']): boolean {
    if (type !== 'file' && (type !== 'folder' || skipped.includes(name))) return false;
    return !isIgnored(rules, below(place(folder), name), type === 'folder');
  }

  /** A folder that the walk would enter. */
  function find(path: string): Promise<Folder | undefined> {
    let found = known.get(path);
    if (!found) known.set(path, (found = path === '' ? top() : findBelow(path)));
    return found;
  }

  async function findBelow(path: string): Promise<Folder | undefined> {
    const { folder, name } = split(path);
    const above = await find(folder);
    if (above?.entries.get(name) !== 'folder' || !isShown(above, folder, name, 'folder')) return undefined;
    return enter(path, above.rules);
  }

  /** Undefined: it may not be listed, or is gone. */
  async function enter(path: string, above: IgnoreRules | undefined): Promise<Folder | undefined> {
    return open(place(path), path === '' ? from.real : `${from.real}/${path}`, above);
  }

  /** Rules of the folders above apply to what is below, but not if they exclude the folder itself, which was named. */
  async function top(): Promise<Folder | undefined> {
    let rules: IgnoreRules | undefined;
    const names = isBelow(from.shown) ? from.shown.split('/') : [];
    const root = from.real.split('/').slice(0, -names.length);
    for (let depth = 0; depth < names.length; depth++) {
      const at = names.slice(0, depth).join('/');
      rules = (await open(at, [...root, ...names.slice(0, depth)].join('/') || '/', rules))?.rules;
      if (isIgnored(rules, below(at, names[depth]!), true)) rules = undefined;
    }
    return enter('', rules);
  }

  /** The path for rules: relative to the working folder, or outside of it, to where the search starts. */
  function place(path: string): string {
    return isBelow(from.shown) ? below(from.shown, path) : path;
  }

  async function open(shown: string, real: string, above: IgnoreRules | undefined): Promise<Folder | undefined> {
    let listed: readonly FolderEntry[];
    try {
      listed = await space.list(real);
    } catch {
      return undefined;
    }
    const entries = new Map(listed.map(({ name, type }) => [name, type]));
    const text = entries.get('.gitignore') === 'file' ? await ignoreText(`${real}/.gitignore`) : undefined;
    return { entries, rules: text === undefined ? above : ignoreRules(text, shown, above) };
  }

  async function ignoreText(path: string): Promise<string | undefined> {
    try {
      const file = await space.open(path);
      try {
        const bytes = await readBytes(file, signal, MAX_RULES_BYTES);
        return decodeText(bytes, encodingOf(bytes) ?? 'utf-8');
      } finally {
        await file.handle.close();
      }
    } catch {
      return undefined;
    }
  }
}

function isBelow(shown: string): boolean {
  return shown !== '.' && !shown.startsWith('../') && shown !== '..';
}

function below(folder: string, path: string): string {
  return folder === '' ? path : path === '' ? folder : `${folder}/${path}`;
}

function split(path: string): { readonly folder: string; readonly name: string } {
  const at = path.lastIndexOf('/');
  return { folder: path.slice(0, Math.max(at, 0)), name: path.slice(at + 1) };
}
