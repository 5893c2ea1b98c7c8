import { tool, type Tool, type ToolContext, type Touch, type Verification } from '@treadle/core';
import { posix } from 'node:path';
import { DeniedError } from '../denied.ts';
import type { FileOps, Ops } from '../ops.ts';
import { shownName } from '../files/listing.ts';
import { timeoutFor, timeoutParameter } from '../timeouts.ts';
import { ToolError } from '../tool-error.ts';
import { openRepository, type Repository } from './repository.ts';

/** Below the limit of the loop for a result. */
const MAX_CHARS = 11_000;
const MAX_NAMES = 100;
/** Files of a diff or a commit that are checked one by one. */
const MAX_FILES = 5_000;
const MAX_DIFF_BYTES = 1_000_000;
const DEFAULT_COMMITS = 20;
const MAX_COMMITS = 100;
const MAX_BODY_CHARS = 500;
const MAX_PATH_CHARS = 4_096;
/** For every diff: no programs of the repository, submodules only by their commit. */
const DIFF_OPTIONS = ['--no-ext-diff', '--no-textconv', '--no-color', '--ignore-submodules=dirty', '--submodule=short'];

/** What every git tool has in common. They run in the order of the calls, because git locks its index. */
const COMMON = {
  permissions: ['git'],
  resources: () => ['git'],
  timeoutMs: timeoutFor('git'),
} as const;

const REPOSITORY: Touch = { type: 'read', path: '.' };
/** What git writes is in its own folder, or everywhere. Rules deny ".git" to all other tools, so the folder stands for it. */
const WHOLE_FOLDER: Touch = { type: 'write', path: '.' };

export function gitStatusTool(ops: Ops): Tool {
  return tool({
    name: 'git_status',
    description:
      'Show the branch and the changed files of the git repository in the working folder: staged, not staged, untracked and ' +
      'in conflict. Use git_diff to see the changes themselves.',
    input: {
      type: 'object',
      properties: { timeout_ms: timeoutParameter('git') },
      additionalProperties: false,
    },
    effect: 'pure',
    ...COMMON,
    touches: () => [REPOSITORY],
    execute: async (_, { signal }) => {
      const repository = await openRepository(ops, signal);
      const { branch, entries } = await statusOf(repository, ['--untracked-files=normal']);
      return cut([branch, ...statusText(entries)].join('\n'), 'Use bash with git status and a path to see the rest.');
    },
  });
}

export function gitDiffTool(ops: Ops): Tool {
  return tool({
    name: 'git_diff',
    description:
      'Show changes of tracked files as a diff. Without arguments: what is not staged. staged: what is staged. commit: what ' +
      'differs between a commit and the working folder; "A..B" compares two commits, so "HEAD~1..HEAD" shows the last commit; ' +
      '"A...B" shows what B has changed since it left A. Untracked files are not shown; git_status lists them. A long diff is cut: give a path then.',
    input: {
      type: 'object',
      properties: {
        commit: {
          type: 'string',
          minLength: 1,
          maxLength: 500,
          description: 'A commit, a branch, or two of them as A..B',
        },
        path: { type: 'string', minLength: 1, description: 'Only this file or folder, relative to the working folder' },
        staged: { type: 'boolean', description: 'What is staged, compared with the last commit or with commit' },
        timeout_ms: timeoutParameter('git'),
      },
      additionalProperties: false,
    },
    effect: 'pure',
    ...COMMON,
    touches: ({ path }) => [path === undefined ? REPOSITORY : { type: 'read', path: String(path) }],
    execute: (input, { signal }) => diff(ops, input as DiffInput, signal),
  });
}

export function gitLogTool(ops: Ops): Tool {
  return tool({
    name: 'git_log',
    description:
      'List commits of the current branch, the newest first: hash, date, author, subject and message. With path, only commits ' +
      'that changed it. Use git_diff with "HASH~1..HASH" to see what a commit changed.',
    input: {
      type: 'object',
      properties: {
        max_count: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_COMMITS,
          description: `Commits at most; default ${DEFAULT_COMMITS}`,
        },
        path: { type: 'string', minLength: 1, description: 'Only commits that changed this file or folder' },
        timeout_ms: timeoutParameter('git'),
      },
      additionalProperties: false,
    },
    effect: 'pure',
    ...COMMON,
    touches: ({ path }) => [path === undefined ? REPOSITORY : { type: 'read', path: String(path) }],
    execute: (input, { signal }) => log(ops, input as LogInput, signal),
  });
}

