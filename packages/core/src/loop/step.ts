import { userText, type AssistantPart, type ToolCall } from '../messages.ts';
import type { Verdict } from '../policy/port.ts';
import { sha256 } from './digest.ts';
import { confirm } from './finish/confirm.ts';
import { plain } from './finish/plain.ts';
import type { FinishStrategy } from './finish/strategy.ts';
import { activeMsAt, fits } from './fits.ts';
import { append, emptyHistory, withFreshIds } from './history.ts';
import { choiceOf, effectId, effectOf, judgeEffect, modelEffect, slotIndexOf } from './outstanding.ts';
import { plan, refuse, satisfiesChoice, settle } from './plan.ts';
import { advance, breakOff, end, fail, goOn, NO_EFFECTS, say, type Next } from './turn.ts';
import type { CancelPhase, Event, Rules, Slot, State } from './types.ts';
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
 *  6. When every call has its result, they are recorded as one message in call order (`finishTurn`), what counts is
 *     counted, and it begins again at 1.
 *
 * `step` is pure, synchronous and total: no clock, no I/O, no randomness, no throwing, for any event in any state.
 */
export function step(state: State, event: Event): Next {
  if (!fits(state, event)) return { state, effects: NO_EFFECTS };
  return apply(event.type === 'run-started' ? state : timed(state, event), event);
}

export const NEW: State = {
  runId: '',
  rules: undefined as unknown as Rules, // nothing but `run-started` fits a new state, and that brings them
  tools: [],
  phase: { type: 'new' },
  history: emptyHistory(),
  turn: 0,
  calls: 0,
  usage: NO_USAGE,
  errors: 0,
  streak: undefined,
  choice: 'auto',
  lacked: undefined,
  confirmed: false,
  truncated: false,
  spent: 0,
  closing: undefined,
  pending: [],
  at: 0,
  activeMs: 0,
};

const FINISH: Record<Rules['finish'], FinishStrategy> = { plain, confirm };

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

function apply(state: State, event: Event): Next {
  switch (event.type) {
    case 'run-started':
      return started(event);
    case 'input-added':
      return { state: { ...state, pending: [...state.pending, ...event.messages] }, effects: NO_EFFECTS };
    case 'tools-changed':
      return { state: { ...state, tools: event.tools }, effects: NO_EFFECTS };
    case 'model-replied':
      return replied(state, event);
    case 'model-failed':
      return failed(state, event);
    case 'calls-judged':
      return judged(state, event);
    case 'cancel-requested':
      return breakOff(state, { type: 'cancelled', phase: cancelPhase(state) }, wordingOf(state.rules).cancelled);
    case 'effect-lost':
      return lost(state, event.effect);
    case 'deadline-passed':
      if (event.effect !== undefined) return changeSlot(state, event.effect, (slot) => moved(state, slot, event));
      return breakOff(state, { type: 'exhausted', limit: 'duration' }, wordingOf(state.rules).stopped('duration'));
    case 'tool-settled':
    case 'tool-parked':
    case 'approval-given':
    case 'client-result-given':
      return changeSlot(state, event.effect, (slot) => moved(state, slot, event));
    default:
      return event satisfies never;
  }
}

function timed(state: State, event: Event): State {
  const restarted = event.type === 'effect-lost' && event.cause === 'restart';
  const activeMs = restarted ? state.activeMs : activeMsAt(state, event.at);
  return { ...state, at: Math.max(state.at, event.at), activeMs };
}

function started(event: Of<'run-started'>): Next {
  const { runId, rules, tools, input, at } = event;
  const history = input.reduce(append, emptyHistory());
  return goOn({ ...NEW, runId, rules, tools, history, choice: rules.toolChoice, at });
}

