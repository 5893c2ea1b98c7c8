import type { CallAnswered, Event, Policy } from '@treadle/core';
import { executionLine } from '@treadle/core/policy';
import type { Engine } from '../engine/engine.ts';
import type { RunEnd, RunPlan } from './run.ts';
import { principalOf, rulesIn, type RunCaller } from '../engine/tools.ts';

/** What a run has used and done while this process drove it: for one line in the log, and for the metrics. */
interface RunReport {
  /** For each event of the run, not for those before it was resumed. */
  noteEvent(event: Event): void;
  noteCall(call: CallAnswered): void;
  /** Call it once. */
  end(end: RunEnd): void;
  /** The run could not be driven to an end. */
  fail(): void;
}

/** Further names are counted together. */
const MAX_NAMES = 20;
const OTHER = 'other';
const CLIENT = 'client';

/** `isResumed`: the run has started before. The line then has only what was added. */
export function runReport(
  { id: runId, request, toolset, caller }: RunPlan,
  { log, metrics, models }: Pick<Engine, 'log' | 'metrics' | 'models'>,
  { isResumed }: { readonly isResumed: boolean },
): RunReport {
  const startedAt = performance.now();
  const model = request.model ?? models.default;
  const usage = { inputTokens: 0, outputTokens: 0, cachedTokens: 0, cost: 0 };
  /** Made with the first call. */
  let tools: Map<string, number> | undefined;
  let turns = 0;
  let toolErrors = 0;
  let hasCost = false;
  let fallback: string | undefined;

  function logEnd(outcome: string, reason?: string): void {
    const ms = performance.now() - startedAt;
    metrics?.runEnded(outcome, ms);
    if (!log.isLevelEnabled('info')) return;
    const { requestId, tenant, key } = caller;
    const { inputTokens, outputTokens, cachedTokens, cost } = usage;
    // What is undefined is not in the line.
    const line = {
      requestId,
      runId,
      tenant,
      key,
      outcome,
      reason,
      model,
      fallback,
      turns,
      inputTokens,
      outputTokens,
      cachedTokens: cachedTokens || undefined,
      cost: hasCost ? Number(cost.toFixed(9)) : null,
      tools: tools ? Object.fromEntries(tools) : {},
      toolErrors,
      ms: Math.round(ms),
      resumed: isResumed || undefined,
    };
    log.info(line, 'run');
  }

  return {
    noteEvent(event) {
      if (event.type === 'model-failed') metrics?.modelFailed(model, event.error.code);
      if (event.type !== 'model-replied') return;
      const replied = event.attempts?.at(-1)?.fallback;
      fallback = replied ?? fallback;
      turns += 1;
      usage.inputTokens += event.usage.inputTokens;
      usage.outputTokens += event.usage.outputTokens;
      usage.cachedTokens += event.usage.cachedTokens ?? 0;
      usage.cost += event.usage.cost ?? 0;
      hasCost ||= event.usage.cost !== undefined;
      metrics?.modelReplied(model, event.usage, replied !== undefined);
    },
    noteCall({ call, result }) {
      tools ??= new Map();
      // A name that the model has invented is content, so it is not logged.
      const isKnown = toolset.tools.some((tool) => tool.name === call.name);
      const name = isKnown && (tools.size < MAX_NAMES || tools.has(call.name)) ? call.name : OTHER;
      tools.set(name, (tools.get(name) ?? 0) + 1);
      if (result.isError) toolErrors += 1;
      metrics?.toolCalled(metricName(call.name, toolset), result.isError === true);
    },
    end({ ending, isAsleep, rejectedAnswer }) {
      // The run is as it was.
      if (rejectedAnswer) return;
      if (!ending) return logEnd(isAsleep ? 'waiting' : 'interrupted');
      switch (ending.type) {
        case 'pending':
          return logEnd('waiting');
        case 'incomplete':
          return logEnd('incomplete', ending.reason);
        case 'failed':
          return logEnd('failed', ending.error.code);
        case 'completed':
        case 'cancelled':
          return logEnd(ending.type);
        default:
          return ending satisfies never;
      }
    },
    fail: () => logEnd('interrupted'),
  };
}

/** Clients choose the names of their functions, so these are no labels. */
function metricName(name: string, { tools }: RunPlan['toolset']): string {
  const found = tools.find((tool) => tool.name === name);
  return found?.execute ? name : found ? CLIENT : OTHER;
}

/** Writes a line to the log for each call of a run. */
export function callLogger(
  { log, policy }: { readonly log: Engine['log']; readonly policy: Policy | undefined },
  runId: string,
  caller: RunCaller,
): (answered: CallAnswered) => void {
  const level = policy && rulesIn(policy) && (rulesIn(policy)!.autonomy ?? 1);
  return (answered) => {
    if (!log.isLevelEnabled('info')) return;
    const about = { runId, at: Date.now(), principal: principalOf(caller), autonomy: level };
    log.info(executionLine(answered, about), 'a tool was called');
  };
}
