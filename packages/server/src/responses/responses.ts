import { memoryJournal, requestTokens, type Model, type ModelError, type ToolResult } from '@treadle/core';
import type { OwnedResponse, ResponseHead, ResponseRecord } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { addToChain, isBusy, isChatRecord } from '../conversations/chain.ts';
import { chainHistories, type ChainHistories, type ContinuedChain } from '../conversations/chain-history.ts';
import { itemsOfRecord, searchText, titleOfItems } from '../conversations/chain-items.ts';
import {
  conversationBefore,
  conversationSize,
  sharedConversations,
  storedState,
  type ApprovedCall,
  type Conversation,
  type ConversationBefore,
  type OpenTurn,
} from '../engine/conversation.ts';
import type { EventWriter } from '../engine/event-log.ts';
import { modelNamed, type ActiveRun, type Capacity, type Engine } from '../engine/engine.ts';
import { isKeyTaken, type RequestKey } from '../engine/idempotency.ts';
import { acceptsMedia, checkSettings, notTaken } from '../engine/request-model.ts';
import { driveRequest, planRun, whileOpen, type ResumedRun, type RunEnd, type RunPlan } from '../engine/run.ts';
import { holdStored, readRecord, type Reader } from '../engine/stored-reads.ts';
import {
  isDrivenElsewhere,
  isOpenRecord,
  retryLater,
  TAKEN_OVER,
  type FinalEnd,
  type Interruption,
  type RepeatedRequest,
  type StoredEnd,
  type StoredRuns,
} from '../engine/stored-runs.ts';
import { storedStreams } from '../engine/stored-streams.ts';
import type { RunCaller, ServerList } from '../engine/tools.ts';
import type { Caller } from '../http/admission.ts';
import { itemOrigin, KEYED_PREFIX, newResponseId, RESPONSE_PREFIX } from '../ids.ts';
import { fileBlock } from '../request/media.ts';
import { askDriver } from '../runs/inbox.ts';
import { compactConversation, shortenedConversation, type CompactedResponse } from './compaction.ts';
import { replayRecord, responseFollower, storedIn, streamOf } from './follow-response.ts';
import { errorEvent, responseOutput, type BegunCall, type ResponseOutputOptions } from './output.ts';
import type { ResponseEvent } from './output-items.ts';
import { ENCRYPTED, newResponse, storable, type ResponseRequest } from './parse-request.ts';
import { reasoningSeal, tenantSeal, tenantSeals, type ReasoningSeal } from './reasoning-seal.ts';
import { drivenElsewhere, endedResponse, fetchLater, ofConversation } from './response-errors.ts';
import { openSealed, resolveReferences, restoreHistory, storedOutputs } from './restore-history.ts';
import type { RestoredHistory, RestoreOptions } from './restore-history.ts';
import { denialText, refusedResult } from './restore-messages.ts';
import { responseResumer } from './resume-response.ts';
import { hasReply, type CustomCallOutputItem, type FunctionCallOutputItem, type InputItem } from './wire.ts';
import type { InputPart, ResponseResource } from './wire.ts';

/**
 * Runs responses, and reads stored ones. Only a response that is still in progress, or that is cancelled while it waits for
 * the client, is finished. If another process was first, its response is reported.
 */
export interface Responses {
  /**
   * Validates everything, and stores the response unless `store` is false and there is no key. Rejects with an `ApiError`.
   * For a key that was used before, the prepared response is that of the first request.
   */
  prepare(
    request: ResponseRequest,
    caller: Caller,
    key?: RequestKey,
    local?: LocalConversations,
  ): Promise<PreparedResponse>;
  /** Has the model summarise the conversation of a request. `signal` aborts when the client disconnects. */
  compact(request: ResponseRequest, caller: Caller, signal: AbortSignal): Promise<CompactedResponse>;
  /** An estimate of the tokens that the model would receive for a request. */
  countTokens(request: ResponseRequest, caller: Caller): Promise<number>;
  /**
   * The events of a response after a number: the stored ones of a background response, and what follows. Without a number,
   * also those of another response: they are made from its output when it has ended. Rejects with an `ApiError`.
   */
  stream(id: string, after: number | undefined, caller: Caller): Promise<PreparedResponse>;
  /** The current state of a response. Rejects with an `ApiError` if the caller has no response with that id. */
  retrieve(id: string, caller: Caller): Promise<ResponseResource>;
  /** The request of a response. */
  requestOf(id: string, caller: Caller): Promise<ResponseRequest>;
  /** Stops a response that is in progress or waits for the client; resolves to the final response. */
  cancel(id: string, caller: Caller): Promise<ResponseResource>;
  /** Rejects with a 409 for a response of a conversation, which is deleted with it. */
  delete(id: string, caller: Caller): Promise<void>;
  /** Forgets a response that was deleted with its conversation. */
  forget(id: string, tenant: string): Promise<void>;
  /** The histories of conversations, for runs of both APIs. */
  readonly histories: ChainHistories;
  /** Items that a client adds to a conversation, with references replaced. Rejects with a 400 for what cannot be read. */
  acceptItems(items: readonly InputItem[], reader: Reader): Promise<readonly InputItem[]>;
}

