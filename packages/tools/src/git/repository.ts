/*
 * Runs git in a repository that nobody trusts: its configuration and its files may come from an archive or another user.
 *
 * 1. No program that the repository names is started: hooks, pagers, editors, filters, external diffs, text conversions, signing,
 *    fsmonitor, ssh, remote helpers. Settings on the command line override those of the repository, and what has a free name
 *    (filters, hooks) is looked up first.
 * 2. Git acts on the repository of the working folder only: not on one above it, not on one that its ".git" leads to, unless
 *    that one lists the folder as its worktree, not on other files (core.worktree), and not with refs or objects of another
 *    repository (links, alternates).
 * 3. Nothing is fetched, and submodules are not entered: git would use their own settings there.
 * 4. The environment and the settings of the user do not change the output. Only the name and the address of the user and the
 *    folders that the user trusts (safe.directory) are used.
 * 5. What a model gives is never read as an option: revisions are resolved to hashes first, paths come after "--" and are
 *    taken literally.
 */
import { posix } from 'node:path';
import type { FileOps, Ops } from '../ops.ts';
import { DeniedError } from '../denied.ts';
import { ToolError } from '../tool-error.ts';
import { inside } from '../paths/path-facts.ts';

export interface Repository {
  /** Runs git, and returns what it writes to its standard output. Throws if it fails. */
  run(args: readonly string[], options?: RunOptions): Promise<string>;
  /** Like `run`, but returns undefined if git ends with an exit code other than 0. */
  ask(args: readonly string[], options?: RunOptions): Promise<string | undefined>;
  /** The hash of a commit. Throws if there is none. */
  commitOf(revision: string): Promise<string>;
  /** Whether the user has set a name and an address. */
  readonly hasIdentity: boolean;
}

export interface RunOptions {
  /** Written to its standard input. */
  readonly input?: string;
  /** Stops git after this much output. */
  readonly maxBytes?: number;
}

const MAX_BYTES = 5_000_000;
/** Each takes room in the environment, which is limited. */
const MAX_NAMED = 500;

/** Variables that change what git does. Others that start with GIT_ only change what it prints about itself. */
const DROPPED = (
  'ALTERNATE_OBJECT_DIRECTORIES ASKPASS ATTR_SOURCE AUTHOR_DATE AUTHOR_EMAIL AUTHOR_NAME COMMITTER_DATE COMMITTER_EMAIL ' +
  'COMMITTER_NAME COMMON_DIR CONFIG CONFIG_PARAMETERS CONFIG_SYSTEM DEFAULT_HASH DEFAULT_REF_FORMAT DIFF_OPTS DIR ' +
  'DISCOVERY_ACROSS_FILESYSTEM EXEC_PATH EXTERNAL_DIFF GLOB_PATHSPECS GRAFT_FILE ICASE_PATHSPECS IMPLICIT_WORK_TREE ' +
  'INDEX_FILE INDEX_VERSION INTERNAL_SUPER_PREFIX LITERAL_PATHSPECS NAMESPACE NOGLOB_PATHSPECS NO_REPLACE_OBJECTS ' +
  'OBJECT_DIRECTORY PREFIX PROXY_COMMAND QUARANTINE_PATH REDIRECT_STDERR REDIRECT_STDIN REDIRECT_STDOUT REF_PARANOIA ' +
  'REPLACE_REF_BASE SHALLOW_FILE SSH SSH_COMMAND SSH_VARIANT TEMPLATE_DIR TRACE TRACE2 TRACE2_EVENT TRACE2_PERF ' +
  'TRACE_CURL TRACE_FSMONITOR TRACE_PACKET TRACE_PACKFILE TRACE_PACK_ACCESS TRACE_PERFORMANCE TRACE_REFS TRACE_SETUP ' +
  'TRACE_SHALLOW WORK_TREE'
).split(' ');

const ENVIRONMENT: Readonly<Record<string, string | undefined>> = {
  ...Object.fromEntries(DROPPED.map((name) => [`GIT_${name}`, undefined])),
  GIT_ALLOW_PROTOCOL: 'none',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_EDITOR: 'true',
  GIT_SEQUENCE_EDITOR: 'true',
  GIT_NO_LAZY_FETCH: '1',
  GIT_OPTIONAL_LOCKS: '0',
  GIT_PAGER: 'cat',
  GIT_TERMINAL_PROMPT: '0',
  // Messages of git are recognised by their text.
  LC_ALL: 'C',
  LANGUAGE: '',
};

