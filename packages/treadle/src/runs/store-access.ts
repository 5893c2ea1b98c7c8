import { existsSync } from 'node:fs';
import { childRuns, type JournalEntry, type RunStatus, type RunStore, type RunSummary } from '@treadle/core';
import { shortId } from '@treadle/core/describe';
import type { Store } from '@treadle/store';
import { CommandError, defineCommand, EXIT, type Command, type Flags, type Values } from '../command-line/command.ts';
import { LOCATION_FLAGS, type LocationValues } from '../command-line/flags.ts';
import { nearest } from '@treadle/core/nearest';
import { resolveContext, type CommandContext } from '../config/context.ts';
import { missingStoreText, openExistingStore } from '../config/store.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { oneLine } from '../terminal/printable.ts';

export { shortId };

/** What a subcommand of `treadle runs` works with. */
export interface RunsRequest<V = object> {
  readonly values: V & LocationValues;
  readonly args: readonly string[];
  readonly store: Store;
  readonly context: CommandContext;
  readonly io: Io;
  /** For standard output. */
  readonly colours: Colours;
  /** Writes lines to standard output. Pass long lists as arrays: the number of arguments of a function is limited. */
  print(...lines: Lines): void;
  /** Writes a line to standard error. */
  note(text: string): void;
}

interface RunsDefinition<F extends Flags> {
  readonly summary: string;
  readonly flags?: F;
  /** Text below the flags in the help. */
  readonly details: string;
  readonly examples: Command['examples'];
  /** What to print if there is no store yet. Without it, a missing store is an error. */
  readonly emptyStore?: (values: Values<F>) => readonly string[];
  /** Returns the exit code; nothing means success. */
  readonly run: (request: RunsRequest<Values<F>>) => Promise<number | void>;
}

/** A subcommand of `treadle runs`, such as `show ID`. */
export function runsCommand<const F extends Flags>(usage: string, definition: RunsDefinition<F>): Command {
  return storedCommand(usage, definition, 'runs');
}

/** A command about what is stored, such as `trace RUN`. Opens the store for `run`, and closes it afterwards. */
export function storedCommand<const F extends Flags>(
  usage: string,
  definition: RunsDefinition<F>,
  group?: string,
): Command {
  const [name, ...positionals] = usage.split(' ');
  const { summary, flags, details, examples, emptyStore } = definition;
  return defineCommand<Flags>({
    name: group === undefined ? name! : `${group} ${name}`,
    summary,
    arguments: positionals,
    flags: { ...flags, ...LOCATION_FLAGS },
    notes: [details],
    examples,
    async run({ values: parsed, arguments: args }, io) {
      const values = parsed as Values<F> & LocationValues;
      const note = (text: string): void => void io.stderr.write(`${text}\n`);
      const context = await resolveContext(values, io);
      if (emptyStore && context.store.type === 'sqlite' && !existsSync(context.store.file)) {
        io.stdout.write(textOf(emptyStore(values)));
        note(missingStoreText(context.store.file));
        return EXIT.completed;
      }
      const store = await openExistingStore(context.store);
      const print = (...lines: Lines): void => void io.stdout.write(textOf(lines));
      try {
        const colours = coloursFor(io.stdout, io.env);
        return (await definition.run({ values, args, store, context, io, colours, print, note })) ?? EXIT.completed;
      } finally {
        await store.close();
      }
    },
  });
}

type Lines = readonly (string | readonly string[])[];

function textOf(lines: Lines): string {
  return lines
    .flat()
    .map((one) => `${one}\n`)
    .join('');
}

/** A run as the store has it. */
export interface StoredRun {
  readonly summary: RunSummary;
  readonly entries: readonly JournalEntry[];
}

/** `interrupted`: the run has not ended, and no process drives it. */
export type DisplayStatus = RunStatus | 'interrupted';

export async function displayStatus(store: RunStore, { runId, status }: RunSummary): Promise<DisplayStatus> {
  return status === 'running' && !(await store.isDriven(runId)) ? 'interrupted' : status;
}

/**
 * Whether its name says that a call of another run started it. Forks also have a parent, but an id of their own. Use it
 * only for display: the first entry of a run is what decides.
 */
export function isChild({ runId, parent }: Pick<RunSummary, 'runId' | 'parent'>): boolean {
  if (parent === undefined || !runId.startsWith(`${parent}.`)) return false;
  return /^t\d+\.tool\.\d+$/.test(runId.slice(parent.length + 1));
}

/** The child runs of a run at every depth, each after its parent. */
export async function descendantsOf(store: RunStore, runId: string): Promise<readonly RunSummary[]> {
  const descendants = new Map<string, RunSummary>();
  const known = new Set([runId]);
  // The loop also visits the runs that it adds.
  for (const caller of known) {
    for (const child of await childRuns(store, caller)) {
      if (child.runId !== runId) descendants.set(child.runId, child);
      known.add(child.runId);
    }
  }
  return [...descendants.values()];
}

export async function readRun(store: RunStore, prefix: string): Promise<StoredRun> {
  const summary = await findRun(store, prefix);
  return { summary, entries: await store.read(summary.runId) };
}

/** Finds a run by its id or the beginning of it. Throws if no run matches, or more than one. */
export async function findRun(store: RunStore, prefix: string): Promise<RunSummary> {
  const all = await store.list({ limit: Infinity });
  const exact = all.find(({ runId }) => runId === prefix);
  if (exact) return exact;
  // Every id begins with an empty text. The short id of a child run is no beginning of its id.
  const names = ({ runId }: RunSummary): readonly string[] => [runId, shortId(runId)];
  const begins = (name: string): boolean => name.startsWith(prefix) || name.startsWith(`run_${prefix}`);
  const shown = all.filter((run) => [prefix, `run_${prefix}`].includes(shortId(run.runId)));
  if (shown.length === 1) return shown[0]!;
  const matches = prefix === '' ? [] : all.filter((run) => names(run).some(begins));
  if (matches.length === 0) throw new CommandError(unknownRun(prefix, all));
  // The ids of child runs begin with the id of their parent, which is then the shortest match.
  const shortest = matches.reduce((a, b) => (a.runId.length <= b.runId.length ? a : b));
  if (matches.every((run) => run === shortest || run.runId.startsWith(`${shortest.runId}.`))) return shortest;
  throw new CommandError(ambiguousRun(prefix, matches));
}

function unknownRun(prefix: string, all: readonly RunSummary[]): string {
  const ids = new Map(all.map(({ runId }) => [runId.slice(0, Math.max(prefix.length, shortId(runId).length)), runId]));
  const meant = nearest(prefix, ids.keys());
  const suggestion = meant === undefined ? '' : ` Did you mean ${shortId(ids.get(meant)!)}?`;
  return `There is no run ${JSON.stringify(prefix)}.${suggestion} "treadle runs list" lists the runs.`;
}

const MAX_LISTED = 5;

function ambiguousRun(prefix: string, matches: readonly RunSummary[]): string {
  const lines = matches.slice(0, MAX_LISTED).map(({ runId, title }) => `\n  ${runId}  ${oneLine(title, 60)}`);
  const more = matches.length > MAX_LISTED ? `\n  and ${matches.length - MAX_LISTED} more` : '';
  return `${JSON.stringify(prefix)} matches ${matches.length} runs. Give more of the id:${lines.join('')}${more}`;
}
