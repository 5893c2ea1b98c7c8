import { memoryJournal, type Journal, type Model } from '@treadle/core';
import { ApiError, errorBody } from '../../api-error.ts';
import { conversationBefore, storedState, type Conversation } from '../../history/conversation.ts';
import type { Engine } from '../../engine/engine.ts';
import type { RepeatedRequest } from '../../requests/follow.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import { isDrivenElsewhere, notDone, retryLater, TAKEN_OVER } from '../../requests/interruption.ts';
import type {
  DrivenRequest,
  FailedEnding,
  NewRecord,
  PlannedRequest,
  RecordToStore,
  ReplayedRecord,
  RequestKind,
  Requests,
  Resumption,
  StoredEnd,
  TakenRun,
} from '../../requests/requests.ts';
import { walkRun } from '../../requests/projection.ts';
import type { Ending } from '../../requests/ending.ts';
import { planRun, storedCaller, type ResumedRun, type RunPlan, type StoredCaller } from '../../requests/run.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { acceptsMedia, checkSettings, notTaken } from '../../engine/request-model.ts';
import type { Caller } from '../../http/admission.ts';
import { KEYED_PREFIX, newResponseId } from '../../ids.ts';
import { withoutSecrets } from '../../parse/tools.ts';
import { completionProjection, replayCompletion, type EmitFrame } from './projection.ts';
import type { CompletionRequest } from './parse-request.ts';
import { completionId, restoreTurns, turnsToStore, type StoredTurns } from '../../history/restore-turns.ts';
import type { ChatCompletion } from './wire.ts';

/** Runs completions. */
export interface Completions {
  /**
   * Validates everything. Rejects with an `ApiError`. For a key that was used before, the prepared completion is that of the
   * first request.
   */
  prepare(request: CompletionRequest, caller: Caller, key?: RequestKey): Promise<PreparedCompletion>;
}

export interface PreparedCompletion {
  readonly id: string;
  /**
   * Rejects if the store fails. `signal` aborts when the client disconnects: the run is cancelled, unless it has a key,
   * because the client can ask for it again.
   */
  run(emit: EmitFrame | undefined, signal: AbortSignal): Promise<ChatCompletion | ApiError>;
}

/** The stored request of a completion with a key. The store's records contain it, so its fields must not change. */
interface StoredCompletionRequest extends StoredCaller {
  readonly chat: CompletionRequest;
}

/** The end of a completion with a key. Stored as JSON, so its fields must not change. */
type StoredCompletionEnd =
  | { readonly completion: ChatCompletion }
  | { readonly error: Pick<ApiError, 'status' | 'type' | 'message' | 'param' | 'code' | 'headers'> };

/**
 * A completion without a key runs in memory: it cannot be fetched later, and a client that did not receive it sends its
 * request again. Only completions that wait for their client are stored, with what the next request does not contain.
 *
 * A completion with a key is stored with its run until the key expires. No client can fetch it.
 */
