import type { Settings } from '@treadle/core';

/**
 * How a model is told to think. `adaptive`: it decides itself, and is told how hard to try. `budget`: it is given a
 * number of tokens, the only form that models before Claude 4.6 know, and that newer ones refuse.
 */
export type ThinkingForm = 'adaptive' | 'budget';

/** No older models are made, so the list is final. */
const BUDGETED = /claude-(?:3|(?:opus|sonnet|haiku)-4(?:$|@|-(?:[015](?!\d)|20\d{6})))/;

export function thinkingForm(model: unknown): ThinkingForm {
  return typeof model === 'string' && BUDGETED.test(model) ? 'budget' : 'adaptive';
}

const BUDGETS = { low: 4_096, medium: 8_192, high: 16_384 } as const;
const LEAST_BUDGET = 1_024;

export interface Thinking {
  readonly thinking?: { readonly type: 'adaptive' } | { readonly type: 'enabled'; readonly budget_tokens: number };
  readonly effort?: NonNullable<Settings['reasoning']>;
}

export interface ThinkingCase {
  readonly form: ThinkingForm;
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

export function thinkingOf({ form, reasoning, maxTokens, forced, unthought }: ThinkingCase): Thinking {
  if (reasoning === undefined) return {};
  if (form === 'adaptive') return { effort: reasoning, ...(!forced && { thinking: { type: 'adaptive' } }) };
  const budget_tokens = Math.min(BUDGETS[reasoning], Math.floor(maxTokens / 2));
  if (forced || unthought || budget_tokens < LEAST_BUDGET) return {};
  return { thinking: { type: 'enabled', budget_tokens } };
}
