import type { Event, Exposure, State } from '@treadle/core';
import { answerOf, PEOPLE, rejudgedIn, replyOf, turnOf, type Past } from './answers.ts';
import {
  NOTHING_OBSERVED,
  observedAfter,
  shouldApply,
  isExternal,
  type Observed,
  type Open,
  type Raising,
} from './observed.ts';
import type { Core } from './core.ts';
import { eventsWithId, idsNear } from './foreign-events.ts';
import { outcomeOf, type Moment, type Trace } from './trace.ts';
import { SETTLE_FIRST, type Move, type World } from './world.ts';

export interface DriveOptions {
  readonly moves?: readonly Move[];
  /** Only the order varies: moves whose effect depends on when they happen are left out. */
  readonly calm?: boolean;
  /** After the last move, the newest effect settles first. */
  readonly reversed?: boolean;
  /** Called with each new state, before anything else happens. */
  readonly watch?: (state: State) => void;
}

/** More moves than any world needs. A run that exceeds them never ends. */
const MOST_MOVES = 8_000;

/** Feeds a world to `step` until the run has ended, or waits for something that never happens. */
export function drive(core: Pick<Core, 'NEW' | 'step'>, world: World, options: DriveOptions = {}): Trace {
  const { moves = world.moves, calm = false, reversed = false, watch } = options;
  const moments: Moment[] = [];
  const lost = new Map<string, number>();
  const begun = new Set<string>();
  const parked = new Set<string>();
  const asks = new Map<string, number>();
  const steered = new Set<number>();
  const failed = new Set<string>();
  let state: State = core.NEW;
  let observed: Observed = NOTHING_OBSERVED;
  let now = 1_000;
  /** What the next event says about the monotonic clock, if that differs from `now`. */
  let elapsedMs: number | undefined;
  let changed = false;
  let hadChoice = false;

  function feed(given: Event): void {
    const event = elapsedMs === undefined ? given : { ...given, elapsedMs };
    elapsedMs = undefined;
    const { state: after, effects } = core.step(state, event);
    const applied = after !== state;
    const next = applied ? observedAfter(observed, event, effects, outcomeOf(after)) : observed;
    moments.push({ event, applied, before: state, after, effects, observed: { before: observed, after: next } });
    [state, observed] = [after, next];
    if (!applied) return;
    watch?.(state);
    if (event.type === 'effect-lost') lost.set(event.effect, (lost.get(event.effect) ?? 0) + 1);
    if (event.type === 'child-started') begun.add(event.effect);
    if (event.type === 'tool-parked') parked.add(event.effect).add(event.effect.replace('.verify.', '.tool.'));
    if (event.type === 'questions-asked') asks.set(event.effect, (asks.get(event.effect) ?? 0) + 1);
    if (event.type === 'model-failed') failed.add(event.effect);
    if (event.type === 'tools-changed') changed = !changed;
  }

  const pastOf = (): Past => ({ lost, begun, parked, asks, observed, failed });

  /** People say yes, and sometimes no or nothing in time. */
  function decideBudget({ effect: { id: effect }, question, expiresAt }: Raising, pick: number): void {
    if (pick % 7 === 6) return feed({ type: 'deadline-passed', at: Math.max(now, expiresAt), effect, question: 0 });
    const value = question.choices![pick % 5 === 4 ? 1 : 0];
    feed({ type: 'question-answered', at: now, effect, question: 0, value, raises: 'run' });
  }

  function settle(pick: number): boolean {
    if (observed.raising) {
      decideBudget(observed.raising, pick);
      return true;
    }
    const open = [...observed.open.values()];
    const answers = open.flatMap((one) => answerOf(world, one, pastOf(), now, calm) ?? []);
    if (answers.length === 0) return false;
    hadChoice ||= answers.length > 1;
    const event = answers.at(pick % answers.length)!;
    steer(event);
    feed(event);
    return true;
  }

  /** The input of a turn arrives before the first of its calls settles, in any order of the calls. */
  function steer(event: Event): void {
    const turn = 'effect' in event && !BEFORE_CALLS.has(event.type) ? turnOf(event.effect ?? '') : 0;
    const reply = replyOf(world, turn);
    if (turn === 0 || reply.type !== 'reply' || !reply.steered || steered.has(turn)) return;
    steered.add(turn);
    feed(inputAt(now, `steered ${turn}`));
  }

  function disturb({ act, pick }: Move): void {
    const open = [...observed.open.values()];
    switch (act) {
      case 'settle':
        return;
      case 'lose':
        return lose(open.slice(pick % open.length).slice(0, 1), 'device');
      case 'restart':
        return lose(
          open.filter((one) => !isExternal(observed, one)),
          'restart',
          pick % 3 !== 0,
        );
      case 'repeat':
        return feed(moments[pick % moments.length]!.event);
      case 'foreign':
        return feed(foreign(pick));
      case 'mistake':
        return feed(mistakenApproval(pick));
      case 'policy':
        return feed(policyAt(pick));
      case 'rejudge':
        return feed(rejudgedAt(pick));
      case 'program':
        return feed({ type: 'program-changed', at: now, ...(pick % 3 > 0 && { program: { version: pick % 3 } }) });
      case 'input':
        return feed(inputAt(now, `input ${pick}`));
      case 'tools':
        return feed({
          type: 'tools-changed',
          at: now,
          tools: changed ? world.tools : world.otherTools,
          ...(pick % 3 > 0 && { from: 'next-turn' }),
        });
      case 'lift': {
        const { source } = observed.narrowed[pick % observed.narrowed.length] ?? {};
        const named = pick % 7 === 0 ? 'nothing' : pick % 2 === 0 ? source : undefined;
        const by = pick % 3 === 0 && { by: 'ann' };
        return feed({ type: 'narrowing-lifted', at: now, ...by, ...(named !== undefined && { source: named }) });
      }
      case 'open':
        return feed({
          type: 'resource-opened',
          at: now,
          runId: pick % 5 === 0 ? 'original' : 'run',
          name: RESOURCES[pick % 2]!,
          process: pick % 7 === 0 ? { mark: 'm' } : { pid: 100 + (pick % 7), startedAt: `${pick % 3}` },
        });
      case 'close': {
        const [name] = pick % 5 > 0 ? observed.resources.keys() : [];
        return feed({ type: 'resource-closed', at: now, name: name ?? RESOURCES[pick % 2]! });
      }
      case 'fork':
        return feed(forkAt(world, now, pick));
      case 'deadline':
        return feed({ type: 'deadline-passed', at: now });
      case 'refuse': {
        const effect = open.at(pick % open.length)?.effect.id ?? '';
        return feed({ type: 'budget-refused', at: now, effect, reason: 'spent' });
      }
      case 'cancel':
        return feed({ type: 'cancel-requested', at: now });
      default:
        act satisfies never;
    }
  }

  /** A budget lacks what an effect needs, and people decide. */
  function escalate(pick: number): void {
    const open = [...observed.open.values()];
    const effect = open.at(pick % open.length)?.effect.id ?? '';
    const ttl = pick % 4 === 0 && { ttlMs: pick % 9 };
    const touches = pick % 3 === 0 && { touches: [{ type: 'write', path: 'a' }] as const };
    const question = { prompt: 'May it?', choices: ['yes', 'no'] };
    feed({ type: 'budget-escalated', at: now, effect, reason: 'spent', question, ...touches, ...ttl });
  }

  function lose(open: readonly Open[], cause: 'restart' | 'device', died = false): void {
    for (const { effect } of open) {
      feed({ type: 'effect-lost', at: now, effect: effect.id, cause, ...(died && { died }) });
    }
  }

  /** Resumes a run that ended because the model failed: resuming marks the model call as lost. */
  function resumeFailed(effect: string, { pick }: Move): void {
    feed({ type: 'effect-lost', at: now, effect, cause: pick % 4 === 0 ? 'device' : 'restart' });
  }

  function foreign(pick: number): Event {
    const known = moments.flatMap(({ effects }) => effects.map(({ id }) => id));
    const ids = idsNear(known[pick % known.length] ?? '');
    const events = eventsWithId(ids[pick % ids.length]!, now, digestIn(observed));
    return events[(pick >> 2) % events.length]!;
  }

  /** An approval of another call, by somebody at random, or without a name. */
  function mistakenApproval(pick: number): Event {
    const asked = [...observed.open.values()].flatMap(({ effect }) => (effect.type === 'ask-approval' ? effect : []));
    const { id = '', digest = '', approvedBy = [] } = asked[pick % asked.length] ?? {};
    const by = ['eve', ...PEOPLE, approvedBy[0], approvedBy[0], undefined][(pick >> 4) % 7];
    const said = {
      effect: id,
      approved: true,
      ...(by !== undefined && { by }),
      ...(pick % 2 === 0 && { forRun: true }),
    };
    return { type: 'approval-given', at: now, digest: pick % 3 === 0 ? 'of something else' : digest, ...said } as Event;
  }

  function policyAt(pick: number): Event {
    const turn = Math.max(0, ...moments.flatMap(({ effects }) => effects.map(({ id }) => turnOf(id))));
    const rules = [undefined, { level: 1 }, { level: 2 }][pick % 3];
    const verdicts = rejudgedIn(world, turn);
    // Not in the first turns, so that runs get far.
    const some = [{ turns: 3 + (pick % 3) }, { calls: 3 + (pick % 3) }, { turns: 4, calls: 4 }][(pick >> 3) % 8];
    const limits = turn > 2 ? some : undefined;
    return {
      type: 'policy-changed',
      at: now,
      ...(rules && { rules }),
      ...(pick % 7 > 0 && { verdicts }),
      ...(limits && { limits }),
    };
  }

  function rejudgedAt(pick: number): Event {
    const { id = '' } = [...observed.open.values()].at(pick % observed.open.size)?.effect ?? {};
    const scripted = rejudgedIn(world, turnOf(id))[id.replace('.approval.', '.tool.')];
    const verdict = pick % 3 === 0 ? ({ type: 'allow' } as const) : scripted;
    return { type: 'call-rejudged', at: now, effect: id, ...(verdict && { verdict }) };
  }

  /** Whether the effect of a move does not depend on when it happens. */
  function isCalm({ act, pick }: Move): boolean {
    if (act === 'settle') return true;
    if (act === 'mistake') return !shouldApply(observed, mistakenApproval(pick));
    if (act === 'repeat') return !shouldApply(observed, moments[pick % moments.length]!.event);
    return act === 'foreign' && !shouldApply(observed, foreign(pick));
  }

  feed(startOf(world, now));
  for (let count = 0; count < MOST_MOVES; count++) {
    const move = moves[count] ?? { ...SETTLE_FIRST, pick: reversed ? -1 : 0 };
    now = Math.max(0, now + move.delay);
    if (!calm && move.pick % 6 === 0 && count < moves.length) elapsedMs = move.pick % 40;
    if (observed.phase === 'ended') {
      if (calm || count >= moves.length) break;
      if (observed.failed !== undefined && move.act === 'settle' && move.pick % 2 === 0)
        resumeFailed(observed.failed, move);
      else disturb(move);
    } else if (move.act !== 'settle' && (!calm || isCalm(move))) disturb(move);
    else if (!calm && count < moves.length && move.pick % 53 === 7) escalate(move.pick);
    else if (!settle(move.pick) && count >= moves.length) break;
  }
  return { world, moments, last: moments.at(-1)!, hadChoice };
}

