import type { CancelPhase, ToolChoice } from '@treadle/core';
import type { Books } from './books.ts';
import type { Moment } from './trace.ts';

/** What must follow from a fact: nothing yet, one of the effects that a run goes on by, or the end. */
export type Expected =
  | { readonly type: 'nothing' }
  | { readonly type: 'prepare' }
  | {
      readonly type: 'ask';
      readonly choice: ToolChoice;
      readonly tools: readonly string[];
      readonly instructions: string;
      /** Absent: the run's own. */
      readonly model: string | undefined;
    }
  | { readonly type: 'compact'; readonly to: number }
  | { readonly type: 'validate'; readonly text: string; readonly attempt: number | undefined }
  | { readonly type: 'end'; readonly outcome: string };

/** What has followed. */
export function followedBy({ effects, before, after }: Moment): Expected {
  const outcome = inWords(after);
  if (outcome !== undefined && inWords(before) !== outcome) return { type: 'end', outcome };
  for (const effect of effects) {
    switch (effect.type) {
      case 'prepare-turn':
        return { type: 'prepare' };
      case 'call-model': {
        const { toolChoice: choice, tools, instructions = 'none', model } = effect;
        return { type: 'ask', choice, tools: tools.map(({ name }) => name), instructions, model };
      }
      case 'compact-history':
        return { type: 'compact', to: effect.to };
      case 'validate-output':
        return { type: 'validate', text: effect.text, attempt: effect.attempt };
      default:
    }
  }
  return { type: 'nothing' };
}

/** An outcome in the words of `Expected`. */
export function inWords({ phase }: Moment['after']): string | undefined {
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

/** In what a cancel finds a run. */
export function cancelPhaseOf({ open }: Books): CancelPhase {
  const kinds = new Set<string>([...open.values()].map(({ effect }) => effect.type));
  const has = (...some: readonly string[]): boolean => some.some((kind) => kinds.has(kind));
  if (has('validate-output')) return 'validation';
  if (has('prepare-turn', 'call-model', 'compact-history')) return 'model';
  if (has('judge-calls', 'call-tool', 'verify-tool')) return 'tool';
  return has('ask-approval') ? 'approval' : 'client';
}

/** The code of a run that fails because its model lacks something a second time. */
export const LACKING = { call: 'tool-choice-unmet', content: 'empty-reply', output: 'output-invalid' } as const;
