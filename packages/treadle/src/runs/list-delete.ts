import type { HeldProcess, RunStore, RunSummary } from '@treadle/core';
import type { Store } from '@treadle/store';
import { CommandError, EXIT, type Command } from '../command-line/command.ts';
import { FACT_FLAGS, factsOf, type FactValues } from '../command-line/flags.ts';
import { loadStorePackage } from '../config/store.ts';
import type { Colours } from '../terminal/colours.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, oneLine } from '../terminal/printable.ts';
import { confirmOnTerminal } from '../terminal/prompt.ts';
import { ageText, parseAge, plural } from '../terminal/quantities.ts';
import { stateAfter } from './journal.ts';
import { descendantsOf, displayStatus, findRun, isChild, readRun, runsCommand, shortId } from './store-access.ts';
import type { DisplayStatus } from './store-access.ts';

const DEFAULT_LIMIT = 20;
const MAX_MODEL_WIDTH = 18;
const MIN_TITLE_WIDTH = 12;

const STATUS_TONES = {
  running: 'bold',
  interrupted: 'bold',
  paused: 'bold',
  completed: 'plain',
  exhausted: 'red',
  failed: 'red',
  cancelled: 'dim',
} as const satisfies Record<DisplayStatus, keyof Colours>;

const STATUSES = Object.keys(STATUS_TONES) as readonly DisplayStatus[];

type ListedRun = RunSummary & { readonly standing: DisplayStatus };

export const listCommand: Command = runsCommand('list', {
  summary: 'List runs, newest first',
  flags: {
    status: { type: 'choice', choices: STATUSES, value: 'STATUS', many: true, help: `One of ${STATUSES.join(', ')}` },
    ...FACT_FLAGS,
    recovered: { type: 'switch', help: 'Only runs that were taken over from a process that died' },
    limit: { type: 'count', value: 'N', min: 1, help: `List at most N runs; default: ${DEFAULT_LIMIT}` },
    json: { type: 'switch', help: 'Print JSON' },
  },
  details:
    'An interrupted run has not ended, and no process drives it. AGE is the time since the run was started. The id of a\n' +
    'child run is the id of its parent followed by the call that started it. A run is recovered if a process that drove it\n' +
    'died, and another process took it over or freed it.',
  examples: [
    'treadle runs list --status interrupted --status paused',
    'treadle runs list --session nightly --label team=sales',
    `treadle runs list --json --limit 1000 | jq '.[] | select(.model == "demo") | .runId'`,
  ],
  emptyStore: ({ json }) => (json ? ['[]'] : []),
  async run({ values, store, io, colours, print, note }) {
    const limit = values.limit ?? DEFAULT_LIMIT;
    // One more than the limit shows whether there are more.
    const found = await listRuns(store, values, limit + 1);
    const runs = found.slice(0, limit);
    if (values.json) return print(JSON.stringify(runs, null, 2));
    if (runs.length === 0) note(nothingListed(values));
    else print(runTable(runs, colours, io.stdout.isTTY ? (io.stdout.columns ?? 80) : Infinity));
    if (found.length > limit) note(`There are more runs: --limit ${limit * 5}`);
  },
});

interface Wanted extends FactValues {
  readonly status?: readonly DisplayStatus[];
  readonly recovered?: boolean;
}

function nothingListed({ status, recovered, session, task, label }: Wanted): string {
  if (session !== undefined || task !== undefined || label) return 'There are no such runs.';
  if (recovered) return `There are no recovered runs${status ? ' with this status' : ''}.`;
  return status ? 'There are no runs with this status.' : 'There are no runs yet.';
}

/** The store has no status `interrupted`: such runs are among those with the status `running`. */
export async function listRuns(
  store: RunStore,
  { status: wanted, recovered, ...facts }: Wanted,
  limit: number,
): Promise<readonly ListedRun[]> {
  const status = wanted && [...new Set(wanted.map((one) => (one === 'interrupted' ? 'running' : one)))];
  const only = { ...(status && { status }), ...(recovered && { recovered }), ...factsOf(facts) };
  const filter = { ...only, limit: status?.includes('running') ? Infinity : limit };
  const listed = (await store.list(filter)).map(async (run) => ({ ...run, standing: await displayStatus(store, run) }));
  const found = await Promise.all(listed);
  return found.filter(({ standing }) => !wanted || wanted.includes(standing)).slice(0, limit);
}

export function runTable(runs: readonly ListedRun[], colours: Colours, width: number): readonly string[] {
  const cells = runs.map(({ runId, standing, startedAt, entries, model }) => {
    const age = ageText(Date.now() - startedAt);
    return [shortId(runId), standing, age, String(entries), oneLine(model, MAX_MODEL_WIDTH)];
  });
  const [headings, ...rows] = alignColumns([['ID', 'STATUS', 'AGE', 'ENTRIES', 'MODEL'], ...cells], { right: 3 });
  const titleWidth = Math.max(MIN_TITLE_WIDTH, width - headings!.join('  ').length - 2);
  return [
    colours.dim([...headings!, 'TITLE'].join('  ')),
    ...rows.map(([id, status, ...rest], index) => {
      const run = runs[index]!;
      const fork = run.parent !== undefined && !isChild(run) ? `(fork of ${shortId(run.parent)}) ` : '';
      const title = oneLine(fork + recoveryMark(run) + run.title, titleWidth);
      return [id, colours[STATUS_TONES[run.standing]](status!), ...rest, title].join('  ').trimEnd();
    }),
  ];
}

