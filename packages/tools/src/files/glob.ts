import { tool, type Tool, type ToolContext } from '@treadle/core';
import type { Ops } from '../ops.ts';
import { timeoutFor, timeoutParameter } from '../call-limits.ts';
import { ToolError } from '../tool-error.ts';
import { findFiles } from './find-files.ts';
import { globPattern, splitPattern } from './glob-pattern.ts';
import { CUT_NOTE, listing, shownName } from './listing.ts';
import { UnreachableError, workspaceOf, type Located, type Workspace } from './workspace.ts';

const MAX_PATHS = 500;

interface GlobInput {
  readonly pattern: string;
  readonly path?: string;
  readonly max_results?: number;
}

export function globTool(ops: Ops): Tool {
  return tool({
    name: 'glob',
    description:
      'Find files by their paths. Returns the paths of the files that match, sorted, relative to the working folder. "*.ts" ' +
      'looks in one folder, "**/*.ts" in all folders. Left out: what .gitignore excludes, node_modules, .git and .treadle (but ' +
      'you may name such a folder at the start of the pattern, or as path), symbolic links, and what may not be read. ' +
      'Use read to list a folder, and grep to search the content of files.',
    input: {
      type: 'object',
      properties: {
        pattern: {
          type: 'string',
          description: 'Such as "src/**/*.ts" or "**/*.{json,toml}". "*" and "?" do not match "/", "**" does',
        },
        path: { type: 'string', description: 'Folder to look in; default: the working folder' },
        max_results: { type: 'integer', minimum: 1, maximum: MAX_PATHS, description: `Default ${MAX_PATHS}` },
        timeout_ms: timeoutParameter('files'),
      },
      required: ['pattern'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path = '.' }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    timeoutMs: timeoutFor('files'),
    execute: (input, context) => glob(ops, workspaceOf(ops.files, context), input as unknown as GlobInput, context),
  });
}

async function glob(ops: Ops, space: Workspace, input: GlobInput, { signal }: ToolContext): Promise<string> {
  signal.throwIfAborted();
  globPattern(input.pattern);
  const within = await locateFolder(space, input.path ?? '.');
  const { folder, rest: pattern } = splitPattern(input.pattern);
  const nothing = `[nothing matches ${shownName(input.pattern)}${hint(input.pattern)}]`;
  if (pattern === '') return nothing;
  let from = within;
  if (folder !== '') {
    try {
      from = await space.locate(`${within.real}/${folder}`);
    } catch (error) {
      if (error instanceof UnreachableError && error.errorType === 'not_found') return nothing;
      throw error;
    }
    if (from.kind !== 'folder') return nothing;
  }
  const found = listing(input.max_results ?? MAX_PATHS);
  const notes: string[] = [];
  const { paths, isCut } = await findFiles(ops, space, { from, pattern }, signal);
  for await (const path of paths) {
    if (found.add(shownName(from.shown === '.' ? path : `${from.shown}/${path}`))) continue;
    notes.push(`only the first ${found.length} are shown: narrow the pattern or give a path`);
    break;
  }
  if (isCut) notes.push(CUT_NOTE);
  return found.length === 0 && notes.length === 0 ? nothing : found.text(notes);
}

async function locateFolder(space: Workspace, path: string): Promise<Located> {
  const folder = await space.locate(path);
  if (folder.kind === 'folder') return folder;
  throw new ToolError(`${JSON.stringify(path)} is not a folder. Use read for a file.`, 'invalid_params');
}

function hint(pattern: string): string {
  if (pattern.endsWith('/') || /(^|\/)\*\*$/.test(pattern)) return '; only files are listed, use read for a folder';
  return pattern.includes('/') || pattern === '*' ? '' : `; to search all folders, write **/${shownName(pattern)}`;
}
