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
  const was = slotsOf(before);
  const slots = slotsOf(after);
  const recorded = recordedBetween(before, after);
  const count = recorded ? recorded.length : slots.length;
  for (let index = 0; index < count; index++) {
    const result = recorded ? recorded[index] : resultIn(slots[index]!);
    if (result && was[index]?.type !== 'settled') items.push(callAnswered(after, index, result));
  }
  for (let i = 0; i < effects.length; i++) {
    const effect = effects[i]!;
    if (effect.type === 'call-model') items.push(turnStarted(after));
    else if (effect.type === 'call-tool') items.push(callStarted(effect.call));
    else if (effect.type === 'validate-output') items.push(...heldCalls(after));
  }
  return items;
}

function callStarted(call: Call): Item {
  return { type: 'call-started', index: call.index, call: partOf(call) };
}

/** The call that a validation answers begins with it. */
function heldCalls(state: State): readonly Item[] {
  return slotsOf(state).flatMap(({ type, call }) => (type === 'held' ? callStarted(call) : []));
}

function turnStarted({ turn, agent }: State): Item {
  return { type: 'turn-started', turn, ...(agent && { attempt: agent.attempt }) };
}

export function partOf({ id, name, arguments: text }: Call): ToolCall {
  return { type: 'tool-call', id, name, arguments: text };
}

/** The results of the turn's calls, if that was its end; until then they are in the slots. */
function recordedBetween(before: State, after: State): readonly ToolResult[] | undefined {
  if (before.phase.type === 'new') return undefined;
  for (let index = before.history.length; index < after.history.length; index++) {
    const message = after.history.items[index]!;
    if (message.role === 'tool') return message.content;
  }
  return undefined;
}

function resultIn(slot: Slot): ToolResult | undefined {
  return slot.type === 'settled' ? slot.result : undefined;
}

const NO_SLOTS: readonly Slot[] = [];

function slotsOf({ phase }: State): readonly Slot[] {
  return ('slots' in phase && phase.slots) || NO_SLOTS;
}

function callAnswered(state: State, index: number, result: ToolResult): Item {
  return { type: 'call-answered', index, call: callAt(state, index), result };
}

function callAt({ history }: State, index: number): ToolCall {
  let last = history.length - 1;
  while (history.items[last]!.role !== 'assistant') last--;
  let left = index;
  for (const part of history.items[last]!.content) if (part.type === 'tool-call' && left-- === 0) return part;
  throw new Error(`no call ${index}`);
}
