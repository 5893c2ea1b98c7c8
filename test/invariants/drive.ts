import type { Event, State } from '@treadle/core';
import { answerOf, replyOf, turnOf } from './answers.ts';
import { BLANK, entered, expects, isOutside, type Books, type Open } from './books.ts';
import type { Core } from './core.ts';
import { eventsBearing, idsNear } from './foreign.ts';
import { outcomeOf, type Moment, type Trace } from './trace.ts';
import { AT_REST, type Move, type World } from './world.ts';

export interface DriveOptions {
  readonly moves?: readonly Move[];
  /** Only the order varies: nothing happens that depends on the time at which it does. */
  readonly calm?: boolean;
  /** When there are no more moves: what was opened last settles first. */
  readonly reversed?: boolean;
  /** Called with each new state, before anything else happens. */
  readonly watch?: (state: State) => void;
}

/** Longer than any world needs; what goes on beyond it goes on for ever. */
const LONGEST = 8_000;

/** Feeds a world to `step` until the run has ended, or waits for what will never come. */
export function drive(core: Pick<Core, 'NEW' | 'step'>, world: World, options: DriveOptions = {}): Trace {
  const { moves = world.moves, calm = false, reversed = false, watch } = options;
  const moments: Moment[] = [];
  const lost = new Map<string, number>();
  const parked = new Set<string>();
  const steered = new Set<number>();
  const failed = new Set<string>();
  let state: State = core.NEW;
  let books: Books = BLANK;
  let now = 1_000;
  let changed = false;
  let hadChoice = false;

  function feed(event: Event): void {
    const { state: after, effects } = core.step(state, event);
    const taken = after !== state;
    const next = taken ? entered(books, event, effects, outcomeOf(after)) : books;
    moments.push({ event, taken, before: state, after, effects, books: { before: books, after: next } });
    [state, books] = [after, next];
    if (!taken) return;
    watch?.(state);
    if (event.type === 'effect-lost') lost.set(event.effect, (lost.get(event.effect) ?? 0) + 1);
    if (event.type === 'tool-parked') parked.add(event.effect);
    if (event.type === 'model-failed') failed.add(event.effect);
    if (event.type === 'tools-changed') changed = !changed;
  }

  function settle(pick: number): boolean {
    const open = [...books.open.values()];
    const answers = open.flatMap((one) => answerOf(world, one, { lost, parked, failed }, now, calm) ?? []);
    if (answers.length === 0) return false;
    hadChoice ||= answers.length > 1;
    const event = answers.at(pick % answers.length)!;
    steer(event);
    feed(event);
    return true;
  }

  /** In whatever order a turn's calls go on, the input comes before the first of them does. */
  function steer(event: Event): void {
    const turn = 'effect' in event && !BEFORE_CALLS.has(event.type) ? turnOf(event.effect ?? '') : 0;
    const reply = replyOf(world, turn);
    if (turn === 0 || reply.type !== 'reply' || !reply.steered || steered.has(turn)) return;
    steered.add(turn);
    feed(inputAt(now, `steered ${turn}`));
  }

  function disturb({ act, pick }: Move): void {
    const open = [...books.open.values()];
    switch (act) {
      case 'settle':
        return;
      case 'lose':
        return lose(open.slice(pick % open.length).slice(0, 1), 'device');
      case 'restart':
        return lose(
          open.filter((one) => !isOutside(one)),
          'restart',
        );
      case 'repeat':
        return feed(moments[pick % moments.length]!.event);
      case 'foreign':
        return feed(foreign(pick));
      case 'mistake':
        return feed(mistaken(pick));
      case 'input':
        return feed(inputAt(now, `input ${pick}`));
      case 'tools':
        return feed({ type: 'tools-changed', at: now, tools: changed ? world.tools : world.otherTools });
      case 'fork':
        return feed(forkAt(world, now, pick));
      case 'deadline':
        return feed({ type: 'deadline-passed', at: now });
      case 'cancel':
        return feed({ type: 'cancel-requested', at: now });
      default:
        act satisfies never;
    }
  }

  function lose(open: readonly Open[], cause: 'restart' | 'device'): void {
    for (const { effect } of open) feed({ type: 'effect-lost', at: now, effect: effect.id, cause });
  }

  /** The run that ended by a failure of the model goes on: whoever opens it again gives the call up for lost. */
  function revive(effect: string, { pick }: Move): void {
    feed({ type: 'effect-lost', at: now, effect, cause: pick % 4 === 0 ? 'device' : 'restart' });
  }

  function foreign(pick: number): Event {
    const known = moments.flatMap(({ effects }) => effects.map(({ id }) => id));
    const ids = idsNear(known[pick % known.length] ?? '');
    const events = eventsBearing(ids[pick % ids.length]!, now, digestIn(books));
    return events[(pick >> 2) % events.length]!;
  }

  function mistaken(pick: number): Event {
    const asked = [...books.open.values()].filter(({ effect }) => effect.type === 'ask-approval');
    const effect = asked[pick % asked.length]?.effect.id ?? '';
    return { type: 'approval-given', at: now, effect, digest: 'of something else', approved: true };
  }

  /** What makes a difference by when it comes, and not only by that it comes, has no place in a calm world. */
  function isCalm({ act, pick }: Move): boolean {
    if (act === 'settle' || act === 'mistake') return true;
    if (act === 'repeat') return !expects(books, moments[pick % moments.length]!.event);
    return act === 'foreign' && !expects(books, foreign(pick));
  }

  feed(startOf(world, now));
  for (let count = 0; count < LONGEST; count++) {
    const move = moves[count] ?? { ...AT_REST, pick: reversed ? -1 : 0 };
    now = Math.max(0, now + move.delay);
    if (books.phase === 'ended') {
      if (calm || count >= moves.length) break;
      if (books.failed !== undefined && move.act === 'settle' && move.pick % 2 === 0) revive(books.failed, move);
      else disturb(move);
    } else if (move.act !== 'settle' && (!calm || isCalm(move))) disturb(move);
    else if (!settle(move.pick) && count >= moves.length) break;
  }
  return { world, moments, last: moments.at(-1)!, hadChoice };
}

const BEFORE_CALLS: ReadonlySet<Event['type']> = new Set<Event['type']>([
  'turn-prepared',
  'model-replied',
  'model-failed',
  'history-compacted',
]);

function startOf({ rules, tools, input }: World, at: number): Event {
  const pinned = { runId: 'run', rules, tools, model: 'simulated', settings: {}, instructions: 'be brief' };
  return { type: 'run-started', at, ...pinned, input };
}

function forkAt({ tools, otherTools }: World, at: number, pick: number): Event {
  return {
    type: 'run-forked',
    at,
    ...(pick % 2 === 0 && { model: 'another' }),
    ...(pick % 3 === 0 && { instructions: `since ${pick}` }),
    ...(pick % 5 < 2 && { tools: pick % 5 === 0 ? tools : otherTools }),
  };
}

function inputAt(at: number, text: string): Event {
  return { type: 'input-added', at, messages: [{ role: 'user', content: [{ type: 'text', text }] }] };
}

export function digestIn({ open }: Books): string {
  for (const { effect } of open.values()) if (effect.type === 'ask-approval') return effect.digest;
  return '';
}
