/**
 * Restores the conversation behind a client's request.
 *
 * A client continues a conversation in one of two ways. It names the previous response, and the server has the history
 * in the journal of that run. Or it sends the items of all earlier responses back, and then the history has to be
 * rebuilt from them, although clients do not send everything that the model needs:
 *
 * 1. An `item_reference` contains only an id, and some clients send `mcp_call` items without their output. Both are
 *    replaced by the stored item.
 * 2. Some clients do not know `mcp_call` items and drop them. They are inserted again from the stored output, or for a
 *    response that was not stored from its `encrypted_content`, so that the model sees which tools it called and what they
 *    returned.
 * 3. Clients that do not request `encrypted_content` drop the signatures of reasoning. Some providers reject a turn
 *    with calls without them, so they are added again from the journal, for the turns since the last user message.
 * 4. A call that the client had to approve has two items: the request for the approval, and, if it was decided, the call with
 *    its result in the next response. They are one call of the turn of the request.
 * 5. Items are grouped into turns: one assistant message with all that the model said and called in the turn, and one
 *    tool message with the results in call order. Ids of this server contain the turn; other items form one turn
 *    as long as they are adjacent.
 *
 * Steps 1 to 3 only fill gaps. Whatever a client sends explicitly is used unchanged.
 */
import type { AssistantPart } from '@treadle/core';
import type { RequestStore } from '@treadle/store';
import { badRequest } from '../api-error.ts';
import type { ConversationBefore } from './conversation.ts';
import { modelName } from '../engine/namespaces.ts';
import { SEARCH, type FunctionTool } from '../engine/tools.ts';
import { functionsIn } from '../parse/tools.ts';
import { readEntries, readRecord, type Reader, type StoredJournal } from '../engine/stored-reads.ts';
import { itemOrigin, newInputItemId } from '../ids.ts';
import { shownReply } from '../requests/projection.ts';
import {
  builtInAsFunctionCall,
  builtInAsFunctionOutput,
  isBuiltInCall,
  isBuiltInOutput,
} from '../apis/responses/built-in-calls.ts';
import { openCompaction } from '../apis/responses/compaction.ts';
import { unsealedReasoning, type ReasoningSeal, type TenantSeal } from '../apis/responses/reasoning-seal.ts';
import type {
  CompactionItem,
  InputItem,
  McpCallItem,
  OutputItem,
  ReasoningItem,
  ResponseResource,
} from '../apis/responses/wire.ts';
import {
  conversationFrom,
  unknownItem,
  type RestoredConversation,
  type FunctionCallWithText,
  type OpenedReasoning,
  type OpenedCompaction,
} from './restore-messages.ts';

export interface RestoredHistory extends RestoredConversation {
  /** The input with references replaced, as it is stored with the response. */
  readonly input: readonly InputItem[];
}

export interface RestoreOptions {
  /** The conversation that the request continues. */
  readonly before?: ConversationBefore | undefined;
  /** Called if items contain `encrypted_content`. */
  readonly seal: () => Promise<ReasoningSeal>;
  /** Called if there are items of type `compaction`. Absent: there are none. */
  readonly compactionSeal?: () => Promise<TenantSeal>;
  /** The items were accepted before, possibly by an earlier version. */
  readonly isStored?: boolean;
  /** So many items at the beginning were. */
  readonly accepted?: number;
  /** Reasoning that cannot be opened counts for what it shows. Default: it is refused. */
  readonly passesForeignReasoning?: boolean | undefined;
}

/**
 * The conversation that the items of a request represent, after `before`. Rejects with a 400 that names the item if a
 * reference, a tool result or an `encrypted_content` does not fit.
 */
