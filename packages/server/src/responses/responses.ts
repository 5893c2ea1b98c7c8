import {
  NEW,
  runLoop,
  TreadleError,
  walkJournal,
  type Item,
  type Journal,
  type Model,
  type ModelError,
  type State,
} from '@treadle/core';
import type { ResponseRecord } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { conversationBefore, storedState, type ConversationBefore } from '../engine/conversation.ts';
import type { ActiveRun, Engine } from '../engine/engine.ts';
import { OWN_LABEL } from '../engine/executors.ts';
import { driveRequest, planRun, type RunEnd, type RunPlan } from '../engine/run.ts';
import type { CallKinds } from '../engine/tools.ts';
import type { Caller } from '../http/admission.ts';
import { newResponseId, RESPONSE_PREFIX } from '../ids.ts';
import { responseOutput, type ResponseOutputOptions } from './output.ts';
import { storable, type ResponseRequest } from './parse-request.ts';
import { restoreHistory, storedOutputs } from './restore-history.ts';
import type { ResponseResource } from './wire.ts';

/** Runs responses, and reads stored ones. */
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
  /** Rejects if the store fails. `signal` aborts when the client disconnects. */
  run(listener: ResponseListener, signal: AbortSignal): Promise<FinishedResponse>;
}

type ResponseListener = Pick<ResponseOutputOptions, 'emit' | 'requiresAction'>;

export interface FinishedResponse {
  readonly response: ResponseResource;
  /** The model failure that ended it. */
  readonly failure?: ModelError;
  /** The server is shutting down: the response was detached and is resumed after the restart. */
  readonly isDetached?: true;
}

