import type { ToolCall, ToolResult } from '../messages.ts';
import type { Item } from './options.ts';
import type { Call, Effect, Phase, State } from './types.ts';

/**
 * What listeners are told beside the fact itself, derived from the states before and after it: not every result is a
 * fact of its own (some calls are refused), and not every fact is a result.
 */
export function itemsBetween(before: State, after: State, effects: readonly Effect[]): readonly Item[] {
  const items: Item[] = answeredBetween(before, after);
  for (const effect of effects) {
    if (effect.type === 'call-model') items.push({ type: 'turn-started', turn: after.turn });
    else if (effect.type === 'call-tool') items.push({ type: 'call-started', call: partOf(effect.call) });
  }
  return items;
}

export function partOf({ id, name, arguments: text }: Call): ToolCall {
  return { type: 'tool-call', id, name, arguments: text };
}

function answeredBetween(before: State, after: State): Item[] {
  const recorded = after.history.items
    .slice(before.history.length, after.history.length)
    .flatMap((message) => (message.role === 'tool' && before.phase.type !== 'new' ? message.content : []));
  const answered = recorded.length > 0 ? recorded : settledOf(after.phase);
  if (answered.length === 0) return [];
  const known = new Set(settledOf(before.phase).map(({ callId }) => callId));
  const calls = lastCalls(after);
  return answered
    .filter(({ callId }) => !known.has(callId))
    .map((result) => ({ type: 'call-answered', call: calls.get(result.callId)!, result }));
}

function settledOf(phase: Phase): readonly ToolResult[] {
  if (phase.type !== 'tools' && phase.type !== 'judging') return [];
  return phase.slots.flatMap((slot) => (slot.type === 'settled' ? slot.result : []));
}

function lastCalls({ history }: State): ReadonlyMap<string, ToolCall> {
  let index = history.length - 1;
  while (history.items[index]!.role !== 'assistant') index--;
  const { content } = history.items[index]!;
  return new Map(content.flatMap((part) => (part.type === 'tool-call' ? [[part.id, part]] : [])));
}
