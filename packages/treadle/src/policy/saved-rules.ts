import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { stableJson, type Grant, type Touch } from '@treadle/core';
import type { CommandContext } from '../config/context.ts';
import { readProblem } from '../command-line/named-file.ts';

/**
 * What the user has allowed for every conversation of a folder: calls of a tool that touch exactly the same, as long as the tool
 * stays the same. The file is beside treadle.toml, in the folder that no tool can write to.
 */
export interface SavedRules {
  /** The name of the file in messages. */
  readonly file: string;
  readonly grants: readonly Grant[];
  /** Why the file is not used. */
  readonly problem?: string;
  /** Adds the grants for what was allowed. Returns those that were not there before. */
  save(grants: readonly Grant[]): Promise<readonly Grant[]>;
}

const NAME = '.treadle/rules.json';

export async function openSavedRules({
  folder,
  loaded,
}: Pick<CommandContext, 'folder' | 'loaded'>): Promise<SavedRules> {
  const path = join(loaded.path === undefined ? folder : dirname(loaded.path), NAME);
  const read = await readGrants(path);
  let { grants } = read;
  return {
    file: NAME,
    get grants() {
      return grants;
    },
    ...(read.problem !== undefined && { problem: read.problem }),
    async save(added) {
      // Another chat may have added some.
      const current = await readGrants(path);
      if (current.problem !== undefined) throw new Error(current.problem);
      const known = new Set(current.grants.map((grant) => stableJson(grant)));
      const more = added
        .map((grant) => ({ ...grant, touches: withoutAmounts(grant.touches) }))
        .filter((grant) => !known.has(stableJson(grant)));
      if (more.length === 0) return [];
      grants = [...current.grants, ...more];
      await mkdir(dirname(path), { recursive: true });
      const next = `${path}.${process.pid}`;
      await writeFile(next, `${JSON.stringify({ allow: grants }, null, 2)}\n`, { mode: 0o600 });
      await rename(next, path);
      return more;
    },
  };
}

async function readGrants(path: string): Promise<{ readonly grants: readonly Grant[]; readonly problem?: string }> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { grants: [] };
    return { grants: [], problem: `The saved rules in ${NAME} are not used: ${readProblem(error)}.` };
  }
  const grants = grantsIn(text);
  return grants
    ? { grants }
    : { grants: [], problem: `The saved rules in ${NAME} are not used: the file is damaged. Remove it.` };
}

/** Undefined unless everything is as it was written. */
function grantsIn(text: string): readonly Grant[] | undefined {
  try {
    const { allow } = JSON.parse(text) as { readonly allow?: unknown };
    return Array.isArray(allow) && allow.every(isGrant) ? allow : undefined;
  } catch {
    return undefined;
  }
}

function isGrant(value: unknown): value is Grant {
  const { tool, touches, definition, by, sandbox = [] } = (value ?? {}) as Partial<Grant>;
  const areTexts = (list: unknown): boolean => Array.isArray(list) && list.every((one) => typeof one === 'string');
  return (
    typeof tool === 'string' && typeof definition === 'string' && areTexts(by) && areTexts(sandbox) && isNarrow(touches)
  );
}

/** What a rule allows: what is touched, and not how much. */
export function withoutAmounts(touches: readonly Touch[]): readonly Touch[] {
  return touches.map((touch) => {
    if (touch.type === 'write') {
      const { lines: _, ...path } = touch;
      return path;
    }
    if (touch.type !== 'url') return touch;
    const { bytes: _, ...url } = touch;
    return url;
  });
}

/** Whether a rule can say what is touched: calls that do not say it could touch anything. */
export function isNarrow(touches: readonly Touch[] | undefined): boolean {
  return (
    Array.isArray(touches) &&
    touches.length > 0 &&
    touches.every((touch) => typeof touch?.type === 'string' && touch.type !== 'unknown')
  );
}
