import type { AssistantPart, Item, ModelDelta } from '@treadle/core';

/** Returns a number from 0 to below `most`. */
export type Pick = (most: number) => number;

/** The same numbers for the same seed. */
export function picking(seed: number): Pick {
  let state = seed >>> 0;
  return (most) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * most);
  };
}

/**
 * A reply as the deltas that a provider may send: split at any position, parts started in order, and deltas of a started
 * call between those of later parts.
 */
export function inPieces(content: readonly AssistantPart[], pick: Pick): ModelDelta[] {
  const deltas: ModelDelta[] = [];
  const begun: ModelDelta[][] = [];
  let calls = 0;
  const some = (): void => {
    while (begun.length > 0 && pick(3) === 0) {
      const piece = begun[pick(begun.length)]!.shift();
      if (piece) deltas.push(piece);
    }
  };
  for (const part of content) {
    some();
    if (part.type === 'tool-call') {
      const call = calls++;
      const pieces = cut(part.arguments, pick).map((text) => callDelta(call, part.name, text));
      if (pick(2) === 0) pieces.unshift(callDelta(call, part.name, ''));
      deltas.push(pieces.shift() ?? callDelta(call, part.name, ''));
      begun.push(pieces);
      continue;
    }
    for (const text of cut(part.text, pick)) {
      if (part.type === 'text') deltas.push({ type: 'text-delta', text, ...(part.refusal && { refusal: true }) });
      else deltas.push({ type: 'reasoning-delta', text, ...(part.summary && { summary: true }) });
      some();
    }
  }
  return [...deltas, ...begun.flat()];
}

/** The same run with other deltas. */
export function recut(items: readonly Item[], pick: Pick): Item[] {
  return items.flatMap((item): Item[] => {
    if (item.type === 'text-delta' || item.type === 'reasoning-delta') {
      return cut(item.text, pick).map((text) => ({ ...item, text }));
    }
    if (item.type !== 'call-delta' || item.arguments === '') return [item];
    return cut(item.arguments, pick).map((text) => ({ ...item, arguments: text }));
  });
}

/** The same run with fewer deltas: the last ones of each reply are missing, or all. */
export function withoutTails(items: readonly Item[], pick: Pick): Item[] {
  const kept: Item[] = [];
  for (const item of items) {
    if (item.type === 'fact' && item.event.type === 'model-replied') {
      let first = kept.length;
      while (first > 0 && isPiece(kept[first - 1]!)) first--;
      kept.splice(first + pick(kept.length - first + 1));
    }
    kept.push(item);
  }
  return kept;
}

export function isPiece({ type }: Item): boolean {
  return type === 'text-delta' || type === 'reasoning-delta' || type === 'call-delta';
}

function cut(text: string, pick: Pick): string[] {
  const pieces: string[] = [];
  for (let at = 0; at < text.length;) {
    const next = at + 1 + pick(text.length);
    pieces.push(text.slice(at, next));
    at = next;
  }
  return pieces;
}

function callDelta(call: number, name: string, text: string): ModelDelta {
  return { type: 'call-delta', call, name, arguments: text };
}
