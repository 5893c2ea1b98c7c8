import type { CallCheck, Effect, Event, Rules, ToolCall, ToolFacts, ToolResult, Verdict } from '@treadle/core';
import { turnOf } from './answers.ts';
import type { Moment, Trace } from './trace.ts';

type Of<Type extends Event['type']> = Extract<Event, { type: Type }>;

/** One turn as the facts and the effects tell it. */
export interface Turn {
  readonly number: number;
  readonly reply: Of<'model-replied'>;
  /** When the reply was taken, as an index of the moments. */
  readonly repliedAt: number;
  /** Where its message stands in the history, if it got one. */
  readonly position: number;
  readonly calls: readonly CallRecord[];
}

export interface CallRecord {
  readonly index: number;
  /** As the model made it. */
  readonly part: ToolCall;
  readonly check: CallCheck | undefined;
  /** Of the tool when the reply came. */
  readonly facts: ToolFacts | undefined;
  /** Every effect that was issued for it, and every fact about it that was taken, in order. */
  readonly story: readonly Chapter[];
}

export type Chapter =
  | { readonly type: 'issued'; readonly at: number; readonly effect: Effect }
  | { readonly type: 'told'; readonly at: number; readonly event: Event }
  | { readonly type: 'judged'; readonly at: number; readonly verdict: Verdict | undefined; readonly time: number };

/** The turns of a trace to which the model replied, in order. */
export function turnsOf({ moments }: Trace): readonly Turn[] {
  const turns: Turn[] = [];
  const byEffect = new Map<string, Chapter[]>();
  let tools: readonly ToolFacts[] = [];
  let judging: Extract<Effect, { type: 'judge-calls' }> | undefined;

  for (const [at, { taken, event, effects, before }] of moments.entries()) {
    if (!taken) continue;
    if (event.type === 'run-started' || event.type === 'tools-changed') tools = event.tools;
    if (event.type === 'run-forked') tools = event.tools ?? tools;
    if (event.type === 'model-replied') {
      const calls = event.content
        .filter((part): part is ToolCall => part.type === 'tool-call')
        .map((part, index) => ({
          index,
          part,
          check: event.checks[index],
          facts: tools.find(({ name }) => name === part.name),
          story: [] as Chapter[],
        }));
      turns.push({
        number: turnOf(event.effect),
        reply: event,
        repliedAt: at,
        position: before.history.length,
        calls,
      });
    } else if (event.type === 'calls-judged') {
      for (const [place, { index }] of judging!.calls.entries()) {
        storyOf(turns, index)?.push({ type: 'judged', at, verdict: event.verdicts[place], time: event.at });
      }
    } else if ('effect' in event && event.effect !== undefined) {
      byEffect.get(event.effect)?.push({ type: 'told', at, event });
    }
    for (const effect of effects) {
      if (effect.type === 'judge-calls') judging = effect;
      else if ('call' in effect) {
        const story = storyOf(turns, effect.call.index) ?? [];
        story.push({ type: 'issued', at, effect });
        byEffect.set(effect.id, story);
      }
    }
  }
  return turns;
}

function storyOf(turns: readonly Turn[], index: number): Chapter[] | undefined {
  return turns.at(-1)?.calls[index]?.story as Chapter[] | undefined;
}

/** The fact that gave the call its result; undefined if the loop itself did, or nobody yet. */
export function answerIn({ story }: CallRecord): Of<'tool-settled' | 'client-result-given'> | undefined {
  const told = story.findLast((chapter) => chapter.type === 'told')?.event;
  if (told?.type === 'client-result-given') return told;
  return told?.type === 'tool-settled' && told.result.type === 'result' ? told : undefined;
}

/** What the tool gets: the model's own text, or what it was repaired to. */
export function argumentsOf({ part, check }: CallRecord): string {
  return check?.arguments ?? part.arguments;
}

/** The results of a turn as they stand in the history. */
export function resultsOf({ position }: Turn, { after }: Moment): readonly ToolResult[] | undefined {
  const message = position + 1 < after.history.length ? after.history.items[position + 1] : undefined;
  return message?.role === 'tool' ? message.content : undefined;
}

export function capOf({ maxCallsPerTurn = 128 }: Rules): number {
  return Math.min(maxCallsPerTurn, 128);
}

/** Both need the same thing for themselves. */
export function shares(one: CallRecord, other: CallRecord): boolean {
  return one.check?.resources?.some((resource) => other.check?.resources?.includes(resource)) ?? false;
}