/** The stored form of a request. The store's records contain it, so its fields must not change. */
interface StoredRequest {
  readonly request: ResponseRequest;
  /** The texts of all system and developer messages so far, for responses that continue from this one. */
  readonly system: readonly string[];
  readonly key: string;
  readonly scopes: readonly string[];
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
    const { previous } = parsed;
    const before = previous === undefined ? undefined : await previousConversation(previous, caller);
    const lookUp = (response: string) => outputs.lookUp(caller.tenant, response);
    const { input, messages, system } = await restoreHistory(parsed.input, lookUp, before);
    const request = { ...parsed, input };
    const id = newResponseId();
    const conversation = { messages, instructions: [request.instructions ?? '', ...system] };
    const plan = await planRun(engine, request, conversation, {
      id,
      caller,
      ...(request.store && { journal: store }),
    });
    const now = Date.now();
    const created = newResponse(id, request, engine.models.default, now);
    if (request.store) {
      const { tenant, key, scopes } = caller;
      const stored: StoredRequest = { request: storable(request), system, key, scopes };
      await records.create({
        id,
        tenant,
        runId: id,
        status: created.status,
        createdAt: now,
        updatedAt: now,
        ...(previous !== undefined && { previous }),
        request: stored,
        response: created,
      });
    }
    return { created, plan };
  }

  /** The conversation that another response continues. */
  async function previousConversation(previous: string, caller: Caller): Promise<ConversationBefore> {
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
    /** Set to resume a response: its items so far, and the tokens that the model has generated. */
    readonly resume?: { readonly items: readonly Item[]; readonly usedTokens: number };
  }

  /** Drives a run and builds the response. The response is stored before the client receives the terminal event. */
  function runResponse(plan: RunPlan, { created, request, listener, signal, resume }: ResponseRun): ActiveResponse {
    const encrypted = request.include.includes(ENCRYPTED);
    const out = responseOutput({ response: created, calls: plan.toolset.kinds, encrypted, ...listener });
    out.sendCreated();
    for (const item of resume?.items ?? []) void out.addItem(item);
    const run = driveRequest(plan, engine, out.addItem, resume);
    signal?.addEventListener('abort', run.cancel, { once: true });
    if (signal?.aborted) run.cancel();

    async function finishResponse({ ending, failure }: RunEnd): Promise<FinishedResponse> {
      signal?.removeEventListener('abort', run.cancel);
      if (!ending) {
        // Only the stream ends. The response itself is resumed later.
        out.endResponse({ type: 'failed', error: SHUTTING_DOWN, at: Date.now(), usage: NO_USAGE });
        out.sendTerminal();
        return { response: created, isDetached: true };
      }
      const response = out.endResponse(ending);
      if (request.store) await records.finish(plan.id, { status: response.status, response, at: ending.at });
      out.sendTerminal();
      return { response, ...(failure && { failure }) };
    }

    /** The journal or the store failed. The client receives an error without details. */
    async function failResponse(error: unknown): Promise<FinishedResponse> {
      if (isDrivenElsewhere(error)) {
        // Only the stream ends. The response itself belongs to another process.
        out.endResponse({ type: 'failed', error: TAKEN_OVER, at: Date.now(), usage: NO_USAGE });
        out.sendTerminal();
        throw error;
      }
      log.error({ err: error, response: plan.id }, 'a response failed unexpectedly');
      const at = Date.now();
      const response = out.endResponse({ type: 'failed', error: UNEXPECTED, at, usage: NO_USAGE });
      try {
        if (request.store) await records.finish(plan.id, { status: response.status, response, at });
      } catch (storeError) {
        log.error({ err: storeError, response: plan.id }, 'a failed response could not be stored');
      }
      out.sendTerminal();
      return { response };
    }

    const response: ActiveResponse = {
      // In progress until it is stored: a client that sees another status may continue from it at once, in any process.
      current: () => ({ ...created, output: out.current().output }),
      cancel: run.cancel,
      detach: () => (request.store ? void run.detach() : run.cancel()),
      finished: run.ended.then(finishResponse).catch(failResponse),
    };
    active.set(plan.id, response);
    const remove = (): void => void active.delete(plan.id);
    response.finished.then(remove, remove);
    runs.add(response);
    return response;
  }

  async function findResponse(id: string, { tenant }: Caller): Promise<ResponseRecord> {
    const record = id.startsWith(RESPONSE_PREFIX) ? await records.get(tenant, id) : undefined;
    if (record) return record;
    const message = `There is no response ${JSON.stringify(id)}. It was deleted, was not stored, or never existed.`;
    throw new ApiError(404, 'invalid_request_error', message, { param: 'response_id', code: 'response_not_found' });
  }

  async function cancelResponse(id: string, caller: Caller): Promise<ResponseResource> {
    const record = await findResponse(id, caller);
    const running = active.get(id);
    if (running) {
      running.cancel();
      return (await running.finished).response;
    }
    const isOpen = record.status === 'in_progress' || record.status === 'requires_action';
    if (!isOpen) return record.response as ResponseResource;
    try {
      const resumed = await resumeResponse(record, AbortSignal.abort());
      return (await resumed.finished).response;
    } catch (error) {
      if (isDrivenElsewhere(error)) throw drivenElsewhere(id);
      return failUnresumable(record, error);
    }
  }

  /** Resumes a response that no process drives, at the end of its journal. */
  async function resumeResponse(record: ResponseRecord, signal?: AbortSignal): Promise<ActiveResponse> {
    const { request, key, scopes } = record.request as StoredRequest;
    const caller = { tenant: record.tenant, key, scopes };
    const created = newResponse(record.id, request, engine.models.default, record.createdAt);
    // The conversation is in the journal.
    const conversation = { messages: [], instructions: [] };
    const plan = await planRun(engine, request, conversation, { id: record.id, caller, journal: store });
    const { items, state } = await replayItems(store, record.runId);
    if (state === NEW) throw new TreadleError('unknown-run', 'The server stopped before the run had started.');
    const resume = { items, usedTokens: state.usage.outputTokens };
    return runResponse(plan, {
      created,
      request,
      listener: { requiresAction: false },
      resume,
      ...(signal && { signal }),
    });
  }

  /**
   * Ends a response that cannot be resumed: its run never started, or a model or a tool that it needs does not exist any
   * more. Its output so far is preserved.
   */
  async function failUnresumable(record: ResponseRecord, error: unknown): Promise<ResponseResource> {
    const { request } = record.request as StoredRequest;
    const { items, state } = await replayItems(store, record.runId);
    const out = responseOutput({
      response: newResponse(record.id, request, engine.models.default, record.createdAt),
      calls: kindsByName(request),
      encrypted: request.include.includes(ENCRYPTED),
      requiresAction: false,
    });
    for (const item of items) void out.addItem(item);
    const isPublic = error instanceof ApiError || error instanceof TreadleError;
    const message = isPublic ? error.message : 'The server stopped while the response was in progress.';
    const at = Date.now();
    const response = out.endResponse({
      type: 'failed',
      error: { code: 'server_error', message },
      at,
      usage: state.usage,
    });
    if (state !== NEW) await cancelRun(store, record.runId);
    await records.finish(record.id, { status: response.status, response, at });
    return response;
  }

  async function recoverResponses(): Promise<number> {
    let count = 0;
    for (const record of await records.unfinished()) {
      if (active.has(record.id) || (await store.isDriven(record.runId)) || (await isStarting(record))) continue;
      // The list may be outdated by now.
      if ((await records.get(record.tenant, record.id))?.status !== 'in_progress') continue;
      const release = reserveIfPossible(record);
      if (!release) break;
      count++;
      try {
        const { finished } = await resumeResponse(record);
        finished.then(release, release);
        finished.catch((error: unknown) =>
          log.error({ err: error, response: record.id }, 'a resumed response failed unexpectedly'),
        );
      } catch (error) {
        log.warn({ err: error, response: record.id }, 'a response cannot be resumed');
        release();
        await failUnresumable(record, error);
      }
    }
    return count;
  }

  /** Undefined if there is no capacity. The remaining responses are resumed later. */
  function reserveIfPossible({ tenant }: ResponseRecord): (() => void) | undefined {
    try {
      return runs.reserve(tenant);
    } catch {
      return undefined;
    }
  }

  /** Whether another process may be about to start the run. */
  async function isStarting({ runId, createdAt }: ResponseRecord): Promise<boolean> {
    return Date.now() - createdAt < STARTING_MS && (await store.read(runId)).length === 0;
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
      await running?.finished;
      await records.delete(caller.tenant, id).catch((error: unknown) => {
        throw isDrivenElsewhere(error) ? drivenElsewhere(id) : error;
      });
      outputs.forget(caller.tenant, id);
    },
    recover: recoverResponses,
  };
}

