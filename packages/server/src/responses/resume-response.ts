import { NEW, TreadleError, waiting } from '@treadle/core';
import { encodeInput, type ResponseRecord } from '@treadle/store';
import { decisionKeys, releaseDecisions } from '../engine/approvals.ts';
import { historySize } from '../engine/conversation.ts';
import type { Engine } from '../engine/engine.ts';
import { OWN_LABEL } from '../engine/executors.ts';
import { isKeyTaken } from '../engine/idempotency.ts';
import { planRun, type RunPlan } from '../engine/run.ts';
import type { Reader } from '../engine/stored-reads.ts';
import { answerUnfit, isUnfit, unresumableReason } from '../engine/interruption.ts';
import {
  cancelRun,
  replayItems,
  type ForkedRun,
  type RecordHandler,
  type ResumeOptions,
  type TakenRecord,
} from '../engine/stored-runs.ts';
import type { StoredStreams, StreamRun } from '../engine/stored-streams.ts';
import type { CallKinds } from '../engine/tools.ts';
import { nextTurn } from '../http/large-work.ts';
import { approvalIdFor } from '../ids.ts';
import { storedIn, streamOf, type StoredEvents } from './follow-response.ts';
import { responseOutput } from './output.ts';
import type { ResponseEvent } from './output-items.ts';
import { newResponse, type ResponseRequest } from './parse-request.ts';
import type { ActiveResponse, FinishedResponse, ResponseDriver, ResponseRun, StoredRequest } from './responses.ts';
import type { ResponseResource } from './wire.ts';

interface ResumerOptions extends ResponseDriver {
  readonly engine: Engine;
  readonly streams: StoredStreams;
}

