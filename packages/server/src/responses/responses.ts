import {
  NEW,
  runLoop,
  TreadleError,
  walkInSlices,
  type Item,
  type Journal,
  type Lease,
  type Model,
  type ModelError,
  type State,
} from '@treadle/core';
import type { ResponseRecord } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { conversationBefore, storedState, type Conversation, type ConversationBefore } from '../engine/conversation.ts';
import type { ActiveRun, Engine } from '../engine/engine.ts';
import { OWN_LABEL } from '../engine/executors.ts';
import {
  driveRequest,
  planRun,
  runJournal,
  type Ending,
  type ResumedRun,
  type RunEnd,
  type RunPlan,
} from '../engine/run.ts';
import type { CallKinds, RunCaller } from '../engine/tools.ts';
import type { Caller } from '../http/admission.ts';
import { newResponseId, RESPONSE_PREFIX } from '../ids.ts';
import { responseOutput, type ResponseError, type ResponseOutputOptions } from './output.ts';
import { storable, type ResponseRequest } from './parse-request.ts';
import { restoreHistory, storedOutputs } from './restore-history.ts';
import type { ResponseResource } from './wire.ts';

/**
 * Runs responses, and reads stored ones.
 *
 * 1. A stored response belongs to the process that has the lease of its run, from before it is created until its end is
 *    stored. A process that takes one over acquires the run first, and then reads the response and the run.
 * 2. A client learns that a response has ended only when its end is stored. If the end cannot be stored, or the run was
 *    detached, the client learns that the response was interrupted, and the response is resumed later.
 * 3. Only a response that is still in progress, or that is cancelled while it waits for the client, is finished. If another
 *    process was first, its response is reported.
 */
export interface Responses {
  /** Validates everything, and stores the response unless `store` is false. Rejects with an `ApiError`. */
  prepare(request: ResponseRequest, caller: Caller): Promise<PreparedResponse>;
  /** The current state of a response. Rejects with an `ApiError` if the caller has no response with that id. */
  retrieve(id: string, caller: Caller): Promise<ResponseResource>;
  /** The request of a response. */
  requestOf(id: string, caller: Caller): Promise<ResponseRequest>;
  /** Stops a response that is in progress or waits for the client; resolves to the final response. */
  cancel(id: string, caller: Caller): Promise<ResponseResource>;
  delete(id: string, caller: Caller): Promise<void>;
  /** Resumes responses that another process has detached from, in the background. Resolves to their number. */
  recover(): Promise<number>;
}

