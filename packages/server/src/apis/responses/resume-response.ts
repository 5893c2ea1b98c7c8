import { waiting } from '@treadle/core';
import { encodeInput, type RequestRecord } from '@treadle/store';
import { ApiError } from '../../api-error.ts';
import { historySize } from '../../history/conversation.ts';
import type { Engine } from '../../engine/engine.ts';
import { OWN_LABEL } from '../../engine/executors.ts';
import { walkRun } from '../../requests/projection.ts';
import { planRun, type RunPlan } from '../../requests/run.ts';
import type { Reader } from '../../engine/stored-reads.ts';
import { decisionKeys, releaseDecisions } from '../../requests/approvals.ts';
import { isKeyTaken } from '../../requests/idempotency.ts';
import { answerUnfit, isUnfit } from '../../requests/interruption.ts';
import type {
  FailedEnding,
  FinishingRequest,
  ForkedRun,
  PlannedRequest,
  ReplayedRecord,
  RequestApi,
  RequestKind,
  Resumption,
  TakenRun,
} from '../../requests/requests.ts';
import type { StoredStreams, StreamRun } from '../../requests/stored-streams.ts';
import type { CallKinds } from '../../engine/tools.ts';
import { nextTurn } from '../../http/large-work.ts';
import { approvalIdFor } from '../../ids.ts';
import { storedIn, streamOf, type StoredEvents } from './follow-response.ts';
import { responseProjection } from './projection.ts';
import type { ResponseEvent } from './output-items.ts';
import { newResponse, type ResponseRequest } from './parse-request.ts';
import type { FinishedResponse, ResponseDriver, ResponseRun } from './response.ts';
import type { StoredRequest } from './stored-request.ts';
import type { ResponseResource } from './wire.ts';

/*
 * Stored responses whose run goes on: after a crash, after an answer, at a deadline, to be cancelled, or as a fork.
 */
type ResponseResumer = Required<Pick<RequestApi, 'plan' | 'fail' | 'failed' | 'createFork'>>;

interface ResumerOptions extends ResponseDriver {
  readonly engine: Engine;
  readonly streams: StoredStreams;
}

