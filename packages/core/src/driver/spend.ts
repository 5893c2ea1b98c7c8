import { messageOf, TreadleError } from '../errors.ts';
import type { Amounts, Reserved, Spending } from '../ledger/port.ts';
import { toolEffectId, type Effect } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import { tokensOf, type Attempt, type Model, type ModelError, type Usage } from '../model.ts';
import { ignore, modelFor, requestTokens } from './call-model.ts';
import type { EffectOf, RunContext, Settle } from './perform.ts';

type SpendingEffect = EffectOf<'call-model' | 'compact-history' | 'call-tool'>;

/**
 * Performs an effect of a run that has a ledger. A model call, a summary and a tool call start when what they may use is
 * reserved. What they used is settled before the event that contains it is recorded: if the process dies in between, the
 * effect is performed again and reserves again. This is loaded when the first run with a ledger starts.
 */
export function performWithinBudget(
  context: RunContext,
  effect: Effect,
  settle: Settle,
  perform: (context: RunContext, effect: Effect, settle: Settle) => void,
): void {
  switch (effect.type) {
    case 'call-model': {
      const model = modelFor(context, effect.model);
      // A model that is not available in this process is not called.
      if (!model || model.usesTokens === false) return perform(context, effect, settle);
      return reserveAndPerform(context, effect, settle, perform);
    }
    case 'compact-history':
    case 'call-tool':
      return reserveAndPerform(context, effect, settle, perform);
    case 'verify-tool':
      // Uses nothing itself, but may find the result of the call.
      return perform(context, effect, settleSpending(context, `${context.runId}/${toolEffectId(effect.call)}`, settle));
    default:
      return perform(context, effect, settle);
  }
}

function reserveAndPerform(
  context: RunContext,
  effect: SpendingEffect,
  settle: Settle,
  perform: (context: RunContext, effect: Effect, settle: Settle) => void,
): void {
  const { runId, options, opening, clock, controller } = context;
  const key = `${runId}/${effect.id}`;
  const { amounts, name } = mostUsedBy(context, effect);
  const about: Spending = {
    runId,
    effect: effect.type,
    name,
    ...(opening.principal && { principal: opening.principal }),
    context: options.context,
  };
  const onReserved = (reserved: Reserved): void => {
    // The ledger may have taken long.
    if (opening.rules.limits.durationMs !== undefined) settle({ type: 'deadline-passed', at: clock.now() });
    if (controller.signal.aborted) return releaseUnstarted(context, effect, reserved);
    if (reserved?.type === 'reserved') return perform(context, effect, settleSpending(context, key, settle));
    if (reserved?.type !== 'refused') throw new Error(`reserve returned ${messageOf(reserved)}`);
    settle({ type: 'budget-refused', at: clock.now(), effect: effect.id, reason: String(reserved.reason) });
  };
  try {
    const reserved = options.ledger!.reserve(key, amounts, about);
    if (!(reserved instanceof Promise)) return onReserved(reserved);
    void reserved
      .then(async (durable) => {
        await context.lease?.confirm?.();
        onReserved(durable);
      })
      .catch((thrown: unknown) => context.fail(ledgerError(runId, thrown)));
  } catch (thrown) {
    context.fail(ledgerError(runId, thrown));
  }
}

/** The run was stopped before the effect started. An effect that was issued before may have started then. */
function releaseUnstarted({ options, opening, runId }: RunContext, { id }: Effect, reserved: Reserved): void {
  if (reserved?.type !== 'reserved' || opening.repeated.has(id)) return;
  // If the ledger fails, the reservation stays.
  void (async () => options.ledger!.release(`${runId}/${id}`))().catch(ignore);
}

function ledgerError(runId: string, thrown: unknown): TreadleError {
  if (thrown instanceof TreadleError) return thrown;
  const message = `The ledger failed, so run "${runId}" stopped. It can be resumed: ${messageOf(thrown)}`;
  return new TreadleError('ledger-failed', message, { cause: thrown });
}

