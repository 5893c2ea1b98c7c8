import type { Limit, LoopResult, ModelError, Outcome, Usage, Waiting } from '@treadle/core';
import { codeInResponse } from './failure.ts';

/** How a run ended, as clients are told. */
export type Ending = { readonly at: number; readonly usage: Usage } & (
  | { readonly type: 'completed' }
  | { readonly type: 'pending'; readonly waiting: readonly Waiting[] }
  | { readonly type: 'incomplete'; readonly reason: string }
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
};

interface Circumstances {
  /** It was stopped when its tokens were. */
  readonly spent: boolean;
  /** Of the model, in words for clients. */
  readonly failure: ModelError | undefined;
  readonly at: number;
}

/** How a run that is over, or waits for its client, is told to clients. */
export function endingOf({ outcome, waiting, usage }: LoopResult, { spent, failure, at }: Circumstances): Ending {
  if (spent) return { at, usage, type: 'incomplete', reason: 'max_output_tokens' };
  if (outcome) return { at, usage, ...told(outcome, failure) };
  const others = waiting.filter(({ type }) => type !== 'client');
  if (others.length === 0) return { at, usage, type: 'pending', waiting };
  const names = others.map(({ call }) => call.name).join(', ');
  const message = `The tool ${names} waits for somebody whom this API cannot ask.`;
  return { at, usage, type: 'failed', error: { code: 'server_error', message } };
}

type Told<E extends Ending = Ending> = E extends Ending ? Omit<E, 'at' | 'usage'> : never;

function told(outcome: Outcome, failure: ModelError | undefined): Told {
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? { type: 'incomplete', reason: 'max_output_tokens' } : { type: 'completed' };
    case 'exhausted':
      return { type: 'incomplete', reason: REASONS[outcome.limit] };
    case 'failed': {
      const { code, message } = failure ?? outcome.error;
      if (code === 'content-filter') return { type: 'incomplete', reason: 'content_filter' };
      return { type: 'failed', error: { code: codeInResponse(code), message } };
    }
    case 'cancelled':
      return { type: 'cancelled' };
    default:
      return outcome satisfies never;
  }
}
