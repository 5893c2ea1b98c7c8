/**
 * Ids on the wire are derived and kept nowhere: `<prefix>_<response>_<turn>_<number>`. Models repeat the ids of calls,
 * and an item is told of before the provider's own id for it is known. So the turn that an item came from can be read
 * from what a client sends back (`item-ids.ts`).
 */

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

export interface CallPlace {
  /** The response's id. */
  readonly response: string;
  readonly turn: number;
  readonly index: number;
}

/** Undefined if the call is none of ours. */
export function readCallId(callId: string): CallPlace | undefined {
  const [, response, turn, index] = CALL_ID.exec(callId) ?? [];
  return response === undefined
    ? undefined
    : { response: `resp_${response}`, turn: Number(turn), index: Number(index) };
}

const CALL_ID = /^call_([0-9a-f]{32})_(\d{1,9})_(\d{1,9})$/;

function made(prefix: string, response: string, turn: number, number: number): string {
  return `${prefix}_${response.slice('resp_'.length)}_${turn}_${number}`;
}
