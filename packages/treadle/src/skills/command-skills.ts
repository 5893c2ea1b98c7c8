import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { userText, type LoopOptions, type Model, type Tool, type UserMessage } from '@treadle/core';
import { requestedSkills, skillsSection, withSkillText, type Skill } from '@treadle/core/skills';
import type { SkillPackage } from '@treadle/tools/packages';
import type * as SkillsPackage from '@treadle/tools/skills';
import type { LoadedSkill, LoadedSkills, SkillProblem, SkillRoot } from '@treadle/tools/skills';
import { CommandError } from '../command-line/command.ts';
import { didYouMean } from '@treadle/core/nearest';
import { configuredSkillsFolder, userSkillsFolder, type ConfiguredPlace } from '../config/skill-folders.ts';
import { projectFolders } from '../run/agents-md.ts';
import { exactLine } from '../terminal/printable.ts';
import { isTrusted } from './trust.ts';

/* The skills of the command: where they are, which of them are used, and what runs get of them. */

/** Loading it takes time, for a parser. */
export function loadSkillsPackage(): Promise<typeof SkillsPackage> {
  return import('@treadle/tools/skills');
}

/** In a project, in each of its folders from the working folder up to its root. */
const PROJECT_FOLDERS = ['.agents/skills', '.claude/skills'];

export function isInside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '..' && !way.startsWith(`..${sep}`);
}

/** Where skills and packages of tools are looked for, also if there is nothing. */
export async function skillPlaces(context: ConfiguredPlace): Promise<readonly string[]> {
  return (await skillRoots(context)).roots.map(({ path }) => path);
}

/** The roots, those that win first. What `skills_path` names inside of the project belongs to the project. */
async function skillRoots(context: ConfiguredPlace): Promise<{ roots: readonly SkillRoot[]; project: string }> {
  const folders = await projectFolders(context.folder, homedir());
  const project = folders[0]!;
  const configured = configuredSkillsFolder(context);
  const named: readonly SkillRoot[] =
    configured === undefined
      ? []
      : [
          isInside(project, configured)
            ? { path: configured, within: project, from: 'project' }
            : { path: configured, from: 'user' },
        ];
  const own: SkillRoot = { path: userSkillsFolder(), from: 'user' };
  const inProject = folders
    .toReversed()
    .flatMap((folder) => PROJECT_FOLDERS.map((name) => join(folder, name)))
    .map((path): SkillRoot => ({ path, within: project, from: 'project' }));
  return { roots: [own, ...named, ...inProject], project };
}

/** What was found, and whether what the project brings is trusted. */
export interface FoundSkills extends LoadedSkills {
  /** The root of the project. */
  readonly project: string;
  readonly trusted: boolean;
}

/** Where skills are looked for, and the packages that have to be trusted with those of the project. */
type SkillsPlace = ConfiguredPlace & { readonly packages: { readonly ofProject: readonly SkillPackage[] } };

export async function findSkills(place: SkillsPlace): Promise<FoundSkills> {
  const { ofProject } = place.packages;
  const { roots: places, project } = await skillRoots(place);
  const roots = places.filter(({ path }) => existsSync(path));
  if (roots.length + ofProject.length === 0) return { skills: [], problems: [], project, trusted: true };
  const { loadSkills } = await loadSkillsPackage();
  const loaded = await loadSkills(
    roots,
    ofProject.map(({ digest }) => digest!),
  );
  const { trusted_skills: named = [] } = place.loaded.config.orchestrator?.tools ?? {};
  const { fingerprint } = loaded;
  const trusted =
    fingerprint === undefined ||
    [place.trusted, ...named].includes(fingerprint) ||
    (await isTrusted(project, fingerprint));
  return { ...loaded, project, trusted };
}

export function problemText({ file, line, key, message }: SkillProblem): string {
  const at = [file, ...(line === undefined ? [] : [`line ${line}`]), ...(key === undefined ? [] : [key])].join(', ');
  return exactLine(`${at}: ${message}`);
}

export function findSkill(skills: readonly LoadedSkill[], name: string): LoadedSkill {
  const skill = skills.find((one) => one.name === name);
  if (skill) return skill;
  const names = skills.map((one) => one.name);
  throw new CommandError(
    `There is no skill ${JSON.stringify(name)}.${didYouMean(name, names)} ` +
      (names.length === 0 ? 'See: treadle skills --help' : `Skills: ${names.slice(0, 20).join(', ')}.`),
  );
}

/** The tool that activates skills. `fork`: what those of them use that run on their own. */
export async function skillToolFor(
  skills: readonly Skill[],
  fork: { readonly model: Model; readonly tools: readonly Tool[] },
): Promise<Tool> {
  const { skillTool } = await loadSkillsPackage();
  return skillTool({ skills, fork });
}

/** What the instructions of a run say about skills. */
export function skillsInstructions(skills: readonly Skill[], tools: readonly Tool[]): string {
  const section = tools.some(({ name }) => name === 'skill') ? skillsSection(skills) : '';
  return section === '' ? '' : `\n\n${section}`;
}

/** What a message with skills that the user named gives to its run. Throws if one of them cannot be activated. */
export function withSkills(
  input: LoopOptions['input'],
  skills: readonly Skill[],
  names: readonly string[] = [],
): Pick<LoopOptions, 'input' | 'narrow'> {
  if (names.length === 0) return { input };
  const messages = typeof input === 'string' ? [userText(input)] : input;
  const last = messages.at(-1) as UserMessage;
  const task = last.content.flatMap((block) => (block.type === 'text' ? block.text : [])).join('\n');
  const activation = requestedSkills(skills, names, task);
  if (activation.type === 'refused') throw new CommandError(activation.reason);
  const { text, narrow } = activation;
  return { input: [...messages.slice(0, -1), withSkillText(last, text)], narrow };
}