export async function restoreHistory(
  items: readonly InputItem[],
  lookUp: LookUpResponse,
  { before, seal, compactionSeal, isStored = false, accepted = 0, passesForeignReasoning }: RestoreOptions,
): Promise<RestoredHistory> {
  const found = new Map<string, ReturnType<LookUpResponse>>();
  const lookUpOnce: LookUpResponse = (response) => {
    const stored = found.get(response) ?? lookUp(response);
    found.set(response, stored);
    return stored;
  };
  const input = await resolveReferences(items, lookUpOnce);
  const isTrusted = (index: number): boolean => isStored || index < accepted || items[index]!.type === 'item_reference';
  const calls = input.map((item, index) => asFunctionCall(item, isTrusted(index)));
  const readable = await openSealed(calls, { seal, compactionSeal, isTrusted, passesForeignReasoning });
  const withCalls = await insertServerCalls(insertCarriedCalls(readable), lookUpOnce);
  return { input, ...conversationFrom(await insertReasoning(withCalls, lookUpOnce), before) };
}

interface Seals extends Pick<RestoreOptions, 'seal' | 'passesForeignReasoning'> {
  readonly compactionSeal: RestoreOptions['compactionSeal'];
  /** The item at this index was read from the store. */
  readonly isTrusted: (index: number) => boolean;
}

/** Opens what this server has sealed. Rejects with a 400 for what it did not seal for the tenant. */
export async function openSealed(
  items: readonly InputItem[],
  { seal, compactionSeal, ...known }: Seals,
): Promise<readonly InputItem[]> {
  const opened = items.some(isSealed) ? openReasoning(items, await seal(), known) : items;
  return opened.some(isCompaction) ? openCompactions(opened, await compactionSeal!()) : opened;
}

// Stored responses

/** The parts of a stored response that clients may leave out. */
export interface StoredOutput {
  readonly output: readonly OutputItem[];
  /** The replies that contain signed reasoning, by the number of their turn. */
  readonly replies: ReadonlyMap<number, readonly AssistantPart[]>;
}

/** Resolves to undefined if the caller has no response with that id. */
export type LookUpResponse = (response: string) => Promise<StoredOutput | undefined>;

/**
 * Reads stored responses and caches them. A client that stores the conversation sends all of it with every request:
 * without a cache, reading every response each time would cost the square of the length of the conversation.
 */
export interface StoredOutputs {
  /** Resolves to undefined if the tenant has no response with that id. */
  lookUp(id: string, reader: Reader): Promise<StoredOutput | undefined>;
  /** The response was deleted. */
  forget(tenant: string, id: string): void;
}

export interface StoredOutputsOptions {
  readonly runs: StoredJournal;
  readonly requests: Pick<RequestStore, 'get' | 'sizeOf'>;
  /** The size of the cache; default 1,000. */
  readonly entries?: number;
  /** The largest entry, in characters of JSON; larger responses are read each time. Default 32,000. */
  readonly largest?: number;
}

export function storedOutputs(options: StoredOutputsOptions): StoredOutputs {
  const { runs, requests, entries = 1_000, largest = 32_000 } = options;
  const cache = new Map<string, StoredOutput>();
  const keyOf = (tenant: string, id: string): string => `${tenant} ${id}`;

  /** The least recently used entry is dropped. */
  function cacheOutput(key: string, stored: StoredOutput): void {
    cache.delete(key);
    cache.set(key, stored);
    if (cache.size > entries) cache.delete(cache.keys().next().value!);
  }

  return {
    async lookUp(id, reader) {
      const key = keyOf(reader.tenant, id);
      const cached = cache.get(key);
      if (cached) {
        cacheOutput(key, cached);
        return cached;
      }
      const record = await readRecord({ requests }, id, reader);
      const response = record?.response as ResponseResource | undefined;
      if (!record || !response) return undefined;
      const stored = { output: response.output, replies: await signedReplies(runs, record.runId, reader) };
      const size = JSON.stringify([stored.output, ...stored.replies.values()]).length;
      if (record.status !== 'in_progress' && size <= largest) cacheOutput(key, stored);
      return stored;
    },
    forget: (tenant, id) => void cache.delete(keyOf(tenant, id)),
  };
}

/** The id of the effect that calls the model is `t<turn>.model.<attempt>`. */
async function signedReplies(runs: StoredJournal, runId: string, reader: Reader): Promise<StoredOutput['replies']> {
  const replies = new Map<number, readonly AssistantPart[]>();
  for (const { event } of await readEntries(runs, runId, reader)) {
    if (event.type !== 'model-replied') continue;
    const turn = Number(/^t(\d+)\./.exec(event.effect)?.[1]);
    if (event.content.some((part) => part.type === 'reasoning' && part.signature !== undefined)) {
      replies.set(turn, event.content);
    } else replies.delete(turn);
  }
  return replies;
}

