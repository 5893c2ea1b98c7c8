import { requestTokens, type RunSummary } from '@treadle/core';
import { churnMap } from '@treadle/core/churn';
import type { OwnedRequest, RequestRecord, UsedKey } from '@treadle/store';
import { ApiError } from '../../api-error.ts';
import { itemsOfRecord, searchText } from '../../history/record-items.ts';
import { decidedBefore, decisionInProgress, findDecision, releaseDecisions } from '../../requests/approvals.ts';
import { mayInvoke, modelNamed, type Engine } from '../../engine/engine.ts';
import type { RepeatedRequest } from '../../requests/follow.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import { walkRun } from '../../requests/projection.ts';
import { checkMayActOn, planRun, type RunPlan } from '../../requests/run.ts';
import { readRecord } from '../../engine/stored-reads.ts';
import { isDrivenElsewhere, retryLater, TAKEN_OVER } from '../../requests/interruption.ts';
import { whenLetGo } from '../../requests/let-go.ts';
import type { RequestApi, RequestKind, Requests } from '../../requests/requests.ts';
import { storedStreams } from '../../requests/stored-streams.ts';
import type { Caller } from '../../http/admission.ts';
import { newResponseId, RESPONSE_PREFIX } from '../../ids.ts';
import { unknownCursor, type PageQuery } from '../../parse/query.ts';
import { askDriver } from '../runs/inbox.ts';
import { compactConversation, runCompactions, type CompactedResponse } from './compaction.ts';
import { checkSupport, responseCreator } from './create-response.ts';
import { replayRecord, responseFollower, storedIn, streamOf } from './follow-response.ts';
import { errorEvent, responseProjection } from './projection.ts';
import { ENCRYPTED, newResponse, type ResponseRequest } from './parse-request.ts';
import { reasoningSeal, tenantSeal, tenantSeals } from './reasoning-seal.ts';
import {
  requestConversations,
  withTools,
  type LocalConversations,
  type RequestConversations,
} from '../../history/request-conversation.ts';
import {
  drivenElsewhere,
  endedResponse,
  fetchLater,
  ofConversation,
  type ActiveResponse,
  type FinishedResponse,
  type PreparedResponse,
  type ResponseDriver,
  type ResponseListener,
  type ResponseRun,
  type StoredEnding,
} from './response.ts';
import type { StoredRequest } from './stored-request.ts';
import { responseResumer } from './resume-response.ts';
import { hasReply, wireUsage, type InputItem, type ResponseResource } from './wire.ts';

export interface ResponseList {
  readonly data: readonly ResponseResource[];
  readonly hasMore: boolean;
  /** Where the next page begins, if that is not after the last one of `data`. */
  readonly lastId?: string | undefined;
}

/** How many runs are read at once, and for one page: those of other APIs are among them. */
const LOOKED = 100;
const MAX_LOOKED = 100_000;

/**
 * Runs responses, and reads stored ones. Only a response that is still in progress, or that is cancelled while it waits for
 * the client, is finished. If another process was first, its response is reported.
 */
export interface Responses extends Pick<RequestConversations, 'histories' | 'acceptItems'> {
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
  /**
   * Keeps the input of a request for the next one of the same client, and calls no model. Resolves to the response by whose id
   * that continues it. Rejects with an `ApiError`.
   */
  warmUp(request: ResponseRequest, caller: Caller, local: LocalConversations): Promise<ResponseResource>;
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
  /** The stored responses of the caller's tenant, the newest first. `after`: the id of the last one of the page before. */
  list(page: Pick<PageQuery, 'after' | 'limit'>, caller: Caller): Promise<ResponseList>;
  /** The request of a response. */
  requestOf(id: string, caller: Caller): Promise<ResponseRequest>;
  /** Stops a response that is in progress or waits for the client; resolves to the final response. */
  cancel(id: string, caller: Caller): Promise<ResponseResource>;
  /** Rejects with a 409 for a response of a conversation, which is deleted with it. */
  delete(id: string, caller: Caller): Promise<void>;
  /** Forgets a response that was deleted with its conversation. */
  forget(id: string, tenant: string): Promise<void>;
}

