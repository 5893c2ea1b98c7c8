import { userText, type AssistantPart, type ToolCall } from '../messages.ts';
import type { ModelError } from '../model.ts';
import { cutOf, tokensIn } from './compaction.ts';
import { finishOf } from './finish/finish.ts';
import type { CheckedOutput, Move } from './finish/strategy.ts';
import { append, acceptable } from './history.ts';
import { choiceOf, effectId } from './outstanding.ts';
import { admitted, plan, satisfiesChoice, settle } from './plan.ts';
import { act, advance, conclude, end, enter, fail, goOn, NO_EFFECTS, say } from './turn.ts';
import type { Draft, Next, SettledSlot } from './turn.ts';
import type { Event } from './events.ts';
import type { Slot, State } from './state.ts';
import { addUsage, tokensOf } from './usage.ts';
import { wordingOf } from './wording.ts';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** What a reply of the model leads to. */
export function replied(state: Draft, event: Of<'model-replied'>): Next {
  const { finish } = event;
  const content = acceptable(state.history, event.content, state.turn);
  const message = { role: 'assistant', content } as const;
  state.usage = addUsage(state.usage, event.usage);
  state.contextTokens = tokensOf(event.usage) || state.contextTokens + tokensIn(message);
  state.truncated = finish === 'length';
  const calls = content.filter((part): part is ToolCall => part.type === 'tool-call');
  if (calls.length > 0 && finish !== 'content-filter') {
    state.history = append(state.history, message);
    return called(state, calls, event.checks);
  }
  return finish === 'content-filter' ? filtered(state, content) : answered(state, content);
}

function filtered(state: State, content: readonly AssistantPart[]): Next {
  const words = content.filter(({ type }) => type === 'text');
  const kept = hasWords(words) ? say(state, { role: 'assistant', content: words }) : state;
  return fail(kept, 'content-filter', FILTERED);
}

const FILTERED = "The provider's content filter stopped the reply. Change the task, the instructions or the model.";

/** A conversation that is too long is made shorter, once a turn, if the rules allow it and there is something to gain. */
export function failed(state: State, { effect, error }: Of<'model-failed'>): Next {
  if (state.closing !== undefined) return end(state, { type: 'exhausted', limit: state.closing });
  const first = effect === effectId('model', state.turn);
  const to = error.code === 'context-length' && first && state.rules.compaction ? cutOf(state) : undefined;
  if (to === undefined) return failedFor(state, { effect, error });
  const refused = { effect, error };
  return enter(state, { type: 'compacting', effect: effectId('compact', state.turn, 1), to, refused });
}

/** It can be asked again: the run goes on when the effect is given up for lost. */
export function failedFor(
  state: State,
  { effect, error }: { readonly effect: string; readonly error: ModelError },
): Next {
  const outcome = { type: 'failed', error: { code: error.code, message: error.message } } as const;
  return { state: { ...end(state, outcome).state, phase: { type: 'ended', outcome, effect } }, effects: NO_EFFECTS };
}

function answered(state: State, content: readonly AssistantPart[]): Next {
  const empty = !hasWords(content);
  const said = empty ? state : say(state, { role: 'assistant', content });
  if (state.closing !== undefined) return end(said, { type: 'exhausted', limit: state.closing });
  const { byCalls, onText } = finishOf(state.rules);
  if (byCalls) return act(empty ? unheard(state, onText(state)) : said, onText(said));
  if (!satisfiesChoice(state, [])) return lack(said, 'call', wordingOf(state.rules).callRequired(demandedTool(state)));
  if (empty) return lack(said, 'content', wordingOf(state.rules).emptyReply);
  const heard: State = { ...said, lacked: state.lacked === 'output' ? 'output' : undefined };
  if (heard.pending.length > 0) return goOn(heard);
  const move = onText(heard);
  if (move.type !== 'end' || !state.rules.output) return act(heard, move);
  return act(heard, { type: 'validate', text: wordsOf(content) });
}

