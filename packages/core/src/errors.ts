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
