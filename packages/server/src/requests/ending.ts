import type { Limit, LoopResult, Outcome, Usage, Waiting } from '@treadle/core';
import { ApiError } from '../api-error.ts';
import { codeInResponse, modelApiError, type RunFailure } from '../engine/model-failure.ts';

/** How a run ended, in the terms of the APIs. */
export type Ending = { readonly at: number; readonly usage: Usage } & (
  | { readonly type: 'completed' }
  | { readonly type: 'pending'; readonly waiting: readonly Waiting[] }
  /** `message`: more about the reason, for people. */
  | { readonly type: 'incomplete'; readonly reason: string; readonly message?: string }
  | { readonly type: 'failed'; readonly error: { readonly code: string; readonly message: string } }
  | { readonly type: 'cancelled' }
);

const REASONS: Record<Limit, string> = {
  turns: 'max_turns',
  attempts: 'max_turns',
  calls: 'max_tool_calls',
  tokens: 'max_tokens',
  cost: 'max_cost',
  duration: 'max_duration',
  errors: 'tool_errors',
  repetition: 'repetition',
  budget: 'budget',
};

interface EndingContext {
  /** The run was stopped because `maxOutputTokens` was used up. */
  readonly isSpent: boolean;
  /** The failure, with a message for clients. */
  readonly failure: RunFailure | undefined;
  /** What the budget that ended the run says. */
  readonly budgetReason?: string | undefined;
  readonly at: number;
  /** Whether the client can give an approval; default: no. */
  readonly isGivenByClient?: (waiting: Waiting) => boolean;
}

/** The ending of a run that ended or waits for its client. */
export function endingOf(
  { outcome, waiting, usage }: LoopResult,
  { isSpent, failure, budgetReason, at, isGivenByClient = () => false }: EndingContext,
): Ending {
  if (isSpent) return { at, usage, type: 'incomplete', reason: 'max_output_tokens' };
  if (outcome) return { at, usage, ...endingOfOutcome(outcome, failure, budgetReason) };
  const others = waiting.filter((one) => one.type !== 'client' && !isGivenByClient(one));
  if (others.length === 0) return { at, usage, type: 'pending', waiting };
  const names = others.map(({ call }) => call.name).join(', ');
  const message = `The tool ${names} waits for an approval or an answer, which this API cannot provide.`;
  return { at, usage, type: 'failed', error: { code: 'server_error', message } };
}

/** The failure of a run that no call of the model has reported: what the model replied, or what a guardrail says. */
export function failureOfRun(outcome: Outcome | undefined): RunFailure | undefined {
  if (outcome?.type !== 'failed') return undefined;
  const { code, message } = outcome.error;
  if (code === 'guardrail') return { code, message, retryable: false };
  if (code !== 'empty-reply' && code !== 'tool-choice-unmet') return undefined;
  return { code: 'protocol', message: `${message} Retry, or use another model.`, retryable: true };
}

/** The error for the client of an API that has no result of a run that failed. */
export function endingError(ending: Extract<Ending, { type: 'failed' | 'cancelled' }>, failure?: RunFailure): ApiError {
  if (ending.type === 'cancelled') {
    const message = 'The run was stopped before it had ended. Send the request again.';
    return new ApiError(503, 'server_error', message, { code: 'cancelled' });
  }
  if (failure) return modelApiError(failure);
  const { code, message } = ending.error;
  return new ApiError(502, 'server_error', message, { code });
}

function failedEnding({ code, message }: { readonly code: string; readonly message: string }): EndingOfOutcome {
  return { type: 'failed', error: { code: codeInResponse(code), message } };
}

type EndingOfOutcome<E extends Ending = Ending> = E extends Ending ? Omit<E, 'at' | 'usage'> : never;

function endingOfOutcome(outcome: Outcome, failure: RunFailure | undefined, budgetReason?: string): EndingOfOutcome {
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? { type: 'incomplete', reason: 'max_output_tokens' } : { type: 'completed' };
    case 'exhausted':
      if (failure?.code === 'budget') return failedEnding(failure);
      return {
        type: 'incomplete',
        reason: REASONS[outcome.limit],
        ...(outcome.limit === 'budget' && budgetReason !== undefined && { message: budgetReason }),
      };
    case 'failed': {
      const { code } = failure ?? outcome.error;
      if (code === 'content-filter') return { type: 'incomplete', reason: 'content_filter' };
      return failedEnding(failure ?? outcome.error);
    }
    case 'cancelled':
      return { type: 'cancelled' };
    default:
      return outcome satisfies never;
  }
}