export interface PreparedResponse {
  readonly id: string;
  /** Rejects if another process has taken over. `signal` aborts when the client disconnects. */
  run(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse>;
}

type ResponseListener = Pick<ResponseOutputOptions, 'emit' | 'requiresAction'>;

export interface FinishedResponse {
  readonly response: ResponseResource;
  /** The model failure that ended it. */
  readonly failure?: ModelError;
  /** The response has not ended, and is resumed later: why it was interrupted. */
  readonly interruption?: ResponseError;
}

/** The stored form of a request. The store's records contain it, so its fields must not change. */
interface StoredRequest {
  readonly request: ResponseRequest;
  /** The texts of all system and developer messages so far, for responses that continue from this one. */
  readonly system: readonly string[];
  readonly key: string;
  readonly scopes: readonly string[];
}

/**
 * A response that this process could not store. A store may accept small writes and reject large ones, and each attempt
 * may call the model, so the time between attempts doubles.
 */
interface Postponement {
  readonly failures: number;
  /** By `performance.now()`. */
  readonly until: number;
}

interface ActiveResponse extends ActiveRun {
  cancel(): void;
  current(): ResponseResource;
  readonly finished: Promise<FinishedResponse>;
}

export function responses(engine: Engine): Responses {
  const { store, log, runs } = engine;
  const records = store.responses;
  const outputs = storedOutputs({ runs: store, responses: records });
  const active = new Map<string, ActiveResponse>();
  const postponed = new Map<string, Postponement>();

  async function prepareResponse(request: ResponseRequest, caller: Caller): Promise<PreparedResponse> {
    const release = runs.reserve(caller.tenant);
    try {
      const { created, plan } = await createResponse(request, caller);
      return {
        id: plan.id,
        async run(listener, signal) {
          try {
            return await runResponse(plan, { created, request, listener, signal }).finished;
          } catch (error) {
            throw isDrivenElsewhere(error) ? drivenElsewhere(plan.id) : error;
          } finally {
            release();
          }
        },
      };
    } catch (error) {
      release();
      throw error;
    }
  }

  async function createResponse(
    parsed: ResponseRequest,
    caller: Caller,
  ): Promise<{ readonly created: ResponseResource; readonly plan: RunPlan }> {
    const { input, system, conversation } = await requestConversation(parsed, caller);
    const request = { ...parsed, input };
    const id = newResponseId();
    const plan = await planRun(engine, request, conversation, { id, caller });
    const now = Date.now();
    const created = newResponse(id, request, engine.models.default, now);
    if (!request.store) return { created, plan };
    const { tenant, key, scopes } = caller;
    const stored: StoredRequest = { request: storable(request), system, key, scopes };
    const lease = await store.acquire(id);
    try {
      await records.create({
        id,
        tenant,
        runId: id,
        status: created.status,
        createdAt: now,
        updatedAt: now,
        ...(request.previous !== undefined && { previous: request.previous }),
        request: stored,
        response: created,
      });
    } catch (error) {
      await lease.release();
      throw error;
    }
    return { created, plan: { ...plan, journal: store, lease } };
  }

  /** The conversation of a request: that of the response that it continues, and its own input. */
  async function requestConversation(
    request: ResponseRequest,
    caller: RunCaller,
  ): Promise<{
    readonly input: ResponseRequest['input'];
    readonly system: readonly string[];
    readonly conversation: Conversation;
  }> {
    const { previous, instructions = '' } = request;
    const before = previous === undefined ? undefined : await previousConversation(previous, caller);
    const lookUp = (response: string) => outputs.lookUp(caller.tenant, response);
    const { input, messages, system } = await restoreHistory(request.input, lookUp, before);
    return { input, system, conversation: { messages, instructions: [instructions, ...system] } };
  }

  /** The conversation that another response continues. */
  async function previousConversation(previous: string, caller: RunCaller): Promise<ConversationBefore> {
    const record = previous.startsWith(RESPONSE_PREFIX) ? await records.get(caller.tenant, previous) : undefined;
    if (record?.status === 'in_progress') {
      const message = `The response ${JSON.stringify(previous)} is in progress. Wait until it has ended, or cancel it.`;
      throw new ApiError(409, 'invalid_request_error', message, {
        param: 'previous_response_id',
        code: 'response_in_progress',
      });
    }
    const state = record && (await storedState(store, record.runId));
    if (state) return conversationBefore(record.id, state, (record.request as StoredRequest).system);
    const message = `There is no response ${JSON.stringify(previous)} to continue from. It was deleted, was not stored, or never existed.`;
    throw badRequest(message, 'previous_response_id', 'previous_response_not_found');
  }

  interface ResponseRun {
    readonly created: ResponseResource;
    readonly request: ResponseRequest;
    readonly listener: ResponseListener;
    readonly signal?: AbortSignal;
    /** The status that the response has in the store; default `in_progress`. */
    readonly from?: string;
    /** Set if the run has started before. */
    readonly resume?: ResumedRun;
  }

  /** Drives a run and builds the response. Releases the lease of the plan at the end. */
  function runResponse(
    plan: RunPlan,
    { created, request, listener, signal, from, resume }: ResponseRun,
  ): ActiveResponse {
    const { id, caller, lease } = plan;
    const encrypted = request.include.includes(ENCRYPTED);
    const out = responseOutput({ response: created, calls: plan.toolset.kinds, encrypted, ...listener });
    out.sendCreated();
    for (const item of resume?.items ?? []) void out.addItem(item);
    const run = driveRequest(plan, engine, out.addItem, resume);
    signal?.addEventListener('abort', run.cancel, { once: true });
    if (signal?.aborted) run.cancel();

    async function endRun({ ending, failure }: RunEnd): Promise<FinishedResponse> {
      if (!ending) return interruptResponse(SHUTTING_DOWN);
      const finished = await finishResponse(ending);
      return { ...finished, ...(failure && { failure }) };
    }

    async function finishResponse(ending: Ending): Promise<FinishedResponse> {
      const made = out.endResponse(ending);
      const response = request.store ? await storeEnd(caller.tenant, made, { at: ending.at, from }) : made;
      // Before the client is told, because its next request may be for another process.
      await lease?.release();
      postponed.delete(id);
      out.sendTerminal(response);
      return { response };
    }

    /** The run cannot be driven. If a later attempt may succeed, the response does not fail. */
    function failRun(error: unknown): Promise<FinishedResponse> {
      if (isDrivenElsewhere(error) || isStoreFailure(error)) throw error;
      log.error({ err: error, response: id }, 'a response failed unexpectedly');
      return finishResponse({ type: 'failed', error: UNEXPECTED, at: Date.now(), usage: NO_USAGE });
    }

    /** The run cannot be written, or its end cannot be stored. The client receives an error without details. */
    async function giveUp(error: unknown): Promise<FinishedResponse> {
      if (isDrivenElsewhere(error)) {
        await interruptResponse(TAKEN_OVER);
        throw error;
      }
      log.error({ err: error, response: id }, 'a response was interrupted: the store cannot be written');
      const failures = (postponed.get(id)?.failures ?? 0) + 1;
      const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LAST_RETRY_MS);
      postponed.set(id, { failures, until: performance.now() + delayMs });
      return interruptResponse(storeFailed(id));
    }

    /** Only the stream ends. The response itself is resumed later, or belongs to another process. */
    async function interruptResponse(interruption: ResponseError): Promise<FinishedResponse> {
      await lease?.release();
      out.sendInterruption(interruption);
      return { response: created, interruption };
    }

    const response: ActiveResponse = {
      // In progress until it is stored: a client that sees another status may continue from it at once, in any process.
      current: () => ({ ...created, output: out.current().output }),
      cancel: run.cancel,
      detach: () => (request.store ? void run.detach() : run.cancel()),
      finished: run.ended.then(endRun, failRun).catch(giveUp),
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

  /** Stores the end of a response. Resolves to the response that is stored: another process may have been first. */
  async function storeEnd(
    tenant: string,
    response: ResponseResource,
    { at, from }: { readonly at: number; readonly from: string | undefined },
  ): Promise<ResponseResource> {
    const { id, status } = response;
    if (await records.finish(id, { ...(from !== undefined && { from }), status, response, at })) return response;
    const record = await records.get(tenant, id);
    return record ? (record.response as ResponseResource) : response;
  }

  async function findResponse(id: string, { tenant }: Caller): Promise<ResponseRecord> {
    const record = id.startsWith(RESPONSE_PREFIX) ? await records.get(tenant, id) : undefined;
    if (record) return record;
    const message = `There is no response ${JSON.stringify(id)}. It was deleted, was not stored, or never existed.`;
    throw new ApiError(404, 'invalid_request_error', message, { param: 'response_id', code: 'response_not_found' });
  }

  async function cancelResponse(id: string, caller: Caller): Promise<ResponseResource> {
    const found = await findResponse(id, caller);
    const running = active.get(id);
    try {
      if (running) {
        running.cancel();
        return endedResponse(await running.finished);
      }
      const taken = isOpen(found) ? await takeOver(found, isOpen) : undefined;
      if (!taken) return (await findResponse(id, caller)).response as ResponseResource;
      const { finished } = await resumeResponse(taken, AbortSignal.abort());
      return endedResponse(await finished);
    } catch (error) {
      throw isDrivenElsewhere(error) ? drivenElsewhere(id) : error;
    }
  }

  /** A response that no other process drives or finishes while this process has the lease. */
  interface TakenResponse {
    readonly record: ResponseRecord;
    readonly lease: Lease;
  }

  /**
   * Acquires the run of a response, then reads the response again, because another process may have finished it. Undefined
   * if it is not wanted any more. Rejects with `run-driven` while another process drives it.
   */
  async function takeOver(
    { id, tenant, runId }: ResponseRecord,
    isWanted: (record: ResponseRecord) => boolean,
  ): Promise<TakenResponse | undefined> {
    const lease = await store.acquire(runId);
    try {
      const record = await records.get(tenant, id);
      if (record && isWanted(record)) return { record, lease };
    } catch (error) {
      await lease.release();
      throw error;
    }
    await lease.release();
    return undefined;
  }

  /** Resumes a response. One that cannot be resumed fails. Rejects if the store fails. */
  async function resumeResponse(taken: TakenResponse, signal?: AbortSignal): Promise<Pick<ActiveResponse, 'finished'>> {
    try {
      const { plan, run } = await planResume(taken);
      return runResponse(plan, { ...run, ...(signal && { signal }) });
    } catch (error) {
      if (isStoreFailure(error)) {
        await taken.lease.release();
        throw error;
      }
      log.warn({ err: error, response: taken.record.id }, 'a response cannot be resumed');
      const failed = await failUnresumable(taken, error);
      return { finished: Promise.resolve(failed) };
    }
  }

  /** Plans to resume a run at the end of its journal. One that has not started is started from the stored request. */
  async function planResume({ record, lease }: TakenResponse): Promise<{
    readonly plan: RunPlan;
    readonly run: ResponseRun;
  }> {
    const { id, tenant, runId, status: from } = record;
    const { request, key, scopes } = record.request as StoredRequest;
    const caller = { tenant, key, scopes };
    const { items, state } = await replayItems(store, runId);
    // The conversation of a run that has started is in its journal.
    const conversation =
      state === NEW ? (await requestConversation(request, caller)).conversation : { messages: [], instructions: [] };
    return {
      plan: await planRun(engine, request, conversation, { id, caller, journal: store, lease }),
      run: {
        created: newResponse(id, request, engine.models.default, record.createdAt),
        request,
        listener: { requiresAction: false },
        from,
        ...(state !== NEW && { resume: { items, usedTokens: state.usage.outputTokens } }),
      },
    };
  }

  /**
   * Ends a response that cannot be resumed: its journal is damaged, or something that it needs does not exist any more.
   * Its output so far is preserved.
   */
  async function failUnresumable({ record, lease }: TakenResponse, error: unknown): Promise<FinishedResponse> {
    const { id, tenant, runId, status: from } = record;
    const { request } = record.request as StoredRequest;
    try {
      const { items, state } = isDamaged(error) ? { items: [], state: NEW } : await replayItems(store, runId);
      const out = responseOutput({
        response: newResponse(id, request, engine.models.default, record.createdAt),
        calls: kindsByName(request),
        encrypted: request.include.includes(ENCRYPTED),
        requiresAction: false,
      });
      for (const item of items) void out.addItem(item);
      const isPublic = error instanceof ApiError || error instanceof TreadleError;
      const message = isPublic ? error.message : 'The server stopped while the response was in progress.';
      const at = Date.now();
      const made = out.endResponse({
        type: 'failed',
        error: { code: 'server_error', message },
        at,
        usage: state.usage,
      });
      if (state !== NEW) await cancelRun(runJournal(store, lease), runId);
      return { response: await storeEnd(tenant, made, { at, from }) };
    } finally {
      await lease.release();
    }
  }

  async function recoverResponses(): Promise<number> {
    let count = 0;
    for (const record of await records.unfinished()) {
      try {
        if (await recoverResponse(record)) count++;
      } catch (error) {
        // It is still in progress. The next attempt may succeed.
        if (!isDrivenElsewhere(error)) log.error({ err: error, response: record.id }, 'a response was not resumed');
      }
    }
    return count;
  }

  /** False if a process drives the response, it has ended, or it is resumed later. */
  async function recoverResponse(found: ResponseRecord): Promise<boolean> {
    if (performance.now() < (postponed.get(found.id)?.until ?? 0)) return false;
    if (active.has(found.id) || (await store.isDriven(found.runId))) return false;
    const release = reserveIfPossible(found);
    if (!release) return false;
    let finished: Promise<unknown> | undefined;
    try {
      const taken = await takeOver(found, ({ status }) => status === 'in_progress');
      if (taken) ({ finished } = await resumeResponse(taken));
    } finally {
      if (!finished) release();
    }
    finished?.then(release, (error: unknown) => {
      release();
      log.error({ err: error, response: found.id }, 'a resumed response failed unexpectedly');
    });
    return finished !== undefined;
  }

  /** Undefined if there is no capacity. */
  function reserveIfPossible({ tenant }: ResponseRecord): (() => void) | undefined {
    try {
      return runs.reserve(tenant);
    } catch {
      return undefined;
    }
  }

  return {
    prepare: prepareResponse,
    async retrieve(id, caller) {
      const running = active.get(id);
      const record = await findResponse(id, caller);
      if (running && record.status === 'in_progress') return running.current();
      return record.response as ResponseResource;
    },
    requestOf: async (id, caller) => ((await findResponse(id, caller)).request as StoredRequest).request,
    cancel: cancelResponse,
    async delete(id, caller) {
      await findResponse(id, caller);
      const running = active.get(id);
      running?.cancel();
      // Whether it can be deleted is up to the store.
      await running?.finished.catch(() => {});
      await records.delete(caller.tenant, id).catch((error: unknown) => {
        throw isDrivenElsewhere(error) ? drivenElsewhere(id) : error;
      });
      outputs.forget(caller.tenant, id);
      postponed.delete(id);
    },
    recover: recoverResponses,
  };
}

/** How long to wait before a response is resumed that could not be stored: after the first failure, and at most. */
const FIRST_RETRY_MS = 30_000;
const LAST_RETRY_MS = 3_600_000;

/** The value of `include` that requests `encrypted_content` of reasoning. */
const ENCRYPTED = 'reasoning.encrypted_content';

function isOpen({ status }: ResponseRecord): boolean {
  return status === 'in_progress' || status === 'requires_action';
}

/** The official clients repeat requests after a 409 or a 503. Here, what the response does would then be done twice. */
const DO_NOT_RETRY = { 'x-should-retry': 'false' };

/** Throws a 503 for a response that was interrupted. */
export function endedResponse({ response, interruption }: FinishedResponse): ResponseResource {
  if (!interruption) return response;
  const { code, message } = interruption;
  throw new ApiError(503, 'server_error', message, { code, headers: DO_NOT_RETRY });
}

/** A response when it is created. */
function newResponse(id: string, request: ResponseRequest, defaultModel: string, now: number): ResponseResource {
  return {
    id,
    object: 'response',
    created_at: Math.floor(now / 1000),
    completed_at: null,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    output: [],
    usage: null,
    ...request.echo,
    model: request.model ?? defaultModel,
  };
}

/** All items of a run so far, from its journal, and its state; `NEW` if it has not started. */
async function replayItems(
  journal: Journal,
  runId: string,
): Promise<{ readonly items: readonly Item[]; readonly state: State }> {
  const items: Item[] = [];
  const { state } = await walkInSlices(await journal.read(runId), (step) => void items.push(...step.items));
  return { items, state };
}

/** The kinds of calls as far as they follow from the request alone. */
function kindsByName({ functions }: ResponseRequest): CallKinds {
  const clientNames = new Set(functions.map(({ name }) => name));
  return { kindOf: (name) => (clientNames.has(name) ? 'client' : 'server'), labelOf: () => OWN_LABEL };
}

/** Never called: the run is cancelled before it calls a model. */
const NO_MODEL: Model = { id: 'none', reply: () => new Promise(() => {}) };

async function cancelRun(journal: Journal, runId: string): Promise<void> {
  await runLoop({ journal, runId, model: NO_MODEL, acceptChangedTools: true, signal: AbortSignal.abort() });
}

/** Another server with the same store drives the run. */
function isDrivenElsewhere(error: unknown): boolean {
  return error instanceof TreadleError && (error.code === 'run-driven' || error.code === 'lease-lost');
}

/** The store cannot be read or written. What it contains is intact, so a later attempt may succeed. */
function isStoreFailure(error: unknown): boolean {
  return error instanceof TreadleError && (error.code === 'journal-failed' || error.code.startsWith('store-'));
}

function isDamaged(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'journal-damaged';
}

/** Only the process that drives a run can stop it. */
function drivenElsewhere(id: string): ApiError {
  const message = `The response ${JSON.stringify(id)} is in progress in another process of this server. Retry when it has ended.`;
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'response_id',
    code: 'response_in_progress',
    headers: DO_NOT_RETRY,
  });
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

const UNEXPECTED = { code: 'server_error', message: 'The server failed unexpectedly. Its log has the reason.' };

const TAKEN_OVER: ResponseError = {
  code: 'response_interrupted',
  message: 'Another process of this server has taken over the response. Fetch it by its id.',
};

const SHUTTING_DOWN: ResponseError = {
  code: 'server_stopping',
  message: 'The server is shutting down; this response resumes after the restart. Fetch it by its id.',
};

function storeFailed(id: string): ResponseError {
  return {
    code: 'response_interrupted',
    message: `The server cannot store the response ${id} at the moment. It is resumed when the store can be written. Fetch it by its id.`,
  };
}
