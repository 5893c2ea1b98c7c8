import { memoryJournal, NEW, type Journal, type Model } from '@treadle/core';
import { ApiError, errorBody } from '../api-error.ts';
import { conversationBefore, storedState, type Conversation } from '../engine/conversation.ts';
import type { Engine } from '../engine/engine.ts';
import { isKeyTaken, type RequestKey } from '../engine/idempotency.ts';
import { acceptsMedia, checkSettings, notTaken } from '../engine/request-model.ts';
import {
  driveRequest,
  planRun,
  type DrivenRun,
  type Ending,
  type ResumedRun,
  type RunEnd,
  type RunPlan,
} from '../engine/run.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import {
  isDrivenElsewhere,
  retryLater,
  TAKEN_OVER,
  unresumableReason,
  type Interruption,
} from '../engine/interruption.ts';
import {
  cancelIfReadable,
  replayItems,
  type FinalEnd,
  type RepeatedRequest,
  type ResumeOptions,
  type StoredEnd,
  type StoredRuns,
  type TakenRecord,
} from '../engine/stored-runs.ts';
import type { Caller } from '../http/admission.ts';
import { KEYED_PREFIX, newResponseId } from '../ids.ts';
import { withoutSecrets } from '../request/tools.ts';
import { chatOutput, replayCompletion, type ChatOutput, type ChatOutputOptions } from './output.ts';
import type { ChatRequest } from './parse-request.ts';
import { COMPLETION_PREFIX, completionId, restoreTurns, turnsToStore, type StoredTurns } from './restore-history.ts';
import type { ChatCompletion } from './wire.ts';

/** Runs completions. */
export interface Chats {
  /**
   * Validates everything. Rejects with an `ApiError`. For a key that was used before, the prepared completion is that of the
   * first request.
   */
  prepare(request: ChatRequest, caller: Caller, key?: RequestKey): Promise<PreparedChat>;
}

export interface PreparedChat {
  readonly id: string;
  /**
   * Rejects if the store fails. `signal` aborts when the client disconnects: the run is cancelled, unless it has a key,
   * because the client can ask for it again.
   */
  run(emit: ChatOutputOptions['emit'], signal: AbortSignal): Promise<ChatCompletion | ApiError>;
}

/** The stored request of a completion with a key. The store's records contain it, so its fields must not change. */
interface StoredChatRequest {
  readonly chat: ChatRequest;
  readonly key: string;
  readonly scopes: readonly string[];
}

/** The end of a completion with a key. Stored as JSON, so its fields must not change. */
type StoredChatEnd =
  | { readonly completion: ChatCompletion }
  | { readonly error: Pick<ApiError, 'status' | 'type' | 'message' | 'param' | 'code' | 'headers'> };

/**
 * A completion without a key runs in memory: it cannot be fetched later, and a client that did not receive it sends its
 * request again. Only completions that wait for their client are stored, with what the next request does not contain.
 *
 * A completion with a key is stored with its run until the key expires. No client can fetch it.
 */
