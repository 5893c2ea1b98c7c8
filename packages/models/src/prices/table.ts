import type { Price } from './price.ts';

/**
 * The published prices of OpenAI, Anthropic and Google for standard requests (no batch, no priority), as of November 2026.
 * Models with an uncertain price are left out. Prices change, and hosts differ: pass `price` to the model for exact costs.
 */
const PRICES: Readonly<Record<string, Price>> = {
  // OpenAI
  'gpt-5.5': longer(272_000, cached(5, 0.5, 30), cached(10, 1, 45)),
  'gpt-5.4': longer(272_000, cached(2.5, 0.25, 15), cached(5, 0.5, 22.5)),
  'gpt-5.4-mini': cached(0.75, 0.075, 4.5),
  'gpt-5.4-nano': cached(0.2, 0.02, 1.25),
  'gpt-5.2': cached(1.75, 0.175, 14),
  'gpt-5.1': cached(1.25, 0.125, 10),
  'gpt-5': cached(1.25, 0.125, 10),
  'gpt-5-mini': cached(0.25, 0.025, 2),
  'gpt-4.1': cached(2, 0.5, 8),
  'gpt-4.1-mini': cached(0.4, 0.1, 1.6),
  'gpt-4.1-nano': cached(0.1, 0.025, 0.4),
  'gpt-4o': cached(2.5, 1.25, 10),
  'gpt-4o-mini': cached(0.15, 0.075, 0.6),
  // Anthropic; cache writes with a lifetime of five minutes
  'claude-fable-5': cached(10, 1, 50, 12.5),
  'claude-opus-5': cached(5, 0.5, 25, 6.25),
  'claude-opus-4-8': cached(5, 0.5, 25, 6.25),
  'claude-opus-4-7': cached(5, 0.5, 25, 6.25),
  'claude-opus-4-6': cached(5, 0.5, 25, 6.25),
  'claude-opus-4-5': cached(5, 0.5, 25, 6.25),
  'claude-opus-4-1': cached(15, 1.5, 75, 18.75),
  'claude-sonnet-5': cached(2, 0.2, 10, 2.5),
  'claude-sonnet-4-6': cached(3, 0.3, 15, 3.75),
  'claude-sonnet-4-5': cached(3, 0.3, 15, 3.75),
  'claude-haiku-4-5': cached(1, 0.1, 5, 1.25),
  // Google; of input that is text, images or video, not audio
  'gemini-3.5-flash': cached(1.5, 0.15, 9),
  'gemini-3.1-pro-preview': longer(200_000, cached(2, 0.2, 12), cached(4, 0.4, 18)),
  'gemini-3.1-flash-lite': cached(0.25, 0.025, 1.5),
  'gemini-3-flash-preview': cached(0.5, 0.05, 3),
  'gemini-2.5-pro': longer(200_000, cached(1.25, 0.125, 10), cached(2.5, 0.25, 15)),
  'gemini-2.5-flash': cached(0.3, 0.03, 2.5),
  'gemini-2.5-flash-lite': cached(0.1, 0.01, 0.4),
};

/** `gpt-5-mini-2025-08-07` and `claude-opus-4-5-20251101` are `gpt-5-mini` and `claude-opus-4-5` as of that day. */
const SNAPSHOT = /-(20\d\d-[01]\d-[0-3]\d|20\d\d[01]\d[0-3]\d)$/;

/** The price of a model by its exact name, or by the name without the date of a snapshot. */
export function priceOf(model: string): Price | undefined {
  return known(model) ?? known(model.replace(SNAPSHOT, ''));
}

function known(model: string): Price | undefined {
  return Object.hasOwn(PRICES, model) ? PRICES[model] : undefined;
}

function cached(input: number, cachedInput: number, output: number, cacheWrite?: number): Price {
  return { input, cachedInput, output, ...(cacheWrite !== undefined && { cacheWrite }) };
}

function longer(over: number, price: Price, rates: Price): Price {
  return { ...price, long: { ...rates, over } };
}