function replied(state: State, event: Of<'model-replied'>): Next {
  const content = withFreshIds(state.history, event.content, state.turn);
  const usage = addUsage(state.usage, event.usage);
  const counted: State = { ...state, usage, truncated: event.finish === 'length' };
  if (event.finish === 'content-filter') {
    const words = content.filter(({ type }) => type === 'text');
    return fail(
      hasWords(words) ? say(counted, { role: 'assistant', content: words }) : counted,
      'content-filter',
      FILTERED,
    );
  }
  const calls = content.filter((part): part is ToolCall => part.type === 'tool-call');
  if (calls.length === 0) return answered(counted, content);
  return called(say(counted, { role: 'assistant', content }), calls, event.checks);
}

const FILTERED = "The provider's content filter stopped the reply. Change the task, the instructions or the model.";

/** It can be asked again: the run goes on when the effect is given up for lost. */
function failed(state: State, { effect, error: { code, message } }: Of<'model-failed'>): Next {
  if (state.closing !== undefined) return end(state, { type: 'exhausted', limit: state.closing });
  const outcome = { type: 'failed', error: { code, message } } as const;
  return { state: { ...end(state, outcome).state, phase: { type: 'ended', outcome, effect } }, effects: NO_EFFECTS };
}

function answered(state: State, content: readonly AssistantPart[]): Next {
  const empty = !hasWords(content);
  const said = empty ? state : say(state, { role: 'assistant', content });
  if (state.closing !== undefined) return end(said, { type: 'exhausted', limit: state.closing });
  if (!satisfiesChoice(state, [])) return lack(said, 'call');
  if (empty) return lack(said, 'content');
  const heard: State = { ...said, lacked: undefined };
  if (heard.pending.length > 0) return goOn(heard);
  const move = FINISH[state.rules.finish].onText(heard);
  if (move.type === 'confirm') return goOn({ ...say(heard, userText(move.ask)), confirmed: true });
  return end(heard, { type: 'completed', ...(heard.truncated && { truncated: true }) });
}

/** Asks once for what a reply lacked; lacking it a second time in a row fails the run. */
function lack(state: State, what: 'call' | 'content'): Next {
  if (state.lacked === what) return failLacking(state, what);
  const words = wordingOf(state.rules);
  const ask = what === 'content' ? words.emptyReply : words.callRequired(demandedTool(state));
  return goOn({ ...say(state, userText(ask)), lacked: what });
}

function failLacking(state: State, what: 'call' | 'content'): Next {
  if (what === 'content') return fail(state, 'empty-reply', 'The model replied with nothing, twice in a row.');
  const demanded = demandedTool(state);
  const missing = demanded === undefined ? 'any tool' : `"${demanded}"`;
  return fail(
    state,
    'tool-choice-unmet',
    `The model did not call ${missing}, though toolChoice demands it and it was told so.`,
  );
}

function demandedTool({ choice }: State): string | undefined {
  return typeof choice === 'object' ? choice.tool : undefined;
}

function called(state: State, calls: readonly ToolCall[], checks: Of<'model-replied'>['checks']): Next {
  const slots = plan(state, calls, checks);
  if (!satisfiesChoice(state, calls)) {
    if (state.lacked === 'call') return failLacking({ ...state, phase: { type: 'tools', slots } }, 'call');
    return advance({ ...state, lacked: 'call' }, slots);
  }
  const choice = choiceOf(state) === 'none' ? state.choice : 'auto';
  const satisfied: State = { ...state, choice, lacked: undefined };
  const queued = slots.filter(({ type }) => type === 'queued').length;
  if (queued === 0 || !state.rules.judged) return advance({ ...satisfied, calls: state.calls + queued }, slots);

  const phase = { type: 'judging', effect: effectId('judge', state.turn), slots } as const;
  return { state: { ...satisfied, phase }, effects: [judgeEffect(phase)] };
}

function judged(state: State, { verdicts, at }: Of<'calls-judged'>): Next {
  if (state.phase.type !== 'judging') return { state, effects: NO_EFFECTS };
  let judgedSoFar = 0;
  const slots = state.phase.slots.map((slot) =>
    slot.type === 'queued' ? underVerdict(state, slot, verdicts[judgedSoFar++], at) : slot,
  );
  const admitted = slots.filter(({ type }) => type === 'queued').length;
  const next = advance({ ...state, calls: state.calls + admitted }, slots);
  const asked = slots.flatMap((slot) => (slot.type === 'asking' ? effectOf(slot)! : []));
  return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };
}

