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
  readonly graph: WireWorkflowGraph;
}

/** The steps in columns: each is right of everything that it needs. */
export interface WireWorkflowGraph {
  readonly nodes: readonly {
    readonly id: string;
    readonly action: string;
    /** The tool, agent or workflow. */
    readonly calls?: string;
    readonly column: number;
    readonly row: number;
    /** The step that it is inside of. */
    readonly inside?: string;
  }[];
  readonly edges: readonly {
    readonly from: string;
    readonly to: string;
    /** `then`, `else`, `on_error` and `undo` are taken only sometimes. */
    readonly kind: 'needs' | 'then' | 'else' | 'on_error' | 'undo';
  }[];
}

export interface WirePlannedStep {
  readonly id: string;
  readonly action: string;
  readonly calls?: string;
  readonly depends_on: readonly string[];
  /** `if`: a condition decides, which is not known. */
  readonly taken: 'yes' | 'no' | 'if' | 'on_error' | 'undo';
  /** As far as they are known. */
  readonly values: Readonly<Record<string, unknown>>;
  readonly steps?: readonly WirePlannedStep[];
}

/** What a step of a run has done, or does now. */
export interface WireStep {
  readonly id: string;
  readonly action: string;
  /** `waiting`: for a person, a client or a time. `stopped`: the run has ended without it. */
  readonly status: 'pending' | 'running' | 'waiting' | 'done' | 'failed' | 'skipped' | 'stopped';
  /**
   * What its tool, agent or workflow was called with last. Of a `transform` or a `condition` that is done: what its expressions name,
   * with the values. Otherwise null.
   */
  readonly inputs: unknown;
  readonly output: unknown;
  readonly error: { readonly step: string; readonly type: string; readonly message: string } | null;
  /** The run of its agent or workflow, or else the run that takes it; null if it has called nothing. */
  readonly run: string | null;
}

/** The answer to a dry run. */
export interface WireWorkflowPlan {
  readonly object: 'workflow.plan';
  readonly workflow: string;
  readonly inputs: unknown;
  readonly steps: readonly WirePlannedStep[];
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
  readonly steps?: readonly WireStep[];
  /** The same, of the definition that the run was started with. */
  readonly graph?: WireWorkflowGraph;
}

/** The answer to a cancel. */
export interface WireWorkflowCancel {
  readonly object: 'workflow.cancel';
  readonly run_id: string;
  /** The run that undoes the steps; null if the definition does not say so. */
  readonly undo_run_id: string | null;
}
