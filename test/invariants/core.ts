import { globSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type * as core from '@treadle/core';
import type * as budgets from '@treadle/core/budgets';
import type {
  AgentRules,
  ContinueOptions,
  Event,
  Item,
  JournalEntry,
  LiveRun,
  LoopOptions,
  Next,
  Snapshot,
  State,
} from '@treadle/core';
import type { CoreFunctions } from './core-functions.ts';

/** The loop under test: unchanged, or with a fault. */
export type Core = typeof core & Pick<typeof budgets, 'memoryBudgets'> & Internals;

/** Functions that the core does not export: they write a journal without a driver, and run a typed agent by any rules. */
export interface Internals {
  readonly entryOf: (seq: number, event: Event, next: Next) => JournalEntry;
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restoredState: (snapshot: Snapshot) => State | undefined;
  readonly driveRun: (
    options: LoopOptions | ContinueOptions,
    listener: (item: Item) => void,
    code: { readonly agent: AgentCode },
  ) => Omit<LiveRun, typeof Symbol.asyncIterator>;
  readonly performEffect: CoreFunctions['performEffect'];
  readonly activeMsAt: CoreFunctions['activeMsAt'];
}

/** The code of a typed agent. */
export interface AgentCode {
  readonly rules: AgentRules;
  readonly check: (text: string, attempt: number, signal: AbortSignal) => Promise<Verdict>;
}

type Verdict = Extract<Event, { type: 'output-checked' }>['result'];

const require = createRequire(import.meta.url);

/** Where the core's sources are. */
export const SOURCES: string = path.resolve(import.meta.dirname, '../../packages/core/src');

/** Loads the core from a folder of sources. Node does this ten times as fast as Vitest. */
export function loadCore(folder: string = SOURCES): Core {
  const load = (file: string): object => require(path.join(folder, file)) as object;
  const internal = <Name extends keyof Internals>(name: Name): Internals[Name] =>
    (load(declarationOf(name).file) as Internals)[name];
  // So that the core, which loads them when they are first used, has them at once.
  for (const file of ['questions', 'judge', 'spend', 'examine', 'long-results']) load(`driver/${file}.ts`);
  return {
    ...(load('index.ts') as typeof core),
    memoryBudgets: (load('ledger/budgets.ts') as typeof budgets).memoryBudgets,
    entryOf: internal('entryOf'),
    snapshotOf: internal('snapshotOf'),
    restoredState: internal('restoredState'),
    driveRun: internal('driveRun'),
    performEffect: internal('performEffect'),
    activeMsAt: internal('activeMsAt'),
  };
}

/** Where a function is declared. */
export interface Declaration {
  /** Relative to the folder of the sources. */
  readonly file: string;
  readonly name: string;
  readonly exported: boolean;
}

/**
 * Finds a function by its name, so that tests do not depend on the file that declares it. The address is the name alone
 * if only one file declares such a function, and `file:name` otherwise (`run:start` is `start` in run.ts).
 */
export function declarationOf(address: string): Declaration {
  const [name, stem] = address.split(':').reverse() as [string, string?];
  const declaration = new RegExp(String.raw`^(export )?(async )?function ${name}\b`, 'gm');
  const found = [...sources()].flatMap(([file, text]) => {
    if (stem !== undefined && path.basename(file, '.ts') !== stem) return [];
    return Array.from(text.matchAll(declaration), ([, exported]) => ({ file, name, exported: exported !== undefined }));
  });
  if (found.length === 1) return found[0]!;
  const places = found.map(({ file }) => file).join(', ') || 'none';
  throw new Error(
    `"${address}" must be the address of exactly one function of packages/core/src. Declarations found: ${places}. ` +
      'If the function was renamed, rename it in the tests too; if several functions have this name, use "file:name".',
  );
}

let cached: ReadonlyMap<string, string> | undefined;

/** The text of every source file of the core, by its path; without the tests. */
export function sources(): ReadonlyMap<string, string> {
  cached ??= new Map(
    globSync('**/*.ts', { cwd: SOURCES })
      .filter((file) => !file.endsWith('.test.ts'))
      .map((file) => [file, readFileSync(path.join(SOURCES, file), 'utf8')]),
  );
  return cached;
}
