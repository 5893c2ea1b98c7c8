import type { Event, JournalEntry, Snapshot, State } from '@treadle/core';
import type { Core } from './core.ts';
import { turnOf } from './answers.ts';
import { drive } from './drive.ts';
import type { LiveTrace } from './live.ts';
import { ensure, messagesOf, same } from './trace.ts';
import type { World } from './world.ts';

type Journaled = Pick<Core, 'NEW' | 'step' | 'replay' | 'entryOf' | 'snapshotOf' | 'restoredState'>;

/** I5: replaying any prefix of the journal, or the rest after a snapshot, gives the state that was live at that point. */
export function checkReplay(core: Journaled, world: World): void {
  const { NEW, step, replay } = core;
  const live: string[] = [];
  const { moments } = drive(core, world, { watch: (state) => live.push(viewOf(state)) });
  const applied = moments.filter((moment) => moment.applied);
  const entries = applied.map(({ event, effects, after }, seq) => core.entryOf(seq, event, { state: after, effects }));
  const stored = JSON.parse(JSON.stringify(entries)) as JournalEntry[];

  let state = NEW;
  for (const [seq, { after, before, event }] of applied.entries()) {
    // A branch of the live state equals one of the replayed state, and does not change the trunk.
    const branch = (from: State): string =>
      viewOf(alternative(event).reduce((at, other) => step(at, other).state, from));
    ensure(
      branch(before) === branch(state),
      () => `at entry ${seq} a branch of the live state differs from one of the replayed state`,
    );
    state = step(state, stored[seq]!.event).state;
    ensure(viewOf(state) === live[seq], () => `the state that is replayed to entry ${seq} differs from the live state`);
    const view = viewOf(after);
    ensure(view === live[seq], () => `the state of entry ${seq} has changed since`);
    checkSnapshot(core, { state: after, view, seq, next: stored[seq + 1] });
  }
  checkPinned(core, stored);
  for (let length = 1; length <= entries.length; length += 1 + (entries.length >> 2)) {
    const replayed = replay(stored.slice(0, length));
    ensure(replayed.type === 'replayed', () => `the replay of ${length} entries diverged: ${JSON.stringify(replayed)}`);
    ensure(
      viewOf(replayed.state) === live[length - 1],
      () => `the replay of ${length} entries gives a different state`,
    );
  }
}

/** Any change of what the start of the run pins is found at its entry. */
function checkPinned({ replay }: Journaled, [first, ...rest]: readonly JournalEntry[]): void {
  if (first?.event.type !== 'run-started') return;
  const { event } = first;
  const changes: readonly Partial<typeof event>[] = [
    { instructions: `${event.instructions ?? ''}!` },
    { model: `${event.model}!` },
    { settings: { ...event.settings, seed: 4_711 } },
    { principal: { subject: 'other', tenant: 'other', scopes: [] } },
    { rules: { ...event.rules, limits: { ...event.rules.limits, durationMs: 1e12 } } },
    { memory: { other: 1 } },
    { narrow: { tools: ['other'] } },
    { exposure: { private: { what: 'other' } } },
    { grants: [{ tool: 'other', touches: [], definition: '', by: [] }] },
    { session: `${event.session ?? ''}!` },
    { task: `${event.task ?? ''}!` },
    { trace: `${event.trace ?? ''}!` },
    { labels: { ...event.labels, other: '!' } },
    { tools: event.tools.map((facts) => ({ ...facts, description: `${facts.description}!` })) },
    { policy: { level: 4_711 } },
    { program: { version: 4_711 } },
  ];
  for (const change of changes) {
    const changed = { ...event, ...change };
    if (same(changed, event)) continue;
    const replayed = replay([{ ...first, event: changed }, ...rest]);
    ensure(
      replayed.type === 'diverged' && replayed.seq === 0,
      () => `the replay did not find another ${Object.keys(change).join()}`,
    );
  }
}

interface Snapshotted {
  readonly state: State;
  readonly view: string;
  readonly seq: number;
  /** The entry after it. */
  readonly next: JournalEntry | undefined;
}

/** A restored snapshot equals its state, and continues in the same way. */
function checkSnapshot(core: Journaled, { state, view, seq, next }: Snapshotted): void {
  const stored = JSON.parse(JSON.stringify(core.snapshotOf(state, seq + 1))) as Snapshot;
  const restored = core.restoredState(stored);
  ensure(stored.seq === seq + 1 && restored !== undefined, () => `the snapshot after entry ${seq} cannot be restored`);
  ensure(viewOf(restored) === view, () => `the snapshot after entry ${seq} gives a different state`);
  if (!next) return;
  const replayed = core.replay([next], { state: restored, seq: seq + 1 });
  ensure(
    replayed.type === 'replayed',
    () => `replay from the snapshot after entry ${seq}: ${JSON.stringify(replayed)}`,
  );
}

/** Other events that could have happened: another reply with a call, and then the original one. */
function alternative(event: Event): readonly Event[] {
  if (event.type !== 'model-replied') return [{ type: 'cancel-requested', at: event.at }];
  const next = `t${turnOf(event.effect) + 1}.model.0`;
  const call = { type: 'tool-call', id: 'other', name: 'nothing', arguments: '{}' } as const;
  return [
    { ...event, content: [call] },
    { ...event, effect: next },
  ];
}

/** A state as text, with its history as messages. */
function viewOf(state: State): string {
  return JSON.stringify({ ...state, history: messagesOf(state), digest: state.history.rolling });
}

/** I5 for a run in the real driver: replaying its journal gives its result. */
export function checkLiveReplay({ replay }: Pick<Core, 'replay'>, { entries, result }: LiveTrace): void {
  const stride = 1 + (entries.length >> 4);
  for (let length = entries.length; length > 0; length -= stride) {
    const replayed = replay(entries.slice(0, length));
    ensure(replayed.type === 'replayed', () => `${length} entries do not replay: ${JSON.stringify(replayed)}`);
    if (length < entries.length) continue;
    const { phase, history, usage, turn, calls, activeMs, agent, memory } = replayed.state;
    const again = [
      phase.type === 'ended' ? phase.outcome : undefined,
      messagesOf({ history }),
      usage,
      turn,
      calls,
      activeMs,
      farIn(agent),
      memory,
    ];
    const { outcome, messages, turns, durationMs } = result ?? {};
    const far = [farIn(result?.agent), result?.memory];
    const gave = [outcome, messages, result?.usage, turns, result?.calls, durationMs, ...far];
    ensure(
      same(again, gave),
      () => `the result is ${JSON.stringify(gave)}, and the replay gives ${JSON.stringify(again)}`,
    );
  }
}

/** The state of a typed agent in a fixed order of fields. */
function farIn(agent: State['agent']): readonly unknown[] | undefined {
  return agent && [agent.attempt, agent.from, agent.proposal, agent.memory, agent.rejection];
}