// Step 1: references

/** Rejects with a 400 for a reference to an item that does not exist. */
export async function resolveReferences(
  items: readonly InputItem[],
  lookUp: LookUpResponse,
): Promise<readonly InputItem[]> {
  const responses = new Set<string>();
  for (const item of items) {
    const origin = isPartial(item) ? itemOrigin(item.id) : undefined;
    if (origin) responses.add(origin.response);
  }
  const stored = new Map<string, InputItem>();
  for (const response of responses)
    for (const item of (await lookUp(response))?.output ?? []) stored.set(item.id, item);
  return items.map((item, index) => {
    if (!isPartial(item)) return item;
    const found = stored.get(item.id);
    if (item.type === 'mcp_call') return found?.type === 'mcp_call' ? found : item;
    if (found) return found;
    throw unknownItem(item.id, `input[${index}]`);
  });
}

function isPartial(item: InputItem): item is Extract<InputItem, { type: 'item_reference' | 'mcp_call' }> {
  return item.type === 'item_reference' || (item.type === 'mcp_call' && item.output === null && item.error === null);
}

// Calls of tools that take a text, of built-in tools, and searches for tools

/** Outputs that were accepted before may be of any call: earlier versions did not compare the types. */
function asFunctionCall(item: InputItem, wasAccepted: boolean): InputItem {
  if (isBuiltInCall(item)) return builtInAsFunctionCall(item);
  if (isBuiltInOutput(item)) {
    const output = builtInAsFunctionOutput(item);
    if (!wasAccepted) return output;
    const { onlyOf: _, ...accepted } = output;
    return accepted;
  }
  if (item.type === 'custom_tool_call_output') return { ...item, type: 'function_call_output' };
  if (item.type === 'tool_search_call' && 'call_id' in item) {
    const { id, call_id, arguments: given, status } = item;
    return { type: 'function_call', id, call_id, name: SEARCH, arguments: JSON.stringify(given), status };
  }
  if (item.type === 'tool_search_output' && 'call_id' in item) {
    const { id, call_id, tools, status } = item;
    return { type: 'function_call_output', id, call_id, output: foundTools(functionsIn(tools)), status };
  }
  if (item.type === 'function_call' && item.namespace !== undefined) {
    const { namespace, ...call } = item;
    return { ...call, name: modelName(call.name, namespace) };
  }
  if (item.type !== 'custom_tool_call') return item;
  const { id, call_id, name, namespace, input, status } = item;
  const call: FunctionCallWithText = {
    type: 'function_call',
    id,
    call_id,
    name: modelName(name, namespace),
    arguments: JSON.stringify({ input }),
    status,
    custom: true,
  };
  return call;
}

/** What the model is told about the tools that it gets. */
function foundTools(tools: readonly FunctionTool[]): string {
  if (tools.length === 0) return 'No tools were found.';
  return ['These tools were found, and can be called now:', ...tools.map(({ name }) => `- ${name}`)].join('\n');
}

// Reasoning that the server gave to the client

function isSealed(item: InputItem): item is ReasoningItem & { readonly encrypted_content: string } {
  return item.type === 'reasoning' && item.encrypted_content !== undefined;
}

/**
 * Opens the `encrypted_content` of reasoning. Throws a 400 for content that this server did not create for the tenant.
 * `isTrusted`: the item at this index was read from the store, so that content of an earlier version is valid, and that of
 * another server is ignored.
 */
