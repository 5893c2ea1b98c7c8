import { spawnSync } from 'node:child_process';
import { cp, lstat, mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { activateSkills, governanceLines, skillNarrowing, skillText, toolEntry } from '@treadle/core/skills';
import type { LoadedSkill, SkillProblem } from '@treadle/tools/skills';
import { CommandError, defineCommand, EXIT, type Command, type CommandGroup } from '../command-line/command.ts';
import { LOCATION_FLAGS } from '../command-line/flags.ts';
import { readProblem } from '../command-line/named-file.ts';
import { resolveContext, type CommandContext } from '../config/context.ts';
import { toolDefinitions } from '../tools/command-tools.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine, printable } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import { findSkill, findSkills, isInside, loadSkillsPackage, problemText } from './command-skills.ts';
import { userSkillsFolder } from '../config/skill-folders.ts';

const PLACE_FLAGS = { config: LOCATION_FLAGS.config, cwd: LOCATION_FLAGS.cwd } as const;
const JSON_FLAG = { json: { type: 'switch', help: 'Print JSON' } } as const;

const listCommand: Command = defineCommand({
  name: 'skills list',
  summary: 'List the skills, and those that do not load',
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [
    'Skills are folders with a SKILL.md in .agents/skills and .claude/skills of the project, in ~/.treadle/skills, and in\n' +
      'skills_path of [orchestrator.tools]. Those of a project are used only after they were trusted: "run" and "chat" ask on a\n' +
      'terminal; elsewhere --trust-skills, or the fingerprint in trusted_skills.',
  ],
  examples: ['treadle skills list', 'treadle skills list --json'],
  async run({ values }, io) {
    const { skills, problems, trusted, fingerprint } = await findSkills(await resolveContext(values, io));
    if (values.json) {
      const listed = skills.map((skill) => ({ ...summaryOf(skill), usable: trusted || skill.from === 'user' }));
      return printJson(io, { skills: listed, problems, trusted, ...(fingerprint !== undefined && { fingerprint }) });
    }
    const width = io.stdout.columns ?? 120;
    const rows = skills.map((skill) => [
      skill.name,
      skill.from,
      trusted || skill.from === 'user' ? skill.status : 'untrusted',
      oneLine(skill.description, 200),
    ]);
    const table = skills.length === 0 ? [] : alignColumns([['NAME', 'FROM', 'STATUS', 'DESCRIPTION'], ...rows]);
    for (const row of table) io.stdout.write(`${row.join('  ').slice(0, width).trimEnd()}\n`);
    if (skills.length === 0) io.stdout.write('There are no skills. "treadle skills new NAME" writes one.\n');
    if (!trusted) io.stderr.write(`The skills of the project have the fingerprint ${fingerprint}.\n`);
    for (const problem of problems) io.stderr.write(`Not used: ${problemText(problem)}\n`);
    return EXIT.completed;
  },
});

const showCommand: Command = defineCommand({
  name: 'skills show',
  summary: 'Show what a model gets when a skill is active',
  arguments: ['NAME'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [],
  examples: ['treadle skills show release-notes'],
  async run({ values, arguments: [name] }, io) {
    const { skills } = await findSkills(await resolveContext(values, io));
    const skill = findSkill(skills, name!);
    if (values.json) return printJson(io, { ...skill, narrowing: skillNarrowing(skill) });
    io.stdout.write(`${printable(`${skill.name}: ${skill.description}\n${skill.file}\n\n${skillText(skill)}`)}\n`);
    return EXIT.completed;
  },
});

const checkCommand: Command = defineCommand({
  name: 'skills check',
  summary: 'Explain what a skill narrows and asks for, and what is wrong with it',
  arguments: ['[NAME|FOLDER]'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [
    'FOLDER is a path with a slash, also outside of the places where skills are looked for. Without an argument, all skills are\n' +
      'checked.',
    'Exit codes:\n  0  there are no problems; there may be warnings\n  1  a skill does not load, or cannot be activated',
  ],
  examples: ['treadle skills check', 'treadle skills check release-notes', 'treadle skills check ./my-skill'],
  async run({ values, arguments: [given] }, io) {
    const context = await resolveContext(values, io);
    const { skills, problems, chosen } = await checkedSkills(context, given, io);
    const reports = chosen.map((skill) => reportOn(skill, skills));
    const isOk = problems.length === 0 && reports.every((report) => report.problems.length === 0);
    if (values.json) printJson(io, { ok: isOk, skills: reports, problems });
    else {
      for (const report of reports) io.stdout.write(`${reportText(report)}\n`);
      for (const problem of problems) io.stdout.write(`Does not load: ${problemText(problem)}\n`);
      if (chosen.length + problems.length === 0) io.stdout.write('There are no skills.\n');
    }
    return isOk ? EXIT.completed : EXIT.failed;
  },
});

async function checkedSkills(
  context: CommandContext,
  given: string | undefined,
  io: Io,
): Promise<{ skills: readonly LoadedSkill[]; chosen: readonly LoadedSkill[]; problems: readonly SkillProblem[] }> {
  const found = await findSkills(context);
  if (given === undefined) return { ...found, chosen: found.skills };
  if (!given.includes('/')) return { skills: found.skills, chosen: [findSkill(found.skills, given)], problems: [] };
  const folder = resolve(io.cwd, given);
  const { loadSkillFolder } = await loadSkillsPackage();
  const { skills, problems } = await loadSkillFolder(folder);
  if (skills.length + problems.length === 0) throw new CommandError(`${folder} has no SKILL.md.`);
  return { skills: [...found.skills, ...skills], chosen: skills, problems };
}

interface SkillReport extends ReturnType<typeof summaryOf> {
  /** What is enforced while it is active. */
  readonly narrows: readonly string[];
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
}

function summaryOf({ name, description, from, status, invocation, execution, dependencies, file, files }: LoadedSkill) {
  return { name, description, from, status, invocation, execution, dependencies, file, files };
}

function reportOn(skill: LoadedSkill, skills: readonly LoadedSkill[]): SkillReport {
  const by = skill.invocation === 'model' ? 'model' : 'user';
  const activation = activateSkills(skills, [skill.name], { by });
  const narrowing = skillNarrowing(skill);
  const known = new Set([...toolDefinitions().map(({ name }) => name), 'skill']);
  const entries = [...(skill.allowedTools ?? []), ...(skill.disallowedTools ?? []), ...(skill.approvals ?? [])];
  const unknown = entries.filter((entry) => !toolEntry(entry).tools.some((name) => known.has(name)));
  const unclear = entries.filter((entry) => toolEntry(entry).form?.type === 'unknown');
  const granting = (skill.allowedTools ?? []).length > 0;
  return {
    ...summaryOf(skill),
    narrows: governanceLines(narrowing, skill).map((line) => line.replace(/^- /, '')),
    problems: activation.type === 'refused' && skill.status !== 'disabled' ? [activation.reason] : [],
    warnings: [
      ...unknown.map((entry) => `${entry} is not a tool of the command. A tool of an MCP server can have this name.`),
      ...unclear.map((entry) => `${entry} cannot be checked, so its calls are asked about or blocked.`),
      ...(granting ? ['allowed-tools narrows: it does not let calls run without being asked about.'] : []),
      ...(skill.ignored.length > 0 ? [`These keys have no effect: ${skill.ignored.join(', ')}.`] : []),
    ],
  };
}

function reportText({ name, invocation, execution, dependencies, files, narrows, problems, warnings }: SkillReport) {
  const who = invocation === 'both' ? 'the user and the model' : `the ${invocation}`;
  const lines = [
    `${name}: activated by ${who}${execution === 'fork' ? ', runs on its own' : ''}`,
    ...(narrows.length === 0 ? ['  narrows nothing'] : narrows.map((line) => `  ${line}`)),
    ...(dependencies.length > 0 ? [`  With it: ${dependencies.join(', ')}`] : []),
    ...(files.length > 0 ? [`  ${plural(files.length, 'file')} that the model can read`] : []),
    ...problems.map((problem) => `  Problem: ${problem}`),
    ...warnings.map((warning) => `  Note: ${warning}`),
  ];
  return lines.map(exactLine).join('\n');
}

const FOLDER_FLAG = {
  project: { type: 'switch', help: 'In .agents/skills of the working folder instead of ~/.treadle/skills' },
} as const;

function targetFolder(context: CommandContext, project: boolean | undefined): string {
  return project ? join(context.folder, '.agents', 'skills') : userSkillsFolder();
}

const newCommand: Command = defineCommand({
  name: 'skills new',
  summary: 'Write a SKILL.md to start from',
  arguments: ['NAME'],
  flags: { ...FOLDER_FLAG, ...PLACE_FLAGS },
  notes: [],
  examples: ['treadle skills new release-notes', 'treadle skills new release-notes --project'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const { isSkillName } = await loadSkillsPackage();
    if (!isSkillName(name!)) {
      throw new CommandError(
        `${JSON.stringify(name)} cannot be the name of a skill. Use lower-case letters, digits and single hyphens.`,
      );
    }
    const folder = join(targetFolder(context, values.project), name!);
    await mkdir(folder, { recursive: true });
    try {
      await writeFile(join(folder, 'SKILL.md'), templateOf(name!), { flag: 'wx' });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST')
        throw new CommandError(`${folder} has a SKILL.md already.`);
      throw new CommandError(`${folder} cannot be written: ${readProblem(error)}.`);
    }
    io.stdout.write(`${join(folder, 'SKILL.md')}\n`);
    return EXIT.completed;
  },
});

function templateOf(name: string): string {
  return `---
name: ${name}
description: What this skill does, and when to use it. The model decides by this line.
# allowed-tools: Read Grep Bash(git log:*)
# disallowed-tools: Write
# autonomy: supervised
# approvals: Bash(git push:*)
---

# ${name}

What to do, step by step. Put long references and scripts into files beside this one, and name them here.
`;
}

const addCommand: Command = defineCommand({
  name: 'skills add',
  summary: 'Copy skills from a folder or a Git repository',
  arguments: ['PATH|URL'],
  flags: { ...FOLDER_FLAG, ...PLACE_FLAGS },
  notes: [
    'PATH is a folder with a SKILL.md, or one with such folders. URL is a Git repository, as "git clone" takes it; #FOLDER after\n' +
      'it names a folder in it. Nothing of it is executed. Links are not copied. What does not load is not added, and a skill\n' +
      'that exists is not replaced. Read what you add: a skill tells the model what to do.',
  ],
  examples: ['treadle skills add ./my-skill', 'treadle skills add https://github.com/example/skills#skills/pdf'],
  async run({ values, arguments: [given] }, io) {
    const context = await resolveContext(values, io);
    const target = targetFolder(context, values.project);
    const isUrl = /^(https?|ssh|git|file):\/\/|^[\w.-]+@[\w.-]+:/.test(given!);
    if (!isUrl) return addFrom(resolve(io.cwd, given!), target, io);
    const [url, below = ''] = given!.split('#');
    const clone = await mkdtemp(join(tmpdir(), 'treadle-skills-'));
    try {
      cloneInto(clone, url!, io);
      const folder = resolve(clone, below);
      const real = await realpath(folder).catch(() => folder);
      // A link in the repository could lead anywhere.
      if (!isInside(await realpath(clone), real) && !isInside(clone, real)) {
        throw new CommandError(`#${below} leads out of the repository.`);
      }
      return await addFrom(folder, target, io);
    } finally {
      await rm(clone, { recursive: true, force: true });
    }
  },
});

/** Without hooks, and without asking for a password. */
function cloneInto(folder: string, url: string, { env }: Io): void {
  const args = ['-c', 'core.hooksPath=/dev/null', 'clone', '--quiet', '--depth', '1', '--no-recurse-submodules', '--'];
  const { status, stderr, error } = spawnSync('git', [...args, url, folder], {
    encoding: 'utf8',
    timeout: 120_000,
    env: { ...env, PATH: env['PATH'] ?? process.env['PATH'], GIT_TERMINAL_PROMPT: '0' },
  });
  if (status === 0) return;
  throw new CommandError(`The repository cannot be cloned: ${oneLine(error?.message ?? stderr, 300)}`);
}

/** Copies the skill of a folder, or those of the folders in it. */
async function addFrom(source: string, target: string, io: Io): Promise<number> {
  const names = await readdir(source).catch((error: unknown) => {
    throw new CommandError(`${source} cannot be read: ${readProblem(error)}.`);
  });
  const { loadSkillFolder, loadSkills } = await loadSkillsPackage();
  const isSkill = names.includes('SKILL.md');
  const { skills, problems } = isSkill
    ? await loadSkillFolder(source)
    : await loadSkills([{ path: source, from: 'user' }]);
  for (const problem of problems) io.stderr.write(`Not added: ${problemText(problem)}\n`);
  if (skills.length + problems.length === 0)
    throw new CommandError(`${source} has no skills: no folder with a SKILL.md.`);
  await mkdir(target, { recursive: true });
  let added = 0;
  for (const { name, folder } of skills) {
    const to = join(target, name);
    if (await lstat(to).catch(() => undefined)) io.stderr.write(`Not added: ${exactLine(to)} exists.\n`);
    else {
      await cp(folder, to, { recursive: true, filter: isCopied });
      io.stdout.write(`Added ${name} to ${to}\n`);
      added++;
    }
  }
  if (added > 0) io.stderr.write('What they narrow and ask for: treadle skills check\n');
  return added > 0 && problems.length === 0 ? EXIT.completed : EXIT.failed;
}

async function isCopied(path: string): Promise<boolean> {
  const stats = await lstat(path);
  return (stats.isFile() || stats.isDirectory()) && basename(path) !== '.git';
}

function printJson(io: Io, value: unknown): number {
  io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  return EXIT.completed;
}

export const skillsGroup: CommandGroup = {
  name: 'skills',
  summary: 'List, check, write and add skills',
  commands: [listCommand, showCommand, checkCommand, newCommand, addCommand],
  notes: [
    'A skill is know-how for a kind of task: a folder with a SKILL.md. The model activates one that fits the task, and you do\n' +
      'with "--skill NAME" of run and chat, or with "/NAME" in a chat.',
  ],
};