/** Where an empty reply is answered, something has to stand for it: no provider takes two user messages in a row. */
function unheard(state: State, { type }: Move): State {
  const last = state.history.items[state.history.length - 1];
  if (type !== 'ask' || last?.role !== 'user') return state;
  return say(state, { role: 'assistant', content: [{ type: 'text', text: wordingOf(state.rules).nothingSaid }] });
}

/** The output was checked. Where a tool gave it, the verdict is the result of that call. */
export function checked(state: Draft, { result }: Of<'output-checked'>): Next {
  if (result.type === 'valid') state.output = result.value;
  const { phase } = state;
  const move = finishOf(state.rules).onChecked?.(state, result);
  if (move && phase.type === 'validating' && phase.slots) {
    return conclude(state, phase.slots.map((slot) => answeredBy(result, slot, state)) as readonly SettledSlot[], move);
  }
  if (result.type === 'valid') return act({ ...state, lacked: undefined }, { type: 'end' });
  if (state.pending.length > 0) return goOn({ ...state, lacked: undefined });
  return lack(state, 'output', wordingOf(state.rules).outputInvalid(result.problems));
}

function answeredBy(result: CheckedOutput, slot: Slot, { rules }: State): Slot {
  if (slot.type !== 'held') return slot;
  const words = wordingOf(rules);
  if (result.type === 'valid') return settle(slot.call, [{ type: 'text', text: words.accepted }], false, 'claimed');
  const text = words.rejected(result.problems, result.validator);
  return settle(slot.call, [{ type: 'error', text }], true, 'claimed');
}

type Lack = NonNullable<State['lacked']>;

/** Asks once for what a reply lacked; lacking it a second time in a row fails the run. */
function lack(state: State, what: Lack, ask: string): Next {
  if (state.lacked === what) return failLacking(state, what);
  return goOn({ ...say(state, userText(ask)), lacked: what });
}

function failLacking(state: State, what: Lack): Next {
  switch (what) {
    case 'content':
      return fail(state, 'empty-reply', 'The model replied with nothing, twice in a row.');
    case 'output':
      return fail(state, 'output-invalid', 'The answer does not have the form that "output" demands, twice in a row.');
    case 'call': {
      const demanded = demandedTool(state);
      const missing = demanded === undefined ? 'any tool' : `"${demanded}"`;
      const message = `The model did not call ${missing}, though toolChoice demands it and it was told so.`;
      return fail(state, 'tool-choice-unmet', message);
    }
    default:
      return what satisfies never;
  }
}

function demandedTool(state: State): string | undefined {
  const choice = choiceOf(state);
  return typeof choice === 'object' ? choice.tool : undefined;
}

function called(state: Draft, calls: readonly ToolCall[], checks: Of<'model-replied'>['checks']): Next {
  const slots = plan(state, calls, checks);
  const { byCalls } = finishOf(state.rules);
  if (!byCalls && !satisfiesChoice(state, calls)) {
    if (state.lacked === 'call') return failLacking({ ...state, phase: { type: 'tools', slots } }, 'call');
    return advance({ ...state, lacked: 'call' }, slots);
  }
  const standing = byCalls || choiceOf(state) === 'none' || state.decision?.toolChoice !== undefined;
  if (!standing) state.choice = 'auto';
  state.lacked = undefined;
  if (state.rules.judged && slots.some(({ type }) => type === 'queued')) {
    return enter(state, { type: 'judging', effect: effectId('judge', state.turn), slots });
  }
  state.calls += admitted(slots);
  return advance(state, slots);
}

function hasWords(content: readonly AssistantPart[]): boolean {
  return wordsOf(content).trim() !== '';
}

function wordsOf(content: readonly AssistantPart[]): string {
  return content.reduce((words, part) => (part.type === 'text' ? words + part.text : words), '');
}