const RESOURCES = ['shell', 'browser'];

const BEFORE_CALLS: ReadonlySet<Event['type']> = new Set<Event['type']>([
  'turn-prepared',
  'model-replied',
  'model-failed',
  'history-compacted',
  'guardrails-checked',
]);

function startOf(
  { rules, tools, input, memory, narrow, grants, taken, policy, program, facts }: World,
  at: number,
): Event {
  const pinned = { runId: 'run', rules, tools, model: 'simulated', settings: {}, instructions: 'be brief' };
  const seen = facts?.session !== undefined && { exposure: EXPOSED };
  const carried = { ...(memory && { memory }), ...(narrow && { narrow }), ...(grants && { grants }), ...seen };
  const optional = { ...carried, ...(taken && { resources: taken }), ...(policy !== undefined && { policy }) };
  const defined = program !== undefined && { program };
  return { type: 'run-started', at, ...pinned, input, ...optional, ...defined, ...facts };
}

/** What runs of a session have seen before. */
export const EXPOSED: Exposure = { outside: { tool: 'read', what: 'url', from: 'before/t1.tool.0' } };

function forkAt({ tools, otherTools }: World, at: number, pick: number): Event {
  return {
    type: 'run-forked',
    at,
    ...(pick % 2 === 0 && { model: 'another' }),
    ...(pick % 3 === 0 && { instructions: `since ${pick}` }),
    ...(pick % 5 < 3 && { tools: pick % 5 < 2 ? tools : otherTools }),
  };
}

function inputAt(at: number, text: string): Event {
  return { type: 'input-added', at, messages: [{ role: 'user', content: [{ type: 'text', text }] }] };
}

export function digestIn({ open }: Observed): string {
  for (const { effect } of open.values()) if (effect.type === 'ask-approval') return effect.digest;
  return '';
}
