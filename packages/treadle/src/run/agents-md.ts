import { lstat } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { DeniedError, guardedFiles } from '@treadle/tools';
import { readProblem } from '../command-line/named-file.ts';
import { oneLine } from '../terminal/printable.ts';
import { sizeText } from '../terminal/quantities.ts';

/** A file with instructions for agents. */
export interface AgentsFile {
  /** Relative to the working folder. */
  readonly path: string;
  readonly text: string;
  /** The size of the file, of which `text` may be the beginning. */
  readonly bytes: number;
  readonly isCut: boolean;
}

const NAME = 'AGENTS.md';
const MAX_BYTES = 32_000;

/**
 * AGENTS.md of the working folder and of the folders above it, up to the root of the repository or the home folder; the
 * nearest is the last. Outside of both, only that of the working folder. A link is followed only inside of these folders.
 */
export async function readAgentsFiles(
  folder: string,
  home: string,
): Promise<{ readonly files: readonly AgentsFile[]; readonly problems: readonly string[] }> {
  const folders = await projectFolders(folder, home);
  const guarded = guardedFiles({ folder: folders[0]! });
  const files: AgentsFile[] = [];
  const problems: string[] = [];
  for (const at of folders) {
    const path = relative(folder, join(at, NAME));
    try {
      files.push({ path, ...(await readStart(guarded, join(at, NAME))) });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
      const why = error instanceof DeniedError ? 'it is a link that leads out of the project' : readProblem(error);
      problems.push(oneLine(`${path} is not used: ${why}.`, 200));
    }
  }
  return { files: files.filter(({ text }) => text.trim() !== ''), problems };
}

/** The folders from the root of the project down to the working folder. */
export async function projectFolders(folder: string, home: string): Promise<readonly string[]> {
  const folders: string[] = [];
  for (let at = folder; ; at = dirname(at)) {
    folders.unshift(at);
    const hasGit = await lstat(join(at, '.git')).then(
      () => true,
      () => false,
    );
    if (hasGit || at === home) return folders;
    if (dirname(at) === at) return [folder];
  }
}

async function readStart(
  files: ReturnType<typeof guardedFiles>,
  path: string,
): Promise<Pick<AgentsFile, 'text' | 'bytes' | 'isCut'>> {
  const { handle, size } = await files.open(path);
  try {
    const buffer = Buffer.alloc(Math.min(size, MAX_BYTES));
    let filled = 0;
    while (filled < buffer.length) {
      const { bytesRead } = await handle.read(buffer, filled, buffer.length - filled, filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    const isCut = size > MAX_BYTES;
    const decoded = new TextDecoder('utf-8', { fatal: true }).decode(buffer.subarray(0, filled), { stream: isCut });
    if (decoded.includes('\0')) throw new Error('it is not a text');
    return { text: decoded.trim(), bytes: size, isCut };
  } finally {
    await handle.close();
  }
}

/** What the user is told: `Instructions: AGENTS.md (1.2 kB)`. */
export function agentsNotice(files: readonly AgentsFile[]): string | undefined {
  if (files.length === 0) return undefined;
  const all = files.map(({ path, bytes, isCut }) => {
    const size = isCut ? `the first ${sizeText(MAX_BYTES)} of ${sizeText(bytes)}` : sizeText(bytes);
    return `${oneLine(path, 60)} (${size})`;
  });
  return `Instructions: ${all.join(', ')}`;
}

/** The instructions of the files, for the model. */
export function agentsInstructions(files: readonly AgentsFile[]): string {
  if (files.length === 0) return '';
  const parts = files.map(
    ({ path, text, isCut }) => `${path}:\n${text}${isCut ? '\n[the rest of the file is left out]' : ''}`,
  );
  const head = 'The project has these instructions for you. A later file takes precedence over an earlier one.';
  return `\n\n${[head, ...parts].join('\n\n')}`;
}
