import { constants } from 'node:fs';
import { access, open, readdir, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { messageOf } from '@treadle/core';
import { local } from '../local/local.ts';
import { folderDigest } from '../skills/folder-files.ts';
import { codingTools } from '../tool-sets.ts';
import type { PackagedTool, SkillPackage } from './packaged-tool.ts';
import { fileFor, findProgram, hostPlatform } from './program-file.ts';
import { parseSkillFile, SkillFileError, type BuiltIn, type WrittenTool } from './skill-file.ts';
import { versionedNames } from './versions.ts';

/* Packages of tools: folders with a `skill.toml`. What cannot be used is left out with the reason, and the others are loaded. */

const SKILL_FILE = 'skill.toml';
const MAX_FILE_BYTES = 256 * 1024;
const MAX_PACKAGES = 1_000;

export interface LoadOptions {
  /** Names of other tools, which packages do not replace. Default: none. */
  readonly taken?: Iterable<string>;
  /** Why a package may not be used, or nothing. Default: all may, because the caller has named the folders. */
  readonly whyUntrusted?: (folder: string) => string | undefined | Promise<string | undefined>;
  /** Packages that others can change: those run only as they were loaded. Default: none. */
  readonly isPinned?: (folder: string) => boolean;
  /** Programs outside of packages that may be run, as absolute paths. Default: none. */
  readonly allowed?: readonly string[];
  /** Default: that of this machine, such as `linux-x64`. */
  readonly platform?: string;
}

export interface LoadedSkills {
  /** With unique names: of several versions of a tool, the newest has its name, and the others `name_v1`. */
  readonly tools: readonly PackagedTool[];
  /** All that could be read, also if none of their tools can be used. */
  readonly packages: readonly SkillPackage[];
  /** What is left out, and why. */
  readonly problems: readonly string[];
}

/**
 * Loads the packages of folders. Each folder is a package, or has packages as its folders. A folder that does not exist has
 * none.
 */
export async function loadSkillDefinitions(
  folders: string | readonly string[],
  { taken = [], ...options }: LoadOptions = {},
): Promise<LoadedSkills> {
  const found = await Promise.all([folders].flat().map(packageFolders));
  const unique = [...new Set(found.flatMap((one) => one.folders))];
  const loaded = await Promise.all(unique.slice(0, MAX_PACKAGES).map((folder) => loadPackage(folder, options)));
  const named = versionedNames(
    loaded.flatMap(({ tools }) => tools),
    new Set(taken),
  );
  return {
    tools: named.tools,
    packages: loaded.flatMap((one) => one.package ?? []),
    problems: [
      ...found.flatMap((one) => one.problem ?? []),
      ...(unique.length > MAX_PACKAGES
        ? [
            `Only ${MAX_PACKAGES} of ${unique.length} packages are loaded: ${unique[MAX_PACKAGES]} and those after it are left out.`,
          ]
        : []),
      ...loaded.flatMap(({ problems }) => problems),
      ...named.problems,
    ],
  };
}

/** The folders of packages, without links, in the order of their names. */
async function packageFolders(
  folder: string,
): Promise<{ readonly folders: readonly string[]; readonly problem?: string }> {
  try {
    const names = await readdir(folder);
    if (names.includes(SKILL_FILE)) return { folders: [await realpath(folder)] };
    const inside = await Promise.all(names.toSorted().map((name) => packageAt(join(folder, name))));
    return { folders: inside.flat() };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { folders: [] };
    return { folders: [], problem: `${folder}: cannot be read: ${messageOf(error)}.` };
  }
}

async function packageAt(folder: string): Promise<readonly string[]> {
  try {
    await access(join(folder, SKILL_FILE));
    return [await realpath(folder)];
  } catch {
    // A file, or a folder of others.
    return [];
  }
}

interface LoadedPackage {
  readonly package?: SkillPackage;
  readonly tools: readonly PackagedTool[];
  readonly problems: readonly string[];
}

async function loadPackage(
  folder: string,
  { whyUntrusted, isPinned, allowed = [], platform = hostPlatform() }: Omit<LoadOptions, 'taken'>,
): Promise<LoadedPackage> {
  const file = join(folder, SKILL_FILE);
  try {
    const distrust = await whyUntrusted?.(folder);
    if (distrust !== undefined) return { tools: [], problems: [`${file}: ${distrust}`] };
    const digest = isPinned?.(folder) ? await folderDigest(folder) : undefined;
    const { tools: written, ...about } = parseSkillFile(await readText(file), { file, builtIns: builtIns() });
    const own: SkillPackage = { name: basename(folder), ...about, folder, ...(digest !== undefined && { digest }) };
    const found = await Promise.all(written.map((one) => findTool(one, own, { allowed, platform, file })));
    const tools = found.filter((one) => typeof one !== 'string');
    return { package: own, tools, problems: found.filter((one) => typeof one === 'string') };
  } catch (error) {
    if (error instanceof SkillFileError) return { tools: [], problems: error.problems };
    const why = error instanceof RangeError ? 'it is nested too deeply' : messageOf(error);
    return { tools: [], problems: [`${file}: cannot be read: ${why.replace(/\.?$/, '.')}`] };
  }
}

/** What a file may leave out, by the name of the tool. */
function builtIns(): ReadonlyMap<string, BuiltIn> {
  known ??= new Map(codingTools(local('.')).map((one) => [one.name, one]));
  return known;
}

let known: ReadonlyMap<string, BuiltIn> | undefined;

/** A link, a pipe or a device is not read: it could be a file of somebody else, or one without an end. */
async function readText(file: string): Promise<string> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const found = await handle.stat();
    if (!found.isFile()) throw new Error('it is not a file');
    if (found.size > MAX_FILE_BYTES) throw new Error(`it has more than ${MAX_FILE_BYTES} bytes`);
    return new TextDecoder('utf-8', { fatal: true }).decode(await handle.readFile());
  } finally {
    await handle.close();
  }
}

interface ToolSearch {
  readonly allowed: readonly string[];
  readonly platform: string;
  readonly file: string;
}

/** The tool with its programs, or why it is not offered. */
async function findTool(
  { platforms, binary, verify, line, ...tool }: WrittenTool,
  own: SkillPackage,
  { allowed, platform, file }: ToolSearch,
): Promise<PackagedTool | string> {
  const chosen = fileFor({ platforms, ...(binary !== undefined && { binary }) }, platform);
  const at = `${file}${line === undefined ? '' : `:${line}`}`;
  if (chosen === undefined) {
    return `${at}: ${tool.name} is not offered, because it has no binary for ${platform}: only for ${Object.keys(platforms).join(', ')}.`;
  }
  const place = { folder: own.folder, allowed };
  try {
    return {
      ...tool,
      program: await findProgram(chosen, place),
      ...(verify !== undefined && { verify: await findProgram(verify, place) }),
      package: own,
      written: { name: tool.name, binary: chosen },
    };
  } catch (error) {
    return `${at}: ${tool.name} is not offered, because ${messageOf(error)}.`;
  }
}
