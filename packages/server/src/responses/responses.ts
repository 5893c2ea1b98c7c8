import { NEW, TreadleError, type Item, type ModelError } from '@treadle/core';
import type { ResponseRecord } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { leftBy, stateOf } from '../engine/before.ts';
import { drive, type Ended, type RunPlan } from '../engine/driven.ts';
import type { Engine } from '../engine/engine.ts';
import { planOf } from '../engine/plan.ts';
import type { Live } from '../engine/under-way.ts';
import type { Caller } from '../http/env.ts';
import type { ResponseResource } from '../wire/response.ts';
import { abandon } from './abandon.ts';
import { heardOf } from './heard.ts';
import { newResponseId, RESPONSE_PREFIX } from './ids.ts';
import { ENCRYPTED, newResponse, type Kept } from './kept.ts';
import { withServerCalls } from './left-out.ts';
import { conversationFrom, type Before } from './messages.ts';
import { output, type OutputOptions } from './output.ts';
import { storable } from './parse.ts';
import { recollection } from './recalled.ts';
import { resolved, type OutputOf } from './references.ts';
import type { ResponseRequest } from './request.ts';
import { withThoughts } from './sealed-thoughts.ts';

/** Runs responses, and finds those that were run. */
export interface Responses {
  /** Checks everything, and keeps the response if it is to be kept. Rejects with an `ApiError`. */
  prepare(request: ResponseRequest, caller: Caller): Promise<PreparedResponse>;
  /** As far as it has got. Rejects with an `ApiError` if the caller has none of that id. */
  retrieve(id: string, caller: Caller): Promise<ResponseResource>;
  /** The request that it answers. */
  requestOf(id: string, caller: Caller): Promise<ResponseRequest>;
  /** Stops it if it still runs or waits; gives it as it ended. */
  cancel(id: string, caller: Caller): Promise<ResponseResource>;
  delete(id: string, caller: Caller): Promise<void>;
  /** Goes on with what another process left in the middle; how many responses that were. They end in the background. */
  recover(): Promise<number>;
}

export interface PreparedResponse {
  readonly id: string;
  /** Rejects if the store fails. `signal`: the client is gone. */
  run(listener: Listener, signal: AbortSignal): Promise<Finished>;
}

type Listener = Pick<OutputOptions, 'emit' | 'requiresAction'>;

export interface Finished {
  readonly response: ResponseResource;
  /** The failure of the model that ended it. */
  readonly failure?: ModelError;
  /** The server stops: it was left in the middle, and goes on when the server is there again. */
  readonly left?: true;
}

interface LiveResponse extends Live {
  cancel(): void;
  current(): ResponseResource;
  readonly finished: Promise<Finished>;
}