/* What an effect may use */

interface MostUsed {
  readonly amounts: Amounts;
  readonly name: string;
}

function mostUsedBy(context: RunContext, effect: SpendingEffect): MostUsed {
  const { options, state } = context;
  if (effect.type === 'call-tool') {
    const { name } = effect.call;
    return { name, amounts: { calls: 1, ...context.tools.get(name)?.spends } };
  }
  if (effect.type === 'call-model') {
    const model = modelFor(context, effect.model)!;
    const { history, instructions, tools } = effect;
    const estimated = requestTokens(history.items, history.length, instructions, tools);
    return mostUsedByModel(context, model, Math.max(estimated, state().contextTokens));
  }
  const { instructions, tools } = state();
  const { history, to } = effect;
  const model = options.summariser ?? modelFor(context, undefined)!;
  return mostUsedByModel(context, model, requestTokens(history.items, to, instructions, tools));
}

/** Without `maxOutputTokens`, the output is not limited, and nothing is reserved for it. */
function mostUsedByModel({ opening }: RunContext, model: Model, inputTokens: number): MostUsed {
  const outputTokens = opening.settings.maxOutputTokens ?? 0;
  const cost = model.maxCost?.(inputTokens, outputTokens) ?? Infinity;
  return { name: model.id, amounts: { tokens: inputTokens + outputTokens, cost } };
}

/* What an effect has used */

/**
 * Settles the reservation with what the event contains, then passes the event on. An effect that was aborted because the
 * run was detached is performed again, so its reservation stays.
 */
function settleSpending({ options, opening, controller, state }: RunContext, key: string, settle: Settle): Settle {
  const ledger = options.ledger!;
  const hasEnded = (): boolean => state().phase.type === 'ended';
  const settleFailure = (error: ModelError, attempts?: readonly Attempt[]): void | Promise<void> => {
    if (isUnused(error, attempts)) return ledger.release(key);
    return hasEnded() ? ledger.settle(key, AS_RESERVED) : undefined;
  };
  const recordUse = (event: Event): void | Promise<void> => {
    switch (event.type) {
      case 'model-replied':
        return ledger.settle(key, amountsOf(event.usage));
      case 'model-failed':
        return settleFailure(event.error, event.attempts);
      case 'history-compacted':
        if (event.result.type === 'summary') return ledger.settle(key, amountsOf(event.result.usage));
        return settleFailure(event.result.error);
      case 'tool-settled':
        return event.result.type === 'result' ? ledger.settle(key, AS_RESERVED) : undefined;
      case 'call-rejudged':
        return opening.repeated.has(event.effect) ? undefined : ledger.release(key);
      default:
        return undefined;
    }
  };
  return (event) => {
    try {
      const recorded = controller.signal.aborted && !hasEnded() ? undefined : recordUse(event);
      if (recorded instanceof Promise) {
        // If the ledger fails, the reservation stays, and is charged in full.
        return void recorded.then(
          () => settle(event),
          () => settle(event),
        );
      }
    } catch {}
    settle(event);
  };
}

const AS_RESERVED: Amounts = {};

/** A model that reports no tokens has used some. */
function amountsOf(usage: Usage): Amounts {
  const tokens = tokensOf(usage);
  return { ...(tokens > 0 && { tokens }), ...(usage.cost !== undefined && { cost: usage.cost }) };
}

/** Whether every attempt was rejected before the model generated anything. */
function isUnused(error: ModelError, attempts: readonly Attempt[] = []): boolean {
  return isRejection(error) && attempts.every((attempt) => attempt.error && isRejection(attempt.error));
}

/** Some providers reject a reply as invalid after it was generated, so `invalid-request` is not certain. */
function isRejection({ code, status }: ModelError): boolean {
  return code === 'auth' || code === 'rate-limit' || code === 'context-length' || status === 404;
}
