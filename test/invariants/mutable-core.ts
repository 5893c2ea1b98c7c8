import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { declarationOf, loadCore, SOURCES, sources, type Core } from './core.ts';
import type { CoreFunctions } from './core-functions.ts';

/** A fault: one function of the core is replaced by a wrapper around it. */
export interface Fault {
  readonly target: keyof CoreFunctions;
  readonly replace: (original: never, core: Core) => unknown;
}

/**
 * `replace` gets the original function, and returns the one that is called instead. `Replaced` is the type of both; it
 * is a parameter of its own because TypeScript would otherwise compute the union of all functions.
 */
export function fault<
  Target extends keyof CoreFunctions,
  Replaced extends (...args: never[]) => unknown = CoreFunctions[Target],
>(target: Target, replace: (original: Replaced, core: Core) => Replaced): Fault {
  return { target, replace: replace as Fault['replace'] };
}

export type Replacement<Target extends keyof CoreFunctions> = (
  original: CoreFunctions[Target],
  core: Core,
) => CoreFunctions[Target];

/** A copy of the core in which functions can be replaced at run time. */
export interface MutableCore {
  readonly core: Core;
  /** Does some work while the core has a fault. */
  readonly withFault: <T>(fault: Fault, work: () => T | Promise<T>) => Promise<T>;
}

/** Inside of the package, so that its dependencies are found; ignored by Git and by every check. */
const CACHE = path.resolve(SOURCES, '../.cache');

/** What the copy and the tests share: the functions that can be replaced, and the replacements, by address. */
interface Switchboard {
  readonly originals: Record<string, unknown>;
  readonly replacements: Record<string, unknown>;
}

/**
 * Loads a copy of the core once for any number of faults. In the copy, each target is renamed, and a function of its
 * name calls the replacement if there is one, or else the original.
 */
export function loadMutableCore(targets: Iterable<keyof CoreFunctions>): MutableCore {
  const switchboard: Switchboard = { originals: {}, replacements: {} };
  const folder = writeCopy(targets, switchboard);
  // Not before: the core loads some of its modules when they are first used.
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const core = loadCore(folder);
  return {
    core,
    async withFault({ target, replace }, work) {
      const original = switchboard.originals[target];
      if (!original) throw new Error(`"${target}" cannot be replaced: this copy of the core was loaded without it.`);
      switchboard.replacements[target] = replace(original as never, core);
      try {
        return await work();
      } finally {
        switchboard.replacements[target] = undefined;
      }
    },
  };
}

let copies = 0;

/** Writes the copy into a new folder. It finds the switchboard as a global variable. */
function writeCopy(targets: Iterable<keyof CoreFunctions>, switchboard: Switchboard): string {
  const key = `mutable core ${copies++}`;
  Object.assign(globalThis, { [key]: switchboard });
  const copy = new Map(sources());
  for (const address of new Set(targets)) {
    const { file, name, exported } = declarationOf(address);
    const declaration = new RegExp(String.raw`^(?:export )?((?:async )?function ${name})\b`, 'm');
    const renamed = copy.get(file)!.replace(declaration, '$1$$original');
    copy.set(file, `${renamed}\n${dispatcher(address, name, exported, key)}`);
  }
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(path.join(CACHE, 'mutable-'));
  for (const [file, text] of copy) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), text);
  }
  return folder;
}

function dispatcher(address: string, name: string, exported: boolean, key: string): string {
  return `${exported ? 'export ' : ''}function ${name}(...args) {
  return (globalThis['${key}'].replacements['${address}'] ?? ${name}$original)(...args);
}
globalThis['${key}'].originals['${address}'] = ${name}$original;
`;
}
