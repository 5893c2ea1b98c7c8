import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { DEFAULT_AGENT, type AgentProblem, type AgentRegistry, type NamedAgent } from '@treadle/core/named-agents';
import { DeniedError } from '../denied.ts';
import type { FileOps } from '../ops.ts';
import { guardedFiles } from '../paths/guarded-files.ts';
import { readWhole } from '../skills/folder-files.ts';
import {
  agentFileText,
  agentFormat,
  keyText,
  parseAgentFile,
  type AgentFileProblem,
  type ParsedAgentFile,
} from './parse-agent.ts';

/*
 * The agents of folders: each file in one of them is the definition of an agent.
 *
 * 1. A file that is bad, too large or elsewhere leaves the others working, and is reported.
 * 2. Nothing is read outside of the folder, also not through links.
 * 3. Names are unique. Of two files with one name the first is used, by the order of folders and then of file names, and the
 *    second is reported.
 * 4. `reload` reads only files that have changed. Whoever has an agent keeps it as it was.
 */

export interface FolderAgentsOptions {
  /** Absolute paths. One that does not exist has no agents. */
  readonly folders: readonly string[];
  /** Folders with workflows, which are agents too. */
  readonly workflows?: readonly string[];
  /** The agent that is used where none is named. */
  readonly default?: string;
}

export interface FolderAgents extends AgentRegistry {
  /** What is wrong with files that are not used. */
  problems(): readonly AgentFileProblem[];
  /** What has no effect in files that are used. */
  warnings(): readonly AgentFileProblem[];
  /** Where something that is wrong with an agent of this name is. */
  placed(name: string, problem: AgentProblem): AgentFileProblem;
  /** The file of an agent. */
  fileOf(name: string): string | undefined;
  /** Reads what has changed. Never rejects. Reloads run one after the other. */
  reload(): Promise<void>;
  /**
   * Writes an agent to the first folder: over its file there, or to a new one. Rejects with an `AgentFileError` if another folder has
   * it, or the place is taken.
   */
  write(agent: NamedAgent): Promise<void>;
  /** Removes the file of an agent in the first folder. Rejects like `write`. */
  remove(name: string): Promise<void>;
}

/** A definition cannot be written or removed here. */
export class AgentFileError extends Error {
  override readonly name = 'AgentFileError';
}

/** Of one file. */
const MAX_BYTES = 300_000;
/** Files of a folder that are looked at. */
const MAX_AGENT_FILES = 5_000;

/** A file as it was read. */
interface ReadAgent {
  readonly stamp: string;
  readonly parsed: ParsedAgentFile;
}

interface LoadedAgent {
  readonly agent: NamedAgent;
  readonly file: string;
  readonly folder: string;
  readonly lines: ReadonlyMap<string, number>;
}

interface Loaded {
  readonly agents: ReadonlyMap<string, LoadedAgent>;
  readonly problems: readonly AgentFileProblem[];
  readonly warnings: readonly AgentFileProblem[];
}

