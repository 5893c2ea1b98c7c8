import { basename, dirname, join } from 'node:path';
import type { Skill } from '@treadle/core/skills';
import { DeniedError } from '../denied.ts';
import type { FileOps } from '../ops.ts';
import { guardedFiles } from '../paths/guarded-files.ts';
import { digestOf, hashOf, listFiles, readWhole } from './folder-files.ts';
import { MAX_SKILL_BYTES, parseSkill, shortText, type SkillProblem } from './parse-skill.ts';

/*
 * Skills of folders. Each folder below a root that has a SKILL.md is a skill.
 *
 * 1. A file that is bad, too large or elsewhere leaves the others working, and is reported.
 * 2. Nothing is read outside of `within`, also not through links. Links inside of a skill are not followed.
 * 3. Of several skills with one name the first root wins.
 */

/** A folder with skills. */
export interface SkillRoot {
  readonly path: string;
  /** Links may lead anywhere inside of this folder; default: the root itself. */
  readonly within?: string;
  /** `project`: whoever wrote the project wrote them. They have to be trusted. */
  readonly from: 'user' | 'project';
}

export interface LoadedSkill extends Skill {
  readonly from: SkillRoot['from'];
  /** The path of SKILL.md. */
  readonly file: string;
  /** Keys of its front matter that have no effect. */
  readonly ignored: readonly string[];
}

export interface LoadedSkills {
  readonly skills: readonly LoadedSkill[];
  readonly problems: readonly SkillProblem[];
  /** Of everything in the folders of a project; absent if there is nothing to trust. */
  readonly fingerprint?: string;
}

const SKILL_FILE = 'SKILL.md';
/** Folders of a root that are looked at. */
export const MAX_SKILLS = 1_000;
/** Files that are not for the model. They count for the fingerprint. */
const INTERNAL = /(^|\/)(\.git|node_modules)\//;

/**
 * Never rejects: what cannot be read is a problem. A root that does not exist has no skills. `trustedWith`: digests of what else
 * has to be trusted with the skills of a project.
 */
export async function loadSkills(
  roots: readonly SkillRoot[],
  trustedWith: readonly string[] = [],
): Promise<LoadedSkills> {
  const byName = new Map<string, LoadedSkill>();
  const problems: SkillProblem[] = [];
  const digests = [...trustedWith];
  for (const root of roots) {
    for (const one of await loadRoot(root)) {
      if (one.type === 'problem') problems.push(one.problem);
      else {
        const { skill, digest } = one;
        if (digest !== undefined) digests.push(digest);
        const first = byName.get(skill.name);
        if (!first) byName.set(skill.name, skill);
        else if (first.folder !== skill.folder) {
          problems.push({
            file: skill.file,
            key: 'name',
            message: `The skill "${skill.name}" of ${first.file} is used.`,
          });
        }
      }
    }
  }
  const skills = [...byName.values()];
  if (digests.length === 0) return { skills, problems };
  return { skills, problems, fingerprint: `sha256:${hashOf(digests.toSorted().join('\n'))}` };
}

/** The skill in one folder, wherever that is. No skill and no problem: it has no SKILL.md. */
export async function loadSkillFolder(folder: string): Promise<LoadedSkills> {
  const root: SkillRoot = { path: dirname(folder), from: 'user' };
  const found = await loadNamed(guardedFiles({ folder }), root, basename(folder));
  return {
    skills: found.flatMap((one) => (one.type === 'skill' ? one.skill : [])),
    problems: found.flatMap((one) => (one.type === 'problem' ? one.problem : [])),
  };
}

type Found =
  | { readonly type: 'problem'; readonly problem: SkillProblem }
  | { readonly type: 'skill'; readonly skill: LoadedSkill; readonly digest: string | undefined };

async function loadRoot(root: SkillRoot): Promise<readonly Found[]> {
  const files = guardedFiles({ folder: root.within ?? root.path });
  const found: Found[] = [];
  try {
    const entries = await files.list(root.path);
    const names = entries.flatMap(({ name, type }) => (type === 'folder' || type === 'link' ? name : [])).toSorted();
    if (names.length > MAX_SKILLS) {
      found.push(problemWith(root.path, `It has ${names.length} folders. Only the first ${MAX_SKILLS} are looked at.`));
    }
    for (const name of names.slice(0, MAX_SKILLS)) found.push(...(await loadNamed(files, root, name)));
  } catch (error) {
    if (!isMissing(error)) found.push(problemWith(root.path, whyUnreadable(error)));
  }
  return found;
}

async function loadNamed(files: FileOps, root: SkillRoot, name: string): Promise<readonly Found[]> {
  const file = join(root.path, name, SKILL_FILE);
  try {
    return await loadSkill(files, { root, name, file });
  } catch (error) {
    return isMissing(error) ? [] : [problemWith(file, whyUnreadable(error))];
  }
}

function problemWith(file: string, message: string): Found {
  return { type: 'problem', problem: { file: shortText(file, 300), message } };
}

async function loadSkill(
  files: FileOps,
  { root, name, file }: { readonly root: SkillRoot; readonly name: string; readonly file: string },
): Promise<readonly Found[]> {
  const source = await readWhole(files, file, MAX_SKILL_BYTES);
  const { path: real } = await files.stat(join(root.path, name));
  const listed = await listFiles(files, real);
  const others = listed.paths.filter((path) => path !== SKILL_FILE);
  const text = new TextDecoder('utf-8', { fatal: true }).decode(source);
  const shown = others.filter((path) => !INTERNAL.test(path)).map((path) => shortText(path, 200));
  const parsed = parseSkill(text, { file: shortText(file, 300), folder: real, folderName: name, files: shown });
  if (parsed.type === 'invalid') return parsed.problems.map((problem) => ({ type: 'problem', problem }));
  const { skill, ignored } = parsed;
  const digest = root.from === 'project' ? await digestOf(files, real, listed) : undefined;
  return [{ type: 'skill', skill: { ...skill, from: root.from, file, ignored }, digest }];
}

function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}

function whyUnreadable(error: unknown): string {
  if (error instanceof DeniedError) return 'It is a link that leads elsewhere, so it is not used.';
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ERR_ENCODING_INVALID_ENCODED_DATA') return 'It is not a text in UTF-8.';
  return `It cannot be used: ${shortText(code === undefined ? message : `${code}`, 200)}.`;
}