export function openReasoning(
  items: readonly InputItem[],
  seal: ReasoningSeal,
  { isTrusted = () => false, passesForeignReasoning = false }: Partial<Omit<Seals, 'seal' | 'compactionSeal'>> = {},
): readonly InputItem[] {
  return items.map((item, index) => {
    if (!isSealed(item)) return item;
    const { encrypted_content: content } = item;
    const decoded = seal.open(content) ?? (isTrusted(index) ? unsealedReasoning(content) : undefined);
    if (decoded) return { ...item, decoded } satisfies OpenedReasoning;
    if (isTrusted(index) || passesForeignReasoning) return item;
    throw badRequest(
      `The encrypted content of the item '${item.id}' could not be verified. It was changed or cut off, or another server, an earlier version or a server for another tenant created it. Send the item without 'encrypted_content', or continue with 'previous_response_id'.`,
      `input[${index}].encrypted_content`,
      'invalid_encrypted_content',
    );
  });
}

// Conversations that were compacted

function isCompaction(item: InputItem): item is CompactionItem {
  return item.type === 'compaction';
}

/** Throws a 400 for a compaction that this server did not create for the tenant. */
function openCompactions(items: readonly InputItem[], seal: TenantSeal): readonly InputItem[] {
  return items.map((item, index) => {
    if (!isCompaction(item)) return item;
    const opened = openCompaction(item.encrypted_content, seal);
    if (opened) return { ...item, opened } satisfies OpenedCompaction;
    throw badRequest(
      `The compaction '${item.id}' could not be verified. It was changed or cut off, or another server or a server for another tenant created it. Send the conversation itself.`,
      `input[${index}].encrypted_content`,
      'invalid_encrypted_content',
    );
  });
}

// Step 2: calls of the server

/** Replaces items that contain calls of the server by those calls. What the client sends itself is used. */
export function insertCarriedCalls(items: readonly InputItem[]): readonly InputItem[] {
  const carried = new Map<string, McpCallItem>();
  for (const item of items) for (const call of carriedBy(item)) carried.set(call.id, call);
  if (carried.size === 0) return items;
  const sent = new Set(items.flatMap((item) => (item.type === 'mcp_call' ? (knownId(item) ?? contentKey(item)) : [])));
  return items.flatMap((item): InputItem | readonly InputItem[] => {
    if (isCarrier(item)) return carriedBy(item).filter((call) => !sent.has(call.id) && !sent.has(contentKey(call)));
    return isPartial(item) ? (carried.get(item.id) ?? item) : item;
  });
}

/** Some clients do not preserve the id of a call. */
function knownId({ id }: McpCallItem): string | undefined {
  return itemOrigin(id) && id;
}

function contentKey({ name, arguments: json }: McpCallItem): string {
  return `${name} ${json}`;
}

function isCarrier(item: InputItem): item is OpenedReasoning {
  return item.type === 'reasoning' && (item as OpenedReasoning).decoded?.calls !== undefined;
}

function carriedBy(item: InputItem): readonly McpCallItem[] {
  return isCarrier(item) ? item.decoded!.calls! : [];
}

/**
 * Inserts the server's calls of every response of which the input has an item, but no call of the server. A client that
 * sends some of the server's calls has left out the others deliberately.
 */
export async function insertServerCalls(
  items: readonly InputItem[],
  lookUp: LookUpResponse,
): Promise<readonly InputItem[]> {
  const incomplete = new Set<string>();
  for (const item of items) {
    const origin = item.type === 'function_call_output' ? undefined : itemOrigin(callOrItemId(item));
    if (origin) incomplete.add(origin.response);
  }
  for (const item of items) {
    if (item.type !== 'mcp_call') continue;
    const origin = itemOrigin(item.id);
    // The client did not preserve its id, so it may belong to any of the responses.
    if (!origin) return items;
    incomplete.delete(origin.response);
  }
  const gaps = new Map<string, Gap>();
  for (const response of incomplete) {
    const output = (await lookUp(response))?.output ?? [];
    if (!output.some(({ type }) => type === 'mcp_call')) continue;
    const positions = new Map(output.map((item, index) => [callOrItemId(item), index]));
    gaps.set(response, { output, positions, next: 0, last: -1 });
  }
  return gaps.size === 0 ? items : withCallsOf(gaps, items);
}

/** A response of which the input lacks the calls of the server. */
interface Gap {
  readonly output: readonly OutputItem[];
  /** The index of each item of the output. */
  readonly positions: ReadonlyMap<string, number>;
  /** The index of the first item of the output whose place in the input is not known yet. */
  next: number;
  /** The index of the last item in the input that is one of the output. */
  last: number;
}

