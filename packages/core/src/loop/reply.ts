import { userText, type AssistantPart, type ToolCall } from '../messages.ts';
import type { ModelError } from '../model.ts';
import { cutOf, tokensIn } from './compaction.ts';
import { confirm } from './finish/confirm.ts';
import { plain } from './finish/plain.ts';
import type { FinishStrategy } from './finish/strategy.ts';
import { append, acceptable } from './history.ts';
import { choiceOf, effectId } from './outstanding.ts';
import { plan, satisfiesChoice } from './plan.ts';
import { advance, end, enter, fail, goOn, NO_EFFECTS, say, type Draft, type Next } from './turn.ts';
import type { Event } from './events.ts';
import type { Rules } from './pinned.ts';
import type { State } from './state.ts';
import { addUsage, tokensOf } from './usage.ts';
import { wordingOf } from './wording.ts';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

const FINISH: Record<Rules['finish'], FinishStrategy> = { plain, confirm };

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
  if (!satisfiesChoice(state, [])) return lack(said, 'call', wordingOf(state.rules).callRequired(demandedTool(state)));
  if (empty) return lack(said, 'content', wordingOf(state.rules).emptyReply);
  const heard: State = { ...said, lacked: state.lacked === 'output' ? 'output' : undefined };
  if (heard.pending.length > 0) return goOn(heard);
  const move = FINISH[state.rules.finish].onText(heard);
  if (move.type === 'confirm') return goOn({ ...say(heard, userText(move.ask)), confirmed: true });
  if (!state.rules.output) return complete(heard);
  return enter(heard, { type: 'validating', effect: effectId('validate', state.turn), text: wordsOf(content) });
}

/** The answer was held against the schema that it has to have. */
export function checked(state: State, { result }: Of<'output-checked'>): Next {
  if (result.type === 'valid') return complete({ ...state, output: result.value, lacked: undefined });
  if (state.pending.length > 0) return goOn({ ...state, lacked: undefined });
  return lack(state, 'output', wordingOf(state.rules).outputInvalid(result.problems));
}

function complete(state: State): Next {
  return end(state, { type: 'completed', ...(state.truncated && { truncated: true }) });
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
  if (!satisfiesChoice(state, calls)) {
    if (state.lacked === 'call') return failLacking({ ...state, phase: { type: 'tools', slots } }, 'call');
    return advance({ ...state, lacked: 'call' }, slots);
  }
  const standing = choiceOf(state) === 'none' || state.decision?.toolChoice !== undefined;
  if (!standing) state.choice = 'auto';
  state.lacked = undefined;
  const queued = slots.filter(({ type }) => type === 'queued').length;
  if (queued > 0 && state.rules.judged) {
    return enter(state, { type: 'judging', effect: effectId('judge', state.turn), slots });
  }
  state.calls += queued;
  return advance(state, slots);
}

function hasWords(content: readonly AssistantPart[]): boolean {
  return wordsOf(content).trim() !== '';
}

function wordsOf(content: readonly AssistantPart[]): string {
  return content.reduce((words, part) => (part.type === 'text' ? words + part.text : words), '');
}
