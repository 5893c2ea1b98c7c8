import type { Limit } from '../machine/state.ts';
import type { ErrorType } from '../messages.ts';
import type { ModelErrorCode } from '../model.ts';

/** What failed. `infrastructure`: a process, a device or the machine. */
export type FailureCategory = 'model' | 'tool' | 'policy' | 'limit' | 'validation' | 'infrastructure';

/**
 * `low`: the run recovered from it. `medium`: it did not, and went on. `high`: it ended the run. `critical`: nobody knows whether a
 * call took effect.
 */
export type FailureSeverity = 'low' | 'medium' | 'high' | 'critical';

/** The codes of AGENT-33: environment, input, execution, timeout, resource, security, dependency, validation, review, unknown. */
export type FailureCode =
  | 'F-ENV'
  | 'F-INP'
  | 'F-EXE'
  | 'F-TMO'
  | 'F-RES'
  | 'F-SEC'
  | 'F-DEP'
  | 'F-VAL'
  | 'F-REV'
  | 'F-UNK';

/** What went well after a failure, so that it did no harm. */
export interface Recovery {
  /**
   * `retry`: a later attempt of the same model call. `fallback`: another model answered it. `resume`: the effect was performed again.
   * `verified`: the tool found out what came of the call. `success`: a later call of the same tool, or a later output, was fine.
   * `compaction`: the history was shortened.
   */
  readonly by: 'retry' | 'fallback' | 'resume' | 'verified' | 'success' | 'compaction';
  /** The entry with which it did. */
  readonly seq: number;
}

export interface TraceFailure {
  /** The entry that tells of it. */
  readonly seq: number;
  readonly at: number;
  /** The effect that failed. Absent: the run itself. */
  readonly effect?: string;
  /** The tool, if a call failed. */
  readonly tool?: string;
  readonly category: FailureCategory;
  readonly code: FailureCode;
  /** What Treadle calls it: the type of the tool's error, the code of the model's, or the limit. */
  readonly type: string;
  readonly severity: FailureSeverity;
  /** The same might work if it is tried again. */
  readonly retryable: boolean;
  readonly recovery?: Recovery;
}

export type FailureKind = Pick<TraceFailure, 'category' | 'code' | 'retryable'>;

const kind = (category: FailureCategory, code: FailureCode, retryable: boolean): FailureKind => ({
  category,
  code,
  retryable,
});

/** By the type of a tool's error. */
export const TOOL_FAILURES: Readonly<Record<ErrorType, FailureKind>> = {
  timeout: kind('tool', 'F-TMO', true),
  not_found: kind('tool', 'F-INP', false),
  permission_denied: kind('policy', 'F-SEC', false),
  invalid_params: kind('validation', 'F-INP', false),
  execution_failed: kind('tool', 'F-EXE', true),
  denied: kind('policy', 'F-SEC', false),
  interrupted: kind('infrastructure', 'F-ENV', true),
};

/** By the code of a model's error. Whether it can be tried again is in the error. */
export const MODEL_FAILURES: Readonly<Record<ModelErrorCode, FailureCode>> = {
  auth: 'F-SEC',
  'rate-limit': 'F-DEP',
  overloaded: 'F-DEP',
  'context-length': 'F-RES',
  'invalid-request': 'F-INP',
  timeout: 'F-TMO',
  network: 'F-DEP',
  protocol: 'F-DEP',
  'content-filter': 'F-SEC',
  cancelled: 'F-UNK',
  'program-failed': 'F-EXE',
  'program-diverged': 'F-EXE',
};

/** By the limit that ended a run. */
export const LIMIT_FAILURES: Readonly<Record<Limit, FailureKind>> = {
  turns: kind('limit', 'F-RES', true),
  attempts: kind('limit', 'F-VAL', true),
  calls: kind('limit', 'F-RES', true),
  tokens: kind('limit', 'F-RES', true),
  cost: kind('limit', 'F-RES', true),
  duration: kind('limit', 'F-TMO', true),
  errors: kind('limit', 'F-EXE', true),
  repetition: kind('limit', 'F-EXE', true),
  budget: kind('limit', 'F-RES', false),
};

/** By the code of a failed run whose failure is no model's. */
export const RUN_FAILURES: Readonly<Record<string, FailureKind>> = {
  guardrail: kind('policy', 'F-SEC', false),
  'tool-choice-unmet': kind('model', 'F-VAL', true),
  'empty-reply': kind('model', 'F-VAL', true),
  'no-tool-called': kind('model', 'F-VAL', true),
  'submit-before-output': kind('model', 'F-VAL', true),
  'content-filter': kind('model', 'F-SEC', false),
  'output-invalid': kind('validation', 'F-VAL', true),
  'tokens-unknown': kind('limit', 'F-INP', false),
  'cost-unknown': kind('limit', 'F-INP', false),
  'prepare-failed': kind('infrastructure', 'F-EXE', false),
  'prompt-failed': kind('infrastructure', 'F-EXE', false),
  'crash-loop': kind('infrastructure', 'F-ENV', false),
};

export const UNKNOWN_FAILURE: FailureKind = kind('infrastructure', 'F-UNK', false);
export const LOST_FAILURE: FailureKind = kind('infrastructure', 'F-ENV', true);
/** A person has denied a call, or has not answered in time. */
export const DENIED_BY_PERSON: FailureKind = kind('policy', 'F-REV', false);
/** A limit of the run has refused a call. */
export const OVER_LIMIT: FailureKind = kind('limit', 'F-RES', false);
/** The model has called what the tool choice rules out, or submits before there is an output. */
export const RULED_OUT: FailureKind = kind('model', 'F-VAL', true);
export const INVALID_OUTPUT: FailureKind = kind('validation', 'F-VAL', true);
