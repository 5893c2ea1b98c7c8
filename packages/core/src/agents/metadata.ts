import { defined } from './defined.ts';
import type { LoopResult } from '../driver/options.ts';
import type { AgentState } from '../machine/state.ts';
import type { Message } from '../messages.ts';
import type { CallbackError, ExecuteMetadata, ToolCount } from './result.ts';
import { submitName, type AnyAgent } from './tools.ts';

/** What an execution came to beside its output. */
export function metadataOf(
  agent: AnyAgent,
  { runId, turns, usage, durationMs, messages, agent: progress }: LoopResult,
  callbackErrors: readonly CallbackError[],
): ExecuteMetadata {
  const { trackTokens = true, trackLatency = true } = agent.observability ?? {};
  const { inputTokens: input, outputTokens: output, cost } = usage;
  const parts = { cacheRead: usage.cachedTokens, cacheWrite: usage.cacheWriteTokens, reasoning: usage.reasoningTokens };
  return {
    runId,
    attempts: attemptsBegun(turns, progress),
    iterations: turns,
    ...(trackTokens && { tokens: { input, output, ...defined(parts) }, ...defined({ cost }) }),
    ...(trackLatency && { latencyMs: durationMs }),
    tools: toolCounts(messages, submitName(agent) ?? agent.tools.output.name),
    callbackErrors,
  };
}

/** The one that was to begin when a limit was met has not begun. */
function attemptsBegun(turns: number, progress: AgentState | undefined): number {
  if (!progress) return 0;
  return turns === progress.from ? progress.attempt - 1 : progress.attempt;
}

/**
 * How often each tool was called, from the conversation, which also a run that was resumed has whole. That the output was
 * rejected is no error of the tool by which it was given.
 */
function toolCounts(messages: readonly Message[], ending: string): Record<string, ToolCount> {
  const counts = new Map<string, ToolCount>();
  for (const { role, content } of messages) {
    if (role !== 'tool') continue;
    for (const { name, isError } of content) {
      const { calls, errors } = counts.get(name) ?? { calls: 0, errors: 0 };
      counts.set(name, { calls: calls + 1, errors: errors + (isError && name !== ending ? 1 : 0) });
    }
  }
  return Object.fromEntries(counts);
}
