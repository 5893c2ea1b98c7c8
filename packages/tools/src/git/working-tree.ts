import { posix } from 'node:path';
import type { Touch } from '@treadle/core';
import { timeoutFor } from '../call-limits.ts';
import { DeniedError } from '../denied.ts';
import { shownName } from '../files/listing.ts';
import type { FileOps } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import type { Repository } from './repository.ts';

/* What the git tools share: what has changed in a repository, and which of its files may be shown. */

/** Below the limit of the loop for a result. */
const MAX_CHARS = 11_000;
export const MAX_NAMES = 100;
/** Files of a diff or a commit that are checked one by one. */
const MAX_FILES = 5_000;
const MAX_PATH_CHARS = 4_096;
/** For every diff: no programs of the repository, submodules only by their commit. */
export const DIFF_OPTIONS: readonly string[] = [
  '--no-ext-diff',
  '--no-textconv',
  '--no-color',
  '--ignore-submodules=dirty',
  '--submodule=short',
];

/** What every git tool has in common. They run in the order of the calls, because git locks its index. */
export const COMMON: {
  readonly permissions: readonly string[];
  readonly resources: () => readonly string[];
  readonly timeoutMs: ReturnType<typeof timeoutFor>;
} = { permissions: ['git'], resources: () => ['git'], timeoutMs: timeoutFor('git') };

export const REPOSITORY: Touch = { type: 'read', path: '.' };

export interface Entry {
  readonly path: string;
  readonly from?: string;
  /** As git names it: a letter, or "." for no change. */
  readonly staged: string;
  readonly unstaged: string;
  readonly type: 'changed' | 'untracked' | 'conflict';
  readonly isSubmodule: boolean;
}

export async function statusOf(
  repository: Repository,
  options: readonly string[],
  paths: readonly string[] = [],
): Promise<{ branch: string; entries: readonly Entry[] }> {
  const output = await repository.run([
    'status',
    '--porcelain=v2',
    '--branch',
    '-z',
    '--ignore-submodules=dirty',
    ...options,
    '--',
    ...paths.map(literal),
  ]);
  const facts: Record<string, string> = {};
  const entries: Entry[] = [];
  const fields = output.split('\0');
  for (let at = 0; at < fields.length; at++) {
    const field = fields[at]!;
    const [kind, states = '..', sub = ''] = field.split(' ', 3);
    const [staged = '.', unstaged = '.'] = states;
    const isSubmodule = sub.startsWith('S');
    if (kind === '#') {
      const [, name = '', value = ''] = /^# branch\.(\S+) (.*)$/s.exec(field) ?? [];
      facts[name] = value;
    } else if (kind === '?')
      entries.push({ path: field.slice(2), staged: '?', unstaged: '?', type: 'untracked', isSubmodule: false });
    else if (kind === '1') entries.push({ path: after(field, 8), staged, unstaged, type: 'changed', isSubmodule });
    else if (kind === 'u') entries.push({ path: after(field, 10), staged, unstaged, type: 'conflict', isSubmodule });
    else if (kind === '2')
      entries.push({ path: after(field, 9), from: fields[++at]!, staged, unstaged, type: 'changed', isSubmodule });
  }
  const { head = '', oid = '', upstream, ab } = facts;
  const commits = oid === '(initial)' ? ', no commits yet' : '';
  const [, ahead, behind] = /^\+(\d+) -(\d+)$/.exec(ab ?? '') ?? [];
  const far = upstream === undefined ? '' : `, ${ahead ?? '?'} ahead and ${behind ?? '?'} behind ${upstream}`;
  return {
    branch: `On ${head === '(detached)' ? `commit ${oid.slice(0, 12)} (no branch)` : `branch ${head}`}${commits}${far}.`,
    entries,
  };
}

/** What follows a number of blanks. */
function after(field: string, blanks: number): string {
  let at = -1;
  for (let count = 0; count < blanks; count++) at = field.indexOf(' ', at + 1);
  return field.slice(at + 1);
}

export function statusText(entries: readonly Entry[]): readonly string[] {
  if (entries.length === 0) return ['Nothing has changed.'];
  const groups: [string, (entry: Entry) => string | undefined][] = [
    ['In conflict (resolve them, then commit them by path):', ({ type }) => (type === 'conflict' ? '  ' : undefined)],
    ['Staged:', ({ type, staged }) => (type === 'changed' && staged !== '.' ? `  ${staged} ` : undefined)],
    ['Not staged:', ({ type, unstaged }) => (type === 'changed' && unstaged !== '.' ? `  ${unstaged} ` : undefined)],
    ['Untracked:', ({ type }) => (type === 'untracked' ? '  ' : undefined)],
  ];
  return groups.flatMap(([heading, marked]) => {
    const lines = entries.flatMap((entry) => {
      const mark = marked(entry);
      if (mark === undefined) return [];
      return `${mark}${entry.from === undefined ? '' : `${shownName(entry.from)} -> `}${shownName(entry.path)}${entry.isSubmodule ? ' (submodule)' : ''}`;
    });
    if (lines.length === 0) return [];
    const more = lines.length > MAX_NAMES ? [`  [${lines.length - MAX_NAMES} more]`] : [];
    return [heading, ...lines.slice(0, MAX_NAMES), ...more];
  });
}

/** A path as git wants it: relative to the folder. Throws if it is not inside. */
export function insidePath({ folder }: FileOps, path: string): string {
  if (path.length > MAX_PATH_CHARS) {
    throw new ToolError(`A path has ${path.length} characters, which no file system allows.`, 'invalid_params');
  }
  const relative = posix.relative(folder, posix.resolve(folder, path)) || '.';
  if (path.includes('\0') || relative === '..' || relative.startsWith('../')) {
    throw new ToolError(
      `${JSON.stringify(path.slice(0, 200))} is outside the working folder. Give a path inside it.`,
      'permission_denied',
    );
  }
  return relative;
}

export function literal(path: string): string {
  return `:(literal)${path}`;
}

export function split0(output: string): readonly string[] {
  return output.split('\0').filter((one) => one !== '');
}

/** The files that may not be read. Git reads them itself, so they have to be left out. */
export async function deniedOf(files: FileOps, names: readonly string[]): Promise<readonly string[]> {
  if (names.length > MAX_FILES) {
    throw new ToolError(`${names.length} files have changed, which are too many at once. Give a path.`);
  }
  const denied: string[] = [];
  for (const name of names) {
    try {
      // Absolute, because "~" at the start of a relative path has a meaning.
      await files.stat(`${files.folder}/${name}`);
    } catch (error) {
      if (error instanceof DeniedError) denied.push(name);
    }
  }
  return denied;
}

export function deniedNote(denied: readonly string[]): readonly string[] {
  if (denied.length === 0) return [];
  const names = denied.slice(0, MAX_NAMES).map(shownName).join(', ');
  return [`Left out, because the policy does not allow them to be read: ${names}.`];
}

export function cut(text: string, rest: string): string {
  const clean = text.replaceAll(/[\p{Cc}--[\n\t]]/gv, '');
  return clean.length <= MAX_CHARS
    ? clean
    : `${clean.slice(0, MAX_CHARS)}\n[cut: ${text.length - MAX_CHARS} more characters. ${rest}]`;
}
