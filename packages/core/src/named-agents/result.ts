import { outcomeProblem } from '../errors.ts';
import { outputFrom } from '../driver/output-text.ts';
import type { LoopResult } from '../driver/options.ts';
import type { Limit, Outcome, Waiting } from '../machine/state.ts';
import { tokensOf } from '../model.ts';
import { textField } from './fields.ts';
import type { NamedAgent } from './named-agent.ts';

/* The result of a run of an agent, by the names of the agents API. */

export interface AgentResult {
  /** What `outputs` describes; of a run that has not completed, what there is. */
  readonly output: Readonly<Record<string, unknown>>;
  /** The text of the last reply. */
  readonly raw_response: string;
  readonly tokens_used: number;
  readonly model: string;
}

export interface IterativeResult extends AgentResult {
  /** Model calls. */
  readonly iterations: number;
  /** Calls that were allowed to run. */
  readonly tool_calls_made: number;
  /** Sorted. */
  readonly tools_used: readonly string[];
  /** Absent while the run waits: see `waiting`. */
  readonly termination_reason?: TerminationReason;
  /** Why, if it is not `completed`. */
  readonly error?: { readonly code: string; readonly message: string };
  readonly run_id: string;
  /** What the run waits for, such as an approval. Empty for a run that has ended. */
  readonly waiting: readonly Waiting[];
}

export type TerminationReason =
  | 'completed'
  | 'max_iterations'
  | 'error'
  | 'budget_exceeded'
  | 'duration_exceeded'
  | 'cancelled';

const LIMIT_REASONS: Readonly<Record<Limit, TerminationReason>> = {
  turns: 'max_iterations',
  attempts: 'error',
  calls: 'budget_exceeded',
  tokens: 'budget_exceeded',
  cost: 'budget_exceeded',
  budget: 'budget_exceeded',
  duration: 'duration_exceeded',
  errors: 'error',
  repetition: 'error',
};

/** `isBudget`: the turns were limited by the autonomy level, and not by the agent or the request. */
export function terminationReason(outcome: Outcome, isBudget = false): TerminationReason {
  switch (outcome.type) {
    case 'completed':
      return 'completed';
    case 'exhausted':
      return outcome.limit === 'turns' && isBudget ? 'budget_exceeded' : LIMIT_REASONS[outcome.limit];
    case 'failed':
      return 'error';
    case 'cancelled':
      return 'cancelled';
    default:
      return outcome satisfies never;
  }
}

/** What of a result the output is made of. */
type Answered = Pick<LoopResult, 'text' | 'output'>;

/** The output of an answer: what was validated, or its JSON, or its text under the first output field, or `result`. */
export function agentOutput(agent: NamedAgent, { text, output }: Answered): Readonly<Record<string, unknown>> {
  return (output as Readonly<Record<string, unknown>> | undefined) ?? outputFrom(text, textField(agent));
}

/** `maxTurns`: those of `agentRun`. A run that ends with fewer had those of an autonomy level. */
export function iterativeResult(
  agent: NamedAgent,
  result: Omit<LoopResult, 'orThrow' | 'messages' | 'durationMs'>,
  { maxTurns = 0 }: { readonly maxTurns?: number | undefined } = {},
): IterativeResult {
  const { outcome, text, usage, turns, calls, toolsUsed, model, runId, waiting } = result;
  const problem = outcome && outcomeProblem(outcome);
  return {
    output: agentOutput(agent, result),
    raw_response: text,
    tokens_used: tokensOf(usage),
    model,
    iterations: turns,
    tool_calls_made: calls,
    tools_used: toolsUsed,
    ...(outcome && { termination_reason: terminationReason(outcome, turns < maxTurns) }),
    ...(problem && { error: problem }),
    run_id: runId,
    waiting,
  };
}

/** The smaller result, of `invoke`. */
export function agentResult({ output, raw_response, tokens_used, model }: IterativeResult): AgentResult {
  return { output, raw_response, tokens_used, model };
}