export function gitCommitTool(ops: Ops): Tool {
  return tool({
    name: 'git_commit',
    description:
      'Commit changes. With paths, the changes of these files and folders are committed, new and deleted files too, and ' +
      'nothing else; "." stands for everything that is not ignored. Without paths, what is staged is committed. Hooks do not ' +
      'run, and commits are not signed. Returns the commit. Look at git_status first.',
    input: {
      type: 'object',
      properties: {
        message: {
          type: 'string',
          minLength: 1,
          maxLength: 20_000,
          description: 'The message: a subject line, an empty line, details',
        },
        paths: {
          type: 'array',
          minItems: 1,
          maxItems: 1_000,
          items: { type: 'string', minLength: 1 },
          description: 'Files and folders, relative to the working folder',
        },
        timeout_ms: timeoutParameter('git'),
      },
      required: ['message'],
      additionalProperties: false,
    },
    effect: 'once',
    ...COMMON,
    touches: ({ paths }) => [
      ...(Array.isArray(paths) ? paths.map((path): Touch => ({ type: 'read', path: String(path) })) : [REPOSITORY]),
      WHOLE_FOLDER,
    ],
    execute: (input, context) => commit(ops, input as unknown as CommitInput, context),
    verify: (input, { signal }) => verifyCommit(ops, input as unknown as CommitInput, signal),
  });
}

export function gitBranchTool(ops: Ops): Tool {
  return tool({
    name: 'git_branch',
    description:
      'List local branches, or with a name create or switch to a branch. operation "create" creates the branch at the current ' +
      'commit and switches to it, and keeps all changes; "switch" switches to a branch that exists, and fails if that would ' +
      'overwrite changes.',
    input: {
      type: 'object',
      properties: {
        operation: { enum: ['list', 'create', 'switch'], description: 'Default: list' },
        name: { type: 'string', minLength: 1, maxLength: 200, description: 'The branch to create or to switch to' },
        timeout_ms: timeoutParameter('git'),
      },
      additionalProperties: false,
    },
    effect: 'once',
    ...COMMON,
    operation: (input) => (input as BranchInput).operation ?? 'list',
    touches: (input) =>
      ((input as BranchInput).operation ?? 'list') === 'list' ? [REPOSITORY] : [REPOSITORY, WHOLE_FOLDER],
    execute: (input, { signal }) => branch(ops, input as BranchInput, signal),
    verify: (input, { signal }) => verifyBranch(ops, input as BranchInput, signal),
  });
}

interface Entry {
  readonly path: string;
  readonly from?: string;
  /** As git names it: a letter, or "." for no change. */
  readonly staged: string;
  readonly unstaged: string;
  readonly type: 'changed' | 'untracked' | 'conflict';
  readonly isSubmodule: boolean;
}

