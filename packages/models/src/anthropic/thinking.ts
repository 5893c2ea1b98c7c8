import type { Effort, ReasoningPart, Settings } from '@treadle/core';
import type { ThinkingForm } from './models.ts';
import { THINKING_BUDGETS } from './wire.ts';

const LEAST_BUDGET = 1_024;

/** Whether thoughts are sent as text, or only as the signature that has to be sent back. */
export type ThinkingDisplay = 'summarized' | 'omitted';

export interface Thinking {
  readonly thinking?:
    | { readonly type: 'disabled' }
    | { readonly type: 'adaptive'; readonly display?: ThinkingDisplay }
    | { readonly type: 'enabled'; readonly budget_tokens: number; readonly display?: ThinkingDisplay };
  readonly effort?: Exclude<Effort, 'none' | 'minimal'>;
}

export interface ThinkingOptions {
  readonly form: ThinkingForm;
  /** The model thinks by default. */
  readonly byDefault: boolean;
  readonly display: ThinkingDisplay | undefined;
  readonly reasoning: Settings['reasoning'];
  /** Thoughts count as output. At least half of it is reserved for the answer. */
  readonly maxTokens: number;
  /** The tool choice requires a call. The API rejects that together with thinking, so thinking is disabled. */
  readonly forced: boolean;
  /**
   * The last calls were made without a thought, or with one that cannot be sent back. The API rejects that together with a
   * budget, so this turn does not think. The next one can again.
   */
  readonly calledWithoutThought: boolean;
}

export function thinkingOf(options: ThinkingOptions): Thinking {
  return options.form === 'adaptive' ? adaptiveThinking(options) : budgetedThinking(options);
}

function adaptiveThinking({ reasoning, forced, byDefault, display }: ThinkingOptions): Thinking {
  // The API has no lower effort than `low`.
  const effort = reasoning && reasoning !== 'none' && { effort: reasoning === 'minimal' ? 'low' : reasoning };
  if (reasoning === 'none') return byDefault ? { thinking: { type: 'disabled' } } : {};
  if (forced) return { ...effort, thinking: { type: 'disabled' } };
  if (reasoning === undefined && !(byDefault && display)) return {};
  return { ...effort, thinking: { type: 'adaptive', ...(display && { display }) } };
}

function budgetedThinking({ reasoning, forced, calledWithoutThought, maxTokens, display }: ThinkingOptions): Thinking {
  if (reasoning === undefined || reasoning === 'none' || forced || calledWithoutThought) return {};
  const budget_tokens = Math.min(THINKING_BUDGETS[reasoning], Math.floor(maxTokens / 2));
  if (budget_tokens < LEAST_BUDGET) return {};
  return { thinking: { type: 'enabled', budget_tokens, ...(display && { display }) } };
}

/** Real signatures are base64 and never start like this. */
const REDACTED = 'redacted_thinking:';

/**
 * Without a signature, as when it was truncated, a thought cannot be sent back. Its text is a summary: since Claude 4 the
 * API does not return the reasoning itself.
 */
export function thoughtPart(text: string, signature: string, signer: string): ReasoningPart {
  const shown = text === '' ? undefined : { summary: true as const };
  return { type: 'reasoning', text, ...shown, ...(signature !== '' && { signature, protocol: signer }) };
}

/** A thought that the provider does not show but requires back. */
export function redactedThoughtPart(data: string, signer: string): ReasoningPart {
  return { type: 'reasoning', text: '', signature: REDACTED + data, protocol: signer };
}

/** A host rejects thoughts of other hosts, and its own without their signature. */
export function canReturnThought({ signature, protocol }: ReasoningPart, signer: string): boolean {
  return protocol === signer && signature !== undefined;
}

/** The block of a thought, exactly as it was received. */
export function thoughtBlock({ text, signature = '' }: ReasoningPart): object {
  if (signature.startsWith(REDACTED)) return { type: 'redacted_thinking', data: signature.slice(REDACTED.length) };
  return { type: 'thinking', thinking: text, signature };
}