export function responseResumer(options: ResumerOptions): ResponseResumer {
  const { engine, streams, runResponse, requestConversation, sealsFor, storeEnd } = options;
  const { store } = engine;
  const records = store.requests;

  async function reopenResponse({ id, status: from }: RequestRecord, response: ResponseResource): Promise<void> {
    await records.reopen(id, { from, response, at: Date.now() });
  }

  /** If the answers cannot be used, the response is what it was. */
  async function closeAgain(
    record: RequestRecord,
    { decided = [] }: ResponseRun,
    end: FinishedResponse,
  ): Promise<FinishedResponse> {
    const { id, status, response, updatedAt: at } = record;
    if (!end.interruption || !isUnfit(end.interruption)) return end;
    await releaseDecisions(records, record, decided);
    await records.finish(id, { status, response, at });
    return end;
  }

  /** Rejects with a 409 if another response has decided about one of the calls. */
  async function decideHere(record: RequestRecord, { decided = [] }: ResponseRun): Promise<void> {
    const now = Date.now();
    await records.addKeys(record, decisionKeys(decided, 'answers', now), now).catch((error: unknown) => {
      throw isKeyTaken(error) ? answerUnfit(DECIDED) : error;
    });
  }

  /** Plans to resume a run at the end of its journal. One that has not started is started from the stored request. */
  async function planResponse(taken: TakenRun, hold: Reader['hold']): Promise<PlannedRequest & Resumption> {
    const { record, state, run, resume } = taken;
    const { request, lists, open } = record.request as StoredRequest;
    if (!resume && isUnstored(record)) throw new ApiError(503, 'server_error', ABANDONED, { code: 'cancelled' });
    const upTo = record.previous;
    const restored = resume
      ? { messages: [], instructions: [] }
      : (await requestConversation(request, run.caller, { isStored: true, upTo, hold })).conversation;
    const conversation = { ...restored, ...(open && { open }) };
    const planned = { ...run, waits: engine.waits ?? false, approvals: true, keeps: request.store, lists: lists ?? [] };
    const made = await planRun(engine, request, conversation, planned);
    const isCancelled = run.isCancelled || isUnstored(record);
    const plan = { ...made, isCancelled, ...(resume && { size: historySize(state) }) };

    async function drive(): Promise<FinishingRequest> {
      const resumed = await resumedRun(taken, plan, hold);
      const isReopened = resume?.answers !== undefined && record.status !== 'in_progress';
      if (!isReopened) return runResponse(plan, resumed);
      await decideHere(record, resumed);
      // Before it is resumed, so that it is resumed again if this process dies.
      await reopenResponse(record, resumed.created);
      const { finished } = runResponse(plan, { ...resumed, from: 'in_progress' });
      return { finished: finished.then((end) => closeAgain(record, resumed, end)) };
    }
    return { plan, drive };
  }

  /** What clients see of a stored response besides its run. */
  async function shownOf(
    { runId, tenant, createdAt, request: stored }: RequestRecord,
    toolset?: RunPlan['toolset'],
  ): Promise<Pick<ResponseRun, 'created' | 'compaction' | 'compactions' | 'lists' | 'begunWith' | 'seal' | 'carrier'>> {
    const { request, system, compaction, lists, begunWith } = stored as StoredRequest;
    return {
      created: newResponse(runId, request, engine.models.default, createdAt),
      compaction,
      lists,
      begunWith: begunWith && new Map(begunWith),
      ...(await sealsFor(request, system, { tenant, ...(toolset && { toolset }) })),
    };
  }

  async function resumedRun(
    { record, lease, state, resume }: TakenRun,
    { toolset }: RunPlan,
    hold: Reader['hold'],
  ): Promise<ResponseRun> {
    const { runId: id, status: from } = record;
    const { background } = (record.request as StoredRequest).request;
    return {
      ...(await shownOf(record, toolset)),
      listener: { requiresAction: false },
      ...(background && (await storedSoFar({ id, lease }, hold))),
      record: record.id,
      isUnstored: isUnstored(record),
      from,
      decided: waiting(state).flatMap(({ type, effect, call }) =>
        type === 'approval' && resume?.answers?.some((one) => one.effect === effect)
          ? approvalIdFor(id, call.turn, call.index)
          : [],
      ),
      ...(resume && { resume }),
    };
  }

  /** Continues the stored events of a background response. */
  async function storedSoFar(
    run: StreamRun,
    hold: Reader['hold'],
  ): Promise<StoredEvents & { readonly sent: readonly ResponseEvent[] }> {
    const stream = streamOf(run.id);
    const sink = streams.writer(run, stream, await store.streams.last(stream));
    return { ...storedIn(sink), sent: (await streams.eventsAfter(stream, 0, hold)) as readonly ResponseEvent[] };
  }

  async function createFork(
    original: RequestRecord,
    { runId: id, model, instructions }: ForkedRun,
  ): Promise<RequestRecord> {
    const before = original.request as StoredRequest;
    // A fork is not a part of the conversation.
    const { conversation: _, echo, ...copied } = before.request;
    const { conversation: _id, ...echoed } = echo;
    const request: ResponseRequest = {
      ...copied,
      echo: echoed,
      ...(model !== undefined && { model }),
      ...(instructions !== undefined && { instructions, echo: { ...echoed, instructions } }),
    };
    const now = Date.now();
    const record: RequestRecord = {
      id,
      kind: 'response' satisfies RequestKind,
      tenant: original.tenant,
      runId: id,
      status: 'in_progress',
      createdAt: now,
      updatedAt: now,
      ...(original.previous !== undefined && { previous: original.previous }),
      request: { ...before, request } satisfies StoredRequest,
      response: newResponse(id, request, engine.models.default, now),
    };
    await encodeInput(request.input, nextTurn);
    await records.create(record, undefined, request.input);
    return record;
  }

  /** Stores that a response has failed that cannot be resumed. Its output so far is preserved. */
  async function failResponse({ record, lease, items }: ReplayedRecord, ending: FailedEnding): Promise<void> {
    const { tenant, runId, status: from } = record;
    const { request } = record.request as StoredRequest;
    const { sink, listener, sent } = request.background
      ? await storedSoFar({ id: runId, lease }, undefined)
      : { listener: { requiresAction: false } };
    const { created: response, ...shown } = await shownOf(record);
    const { requiresAction } = listener;
    const projection = responseProjection({ response, calls: kindsByName(request), ...shown, requiresAction });
    const out = walkRun(projection, { emit: listener.emit, sent });
    out.open();
    out.replay({ items });
    const made = out.end({ ending });
    out.last();
    await sink?.flush();
    await storeEnd(record.id, tenant, made, { at: ending.at, from, isUnstored: isUnstored(record) });
  }

  return {
    plan: planResponse,
    fail: failResponse,
    failed: ({ runId }) => streams.wakeReaders(streamOf(runId)),
    createFork,
  };
}

/** Whether only the run of a record is stored. Nobody gets its response any more. */
function isUnstored({ kind }: Pick<RequestRecord, 'kind'>): boolean {
  return kind === ('unstored-response' satisfies RequestKind);
}

const ABANDONED = 'The process that drove the run has died before it began. Its client gets no answer.';
const DECIDED = 'The client of the response has decided about this call in another response, which executes it.';

/** The kinds of calls as far as they follow from the request alone. */
function kindsByName({ functions }: ResponseRequest): CallKinds {
  const byName = new Map(functions.map((one) => [one.name, one]));
  return {
    kindOf: (name) => {
      const known = byName.get(name);
      return known ? (known.builtIn ? 'client-later' : 'client') : 'server';
    },
    isCustom: (name) => byName.get(name)?.custom !== undefined,
    isSearch: (name) => byName.get(name)?.search === true,
    builtInOf: (name) => byName.get(name)?.builtIn?.type,
    ownNameOf: (name) => byName.get(name)?.own,
    labelOf: () => OWN_LABEL,
  };
}
