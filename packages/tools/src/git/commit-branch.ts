import { tool, type Tool, type ToolContext, type Touch, type Verification } from '@treadle/core';
import { timeoutParameter } from '../call-limits.ts';
import type { FileOps, Ops } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import {
  COMMON,
  cut,
  deniedNote,
  deniedOf,
  DIFF_OPTIONS,
  insidePath,
  literal,
  REPOSITORY,
  split0,
  statusOf,
  statusText,
  type Entry,
} from './working-tree.ts';
import { openRepository, type Repository } from './repository.ts';

/** What git writes is in its own folder, or everywhere. Rules deny ".git" to all other tools, so the folder stands for it. */
const WHOLE_FOLDER: Touch = { type: 'write', path: '.' };

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
