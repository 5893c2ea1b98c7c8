import type { Settings } from '@treadle/core';
import type { ThinkingForm } from './models.ts';

const BUDGETS = { low: 4_096, medium: 8_192, high: 16_384 } as const;
const LEAST_BUDGET = 1_024;

/** Whether thoughts come in words, or only as the proof that is to go back. */
export type ThinkingDisplay = 'summarized' | 'omitted';

export interface Thinking {
  readonly thinking?:
    | { readonly type: 'disabled' }
    | { readonly type: 'adaptive'; readonly display?: ThinkingDisplay }
    | { readonly type: 'enabled'; readonly budget_tokens: number; readonly display?: ThinkingDisplay };
  readonly effort?: NonNullable<Settings['reasoning']>;
}

export interface ThinkingCase {
  readonly form: ThinkingForm;
  /** The model thinks also where nothing is said of it. */
  readonly unasked: boolean;
  readonly display: ThinkingDisplay | undefined;
  readonly reasoning: Settings['reasoning'];
  /** Thoughts count as output; at least half of it is kept for the answer. */
  readonly maxTokens: number;
  /** The tool choice demands a call: the API refuses that together with thinking, and a demand goes first. */
  readonly forced: boolean;
  /**
   * The last calls were made without a thought, or with one that cannot go back. With a budget the API would refuse
   * that; the turn after has a thought of its own again.
   */
  readonly unthought: boolean;
}

export function thinkingOf(given: ThinkingCase): Thinking {
  return given.form === 'adaptive' ? adaptive(given) : budgeted(given);
}

function adaptive({ reasoning, forced, unasked, display }: ThinkingCase): Thinking {
  const effort = reasoning && { effort: reasoning };
  if (forced) return { ...effort, thinking: { type: 'disabled' } };
  if (reasoning === undefined && !(unasked && display)) return {};
  return { ...effort, thinking: { type: 'adaptive', ...(display && { display }) } };
}

function budgeted({ reasoning, forced, unthought, maxTokens, display }: ThinkingCase): Thinking {
  if (reasoning === undefined || forced || unthought) return {};
  const budget_tokens = Math.min(BUDGETS[reasoning], Math.floor(maxTokens / 2));
  if (budget_tokens < LEAST_BUDGET) return {};
  return { thinking: { type: 'enabled', budget_tokens, ...(display && { display }) } };
}