const DAY = 86_400_000;

function underVerdict({ rules }: State, slot: Slot, verdict: Verdict | undefined, at: number): Slot {
  const { call } = slot;
  const words = wordingOf(rules);
  switch (verdict?.type) {
    case 'allow':
      return slot;
    case 'ask': {
      const { reason } = verdict;
      // What is no number dies in JSON, and would be another time when the run is replayed.
      const ttlMs = Number.isFinite(verdict.ttlMs) ? verdict.ttlMs! : DAY;
      const digest = sha256(`${call.name}\n${call.arguments}`);
      return { type: 'asking', call, digest, expiresAt: at + ttlMs, ...(reason !== undefined && { reason }) };
    }
    case 'deny':
      return refuse(call, words.denied(call.name, verdict.reason));
    default:
      return refuse(call, words.denied(call.name, words.noVerdict));
  }
}

type SlotEvent = Of<'tool-settled' | 'tool-parked' | 'approval-given' | 'client-result-given' | 'deadline-passed'>;

function changeSlot(state: State, effect: string, change: (slot: Slot) => Slot): Next {
  if (state.phase.type !== 'tools') return { state, effects: NO_EFFECTS };
  const { slots } = state.phase;
  const index = slotIndexOf(slots, effect);
  const slot = slots[index]!;
  const changed = change(slot);
  const approved = slot.type === 'asking' && changed.type === 'queued';
  return advance(approved ? { ...state, calls: state.calls + 1 } : state, slots.with(index, changed));
}

function moved({ rules }: State, slot: Slot, event: SlotEvent): Slot {
  const { call } = slot;
  const words = wordingOf(rules);
  switch (event.type) {
    case 'tool-settled': {
      const { result } = event;
      if (result.type === 'result') return settle(call, result.content, result.isError);
      return result.type === 'not-done' ? { type: 'queued', call } : refuse(call, words.interrupted(call.name));
    }
    case 'tool-parked':
      return { type: 'parked', call, on: event.on };
    case 'approval-given':
      if (slot.type === 'asking' && event.at >= slot.expiresAt) return refuse(call, words.approvalExpired(call.name));
      return event.approved ? { type: 'queued', call } : refuse(call, words.notApproved(call.name, event.reason));
    case 'client-result-given':
      return settle(call, event.content, event.isError);
    case 'deadline-passed':
      return refuse(call, words.approvalExpired(call.name));
    default:
      return event satisfies never;
  }
}

/** Issues again what is gone, under the same id; but a tool that acts once and had begun is not run blindly again. */
function lost(state: State, effect: string): Next {
  const { phase } = state;
  if (phase.type === 'ended')
    return { state: { ...state, phase: { type: 'model', effect } }, effects: [modelEffect(state, effect)] };
  if (phase.type === 'model') return { state, effects: [modelEffect(state, effect)] };
  if (phase.type === 'judging') return { state, effects: [judgeEffect(phase)] };
  return changeSlot(state, effect, ({ type, call }) => {
    if (type !== 'verifying' && (call.effect === 'pure' || call.effect === 'idempotent'))
      return { type: 'queued', call };
    if (call.verifiable) return { type: 'queued', call, verify: true };
    return refuse(call, wordingOf(state.rules).interrupted(call.name));
  });
}

function cancelPhase({ phase }: State): CancelPhase {
  if (phase.type === 'model') return 'model';
  if (phase.type !== 'tools') return 'tool';
  const has = (type: Slot['type']): boolean => phase.slots.some((slot) => slot.type === type);
  if (has('running') || has('verifying') || has('parked')) return 'tool';
  return has('asking') ? 'approval' : 'client';
}

function hasWords(content: readonly AssistantPart[]): boolean {
  return content.some((part) => part.type === 'text' && part.text.trim() !== '');
}