/** Reads the folders. Never rejects: what cannot be read is a problem. */
export async function folderAgents(options: FolderAgentsOptions): Promise<FolderAgents> {
  const { folders, workflows = [], default: byDefault } = options;
  const files = new Map<string, ReadAgent>();
  const listeners = new Set<() => void>();
  let loaded: Loaded = { agents: new Map(), problems: [], warnings: [] };
  let reloaded = Promise.resolve();

  async function load(): Promise<void> {
    const before = loaded;
    loaded = await readFolders({ folders, workflows }, files);
    if (isDeepStrictEqual(definitionsOf(before), definitionsOf(loaded))) return;
    for (const listener of listeners) listener();
  }

  const reload = (): Promise<void> => (reloaded = reloaded.then(load));

  function ownFile(name: string): string | undefined {
    const found = loaded.agents.get(name);
    if (!found || found.folder === folders[0]) return found?.file;
    throw new AgentFileError(`The agent "${name}" is defined in ${found.file}. Change it there.`);
  }

  function firstFolder(): string {
    if (folders[0] !== undefined) return folders[0];
    throw new AgentFileError('There is no folder for agents.');
  }

  await reload();
  return {
    list: () => Array.from(loaded.agents.values(), ({ agent }) => agent),
    get: (name) => loaded.agents.get(name === DEFAULT_AGENT ? (byDefault ?? name) : name)?.agent,
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    problems: () => loaded.problems,
    warnings: () => loaded.warnings,
    placed(name, { path, message }) {
      const { file = name, lines } = loaded.agents.get(name) ?? {};
      const key = keyText(path);
      const around = path.map((_, index) => keyText(path.slice(0, path.length - index)));
      const line = lines?.get(around.find((one) => lines.has(one)) ?? '');
      return { file, ...(line !== undefined && { line }), ...(key !== '' && { key }), message };
    },
    fileOf: (name) => loaded.agents.get(name)?.file,
    protects: [...folders, ...workflows].map((folder) => `${exactGlob(folder)}/**`),
    reload,
    async write(agent) {
      const folder = firstFolder();
      const own = ownFile(agent.name);
      const file = own ?? join(folder, `${agent.name}.yaml`);
      const text = agentFileText(agent, agentFormat(file) ?? 'yaml');
      try {
        await guardedFiles({ folder }).write(file, text, own === undefined ? { create: true } : {});
      } catch (error) {
        if (!(error instanceof DeniedError) && (error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
        throw new AgentFileError(`${file} exists, and is not the file of the agent "${agent.name}".`);
      }
      await reload();
    },
    async remove(name) {
      const file = ownFile(name);
      if (file === undefined) throw new AgentFileError(`There is no agent "${name}".`);
      await guardedFiles({ folder: firstFolder() }).remove(file);
      await reload();
    },
  };
}

/** Wildcards in the name of a folder cannot be told from those of a glob, so each stands for one character. */
function exactGlob(folder: string): string {
  return folder.replaceAll('\\', '/').replace(/[*?{}]/g, '?');
}

function definitionsOf({ agents }: Loaded): readonly NamedAgent[] {
  return Array.from(agents.values(), ({ agent }) => agent);
}

/** `files`: those that were read before, which are replaced by those that are there now. */
async function readFolders(
  { folders, workflows }: Required<Pick<FolderAgentsOptions, 'folders' | 'workflows'>>,
  files: Map<string, ReadAgent>,
): Promise<Loaded> {
  const agents = new Map<string, LoadedAgent>();
  const problems: AgentFileProblem[] = [];
  const warnings: AgentFileProblem[] = [];
  const seen = new Set<string>();
  for (const folder of new Set([...folders, ...workflows])) {
    const ops = guardedFiles({ folder });
    const isOfAgents = folders.includes(folder);
    const found = await agentFileNames(ops, folder);
    const { problem } = found;
    const names = isOfAgents ? found.names : found.names.filter((name) => agentFormat(name) !== 'md');
    // A program without workflows does not load CEL.
    const parse =
      isOfAgents || names.length === 0
        ? parseAgentFile
        : (await import('../workflows/parse-workflow.ts')).parseWorkflowFile;
    if (problem !== undefined) problems.push({ file: folder, message: problem });
    for (const name of names) {
      const file = join(folder, name);
      seen.add(file);
      const parsed = await readAgentFile(ops, file, { files, parse });
      if (parsed.type === 'invalid') problems.push(...parsed.problems);
      else {
        const { agent, lines } = parsed;
        const first = agents.get(agent.name);
        const message = first && sameName(agent.name, first.file, file);
        if (message !== undefined) problems.push({ file, line: lines.get('name')!, key: 'name', message });
        else {
          agents.set(agent.name, { agent, file, folder, lines });
          warnings.push(...parsed.warnings);
        }
      }
    }
  }
  for (const file of files.keys()) if (!seen.has(file)) files.delete(file);
  return { agents, problems, warnings };
}

function sameName(name: string, first: string, second: string): string {
  return `Two files define the agent "${name}": ${first}, which is used, and ${second}. Rename one of the agents.`;
}

async function agentFileNames(
  ops: FileOps,
  folder: string,
): Promise<{ readonly names: readonly string[]; readonly problem?: string }> {
  try {
    const entries = await ops.list(folder);
    const names = entries
      .flatMap(({ name, type }) => ((type === 'file' || type === 'link') && agentFormat(name) ? name : []))
      .toSorted();
    if (names.length <= MAX_AGENT_FILES) return { names };
    const problem = `It has ${names.length} files. Only the first ${MAX_AGENT_FILES} are used.`;
    return { names: names.slice(0, MAX_AGENT_FILES), problem };
  } catch (error) {
    return isMissing(error) ? { names: [] } : { names: [], problem: whyUnreadable(error) };
  }
}

async function readAgentFile(
  ops: FileOps,
  file: string,
  { files, parse }: { readonly files: Map<string, ReadAgent>; readonly parse: typeof parseAgentFile },
): Promise<ParsedAgentFile> {
  try {
    const { stamp } = await ops.stat(file);
    const known = files.get(file);
    if (known?.stamp === stamp) return known.parsed;
    const content = await readWhole(ops, file, MAX_BYTES);
    const parsed = parse(new TextDecoder('utf-8', { fatal: true }).decode(content), file);
    files.set(file, { stamp, parsed });
    return parsed;
  } catch (error) {
    files.delete(file);
    return { type: 'invalid', problems: [{ file, message: whyUnreadable(error) }] };
  }
}

function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}

function whyUnreadable(error: unknown): string {
  if (error instanceof DeniedError) return 'It is a link that leads elsewhere, so it is not used.';
  const { code, message } = error as NodeJS.ErrnoException;
  if (code === 'ERR_ENCODING_INVALID_ENCODED_DATA') return 'It is not a text in UTF-8.';
  return `It cannot be used: ${code ?? message.slice(0, 200)}.`;
}
