import { TreadleError, type Clock, type Model } from '@treadle/core';
import type { BreakerOptions } from './breaker.ts';
import type { TurnstileOptions } from './turnstile.ts';

export interface RouterOptions<Name extends string = string> {
  /** By the names that you give them. */
  readonly models: Readonly<Record<Name, Model>>;
  /** Who is asked if nobody is named. */
  readonly default: NoInfer<Name>;
  /** Who is asked instead of a model that fails, in this order. Their own fallbacks do not count then. */
  readonly fallback?: { readonly [Each in NoInfer<Name>]?: readonly NoInfer<Name>[] };
  readonly limits?: { readonly [Each in NoInfer<Name>]?: TurnstileOptions };
  /** For each model; false: none. */
  readonly breaker?: BreakerOptions | false;
  /**
   * Attempts after the first with each model, for failures that may pass, while nothing has been shown; default 2. It
   * replaces the `maxRetries` of the models themselves, so that retries do not multiply.
   */
  readonly maxRetries?: number;
  readonly clock?: Clock;
  /** From 0 to below 1; spreads retries. */
  readonly random?: () => number;
}

/** Throws if the options cannot work. */
export function checkRouter(options: RouterOptions): void {
  const { models, fallback = {}, limits = {}, breaker, maxRetries } = options ?? {};
  const names = typeof models === 'object' && models !== null ? Object.keys(models) : [];
  if (names.length === 0)
    wrong('"models" is missing: give them by name, such as { main: openaiChat({ model: \'…\' }) }');
  for (const [name, model] of Object.entries(models)) {
    if (typeof model?.reply !== 'function') wrong(`"${name}" is no model`);
  }
  const demand = (name: string, where: string): void => {
    if (!Object.hasOwn(models, name))
      wrong(`${where} names "${name}", which is none of the models (${names.join(', ')})`);
  };
  demand(options.default, '"default"');
  for (const [name, others = []] of Object.entries(fallback)) {
    demand(name, '"fallback"');
    for (const other of others) demand(other, `"fallback.${name}"`);
    if (new Set([name, ...others]).size <= others.length) wrong(`"fallback.${name}" names a model twice, or itself`);
  }
  for (const [name, { concurrency, requestsPerMinute } = {}] of Object.entries(limits)) {
    demand(name, '"limits"');
    whole(concurrency, 1, `limits.${name}.concurrency`);
    whole(requestsPerMinute, 1, `limits.${name}.requestsPerMinute`);
  }
  whole(maxRetries, 0, 'maxRetries');
  if (breaker) {
    whole(breaker.failures, 1, 'breaker.failures');
    whole(breaker.cooldownMs, 1, 'breaker.cooldownMs');
  }
}

function whole(value: unknown, least: number, name: string): void {
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= least)) return;
  wrong(`"${name}" must be a whole number from ${least}`);
}

function wrong(what: string): never {
  throw new TreadleError('invalid-options', `router: ${what}.`);
}
