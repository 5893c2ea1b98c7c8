import type { CancelPhase, ToolChoice } from '@treadle/core';
import type { Observed } from './observed.ts';
import type { Moment } from './trace.ts';

/** What must follow from an event: nothing yet, an effect that continues the run, or the end. */
export type Expected =
  | { readonly type: 'nothing' }
  | { readonly type: 'prepare' }
  | {
      readonly type: 'ask';
      readonly choice: ToolChoice;
      readonly tools: readonly string[];
      readonly instructions: string;
      /** Undefined: the model of the run. */
      readonly model: string | undefined;
    }
  | { readonly type: 'guard'; readonly stage: 'input' | 'output'; readonly output: unknown }
  | { readonly type: 'compact'; readonly to: number }
  | { readonly type: 'validate'; readonly text: string; readonly attempt: number | undefined }
  | { readonly type: 'end'; readonly outcome: string };

/** What followed from an event. */
export function followedBy({ effects, before, after }: Moment): Expected {
  const outcome = outcomeText(after);
  if (outcome !== undefined && outcomeText(before) !== outcome) return { type: 'end', outcome };
  for (const effect of effects) {
    switch (effect.type) {
      case 'prepare-turn':
        return { type: 'prepare' };
      case 'call-model': {
        const { toolChoice: choice, tools, instructions = 'none', model } = effect;
        return { type: 'ask', choice, tools: tools.map(({ name }) => name), instructions, model };
      }
      case 'check-guardrails':
        return { type: 'guard', stage: effect.stage, output: effect.output };
      case 'compact-history':
        return { type: 'compact', to: effect.to };
      case 'validate-output':
        return { type: 'validate', text: effect.text, attempt: effect.attempt };
      default:
    }
  }
  return { type: 'nothing' };
}

/** An outcome as text. */
export function outcomeText({ phase }: Moment['after']): string | undefined {
  if (phase.type !== 'ended') return undefined;
  const { outcome } = phase;
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? 'completed truncated' : 'completed';
    case 'exhausted':
      return `exhausted ${outcome.limit}`;
    case 'failed':
      return `failed ${outcome.error.code}`;
    case 'cancelled':
      return `cancelled ${outcome.phase}`;
    default:
      return outcome satisfies never;
  }
}

/** The phase in which a cancellation finds the run. */
export function cancelPhaseOf({ open, raising }: Observed): CancelPhase {
  if (raising) return 'model';
  const kinds = new Set<string>([...open.values()].map(({ effect }) => effect.type));
  const has = (...some: readonly string[]): boolean => some.some((kind) => kinds.has(kind));
  if (has('validate-output', 'check-guardrails')) return 'validation';
  if (has('prepare-turn', 'call-model', 'compact-history')) return 'model';
  if (has('judge-calls', 'call-tool', 'verify-tool')) return 'tool';
  return has('ask-approval') ? 'approval' : 'client';
}

/** The error code of a run whose model lacks something in two consecutive replies. */
export const LACKING = { call: 'tool-choice-unmet', content: 'empty-reply', output: 'output-invalid' } as const;
