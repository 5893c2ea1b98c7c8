import { waiting, type Item, type State } from '@treadle/core';
import { outcomeDetail, waitingText } from '../run/outcome-text.ts';
import { durationText, usageText } from '../terminal/quantities.ts';
import { contentText, eventLines, type Line } from './event-lines.ts';
import type { Moment } from './moments.ts';

/** What an event says, and what followed from it. `children`: the ids of runs that work for this one. */
export function momentLines(moment: Moment, children: ReadonlySet<string> = new Set()): readonly Line[] {
  const { entry, states, departs, items } = moment;
  const told = eventLines(moment, children);
  const answers = items.flatMap((item): Line[] => (item.type === 'call-answered' ? [answerLine(item, moment)] : []));
  if (!states) {
    const odd = { head: 'does not replay', body: 'this version would not have come here', tone: 'red' } as const;
    return departs ? [...told, odd] : told;
  }
  const repeats = entry.event.type === 'effect-lost' ? againLines(items, states.before) : [];
  return [...told, ...answers, ...repeats, ...standingLines(moment, states.after)];
}

function answerLine(
  { call, result }: Extract<Item, { type: 'call-answered' }>,
  { entry, states, tookMs }: Moment,
): Line {
  const { event } = entry;
  const own = event.type === 'tool-settled' || event.type === 'client-result-given';
  const effect = own ? event.effect : effectOfCall(states!.after, states!.before.turn, call.id);
  const usage = event.type === 'tool-settled' && event.result.type === 'result' ? event.result.usage : undefined;
  const notes = [
    ...(own && tookMs !== undefined ? [durationText(tookMs)] : []),
    ...(usage ? [`it used ${usageText(usage)}`] : []),
  ];
  return {
    head: `  ${effect} ${result.isError ? 'error' : 'gave'}`,
    ...(notes.length > 0 && { note: notes.join(', ') }),
    body: contentText(result.content),
    tone: result.isError ? 'red' : 'plain',
  };
}

/** Which call of the turn it is that has this id in the history. */
function effectOfCall({ history }: State, turn: number, id: string): string {
  for (let index = history.length - 1; index >= 0; index--) {
    const message = history.items[index]!;
    if (message.role !== 'assistant') continue;
    const calls = message.content.filter((part) => part.type === 'tool-call');
    const found = calls.findIndex((part) => part.id === id);
    if (found >= 0) return `t${turn}.tool.${found}`;
  }
  return id;
}

/** What a loss made happen once more. */
function againLines(items: readonly Item[], before: State): readonly Line[] {
  return items.flatMap((item): Line[] => {
    if (item.type === 'call-started') {
      return [{ head: `  ${effectOfCall(before, before.turn, item.call.id)} runs again`, tone: 'dim' }];
    }
    const asksAgain = item.type === 'turn-started' && item.turn === before.turn;
    return asksAgain ? [{ head: '  the model is asked again', tone: 'dim' }] : [];
  });
}

function standingLines({ entry, states }: Moment, after: State): readonly Line[] {
  if (entry.status === 'paused') {
    return waiting(after).map((wait) => ({
      head: 'paused',
      note: wait.effect,
      body: `waits for ${waitingText(wait)}`,
      tone: 'bold',
    }));
  }
  if (after.phase.type !== 'ended' || states?.before.phase.type === 'ended') return [];
  const { outcome } = after.phase;
  const detail = outcomeDetail(outcome);
  return [{ head: outcome.type, ...(detail && { body: detail }), tone: outcome.type === 'failed' ? 'red' : 'bold' }];
}
