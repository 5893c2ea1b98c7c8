import type { PlannedStep, StepStatus, WorkflowGraph } from '@treadle/tools/workflows';
import type { WireWaiting } from '../runs/wire.ts';

/* The objects of `/v1/workflows`. Pages import them as types from `@treadle/server/wire`. */

export interface WireWorkflowSummary {
  readonly object: 'workflow';
  readonly name: string;
  readonly version: string | null;
  readonly description: string;
}

export interface WireWorkflow extends WireWorkflowSummary {
  readonly definition: object;
  /** JSON Schema. */
  readonly input_schema: object;
  readonly graph: WorkflowGraph;
}

/** The answer to a dry run. */
export interface WireWorkflowPlan {
  readonly object: 'workflow.plan';
  readonly workflow: string;
  readonly inputs: unknown;
  readonly steps: readonly PlannedStep[];
}

/** A run of a workflow. */
export interface WireWorkflowRun {
  readonly object: 'workflow.run';
  readonly workflow: string;
  readonly run_id: string;
  readonly status: 'in_progress' | 'waiting' | 'completed' | 'failed' | 'cancelled' | 'incomplete';
  /** The outputs; null before the end. */
  readonly output: Readonly<Record<string, unknown>> | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  /** Send answers to `POST /v1/runs/{run_id}/answers`. */
  readonly waiting: readonly WireWaiting[];
  /** Only in the status by step. */
  readonly steps?: readonly StepStatus[];
}

/** The answer to a cancel. */
export interface WireWorkflowCancel {
  readonly object: 'workflow.cancel';
  readonly run_id: string;
  /** The run that undoes the steps; null if the definition does not say so. */
  readonly undo_run_id: string | null;
}
