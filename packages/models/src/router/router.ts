import { systemClock, TreadleError, type Attempt, type Model, type ModelError } from '@treadle/core';
import { LONGEST_RETRY_AFTER_MS, LONGEST_WAIT_MS } from '../http/retry.ts';
import { endpoint, type Endpoint } from './endpoint.ts';
import { checkRouter, type RouterOptions } from './options.ts';

/** Several models as one. Its own `reply` asks the default model. */
export interface Router<Name extends string = string> extends Model {
  /** The model of this name, with its fallbacks. The name is its id. Throws if there is no such model. */
  model(name: Name): Model;
  /** All models, so that `prepareTurn` can choose one by name: `runLoop({ model: router, models: router.models })`. */
  readonly models: readonly Model[];
}

/**
 * Several models as one. Each model is asked within its limits and while its breaker is closed. A retryable failure is
 * retried; then the fallbacks are asked, one after the other. After a delta was emitted there is neither a retry nor a
 * fallback, and the failure is returned. The reply has all attempts in order, including those that were skipped.
 */
export function router<const Name extends string>(options: RouterOptions<Name>): Router<Name> {
  checkRouter(options);
  const { fallback = {}, limits = {}, breaker = {}, maxRetries = 2 } = options as RouterOptions;
  const { clock = systemClock, random = Math.random } = options;
  const models = new Map<string, Model>(Object.entries(options.models));
  const endpoints = new Map<string, Endpoint>();
  for (const [name, model] of models) {
    endpoints.set(name, endpoint({ name, model, limits: limits[name] ?? {}, breaker, maxRetries, clock, random }));
  }

  const modelFor = (name: string): Model => {
    const chain = [name, ...(fallback[name] ?? [])];
    const asks = chain.map((each) => models.get(each)!);
    return {
      id: name,
      priced: asks.every(({ priced }) => priced === true),
      maxCost: (input, output) => highestCost(asks, input, output),
      asks,
      async reply(request, emit, signal) {
        const attempts: Attempt[] = [];
        const failures: ModelFailure[] = [];
        let hasEmitted = false;
        const emitDelta: typeof emit = (delta) => {
          hasEmitted = true;
          return emit(delta);
        };
        for (const [index, each] of chain.entries()) {
          // If there is another model to ask, long waits are not worthwhile.
          const longestWaitMs = index < chain.length - 1 ? LONGEST_WAIT_MS : LONGEST_RETRY_AFTER_MS;
          const reply = await endpoints.get(each)!.ask(request, emitDelta, signal, longestWaitMs);
          for (const attempt of reply.attempts!) attempts.push(index === 0 ? attempt : { ...attempt, fallback: each });
          if (reply.type === 'reply' || hasEmitted) return { ...reply, attempts };
          failures.push({ name: each, error: reply.error });
          if (!canFallBack(reply.error)) break;
        }
        return { type: 'failure', error: summaryOf(failures), attempts };
      },
    };
  };

  const routes = new Map([...models.keys()].map((name) => [name, modelFor(name)]));
  return {
    ...routes.get(options.default)!,
    models: [...routes.values()],
    model(name) {
      const route = routes.get(name);
      if (route) return route;
      throw new TreadleError(
        'invalid-options',
        `router: there is no model "${name}". The models are: ${[...routes.keys()].join(', ')}.`,
      );
    },
  };
}

/** Any of the models may reply. Undefined if the price of one is not known. */
function highestCost(models: readonly Model[], input: number, output: number): number | undefined {
  const costs = models.map((model) => model.maxCost?.(input, output));
  return costs.every((cost) => cost !== undefined) ? Math.max(...costs) : undefined;
}

interface ModelFailure {
  readonly name: string;
  readonly error: ModelError;
}

/**
 * Whether another model may succeed. It may if the endpoint is the problem (down, busy, no key, no such model), or if the
 * conversation is too long for this model. An invalid request fails everywhere, and a content filter is not bypassed.
 */
function canFallBack({ code, status }: ModelError): boolean {
  switch (code) {
    case 'network':
    case 'timeout':
    case 'overloaded':
    case 'rate-limit':
    case 'protocol':
    case 'auth':
    case 'context-length':
      return true;
    case 'invalid-request':
      return status === 404;
    case 'content-filter':
    case 'cancelled':
    case 'program-failed':
    case 'program-diverged':
      return false;
    default:
      return code satisfies never;
  }
}

/** The last failure. `context-length` takes precedence, because the loop can react to it. */
function summaryOf(failures: readonly ModelFailure[]): ModelError {
  const { error } = failures.find((each) => each.error.code === 'context-length') ?? failures.at(-1)!;
  if (failures.length === 1) return error;
  const reasons = failures.map(({ name, error: { code, message } }) => `${name}: ${message} (${code})`);
  return { ...error, message: `All models failed. ${reasons.join(' ')}` };
}
