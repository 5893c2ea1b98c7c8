import { checkOptions, TreadleError, type Clock, type Model, type OptionNames } from '@treadle/core';
import type { BreakerOptions } from './breaker.ts';
import type { TurnstileOptions } from './turnstile.ts';

export interface RouterOptions<Name extends string = string> {
  /** The models by name. */
  readonly models: Readonly<Record<Name, Model>>;
  /** The name of the model that the router asks unless another one is chosen. */
  readonly default: NoInfer<Name>;
  /** The models to ask when a model fails, in this order. The fallbacks of a fallback are ignored. */
  readonly fallback?: { readonly [Each in NoInfer<Name>]?: readonly NoInfer<Name>[] };
  readonly limits?: { readonly [Each in NoInfer<Name>]?: TurnstileOptions };
  /** The breaker of each model; false disables it. */
  readonly breaker?: BreakerOptions | false;
  /**
   * Retries of each model after a retryable failure, as long as no delta was emitted; default 2. It replaces the
   * `maxRetries` of the models themselves, so that retries do not multiply.
   */
  readonly maxRetries?: number;
  readonly clock?: Clock;
  /** Returns a number from 0 to below 1, to spread retries. */
  readonly random?: () => number;
}

const NAMES: OptionNames<RouterOptions> = {
  models: '',
  default: 'string',
  fallback: 'object',
  limits: 'object',
  breaker: '',
  maxRetries: 'number',
  clock: '.now',
  random: 'function',
};
const LIMIT_NAMES: OptionNames<TurnstileOptions> = { concurrency: 'number', requestsPerMinute: 'number' };
const BREAKER_NAMES: OptionNames<BreakerOptions> = { failures: 'number', cooldownMs: 'number' };

/** Throws if the options are invalid. */
export function checkRouter(options: RouterOptions): void {
  checkOptions('router', options ?? {}, { names: NAMES });
  const { models, fallback = {}, limits = {}, breaker, maxRetries } = options ?? {};
  const names = typeof models === 'object' && models !== null ? Object.keys(models) : [];
  if (names.length === 0) {
    rejectOptions('"models" is missing: pass the models by name, such as { main: openaiChat({ model: \'…\' }) }');
  }
  for (const [name, model] of Object.entries(models)) {
    if (typeof model?.reply === 'function') continue;
    const remedy = typeof model === 'string' ? `. Use openaiChat({ model: ${JSON.stringify(model)} })` : '';
    rejectOptions(`"${name}" is not a model${remedy}`);
  }
  const requireModel = (name: string, where: string): void => {
    if (Object.hasOwn(models, name)) return;
    rejectOptions(`${where} names "${name}", which is not one of the models (${names.join(', ')})`);
  };
  requireModel(options.default, '"default"');
  for (const [name, others = []] of Object.entries(fallback)) {
    requireModel(name, '"fallback"');
    for (const other of others) requireModel(other, `"fallback.${name}"`);
    if (new Set([name, ...others]).size <= others.length)
      rejectOptions(`"fallback.${name}" names a model twice, or itself`);
  }
  for (const [name, limit = {}] of Object.entries(limits)) {
    requireModel(name, '"limits"');
    checkOptions(`router: "limits.${name}"`, limit, { names: LIMIT_NAMES });
    const { concurrency, requestsPerMinute } = limit;
    checkWholeNumber(concurrency, 1, `limits.${name}.concurrency`);
    checkWholeNumber(requestsPerMinute, 1, `limits.${name}.requestsPerMinute`);
  }
  checkWholeNumber(maxRetries, 0, 'maxRetries');
  if (breaker) {
    checkOptions('router: "breaker"', breaker, { names: BREAKER_NAMES });
    checkWholeNumber(breaker.failures, 1, 'breaker.failures');
    checkWholeNumber(breaker.cooldownMs, 1, 'breaker.cooldownMs');
  }
}

function checkWholeNumber(value: unknown, least: number, name: string): void {
  if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= least)) return;
  rejectOptions(`"${name}" must be a whole number from ${least}`);
}

function rejectOptions(what: string): never {
  throw new TreadleError('invalid-options', `router: ${what}.`);
}
