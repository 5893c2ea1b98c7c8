import type { Limit, Outcome, Waiting } from './machine/state.ts';

/** Misuse by the caller, or a part that failed. `code` is for programs; the message says what to do. */
export class TreadleError extends Error {
  override readonly name = 'TreadleError';
  readonly code: TreadleErrorCode;

  constructor(code: TreadleErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

export type TreadleErrorCode =
  | 'invalid-options'
  | 'invalid-input'
  | 'invalid-tool'
  | 'invalid-agent'
  | 'unknown-agent'
  | 'duplicate-tool'
  | 'unknown-run'
  | 'no-run'
  | 'tools-changed'
  | 'program-changed'
  | 'run-exists'
  | 'answer-unfit'
  | 'answer-refused'
  | 'journal-failed'
  | 'ledger-failed'
  | 'journal-damaged'
  | 'run-driven'
  | 'lease-lost'
  | 'store-full'
  | 'store-read-only'
  | 'store-locked'
  | 'store-newer'
  | 'store-failed';

/** Thrown by `orThrow` of a result: the run has not completed. */
export class RunError extends Error {
  override readonly name = 'RunError';
  /**
   * The code of the failure, such as `auth`, or how the run stopped: `exhausted`, `cancelled`, `paused`, `detached`. For a
   * typed agent, the code of its error.
   */
  readonly code: string;
  readonly runId: string;

  /** `cause`: the outcome of the run, or the error of the agent. */
  constructor(runId: string, { code, message }: Problem, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    this.runId = runId;
  }
}

export interface Problem {
  readonly code: string;
  readonly message: string;
}

/** Why a run has ended without an answer; undefined if it has completed. */
export function outcomeProblem(outcome: Outcome): Problem | undefined {
  switch (outcome.type) {
    case 'completed':
      return undefined;
    case 'failed':
      return outcome.error;
    case 'exhausted': {
      const { limit } = outcome;
      const message = `The run reached its limit of ${limit} (${LIMIT_OPTIONS[limit] ?? `limits.${limit}`}).`;
      return { code: 'exhausted', message };
    }
    case 'cancelled':
      return { code: 'cancelled', message: 'The run was cancelled.' };
    default:
      return outcome satisfies never;
  }
}

/** The options that set limits, as far as they are not in `limits`. */
const LIMIT_OPTIONS: Readonly<Partial<Record<Limit, string>>> = {
  turns: 'maxTurns',
  attempts: 'maxAttempts',
  errors: 'errorLimit',
  repetition: 'repeatLimit',
  duration: 'limits.durationMs',
  budget: 'ledger',
};

/** Why a run that has not ended has no answer. */
export function pauseProblem(runId: string, waiting: readonly Waiting[]): Problem {
  if (waiting.length === 0) return { code: 'detached', message: `Run "${runId}" was detached. Resume it.` };
  const what = waiting.map(({ type, call }) => `${type} (${call.name})`).join(', ');
  const remedy = 'Look at "waiting" of the result, and resume the run with answers.';
  return { code: 'paused', message: `Run "${runId}" is paused. It waits for: ${what}. ${remedy}` };
}

/** The message of a thrown value of any type. Never throws. */
export function messageOf(thrown: unknown): string {
  try {
    if (thrown instanceof Error) return String(thrown.message || thrown.name);
    if (typeof thrown === 'string') return thrown;
    return JSON.stringify(thrown) ?? String(thrown);
  } catch {
    return `${thrown === null ? 'null' : `a ${typeof thrown}`} that has no text form`;
  }
}

/** Errors of the journal with a code of their own are passed on; any other becomes `journal-failed`. */
export function journalError(runId: string, error: unknown): TreadleError {
  if (error instanceof TreadleError) return error;
  const message = `The journal failed, so run "${runId}" stopped: ${messageOf(error)}`;
  return new TreadleError('journal-failed', message, { cause: error });
}
