import type { Effect, Event, Message, Usage } from '@treadle/core';
import { messagesOf, type Moment, type Trace } from './trace.ts';

/** A run's conversation until a summary made it shorter, or until now. */
export interface Epoch {
  /** The moment with which it begins, as an index of the moments. */
  readonly from: number;
  /** What it began with: all of it was said before. */
  readonly kept: number;
  readonly messages: readonly Message[];
}

/** A moment in which a summary took the place of the oldest turns. */
export interface Shortening {
  readonly moment: Moment;
  readonly summary: string;
  readonly usage: Usage;
  /** What the conversation consists of then: the task, the summary, the newest turns. */
  readonly kept: readonly Message[];
  readonly effect: Extract<Effect, { type: 'compact-history' }>;
}

export function shorteningOf(moment: Moment): Shortening | undefined {
  const { event, taken, books, before, after } = moment;
  if (!taken || event.type !== 'history-compacted' || event.result.type !== 'summary') return undefined;
  const effect = books.before.open.get(event.effect)?.effect;
  if (effect?.type !== 'compact-history') return undefined;
  const { summary, usage } = event.result;
  const kept = messagesOf(after).slice(0, effect.from + 1 + before.history.length - effect.to);
  return { moment, summary, usage, kept, effect };
}

/** Of a trace, in order. All of them together hold all that was ever said. */
export function epochsOf({ moments, last }: Trace): readonly Epoch[] {
  const epochs: Epoch[] = [];
  let [from, kept] = [0, 0];
  for (const [at, moment] of moments.entries()) {
    const shortening = shorteningOf(moment);
    if (!shortening) continue;
    epochs.push({ from, kept, messages: messagesOf(moment.before) });
    [from, kept] = [at, shortening.kept.length];
  }
  return [...epochs, { from, kept, messages: messagesOf(last.after) }];
}

/** What the run was given to begin with. */
export function taskOf(moments: readonly Moment[]): readonly Message[] {
  const started = moments[0]?.event as Extract<Event, { type: 'run-started' }>;
  return started.input;
}