/** Stored responses whose run goes on: after a crash, after an answer, at a deadline, to be cancelled, or as a fork. */
export function responseResumer(options: ResumerOptions): Required<RecordHandler> {
  const { engine, streams, runResponse, requestConversation, wantedSeal, compactionsFor, carrierFor, storeEnd } =
    options;
  const { store, waits = false } = engine;
  const records = store.responses;

  async function resumeResponse(
    taken: TakenRecord,
    { answers, signal, hold }: ResumeOptions,
  ): Promise<Pick<ActiveResponse, 'finished'>> {
    const isReopened = answers !== undefined && taken.record.status !== 'in_progress';
    return planResume(taken, { ...(answers && { answers }), hold }, async ({ plan, run }) => {
      if (!isReopened) return runResponse(plan, { ...run, ...(signal && { signal }) });
      await decideHere(taken.record, run);
      // Before it is resumed, so that it is resumed again if this process dies.
      await reopenResponse(taken.record, run.created);
      const { finished } = runResponse(plan, { ...run, from: 'in_progress' });
      return { finished: finished.then((end) => closeAgain(taken.record, run, end)) };
    });
  }

  /** Rejects with a 409 if another response has decided about one of the calls. */
  async function decideHere(record: ResponseRecord, { decided = [] }: ResponseRun): Promise<void> {
    const now = Date.now();
    await records.addKeys(record, decisionKeys(decided, 'answers', now), now).catch((error: unknown) => {
      throw isKeyTaken(error) ? answerUnfit(DECIDED) : error;
    });
  }

  async function reopenResponse({ id, status: from }: ResponseRecord, response: ResponseResource): Promise<void> {
    await records.reopen(id, { from, response, at: Date.now() });
  }

  /** If the answers cannot be used, the response is what it was. */
  async function closeAgain(
    record: ResponseRecord,
    { decided = [] }: ResponseRun,
    end: FinishedResponse,
  ): Promise<FinishedResponse> {
    const { id, status, response, updatedAt: at } = record;
    if (!end.interruption || !isUnfit(end.interruption)) return end;
    await releaseDecisions(records, record, decided);
    await records.finish(id, { status, response, at });
    return end;
  }

  /** Plans to resume a run at the end of its journal. One that has not started is started from the stored request. */
  async function planResume<T>(
    { record, lease }: TakenRecord,
    { answers, hold }: Pick<ResumeOptions, 'answers' | 'hold'>,
    use: (planned: { readonly plan: RunPlan; readonly run: ResponseRun }) => Promise<T>,
  ): Promise<T> {
    const { tenant, runId: id, status: from } = record;
    const { request, system, key, scopes, compaction, lists, open, begunWith } = record.request as StoredRequest;
    const caller = { tenant, key, scopes };
    const { items, state } = await replayItems(store, id, { tenant });
    // The conversation of a run that has started is in its journal.
    const restored =
      state === NEW
        ? (await requestConversation(request, caller, { isStored: true, upTo: record.previous, hold })).conversation
        : { messages: [], instructions: [] };
    const conversation = { ...restored, ...(open && { open }) };
    const common = { id, caller, journal: store, lease, waits, approvals: true, lists: lists ?? [] };
    return planRun(engine, { ...common, request, conversation }, async (plan) =>
      use({
        plan: { ...plan, ...(state !== NEW && { size: historySize(state) }) },
        run: {
          compaction,
          compactions: await compactionsFor(request, system, caller),
          lists,
          begunWith: begunWith && new Map(begunWith),
          created: newResponse(id, request, engine.models.default, record.createdAt),
          seal: await wantedSeal(request, caller),
          carrier: await carrierFor(plan, request, caller),
          listener: { requiresAction: false },
          ...(request.background && (await storedSoFar({ id, lease }, hold))),
          record: record.id,
          from,
          decided: waiting(state).flatMap(({ type, effect, call }) =>
            type === 'approval' && answers?.some((one) => one.effect === effect)
              ? approvalIdFor(id, call.turn, call.index)
              : [],
          ),
          ...(state !== NEW && {
            resume: { items, usedTokens: state.usage.outputTokens, ...(answers && { answers }) },
          }),
        },
      }),
    );
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
    original: ResponseRecord,
    { runId: id, model, instructions }: ForkedRun,
  ): Promise<ResponseRecord> {
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
    const record: ResponseRecord = {
      id,
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

  /**
   * Ends a response that cannot be resumed: its journal is damaged, or something that it needs does not exist any more.
   * Its output so far is preserved.
   */
  async function failUnresumable(taken: TakenRecord, error: unknown): Promise<FinishedResponse> {
    const { record, lease } = taken;
    const { tenant, runId, status: from } = record;
    const { request, system, compaction, lists, begunWith } = record.request as StoredRequest;
    try {
      const { items, state } = isDamaged(error)
        ? { items: [], state: NEW }
        : await replayItems(store, runId, { tenant });
      const { sink, listener, sent } = request.background
        ? await storedSoFar({ id: runId, lease }, undefined)
        : { listener: { requiresAction: false } };
      const out = responseOutput({
        response: newResponse(runId, request, engine.models.default, record.createdAt),
        calls: kindsByName(request),
        compaction,
        compactions: await compactionsFor(request, system, record),
        lists,
        begunWith: begunWith && new Map(begunWith),
        seal: await wantedSeal(request, record),
        ...listener,
        ...(sent && { sent }),
      });
      out.sendCreated();
      out.replay(items);
      const at = Date.now();
      const made = out.endResponse({
        type: 'failed',
        error: { code: 'server_error', message: unresumableReason(error) },
        at,
        usage: state.usage,
      });
      if (state !== NEW) await cancelRun(store, taken);
      out.sendTerminal();
      await sink?.flush();
      return { response: await storeEnd(record.id, tenant, made, { at, from }) };
    } finally {
      await lease.release();
      streams.wakeReaders(streamOf(runId));
    }
  }

  return { resume: resumeResponse, fail: failUnresumable, waits, createFork };
}

const DECIDED = 'The client of the response has decided about this call in another response, which executes it.';

/** The kinds of calls as far as they follow from the request alone. */
function kindsByName({ functions }: ResponseRequest): CallKinds {
  const byName = new Map(functions.map((one) => [one.name, one]));
  return {
    kindOf: (name) => (byName.has(name) ? 'client' : 'server'),
    isCustom: (name) => byName.get(name)?.custom !== undefined,
    labelOf: () => OWN_LABEL,
  };
}

function isDamaged(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'journal-damaged';
}
