import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** A small job in a generated repository, and a check of its result. */
export interface Task {
  readonly name: string;
  /** What the model is asked to do. It says everything that the check demands. */
  readonly prompt: string;
  /** The commits, oldest first. The last commit of `main` is checked out. */
  readonly history: readonly Commit[];
  /** Git commands after the checkout. They may fail, as a merge with a conflict does. */
  readonly git?: readonly (readonly string[])[];
  /** Calls that do the job, and an answer as the last step. */
  readonly script: readonly ScriptStep[];
  /** What is wrong with the result. Tests stop at the first problem: cheap checks come before those that start a program. */
  readonly check: (result: TaskResult) => Iterable<Problem>;
  /** A plausible result that is wrong, made from the untouched repository. */
  readonly wrong: { readonly files?: Files; readonly git?: readonly (readonly string[])[]; readonly answer?: string };
}

export interface Commit {
  readonly message: string;
  readonly files: Files;
  /** Default: `main`. A new branch starts at the commit before this one. */
  readonly branch?: string;
}

/** Texts by path. `null`: no such file. */
export type Files = Readonly<Record<string, string | null>>;

/** `results`: the texts of all results so far. */
export type ScriptStep = string | readonly ScriptCall[] | ((results: readonly string[]) => ScriptStep);
type ScriptCall = readonly [tool: string, input: object];

/** A sentence, or false if there is no such problem. */
export type Problem = string | false;

/** The repository of a task. */
export interface Repository {
  readonly folder: string;
  /** The files that the task starts with, by path. */
  readonly before: ReadonlyMap<string, string>;
}

/** What a check looks at. */
export interface TaskResult {
  readonly answer: string;
  /** The text of a file, or undefined if there is none. */
  read(path: string): string | undefined;
  /** Files that differ from those that the task started with, sorted. */
  changed(): readonly string[];
  /** Says which files changed besides these. */
  changedOthers(...expected: readonly string[]): Problem;
  /** What git prints; empty if it fails. */
  git(...args: readonly string[]): string;
  /** Runs a program in the repository. `files` are put there for the time of the run. */
  run(program: string, args: readonly string[], files?: Files): { readonly isOk: boolean; readonly output: string };
}

const SETTINGS = `[core]
	repositoryformatversion = 0
	bare = false
	autocrlf = false
	fsync = none
	hooksPath = /dev/null
[user]
	name = Ann
	email = ann@example.com
[commit]
	gpgSign = false
[merge]
	conflictStyle = merge
`;

/** Programs of a check that take longer hang. */
const PROGRAM_MS = 30_000;
const FIRST_COMMIT = Date.UTC(2026, 0, 5, 9) / 1000;

/** Makes the repository of a task in a folder that does not exist yet. */
export function prepareTask({ history, git: commands = [] }: Task, folder: string): Repository {
  // A git hook that runs the tests names its repository in the environment, also to the programs that tools start.
  for (const name of Object.keys(process.env)) if (name.startsWith('GIT_')) delete process.env[name];
  // What `git init` does, without its process and the settings of the user.
  for (const part of ['objects', 'refs']) mkdirSync(join(folder, '.git', part), { recursive: true });
  writeFileSync(join(folder, '.git/HEAD'), 'ref: refs/heads/main\n');
  writeFileSync(join(folder, '.git/config'), SETTINGS);
  execFileSync('git', ['fast-import', '--quiet'], { cwd: folder, input: importStream(history) });
  execFileSync('git', ['reset', '--hard', '--quiet'], { cwd: folder });
  for (const args of commands) spawnSync('git', args, { cwd: folder });
  return { folder, before: filesIn(folder) };
}

/** The same commits get the same hashes everywhere. */
function importStream(history: readonly Commit[]): string {
  const known = new Set<string>();
  return history
    .map(({ message, files, branch = 'main' }, index) => {
      const who = `Ann <ann@example.com> ${FIRST_COMMIT + index * 3600} +0000`;
      const isFirst = !known.has(branch);
      known.add(branch);
      return [
        `commit refs/heads/${branch}`,
        `mark :${index + 1}`,
        `committer ${who}`,
        data(message),
        ...(isFirst && index > 0 ? [`from :${index}`] : []),
        ...Object.entries(files).map(([path, text]) =>
          text === null ? `D ${path}` : `M ${text.startsWith('#!') ? 755 : 644} inline ${path}\n${data(text)}`,
        ),
        '',
      ].join('\n');
    })
    .join('');
}

function data(text: string): string {
  return `data ${Buffer.byteLength(text)}\n${text}`;
}

/** Writes and removes files, as a wrong solution does. */
export function putFiles(folder: string, files: Files): void {
  for (const [path, text] of Object.entries(files)) {
    const place = join(folder, path);
    if (text === null) rmSync(place, { force: true });
    else {
      mkdirSync(dirname(place), { recursive: true });
      writeFileSync(place, text);
    }
  }
}

function filesIn(folder: string): ReadonlyMap<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => !/^\.git($|\/)/.test(name));
  const files = names.toSorted().filter((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.isFile());
  return new Map(files.map((name) => [name, readFileSync(join(folder, name), 'latin1')]));
}

function resultIn({ folder, before }: Repository, answer: string): TaskResult {
  const read = (path: string): string | undefined => {
    const isFile = statSync(join(folder, path), { throwIfNoEntry: false })?.isFile();
    return isFile ? readFileSync(join(folder, path), 'utf8') : undefined;
  };
  const changed = (): readonly string[] => {
    const after = filesIn(folder);
    const names = new Set([...before.keys(), ...after.keys()]);
    return [...names].filter((name) => before.get(name) !== after.get(name)).toSorted();
  };
  const run = (program: string, args: readonly string[]): { isOk: boolean; output: string } => {
    const { status, stdout, stderr } = spawnSync(program, args, {
      cwd: folder,
      encoding: 'utf8',
      timeout: PROGRAM_MS,
      env: { PATH: process.env['PATH'] },
    });
    return { isOk: status === 0, output: `${stdout}${stderr}` };
  };
  return {
    answer,
    read,
    changed,
    changedOthers(...expected) {
      const others = changed().filter((name) => !expected.includes(name));
      return others.length > 0 && `these files should not change: ${others.join(', ')}`;
    },
    git: (...args) => {
      const { isOk, output } = run('git', args);
      return isOk ? output.trim() : '';
    },
    run(program, args, files = {}) {
      const kept = Object.fromEntries(Object.keys(files).map((path) => [path, read(path) ?? null]));
      putFiles(folder, files);
      try {
        return run(program, args);
      } finally {
        putFiles(folder, kept);
      }
    },
  };
}

/** Says what is wrong, sentence by sentence. */
export function* problemsOf(task: Task, repository: Repository, answer: string): Generator<string> {
  for (const problem of task.check(resultIn(repository, answer))) if (problem !== false) yield problem;
}
