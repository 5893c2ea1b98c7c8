/** A mistake of whoever calls, or a broken part: `code` is for programs, the message says what to do. */
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
  | 'duplicate-tool'
  | 'unknown-run'
  | 'run-exists'
  | 'answer-unfit'
  | 'journal-failed'
  | 'journal-damaged';

/** What somebody threw, in words; anything can be thrown. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name;
  if (typeof thrown === 'string') return thrown;
  try {
    return JSON.stringify(thrown) ?? String(thrown);
  } catch {
    return Object.prototype.toString.call(thrown);
  }
}
