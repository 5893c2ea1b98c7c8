import type { ResultBlock } from '../messages.ts';
import type { Limits } from '../machine/rules.ts';
import type { State } from '../machine/state.ts';
import type { Clock } from '../platform.ts';
import type { Tool } from '../tools/tool.ts';
import type { Journal, JournalEntry } from './port.ts';

export interface ForkOptions {
  readonly journal: Journal;
  readonly runId: string;
  /** The last entry that both runs share. */
  readonly at: number;
  readonly changes?: ForkChanges;
  /** The id of the fork. */
  readonly newRunId?: string;
  /** Tells when the fork is made. */
  readonly clock?: Clock;
}

/** What is different in the fork. */
export interface ForkChanges {
  /** The id of the model that the fork uses. The model itself is passed when the fork is resumed. */
  readonly model?: string;
  readonly instructions?: string;
  /** All tools of the fork. A name is that of a tool which the run has at the fork point. */
  readonly tools?: readonly (Tool | string)[];
  /** The text of the last message of a user up to the fork point. */
  readonly input?: string;
  /** In place of the same limits of the original, from its beginning on. `turns`: `maxTurns`. */
  readonly limits?: Limits & { readonly turns?: number };
  /** Replacements for results of calls before the fork point, by effect. */
  readonly results?: Readonly<Record<string, string | readonly ResultBlock[]>>;
  /** In place of what the original was started with: `definition` of the options of a run. Plain JSON. */
  readonly definition?: unknown;
  /** The definition of the program that the fork uses: `program` of its model. It has to ask for the calls that the fork shares. */
  readonly program?: unknown;
}

/**
 * Creates a run with the same first entries as another, and returns its id; resume it with `runLoop({ runId, journal, … })`.
 * Results of effects that were outstanding at the fork point and settled later are copied, and those of the other calls of
 * that turn, so that nothing runs twice; except model replies, if a change makes them obsolete.
 */
export async function forkRun(options: ForkOptions): Promise<string> {
  // Loaded when it is first used: most programs fork nothing.
  const { makeFork } = await import('./make-fork.ts');
  return makeFork(options);
}

/** A fork that was not made. */
export interface PlannedFork {
  readonly entries: readonly JournalEntry[];
  /** The state after them: its outstanding effects are performed when the fork is resumed. */
  readonly state: State;
  /** The `seq` of the later entries of the original that the fork takes over. */
  readonly copied: readonly number[];
}

/** What `forkRun` would create with these options. Stores nothing, and rejects in the same cases. */
export async function planFork(options: Omit<ForkOptions, 'newRunId'>): Promise<PlannedFork> {
  const { forkedEntries } = await import('./make-fork.ts');
  return forkedEntries(options);
}
