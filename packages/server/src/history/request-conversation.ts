import type { RequestHead } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { isChatRecord } from './conversation-records.ts';
import {
  conversationHistories,
  inOwnInput,
  type ConversationHistories,
  type ContinuedConversation,
} from './conversation-history.ts';
import {
  conversationBefore,
  conversationSize,
  sharedConversations,
  storedState,
  type Conversation,
  type ConversationBefore,
  type ConversationParts,
} from './conversation.ts';
import type { ServerStore } from '../engine/engine.ts';
import type { RequestKind } from '../requests/requests.ts';
import type { RunPlan } from '../requests/run.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import type { FunctionTool, RunCaller } from '../engine/tools.ts';
import { functionsIn } from '../parse/tools.ts';
import { itemOrigin, newResponseId } from '../ids.ts';
import type { ResponseRequest } from '../apis/responses/parse-request.ts';
import type { ReasoningSeal, TenantSeal } from '../apis/responses/reasoning-seal.ts';

import { openSealed, resolveReferences, restoreHistory, storedOutputs } from './restore-history.ts';
import type { RestoredHistory, RestoreOptions } from './restore-history.ts';
import { conversationFrom } from './restore-messages.ts';
import type { InputItem, ResponseResource } from '../apis/responses/wire.ts';

/*
 * What a request continues, and what the next request continues: a response, a conversation, or a response that is not stored.
 */
export interface RequestConversations {
  /** The conversation of a request: that of the response that it continues, and its own input. */
  requestConversation(
    request: ResponseRequest,
    caller: RunCaller,
    options: ConversationOptions,
  ): Promise<RequestConversation>;
  /** Keeps what the next request of the same client needs to continue a response that is not stored. */
  keepConversation(
    plan: RunPlan,
    parts: ConversationParts,
    response: Pick<ResponseResource, 'id' | 'status'>,
    local: LocalConversations,
  ): Promise<void>;
  /** Keeps the input of a request for the next one, without a run. Returns the id by which that continues it. */
  keepInput(request: ResponseRequest, caller: RunCaller, local: LocalConversations): Promise<string>;
  /** The histories of conversations, for runs of both APIs. */
  readonly histories: ConversationHistories;
  /** Items that a client adds to a conversation, with references replaced. Rejects with a 400 for what cannot be read. */
  acceptItems(items: readonly InputItem[], reader: Reader): Promise<readonly InputItem[]>;
  /** Forgets the output of a response that was deleted. */
  forgetOutput(tenant: string, response: string): void;
}

/** The conversations of responses that are not stored, for requests of the same client that continue them. */
export interface LocalConversations {
  find(response: string): LocalConversation | undefined;
  /** `size`: in characters. */
  keep(response: string, conversation: LocalConversation, size: number): void;
}

export interface LocalConversation {
  /** What the last run ended with. Absent: no run has started. */
  readonly before?: ConversationBefore | undefined;
  /** What no run has read yet. */
  readonly added: readonly InputItem[];
}

interface ConversationOptions extends Pick<Reader, 'hold'> {
  /** The request was accepted before. */
  readonly isStored?: boolean;
  /** Of such a request: the newest record of its conversation when it was accepted. */
  readonly upTo?: string | undefined;
  readonly local?: LocalConversations | undefined;
}

interface RequestConversation {
  readonly input: ResponseRequest['input'];
  readonly system: readonly string[];
  readonly conversation: Conversation;
  /** The conversation that the request continues. */
  readonly before: ConversationBefore | undefined;
  /** The bytes that were counted while it was read. */
  readonly counted: number;
  /** The labels of the servers whose tools it contains. */
  readonly reported: ReadonlySet<string>;
  /** The tools of the client that its items declare. */
  readonly declared: readonly FunctionTool[];
  /** Set if the response becomes the newest record of a conversation. */
  readonly continues?: ContinuedConversation;
}

interface RequestConversationsOptions {
  readonly store: ServerStore;
  readonly sealFor: (tenant: string) => Promise<ReasoningSeal>;
  readonly compactionSealFor: (tenant: string) => Promise<TenantSeal>;
}

