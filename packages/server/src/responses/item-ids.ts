import { randomHex } from '../random-hex.ts';

/** What an id of ours says: `fc_<response>_<turn>_<n>`. */
export interface ItemPlace {
  /** The id of the response whose output it is in. */
  readonly response: string;
  /** The same for all items of one turn, and for no others. */
  readonly turn: string;
  /** Of an item: counts the turn's items. Of a call id: the place of the call among the turn's. */
  readonly n: number;
}

const OURS = /^(?:msg|rs|mcp|fc|call)_([0-9a-f]{32})_(\d{1,9})_(\d{1,9})$/;

/** Absent: the id is of somebody else. */
export function placeOf(id: string): ItemPlace | undefined {
  const [, response, turn, n] = OURS.exec(id) ?? [];
  if (response === undefined) return undefined;
  return { response: `resp_${response}`, turn: `${response}_${turn}`, n: Number(n) };
}

/** For an item that came without one. It names no turn. */
export function inputItemId(prefix: string): string {
  return `${prefix}_${randomHex()}`;
}
