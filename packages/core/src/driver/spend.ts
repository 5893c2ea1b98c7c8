import { messageOf, TreadleError } from '../errors.ts';
import type { Amounts, BudgetLevel, Reserved, Spending } from '../ledger/port.ts';
import { slotFor, toolEffectId, type Effect } from '../machine/effects.ts';
import type { Event } from '../machine/events.ts';
import type { Question } from '../machine/questions.ts';
import { tokensOf, type Attempt, type Model, type ModelError, type Usage } from '../model.ts';
import type { Touch } from '../policy/port.ts';
import type { Checked } from '../tools/execute.ts';
import { executorOf, ignore, modelFor, requestTokens } from './call-model.ts';
import { declaredTouches } from './judge.ts';
import { checkedCall, type EffectOf, type RunContext, type Settle } from './perform.ts';

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
      return perform(context, effect, settleSpending(context, effect, settle));
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
  const tool = effect.type === 'call-tool' ? executorOf(context, effect.call.name, effect.call.turn) : undefined;
  if (effect.type !== 'call-tool' || !tool?.touches) return reserveTouching(context, effect, settle, perform);
  const go = ({ check, input }: Checked): void => {
    const touches = check.problem === undefined ? declaredTouches(tool.touches!, input) : undefined;
    reserveTouching(context, effect, settle, perform, touches);
  };
  const checked = checkedCall(context, effect.call);
  if (checked instanceof Promise) void checked.then(go).catch(context.fail);
  else go(checked);
}