export function chats(engine: Engine, stored: StoredRuns): Chats {
  const { store, runs, models } = engine;
  const records = store.responses;
  stored.handle(KEYED_PREFIX + COMPLETION_PREFIX, { resume: resumeCompletion, fail: failUnresumable });

  async function lookUpTurns(completion: string, reader: Reader): Promise<StoredTurns | undefined> {
    const record = await readRecord(store, completion, reader);
    return record?.response as StoredTurns | undefined;
  }

  async function requestConversation({ messages, system }: ChatRequest, reader: Reader): Promise<Conversation> {
    const restored = await restoreTurns(messages, (completion) => lookUpTurns(completion, reader));
    return { messages: restored, instructions: system };
  }

  async function prepareCompletion(request: ChatRequest, caller: Caller, key?: RequestKey): Promise<PreparedChat> {
    const used = key && (await stored.findKey(caller.tenant, key));
    if (key && used !== undefined) {
      const prepareAgain = (): Promise<PreparedChat> => prepareCompletion(request, caller, key);
      const { tenant, hold } = caller;
      return repeatedCompletion({ tenant, hold, key, id: used }, request, prepareAgain);
    }
    const release = runs.reserve(caller.tenant);
    try {
      const id = newResponseId();
      const conversation = await requestConversation(request, { tenant: caller.tenant, hold: release.hold });
      const createdAt = Date.now();
      const plan = await planRun(engine, { id, caller, request, conversation }, async (planned) => {
        checkSupport(planned.model, request, request.model ?? models.default);
        release.hold(planned.size);
        return key ? createRecord(planned, request, key, createdAt) : planned;
      });
      return {
        id: completionId(id),
        async run(emit, signal) {
          const completion = { request, createdAt, ...(emit && { emit }) };
          try {
            if (!plan.lease) return await runInMemory(plan, completion, signal);
            return (await runStored(plan, completion)).result;
          } finally {
            release();
          }
        },
      };
    } catch (error) {
      release();
      if (key && isKeyTaken(error)) return prepareCompletion(request, caller, key);
      throw error;
    }
  }

  /** Stores a request with a key. Resolves to the plan of its run, with the lease. */
  async function createRecord(plan: RunPlan, request: ChatRequest, key: RequestKey, now: number): Promise<RunPlan> {
    const { id, caller } = plan;
    const keyToStore = stored.keyToStore(key, now);
    const chat = { ...request, otherTools: request.otherTools.map(withoutSecrets) };
    const lease = await store.acquire(id);
    try {
      await records.create(
        {
          id: recordId(id),
          tenant: caller.tenant,
          runId: id,
          status: 'in_progress',
          createdAt: now,
          updatedAt: now,
          expiresAt: keyToStore.expiresAt,
          request: { chat, key: caller.key, scopes: caller.scopes } satisfies StoredChatRequest,
        },
        keyToStore,
        chat.messages,
      );
    } catch (error) {
      await lease.release();
      throw error;
    }
    return { ...plan, journal: store, lease };
  }

  /** The completion of an earlier request with the same key. `prepareAgain` is called if that request released the key. */
  function repeatedCompletion(
    repeated: RepeatedRequest,
    { includeUsage }: ChatRequest,
    prepareAgain: () => Promise<PreparedChat>,
  ): PreparedChat {
    return {
      id: repeated.id,
      async run(emit, signal) {
        const record = await stored.follow(repeated, signal);
        if (!record) return (await prepareAgain()).run(emit, signal);
        const end = record.response as StoredChatEnd;
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
    readonly request: ChatRequest;
    readonly createdAt: number;
    readonly emit?: ChatOutputOptions['emit'];
    /** Set if the run has started before. */
    readonly resume?: ResumedRun;
  }

  interface DrivenCompletion {
    readonly run: DrivenRun;
    readonly out: ChatOutput;
  }

  function driveCompletion(plan: RunPlan, { request, createdAt, emit, resume }: CompletionRun): DrivenCompletion {
    const out = chatOutput({
      head: {
        id: completionId(plan.id),
        created: Math.floor(createdAt / 1000),
        model: request.model ?? models.default,
        service_tier: request.serviceTier,
        system_fingerprint: null,
      },
      calls: plan.toolset.kinds,
      includeUsage: request.includeUsage,
      lastTextOnly: hasOneAnswer(request, plan),
      ...(emit && { emit }),
    });
    out.sendRole();
    for (const item of resume?.items ?? []) void out.addItem(item);
    return { run: driveRequest(plan, engine, out.addItem, resume), out };
  }

  /** Drives the run of a completion without a key. Its turns are stored before the client receives the end. */
  function runInMemory(
    plan: RunPlan,
    completion: CompletionRun,
    signal: AbortSignal,
  ): Promise<ChatCompletion | ApiError> {
    const journal = memoryJournal();
    const { run, out } = driveCompletion({ ...plan, journal }, completion);
    signal.addEventListener('abort', run.cancel, { once: true });
    if (signal.aborted) run.cancel();

    async function finishCompletion({ ending = CANCELLED, failure }: RunEnd): Promise<ChatCompletion | ApiError> {
      signal.removeEventListener('abort', run.cancel);
      const result = out.endCompletion(ending, failure);
      await storeTurns(plan, ending, journal, completion);
      out.sendRest();
      return result;
    }

    const finished = run.ended.then(finishCompletion);
    runs.add({ detach: run.cancel, finished });
    return finished;
  }

  interface StoredCompletion extends StoredEnd {
    readonly result: ChatCompletion | ApiError;
  }

  /** Drives the run of a completion with a key, and stores its end. Releases the lease of the plan at the end. */
  async function runStored(plan: RunPlan, completion: CompletionRun): Promise<StoredCompletion> {
    const { run, out } = driveCompletion(plan, completion);
    const id = recordId(plan.id);

    async function finishStored(
      { ending, failure, isUntouched = false }: FinalEnd,
      release: () => Promise<void>,
    ): Promise<StoredCompletion> {
      const result = out.endCompletion(ending, failure);
      await storeTurns(plan, ending, store, completion);
      await storeEnd(id, result, isUntouched);
      await release();
      out.sendRest();
      return { result };
    }

    function interruptStored(interruption: Interruption): StoredCompletion {
      const result = retryLater(interruption);
      void completion.emit?.(errorBody(result));
      return { result, interruption };
    }

    const finished = stored.awaitEnd(run.ended, {
      id,
      lease: plan.lease,
      finish: finishStored,
      interrupt: interruptStored,
    });
    runs.add({ detach: () => void run.detach(), finished });
    return finished.catch((error: unknown) => {
      if (!isDrivenElsewhere(error)) throw error;
      return { result: retryLater(TAKEN_OVER), interruption: TAKEN_OVER };
    });
  }

  async function storeEnd(id: string, result: ChatCompletion | ApiError, releaseKey: boolean): Promise<void> {
    const isError = result instanceof ApiError;
    const end: StoredChatEnd = isError ? { error: { ...result, message: result.message } } : { completion: result };
    const status = isError ? 'failed' : 'completed';
    await records.finish(id, { status, response: end, at: Date.now(), releaseKey });
  }

  /** Resumes a completion, for a client that sends its request again. */
  async function resumeCompletion(
    { record, lease }: TakenRecord,
    { answers, signal, hold }: ResumeOptions,
  ): Promise<{ readonly finished: Promise<StoredEnd> }> {
    const { tenant, runId, createdAt } = record;
    const { chat: request, key, scopes } = record.request as StoredChatRequest;
    const caller = { tenant, key, scopes };
    const { items, state } = await replayItems(store, runId, { tenant });
    // The conversation of a run that has started is in its journal.
    const isNew = state === NEW;
    const conversation = isNew
      ? await requestConversation(request, { tenant, hold })
      : { messages: [], instructions: [] };
    const resume = { items, usedTokens: state.usage.outputTokens, ...(answers && { answers }) };
    const planned = { id: runId, caller, journal: store, lease, request, conversation };
    return planRun(engine, planned, (plan) => {
      const finished = runStored(plan, { request, createdAt, ...(!isNew && { resume }) });
      if (signal?.aborted) engine.driven.get(runId)?.cancel();
      return { finished };
    });
  }

  async function failUnresumable(taken: TakenRecord, error: unknown): Promise<StoredEnd> {
    const { record, lease } = taken;
    try {
      await cancelIfReadable(store, taken);
      const reason = new ApiError(502, 'server_error', unresumableReason(error), { code: 'server_error' });
      await storeEnd(record.id, reason, false);
      return {};
    } finally {
      await lease.release();
    }
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

const CANCELLED: Ending = { type: 'cancelled', at: 0, usage: { inputTokens: 0, outputTokens: 0 } };

/** Throws a 400 for what the model of a request does not take. */
function checkSupport(model: Model, { settings, messages }: ChatRequest, name: string): void {
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
function hasOneAnswer({ format, stream }: ChatRequest, { toolset }: RunPlan): boolean {
  if (!format) return false;
  return toolset.tools.some(({ execute }) => execute) || (format.strict === true && !stream);
}

/** The id of the record of a completion with a key. */
function recordId(runId: string): string {
  return KEYED_PREFIX + completionId(runId);
}
