import { tool, type Tool } from '@treadle/core';
import { timeoutParameter } from '../call-limits.ts';
import { shownName } from '../files/listing.ts';
import type { Ops } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import {
  COMMON,
  cut,
  deniedNote,
  deniedOf,
  DIFF_OPTIONS,
  insidePath,
  literal,
  MAX_NAMES,
  REPOSITORY,
  split0,
  statusOf,
  statusText,
} from './working-tree.ts';
import { openRepository } from './repository.ts';

const MAX_DIFF_BYTES = 1_000_000;
const DEFAULT_COMMITS = 20;
const MAX_COMMITS = 100;
const MAX_BODY_CHARS = 500;

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
