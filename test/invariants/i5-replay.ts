import type { Event, JournalEntry, Snapshot, State } from '@treadle/core';
import type { Core } from './core.ts';
import { turnOf } from './answers.ts';
import { drive } from './drive.ts';
import type { LiveTrace } from './live.ts';
import { demand, messagesOf, same } from './trace.ts';
import type { World } from './world.ts';

type Journaled = Pick<Core, 'NEW' | 'step' | 'replay' | 'entryOf' | 'snapshotOf' | 'restored'>;

/** I5: replaying any prefix of the journal, or the rest after a snapshot, gives the state that was live at that point. */
export function checkReplay(core: Journaled, world: World): void {
  const { NEW, step, replay } = core;
  const live: string[] = [];
  const { moments } = drive(core, world, { watch: (state) => live.push(viewOf(state)) });
  const taken = moments.filter((moment) => moment.taken);
  const entries = taken.map(({ event, effects, after }, seq) => core.entryOf(seq, event, { state: after, effects }));
  const stored = JSON.parse(JSON.stringify(entries)) as JournalEntry[];

  let state = NEW;
  for (const [seq, { after, before, event }] of taken.entries()) {
    // A branch is the same wherever it begins, and leaves the trunk alone.
    const branch = (from: State): string => viewOf(otherwise(event).reduce((at, other) => step(at, other).state, from));
    demand(
      branch(before) === branch(state),
      () => `at entry ${seq} a branch of the live state is another than one of the replayed`,
    );
    state = step(state, stored[seq]!.event).state;
    demand(viewOf(state) === live[seq], () => `replayed to entry ${seq} the state is another than it was`);
    const view = viewOf(after);
    demand(view === live[seq], () => `the state of entry ${seq} has changed since`);
    checkSnapshot(core, { state: after, view, seq, next: stored[seq + 1] });
  }
  for (let length = 1; length <= entries.length; length += 1 + (entries.length >> 2)) {
    const replayed = replay(stored.slice(0, length));
    demand(replayed.type === 'replayed', () => `replay of ${length} entries diverged: ${JSON.stringify(replayed)}`);
    demand(viewOf(replayed.state) === live[length - 1], () => `replay of ${length} entries gives another state`);
  }
}

interface Snapshotted {
  readonly state: State;
  readonly view: string;
  readonly seq: number;
  /** The entry after it. */
  readonly next: JournalEntry | undefined;
}

/** What was kept of a state is that state, and goes on as it does. */
function checkSnapshot(core: Journaled, { state, view, seq, next }: Snapshotted): void {
  const stored = JSON.parse(JSON.stringify(core.snapshotOf(state, seq + 1))) as Snapshot;
  const restored = core.restored(stored);
  demand(stored.seq === seq + 1 && restored !== undefined, () => `the snapshot after entry ${seq} is of no use`);
  demand(viewOf(restored) === view, () => `the snapshot after entry ${seq} gives another state`);
  if (!next) return;
  const replayed = core.replay([next], { state: restored, seq: seq + 1 });
  demand(replayed.type === 'replayed', () => `after the snapshot of ${seq}, ${JSON.stringify(replayed)}`);
}

/** Something else that could have happened: it goes into the history, and then the model says what it said. */
function otherwise(event: Event): readonly Event[] {
  if (event.type !== 'model-replied') return [{ type: 'cancel-requested', at: event.at }];
  const next = `t${turnOf(event.effect) + 1}.model.0`;
  const call = { type: 'tool-call', id: 'other', name: 'nothing', arguments: '{}' } as const;
  return [
    { ...event, content: [call] },
    { ...event, effect: next },
  ];
}

/** A state as it would be stored: its history as messages. */
function viewOf(state: State): string {
  return JSON.stringify({ ...state, history: messagesOf(state), digest: state.history.rolling });
}

/** The same of a run in the real shell: its journal gives the result that it gave. */
export function checkLiveReplay({ replay }: Pick<Core, 'replay'>, { entries, result }: LiveTrace): void {
  const stride = 1 + (entries.length >> 4);
  for (let length = entries.length; length > 0; length -= stride) {
    const replayed = replay(entries.slice(0, length));
    demand(replayed.type === 'replayed', () => `${length} entries do not replay: ${JSON.stringify(replayed)}`);
    if (length < entries.length) continue;
    const { phase, history, usage, turn, calls, activeMs, agent } = replayed.state;
    const again = [
      phase.type === 'ended' ? phase.outcome : undefined,
      messagesOf({ history }),
      usage,
      turn,
      calls,
      activeMs,
      farIn(agent),
    ];
    const { outcome, messages, turns, durationMs } = result ?? {};
    const gave = [outcome, messages, result?.usage, turns, result?.calls, durationMs, farIn(result?.agent)];
    demand(same(again, gave), () => `the run gave ${JSON.stringify(gave)}, and its journal ${JSON.stringify(again)}`);
  }
}

/** How far a typed agent is, whatever the order in which it is written down. */
function farIn(agent: State['agent']): readonly unknown[] | undefined {
  return agent && [agent.attempt, agent.from, agent.proposal, agent.memory, agent.rejection];
}