const NO_USER_SETTINGS = { GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' };

type Setting = readonly [key: string, value: string];

const SETTINGS: readonly Setting[] = [
  ['color.ui', 'false'],
  ['commit.gpgSign', 'false'],
  ['commit.status', 'false'],
  ['commit.verbose', 'false'],
  ['core.alternateRefsCommand', ''],
  ['core.askPass', ''],
  ['core.attributesFile', '/dev/null'],
  ['core.editor', 'true'],
  ['core.fsmonitor', 'false'],
  ['core.gitProxy', ''],
  ['core.hooksPath', '/dev/null'],
  ['core.pager', 'cat'],
  ['core.quotePath', 'false'],
  ['core.sshCommand', 'false'],
  ['credential.helper', ''],
  ['diff.external', ''],
  ['diff.ignoreSubmodules', 'dirty'],
  ['diff.mnemonicPrefix', 'false'],
  ['diff.noprefix', 'false'],
  ['diff.submodule', 'short'],
  ['fetch.recurseSubmodules', 'false'],
  ['gc.auto', '0'],
  ['gpg.program', 'false'],
  ['log.showSignature', 'false'],
  ['maintenance.auto', 'false'],
  ['protocol.allow', 'never'],
  ['safe.bareRepository', 'explicit'],
  ['status.submoduleSummary', 'false'],
  ['submodule.recurse', 'false'],
  ['tag.gpgSign', 'false'],
  ['user.useConfigOnly', 'true'],
];

/** Checks the repository of the working folder. Throws a `ToolError` that says why it cannot be used. */
export async function openRepository({ exec, files }: Ops, signal: AbortSignal): Promise<Repository> {
  const { path: folder } = await files.stat('.');
  const place = { GIT_CEILING_DIRECTORIES: posix.dirname(folder) };
  const execute = (args: readonly string[], env: Readonly<Record<string, string | undefined>>, options?: RunOptions) =>
    runGit({ exec, args: ['--no-pager', ...args], env: { ...ENVIRONMENT, ...place, ...env }, signal, ...options });

  // Only reads files. Without the user's own settings it would not show whom the user trusts.
  const listed = await execute(['config', '--list', '-z', '--show-scope'], {
    GIT_CONFIG_GLOBAL: undefined,
    ...inEnvironment([['core.pager', 'cat']]),
  });
  const { settings, hasIdentity } = settingsFor(listed.output);
  const env = { ...NO_USER_SETTINGS, ...inEnvironment(settings) };

  async function tryRun(args: readonly string[], options?: RunOptions): Promise<GitResult> {
    return execute(args, env, options);
  }
  async function run(args: readonly string[], options?: RunOptions): Promise<string> {
    const result = await tryRun(args, options);
    if (result.exitCode !== 0 && !result.isCut) throw failed(args[0]!, result);
    return result.output;
  }
  async function ask(args: readonly string[], options?: RunOptions): Promise<string | undefined> {
    const { exitCode, output } = await tryRun(args, options);
    return exitCode === 0 ? output : undefined;
  }

  const found = await tryRun([
    'rev-parse',
    '--path-format=absolute',
    '--show-toplevel',
    '--git-dir',
    '--git-common-dir',
  ]);
  if (found.exitCode !== 0) throw notUsable(folder, found);
  const [top, gitDir, commonDir, rest] = found.output.split('\n');
  if (top !== folder || !gitDir || !commonDir || rest !== '') {
    throw new ToolError(
      `The repository in ${folder} has its files in another folder (core.worktree), so it is not used. Tell the user.`,
      'permission_denied',
    );
  }
  if (inside(folder, gitDir) && inside(folder, commonDir)) {
    for (const one of new Set([gitDir, commonDir])) await demandOwnContent(files, one);
  } else if (
    !(await run(['worktree', 'list', '--porcelain', '-z'])).split('\0').slice(1).includes(`worktree ${folder}`)
  ) {
    throw new ToolError(
      `".git" of the working folder leads to ${gitDir}, which is outside of it and does not list it as a worktree, so it is not ` +
        `used. Tell the user.`,
      'permission_denied',
    );
  }
  return { run, ask, commitOf, hasIdentity };

  async function commitOf(revision: string): Promise<string> {
    const isMisleading = revision.startsWith('-') || revision.includes('\0');
    const hash = isMisleading
      ? undefined
      : await ask(['rev-parse', '--verify', '--quiet', '--end-of-options', `${revision}^{commit}`]);
    if (hash === undefined) {
      throw new ToolError(
        `There is no commit ${JSON.stringify(revision)}. Use git_log or git_branch to see what is there.`,
        'invalid_params',
      );
    }
    return hash.trim();
  }
}

/** Whatever the repository names, overridden; and what is kept of the user's settings. */
function settingsFor(listed: string): { settings: readonly Setting[]; hasIdentity: boolean } {
  const settings = [...SETTINGS];
  const own = new Map<string, string>();
  const identity = new Set<string>();
  const named = new Set<string>();
  const fields = listed.split('\0');
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const scope = fields[at]!;
    const [key = '', value = ''] = splitOnce(fields[at + 1]!, '\n');
    const isUsers = scope === 'system' || scope === 'global';
    if (key === 'user.name' || key === 'user.email') {
      identity.add(key);
      // Those of the repository are more specific.
      if (isUsers) own.set(key, value);
      else own.delete(key);
    } else if (isUsers) {
      if (key === 'safe.directory') settings.push([key, value]);
    } else {
      const [, section] = /^((?:filter|hook)\..*)\.[a-z]+$/is.exec(key) ?? [];
      if (section !== undefined) named.add(section);
    }
  }
  if (named.size > MAX_NAMED) {
    throw new ToolError(
      `The repository defines ${named.size} filters and hooks; at most ${MAX_NAMED} can be disabled. Tell the user.`,
    );
  }
  for (const section of named) {
    if (section.startsWith('hook.')) settings.push([`${section}.enabled`, 'false'], [`${section}.command`, 'true']);
    else {
      for (const what of ['clean', 'smudge', 'process']) settings.push([`${section}.${what}`, '']);
      settings.push([`${section}.required`, 'false']);
    }
  }
  settings.push(...own);
  return { settings, hasIdentity: identity.size === 2 };
}

