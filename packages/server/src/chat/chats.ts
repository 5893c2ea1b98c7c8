import { memoryJournal, type Journal } from '@treadle/core';
import type { ApiError } from '../api-error.ts';
import { conversationBefore, storedState } from '../engine/conversation.ts';
import type { Engine } from '../engine/engine.ts';
import { driveRequest, planRun, type Ending, type RunEnd, type RunPlan } from '../engine/run.ts';
import type { Caller } from '../http/admission.ts';
import { newResponseId } from '../ids.ts';
import { chatOutput, type ChatOutputOptions } from './output.ts';
import type { ChatRequest } from './parse-request.ts';
import { completionId, restoreTurns, turnsToStore, type StoredTurns } from './restore-history.ts';
import type { ChatCompletion } from './wire.ts';

/** Runs completions. */
export interface Chats {
  /** Validates everything. Rejects with an `ApiError`. */
  prepare(request: ChatRequest, caller: Caller): Promise<PreparedChat>;
}

export interface PreparedChat {
  readonly id: string;
  /** Rejects if the store fails. `signal` aborts when the client disconnects. */
  run(emit: ChatOutputOptions['emit'], signal: AbortSignal): Promise<ChatCompletion | ApiError>;
}

/**
 * A completion runs in memory: it cannot be fetched later, and a client that did not receive it sends its request again.
 * Only completions that wait for their client are stored, with what the next request does not contain.
 */
export function chats(engine: Engine): Chats {
  const { store, runs, models } = engine;

  async function lookUpTurns(completion: string, tenant: string): Promise<StoredTurns | undefined> {
    const record = await store.responses.get(tenant, completion);
    return record?.response as StoredTurns | undefined;
  }

  async function prepareCompletion(request: ChatRequest, caller: Caller): Promise<PreparedChat> {
    const release = runs.reserve(caller.tenant);
    try {
      const id = newResponseId();
      const messages = await restoreTurns(request.messages, (completion) => lookUpTurns(completion, caller.tenant));
      const journal = memoryJournal();
      const conversation = { messages, instructions: request.system };
      const plan = await planRun(engine, request, conversation, { id, caller, journal });
      return {
        id: completionId(id),
        async run(emit, signal) {
          try {
            return await runCompletion({ plan, journal, request, emit, signal });
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

  interface CompletionRun {
    readonly plan: RunPlan;
    readonly journal: Journal;
    readonly request: ChatRequest;
    readonly emit: ChatOutputOptions['emit'];
    readonly signal: AbortSignal;
  }

  /** Drives the run. Its turns are stored before the client receives the end of the completion. */
  function runCompletion({ plan, journal, request, emit, signal }: CompletionRun): Promise<ChatCompletion | ApiError> {
    const now = Date.now();
    const out = chatOutput({
      head: {
        id: completionId(plan.id),
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
    out.sendRole();
    const run = driveRequest(plan, engine, out.addItem);
    signal.addEventListener('abort', run.cancel, { once: true });
    if (signal.aborted) run.cancel();

    async function finishCompletion({ ending = CANCELLED, failure }: RunEnd): Promise<ChatCompletion | ApiError> {
      signal.removeEventListener('abort', run.cancel);
      const completion = out.endCompletion(ending, failure);
      if (ending.type === 'pending' && request.store) await storeTurns(plan, journal, now);
      out.sendRest();
      return completion;
    }

    const finished = run.ended.then(finishCompletion);
    runs.add({ detach: run.cancel, finished });
    return finished;
  }

  async function storeTurns({ id: runId, caller }: RunPlan, journal: Journal, createdAt: number): Promise<void> {
    const state = await storedState(journal, runId);
    const turns = state && turnsToStore(conversationBefore(runId, state, []), state.inputLength);
    if (!turns) return;
    const id = completionId(runId);
    await store.responses.create({
      id,
      tenant: caller.tenant,
      // The run itself is not stored.
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
