import {
  memoryJournal,
  runLoop,
  startLoop,
  type Item,
  type Journal,
  type LoopResult,
  type Message,
  type Model,
  type ModelError,
  type Settings,
  type StartedRun,
} from '@treadle/core';
import type { Logger } from 'pino';
import type { Caller } from '../http/env.ts';
import type { AnswerForm } from '../responses/request.ts';
import { endingOf, type Ending } from './ending.ts';
import { toldFailure } from './failure.ts';
import { principalOf } from './principal.ts';
import { shaped } from './shaped-model.ts';
import type { Toolset } from './tools.ts';
import { withoutBlobs } from './without-blobs.ts';

/** All that a run for a client is made of. */
export interface RunPlan {
  readonly id: string;
  readonly model: Model;
  readonly instructions?: string;
  readonly messages: readonly Message[];
  readonly toolset: Toolset;
  readonly settings: Settings;
  readonly format?: AnswerForm;
  readonly parallel: boolean;
  readonly maxOutputTokens?: number;
  readonly maxToolCalls?: number;
  /** Make a conversation that is too long for the model shorter. */
  readonly compaction: boolean;
  readonly caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>;
  readonly log: Logger;
  /** Absent: it is kept in memory, and gone when it is over. */
  readonly journal?: Journal;
}

export interface RunLimits {
  readonly maxTurns: number;
  readonly maxDurationMs: number;
  readonly toolTimeoutMs: number;
  /** Turns in a row with nothing but errors. */
  readonly errorLimit: number;
}

export interface DrivenRun {
  cancel(): void;
  detach(): Promise<void>;
  /** Rejects if the run cannot begin, or the journal fails. */
  readonly ended: Promise<Ended>;
}

export interface Ended {
  /** Absent: it was left in the middle, and can be gone on with. */
  readonly ending?: Ending;
  /** The failure of the model that ended it. */
  readonly failure?: ModelError;
}

/**
 * Begins to drive a run, or goes on with one, of which the model has said so many tokens already. The same for every face
 * of the server.
 */
export function drive(
  plan: RunPlan,
  limits: RunLimits,
  listen: (item: Item) => void | Promise<void>,
  goOn?: { readonly usedTokens: number },
): DrivenRun {
  const { id: runId, toolset, parallel, caller } = plan;
  const noted = (error: ModelError): ModelError => {
    const { code, status, message } = error;
    plan.log.warn({ run: runId, code, status, why: message }, 'the model failed');
    return toldFailure(error);
  };
  const journal = withoutBlobs(plan.journal ?? memoryJournal());
  let failure: ModelError | undefined;
  let spent = false;
  let cutOff = false;
  const model = shaped(plan.model, {
    parallel,
    truncates: plan.compaction,
    usedTokens: goOn?.usedTokens ?? 0,
    ...(plan.format && { format: plan.format }),
    ...(plan.maxOutputTokens !== undefined && { maxOutputTokens: plan.maxOutputTokens }),
    onSpent() {
      spent = true;
      run.cancel();
    },
  });
  const around = {
    runId,
    model,
    tools: toolset.tools,
    journal,
    onItem(item: Item): void | Promise<void> {
      if (item.type === 'fact') {
        const { event } = item;
        failure = event.type === 'model-failed' ? noted(event.error) : undefined;
        if (event.type === 'model-replied') cutOff = event.finish === 'length';
      }
      return listen(item);
    },
  };
  const run = started(
    goOn
      ? { ...around, acceptChangedTools: true }
      : {
          ...around,
          input: plan.messages,
          ...(plan.instructions !== undefined && { instructions: plan.instructions }),
          toolChoice: toolset.toolChoice,
          ...(toolset.allowedTools && { allowedTools: toolset.allowedTools }),
          settings: plan.settings,
          compaction: plan.compaction,
          maxTurns: limits.maxTurns,
          toolTimeoutMs: limits.toolTimeoutMs,
          errorLimit: limits.errorLimit,
          // Calls of clients wait beside each other in any case.
          ...(!parallel && { maxParallel: 1 }),
          limits: {
            durationMs: limits.maxDurationMs,
            ...(plan.maxToolCalls !== undefined && { calls: plan.maxToolCalls }),
          },
          principal: principalOf(caller),
        },
  );

  /** A reply that was cut off after a call for the client was whole: nobody is to answer that one. */
  async function settled(result: LoopResult): Promise<LoopResult> {
    if (result.waiting.length === 0 || !cutOff) return result;
    spent = true;
    return runLoop({ ...around, acceptChangedTools: true, signal: AbortSignal.abort() });
  }

  async function watch(): Promise<Ended> {
    const result = await settled(await run.result);
    if (result.detached) return {};
    const ending = endingOf(result, { spent, failure, at: Date.now() });
    return { ending, ...(failure && { failure }) };
  }

  return { cancel: run.cancel, detach: run.detach, ended: watch() };
}

/** What cannot even begin ends like what breaks later: by a rejection. */
function started(options: Parameters<typeof startLoop>[0]): Pick<StartedRun, 'cancel' | 'detach' | 'result'> {
  try {
    return startLoop(options);
  } catch (error) {
    return { cancel() {}, detach: async () => {}, result: Promise.reject(error) };
  }
}
