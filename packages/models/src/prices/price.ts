import { TreadleError, type ModelReply, type Usage } from '@treadle/core';

/** In US dollars per million tokens. */
export interface Rates {
  readonly input: number;
  readonly output: number;
  /** For input that the provider read from its cache; default: as `input`. */
  readonly cachedInput?: number;
  /** For input that it wrote to its cache; default: as `input`. */
  readonly cacheWrite?: number;
}

/** What a model costs. */
export interface Price extends Rates {
  /** The rates of a whole request whose input is longer than `over` tokens, where they differ. */
  readonly long?: Rates & { readonly over: number };
}

const MILLION = 1_000_000;

/** In US dollars. Unknown where nobody has counted the tokens: a reply without any would otherwise look free. */
export function costOf(price: Price, usage: Usage): number | undefined {
  const { inputTokens, outputTokens, cachedTokens = 0, cacheWriteTokens = 0 } = usage;
  if (inputTokens + outputTokens === 0) return undefined;
  const rates = price.long !== undefined && inputTokens > price.long.over ? price.long : price;
  const { input, output, cachedInput = input, cacheWrite = input } = rates;
  const plain = Math.max(0, inputTokens - cachedTokens - cacheWriteTokens);
  return (plain * input + cachedTokens * cachedInput + cacheWriteTokens * cacheWrite + outputTokens * output) / MILLION;
}

/** With what it cost, unless the provider has said so itself, which is better than what we reckon. */
export function withCost(reply: ModelReply, price: Price | undefined): ModelReply {
  if (reply.type === 'failure' || price === undefined || reply.usage.cost !== undefined) return reply;
  const cost = costOf(price, reply.usage);
  return cost === undefined ? reply : { ...reply, usage: { ...reply.usage, cost } };
}

/** Throws if the price cannot be one; `factory` is the function that it was given to. */
export function checkPrice(factory: string, price: Price | undefined): void {
  if (price === undefined) return;
  const form = '{ input: 2.5, output: 10 }, in US dollars per million tokens';
  const wrong = (what: string): never => {
    throw new TreadleError('invalid-options', `${factory}: "price" ${what}: give one such as ${form}.`);
  };
  if (typeof price !== 'object' || price === null) wrong('is no price');
  const { long, ...rates } = price;
  for (const [name, rate] of [...pairs(rates, ''), ...(long ? pairs(long, 'long.') : [])]) {
    if (rate !== undefined && !(Number.isFinite(rate) && (rate as number) >= 0)) wrong(`has a wrong "${name}"`);
  }
  if (!KEYS.every((key) => key in price && (!long || key in long))) wrong('lacks "input" or "output"');
}

const KEYS = ['input', 'output'] as const;

function pairs(rates: object, prefix: string): (readonly [string, unknown])[] {
  return Object.entries(rates).map(([name, rate]) => [`${prefix}${name}`, rate]);
}
