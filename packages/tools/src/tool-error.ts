import type { ErrorFacts, ErrorType } from '@treadle/core';

/** Why a call failed: a text for the model, which says what to do next, and a type for programs. */
export class ToolError extends Error implements ErrorFacts {
  readonly errorType: ErrorType;

  constructor(errorType: ErrorType, message: string, options?: ErrorOptions) {
    super(message, options);
    this.errorType = errorType;
  }
}
