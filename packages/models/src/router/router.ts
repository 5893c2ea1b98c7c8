import { systemClock, TreadleError, type Attempt, type Model, type ModelError } from '@treadle/core';
import { LONGEST_RETRY_AFTER_MS, LONGEST_WAIT_MS } from '../http/retry.ts';
import { endpoint, type Endpoint } from './endpoint.ts';
import { checkRouter, type RouterOptions } from './options.ts';

/** A model that is one of several. Asked itself, it is the default. */
export interface Router<Name extends string = string> extends Model {
  /** One by its name, with its fallbacks. Its id is that name. Throws if there is none. */
  model(name: Name): Model;
  /** All of them, so that `prepareTurn` can choose one by its name: `runLoop({ model: router, models: router.models })`. */
  readonly models: readonly Model[];
}

/**
 * Several models as one. Each is asked within its limits and while its breaker lets it; a failure that may pass is
 * retried, and then the fallbacks are asked, one after the other. Once something of a reply has been shown, neither
 * happens: the failure is told. All attempts are in the reply, in order, also those that were not made and why.
 */
export function router<const Name extends string>(options: RouterOptions<Name>): Router<Name> {
  checkRouter(options);
  const { fallback = {}, limits = {}, breaker = {}, maxRetries = 2 } = options as RouterOptions;
  const { clock = systemClock, random = Math.random } = options;
  const given = new Map<string, Model>(Object.entries(options.models));
  const endpoints = new Map<string, Endpoint>();
  for (const [name, model] of given) {
    endpoints.set(name, endpoint({ name, model, limits: limits[name] ?? {}, breaker, maxRetries, clock, random }));
  }

  const view = (name: string): Model => {
    const chain = [name, ...(fallback[name] ?? [])];
    const asks = chain.map((each) => given.get(each)!);
    return {
      id: name,
      priced: asks.every(({ priced }) => priced === true),
      asks,
      async reply(request, emit, signal) {
        const attempts: Attempt[] = [];
        const failures: Failed[] = [];
        let shown = false;
        const show: typeof emit = (delta) => {
          shown = true;
          return emit(delta);
        };
        for (const [index, each] of chain.entries()) {
          // With others at hand nobody waits for long.
          const longestWaitMs = index < chain.length - 1 ? LONGEST_WAIT_MS : LONGEST_RETRY_AFTER_MS;
          const reply = await endpoints.get(each)!.ask(request, show, signal, longestWaitMs);
          attempts.push(...reply.attempts!);
          if (reply.type === 'reply' || shown) return { ...reply, attempts };
          failures.push({ name: each, error: reply.error });
          if (!othersMayDoBetter(reply.error)) break;
        }
        return { type: 'failure', error: summary(failures), attempts };
      },
    };
  };

  const views = new Map([...given.keys()].map((name) => [name, view(name)]));
  return {
    ...views.get(options.default)!,
    models: [...views.values()],
    model(name) {
      const found = views.get(name);
      if (found) return found;
      throw new TreadleError(
        'invalid-options',
        `router: there is no model "${name}", only ${[...views.keys()].join(', ')}.`,
      );
    },
  };
}

interface Failed {
  readonly name: string;
  readonly error: ModelError;
}

/**
 * Whatever is wrong with one endpoint (down, busy, no key, no such model), another may be fine; and another may have room
 * for a longer conversation. A request that is wrong is wrong everywhere, and what one filter stops is not carried past
 * it.
 */
function othersMayDoBetter({ code, status }: ModelError): boolean {
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
      return false;
    default:
      return code satisfies never;
  }
}

/** The last failure, or that the conversation is too long: against that alone something can be done. */
function summary(failures: readonly Failed[]): ModelError {
  const { error } = failures.find((failed) => failed.error.code === 'context-length') ?? failures.at(-1)!;
  if (failures.length === 1) return error;
  const told = failures.map(({ name, error: { code, message } }) => `${name}: ${message} (${code})`);
  return { ...error, message: `All models failed. ${told.join(' ')}` };
}