/** The value of `include` that requests `encrypted_content` of reasoning. */
const ENCRYPTED = 'reasoning.encrypted_content';

/** Storing a response and starting its run are only moments apart. */
const STARTING_MS = 10_000;

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
  const { state } = walkJournal(await journal.read(runId), (step) => void items.push(...step.items));
  return { items, state };
}

/** The kinds of calls as far as they follow from the request alone. */
function kindsByName({ functions }: ResponseRequest): CallKinds {
  const clientNames = new Set(functions.map(({ name }) => name));
  return { kindOf: (name) => (clientNames.has(name) ? 'client' : 'server'), labelOf: () => OWN_LABEL };
}

/** Never called: the run is cancelled before it calls a model. */
const NO_MODEL: Model = { id: 'none', reply: () => new Promise(() => {}) };

async function cancelRun(journal: Engine['store'], runId: string): Promise<void> {
  await runLoop({ journal, runId, model: NO_MODEL, acceptChangedTools: true, signal: AbortSignal.abort() });
}

/** Another server with the same store drives the run. */
function isDrivenElsewhere(error: unknown): boolean {
  return error instanceof TreadleError && (error.code === 'run-driven' || error.code === 'lease-lost');
}

/** Only the process that drives a run can stop it. */
function drivenElsewhere(id: string): ApiError {
  const message = `The response ${JSON.stringify(id)} is in progress in another process of this server. Retry when it has ended.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'response_id', code: 'response_in_progress' });
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

const UNEXPECTED = { code: 'server_error', message: 'The server failed unexpectedly. Its log has the reason.' };

const TAKEN_OVER = {
  code: 'server_error',
  message: 'Another process of this server has taken over the response. Fetch it by its id.',
};

export const SHUTTING_DOWN = {
  code: 'server_stopping',
  message: 'The server is shutting down; this response resumes after the restart. Fetch it by its id.',
};
