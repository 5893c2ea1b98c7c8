import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { loadCore, SOURCES, type Core } from './core.ts';
import type { PROPERTIES } from './properties.ts';

/** A fault in the sources of the core that a property must find. */
export interface Mutant extends Patch {
  readonly name: string;
  readonly property: keyof typeof PROPERTIES;
}

interface Patch {
  /** Under `packages/core/src`. */
  readonly file: string;
  /** Stands there exactly once. */
  readonly find: string;
  readonly replace: string;
}

/** Inside of the package, so that its dependencies are found; ignored by Git and by every check. */
const CACHE = path.resolve(SOURCES, '../.cache');

/** A copy of the core with a patch applied, or as it is; `remove` it afterwards. */
export function mutantOf(patch: Patch | undefined): { readonly core: Core; readonly remove: () => void } {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(path.join(CACHE, 'mutant-'));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    cpSync(SOURCES, folder, { recursive: true, filter: (file) => !file.endsWith('.test.ts') });
    if (patch) apply(patch, folder);
    return { core: loadCore(folder), remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function apply({ file, find, replace }: Patch, folder: string): void {
  const at = path.join(folder, file);
  const pieces = readFileSync(at, 'utf8').split(find);
  if (pieces.length !== 2) {
    throw new Error(`"${find}" stands ${pieces.length - 1} times in ${file}, not once. Bring the mutant up to date.`);
  }
  writeFileSync(at, pieces.join(replace));
}