export function requestConversations(options: RequestConversationsOptions): RequestConversations {
  const { store, sealFor, compactionSealFor } = options;
  const records = store.requests;
  const outputs = storedOutputs({ runs: store, requests: records });
  const shareConversation = sharedConversations();
  const histories = conversationHistories({ store, readRun: conversationAfter, restore });

  async function requestConversation(
    request: ResponseRequest,
    caller: RunCaller,
    { isStored = false, upTo, local, hold }: ConversationOptions,
  ): Promise<RequestConversation> {
    let counted = 0;
    const count = (bytes: number): void => {
      hold?.(bytes);
      counted += bytes;
    };
    if (request.conversation !== undefined) {
      const accepted = isStored ? { previous: upTo } : undefined;
      const { restored, before, continues } = await histories.forRequest(
        request,
        { ...caller, hold: hold && count },
        accepted,
      );
      return { ...withInput(request, restored, before, continues.conversation.instructions), counted, continues };
    }
    const reader = { tenant: caller.tenant, hold: hold && count };
    const { before, added } = await continuedConversation(request, reader, local);
    const { passesForeignReasoning } = request;
    const options = { before, isStored, passesForeignReasoning };
    const restored = await restore([...added, ...request.input], reader, options).catch((error: unknown) => {
      throw error instanceof ApiError ? inOwnInput(error, added.length, 'previous_response_id') : error;
    });
    return { ...withInput(request, restored, before), counted };
  }

  /** What a request without a conversation continues. */
  async function continuedConversation(
    { previous }: ResponseRequest,
    reader: Reader,
    local: LocalConversations | undefined,
  ): Promise<LocalConversation> {
    if (previous === undefined) return NOTHING_BEFORE;
    return local?.find(previous) ?? { before: await previousConversation(previous, reader), added: [] };
  }

  async function keepInput(
    request: ResponseRequest,
    { tenant }: RunCaller,
    local: LocalConversations,
  ): Promise<string> {
    const { before, added } = await continuedConversation(request, { tenant }, local);
    const id = newResponseId();
    keepLocally({ before, added: [...added, ...request.input] }, id, local);
    return id;
  }

  async function restore(
    items: readonly InputItem[],
    reader: Reader,
    options: Pick<RestoreOptions, 'before' | 'isStored' | 'accepted' | 'passesForeignReasoning'>,
  ): Promise<RestoredHistory> {
    const { tenant } = reader;
    if (items.every(isNewMessage)) return { input: items, ...conversationFrom(items, options.before) };
    return restoreHistory(items, (response) => outputs.lookUp(response, reader), {
      ...options,
      seal: () => sealFor(tenant),
      compactionSeal: () => compactionSealFor(tenant),
    });
  }

  function withInput(
    { instructions = '' }: ResponseRequest,
    { input, messages, system, open }: RestoredHistory,
    before: ConversationBefore | undefined,
    told = '',
  ): Omit<RequestConversation, 'counted' | 'continues'> {
    const sent = input.flatMap((item) =>
      item.type === 'mcp_list_tools' && item.error === undefined ? item.server_label : [],
    );
    return {
      input,
      system,
      conversation: {
        messages,
        instructions: [told, instructions, ...system],
        ...(open && { open }),
        carried: before?.carried,
        after: before?.after,
      },
      before,
      reported: new Set([...(before?.reported ?? []), ...sent]),
      declared: withTools(before?.declared ?? [], input.flatMap(declaredBy)),
    };
  }

  /** The conversation that another response continues. */
  async function previousConversation(previous: string, reader: Reader): Promise<ConversationBefore> {
    const found = await records.head(reader.tenant, previous);
    const record = found?.kind === ('response' satisfies RequestKind) ? found : undefined;
    if (record?.status === 'in_progress') {
      const message = `The response ${JSON.stringify(previous)} is in progress. Wait until it has ended, or cancel it.`;
      throw new ApiError(409, 'invalid_request_error', message, {
        param: 'previous_response_id',
        code: 'response_in_progress',
      });
    }
    const before = record && (await conversationAfter(record, reader));
    if (before) return before;
    const message = `There is no response ${JSON.stringify(previous)} to continue from. It was deleted, was not stored, or never existed.`;
    throw badRequest(message, 'previous_response_id', 'previous_response_not_found');
  }

  /** The conversation that a run of either API ended or paused with. Undefined: it never started. */
  async function conversationAfter(
    record: RequestHead,
    { tenant, hold }: Reader,
  ): Promise<ConversationBefore | undefined> {
    // Each request counts it, also if they share it.
    const bytes = hold ? await store.sizeOf(record.runId) : 0;
    if (bytes > 0) hold!(bytes);
    return shareConversation(`${record.id} ${record.status} ${record.updatedAt}`, async () => {
      const parts = await partsOf(tenant, record.id);
      const state = await storedState(store, record.runId, { tenant });
      if (!state || !parts) return undefined;
      const { open, ...before } = conversationBefore(record.runId, state, parts.system);
      // The run of a chat waits for nobody after its end. Its calls are unanswered only if it was not possible to cancel it.
      return { ...before, ...parts, ...(open && !isChatRecord(record.id) && { open }) };
    });
  }

  /** What a conversation has besides its messages, without the request that contains it, which can be large. */
  async function partsOf(tenant: string, response: string): Promise<ConversationParts | undefined> {
    const record = await readRecord(store, response, { tenant });
    if (!record) return undefined;
    const { system = [], reported, declared } = record.request as Partial<ConversationParts>;
    return { system, ...(reported && { reported }), ...(declared && { declared }) };
  }

  async function keepConversation(
    { journal, caller: { tenant } }: RunPlan,
    parts: ConversationParts,
    { id, status }: Pick<ResponseResource, 'id' | 'status'>,
    local: LocalConversations,
  ): Promise<void> {
    const state = status === 'failed' ? undefined : await storedState(journal!, id, { tenant });
    if (!state) return;
    keepLocally({ before: { ...conversationBefore(id, state, parts.system), ...parts }, added: [] }, id, local);
  }

  return {
    requestConversation,
    keepConversation,
    keepInput,
    histories,
    async acceptItems(items, reader) {
      const { tenant } = reader;
      const known = await resolveReferences(items, (response) => outputs.lookUp(response, reader));
      await openSealed(known, {
        seal: () => sealFor(tenant),
        compactionSeal: () => compactionSealFor(tenant),
        isTrusted: (index) => items[index]!.type === 'item_reference',
      });
      return known;
    },
    forgetOutput: outputs.forget,
  };
}

