import type { AgentErrorCode } from '@treadle/core';
import type { Called, Reply, World } from './replies.ts';

/** The expected end of an execution, computed by a second implementation that does not use the loop. */
export interface Expected {
  readonly end: 'success' | AgentErrorCode;
  readonly attempt: number;
  /** Of that attempt. */
  readonly iteration: number;
  /** Model calls. */
  readonly modelCalls: number;
  /** Attempts with a model call. */
  readonly attempts: number;
  readonly rejections: number;
  readonly limit?: 'tokens' | 'calls';
  readonly during?: 'model' | 'tool';
}

export function expectedOf(world: World): Expected {
  const { reflection, maxAttempts, maxIterations, limits, replies } = world;
  let attempt = 1;
  let iteration = 0;
  let modelCalls = 0;
  let rejections = 0;
  let proposal: Called | undefined;
  let tokens = 0;
  let calls = 0;
  let limitedReplies = 0;

  const ending = (end: Expected['end'], more: Pick<Expected, 'limit' | 'during'> = {}): Expected => ({
    end,
    attempt,
    iteration,
    modelCalls,
    attempts: iteration === 0 ? attempt - 1 : attempt,
    rejections,
    ...more,
  });

  for (;;) {
    if (iteration >= maxIterations) return ending('MAX_ITERATIONS');
    if (limits.tokens !== undefined && modelCalls > 0 && (tokens === 0 || tokens >= limits.tokens)) {
      return ending('LIMIT_EXCEEDED', { limit: 'tokens' });
    }
    const reply = replies[modelCalls++]!;
    iteration++;
    if (reply.type === 'failure') return ending('API_ERROR');
    if (reply.type === 'abort') return ending('EXECUTION_CANCELLED', { during: 'model' });
    tokens += tokensOf(reply);
    if (reply.type === 'text') {
      if (world.textOnly === 'fail') return ending('INVALID_RESPONSE');
      continue;
    }

    const admitted = admittedOf(world, reply.calls, calls, limitedReplies > 0);
    if (admitted.ran.includes('stop')) return ending('EXECUTION_CANCELLED', { during: 'tool' });
    calls += admitted.ran.length;
    limitedReplies += admitted.refused ? 1 : 0;

    const output = reply.calls.findLast(isOutput);
    if (reflection) proposal = output ?? proposal;
    const submits = reflection && reply.calls.includes('submit');
    if (submits && proposal === undefined && world.earlySubmit === 'fail') return ending('SUBMIT_BEFORE_OUTPUT');

    const validated = reflection ? (submits ? proposal : undefined) : output;
    if (validated === 'good') return ending('success');
    if (validated !== undefined) {
      rejections++;
      if (attempt >= maxAttempts) return ending('MAX_ATTEMPTS_EXCEEDED');
    }
    if (limitedReplies > 1) return ending('LIMIT_EXCEEDED', { limit: 'calls' });
    if (validated !== undefined) {
      attempt++;
      iteration = 0;
      proposal = undefined;
    }
  }
}

export function isOutput(call: Called): boolean {
  return call === 'good' || call === 'odd' || call === 'bad' || call === 'cut';
}

export function tokensOf({ tokens }: Reply): number {
  return tokens === 0 ? 0 : 2 * tokens + 1;
}

/** The helpers that run, and whether one was refused because the limit of calls is reached. */
function admittedOf(
  { limits, reflection }: World,
  calls: readonly Called[],
  before: number,
  spent: boolean,
): { readonly ran: readonly Called[]; readonly refused: boolean } {
  const own = calls.filter((call) => !isOutput(call) && !(reflection && call === 'submit'));
  if (spent) return { ran: [], refused: own.length > 0 };
  const able = own.filter((call) => call === 'look' || call === 'broken' || call === 'stop');
  const room = (limits.calls ?? Infinity) - before;
  return { ran: able.slice(0, room), refused: able.length > room };
}
