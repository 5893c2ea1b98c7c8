import { TreadleError, type ModelReply, type Usage } from '@treadle/core';

/** In US dollars per million tokens. */
export interface Rates {
  readonly input: number;
  readonly output: number;
  /** For input that the provider read from its cache; default `input`. */
  readonly cachedInput?: number;
  /** For input that the provider wrote to its cache; default `input`. */
  readonly cacheWrite?: number;
}

/** The price of a model. */
export interface Price extends Rates {
  /** The rates for all tokens of a request whose input is longer than `over` tokens. */
  readonly long?: Rates & { readonly over: number };
}

const MILLION = 1_000_000;

/** The cost in US dollars. Undefined if there are no token counts: the reply was not free. */
export function costOf(price: Price, usage: Usage): number | undefined {
  const { inputTokens, outputTokens, cachedTokens = 0, cacheWriteTokens = 0 } = usage;
  if (inputTokens + outputTokens === 0) return undefined;
  const rates = price.long !== undefined && inputTokens > price.long.over ? price.long : price;
  const { input, output, cachedInput = input, cacheWrite = input } = rates;
  const uncached = Math.max(0, inputTokens - cachedTokens - cacheWriteTokens);
  return (
    (uncached * input + cachedTokens * cachedInput + cacheWriteTokens * cacheWrite + outputTokens * output) / MILLION
  );
}

/** The most that a reply costs: its input may be written to the provider's cache. */
export function maxCostOf(price: Price, inputTokens: number, outputTokens: number): number {
  const read = costOf(price, { inputTokens, outputTokens }) ?? 0;
  return Math.max(read, costOf(price, { inputTokens, outputTokens, cacheWriteTokens: inputTokens }) ?? 0);
}

/** Adds the cost to a reply, unless the provider reported it. */
export function withCost(reply: ModelReply, price: Price | undefined): ModelReply {
  if (reply.type === 'failure' || price === undefined || reply.usage.cost !== undefined) return reply;
  const cost = costOf(price, reply.usage);
  return cost === undefined ? reply : { ...reply, usage: { ...reply.usage, cost } };
}

/** Throws if the price is invalid. `factory` is the function that takes it as an option. */
export function checkPrice(factory: string, price: Price | undefined): void {
  if (price === undefined) return;
  const form = '{ input: 2.5, output: 10 }, in US dollars per million tokens';
  const rejectPrice = (problem: string): never => {
    throw new TreadleError('invalid-options', `${factory}: "price" ${problem}. Pass one such as ${form}.`);
  };
  if (typeof price !== 'object' || price === null) rejectPrice('is not a price');
  const { long, ...rates } = price;
  for (const [name, rate] of [...pairs(rates, ''), ...(long ? pairs(long, 'long.') : [])]) {
    if (rate !== undefined && !(Number.isFinite(rate) && (rate as number) >= 0)) rejectPrice(`has a wrong "${name}"`);
  }
  if (!KEYS.every((key) => key in price && (!long || key in long))) rejectPrice('lacks "input" or "output"');
}

const KEYS = ['input', 'output'] as const;

function pairs(rates: object, prefix: string): (readonly [string, unknown])[] {
  return Object.entries(rates).map(([name, rate]) => [`${prefix}${name}`, rate]);
}
