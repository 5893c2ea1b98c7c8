import { mapped } from '../mapped.ts';
import { userText, type Message, type ToolMessage } from '../messages.ts';
import { turnsUsed } from './attempt.ts';
import { finishOf } from './finish/finish.ts';
import type { Move } from './finish/strategy.ts';
import { append } from './history.ts';
import { cutOf, isCrowded, tokensIn } from './compaction.ts';
import { effectId, singleEffect } from './outstanding.ts';
import { refuse } from './plan.ts';
import { schedule } from './schedule.ts';
import type { Effect } from './effects.ts';
import type { Limit, Outcome, Phase, Slot, State, Streak } from './state.ts';
import { tokensOf } from './usage.ts';
import { wordingOf } from './wording.ts';

/** What a fact leads to. */
export interface Next {
  readonly state: State;
  readonly effects: readonly Effect[];
}

export const NO_EFFECTS: readonly Effect[] = [];

/**
 * A state that only this step has: `step` copies what it is given once, and what is done for every turn edits that copy
 * instead of making another one for each thing it changes.
 */
export type Draft = { -readonly [Field in keyof State]: State[Field] };

export function say(state: State, message: Message): State {
  return { ...state, history: append(state.history, message) };
}

/** Goes on to the next turn; a conversation that has grown too long for it is made shorter first. */
export function goOn(state: Draft): Next {
  const landed = land(state);
  const to = isCrowded(landed) && !isOver(landed) ? cutOf(landed) : undefined;
  if (to === undefined) return startTurn(landed);
  return enter(landed, { type: 'compacting', effect: effectId('compact', state.turn), to });
}

/** Starts the next turn, or ends the run if a limit is met. Input that came meanwhile lands here. */
export function startTurn(state: Draft): Next {
  const landed = land(state);
  const { rules, usage, turn } = landed;
  if (turnsUsed(landed) >= rules.maxTurns) return meetLimit(landed, 'turns');
  if (rules.limits.tokens !== undefined) {
    if (turn > 0 && tokensOf(usage) === 0) return end(landed, { type: 'failed', error: TOKENS_UNKNOWN });
    if (tokensOf(usage) >= rules.limits.tokens) return meetLimit(landed, 'tokens');
  }
  if (rules.limits.cost !== undefined) {
    if (usage.cost === undefined) return end(landed, { type: 'failed', error: COST_UNKNOWN });
    if (usage.cost >= rules.limits.cost) return meetLimit(landed, 'cost');
  }
  return askModel(landed);
}

function isOver(state: State): boolean {
  return turnsUsed(state) >= state.rules.maxTurns || isSpent(state);
}

const TOKENS_UNKNOWN = {
  code: 'tokens-unknown',
  message:
    'limits.tokens is set, but the model tells of no tokens, so the limit cannot be held. Limit turns, calls or time instead.',
};

const COST_UNKNOWN = {
  code: 'cost-unknown',
  message:
    'limits.cost is set, but the model gives no cost, so the limit cannot be held. Give the model a price, or limit tokens.',
};

/** Ends the run, or asks for one last answer first if the rules say so. */
function meetLimit(state: State, limit: Limit): Next {
  if (!state.rules.closingTurn || state.agent || state.closing !== undefined || isSpent(state)) {
    return end(state, { type: 'exhausted', limit: state.closing ?? limit });
  }
  const asked = say(land(state), userText(wordingOf(state.rules).closing(limit)));
  return askModel({ ...asked, closing: limit });
}

/** Whichever limit was met, a last answer would cost more of what is spent, or of what nobody counts. */
function isSpent({ rules: { limits }, usage }: State): boolean {
  if (limits.tokens !== undefined && (tokensOf(usage) === 0 || tokensOf(usage) >= limits.tokens)) return true;
  return limits.cost !== undefined && (usage.cost === undefined || usage.cost >= limits.cost);
}

function askModel(state: Draft): Next {
  const turn = state.turn + 1;
  const phase: SinglePhase =
    state.rules.prepared && state.closing === undefined
      ? { type: 'preparing', effect: effectId('prepare', turn) }
      : { type: 'model', effect: effectId('model', turn) };
  state.turn = turn;
  state.decision = undefined;
  state.phase = phase;
  return { state, effects: [singleEffect(state, phase)] };
}

type SinglePhase = Exclude<Phase, { type: 'new' | 'ended' | 'tools' }>;

/** Begins a phase that has one effect, and issues that. */
export function enter(state: State, phase: SinglePhase): Next {
  const next: State = { ...state, phase };
  return { state: next, effects: [singleEffect(next, phase)] };
}

function land(state: Draft): Draft {
  if (state.pending.length === 0) return state;
  return { ...state, history: state.pending.reduce<State['history']>(append, state.history), pending: [] };
}

/** Input that never got its turn stays in the history: nothing that was said to a run is lost. */
export function end(state: State, outcome: Outcome): Next {
  return { state: { ...land(state), phase: { type: 'ended', outcome } }, effects: NO_EFFECTS };
}