/** The conversations of responses that are not stored, for requests of the same client that continue them. */
export interface LocalConversations {
  find(response: string): ConversationBefore | undefined;
  /** `size`: in characters. */
  keep(response: string, conversation: ConversationBefore, size: number): void;
}

export interface PreparedResponse {
  readonly id: string;
  /** Its events are stored, so that a client can continue after any of them. */
  readonly isResumable?: boolean;
  /**
   * Rejects if another process has taken over. `signal` aborts when the client disconnects: the response is cancelled,
   * unless it has a key, because the client can ask for it again. A background response goes on. Without `emit` it is
   * returned at once.
   */
  run(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse>;
}

export interface ResponseListener extends Pick<ResponseOutputOptions, 'emit' | 'requiresAction'> {
  /** Counts the bytes of events that are made at once. Throws an `ApiError` if they are too many. */
  readonly hold?: (bytes: number) => void;
}

export interface FinishedResponse extends StoredEnd {
  readonly response: ResponseResource;
  /** The model failure that ended it. */
  readonly failure?: ModelError;
  /** The request has a key, so that it can be sent again after an interruption. */
  readonly hasKey?: boolean;
  /** The client did not get the terminal event. It can continue after its last event. */
  readonly isCut?: boolean;
}

/** What a conversation has besides its messages, for responses that continue from this one. */
interface ConversationParts {
  /** The texts of all system and developer messages so far. */
  readonly system: readonly string[];
  /** The labels of other servers whose tools a response of the conversation has reported. */
  readonly reported?: readonly string[];
}

/** The stored form of a request. The store's records contain it, so its fields must not change. */
export interface StoredRequest extends ConversationParts {
  readonly request: ResponseRequest;
  readonly key: string;
  readonly scopes: readonly string[];
  /** The content of the compaction that the response begins with. */
  readonly compaction?: string;
  /** The tools of other servers that the run was started with. */
  readonly lists?: readonly ServerList[];
  /** What the run begins with, and the calls of which the response has items. */
  readonly open?: OpenTurn;
  readonly begunWith?: readonly (readonly [number, BegunCall])[];
}

export interface ActiveResponse extends ActiveRun {
  cancel(): void;
  current(): ResponseResource;
  readonly finished: Promise<FinishedResponse>;
}

/** A run of a response that is about to be driven. */
export interface ResponseRun {
  readonly created: ResponseResource;
  /** Set if the client wants `encrypted_content` of reasoning. */
  readonly seal: ReasoningSeal | undefined;
  /** Set if the response is not stored and may have results of the server. */
  readonly carrier?: ReasoningSeal | undefined;
  /** Kept while the response runs, so that other requests that continue the same conversation share its messages. */
  readonly before?: ConversationBefore;
  readonly listener: ResponseListener;
  readonly signal?: AbortSignal;
  /** The id of the stored record. Absent: the response is not stored. */
  readonly record?: string;
  /** The key of the request that waits for the response. */
  readonly key?: RequestKey;
  /** The status that the response has in the store; default `in_progress`. */
  readonly from?: string;
  /** Set if the run has started before. */
  readonly resume?: ResumedRun;
  readonly compaction?: ResponseOutputOptions['compaction'];
  readonly lists?: ResponseOutputOptions['lists'];
  readonly begunWith?: ResponseOutputOptions['begunWith'];
  /** Where the events of a background response are stored. */
  readonly sink?: EventWriter;
  /** The events that were stored before it was resumed. */
  readonly sent?: readonly ResponseEvent[];
}

interface StoredEnding {
  readonly at: number;
  readonly from: string | undefined;
  readonly releaseKey?: boolean;
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
  /** Set if the response becomes the newest record of a conversation. */
  readonly chain?: ContinuedChain;
}

/** What responses that are created and those that are resumed have in common. */
export interface ResponseDriver {
  /** Drives a run and builds the response. Releases the lease of the plan at the end. */
  runResponse(plan: RunPlan, run: ResponseRun): ActiveResponse;
  /** The conversation of a request: that of the response that it continues, and its own input. */
  requestConversation(
    request: ResponseRequest,
    caller: RunCaller,
    options: ConversationOptions,
  ): Promise<RequestConversation>;
  /** For a request that wants `encrypted_content` of reasoning. */
  wantedSeal(
    request: Pick<ResponseRequest, 'include'>,
    caller: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined>;
  /** For a response that is not stored and may have results of the server. */
  carrierFor(
    plan: Pick<RunPlan, 'toolset'>,
    request: Pick<ResponseRequest, 'store'>,
    caller: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined>;
  /** Stores the end of a response. Resolves to the response that is stored: another process may have been first. */
  storeEnd(id: string, tenant: string, response: ResponseResource, ending: StoredEnding): Promise<ResponseResource>;
}

/** `stopping` aborts when the server shuts down: clients of background responses continue at another process, or later. */
export function responses(
  engine: Engine,
  stored: StoredRuns,
  stopping: AbortSignal = new AbortController().signal,
): Responses {
  const { store, runs } = engine;
  const records = store.responses;
  const streams = storedStreams(engine);
  const outputs = storedOutputs({ runs: store, responses: records });
  const active = new Map<string, ActiveResponse>();
  const shareConversation = sharedConversations();
  const sealFor = tenantSeals(store, 'reasoning', reasoningSeal);
  const compactionSealFor = tenantSeals(store, 'compaction', tenantSeal);
  const histories = chainHistories({ store, readRun: conversationAfter, restore });
  const { waits = false } = engine;
  const follower = responseFollower({ engine, stored, streams, stopping, findResponse, currentResponse });
  const driver: ResponseDriver = { runResponse, requestConversation, wantedSeal, carrierFor, storeEnd };
  const { resume: resumeResponse, createFork } = responseResumer({ engine, streams, ...driver });
  stored.handle(RESPONSE_PREFIX, resumeResponse, { waits, createFork });
  stored.handle(KEYED_PREFIX + RESPONSE_PREFIX, resumeResponse, { waits });

  async function prepareResponse(
    request: ResponseRequest,
    caller: Caller,
    key?: RequestKey,
    local?: LocalConversations,
  ): Promise<PreparedResponse> {
    const used = key && (await stored.findKey(caller.tenant, key));
    if (key && used !== undefined) {
      if (request.background) return follower.followed(await findResponse(used, caller), -1, caller);
      const prepareAgain = (): Promise<PreparedResponse> => prepareResponse(request, caller, key, local);
      return repeatedResponse({ tenant: caller.tenant, hold: caller.hold, key, id: used }, prepareAgain);
    }
    const release = runs.reserve(caller.tenant);
    try {
      const { plan, run, parts } = await createResponse({ parsed: request, caller, key, hold: release.hold, local });
      if (request.background) return backgroundResponse(plan, { ...run, caller, release });
      return {
        id: plan.id,
        async run(listener, signal) {
          try {
            const finished = await runResponse(plan, { ...run, listener, ...(!key && { signal }) }).finished;
            if (local && plan.journal && !request.store) await keepConversation(plan, parts, finished, local);
            return finished;
          } catch (error) {
            if (!isDrivenElsewhere(error)) throw error;
            throw key ? retryLater(TAKEN_OVER) : drivenElsewhere(plan.id);
          } finally {
            release();
          }
        },
      };
    } catch (error) {
      release();
      const isTaken = isKeyTaken(error) || (isBusy(error) && key && (await stored.findKey(caller.tenant, key)));
      if (key && isTaken) return prepareResponse(request, caller, key, local);
      throw error;
    }
  }

  interface BackgroundRun extends Omit<ResponseRun, 'listener'> {
    readonly caller: Caller;
    readonly release: () => void;
  }

  function backgroundResponse(plan: RunPlan, { caller, release, ...run }: BackgroundRun): PreparedResponse {
    const { id } = plan;
    return {
      id,
      isResumable: true,
      async run(listener, signal) {
        const sink = streams.writer(plan, streamOf(id), 0);
        runResponse(plan, { ...run, ...storedIn(sink) }).finished.then(release, release);
        return listener.emit
          ? follower.followStream(run.created, caller, { after: -1, signal, listener })
          : { response: run.created };
      },
    };
  }

  /** The response of an earlier request with the same key. `prepareAgain` is called if that request released the key. */
  function repeatedResponse(
    repeated: RepeatedRequest,
    prepareAgain: () => Promise<PreparedResponse>,
  ): PreparedResponse {
    async function runRepeated(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse> {
      const record = await stored.follow(repeated, signal);
      if (!record) return (await prepareAgain()).run(listener, signal);
      return replayRecord(record, listener);
    }
    return {
      id: repeated.id,
      async run(listener, signal) {
        try {
          return await runRepeated(listener, signal);
        } catch (error) {
          if (error instanceof ApiError) void listener.emit?.(errorEvent(error));
          throw error;
        }
      },
    };
  }

  interface NewResponse {
    readonly parsed: ResponseRequest;
    readonly caller: Caller;
    readonly key: RequestKey | undefined;
    readonly hold: Capacity['hold'];
    readonly local: LocalConversations | undefined;
  }

  /** A response that was created, and what another response needs to continue it. */
  interface CreatedResponse {
    readonly plan: RunPlan;
    readonly run: Omit<ResponseRun, 'listener'>;
    readonly parts: ConversationParts;
  }

  async function createResponse({ parsed, caller, key, hold, local }: NewResponse): Promise<CreatedResponse> {
    const continued = await requestConversation(parsed, caller, { local, hold });
    const { input, system, conversation, before, counted, reported, chain } = continued;
    const request = { ...parsed, input };
    checkSupport(modelNamed(engine.models, request.model), parsed, request.model ?? engine.models.default);
    const seal = await wantedSeal(request, caller);
    const id = newResponseId();
    const shortened =
      request.compactFrom !== undefined &&
      (await shortenedConversation(conversation, system, { engine, caller, request, hold }, () =>
        compactionSealFor(caller.tenant),
      ));
    const { compaction, messages } = shortened || { ...conversation, compaction: undefined };
    const sent = { ...conversation, messages };
    const plan = await planRun(engine, request, sent, { id, caller, approvals: true });
    return whileOpen(plan, async () => {
      const current = await withDecisions(plan, hold);
      const planned = { plan: current, request, seal, system, before, counted, reported, chain, compaction };
      return createPlanned({ ...planned, caller, key, hold, local });
    });
  }

  /**
   * What the client decided, as far as it applies to the tools of this request.
   *
   * 1. It applies to the server that the client was asked about. Another one may have a tool of the same name now: the call is
   *    not executed there.
   * 2. A call that was denied is not executed, even if the request does not require approvals any more.
   * 3. If the server describes the tool differently now, the client is asked again.
   */
  async function withDecisions(plan: RunPlan, hold: Capacity['hold']): Promise<RunPlan> {
    const { open, toolset, messages, caller } = plan;
    if (!open || open.approvals.length === 0) return plan;
    const calls = messages.at(-1)!.content.filter((part) => part.type === 'tool-call');
    const approvals: ApprovedCall[] = [];
    const refused: ToolResult[] = [];
    for (const approval of open.approvals) {
      const { requestId, index, approved } = approval;
      const call = calls[index]!;
      const { name } = call;
      const asked = itemOrigin(requestId)?.response;
      const { tenant } = caller;
      const record = asked === undefined ? undefined : await readRecord(store, asked, { tenant, hold });
      const label = approval.label ?? labelAskedIn(record?.response as ResponseResource | undefined, requestId);
      const kind = toolset.kinds.kindOf(name, index);
      const isServers = kind === 'server' || kind === 'approved-later';
      const shown = fingerprintOf((record?.request as StoredRequest | undefined)?.lists ?? [], name);
      // The loop refuses it: there is no such tool.
      if (kind === 'refused') approvals.push(approval);
      else if (!isServers || (label !== undefined && label !== toolset.kinds.labelOf(name))) {
        refused.push(refusedResult(call, otherServerText(name, label)));
      } else if (!approved && kind !== 'approved-later') refused.push(refusedResult(call, denialText(name, approval)));
      else if (shown === undefined || shown === fingerprintOf(toolset.lists, name)) approvals.push(approval);
    }
    return { ...plan, open: { ...open, answered: [...open.answered, ...refused], approvals } };
  }

  interface PlannedResponse extends Pick<NewResponse, 'caller' | 'key' | 'hold' | 'local'> {
    readonly plan: RunPlan;
    readonly request: ResponseRequest;
    readonly seal: ReasoningSeal | undefined;
    readonly system: readonly string[];
    readonly before: ConversationBefore | undefined;
    readonly counted: number;
    readonly reported: ReadonlySet<string>;
    readonly chain: ContinuedChain | undefined;
    readonly compaction: string | undefined;
  }

  async function createPlanned({
    plan,
    request,
    seal,
    system,
    before,
    counted,
    reported,
    chain,
    compaction,
    caller,
    key,
    hold,
    local,
  }: PlannedResponse): Promise<CreatedResponse> {
    const { id, open } = plan;
    const carrier = await carrierFor(plan, request, caller);
    hold(Math.max(0, plan.size - counted) + (compaction?.length ?? 0));
    const now = Date.now();
    const created = newResponse(id, request, engine.models.default, now);
    // What the conversation has is not reported again, but that a server is down is.
    const lists = plan.toolset.lists.map((list) =>
      list.error === undefined && reported.has(list.label) ? { ...list, isKnown: true as const } : list,
    );
    const listed = plan.toolset.lists.flatMap(({ label, error }) => (error === undefined ? label : []));
    const parts: ConversationParts = {
      system,
      ...(listed.length + reported.size > 0 && { reported: [...new Set([...reported, ...listed])] }),
    };
    const begunWith = open && callsToBegin(plan, open);
    const continued = { ...(before && { before }), compaction, lists, ...(begunWith && { begunWith }) };
    if (!request.store && !key) {
      return {
        plan: local ? { ...plan, journal: memoryJournal() } : plan,
        run: { created, seal, carrier, ...continued },
        parts,
      };
    }
    const { tenant, scopes } = caller;
    const previous = chain ? chain.previous : request.previous;
    const record: ResponseRecord = {
      id: request.store ? id : KEYED_PREFIX + id,
      tenant,
      runId: id,
      status: 'in_progress',
      createdAt: now,
      updatedAt: now,
      ...(previous !== undefined && { previous }),
      request: {
        request: storable(request),
        ...parts,
        key: caller.key,
        scopes,
        ...(compaction !== undefined && { compaction }),
        ...(lists.length > 0 && { lists }),
        ...(open && { open, begunWith: [...begunWith!] }),
      } satisfies StoredRequest,
      response: created,
    };
    const keyToStore = key && stored.keyToStore(key, now);
    const expiry = keyToStore && !request.store && { expiresAt: keyToStore.expiresAt };
    const lease = await store.acquire(id);
    if (chain) {
      const { conversation: found } = chain;
      const { input } = request;
      const named = { text: searchText(input), title: titleOfItems(input) };
      await addToChain(store, {
        record,
        lease,
        conversation: found.id,
        before: found,
        ...named,
        key: keyToStore,
        input,
      });
    } else {
      try {
        await records.create({ ...record, ...expiry }, keyToStore, request.input);
      } catch (error) {
        await lease.release();
        throw error;
      }
    }
    const run = { created, seal, carrier, record: record.id, ...(key && { key }), ...continued };
    return { plan: { ...plan, journal: store, lease, waits }, run, parts };
  }

  /** Keeps what the next request of the same client needs to continue a response that is not stored. */
  async function keepConversation(
    { journal, caller: { tenant } }: RunPlan,
    parts: ConversationParts,
    { response: { id, status } }: FinishedResponse,
    local: LocalConversations,
  ): Promise<void> {
    const state = status === 'failed' ? undefined : await storedState(journal!, id, { tenant });
    if (!state) return;
    const conversation = { ...conversationBefore(id, state, parts.system), ...parts };
    local.keep(id, conversation, conversationSize({ messages: conversation.messages, instructions: parts.system }));
  }

  async function wantedSeal(
    { include }: Pick<ResponseRequest, 'include'>,
    { tenant }: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined> {
    return include.includes(ENCRYPTED) ? sealFor(tenant) : undefined;
  }

  async function carrierFor(
    { toolset }: Pick<RunPlan, 'toolset'>,
    { store: isStored }: Pick<ResponseRequest, 'store'>,
    { tenant }: Pick<RunCaller, 'tenant'>,
  ): Promise<ReasoningSeal | undefined> {
    return !isStored && toolset.tools.some(({ execute }) => execute) ? sealFor(tenant) : undefined;
  }

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
    const reader = { ...caller, hold: hold && count };
    if (request.conversation !== undefined) {
      const accepted = isStored ? { previous: upTo } : undefined;
      const { restored, before, chain } = await histories.forRequest(request, reader, accepted);
      return { ...withInput(request, restored, before), counted, chain };
    }
    const { previous } = request;
    const before =
      previous === undefined ? undefined : (local?.find(previous) ?? (await previousConversation(previous, reader)));
    const restored = await restore(request.input, reader, { before, isStored });
    return { ...withInput(request, restored, before), counted };
  }

  function restore(
    items: readonly InputItem[],
    reader: Reader,
    options: Pick<RestoreOptions, 'before' | 'isStored' | 'accepted'>,
  ): Promise<RestoredHistory> {
    const { tenant } = reader;
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
  ): Omit<RequestConversation, 'counted' | 'chain'> {
    const sent = input.flatMap((item) =>
      item.type === 'mcp_list_tools' && item.error === undefined ? item.server_label : [],
    );
    return {
      input,
      system,
      conversation: { messages, instructions: [instructions, ...system], ...(open && { open }) },
      before,
      reported: new Set([...(before?.reported ?? []), ...sent]),
    };
  }

  /** The conversation that another response continues. */
  async function previousConversation(previous: string, reader: Reader): Promise<ConversationBefore> {
    const record = previous.startsWith(RESPONSE_PREFIX) ? await records.head(reader.tenant, previous) : undefined;
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
    record: ResponseHead,
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
    const { system = [], reported } = record.request as Partial<ConversationParts>;
    return { system, ...(reported && { reported }) };
  }

  function runResponse(plan: RunPlan, planned: ResponseRun): ActiveResponse {
    const { created, seal, carrier, listener, signal, record, key, from, resume, sink, sent } = planned;
    const { compaction, lists, begunWith } = planned;
    const { id, caller, lease } = plan;
    const out = responseOutput({
      response: created,
      calls: plan.toolset.kinds,
      compaction,
      lists,
      begunWith,
      seal,
      carrier,
      ...listener,
      ...(sent && { sent }),
    });
    out.sendCreated();
    // Also without items: those that were sent may belong to a reply that was lost.
    if (resume || sent) out.replay(resume?.items ?? []);
    const run = driveRequest(plan, engine, out.addItem, resume);
    signal?.addEventListener('abort', run.cancel, { once: true });
    if (signal?.aborted) run.cancel();

    async function finishResponse(
      { ending, failure, isUntouched = false }: FinalEnd,
      release: () => Promise<void>,
    ): Promise<FinishedResponse> {
      const made = out.endResponse(ending);
      const releaseKey = isUntouched || (made.status === 'failed' && !hasReply(made));
      if (sink) {
        // In the stream before the end is stored, so that a crash does not lose it. Readers get it after that.
        out.sendTerminal();
        await sink.flush();
      }
      const response =
        record === undefined ? made : await storeEnd(record, caller.tenant, made, { at: ending.at, from, releaseKey });
      // Before the client is told, because its next request may be for another process.
      await release();
      if (sink) streams.wakeReaders(streamOf(id));
      else out.sendTerminal(response);
      return { response, ...(failure && { failure }) };
    }

    function interruptResponse(interruption: Interruption): FinishedResponse {
      if (!sink) out.sendInterruption(key ? retryLater(interruption) : fetchLater(id, interruption));
      return { response: created, interruption, hasKey: key !== undefined };
    }

    const response: ActiveResponse = {
      // In progress until it is stored: a client that sees another status may continue from it at once, in any process.
      current: () => ({ ...created, status: 'in_progress', output: out.current().output }),
      cancel: run.cancel,
      detach: () => (record === undefined ? run.cancel() : void run.detach()),
      finished: stored.awaitEnd(sink ? run.ended.then((end) => flushed(end, sink)) : run.ended, {
        id: record ?? id,
        lease,
        finish: finishResponse,
        interrupt: interruptResponse,
      }),
    };
    active.set(id, response);
    const remove = (): void => {
      signal?.removeEventListener('abort', run.cancel);
      active.delete(id);
    };
    response.finished.then(remove, remove);
    runs.add(response);
    return response;
  }

  /** While the process still has the lease. The events of a run that has ended are stored with its terminal event. */
  async function flushed(end: RunEnd, sink: EventWriter): Promise<RunEnd> {
    if (!end.ending) await sink.flush();
    return end;
  }

  async function storeEnd(
    id: string,
    tenant: string,
    response: ResponseResource,
    { at, from, releaseKey = false }: StoredEnding,
  ): Promise<ResponseResource> {
    const { status } = response;
    const isStored = await records.finish(id, {
      ...(from !== undefined && { from }),
      status,
      response,
      at,
      releaseKey,
    });
    if (isStored && !response.conversation) return response;
    const record = await readRecord(store, id, { tenant });
    if (isStored && record) {
      await store.conversations.setText(response.conversation!.id, id, searchText(itemsOfRecord(record)));
      return response;
    }
    return record ? (record.response as ResponseResource) : response;
  }

  async function findResponse(id: string, caller: Caller): Promise<ResponseRecord> {
    const record = id.startsWith(RESPONSE_PREFIX) ? await readRecord(store, id, caller) : undefined;
    if (record) return record;
    throw responseNotFound(id);
  }

  /** The same without request and response. */
  async function findHead(id: string, { tenant }: Caller): Promise<OwnedResponse> {
    const head = id.startsWith(RESPONSE_PREFIX) ? await records.head(tenant, id) : undefined;
    if (head) return { ...head, tenant };
    throw responseNotFound(id);
  }

  function responseNotFound(id: string): ApiError {
    const message = `There is no response ${JSON.stringify(id)}. It was deleted, was not stored, or never existed.`;
    return new ApiError(404, 'invalid_request_error', message, { param: 'response_id', code: 'response_not_found' });
  }

  async function cancelResponse(id: string, caller: Caller): Promise<ResponseResource> {
    const found = await findHead(id, caller);
    const running = active.get(id);
    try {
      if (running) {
        running.cancel();
        return endedResponse(await running.finished);
      }
      if (isOpenRecord(found)) await holdStored(store, found, caller.hold);
      const taken = isOpenRecord(found) ? await stored.takeOver(found, isOpenRecord) : undefined;
      if (!taken) return (await findResponse(id, caller)).response as ResponseResource;
      const { finished } = await resumeResponse(taken, { signal: AbortSignal.abort() });
      return endedResponse(await finished);
    } catch (error) {
      if (!isDrivenElsewhere(error)) throw error;
      return cancelElsewhere(found, caller);
    }
  }

  /** Asks the process that drives a response to cancel it. */
  async function cancelElsewhere({ id, runId }: OwnedResponse, caller: Caller): Promise<ResponseResource> {
    const { tenant, key } = caller;
    const reply = await askDriver(store, runId, { act: { type: 'cancel' }, actor: { tenant, key } });
    if (reply === 'refused') throw drivenElsewhere(id);
    const { status, response } = await findResponse(id, caller);
    if (status === 'in_progress') throw drivenElsewhere(id);
    return response as ResponseResource;
  }

  /** The current state of a response. */
  async function currentResponse({ id, status, response }: ResponseRecord): Promise<ResponseResource> {
    const running = active.get(id);
    if (running && status === 'in_progress') return running.current();
    const found = response as ResponseResource;
    // Another process may drive it, or have done so.
    const hasBegun = found.status === 'queued' && (await store.streams.last(streamOf(id))) > 0;
    return hasBegun ? { ...found, status: 'in_progress' } : found;
  }

  async function forgetResponse(id: string, tenant: string): Promise<void> {
    await store.streams.delete(streamOf(id));
    outputs.forget(tenant, id);
    stored.forget(id);
  }

  return {
    prepare: prepareResponse,
    async compact(request, caller, signal) {
      // The model gets the settings, and the conversation as a text.
      checkSupport(modelNamed(engine.models, request.model), { ...request, input: [] }, request.model!);
      const { input, system, conversation } = await requestConversation(request, caller, { hold: caller.hold });
      const seal = await compactionSealFor(caller.tenant);
      const { messages } = conversation;
      const release = runs.reserve(caller.tenant);
      try {
        const compaction = { engine, caller, request, signal, hold: release.hold };
        return await compactConversation(input, { messages, system }, compaction, seal);
      } finally {
        release();
      }
    },
    async countTokens(request, caller) {
      const { conversation } = await requestConversation(request, caller, { hold: caller.hold });
      const plan = await planRun(engine, request, conversation, { id: newResponseId(), caller, approvals: true });
      const { messages, instructions, toolset } = plan;
      await toolset.close();
      return requestTokens(messages, messages.length, instructions, toolset.tools);
    },
    stream: follower.stream,
    async retrieve(id, caller) {
      const running = active.get(id);
      const record = await findResponse(id, caller);
      if (running && record.status === 'in_progress') return running.current();
      return currentResponse(record);
    },
    requestOf: async (id, caller) => ((await findResponse(id, caller)).request as StoredRequest).request,
    cancel: cancelResponse,
    async delete(id, caller) {
      const { conversation } = ((await findResponse(id, caller)).request as StoredRequest).request;
      if (conversation !== undefined) throw ofConversation(id, conversation);
      const running = active.get(id);
      running?.cancel();
      // Whether it can be deleted is up to the store.
      await running?.finished.catch(() => {});
      await records.delete(caller.tenant, id).catch((error: unknown) => {
        throw isDrivenElsewhere(error) ? drivenElsewhere(id) : error;
      });
      await forgetResponse(id, caller.tenant);
    },
    forget: forgetResponse,
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
  };
}

/** Throws a 400 for what the model of a request does not take. */
function checkSupport(model: Model, { settings, input }: ResponseRequest, name: string): void {
  const topLogprobs = settings.topLogprobs === 0 ? 'include' : 'top_logprobs';
  checkSettings(model, name, settings, { reasoning: 'reasoning.effort', topLogprobs });
  for (const [at, item] of input.entries()) {
    const [field, parts] = isOutput(item) ? ['output', item.output] : ['content', contentOf(item)];
    if (typeof parts === 'string') continue;
    for (const [index, part] of parts.entries()) {
      const param = `input[${at}].${field}[${index}]`;
      if (part.type === 'input_image' && part.detail !== 'auto') {
        if (!acceptsMedia(model, { type: 'image', detail: part.detail })) throw notTaken(name, `${param}.detail`);
      } else if (part.type === 'input_file' && part.file_url !== undefined) {
        const { filename, file_url: url } = part;
        if (acceptsMedia(model, fileBlock({ name: filename, url }))) continue;
        throw notTaken(name, `${param}.file_url`, "Send the file itself in 'file_data'");
      }
    }
  }
}

function isOutput(item: InputItem): item is FunctionCallOutputItem | CustomCallOutputItem {
  return item.type === 'function_call_output' || item.type === 'custom_tool_call_output';
}

function contentOf(item: InputItem): readonly InputPart[] {
  return item.type === 'message' && item.role === 'user' ? item.content : [];
}

function fingerprintOf(lists: readonly ServerList[], name: string): string | undefined {
  return lists.flatMap(({ tools }) => tools).find((listed) => listed.name === name)?.fingerprint;
}

/** The server that a response asked the client about. */
function labelAskedIn(response: ResponseResource | undefined, requestId: string): string | undefined {
  const item = response?.output.find(({ id }) => id === requestId);
  return item?.type === 'mcp_approval_request' ? item.server_label : undefined;
}

function otherServerText(name: string, label: string | undefined): string {
  const server = label === undefined ? 'another server' : `the server ${JSON.stringify(label)}`;
  return `The call of "${name}" was for ${server}, which does not have a tool of this name now. It was not executed.`;
}

/** The calls at the end of the conversation that have no result yet, by their index. */
function callsToBegin({ messages }: RunPlan, { answered, approvals }: OpenTurn): ReadonlyMap<number, BegunCall> {
  const calls = messages.at(-1)!.content.filter((part) => part.type === 'tool-call');
  const known = new Set(answered.map(({ callId }) => callId));
  return new Map(
    calls.flatMap((call, index) => {
      const approval = approvals.find((one) => one.index === index);
      return known.has(call.id) ? [] : [[index, { call, ...(approval && { approval }) }] as const];
    }),
  );
}