export function responses(engine: Engine): Responses {
  const { store, limits, log, runs } = engine;
  const kept = store.responses;
  const lives = new Map<string, LiveResponse>();

  async function prepare(request: ResponseRequest, caller: Caller): Promise<PreparedResponse> {
    const giveBack = runs.enter(caller.tenant);
    try {
      const { created, plan } = await opened(request, caller);
      return {
        id: plan.id,
        async run(listener, signal) {
          try {
            return await follow(plan, { created, request, listener, signal }).finished;
          } catch (error) {
            throw isElsewhere(error) ? elsewhere(plan.id) : error;
          } finally {
            giveBack();
          }
        },
      };
    } catch (error) {
      giveBack();
      throw error;
    }
  }

  const known = recollection({ runs: store, responses: kept });

  const outputOf =
    ({ tenant }: Caller): OutputOf =>
    async (id) =>
      (await known.recall(tenant, id))?.output;

  /** The input with all that clients leave to us to remember. */
  async function completed(input: ResponseRequest['input'], caller: Caller): Promise<ResponseRequest['input']> {
    const whole = await withServerCalls(input, outputOf(caller));
    return withThoughts(whole, async (id) => (await known.recall(caller.tenant, id))?.replies);
  }

  async function opened(
    asked: ResponseRequest,
    caller: Caller,
  ): Promise<{ readonly created: ResponseResource; readonly plan: RunPlan }> {
    const request = { ...asked, input: await resolved(asked.input, outputOf(caller)) };
    const id = newResponseId();
    const before = request.previous === undefined ? undefined : await goingOn(request.previous, caller);
    const { messages, system } = conversationFrom(await completed(request.input, caller), before);
    const conversation = { messages, instructions: [request.instructions ?? '', ...system] };
    const plan = await planOf(id, request, conversation, engine, caller, request.store ? store : undefined);
    const now = Date.now();
    const created = newResponse(id, request, engine.models.default, now);
    if (request.store) {
      const { tenant, key, scopes } = caller;
      const remembered: Kept = { request: storable(request), system, key, scopes };
      await kept.create({
        id,
        tenant,
        runId: id,
        status: created.status,
        createdAt: now,
        updatedAt: now,
        ...(request.previous !== undefined && { previous: request.previous }),
        request: remembered,
        response: created,
      });
    }
    return { created, plan };
  }

  /** What a response left that another one goes on from. */
  async function goingOn(previous: string, caller: Caller): Promise<Before> {
    const record = previous.startsWith(RESPONSE_PREFIX) ? await kept.get(caller.tenant, previous) : undefined;
    if (record?.status === 'in_progress') {
      const message = `The response ${JSON.stringify(previous)} is not finished. Wait for it, or cancel it.`;
      throw new ApiError(409, 'invalid_request_error', message, {
        param: 'previous_response_id',
        code: 'response_in_progress',
      });
    }
    const state = record && (await stateOf(store, record.runId));
    if (state) return leftBy(record.id, state, (record.request as Kept).system);
    const message = `There is no response ${JSON.stringify(previous)} to go on from. It was deleted, not stored, or never there.`;
    throw badRequest(message, 'previous_response_id', 'previous_response_not_found');
  }

  interface Following {
    readonly created: ResponseResource;
    readonly request: ResponseRequest;
    readonly listener: Listener;
    readonly signal?: AbortSignal;
    /** It goes on: what was heard before, and the tokens that the model has said already. */
    readonly resume?: { readonly heard: readonly Item[]; readonly usedTokens: number };
  }

  /** Drives a run and makes a response of it. What is to be kept is kept before the client hears how it ended. */
  function follow(plan: RunPlan, { created, request, listener, signal, resume }: Following): LiveResponse {
    const encrypted = request.include.includes(ENCRYPTED);
    const out = output({ response: created, calls: plan.toolset.kinds, encrypted, ...listener });
    out.begin();
    for (const item of resume?.heard ?? []) void out.hear(item);
    const run = drive(plan, limits, out.hear, resume);
    signal?.addEventListener('abort', run.cancel, { once: true });
    if (signal?.aborted) run.cancel();

    async function finish({ ending, failure }: Ended): Promise<Finished> {
      signal?.removeEventListener('abort', run.cancel);
      if (!ending) {
        // The client is told. The response itself goes on later.
        out.close({ type: 'failed', error: STOPPING, at: Date.now(), usage: NO_USAGE });
        out.finish();
        return { response: created, left: true };
      }
      const response = out.close(ending);
      if (request.store) await kept.finish(plan.id, { status: response.status, response, at: ending.at });
      out.finish();
      return { response, ...(failure && { failure }) };
    }

    /** Something broke that is not the run's own affair. The client is told that much, and no more. */
    async function broken(why: unknown): Promise<Finished> {
      if (isElsewhere(why)) {
        // Only told: the response itself is another process's now.
        out.close({ type: 'failed', error: TAKEN, at: Date.now(), usage: NO_USAGE });
        out.finish();
        throw why;
      }
      log.error({ err: why, response: plan.id }, 'a response broke off');
      const at = Date.now();
      const response = out.close({ type: 'failed', error: BROKEN, at, usage: NO_USAGE });
      try {
        if (request.store) await kept.finish(plan.id, { status: response.status, response, at });
      } catch (again) {
        log.error({ err: again, response: plan.id }, 'nor could it be kept');
      }
      out.finish();
      return { response };
    }

    const live: LiveResponse = {
      // In progress until it is kept: whoever hears that it ended may go on from it at once, in any process.
      current: () => ({ ...created, output: out.current().output }),
      cancel: run.cancel,
      leave: () => (request.store ? void run.detach() : run.cancel()),
      finished: run.ended.then(finish).catch(broken),
    };
    lives.set(plan.id, live);
    const over = (): void => void lives.delete(plan.id);
    live.finished.then(over, over);
    runs.add(live);
    return live;
  }

  async function find(id: string, { tenant }: Caller): Promise<ResponseRecord> {
    const record = id.startsWith(RESPONSE_PREFIX) ? await kept.get(tenant, id) : undefined;
    if (record) return record;
    const message = `There is no response ${JSON.stringify(id)}. It was deleted, not stored, or never there.`;
    throw new ApiError(404, 'invalid_request_error', message, { param: 'response_id', code: 'response_not_found' });
  }

  async function cancel(id: string, caller: Caller): Promise<ResponseResource> {
    const record = await find(id, caller);
    const live = lives.get(id);
    if (live) {
      live.cancel();
      return (await live.finished).response;
    }
    const isOpen = record.status === 'in_progress' || record.status === 'requires_action';
    if (!isOpen) return record.response as ResponseResource;
    try {
      const taken = await takenUp(record, AbortSignal.abort());
      return (await taken.finished).response;
    } catch (error) {
      if (isElsewhere(error)) throw elsewhere(id);
      return abandon(engine, record, error);
    }
  }

  /** Takes up a response that nobody drives, where its journal ends. */
  async function takenUp(record: ResponseRecord, signal?: AbortSignal): Promise<LiveResponse> {
    const { request, key, scopes } = record.request as Kept;
    const caller = { tenant: record.tenant, key, scopes };
    const created = newResponse(record.id, request, engine.models.default, record.createdAt);
    // What was said is in the journal.
    const plan = await planOf(record.id, request, { messages: [], instructions: [] }, engine, caller, store);
    const { items: heard, state } = await heardOf(store, record.runId);
    if (state === NEW) throw new TreadleError('unknown-run', 'The server stopped before the run had begun.');
    const resume = { heard, usedTokens: state.usage.outputTokens };
    return follow(plan, { created, request, listener: { requiresAction: false }, resume, ...(signal && { signal }) });
  }

  async function recover(): Promise<number> {
    let count = 0;
    for (const record of await kept.unfinished()) {
      if (lives.get(record.id) || (await store.isDriven(record.runId)) || (await isBeginning(record))) continue;
      // The list may be old by now.
      if ((await kept.get(record.tenant, record.id))?.status !== 'in_progress') continue;
      const giveBack = placeFor(record);
      if (!giveBack) break;
      count++;
      try {
        const { finished } = await takenUp(record);
        finished.then(giveBack, giveBack);
        finished.catch((error: unknown) =>
          log.error({ err: error, response: record.id }, 'a response could not go on'),
        );
      } catch (error) {
        log.warn({ err: error, response: record.id }, 'a response cannot go on');
        giveBack();
        await abandon(engine, record, error);
      }
    }
    return count;
  }

  /** Undefined: there is none, and the rest has to wait. */
  function placeFor({ tenant }: ResponseRecord): (() => void) | undefined {
    try {
      return runs.enter(tenant);
    } catch {
      return undefined;
    }
  }

  /** Another process may be just about to begin its run. */
  async function isBeginning({ runId, createdAt }: ResponseRecord): Promise<boolean> {
    return Date.now() - createdAt < BEGINNING_MS && (await store.read(runId)).length === 0;
  }

  return {
    prepare,
    async retrieve(id, caller) {
      const live = lives.get(id);
      const record = await find(id, caller);
      if (live && record.status === 'in_progress') return live.current();
      return record.response as ResponseResource;
    },
    requestOf: async (id, caller) => ((await find(id, caller)).request as Kept).request,
    cancel,
    async delete(id, caller) {
      await find(id, caller);
      const live = lives.get(id);
      live?.cancel();
      await live?.finished;
      await kept.delete(caller.tenant, id).catch((error: unknown) => {
        throw isElsewhere(error) ? elsewhere(id) : error;
      });
      known.forget(caller.tenant, id);
    },
    recover,
  };
}

/** Between keeping a response and beginning its run there is hardly any time. */
const BEGINNING_MS = 10_000;

/** Another server on the same store runs it. */
function isElsewhere(error: unknown): boolean {
  return error instanceof TreadleError && (error.code === 'run-driven' || error.code === 'lease-lost');
}

/** What a client is told then: only that one can stop it. */
function elsewhere(id: string): ApiError {
  const message = `The response ${JSON.stringify(id)} is under way in another process of this server. Try again when it has ended.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'response_id', code: 'response_in_progress' });
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

const BROKEN = { code: 'server_error', message: 'Something went wrong on the server. Its log says more.' };

const TAKEN = {
  code: 'server_error',
  message: 'Another process of this server has taken the response over. Fetch it by its id.',
};

export const STOPPING = {
  code: 'server_stopping',
  message: 'The server stops. The response goes on when it is there again: fetch it by its id.',
};
