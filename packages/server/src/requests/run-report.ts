import type { CallAnswered, Event, Item } from '@treadle/core';
import { executionLine } from '@treadle/core/policy';
import type { Engine } from '../engine/engine.ts';
import { OWN_LABEL } from '../engine/executors.ts';
import type { RunEnd, RunPlan } from './run.ts';
import { principalOf, rulesIn } from '../engine/tools.ts';

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
  { id: runId, request, toolset, caller, modelName }: RunPlan,
  { log, metrics, models }: Pick<Engine, 'log' | 'metrics' | 'models'>,
  { isResumed }: { readonly isResumed: boolean },
): RunReport {
  const startedAt = performance.now();
  const model = modelName ?? request.model ?? models.default;
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
      const found = toolset.tools.find((tool) => tool.name === call.name);
      // A name that the model has invented is content, so it is not logged.
      const name = found && (tools.size < MAX_NAMES || tools.has(call.name)) ? call.name : OTHER;
      tools.set(name, (tools.get(name) ?? 0) + 1);
      if (result.isError) toolErrors += 1;
      // Clients choose the names of their functions, so these are no labels.
      const label = found?.execute ? call.name : found ? CLIENT : OTHER;
      metrics?.toolCalled(label, result.isError === true);
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

/** For the items of a run: writes a line to the log for each call. */
export function callLog(
  log: Engine['log'],
  { id: runId, caller, policy, toolset }: Pick<RunPlan, 'id' | 'caller' | 'policy'> & Partial<Pick<RunPlan, 'toolset'>>,
): (item: Item) => void {
  const rules = policy && rulesIn(policy);
  const autonomy = rules && (rules.autonomy ?? 1);
  const principal = principalOf(caller);
  /** By the position in the reply. */
  const started = new Map<number, number>();
  return (item) => {
    if (item.type === 'call-started') started.set(item.index, Date.now());
    if (item.type !== 'call-answered') return;
    const startedAt = started.get(item.index);
    started.delete(item.index);
    if (!log.isLevelEnabled('info')) return;
    const label = toolset?.kinds.labelOf(item.call.name);
    const server = label === OWN_LABEL ? undefined : label;
    log.info(
      executionLine(item, { runId, at: Date.now(), startedAt, server, principal, autonomy }),
      'a tool was called',
    );
  };
}