async function statusOf(
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

function statusText(entries: readonly Entry[]): readonly string[] {
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

interface DiffInput {
  readonly commit?: string;
  readonly path?: string;
  readonly staged?: boolean;
}

async function diff(
  ops: Ops,
  { commit: revision, path, staged = false }: DiffInput,
  signal: AbortSignal,
): Promise<string> {
  const [from, to, more] = revision?.split(/\.{2,3}/) ?? [];
  if (more !== undefined || (to !== undefined && staged)) {
    throw new ToolError('Give one commit, or two as "A..B" without staged.', 'invalid_params');
  }
  const paths = path === undefined ? [] : [insidePath(ops.files, path)];
  const repository = await openRepository(ops, signal);
  const commits: string[] = [];
  for (const one of [from, to]) if (one !== undefined) commits.push(await repository.commitOf(one || 'HEAD'));
  const compared = [
    ...(staged ? ['--cached'] : []),
    ...(revision?.includes('...') ? ['--merge-base'] : []),
    ...commits,
  ];
  const names = split0(
    await repository.run([
      'diff',
      '--name-only',
      '-z',
      '--no-renames',
      ...DIFF_OPTIONS,
      ...compared,
      '--',
      ...paths.map(literal),
    ]),
  );
  if (names.length === 0) return 'There are no such changes.';
  const denied = await deniedOf(ops.files, names);
  const shown = await repository.run(
    [
      'diff',
      '-M',
      ...DIFF_OPTIONS,
      ...compared,
      '--',
      ...(paths.length > 0 ? paths.map(literal) : [':(top)']),
      ...denied.map((name) => `:(exclude,literal)${name}`),
    ],
    { maxBytes: MAX_DIFF_BYTES },
  );
  const list = names.filter((name) => !denied.includes(name)).map(shownName);
  const rest = `It has these files: ${list.slice(0, MAX_NAMES).join(', ')}${list.length > MAX_NAMES ? ', …' : ''}. Give a path to see one.`;
  return [cut(shown, rest), ...deniedNote(denied)].join('\n');
}

interface LogInput {
  readonly max_count?: number;
  readonly path?: string;
}

async function log(
  ops: Ops,
  { max_count: count = DEFAULT_COMMITS, path }: LogInput,
  signal: AbortSignal,
): Promise<string> {
  const paths = path === undefined ? [] : [literal(insidePath(ops.files, path))];
  const repository = await openRepository(ops, signal);
  const output = await repository.ask([
    'log',
    ...DIFF_OPTIONS,
    '--no-show-signature',
    '--no-notes',
    '--no-decorate',
    '-z',
    `--max-count=${count}`,
    '--date=iso-strict',
    '--format=%h %ad %an: %s%n%b',
    '--',
    ...paths,
  ]);
  if (output === undefined) {
    const head = await repository.ask(['rev-parse', '--verify', '--quiet', 'HEAD^{commit}']);
    if (head === undefined) return 'There are no commits yet.';
    throw new ToolError('The commits cannot be read: the repository is damaged. Tell the user.');
  }
  const commits = split0(output).map((one) => {
    const [subject = '', ...body] = one.trimEnd().split('\n');
    const text = body.join('\n').trim();
    const shown = text.length > MAX_BODY_CHARS ? `${text.slice(0, MAX_BODY_CHARS)}…` : text;
    return [subject, ...(shown === '' ? [] : shown.split('\n').map((line) => `    ${line}`))].join('\n');
  });
  if (commits.length === 0)
    return path === undefined ? 'There are no commits.' : `No commit changed ${JSON.stringify(path)}.`;
  return cut(commits.join('\n'), 'Use a smaller max_count, or a path.');
}

interface CommitInput {
  readonly message: string;
  readonly paths?: readonly string[];
}

async function commit(ops: Ops, { message, paths }: CommitInput, { signal, report }: ToolContext): Promise<string> {
  if (message.trim() === '' || message.includes('\0')) {
    throw new ToolError(
      'The message is empty or contains a NUL character. Say what the commit changes.',
      'invalid_params',
    );
  }
  const wanted = paths?.map((path) => insidePath(ops.files, path));
  const repository = await openRepository(ops, signal);
  if (!repository.hasIdentity) {
    throw new ToolError(
      'Git does not know who commits. Tell the user to set it: git config --global user.name "…" and user.email "…".',
    );
  }
  const options = ['--no-verify', '--no-gpg-sign', '--cleanup=whitespace', '--no-status', `--message=${message}`];
  if (!wanted) {
    await demandStaged(repository);
    return committed(repository, options);
  }
  const { entries, denied } = await changesAt(ops.files, repository, wanted);
  await demandNoFilters(
    repository,
    entries.map(({ path }) => path),
  );
  report(`committing ${entries.length} files`);
  const list = ['--pathspec-from-file=-', '--pathspec-file-nul'];
  // Git refuses paths that it does not find: in the folder and the index, or in the index and the last commit.
  const added = pathList(entries.filter(({ staged, unstaged }) => staged !== 'D' || unstaged !== '.'));
  const input = pathList(entries.filter(({ staged, unstaged }) => staged !== 'A' || unstaged !== 'D'));
  if (added !== '') await repository.run(['add', ...list], { input: added });
  let text: string;
  try {
    text = await committed(repository, ['--only', ...list, ...options], input);
  } catch (error) {
    if (!(error as Error).message.includes('cannot do a partial commit during')) throw error;
    // While a merge is concluded only the whole index can be committed.
    text = await committed(repository, options);
  }
  return [text, ...deniedNote(denied)].join('\n');
}

function pathList(entries: readonly Entry[]): string {
  return entries.map(({ path }) => literal(path)).join('\0');
}

async function committed(repository: Repository, options: readonly string[], input?: string): Promise<string> {
  const output = await repository.run(['commit', ...options], input === undefined ? {} : { input });
  return cut(output.trim(), 'The commit was made.');
}

/** What a commit of these paths has. */
async function changesAt(
  files: FileOps,
  repository: Repository,
  wanted: readonly string[],
): Promise<{ entries: readonly Entry[]; denied: readonly string[] }> {
  const { entries } = await statusOf(repository, ['--untracked-files=all', '--no-renames'], wanted);
  for (const path of wanted) {
    const isAt = (entry: Entry): boolean => path === '.' || entry.path === path || entry.path.startsWith(`${path}/`);
    if (entries.some(isAt)) continue;
    throw new ToolError(
      `There is nothing to commit at ${JSON.stringify(path)}: it has not changed, is ignored, or does not exist. Nothing was ` +
        `committed. Look at git_status.`,
    );
  }
  // An untracked folder with a repository of its own ends with "/".
  const own = entries.filter(({ path, isSubmodule }) => !isSubmodule && !path.endsWith('/'));
  if (own.length === 0) {
    throw new ToolError('Only repositories inside this one have changed. This tool does not commit them.');
  }
  const denied = await deniedOf(
    files,
    own.map(({ path }) => path),
  );
  const named = denied.find((path) => wanted.includes(path));
  if (named !== undefined || denied.length === own.length) {
    throw new ToolError(
      `The policy does not allow ${JSON.stringify(named ?? denied[0])} to be read, so it is not committed. Nothing was committed. Leave it out.`,
      'permission_denied',
    );
  }
  return { entries: own.filter(({ path }) => !denied.includes(path)), denied };
}

/** Filters such as Git LFS are programs, which do not run here. Without them the commit would have other content. */
async function demandNoFilters(repository: Repository, files: readonly string[]): Promise<void> {
  const output = await repository.run(['check-attr', '-z', '--stdin', 'filter'], {
    input: files.map((file) => `${file}\0`).join(''),
  });
  const fields = output.split('\0');
  for (let at = 0; at + 2 < fields.length; at += 3) {
    const [path, , value = ''] = fields.slice(at, at + 3);
    if (['unspecified', 'unset'].includes(value)) continue;
    throw new ToolError(
      `${JSON.stringify(path)} is converted by the filter ${JSON.stringify(value)} (.gitattributes), a program that this tool does ` +
        `not run. Nothing was changed. Use bash with git for it, or tell the user.`,
    );
  }
}

async function demandStaged(repository: Repository): Promise<void> {
  const staged = await repository.run(['diff', '--cached', '--name-only', '-z', '--no-renames', ...DIFF_OPTIONS]);
  if (staged !== '') return;
  // A merge may end without changes.
  if ((await repository.ask(['rev-parse', '--verify', '--quiet', 'MERGE_HEAD'])) !== undefined) return;
  const { entries } = await statusOf(repository, ['--untracked-files=normal']);
  const next = entries.length === 0 ? '' : ` Give paths to commit. ${statusText(entries).join('\n')}`;
  throw new ToolError(cut(`Nothing is staged, so there is nothing to commit.${next}`, ''));
}

/** It is done if the last commit has the message, and nothing is left to commit. */
async function verifyCommit(ops: Ops, { message, paths }: CommitInput, signal: AbortSignal): Promise<Verification> {
  const repository = await openRepository(ops, signal);
  const last = await repository.ask(['log', '--no-show-signature', '--no-notes', '-1', '--format=%h%n%B']);
  const [hash = '', ...lines] = (last ?? '').split('\n');
  const isLast = last !== undefined && plain(lines.join('\n')) === plain(message);
  const { entries } = await statusOf(
    repository,
    ['--untracked-files=all', '--no-renames'],
    paths?.map((path) => insidePath(ops.files, path)),
  );
  const isLeft = entries.some(({ staged }) => paths !== undefined || (staged !== '.' && staged !== '?'));
  if (isLast && !isLeft) return { type: 'done', result: `Committed as ${hash}. The call was interrupted.` };
  return { type: isLeft && !isLast ? 'not-done' : 'unknown' };
}

/** As git stores it. */
function plain(message: string): string {
  const lines = message.split('\n').map((line) => line.trimEnd());
  return lines
    .join('\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim();
}

interface BranchInput {
  readonly operation?: 'list' | 'create' | 'switch';
  readonly name?: string;
}

async function branch(ops: Ops, { operation = 'list', name }: BranchInput, signal: AbortSignal): Promise<string> {
  if ((operation === 'list') !== (name === undefined)) {
    throw new ToolError(
      operation === 'list'
        ? 'Set operation to "create" or "switch" if you give a name.'
        : `Give the name of the branch to ${operation}.`,
      'invalid_params',
    );
  }
  const repository = await openRepository(ops, signal);
  if (name === undefined) return listBranches(repository);
  const isName =
    !name.startsWith('-') && (await repository.ask(['check-ref-format', '--branch', name]))?.trim() === name;
  if (!isName)
    throw new ToolError(
      `${JSON.stringify(name)} is not a name for a branch. Use letters, digits, "-", "_" and "/".`,
      'invalid_params',
    );
  const exists = (await repository.ask(['rev-parse', '--verify', '--quiet', `refs/heads/${name}`])) !== undefined;
  if (operation === 'create') {
    if (exists)
      throw new ToolError(`There is a branch ${JSON.stringify(name)} already. Switch to it, or use another name.`);
    await repository.run(['switch', '--quiet', '--no-track', '--no-recurse-submodules', '-c', name]);
    return `Created the branch ${name}, and switched to it.`;
  }
  if (!exists)
    throw new ToolError(
      `There is no branch ${JSON.stringify(name)}. Use git_branch without arguments to list them.`,
      'not_found',
    );
  const target = await repository.commitOf(`refs/heads/${name}`);
  const head = await repository.ask(['rev-parse', '--verify', '--quiet', 'HEAD^{commit}']);
  if (head !== undefined) {
    const files = split0(
      await repository.run(['diff', '--name-only', '-z', '--no-renames', ...DIFF_OPTIONS, head.trim(), target, '--']),
    );
    const [denied] = await deniedOf(ops.files, files);
    if (denied !== undefined) {
      throw new ToolError(
        `Switching would change ${JSON.stringify(denied)}, which the policy does not allow. Nothing was changed.`,
        'permission_denied',
      );
    }
    if (files.length > 0) await demandNoFilters(repository, files);
  }
  await repository.run(['switch', '--quiet', '--no-guess', '--no-recurse-submodules', name]);
  return `Switched to the branch ${name}.`;
}

async function listBranches(repository: Repository): Promise<string> {
  const format = '%(HEAD) %(refname:short) %(objectname:short) %(committerdate:short) %(contents:subject)';
  const output = await repository.run(['for-each-ref', `--format=${format}`, '--sort=-committerdate', 'refs/heads']);
  if (output.trim() === '') return 'There are no branches yet, because there are no commits.';
  return cut(output.trimEnd(), 'Use bash with git branch --list and a pattern.');
}

async function verifyBranch(
  ops: Ops,
  { operation = 'list', name }: BranchInput,
  signal: AbortSignal,
): Promise<Verification> {
  if (operation === 'list' || name === undefined) return { type: 'not-done' };
  const repository = await openRepository(ops, signal);
  const current = (await repository.ask(['symbolic-ref', '--quiet', '--short', 'HEAD']))?.trim();
  if (current === name) return { type: 'done', result: `The current branch is ${name}. The call was interrupted.` };
  if (operation === 'switch') return { type: 'not-done' };
  const exists = (await repository.ask(['rev-parse', '--verify', '--quiet', `refs/heads/${name}`])) !== undefined;
  return { type: exists ? 'unknown' : 'not-done' };
}

/** A path as git wants it: relative to the folder. Throws if it is not inside. */
function insidePath({ folder }: FileOps, path: string): string {
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

function literal(path: string): string {
  return `:(literal)${path}`;
}

function split0(output: string): readonly string[] {
  return output.split('\0').filter((one) => one !== '');
}

/** The files that may not be read. Git reads them itself, so they have to be left out. */
async function deniedOf(files: FileOps, names: readonly string[]): Promise<readonly string[]> {
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

function deniedNote(denied: readonly string[]): readonly string[] {
  if (denied.length === 0) return [];
  const names = denied.slice(0, MAX_NAMES).map(shownName).join(', ');
  return [`Left out, because the policy does not allow them to be read: ${names}.`];
}

function cut(text: string, rest: string): string {
  const clean = text.replaceAll(/[\p{Cc}--[\n\t]]/gv, '');
  return clean.length <= MAX_CHARS
    ? clean
    : `${clean.slice(0, MAX_CHARS)}\n[cut: ${text.length - MAX_CHARS} more characters. ${rest}]`;
}
