import type { ErrorFacts } from '@treadle/core';

/** Why a call failed, for the model: the message says what was wrong and what to do next. */
export class ToolError extends Error implements ErrorFacts {
  readonly errorType: 'timeout' | 'not_found' | 'permission_denied' | 'invalid_params' | 'execution_failed';

  constructor(message: string, errorType: ToolError['errorType'] = 'execution_failed', options?: ErrorOptions) {
    super(message, options);
    this.errorType = errorType;
  }
}
