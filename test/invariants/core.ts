import { createRequire } from 'node:module';
import path from 'node:path';
import type * as core from '@treadle/core';
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

/** What is tested: the loop as it is, or a mutant of it. */
export type Core = typeof core & Inner;

/** The inner parts that are needed: they make a journal without a shell, and run a typed agent by whatever rules. */
interface Inner {
  readonly entryOf: (seq: number, event: Event, next: Next) => JournalEntry;
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restored: (snapshot: Snapshot) => State | undefined;
  readonly start: (
    options: LoopOptions | ContinueOptions,
    listener: (item: Item) => void,
    agent: AgentCode,
  ) => Omit<LiveRun, typeof Symbol.asyncIterator>;
}

/** The code of a typed agent. */
export interface AgentCode {
  readonly rules: AgentRules;
  readonly check: (text: string, attempt: number, signal: AbortSignal) => Promise<Verdict>;
}

type Verdict = Extract<Event, { type: 'output-checked' }>['result'];

export const SOURCES: string = path.resolve(import.meta.dirname, '../../packages/core/src');

const require = createRequire(import.meta.url);

/** Loads the loop from a folder of sources: by Node itself, which takes a tenth of the time that Vitest does. */
export function loadCore(folder: string = SOURCES): Core {
  const load = <T>(file: string): T => require(path.join(folder, file)) as T;
  const { entryOf } = load<Inner>('journal/replay.ts');
  const { snapshotOf, restoredState: restored } = load<{
    snapshotOf: Inner['snapshotOf'];
    restoredState: Inner['restored'];
  }>('journal/snapshot.ts');
  const { driveRun: start } = load<{ driveRun: Inner['start'] }>('driver/run.ts');
  return { ...load<typeof core>('index.ts'), entryOf, snapshotOf, restored, start };
}
