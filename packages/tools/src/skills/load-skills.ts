import { realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { withoutHidden } from '@treadle/core/describe';
import type { Skill } from '@treadle/core/skills';
import { DeniedError } from '../denied.ts';
import type { FileOps } from '../ops.ts';
import { guardedFiles } from '../paths/guarded-files.ts';
import { digestOf, hashOf, listFiles, readWhole } from './folder-files.ts';
import { MAX_FRONT_MATTER, MAX_SKILL_BYTES, parseSkill, shortText, type SkillProblem } from './parse-skill.ts';

/*
 * Skills of folders. Each folder below a root that has a SKILL.md is a skill.
 *
 * 1. A file that is bad, too large or elsewhere leaves the others working, and is reported.
 * 2. Nothing is read outside of `within`, also not through links. Links inside of a skill are not followed.
 * 3. Of several skills with one name the first root wins.
 * 4. There is a limit for each skill, for the folders of a root, and for all skills together. What is left out is reported.
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
export const MAX_SKILLS = 10_000;
/** Of all SKILL.md together, and of the names of the files beside them. They are kept in memory. */
export const MAX_KEPT_BYTES = 50_000_000;
/** Of all files that have to be trusted. They are read each time. */
const MAX_TRUSTED_BYTES = 500_000_000;
/** Parsing takes a time that grows with the square of a front matter: of all skills, in characters squared. */
const MAX_PARSED = 20_000_000_000;
/** Skills that are loaded at the same time. */
const AT_ONCE = 16;
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
  const left = newLimits();
  for (const root of roots) {
    for (const one of await loadRoot(root, left)) {
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
  const left = newLimits();
  const found = await loadNamed({ files: guardedFiles({ folder }), root, left }, basename(folder));
  return {
    skills: found.flatMap((one) => (one.type === 'skill' ? one.skill : [])),
    problems: found.flatMap((one) => (one.type === 'problem' ? one.problem : [])),
  };
}

type Found =
  | { readonly type: 'problem'; readonly problem: SkillProblem }
  | { readonly type: 'skill'; readonly skill: LoadedSkill; readonly digest: string | undefined };

/** What may still be read, in bytes. */
interface Left {
  kept: number;
  trusted: number;
  /** In characters squared. */
  parsed: number;
}

function newLimits(): Left {
  return { kept: MAX_KEPT_BYTES, trusted: MAX_TRUSTED_BYTES, parsed: MAX_PARSED };
}

interface Loading {
  readonly files: FileOps;
  readonly root: SkillRoot;
  readonly left: Left;
}

async function loadRoot(root: SkillRoot, left: Left): Promise<readonly Found[]> {
  const loading = { files: guardedFiles({ folder: root.within ?? root.path }), root, left };
  const found: Found[] = [];
  try {
    const entries = await loading.files.list(root.path);
    const names = entries.flatMap(({ name, type }) => (type === 'folder' || type === 'link' ? name : [])).toSorted();
    for (let index = 0; index < names.length; index += AT_ONCE) {
      const why = whyLeftOut(index, left);
      if (why !== undefined) {
        const all = `${names.length - index} of its ${names.length} folders`;
        const first = JSON.stringify(shortText(names[index]!, 80));
        found.push(problemWith(root.path, `${all} are left out, in the order of names from ${first} on: ${why}.`));
        break;
      }
      const some = names.slice(index, index + AT_ONCE).map((name) => loadNamed(loading, name));
      found.push(...(await Promise.all(some)).flat());
    }
  } catch (error) {
    if (!isMissing(error)) found.push(problemWith(root.path, whyUnreadable(error)));
  }
  return found;
}

function whyLeftOut(index: number, { kept, trusted, parsed }: Left): string | undefined {
  if (index >= MAX_SKILLS) return `only ${MAX_SKILLS} are looked at`;
  if (kept <= 0) return `all skills together may have ${MAX_KEPT_BYTES} bytes`;
  if (parsed <= 0) return 'the front matters before it are so long that parsing takes too much time';
  return trusted > 0 ? undefined : `all skills of a project together may have ${MAX_TRUSTED_BYTES} bytes of files`;
}

async function loadNamed(loading: Loading, name: string): Promise<readonly Found[]> {
  const file = join(loading.root.path, name, SKILL_FILE);
  try {
    return await loadSkill(loading, { name, file });
  } catch (error) {
    return isMissing(error) ? [] : [problemWith(file, whyUnreadable(error))];
  }
}

function problemWith(file: string, message: string): Found {
  return { type: 'problem', problem: { file: shortText(file, 300), message } };
}

async function loadSkill(
  { files, root, left }: Loading,
  { name, file }: { readonly name: string; readonly file: string },
): Promise<readonly Found[]> {
  const source = await readWhole(files, file, MAX_SKILL_BYTES);
  const real = await realpath((await files.stat(join(root.path, name))).path);
  // The model gets the path.
  if (withoutHidden(real.replaceAll(/[\n\t]/g, '')) !== real) {
    return [problemWith(file, 'The path of its folder has control characters or hidden ones. Rename the folder.')];
  }
  const listed = await listFiles(files, real);
  const others = listed.paths.filter((path) => path !== SKILL_FILE);
  const text = new TextDecoder('utf-8', { fatal: true }).decode(source);
  const shown = others.filter((path) => !INTERNAL.test(path)).map((path) => shortText(path, 200));
  left.kept -= source.length + shown.reduce((sum, path) => sum + path.length, 0);
  const front = text.indexOf('\n---', 3);
  if (front <= MAX_FRONT_MATTER) left.parsed -= front ** 2;
  const parsed = parseSkill(text, { file: shortText(file, 300), folder: real, folderName: name, files: shown });
  if (parsed.type === 'invalid') return parsed.problems.map((problem) => ({ type: 'problem', problem }));
  const { skill, ignored } = parsed;
  const loaded = { ...skill, from: root.from, file, ignored };
  if (root.from === 'user') return [{ type: 'skill', skill: loaded, digest: undefined }];
  const digest = await digestOf(files, real, listed, {
    known: new Map([[SKILL_FILE, source]]),
    onRead: (bytes) => void (left.trusted -= bytes),
  });
  return [{ type: 'skill', skill: loaded, digest }];
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