export function fail(state: State, code: string, message: string): Next {
  return breakOff(state, { type: 'failed', error: { code, message } }, '');
}

/** Starts what may start of the turn's calls, or finishes the turn when all of them are answered. */
export function advance(state: Draft, slots: readonly Slot[]): Next {
  if (slots.every(({ type }) => type === 'settled' || type === 'held')) return finishTurn(state, slots);
  const scheduled = schedule(slots, state.rules);
  state.phase = { type: 'tools', slots: scheduled.slots };
  return { state, effects: scheduled.effects };
}

export type SettledSlot = Extract<Slot, { type: 'settled' }>;

function finishTurn(state: Draft, slots: readonly Slot[]): Next {
  const move = finishOf(state.rules).onResults?.(state, slots) ?? GO_ON;
  if (move.type !== 'validate') return conclude(state, slots as readonly SettledSlot[], move);
  return enter(state, { type: 'validating', effect: effectId('validate', state.turn), text: move.text, slots });
}

const GO_ON: Move = { type: 'go-on' };

/** Records the results of a turn, and goes where the strategy says unless a limit is met. */
export function conclude(state: Draft, slots: readonly SettledSlot[], move: Move): Next {
  const { rules, closing } = state;
  let { streak } = state;
  for (let i = 0; i < slots.length; i++) streak = continued(streak, slots[i]!, state);
  const errors = errorsAfter(state.errors, slots);
  const spent = state.spent + (slots.some(({ how }) => how === 'spent') ? 1 : 0);
  const results = resultsOf(slots);
  state.contextTokens += tokensIn(results);
  state.history = append(state.history, results);
  state.streak = streak;
  state.errors = errors;
  state.spent = spent;

  if (move.type !== 'go-on' && move.type !== 'ask') return act(state, move);
  if (closing !== undefined) return end(state, { type: 'exhausted', limit: closing });
  if (streak && streak.refused >= 2) return meetLimit(state, 'repetition');
  if (rules.errorLimit > 0 && errors >= rules.errorLimit) return meetLimit(state, 'errors');
  if (spent > 1) return meetLimit(state, 'calls');
  return act(state, move);
}

/** Does what a finish strategy decided. */
export function act(state: State, move: Move): Next {
  const noted: Draft = move.note ? { ...state, ...move.note } : state;
  switch (move.type) {
    case 'go-on':
      return goOn(noted);
    case 'ask':
      return goOn(say(noted, userText(move.words)));
    case 'end':
      return end(noted, { type: 'completed', ...(noted.truncated && { truncated: true }) });
    case 'exhaust':
      return end(noted, { type: 'exhausted', limit: move.limit });
    case 'fail':
      return end(noted, { type: 'failed', error: { code: move.code, message: move.message } });
    case 'validate':
      return enter(noted, { type: 'validating', effect: effectId('validate', state.turn), text: move.text });
    default:
      return move satisfies never;
  }
}

/** All results of the turn, in call order, as one message. */
function resultsOf(slots: readonly SettledSlot[]): ToolMessage {
  return { role: 'tool', content: mapped(slots, ({ result }) => result) };
}

/** Ends a run in the middle of a turn: what has no result yet gets one, so that the history stays valid. */
export function breakOff(state: State, outcome: Outcome, why: string): Next {
  const { phase } = state;
  if (!('slots' in phase) || !phase.slots) return end(state, outcome);
  const slots = phase.slots.map((slot) => (slot.type === 'settled' ? slot : refuse(slot.call, why)) as SettledSlot);
  return end(say(state, resultsOf(slots)), outcome);
}

/** A turn with nothing but errors adds one, a success resets. Our own caps say nothing about the model. */
function errorsAfter(errors: number, slots: readonly SettledSlot[]): number {
  let counted = false;
  for (let i = 0; i < slots.length; i++) {
    const { how, result } = slots[i]!;
    if (how !== 'ran' && how !== 'repeated') continue;
    if (!result.isError) return 0;
    counted = true;
  }
  return counted ? errors + 1 : errors;
}

function continued(
  last: Streak | undefined,
  { call, result, how }: SettledSlot,
  { rules, tools }: State,
): Streak | undefined {
  if (rules.repeatLimit === 0 || how === 'capped' || how === 'spent') return last;
  const again = last?.name === call.name && last.arguments === call.arguments;
  if (how === 'repeated') return again ? { ...last, refused: last.refused + 1 } : last;
  if (tools.some(({ name, polling }) => polling && name === call.name)) return undefined;
  const count = again && sameContent(last.content, result.content) ? last.count + 1 : 1;
  return { name: call.name, arguments: call.arguments, content: result.content, count, refused: 0 };
}

function sameContent(a: Streak['content'], b: Streak['content']): boolean {
  return a.length === b.length && JSON.stringify(a) === JSON.stringify(b);
}
