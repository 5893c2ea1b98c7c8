import { memoryJournal, type Journal } from '@treadle/core';
import type { ApiError } from '../api-error.ts';
import { leftBy, stateOf } from '../engine/before.ts';
import { drive, type Ended, type RunPlan } from '../engine/driven.ts';
import type { Engine } from '../engine/engine.ts';
import { planOf } from '../engine/plan.ts';
import type { Caller } from '../http/env.ts';
import { newResponseId } from '../responses/ids.ts';
import type { Ending } from '../engine/ending.ts';
import { chatOutput, type ChatOutputOptions } from './chunks.ts';
import { completionId } from './ids.ts';
import { keptOf, type Kept } from './kept.ts';
import type { ChatRequest } from './request.ts';
import { splice } from './splice.ts';
import type { ChatCompletion } from './wire.ts';

/** Runs completions. */
export interface Chats {
  /** Checks everything. Rejects with an `ApiError`. */
  prepare(request: ChatRequest, caller: Caller): Promise<PreparedChat>;
}

export interface PreparedChat {
  readonly id: string;
  /** Rejects if the store fails. `signal`: the client is gone. */
  run(emit: ChatOutputOptions['emit'], signal: AbortSignal): Promise<ChatCompletion | ApiError>;
}

/**
 * A completion is run in memory: nobody can ask for it later, and a client that has no answer sends its request again.
 * Kept is only what a follow-up needs and does not bring, of those that wait for their client.
 */
export function chats(engine: Engine): Chats {
  const { store, limits, runs, models } = engine;

  async function recalled(completion: string, tenant: string): Promise<Kept | undefined> {
    const record = await store.responses.get(tenant, completion);
    return record?.response as Kept | undefined;
  }

  async function prepare(request: ChatRequest, caller: Caller): Promise<PreparedChat> {
    const giveBack = runs.enter(caller.tenant);
    try {
      const id = newResponseId();
      const messages = await splice(request.messages, (completion) => recalled(completion, caller.tenant));
      const journal = memoryJournal();
      const conversation = { messages, instructions: request.system };
      const plan = await planOf(id, request, conversation, engine, caller, journal);
      return {
        id: completionId(id),
        async run(emit, signal) {
          try {
            return await follow({ plan, journal, request, emit, signal });
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

  interface Following {
    readonly plan: RunPlan;
    readonly journal: Journal;
    readonly request: ChatRequest;
    readonly emit: ChatOutputOptions['emit'];
    readonly signal: AbortSignal;
  }

  /** Drives the run. What is to be kept is kept before the client hears how it ended. */
  function follow({ plan, journal, request, emit, signal }: Following): Promise<ChatCompletion | ApiError> {
    const id = completionId(plan.id);
    const now = Date.now();
    const out = chatOutput({
      head: {
        id,
        created: Math.floor(now / 1000),
        model: request.model ?? models.default,
        service_tier: request.serviceTier,
        system_fingerprint: null,
      },
      calls: plan.toolset.kinds,
      includeUsage: request.includeUsage,
      lastTextOnly: request.format !== undefined && plan.toolset.tools.some(({ execute }) => execute),
      ...(emit && { emit }),
    });
    out.begin();
    const run = drive(plan, limits, out.hear);
    signal.addEventListener('abort', run.cancel, { once: true });
    if (signal.aborted) run.cancel();

    async function finish({ ending = CANCELLED, failure }: Ended): Promise<ChatCompletion | ApiError> {
      signal.removeEventListener('abort', run.cancel);
      const answer = out.close(ending, failure);
      if (ending.type === 'pending' && request.store) await keep(plan, journal, now);
      out.finish();
      return answer;
    }

    const finished = run.ended.then(finish);
    runs.add({ leave: run.cancel, finished });
    return finished;
  }

  async function keep({ id: runId, caller }: RunPlan, journal: Journal, createdAt: number): Promise<void> {
    const state = await stateOf(journal, runId);
    const kept = state && keptOf(leftBy(runId, state, []), state.inputLength);
    if (!kept) return;
    const id = completionId(runId);
    await store.responses.create({
      id,
      tenant: caller.tenant,
      // The run itself is not in the store.
      runId: id,
      status: 'requires_action',
      createdAt,
      updatedAt: Date.now(),
      request: { key: caller.key },
      response: kept,
    });
  }

  return { prepare };
}

const CANCELLED: Ending = { type: 'cancelled', at: 0, usage: { inputTokens: 0, outputTokens: 0 } };