function recoveryMark({ recovered }: RunSummary): string {
  if (!recovered) return '';
  return recovered.times === 1 ? '(recovered) ' : `(recovered ${recovered.times} times) `;
}

export const deleteCommand: Command = runsCommand('delete ID…', {
  summary: 'Delete runs with all their data',
  flags: { yes: { type: 'switch', short: 'y', help: 'Do not ask for confirmation' } },
  details:
    'Also deletes child runs and the server response of the run, but not its forks. Processes that an interrupted run has\n' +
    'left behind are killed. If the run or one of its child runs is running, none of them is deleted.',
  examples: ['treadle runs delete 1a2b', 'treadle runs delete 1a2b 3c4d --yes'],
  async run({ values, args, store, io, note }) {
    const runs = new Map<string, RunSummary>();
    for (const prefix of args) {
      const run = await findRun(store, prefix);
      runs.set(run.runId, run);
    }
    const confirmed = values.yes || (await confirmDelete([...runs.values()], io));
    let count = 0;
    if (confirmed) {
      for (const runId of runs.keys()) {
        const family = [runs.get(runId)!, ...(await descendantsOf(store, runId))];
        const left = (await Promise.all(family.map((one) => leftProcesses(store, one)))).flat();
        if (await store.delete(runId)) count += family.length;
        for (const process of left) await (await loadStorePackage()).killProcess(process);
      }
    }
    note(confirmed ? `Deleted ${plural(count, 'run')}.` : 'Nothing was deleted.');
    return confirmed ? EXIT.completed : EXIT.failed;
  },
});

/** Processes that tools of an unfinished run have started. Nobody can find them without its journal. */
async function leftProcesses(store: RunStore, { runId, status }: RunSummary): Promise<readonly HeldProcess[]> {
  if (status !== 'running' && status !== 'paused') return [];
  try {
    const { resources = [] } = await stateAfter(await readRun(store, runId));
    return resources.filter((one) => one.runId === runId).map(({ process }) => process);
  } catch {
    // A run that cannot be read can be deleted.
    return [];
  }
}

async function confirmDelete(runs: readonly RunSummary[], io: Io): Promise<boolean> {
  const lines = runs.map(({ runId, status, title }) => `  ${shortId(runId)}  ${status}  ${oneLine(title, 60)}`);
  return confirmOnTerminal(io, lines, `Delete ${runs.length === 1 ? 'it' : 'them'}?`);
}

export const pruneCommand: Command = runsCommand('prune', {
  summary: 'Delete old runs that have ended',
  flags: {
    'older-than': { type: 'text', value: 'AGE', help: 'Time since the last entry, such as 30d, 12h or 2w; required' },
    'dry-run': { type: 'switch', help: 'Only list what would be deleted' },
  },
  details: 'Keeps runs that are running, interrupted or paused, and runs that server responses need to be continued.',
  examples: ['treadle runs prune --older-than 30d --dry-run', 'treadle runs prune --older-than 30d'],
  async run({ values, store, print, note }) {
    const before = Date.now() - parseMinimumAge(values['older-than']);
    if (!values['dry-run']) return note(`Deleted ${plural(await store.prune(before), 'run')}.`);
    let count = 0;
    for (const { runId, status, updatedAt, title } of await prunableRuns(store, before)) {
      count++;
      const age = ageText(Date.now() - updatedAt);
      print(`${shortId(runId)}  ${status.padEnd(9)}  ${age.padEnd(6)}  ${oneLine(title, 60)}`);
    }
    note(`${plural(count, 'run')} would be deleted.`);
  },
});

/** The runs that `prune` would delete. */
async function prunableRuns(store: Store, before: number): Promise<readonly RunSummary[]> {
  const all = await store.list({ limit: Infinity });
  const byId = new Map(all.map((run) => [run.runId, run]));
  const callerOf = (run: RunSummary): RunSummary | undefined => (isChild(run) ? byId.get(run.parent!) : undefined);
  const isOpen = ({ status }: RunSummary): boolean => status === 'running' || status === 'paused';
  const kept = new Set<RunSummary>();
  for (const run of all) {
    const { runId, updatedAt } = run;
    const caller = callerOf(run);
    const isOld = !isOpen(run) && updatedAt < before && !(await store.isDriven(runId));
    if (isOld && !(await store.requests.hasRun(runId)) && !(caller && isOpen(caller))) continue;
    // A run is deleted only together with its child runs.
    for (let one: RunSummary | undefined = run; one && !kept.has(one); one = callerOf(one)) kept.add(one);
  }
  return all.filter((run) => !kept.has(run));
}

function parseMinimumAge(text: string | undefined): number {
  const age = parseAge(text ?? '');
  if (age !== undefined) return age;
  const problem = text === undefined ? '--older-than is missing' : `--older-than cannot be ${JSON.stringify(text)}`;
  throw new CommandError(`${problem}. It takes a number with s, m, h, d or w, such as 30d.`);
}
