import type { Effect, Event, Message, Usage } from '@treadle/core';
import { messagesOf, type Moment, type Trace } from './trace.ts';

/** The conversation between two compactions, or after the last one. */
export interface Section {
  /** The index of its first moment. */
  readonly from: number;
  /** How many of its messages were kept by the compaction before it. */
  readonly kept: number;
  readonly messages: readonly Message[];
}

/** A moment in which a summary replaced the oldest turns. */
export interface Compaction {
  readonly moment: Moment;
  readonly summary: string;
  readonly usage: Usage;
  /** The conversation after it: the task, the summary, the newest turns. */
  readonly kept: readonly Message[];
  readonly effect: Extract<Effect, { type: 'compact-history' }>;
}

export function compactionOf(moment: Moment): Compaction | undefined {
  const { event, applied, observed, before, after } = moment;
  if (!applied || event.type !== 'history-compacted' || event.result.type !== 'summary') return undefined;
  const effect = observed.before.open.get(event.effect)?.effect;
  if (effect?.type !== 'compact-history') return undefined;
  const { summary, usage } = event.result;
  const kept = messagesOf(after).slice(0, effect.from + 1 + before.history.length - effect.to);
  return { moment, summary, usage, kept, effect };
}

/** The sections of a trace in order. Together they contain every message. */
export function sectionsOf({ moments, last }: Trace): readonly Section[] {
  const sections: Section[] = [];
  let [from, kept] = [0, 0];
  for (const [at, moment] of moments.entries()) {
    const compaction = compactionOf(moment);
    if (!compaction) continue;
    sections.push({ from, kept, messages: messagesOf(moment.before) });
    [from, kept] = [at, compaction.kept.length];
  }
  return [...sections, { from, kept, messages: messagesOf(last.after) }];
}

/** The input that the run was started with. */
export function taskOf(moments: readonly Moment[]): readonly Message[] {
  const started = moments[0]?.event as Extract<Event, { type: 'run-started' }>;
  return started.input;
}

/** The estimate counts four characters as a token, and a picture or a file as this many characters. */
const PICTURE = 4_000;

/** The estimated tokens of a message. */
export function estimateOf({ content }: Message): number {
  const characters = content.map((part): number => {
    if (part.type === 'tool-call') return part.name.length + part.arguments.length;
    if (part.type === 'tool-result') return part.content.map(lengthOf).reduce(plus, 0);
    return lengthOf(part);
  });
  return Math.ceil(characters.reduce(plus, 0) / 4);
}

function lengthOf(part: { readonly type: string; readonly text?: string }): number {
  return part.text?.length ?? PICTURE;
}

function plus(a: number, b: number): number {
  return a + b;
}

/** The end of the part that a summary replaces if the newest turns are kept. Undefined if that gains nothing. */
export function cutPosition(messages: readonly Message[], given: number, keepTurns: number): number | undefined {
  const replies = messages.flatMap(({ role }, place) => (role === 'assistant' && place >= given ? place : []));
  const cut = replies.at(-keepTurns);
  return replies.length < keepTurns || cut! < given + 2 ? undefined : cut;
}
