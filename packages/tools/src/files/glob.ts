import { tool, type Tool } from '@treadle/core';
import { globPattern } from './glob-pattern.ts';
import { listing, walkNotes } from './listing.ts';
import { walk, type WalkNotes } from './walk.ts';
import type { Ops } from '../ops.ts';
import { workspace, type Workspace } from './workspace.ts';

const MAX_PATHS = 500;

interface GlobInput {
  readonly pattern: string;
  readonly path?: string;
}

export function globTool({ files }: Pick<Ops, 'files'>): Tool {
  const space = workspace(files);
  return tool({
    name: 'glob',
    description:
      'List files and folders of the working folder whose paths match a pattern, sorted; folders end in "/". ' +
      '"*" lists one folder, "**/*.ts" searches all folders. node_modules, .git and .treadle are left out unless the pattern names them.',
    input: {
      type: 'object',
      properties: {
        pattern: { type: 'string', description: 'Such as "*", "src/**/*.ts" or "**/*.{json,toml}"' },
        path: { type: 'string', description: 'Folder to look in; default: the working folder' },
      },
      required: ['pattern'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: ({ path = '.' }) => [{ type: 'read', path: String(path) }],
    permissions: ['file_read'],
    execute: (input, { signal }) => glob(space, input as unknown as GlobInput, signal),
  });
}

async function glob(space: Workspace, input: GlobInput, signal: AbortSignal): Promise<string> {
  const pattern = globPattern(input.pattern);
  const from = await space.locate(input.path ?? '.');
  if (from.kind !== 'folder') throw new Error(`${JSON.stringify(input.path)} is not a folder. Use read for a file.`);

  const found = listing(MAX_PATHS);
  const notes: WalkNotes = { links: 0, closed: 0, cut: false };
  const remarks: string[] = [];
  for await (const entry of walk({ space, from, pattern, notes, signal })) {
    if (!pattern.matches(entry.below)) continue;
    if (found.add(entry.kind === 'folder' ? `${entry.shown}/` : entry.shown)) continue;
    remarks.push(`only the first ${found.length} are shown: narrow the pattern or give a path`);
    break;
  }
  if (found.length === 0) remarks.push(`nothing matches ${input.pattern}${hint(input.pattern)}`);
  return found.text([...remarks, ...walkNotes(notes)]);
}

function hint(pattern: string): string {
  return pattern.includes('/') || pattern === '*' ? '' : `; to search all folders, write **/${pattern}`;
}
