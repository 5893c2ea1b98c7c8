import type { ToolCall, ToolResult } from '../messages.ts';
import type { Item } from './options.ts';
import type { Effect } from './effects.ts';
import type { Call, Slot, State } from './state.ts';

/**
 * What listeners are told beside the fact itself, derived from the states before and after it: not every result is a
 * fact of its own (some calls are refused), and not every fact is a result.
 */
export function itemsBetween(before: State, after: State, effects: readonly Effect[]): readonly Item[] {
  const items: Item[] = [];
  for (const [index, result] of resultsOf(before, after).entries()) {
    const wasThere = slotsOf(before)[index]?.type === 'settled';
    if (result && !wasThere) items.push({ type: 'call-answered', call: callAt(after, index), result });
  }
  for (const effect of effects) {
    if (effect.type === 'call-model') items.push(turnStarted(after));
    else if (effect.type === 'call-tool') items.push({ type: 'call-started', call: partOf(effect.call) });
    else if (effect.type === 'validate-output') items.push(...heldCalls(after));
  }
  return items;
}

/** The call that a validation answers begins with it. */
function heldCalls(state: State): readonly Item[] {
  return slotsOf(state).flatMap(({ type, call }) =>
    type === 'held' ? { type: 'call-started', call: partOf(call) } : [],
  );
}

function turnStarted({ turn, agent }: State): Item {
  return { type: 'turn-started', turn, ...(agent && { attempt: agent.attempt }) };
}

export function partOf({ id, name, arguments: text }: Call): ToolCall {
  return { type: 'tool-call', id, name, arguments: text };
}

/** The results of the turn's calls so far: recorded in the history if that was its end, else in the slots. */
function resultsOf(before: State, after: State): readonly (ToolResult | undefined)[] {
  if (before.phase.type === 'new') return [];
  for (let index = before.history.length; index < after.history.length; index++) {
    const message = after.history.items[index]!;
    if (message.role === 'tool') return message.content;
  }
  return slotsOf(after).map((slot) => (slot.type === 'settled' ? slot.result : undefined));
}

const NO_SLOTS: readonly Slot[] = [];

function slotsOf({ phase }: State): readonly Slot[] {
  return ('slots' in phase && phase.slots) || NO_SLOTS;
}

function callAt({ history }: State, index: number): ToolCall {
  let last = history.length - 1;
  while (history.items[last]!.role !== 'assistant') last--;
  let left = index;
  for (const part of history.items[last]!.content) if (part.type === 'tool-call' && left-- === 0) return part;
  throw new Error(`no call ${index}`);
}