export function completions(engine: Engine, all: Requests): Completions {
  const { store } = engine;
  const records = store.requests;
  all.register('completion', { plan: planCompletion, fail: failCompletion });

  async function lookUpTurns(completion: string, reader: Reader): Promise<StoredTurns | undefined> {
    const record = await readRecord(store, completion, reader);
    return record?.response as StoredTurns | undefined;
  }

  async function requestConversation({ messages, system }: CompletionRequest, reader: Reader): Promise<Conversation> {
    const restored = await restoreTurns(messages, (completion) => lookUpTurns(completion, reader));
    return { messages: restored, instructions: system };
  }

  async function prepareCompletion(
    request: CompletionRequest,
    caller: Caller,
    key?: RequestKey,
  ): Promise<PreparedCompletion> {
    const { tenant, hold } = caller;
    const once = await all.createOnce(
      {
        tenant,
        async plan(count) {
          const id = newResponseId();
          const conversation = await requestConversation(request, { tenant, hold: count });
          const plan = await planRun(engine, request, conversation, { id, caller });
          // Of this attempt: the key of another request may have expired since the one before.
          return { plan, createdAt: Date.now() };
        },
        complete(planned, count) {
          const { plan, createdAt } = planned;
          checkSupport(plan.model, request, request.model ?? engine.models.default);
          count(plan.size);
          return { request: planned, stored: key && keyedRecord(plan, request, key, createdAt) };
        },
      },
      key,
    );
    if (once.type === 'claimed') return once.claimed;
    if (once.type === 'repeated') {
      const prepareAgain = (): Promise<PreparedCompletion> => prepareCompletion(request, caller, key);
      return repeatedCompletion({ tenant, hold, key: key!, id: once.id }, request, prepareAgain);
    }
    const { plan, createdAt, releaseCapacity } = once.created;
    return {
      id: completionId(plan.id),
      async run(emit, signal) {
        const completion = { request, createdAt, ...(emit && { emit }), ...(!key && { signal }) };
        try {
          return (await runCompletion(plan, completion).finished).result;
        } catch (error) {
          if (!isDrivenElsewhere(error)) throw error;
          return retryLater(TAKEN_OVER);
        } finally {
          releaseCapacity();
        }
      },
    };
  }

  /** The record of a request with a key. */
  function keyedRecord(plan: RunPlan, request: CompletionRequest, key: RequestKey, now: number): NewRecord {
    const { id, caller } = plan;
    const keyToStore = all.keyToStore(key, now);
    const chat = { ...request, otherTools: request.otherTools.map(withoutSecrets) };
    const record: RecordToStore<StoredCompletionRequest> = {
      id: recordId(id),
      kind: 'completion',
      tenant: caller.tenant,
      runId: id,
      status: 'in_progress',
      createdAt: now,
      updatedAt: now,
      expiresAt: keyToStore.expiresAt,
      request: { chat, ...storedCaller(plan) },
    };
    return { record, keys: [keyToStore], input: chat.messages };
  }

  /** The completion of an earlier request with the same key. `prepareAgain` is called if that request released the key. */
  function repeatedCompletion(
    repeated: RepeatedRequest,
    { includeUsage }: CompletionRequest,
    prepareAgain: () => Promise<PreparedCompletion>,
  ): PreparedCompletion {
    return {
      id: repeated.id,
      async run(emit, signal) {
        const record = await all.follow(repeated, signal);
        if (!record) return (await prepareAgain()).run(emit, signal);
        const end = record.response as StoredCompletionEnd;
        if ('completion' in end) {
          if (emit) await replayCompletion(end.completion, includeUsage, emit);
          return end.completion;
        }
        const { status, type, message, param, code, headers } = end.error;
        const details = { ...(param !== null && { param }), ...(code !== null && { code }), headers };
        const error = new ApiError(status, type, message, details);
        void emit?.(errorBody(error));
        return error;
      },
    };
  }

  interface CompletionRun {
    readonly request: CompletionRequest;
    readonly createdAt: number;
    readonly emit?: EmitFrame;
    /** Set if the run has started before. */
    readonly resume?: ResumedRun;
    /** Cancels the run. */
    readonly signal?: AbortSignal;
  }

  interface EndedCompletion extends StoredEnd {
    readonly result: ChatCompletion | ApiError;
  }

  /** Drives the run of a completion. Its turns are stored before the client receives the end, and with a key the end too. */
  function runCompletion(given: RunPlan, completion: CompletionRun): DrivenRequest<EndedCompletion> {
    const journal = given.journal ?? memoryJournal();
    const plan = { ...given, journal };
    const isStored = given.lease !== undefined;
    const { request, createdAt, emit, resume, signal } = completion;
    const projection = completionProjection({
      head: {
        id: completionId(plan.id),
        created: Math.floor(createdAt / 1000),
        model: request.model ?? engine.models.default,
        service_tier: request.serviceTier,
        system_fingerprint: null,
      },
      calls: plan.toolset.kinds,
      includeUsage: request.includeUsage,
      lastTextOnly: hasOneAnswer(request, plan),
    });
    const out = walkRun(projection, { emit });
    return all.drive<EndedCompletion>(plan, {
      id: recordId(plan.id),
      output: out,
      resume,
      signal,
      async finish(end, releaseLease) {
        const { ending, isUntouched = false } = end;
        const result = out.end(end);
        await storeTurns(plan, ending, journal, completion);
        if (isStored) await storeEnd(recordId(plan.id), result, isUntouched);
        await releaseLease();
        out.last();
        return { result };
      },
      interrupt(interruption) {
        const result = isStored ? retryLater(interruption) : notDone(interruption);
        void emit?.(errorBody(result));
        return { result, interruption };
      },
    });
  }

  async function storeEnd(id: string, result: ChatCompletion | ApiError, releaseKey: boolean): Promise<void> {
    const isError = result instanceof ApiError;
    const end: StoredCompletionEnd = isError
      ? { error: { ...result, message: result.message } }
      : { completion: result };
    const status = isError ? 'failed' : 'completed';
    await records.finish(id, { status, response: end, at: Date.now(), releaseKey });
  }

  /** Plans a completion again, for a client that sends its request again. */
  async function planCompletion(
    { record, run, resume }: TakenRun,
    hold: Reader['hold'],
  ): Promise<PlannedRequest & Resumption> {
    const { tenant, createdAt } = record;
    const { chat: request } = record.request as StoredCompletionRequest;
    const conversation = resume
      ? { messages: [], instructions: [] }
      : await requestConversation(request, { tenant, hold });
    const plan = await planRun(engine, request, conversation, run);
    return { plan, drive: () => runCompletion(plan, { request, createdAt, ...(resume && { resume }) }) };
  }

  function failCompletion({ record }: ReplayedRecord, { error: { code, message } }: FailedEnding): Promise<void> {
    return storeEnd(record.id, new ApiError(502, 'server_error', message, { code }), false);
  }

  /** Stores what the next request does not contain, if the completion waits for its client. */
  async function storeTurns(
    { id: runId, caller }: RunPlan,
    ending: Ending,
    journal: Journal,
    { request, createdAt }: CompletionRun,
  ): Promise<void> {
    if (ending.type !== 'pending' || !request.store) return;
    const state = await storedState(journal, runId, { tenant: caller.tenant });
    const turns = state && turnsToStore(conversationBefore(runId, state, []), state.inputLength);
    if (!turns) return;
    const id = completionId(runId);
    // They were stored before if the process died before the end was stored.
    if (await records.head(caller.tenant, id)) return;
    await records.create({
      id,
      kind: 'turns' satisfies RequestKind,
      tenant: caller.tenant,
      // The turns do not need the run.
      runId: id,
      status: 'requires_action',
      createdAt,
      updatedAt: Date.now(),
      request: { key: caller.key },
      response: turns,
    });
  }

  return { prepare: prepareCompletion };
}

/** Throws a 400 for what the model of a request does not take. */
function checkSupport(model: Model, { settings, messages }: CompletionRequest, name: string): void {
  checkSettings(model, name, settings, { reasoning: 'reasoning_effort', topLogprobs: 'logprobs' });
  for (const message of messages) {
    if (message.role !== 'user') continue;
    for (const block of message.content) {
      if (block.type === 'image' && !acceptsMedia(model, block)) throw notTaken(name, 'image_url.detail');
    }
  }
}

/**
 * Whether the content is only that of the last turn: JSON must not follow another text, neither one before a call of the
 * server nor an answer that was not valid.
 */
function hasOneAnswer({ format, stream }: CompletionRequest, { toolset }: RunPlan): boolean {
  if (!format) return false;
  return toolset.tools.some(({ execute }) => execute) || (format.strict === true && !stream);
}

/** The id of the record of a completion with a key. */
function recordId(runId: string): string {
  return KEYED_PREFIX + completionId(runId);
}