function splitOnce(text: string, separator: string): [string, string | undefined] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}

/** Not as arguments: there a key cannot contain "=". */
function inEnvironment(settings: readonly Setting[]): Readonly<Record<string, string>> {
  const env: Record<string, string> = { GIT_CONFIG_COUNT: String(settings.length) };
  for (const [at, [key, value]] of settings.entries()) {
    env[`GIT_CONFIG_KEY_${at}`] = key;
    env[`GIT_CONFIG_VALUE_${at}`] = value;
  }
  return env;
}

/** Links and lists of alternates may lead to another repository, whose content git would show. */
async function demandOwnContent(files: FileOps, gitDir: string): Promise<void> {
  const folders = ['', 'objects', 'objects/info', 'objects/pack', 'refs', 'reftable'];
  for (const folder of folders) {
    const entries = await files.list(posix.join(gitDir, folder)).catch((error: unknown) => {
      if (error instanceof DeniedError) throw new ToolError(error.message, 'permission_denied', { cause: error });
      return [];
    });
    for (const { name, type } of entries) {
      const inner = posix.join(folder, name);
      if (inner === 'objects/info/alternates') {
        throw new ToolError(
          `The repository borrows objects of another repository (${inner} in ".git"), so it is not used. Tell the user.`,
          'permission_denied',
        );
      }
      if (type === 'folder' && inner.startsWith('refs/')) folders.push(inner);
      if (type !== 'link') continue;
      // It may be a file, as HEAD was in old repositories.
      const target = await files.stat(`${gitDir}/${inner}`).catch(() => undefined);
      if (target?.type === 'file' && inside(gitDir, target.path)) continue;
      throw new ToolError(
        `${JSON.stringify(inner)} in ".git" of the working folder is a symbolic link that does not lead to a file in it, so the ` +
          `repository is not used. Tell the user.`,
        'permission_denied',
      );
    }
  }
}

interface GitResult {
  readonly exitCode: number | undefined;
  readonly output: string;
  readonly errors: string;
  /** There was more output. */
  readonly isCut: boolean;
}

async function runGit({
  exec,
  args,
  env,
  signal,
  input,
  maxBytes = MAX_BYTES,
}: {
  exec: Ops['exec'];
  args: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  signal: AbortSignal;
} & RunOptions): Promise<GitResult> {
  signal.throwIfAborted();
  const started = await exec
    .start({ argv: ['git', ...args], env, ...(input !== undefined && { writable: true }) })
    .catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === 'E2BIG') {
        throw new ToolError('The arguments are too long for git. Give fewer or shorter paths.', 'invalid_params', {
          cause,
        });
      }
      if (cause.code !== 'ENOENT') throw cause;
      throw new ToolError('There is no program "git" on this machine. Tell the user to install it.', 'not_found', {
        cause,
      });
    });
  const stop = (): void => void started.kill().catch(() => {});
  signal.addEventListener('abort', stop);
  try {
    // It may end before it has read everything.
    if (input !== undefined)
      void started
        .write(input)
        .catch(() => {})
        .then(() => started.endInput());
    const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
    let size = 0;
    let isCut = false;
    for await (const { stream, bytes } of started.output) {
      size += bytes.length;
      if (!isCut) parts[stream].push(bytes);
      if (size <= maxBytes || isCut) continue;
      isCut = true;
      stop();
    }
    const { exitCode } = await started.exit;
    signal.throwIfAborted();
    const text = (all: readonly Uint8Array[]): string => Buffer.concat(all).toString();
    return { exitCode, output: text(parts.stdout), errors: text(parts.stderr), isCut };
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function notUsable(folder: string, { errors, exitCode }: GitResult): ToolError {
  if (errors.includes('dubious ownership')) {
    return new ToolError(
      `The repository in ${folder} belongs to another user, so git does not use it. If the user trusts it, the user can run: ` +
        `git config --global --add safe.directory ${folder}`,
      'permission_denied',
    );
  }
  if (/not a git repository|must be run in a work tree|cannot use bare repository/.test(errors)) {
    return new ToolError(
      `The working folder ${folder} is not a git repository. Repositories in folders above it are not used. Work without git, or ` +
        `tell the user.`,
      'not_found',
    );
  }
  return failed('rev-parse', { errors, exitCode });
}

function failed(command: string, { errors, exitCode }: Pick<GitResult, 'errors' | 'exitCode'>): ToolError {
  const why = errors.trim().slice(0, 2_000) || `it ended with ${exitCode}`;
  return new ToolError(`git ${command} failed: ${why}`);
}