/** `touches`: what the call would touch, if its tool declares it. */
function reserveTouching(
  context: RunContext,
  effect: SpendingEffect,
  settle: Settle,
  perform: (context: RunContext, effect: Effect, settle: Settle) => void,
  touches?: readonly Touch[],
): void {
  const { runId, options, opening, clock, controller } = context;
  const key = `${runId}/${effect.id}`;
  const { amounts, name } = mostUsedBy(context, effect, touches);
  const about: Spending = {
    runId,
    effect: effect.type,
    name,
    ...(touches && { touches }),
    ...(raisedFor(context, effect) === runId && { approved: true }),
    ...(opening.principal && { principal: opening.principal }),
    context: options.context,
  };
  const onReserved = (reserved: Reserved): void => {
    // The ledger may have taken long.
    if (opening.rules.limits.durationMs !== undefined) settle({ type: 'deadline-passed', at: clock.now() });
    if (controller.signal.aborted) return releaseUnstarted(context, effect, reserved);
    switch (reserved?.type) {
      case 'reserved':
      case 'warned':
        if (reserved.type === 'warned') warnOnce(context, effect.id, reserved.warnings);
        return perform(context, effect, settleSpending(context, effect, settle));
      case 'refused':
        return settle(refusedBy(effect, reserved.reason, clock.now()));
      case 'escalated': {
        const again = effect.type === 'call-tool' && opening.repeated.has(effect.id) ? INTERRUPTED : '';
        const reason = `${String(reserved.reason)}${again}`;
        if (about.approved || !canAskAbout(context, effect)) return settle(refusedBy(effect, reason, clock.now()));
        const ttl = reserved.ttlMs !== undefined && { ttlMs: reserved.ttlMs };
        const asked = effect.type === 'call-tool' ? touches && { touches } : { question: raisingQuestion(reason) };
        return settle({ type: 'budget-escalated', at: clock.now(), effect: effect.id, reason, ...asked, ...ttl });
      }
      default:
        throw new Error(`reserve returned ${messageOf(reserved)}`);
    }
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

/** What people are told about a call that was issued before a crash: it may have been reserved, and settled. */
const INTERRUPTED = ' An attempt before may have taken effect.';

function refusedBy({ id }: Effect, reason: unknown, at: number): Event {
  return { type: 'budget-refused', at, effect: id, reason: String(reason) };
}

/* What people decide */

/** The run for which people have allowed the effect to exceed its budgets. */
function raisedFor({ state }: RunContext, effect: SpendingEffect): string | undefined {
  if (effect.type === 'call-tool') return effect.call.raised;
  const { phase } = state();
  return phase.type === 'model' || phase.type === 'compacting' ? phase.raised : undefined;
}

/** Whether somebody can answer, and the call has no child run, no questions and was not parked: those would be lost. */
function canAskAbout({ options, state }: RunContext, effect: SpendingEffect): boolean {
  if (options.canAnswer === false) return false;
  if (effect.type !== 'call-tool') return true;
  const slot = slotFor(state(), effect.id);
  return slot?.type === 'running' && !slot.begun && !slot.parked && !slot.asked;
}

function raisingQuestion(reason: string): Question {
  return { prompt: `${reason} May the run exceed it this time?`, choices: ['Exceed it', 'End the run'] };
}

/** The budgets and kinds that the listener of a run was warned of. */
const warned = new WeakMap<RunContext, Set<string>>();

function warnOnce(context: RunContext, effect: string, warnings: readonly BudgetLevel[]): void {
  const { emit } = context;
  if (!emit) return;
  const told = warned.get(context) ?? new Set();
  warned.set(context, told);
  for (const { budget, kind, used, limit } of warnings) {
    const about = `${kind} ${budget}`;
    if (told.has(about)) continue;
    told.add(about);
    emit({ type: 'budget-warning', effect, budget, kind, used, limit });
  }
}

/** The run was stopped before the effect started. An effect that was issued before may have started then. */
function releaseUnstarted({ options, opening, runId }: RunContext, { id }: Effect, reserved: Reserved): void {
  if ((reserved?.type !== 'reserved' && reserved?.type !== 'warned') || opening.repeated.has(id)) return;
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

function mostUsedBy(context: RunContext, effect: SpendingEffect, touches: readonly Touch[] = []): MostUsed {
  const { options, state } = context;
  if (effect.type === 'call-tool') {
    const { name } = effect.call;
    return { name, amounts: { calls: 1, ...amountsTouched(touches), ...context.tools.get(name)?.spends } };
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

/** Files that are written, the lines as far as they are declared, and requests. A file counts once, and so does a URL. */
function amountsTouched(touches: readonly Touch[]): Amounts {
  const files = new Set<string>();
  const urls = new Set<string>();
  let lines = 0;
  for (const touch of touches) {
    if (touch.type === 'url') urls.add(touch.url);
    if (touch.type !== 'write') continue;
    files.add(touch.path);
    const declared: unknown = (touch as { readonly lines?: unknown }).lines;
    if (typeof declared === 'number' && declared > 0 && Number.isFinite(declared)) lines += declared;
  }
  return {
    ...(files.size > 0 && { files: files.size }),
    ...(lines > 0 && { lines }),
    ...(urls.size > 0 && { requests: urls.size }),
  };
}

/** Without `maxOutputTokens`, the output is not limited, and nothing is reserved for it. */
function mostUsedByModel({ opening }: RunContext, model: Model, inputTokens: number): MostUsed {
  const outputTokens = opening.settings.maxOutputTokens ?? 0;
  const cost = model.maxCost?.(inputTokens, outputTokens) ?? Infinity;
  return { name: model.id, amounts: { tokens: inputTokens + outputTokens, cost } };
}

/* What an effect has used */

/**
 * Settles the reservation with what the event contains and the time since now, then passes the event on. An effect that was
 * aborted because the run was detached is performed again, so its reservation stays.
 */
function settleSpending(context: RunContext, effect: Effect, settle: Settle): Settle {
  const { options, opening, controller, state, runId, clock } = context;
  const ledger = options.ledger!;
  const key = `${runId}/${effect.type === 'verify-tool' ? toolEffectId(effect.call) : effect.id}`;
  // The clock can be set meanwhile.
  const time = (): number => clock.monotonic?.() ?? clock.now();
  const startedAt = time();
  /** A child run counts the time of its own effects. */
  const isTimed = effect.type !== 'verify-tool' && !(effect.type === 'call-tool' && effect.call.limits);
  const used = (amounts: Amounts): Amounts =>
    isTimed ? { ...amounts, durationMs: Math.max(0, Math.round(time() - startedAt)) } : amounts;
  const hasEnded = (): boolean => state().phase.type === 'ended';
  const settleFailure = (error: ModelError, attempts?: readonly Attempt[]): void | Promise<void> => {
    if (isUnused(error, attempts)) return ledger.release(key);
    return hasEnded() ? ledger.settle(key, used(AS_RESERVED)) : undefined;
  };
  const recordUse = (event: Event): void | Promise<void> => {
    switch (event.type) {
      case 'model-replied':
        return ledger.settle(key, used(amountsOf(event.usage)));
      case 'model-failed':
        return settleFailure(event.error, event.attempts);
      case 'history-compacted':
        if (event.result.type === 'summary') return ledger.settle(key, used(amountsOf(event.result.usage)));
        return settleFailure(event.result.error);
      case 'tool-settled':
        return event.result.type === 'result' ? ledger.settle(key, used(AS_RESERVED)) : undefined;
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
