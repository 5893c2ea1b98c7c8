import type { FolderEntry } from '../ops.ts';
import type { GlobPattern } from './glob-pattern.ts';
import type { Located, Workspace } from './workspace.ts';

/** Folders with generated content. They are entered only if the pattern names them. */
const SKIPPED_FOLDERS: ReadonlySet<string> = new Set(['node_modules', '.git', '.treadle']);

const MAX_ENTRIES = 100_000;

export interface Entry {
  /** The path relative to the working folder, with `/`. */
  readonly shown: string;
  /** The path relative to the folder where the walk started. */
  readonly below: string;
  readonly kind: Located['kind'];
  /** A symbolic link to something in the working folder. */
  readonly linked: boolean;
}

export interface WalkOptions {
  readonly space: Workspace;
  readonly from: Located;
  /** Skips folders without matches; absent: enters all folders. */
  readonly pattern: GlobPattern | undefined;
  readonly notes: WalkNotes;
  readonly signal: AbortSignal;
}

/** What a walk left out. */
export interface WalkNotes {
  /** Symbolic links that are broken or lead out of the working folder. */
  links: number;
  /** Folders that could not be listed. */
  closed: number;
  /** The walk stopped at its limit of entries. */
  cut: boolean;
}

/** Yields everything below a folder, sorted by path. Does not enter linked folders, so the walk always ends. */
export async function* walk(options: WalkOptions): AsyncGenerator<Entry, void, void> {
  const { from, pattern, notes, signal } = options;
  const ahead: Entry[] = [];
  const enter = async (folder: { shown: string; below: string }): Promise<void> => {
    const listed = await list(options, folder);
    for (let i = listed.length - 1; i >= 0; i--) ahead.push(listed[i]!);
  };

  await enter({ shown: from.shown, below: '' });
  let seen = 0;
  for (let next = ahead.pop(); next; next = ahead.pop()) {
    signal.throwIfAborted();
    if (++seen > MAX_ENTRIES) {
      notes.cut = true;
      return;
    }
    yield next;
    if (next.kind === 'folder' && !next.linked && isWanted(next.below, pattern)) await enter(next);
  }
}

function isWanted(folder: string, pattern: GlobPattern | undefined): boolean {
  const name = folder.slice(folder.lastIndexOf('/') + 1);
  if (SKIPPED_FOLDERS.has(name) && !pattern?.names(name)) return false;
  return pattern?.leadsInto(folder) ?? true;
}

async function list(
  { space, notes }: WalkOptions,
  folder: { readonly shown: string; readonly below: string },
): Promise<Entry[]> {
  let found: readonly FolderEntry[];
  try {
    found = await space.list(`./${folder.shown}`);
  } catch {
    notes.closed++;
    return [];
  }
  const entries: Entry[] = [];
  for (const item of found) {
    const shown = folder.shown === '.' ? item.name : `${folder.shown}/${item.name}`;
    const below = folder.below === '' ? item.name : `${folder.below}/${item.name}`;
    const kind = item.type === 'link' ? await targetKind(space, shown) : item.type;
    if (kind) entries.push({ shown, below, kind, linked: item.type === 'link' });
    else notes.links++;
  }
  return entries.sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : 1));
}

/** The slash sorts a folder directly before its contents. */
const sortKey = (entry: Entry): string => (entry.kind === 'folder' ? `${entry.shown}/` : entry.shown);

async function targetKind(space: Workspace, link: string): Promise<Located['kind'] | undefined> {
  try {
    return (await space.locate(`./${link}`)).kind;
  } catch {
    return undefined;
  }
}