const NOTHING_BEFORE: LocalConversation = { added: [] };

function keepLocally(conversation: LocalConversation, id: string, local: LocalConversations): void {
  const { before, added } = conversation;
  const { messages = [], system = [], declared = [] } = before ?? {};
  const others = added.length + declared.length === 0 ? 0 : JSON.stringify([added, declared]).length;
  local.keep(id, conversation, conversationSize({ messages, instructions: system }) + others);
}

/** The tools of a client that an item declares. What a search has found is not deferred any more. */
function declaredBy(item: InputItem): readonly FunctionTool[] {
  if (item.type === 'additional_tools') return functionsIn(item.tools);
  if (item.type !== 'tool_search_output' || !('tools' in item)) return [];
  return functionsIn(item.tools).map(({ deferred: _, ...tool }) => tool);
}

/** Of two tools with the same name, the later one counts. */
export function withTools(tools: readonly FunctionTool[], later: readonly FunctionTool[]): readonly FunctionTool[] {
  if (later.length === 0) return tools;
  return [...new Map([...tools, ...later].map((tool) => [tool.name, tool])).values()];
}

/** Whether nothing of an earlier response belongs to an item, so that there is nothing to restore. */
function isNewMessage(item: InputItem): boolean {
  return item.type === 'message' && item.role !== 'assistant' && itemOrigin(item.id) === undefined;
}