/** `stopping` aborts when the server shuts down: clients of background responses continue at another process, or later. */
export function responses(
  engine: Engine,
  all: Requests,
  stopping: AbortSignal = new AbortController().signal,
): Responses {
  const { store, runs } = engine;
  const records = store.requests;
  const streams = storedStreams(engine);
  const active = churnMap<string, ActiveResponse>();
  const sealFor = tenantSeals(store, 'reasoning', reasoningSeal);
  const compactionSealFor = tenantSeals(store, 'compaction', tenantSeal);
  const conversations = requestConversations({ store, sealFor, compactionSealFor });
  const { requestConversation, keepConversation, keepInput, histories, acceptItems } = conversations;
  const follower = responseFollower({ engine, stored: all, streams, stopping, findResponse, currentResponse });
  const sealsFor: ResponseDriver['sealsFor'] = async (request, system, { tenant, toolset }) => ({
    seal: request.include.includes(ENCRYPTED) ? await sealFor(tenant) : undefined,
    // The client of a response that is not stored sends the results of the server back.
    carrier: !request.store && toolset?.tools.some(({ execute }) => execute) ? await sealFor(tenant) : undefined,
    compactions:
      request.compactFrom === undefined ? undefined : runCompactions(system, await compactionSealFor(tenant)),
  });

  const driver: ResponseDriver = {
    runResponse,
    requestConversation,
    sealsFor,
    storeEnd,
  };
  const creator = responseCreator({ engine, requests: all, compactionSealFor, ...driver });
  const { createFork, ...api } = responseResumer({ engine, streams, ...driver });
  /** Whether runs wait may be changed. */
  const withWaits = (one: RequestApi): RequestApi => ({
    ...one,
    get waits() {
      return engine.waits ?? false;
    },
  });
  all.register('response', withWaits({ ...api, createFork }));
  all.register('keyed-response', withWaits(api));
  // Nobody gets an answer that it could wait for.
  all.register('unstored-response', { ...api, createFork });

  async function prepareResponse(
    request: ResponseRequest,
    caller: Caller,
    key?: RequestKey,
    local?: LocalConversations,
  ): Promise<PreparedResponse> {
    const once = await all.createOnce(creator({ parsed: request, caller, key, local }), key, () =>
      recordedResponse(request, caller),
    );
    if (once.type === 'claimed') return once.claimed;
    if (once.type === 'repeated') {
      if (request.background) return follower.followed(await findResponse(once.id, caller), -1, caller);
      const prepareAgain = (): Promise<PreparedResponse> => prepareResponse(request, caller, key, local);
      const { tenant, hold } = caller;
      return repeatedResponse({ tenant, hold, key: key!, id: once.id }, prepareAgain);
    }
    const { plan, run, parts, releaseCapacity } = once.created;
    if (request.background) return backgroundResponse(plan, { ...run, caller, releaseCapacity });
    return {
      id: plan.id,
      async run(listener, signal) {
        try {
          const finished = await runResponse(plan, { ...run, listener, ...(!key && { signal }) }).finished;
          if (local && plan.journal && !request.store) await keepConversation(plan, parts, finished.response, local);
          return finished;
        } catch (error) {
          if (!isDrivenElsewhere(error)) throw error;
          throw key ? retryLater(TAKEN_OVER) : drivenElsewhere(plan.id);
        } finally {
          releaseCapacity();
        }
      },
    };
  }

  /**
   * The response of an earlier request that was the same, if it decided about calls. Rejects with a 409 while it is in
   * progress, and if it was another request.
   */
  async function recordedResponse(request: ResponseRequest, caller: Caller): Promise<PreparedResponse | undefined> {
    if (request.digest === undefined) return undefined;
    for (const { id, isHeld } of decisionsIn(request.input)) {
      const used = await findDecision(records, caller.tenant, id);
      if (!used) continue;
      if (used.digest === request.digest) return repeatedDecision(id, used, { request, caller });
      // Whether what the client holds is a new decision is known when the conversation is restored.
      if (!isHeld) throw decidedBefore(id, used);
    }
    return undefined;
  }

  async function repeatedDecision(
    requestId: string,
    used: UsedKey,
    { request, caller }: { readonly request: ResponseRequest; readonly caller: Caller },
  ): Promise<PreparedResponse> {
    const record = await readRecord(store, used.response, caller);
    if (!record) throw decidedBefore(requestId, used);
    if (request.background) return follower.followed(record, -1, caller);
    if (record.status === 'in_progress') throw decisionInProgress(used);
    return { id: record.id, run: (listener) => replayRecord(record, listener) };
  }

  interface BackgroundRun extends Omit<ResponseRun, 'listener'> {
    readonly caller: Caller;
    readonly releaseCapacity: () => void;
  }

  function backgroundResponse(plan: RunPlan, { caller, releaseCapacity, ...run }: BackgroundRun): PreparedResponse {
    const { id } = plan;
    return {
      id,
      isResumable: true,
      async run(listener, signal) {
        const sink = streams.writer(plan, streamOf(id), 0);
        runResponse(plan, { ...run, ...storedIn(sink) }).finished.then(releaseCapacity, releaseCapacity);
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
      const record = await all.follow(repeated, signal);
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

  function runResponse(plan: RunPlan, planned: ResponseRun): ActiveResponse {
    const { created, listener, signal, record, isUnstored, key, from, resume, sink, sent, decided = [] } = planned;
    const { id, caller, toolset } = plan;
    const { emit, requiresAction } = listener;
    const projection = responseProjection({ ...planned, response: created, calls: toolset.kinds, requiresAction });
    const out = walkRun(projection, { emit, sent });
    const { run, finished } = all.drive<FinishedResponse>(plan, {
      id: record,
      output: out,
      resume,
      signal,
      ...(isUnstored && { endsWithServer: true }),
      // While the process still has the lease. The events of a run that has ended are stored with its terminal event.
      flush: sink && (async ({ ending }) => (ending ? undefined : sink.flush())),
      async finish(end, releaseLease) {
        const { ending, failure, isUntouched = false } = end;
        const made = out.end(end);
        const releaseKey = isUntouched || (made.status === 'failed' && !hasReply(made));
        if (sink) {
          // In the stream before the end is stored, so that a crash does not lose it. Readers get it after that.
          out.last();
          await sink.flush();
        }
        const response =
          record === undefined
            ? made
            : await storeEnd(record, caller.tenant, made, { at: ending.at, from, releaseKey, isUnstored });
        if (record === undefined && releaseKey && decided.length > 0) {
          await releaseDecisions(records, { id, tenant: caller.tenant }, decided);
        }
        // Before the client is told, because its next request may be for another process.
        await releaseLease();
        if (sink) streams.wakeReaders(streamOf(id));
        else out.last(response);
        return { response, ...(failure && { failure }) };
      },
      interrupt(interruption) {
        const error = key ? retryLater(interruption) : fetchLater(id, interruption);
        if (!sink) void out.send(projection.interrupt(out.state, error));
        return { response: created, interruption, hasKey: key !== undefined };
      },
    });
    const response: ActiveResponse = {
      // In progress until it is stored: a client that sees another status may continue from it at once, in any process.
      current: () => ({ ...created, status: 'in_progress', output: out.result().output }),
      cancel: run.cancel,
      finished,
    };
    active.set(id, response);
    const remove = (): void => void active.delete(id);
    finished.then(remove, remove);
    return response;
  }

  async function storeEnd(
    id: string,
    tenant: string,
    response: ResponseResource,
    { at, from, releaseKey = false, isUnstored = false }: StoredEnding,
  ): Promise<ResponseResource> {
    if (isUnstored) {
      // Nobody continues it.
      const ended = response.status === 'requires_action' ? 'completed' : response.status;
      await records.finish(id, { status: ended, response: {}, at });
      return response;
    }
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

  async function findResponse(id: string, caller: Caller): Promise<RequestRecord> {
    const record = await readRecord(store, id, caller);
    if (record && isResponse(record)) return record;
    throw responseNotFound(id);
  }

  /** The same without request and response. */
  async function findHead(id: string, { tenant }: Caller): Promise<OwnedRequest> {
    const head = await records.head(tenant, id);
    if (head && isResponse(head)) return { ...head, tenant };
    throw responseNotFound(id);
  }

  async function hasEnded(id: string, { tenant }: Caller): Promise<boolean> {
    return (await records.head(tenant, id))?.status !== 'in_progress';
  }

  function responseNotFound(id: string): ApiError {
    const message = `There is no response ${JSON.stringify(id)}. It was deleted, was not stored, or never existed.`;
    return new ApiError(404, 'invalid_request_error', message, { param: 'response_id', code: 'response_not_found' });
  }

  /** Throws a 403 if the key may not act on the run of a response. */
  async function checkDirected(id: string, caller: Caller): Promise<void> {
    if (mayInvoke(caller.scopes)) return;
    const { runId, request } = await findResponse(id, caller);
    await checkMayActOn(store, runId, caller, (request as StoredRequest).request.model);
  }

  async function cancelResponse(id: string, caller: Caller): Promise<ResponseResource> {
    const found = await findHead(id, caller);
    await checkDirected(id, caller);
    const running = active.get(id);
    try {
      if (running) {
        running.cancel();
        return endedResponse(await running.finished);
      }
      await all.resume(found, { cancel: true });
      return (await findResponse(id, caller)).response as ResponseResource;
    } catch (error) {
      if (!isDrivenElsewhere(error)) throw error;
      return cancelElsewhere(found, caller);
    }
  }

  /** Asks the process that drives a response to cancel it. */
  async function cancelElsewhere({ id, runId }: OwnedRequest, caller: Caller): Promise<ResponseResource> {
    const { tenant, key } = caller;
    const reply = await askDriver(store, runId, { act: { type: 'cancel' }, actor: { tenant, key } });
    if (reply === 'refused') throw drivenElsewhere(id);
    const { status, response } = await findResponse(id, caller);
    if (status === 'in_progress') throw drivenElsewhere(id);
    return response as ResponseResource;
  }

  /** The current state of a response. */
  async function currentResponse({ id, status, response }: RequestRecord): Promise<ResponseResource> {
    const running = active.get(id);
    if (running && status === 'in_progress') return running.current();
    const found = response as ResponseResource;
    // Another process may drive it, or have done so.
    const hasBegun = found.status === 'queued' && (await store.streams.last(streamOf(id))) > 0;
    return hasBegun ? { ...found, status: 'in_progress' } : found;
  }

  async function forgetResponse(id: string, tenant: string): Promise<void> {
    await store.streams.delete(streamOf(id));
    conversations.forgetOutput(tenant, id);
    await engine.kept?.drop(id);
    all.forget(id);
  }

  async function retrieveResponse(id: string, caller: Caller): Promise<ResponseResource> {
    const running = active.get(id);
    const record = await findResponse(id, caller);
    if (running && record.status === 'in_progress') return running.current();
    return currentResponse(record);
  }

  /** A response has the id of its run, and runs are listed by time. */
  async function listResponses(
    { after, limit }: Pick<PageQuery, 'after' | 'limit'>,
    caller: Caller,
  ): Promise<ResponseList> {
    const { tenant } = caller;
    const data: ResponseResource[] = [];
    let last: RunSummary | undefined;
    if (after !== undefined) {
      [last] = await store.list({ runId: after, tenant, limit: 1 });
      if (!last) throw unknownCursor(after);
    }
    for (let looked = 0; looked < MAX_LOOKED; looked += LOOKED) {
      const found = await store.list({ tenant, limit: LOOKED, ...(last && { after: last }) });
      for (const { runId } of found) {
        const head = runId.startsWith(RESPONSE_PREFIX) ? await records.head(tenant, runId) : undefined;
        if (head?.kind !== 'response') continue;
        if (data.length === limit) return { data, hasMore: true };
        data.push(await retrieveResponse(head.id, caller));
      }
      last = found.at(-1);
      if (found.length < LOOKED) return { data, hasMore: false };
    }
    return { data, hasMore: true, lastId: last?.runId };
  }

  return {
    prepare: prepareResponse,
    async warmUp(request, caller, local) {
      checkSupport(modelNamed(engine, request.model, caller.scopes), request, request.model ?? engine.models.default);
      const id = await keepInput(request, caller, local);
      const created = newResponse(id, request, engine.models.default, Date.now());
      return { ...created, status: 'completed', completed_at: created.created_at, usage: wireUsage(NO_USAGE) };
    },
    async compact(request, caller, signal) {
      // The model gets the settings, and the conversation as a text.
      checkSupport(modelNamed(engine, request.model, caller.scopes), { ...request, input: [] }, request.model!);
      const { input, system, conversation, before } = await requestConversation(request, caller, { hold: caller.hold });
      const seal = await compactionSealFor(caller.tenant);
      const { messages } = conversation;
      const { hold, release } = runs.reserve(caller.tenant);
      try {
        const compaction = { engine, requests: all, caller, request, signal, hold };
        return await compactConversation({ before: before?.messages ?? [], input, messages, system }, compaction, seal);
      } finally {
        release();
      }
    },
    async countTokens(request, caller) {
      const { conversation, declared } = await requestConversation(request, caller, { hold: caller.hold });
      const counted = { ...request, functions: withTools(request.functions, declared) };
      const plan = await planRun(engine, counted, conversation, { id: newResponseId(), caller, approvals: true });
      const { messages, instructions, toolset } = plan;
      await toolset.close();
      return requestTokens(messages, messages.length, instructions, toolset.tools);
    },
    stream: follower.stream,
    retrieve: retrieveResponse,
    list: listResponses,
    requestOf: async (id, caller) => ((await findResponse(id, caller)).request as StoredRequest).request,
    cancel: cancelResponse,
    async delete(id, caller) {
      const { conversation } = ((await findResponse(id, caller)).request as StoredRequest).request;
      if (conversation !== undefined) throw ofConversation(id, conversation);
      await checkDirected(id, caller);
      const running = active.get(id);
      running?.cancel();
      // Whether it can be deleted is up to the store.
      await running?.finished.catch(() => {});
      await whenLetGo(
        () => hasEnded(id, caller),
        () => records.delete(caller.tenant, id),
      ).catch((error: unknown) => {
        throw isDrivenElsewhere(error) ? drivenElsewhere(id) : error;
      });
      await forgetResponse(id, caller.tenant);
    },
    forget: forgetResponse,
    histories,
    acceptItems,
  };
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

/** Whether a record is a response that clients can name. */
function isResponse({ kind }: Pick<RequestRecord, 'kind'>): boolean {
  return kind === ('response' satisfies RequestKind);
}

/** The requests for approvals that an input decides about. `isHeld`: the client sends the request itself. */
function decisionsIn(input: readonly InputItem[]): readonly { readonly id: string; readonly isHeld: boolean }[] {
  const held = new Set(input.map(({ id }) => id));
  return input.flatMap((item) => {
    if (item.type !== 'mcp_approval_response') return [];
    const { approval_request_id: id } = item;
    return { id, isHeld: held.has(id) };
  });
}
