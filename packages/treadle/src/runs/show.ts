import {
  messagesOf,
  outstanding,
  waiting,
  type JournalEntry,
  type RunStore,
  type RunSummary,
  type State,
} from '@treadle/core';
import { againThere, PLACE_FLAGS, type PlaceValues } from '../command-line/flags.ts';
import { coloursFor, type Colours } from '../terminal/colours.ts';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { answerFlags } from '../run/run-and-report.ts';
import { workText } from '../run/outcome-text.ts';
import { ageText, durationText, momentText, usageText } from '../terminal/quantities.ts';
import { momentsOf } from './moments.ts';
import { foreignCode } from './go-on.ts';
import { isChild, shortId } from './run-id.ts';
import { standingOf, type Standing } from './run-standing.ts';
import { stateText } from './state-text.ts';
import { readRun, stateOf, type StoredRun } from './stored-run.ts';
import { timeline } from './timeline.ts';
import { withStore } from './with-store.ts';

export const showCommand: Command = command({
  name: 'runs show',
  summary: 'Show a run as a timeline, or how it stood at one moment',
  arguments: ['ID'],
  flags: {
    at: {
      type: 'count',
      value: 'N',
      min: 0,
      help: 'How it stood after entry N: phase, what was under way, conversation',
    },
    full: { type: 'switch', help: 'Whole texts, instructions and earlier messages; default: a line for each' },
    json: { type: 'switch', help: 'Print JSON: the summary and every entry; with --at the state' },
    ...PLACE_FLAGS,
  },
  notes: [
    'The beginning of an id is enough, as long as it is that of one run. The numbers on the left are those of the entries,\n' +
      'which --at and "treadle runs fork --at" take. All of a run is shown, also what was compacted since.',
  ],
  run: ({ values, arguments: [given] }, io) =>
    withStore(values, io, async (store) => {
      const run = await readRun(store, given!);
      const look = {
        colours: coloursFor(io.stdout, io.env),
        width: io.stdout.columns ?? 120,
        full: values.full === true,
      };
      const print = (lines: readonly string[]): void => void io.stdout.write(`${lines.join('\n')}\n`);
      if (values.at !== undefined) {
        const state = stateOf(run, countOf(run, values.at) + 1);
        if (values.json) print([JSON.stringify(stateJson(state, run.entries[values.at]!), null, 2)]);
        else print([atText(run, values.at), ...stateText(state, look)]);
        return EXIT.completed;
      }
      const standing = await standingOf(store, run.summary);
      const related = await store.list({ parent: run.summary.runId, limit: Infinity });
      if (values.json) {
        print([JSON.stringify(runJson(run, standing, related), null, 2)]);
        return EXIT.completed;
      }
      const children = new Set(related.filter(isChild).map(({ runId }) => runId));
      const moments = momentsOf(run.entries);
      print([
        ...(await heading(store, {
          run,
          standing,
          related,
          state: moments.at(-1)?.states?.after,
          colours: look.colours,
        })),
        '',
        ...timeline(moments, { ...look, children }),
        ...steps(run, standing, moments.at(-1)?.states?.after, values),
      ]);
      return EXIT.completed;
    }),
});

function countOf({ summary: { runId }, entries }: StoredRun, at: number): number {
  if (at < entries.length) return at;
  throw new CommandError(`Run ${shortId(runId)} has the entries 0 to ${entries.length - 1}, and not ${at}.`);
}

function atText({ summary: { runId }, entries }: StoredRun, at: number): string {
  const { event } = entries[at]!;
  const effect = 'effect' in event && event.effect !== undefined ? ` ${event.effect}` : '';
  return `${shortId(runId)} after entry ${at} of 0 to ${entries.length - 1}, ${momentText(event.at)}\n\nevent      ${event.type}${effect}`;
}

async function heading(
  store: RunStore,
  about: {
    readonly run: StoredRun;
    readonly standing: Standing;
    readonly related: readonly RunSummary[];
    readonly state: State | undefined;
    readonly colours: Colours;
  },
): Promise<readonly string[]> {
  const { run, standing, related, state, colours } = about;
  const { runId, model, startedAt, updatedAt } = run.summary;
  const rows: [name: string, value: string][] = [
    ['model', state?.model ?? model],
    ['started', `${momentText(startedAt)}, ${ageText(Date.now() - startedAt)} ago`],
  ];
  if (state) {
    const cost = state.usage.cost === undefined ? ', cost not known' : '';
    rows.push(['used', `${workText({ turns: state.turn, calls: state.calls })}; ${usageText(state.usage)}${cost}`]);
    rows.push(['worked', `${durationText(state.activeMs)} of ${durationText(updatedAt - startedAt)}`]);
  }
  const first = run.entries[0]?.event;
  const origin = first?.type === 'run-started' ? first.parent : undefined;
  if (origin?.seq !== undefined) rows.push(['fork of', `${shortId(origin.runId)}, after its entry ${origin.seq}`]);
  else if (origin) rows.push(['works for', `${shortId(origin.runId)}, call ${origin.effect}`]);
  for (const one of related) {
    rows.push([isChild(one) ? 'child' : 'fork', `${shortId(one.runId)}, ${await standingOf(store, one)}`]);
  }
  return [
    `${colours.bold(runId)}  ${standing}`,
    ...rows.map(([name, value]) => `  ${colours.dim(name.padEnd(9))}  ${value}`),
  ];
}

/** What can be done with it. */
function steps(run: StoredRun, standing: Standing, state: State | undefined, values: PlaceValues): readonly string[] {
  const id = shortId(run.summary.runId);
  const canRetry = state?.phase.type === 'ended' && state.phase.effect !== undefined;
  if (isChild(run.summary) || !(standing === 'interrupted' || standing === 'paused' || canRetry)) return [];
  const foreign = state && foreignCode(state);
  if (foreign !== undefined) return ['', `It ${foreign}. Go on with it in that program.`];
  const waits = state ? waiting(state) : [];
  return ['', `Go on with: ${againThere(['runs', 'resume', id, ...waits.flatMap(answerFlags)], values)}`];
}

function runJson(run: StoredRun, standing: Standing, related: readonly RunSummary[]): object {
  const state = momentsOf(run.entries).at(-1)?.states?.after;
  return {
    ...run.summary,
    standing,
    ...(state && {
      ...(state.phase.type === 'ended' && { outcome: state.phase.outcome }),
      waiting: waiting(state),
      usage: state.usage,
      turns: state.turn,
      calls: state.calls,
      durationMs: state.activeMs,
    }),
    children: related.filter(isChild).map(({ runId }) => runId),
    forks: related.filter((one) => !isChild(one)).map(({ runId }) => runId),
    entries: run.entries,
  };
}

function stateJson(state: State, { seq }: JournalEntry): object {
  const { history, ...rest } = state;
  const underWay = outstanding(state).map(({ id, type }) => ({ id, type }));
  return { seq, ...rest, outstanding: underWay, waiting: waiting(state), messages: messagesOf(history) };
}