/** Inserts each call before the first sent item that follows it in the output. */
function withCallsOf(gaps: ReadonlyMap<string, Gap>, items: readonly InputItem[]): readonly InputItem[] {
  const result: InputItem[] = [];
  const addCalls = (gap: Gap, end: number): void => {
    for (; gap.next < end; gap.next++) {
      const item = gap.output[gap.next]!;
      if (item.type === 'mcp_call') result.push(item);
    }
  };
  const places = items.map((item, position) => {
    const id = callOrItemId(item);
    const gap = gaps.get(itemOrigin(id)?.response ?? '');
    const index = gap?.positions.get(id);
    if (gap && index !== undefined) gap.last = position;
    return { gap, index };
  });
  for (const [position, item] of items.entries()) {
    const { gap, index } = places[position]!;
    if (gap && index !== undefined) addCalls(gap, index);
    result.push(item);
    if (gap?.last === position) addCalls(gap, gap.output.length);
  }
  return result;
}

/** Clients preserve the ids of calls, but not always those of their items. */
function callOrItemId(item: InputItem): string {
  return 'call_id' in item && !item.type.endsWith('_output') ? item.call_id : item.id;
}

// Step 3: reasoning

/**
 * Adds what the model needs to get back to the reasoning of turns with calls since the last user message. A turn is left
 * unchanged if its reasoning has `encrypted_content` already, or if the client sent less reasoning than was shown.
 */
export async function insertReasoning(
  items: readonly InputItem[],
  lookUp: LookUpResponse,
): Promise<readonly InputItem[]> {
  const signed = new Map<number, InputItem>();
  const hiddenAfter = new Map<number, readonly InputItem[]>();
  for (const { response, number, reasoning, last } of turnsWithoutSignatures(items)) {
    const reply = (await lookUp(response))?.replies.get(number);
    if (!reply) continue;
    const { parts, hidden } = shownReply(reply);
    const shown = parts.flatMap((part) => ('first' in part ? part.first : []));
    if (shown.length !== reasoning.length) continue;
    for (const [nth, index] of reasoning.entries()) {
      const first = shown[nth]!;
      const item = items[index] as ReasoningItem;
      const opened: OpenedReasoning = { ...item, decoded: { part: first } };
      if (first.signature !== undefined) signed.set(index, opened);
    }
    hiddenAfter.set(
      last,
      hidden.map((decoded): OpenedReasoning => {
        return { type: 'reasoning', id: newInputItemId('rs'), status: 'completed', summary: [], decoded };
      }),
    );
  }
  if (signed.size === 0 && hiddenAfter.size === 0) return items;
  return items.flatMap((item, index) => [signed.get(index) ?? item, ...(hiddenAfter.get(index) ?? [])]);
}

interface SentTurn {
  readonly response: string;
  readonly number: number;
  /** The indices of its reasoning items, and of its last item. */
  readonly reasoning: number[];
  last: number;
  hasCalls: boolean;
  isSigned: boolean;
}

function turnsWithoutSignatures(items: readonly InputItem[]): readonly SentTurn[] {
  const from = items.findLastIndex((item) => item.type === 'message' && item.role === 'user') + 1;
  const turns = new Map<string, SentTurn>();
  for (const [offset, item] of items.slice(from).entries()) {
    const index = from + offset;
    const origin = itemOrigin(callOrItemId(item));
    if (!origin || item.type === 'function_call_output') continue;
    const { response, turnKey, turn: number } = origin;
    const turn = turns.get(turnKey) ?? {
      response,
      number,
      reasoning: [],
      last: index,
      hasCalls: false,
      isSigned: false,
    };
    turns.set(turnKey, turn);
    turn.last = index;
    if (item.type !== 'message' && item.type !== 'reasoning') turn.hasCalls = true;
    if (item.type !== 'reasoning') continue;
    turn.reasoning.push(index);
    if (item.encrypted_content !== undefined) turn.isSigned = true;
  }
  return [...turns.values()].filter(({ hasCalls, isSigned }) => hasCalls && !isSigned);
}
