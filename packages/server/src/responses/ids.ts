import { randomHex } from '../random-hex.ts';

/**
 * Ids of items on the wire are derived and kept nowhere: `<prefix>_<response>_<turn>_<number>`. Models repeat the ids of
 * calls, and an item is told of before the provider's own id for it is known. So the turn that an item came from can be
 * read from what a client sends back.
 */

/** Of what clients name a response by. */
export const RESPONSE_PREFIX = 'resp_';

export function newResponseId(): string {
  return RESPONSE_PREFIX + randomHex();
}

/** Of an item: `number` counts the items of its turn in the order in which they opened. */
export function itemId(kind: ItemKind, response: string, turn: number, number: number): string {
  return made(PREFIXES[kind], response, turn, number);
}

export type ItemKind = 'message' | 'reasoning' | 'mcp_call' | 'function_call';

const PREFIXES: Readonly<Record<ItemKind, string>> = {
  message: 'msg',
  reasoning: 'rs',
  mcp_call: 'mcp',
  function_call: 'fc',
};

/** `call_id` of a call: `index` counts the calls of the reply. */
export function callIdFor(response: string, turn: number, index: number): string {
  return made('call', response, turn, index);
}

/** For an item that came without one. It names no turn. */
export function inputItemId(prefix: string): string {
  return `${prefix}_${randomHex()}`;
}

/** What an id of ours says. */
export interface ItemPlace {
  /** The id of the response whose output it is in. */
  readonly response: string;
  /** The same for all items of one turn, and for no others. */
  readonly turn: string;
  /** Which turn of the response that is. */
  readonly turnNumber: number;
  /** Of an item: counts the turn's items. Of a call id: the place of the call among the turn's. */
  readonly n: number;
}

const OURS = /^(?:msg|rs|mcp|fc|call)_([0-9a-f]{32})_(\d{1,9})_(\d{1,9})$/;

/** Absent: the id is of somebody else. */
export function placeOf(id: string): ItemPlace | undefined {
  const [, hex, turn, n] = OURS.exec(id) ?? [];
  if (hex === undefined) return undefined;
  return { response: RESPONSE_PREFIX + hex, turn: `${hex}_${turn}`, turnNumber: Number(turn), n: Number(n) };
}

function made(prefix: string, response: string, turn: number, number: number): string {
  return `${prefix}_${response.slice(RESPONSE_PREFIX.length)}_${turn}_${number}`;
}
