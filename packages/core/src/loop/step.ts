import { nextAttempt } from './attempt.ts';
import { compacted } from './compaction.ts';
import { activeMsAt, fits } from './fits.ts';
import { append, emptyHistory } from './history.ts';
import { effectId } from './outstanding.ts';
import { checked, failed, failedFor, replied } from './reply.ts';
import { cancelPhase, changed, judged, lost } from './slots.ts';
import { breakOff, enter, fail, goOn, NO_EFFECTS, startTurn, type Draft, type Next } from './turn.ts';
import type { Event } from './events.ts';
import type { Rules } from './pinned.ts';
import type { State } from './state.ts';
import { addUsage, NO_USAGE } from './usage.ts';
import { wordingOf } from './wording.ts';

/*
 * One turn, in order.
 *
 *  1. The model is asked (`goOn`): input that came meanwhile lands first, and limits are looked at.
 *  2. It replies. A reply without calls is an answer (`answered`): it may lack what was demanded, be followed by input
 *     that came meanwhile, or be the end, as the finish strategy says.
 *  3. A reply with calls is planned (`called`): each call is queued, or refused with an error result.
 *  4. If there is a policy, the queued calls are judged: allowed, denied, or put before a person (`judged`).
 *  5. What may start now starts (`advance`), and again whenever a call settles, is parked or is lost.
 *  6. When every call has its result, they are recorded as one message in call order (`conclude`), what counts is
 *     counted, and it begins again at 1. A call that the finish strategy holds back is answered last: its output is
 *     validated, and the verdict is its result (`checked`).
 *
 * `step` is pure, synchronous and total: no clock, no I/O, no randomness, no throwing, for any event in any state.
 */
export function step(state: State, event: Event): Next {
  if (!fits(state, event)) return { state, effects: NO_EFFECTS };
  return event.type === 'run-started' ? started(event) : apply(timed(state, event), event);
}

export const NEW: State = {
  runId: '',
  rules: undefined as unknown as Rules, // nothing but `run-started` fits a new state, and that brings them
  model: '',
  settings: {},
  principal: undefined,
  instructions: undefined,
  tools: [],
  given: 0,
  phase: { type: 'new' },
  history: emptyHistory(),
  turn: 0,
  calls: 0,
  usage: NO_USAGE,
  errors: 0,
  streak: undefined,
  choice: 'auto',
  lacked: undefined,
  decision: undefined,
  output: undefined,
  agent: undefined,
  contextTokens: 0,
  confirmed: false,
  truncated: false,
  spent: 0,
  closing: undefined,
  pending: [],
  at: 0,
  activeMs: 0,
};

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

function apply(state: Draft, event: Exclude<Event, { type: 'run-started' }>): Next {
  switch (event.type) {
    case 'run-forked': {
      const { model = state.model, instructions = state.instructions, tools = state.tools } = event;
      return { state: { ...state, model, instructions, tools }, effects: NO_EFFECTS };
    }
    case 'input-added':
      return { state: { ...state, pending: [...state.pending, ...event.messages] }, effects: NO_EFFECTS };
    case 'tools-changed':
      return { state: { ...state, tools: event.tools }, effects: NO_EFFECTS };
    case 'turn-prepared':
      return prepared(state, event);
    case 'model-replied':
      return replied(state, event);
    case 'model-failed':
      return failed(state, event);
    case 'history-compacted':
      return summarised(state, event);
    case 'output-checked':
      return checked(state, event);
    case 'calls-judged':
      return judged(state, event);
    case 'cancel-requested':
      return breakOff(state, { type: 'cancelled', phase: cancelPhase(state) }, wordingOf(state.rules).cancelled);
    case 'effect-lost':
      return lost(state, event.effect);
    case 'deadline-passed':
      if (event.effect !== undefined) return changed(state, event.effect, event);
      return breakOff(state, { type: 'exhausted', limit: 'duration' }, wordingOf(state.rules).stopped('duration'));
    case 'tool-settled':
    case 'tool-parked':
    case 'approval-given':
    case 'client-result-given':
      return changed(state, event.effect, event);
    default:
      return event satisfies never;
  }
}

function timed(state: State, event: Event): Draft {
  const restarted = event.type === 'effect-lost' && event.cause === 'restart';
  const activeMs = restarted ? state.activeMs : activeMsAt(state, event.at);
  return { ...state, at: Math.max(state.at, event.at), activeMs };
}

function started(event: Of<'run-started'>): Next {
  const { runId, rules, model, settings, principal, instructions, tools, input, at } = event;
  const history = input.reduce(append, emptyHistory());
  const pinned = { runId, rules, model, settings, principal, instructions, tools, given: input.length };
  const agent = rules.agent && nextAttempt(rules.agent, undefined, 0);
  return goOn({ ...NEW, ...pinned, history, choice: rules.toolChoice, agent, at });
}

function prepared(state: State, { decision, problem }: Of<'turn-prepared'>): Next {
  if (problem !== undefined) return fail(state, 'prepare-failed', problem);
  return enter({ ...state, decision }, { type: 'model', effect: effectId('model', state.turn) });
}

/** The turn goes on with the shorter history: it is begun, or the model that refused the longer one is asked again. */
function summarised(state: State, { result }: Of<'history-compacted'>): Next {
  if (state.phase.type !== 'compacting') return { state, effects: NO_EFFECTS };
  const { to, refused } = state.phase;
  if (result.type === 'failure') return refused ? failedFor(state, refused) : startTurn(state);
  const shorter = compacted({ ...state, usage: addUsage(state.usage, result.usage) }, to, result.summary);
  return refused ? enter(shorter, { type: 'model', effect: effectId('model', state.turn, 1) }) : startTurn(shorter);
}
