import type { NamedAgent, TerminationReason } from '@treadle/core/named-agents';
import type { ChatEvent } from '../chat/wire.ts';
import type { WireWaiting } from '../runs/wire.ts';

/* The objects of `/v1/agents`. Pages import them as types from `@treadle/server/wire`. */

export interface WireAgentSummary {
  readonly object: 'agent';
  readonly name: string;
  readonly version: string | null;
  readonly role: string | null;
  readonly description: string;
  /** The name to use where an API expects a model. */
  readonly model_id: string;
}

export interface WireAgent extends WireAgentSummary {
  readonly definition: NamedAgent;
  /** JSON Schema. */
  readonly input_schema: object;
  /** Null: the agent does not describe its output. */
  readonly output_schema: object | null;
}

/** The answer of `/invoke`. */
export interface WireAgentResult {
  readonly agent: string;
  readonly output: Readonly<Record<string, unknown>>;
  readonly raw_response: string;
  readonly tokens_used: number;
  readonly model: string;
  readonly run_id: string;
}

/** The answer of `/invoke-iterative`. */
export interface WireIterativeResult extends WireAgentResult {
  readonly iterations: number;
  readonly tool_calls_made: number;
  readonly tools_used: readonly string[];
  readonly termination_reason: TerminationReason;
  /** Why it has not completed; null if it has. */
  readonly error: { readonly code: string; readonly message: string } | null;
}

/** The answer with the status 202: a run that goes on. */
export interface WireUnfinished {
  readonly agent: string;
  readonly run_id: string;
  /** `waiting`: for what `waiting` lists. Send answers to `POST /v1/runs/{run_id}/answers`. */
  readonly status: 'in_progress' | 'waiting';
  readonly waiting: readonly WireWaiting[];
}

/** The events of `/invoke-iterative/stream`: those of `/v1/chat`, the ids before them, and the result after them. */
export type AgentEvent =
  | { readonly type: 'invocation_meta'; readonly agent: string; readonly run_id: string; readonly model: string }
  | Exclude<ChatEvent, { readonly type: 'conversation_meta' }>
  | ({ readonly type: 'result' } & WireIterativeResult)
  | ({ readonly type: 'unfinished' } & WireUnfinished);
