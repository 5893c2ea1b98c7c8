import { createHash, randomFillSync } from 'node:crypto';

/**
 * Ids on the wire. Ids of items and calls are derived and never stored: `<prefix>_<response>_<turn>_<number>`. They
 * cannot be the provider's: models repeat the ids of calls, and an item is streamed before the provider's id for it is
 * known. From an id that a client sends back, the server reads which turn of which response the item belongs to.
 */

const ID_BYTES = 16;
/** Random bytes for many ids: a call of the generator costs more than an id. */
const pool = Buffer.alloc(256 * ID_BYTES);
let used = pool.length;

/** 32 hex digits, 128 random bits. */
function randomHex(): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += ID_BYTES;
  return pool.toString('hex', used - ID_BYTES, used);
}

export function newRequestId(): string {
  return `req_${randomHex()}`;
}

export const RESPONSE_PREFIX = 'resp_';

/** Begins the id of a record that exists only for its idempotency key. No client can name it. The rest is the id on the wire. */
export const KEYED_PREFIX = 'keyed_';

export function newResponseId(): string {
  return RESPONSE_PREFIX + randomHex();
}

export const CONVERSATION_PREFIX = 'conv_';

export function newConversationId(): string {
  return CONVERSATION_PREFIX + randomHex();
}

/**
 * The id of a conversation that a front end names. Each tenant has its own names: a name of another tenant, also the id of its
 * conversation, is free.
 */
export function derivedConversationId(tenant: string, name: string): string {
  const digest = createHash('sha256')
    .update(JSON.stringify([tenant, name]))
    .digest('hex');
  return CONVERSATION_PREFIX + digest.slice(0, 2 * ID_BYTES);
}

/** Begins the id of the record of a message in a conversation. The rest is that of its run. */
export const MESSAGE_PREFIX = 'chat_';

/** Begins the id of a message of the Messages API, which is also that of its record. The rest is that of its run. */
const WIRE_MESSAGE_PREFIX = 'msg_';

export function wireMessageId(runId: string): string {
  return WIRE_MESSAGE_PREFIX + runId.slice(RESPONSE_PREFIX.length);
}

/** The id of the record of the turns that the client of a message does not have in full. */
export function keptTurnsId(runId: string): string {
  return `turns_${runId.slice(RESPONSE_PREFIX.length)}`;
}

/** Begins the id of the record of items that a client has added to a conversation. They have no run. */
export const ITEMS_PREFIX = 'items_';

export function newItemsId(): string {
  return ITEMS_PREFIX + randomHex();
}

/** Begins the id of the record of a call over MCP, which is also that of its run. */
export const MCP_CALL_PREFIX = 'mcp_';

export function newMcpCallId(): string {
  return MCP_CALL_PREFIX + randomHex();
}

/** The id of an output item. `number` counts the items of the turn in the order in which they opened. */
export function itemId(kind: ItemKind, response: string, turn: number, number: number): string {
  return derivedId(PREFIXES[kind], response, turn, number);
}

export type ItemKind =
  | 'message'
  | 'reasoning'
  | 'mcp_call'
  | 'mcp_list_tools'
  | 'function_call'
  | 'custom_tool_call'
  | 'tool_search_call'
  | 'shell_call'
  | 'local_shell_call'
  | 'apply_patch_call'
  | 'compaction';

const PREFIXES: Readonly<Record<ItemKind, string>> = {
  message: 'msg',
  reasoning: 'rs',
  mcp_call: 'mcp',
  mcp_list_tools: 'mcpl',
  function_call: 'fc',
  custom_tool_call: 'ctc',
  tool_search_call: 'tsc',
  shell_call: 'sh',
  local_shell_call: 'lsh',
  apply_patch_call: 'apc',
  compaction: 'cmp',
};

/** The `call_id` of a call. `index` counts the calls of the reply. */
export function callIdFor(response: string, turn: number, index: number): string {
  return derivedId('call', response, turn, index);
}

/** The id of a call in the Messages API. */
export function toolUseIdFor(response: string, turn: number, index: number): string {
  return derivedId('toolu', response, turn, index);
}

/** The id of the `mcp_approval_request` for a call. `index` counts the calls of the reply. */
export function approvalIdFor(response: string, turn: number, index: number): string {
  return derivedId('mcpr', response, turn, index);
}

/** An id for an item that no client has sent. It does not name a turn. */
export function newInputItemId(prefix: string): string {
  return `${prefix}_${randomHex()}`;
}

/** What a derived id contains. */
export interface ItemOrigin {
  /** The id of the response that the item is an output of. */
  readonly response: string;
  /** Equal for all items of one turn of one response, and for no others. */
  readonly turnKey: string;
  readonly turn: number;
  /** The number of the item in its turn; of a `call_id` and an approval request, the index of the call in its turn. */
  readonly number: number;
}

const DERIVED = /^(?:msg|rs|mcp|mcpl|mcpr|fc|ctc|tsc|sh|lsh|apc|cmp|call|toolu)_([0-9a-f]{32})_(\d{1,9})_(\d{1,9})$/;

/** Undefined for an id that this server did not derive. */
export function itemOrigin(id: string): ItemOrigin | undefined {
  const [, hex, turn, number] = DERIVED.exec(id) ?? [];
  if (hex === undefined) return undefined;
  return { response: RESPONSE_PREFIX + hex, turnKey: `${hex}_${turn}`, turn: Number(turn), number: Number(number) };
}

function derivedId(prefix: string, response: string, turn: number, number: number): string {
  return `${prefix}_${response.slice(RESPONSE_PREFIX.length)}_${turn}_${number}`;
}
