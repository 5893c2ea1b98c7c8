import type { Usage } from '@treadle/core';
import type { Trace, TraceAction, TraceFailure, TraceStep, TraceWork } from '@treadle/core/trace';
import type {
  WireTrace,
  WireTraceAction,
  WireTraceFailure,
  WireTraceStep,
  WireTraceSummary,
  WireTraceWork,
} from './wire.ts';

/* What `/v1/traces` sends of the traces of runs. */

export function wireTraceSummary(trace: Trace): WireTraceSummary {
  return {
    object: 'trace',
    trace_id: trace.traceId,
    run_id: trace.runId,
    parent_run_id: trace.parent?.runId ?? null,
    task_id: trace.task ?? null,
    session_id: trace.session ?? null,
    tenant: trace.tenant ?? null,
    agent: trace.agent ?? null,
    model: trace.model,
    status: trace.status,
    started_at: trace.startedAt,
    ended_at: trace.endedAt ?? null,
    duration_ms: trace.durationMs,
    turns: trace.turns,
    calls: trace.calls,
    usage: wireUsage(trace.usage),
    failures: trace.failures.map(wireFailure),
  };
}

/** `children`: the traces of its child runs, at every depth. `forks`: the ids of its forks. */
export function wireTrace(trace: Trace, children: readonly Trace[], forks: readonly string[]): WireTrace {
  return {
    ...wireTraceSummary(trace),
    steps: trace.steps.map(wireStep),
    children: children.map((child) => ({ ...wireTraceSummary(child), steps: child.steps.map(wireStep) })),
    forks,
  };
}

function wireStep({ turn, startedAt, endedAt, work, actions }: TraceStep): WireTraceStep {
  return {
    turn,
    started_at: startedAt,
    ended_at: endedAt ?? null,
    work: work.map(wireWork),
    actions: actions.map(wireAction),
  };
}

function wireWork({ effect, kind, name, startedAt, endedAt, problem, reply, attempts }: TraceWork): WireTraceWork {
  return {
    effect,
    type: kind,
    name,
    started_at: startedAt,
    ended_at: endedAt ?? null,
    problem: problem ?? null,
    ...(reply && { model: reply.model, finish_reason: reply.finish, usage: wireUsage(reply.usage) }),
    ...(attempts && {
      attempts: attempts.map(({ model, ms, error }) => ({ model, duration_ms: ms, error_code: error?.code ?? null })),
    }),
  };
}

function wireAction(action: TraceAction): WireTraceAction {
  return {
    id: action.id,
    call_id: action.callId,
    tool: action.tool,
    status: action.status,
    started_at: action.startedAt ?? null,
    ended_at: action.endedAt ?? null,
    ran_ms: action.ranMs,
    waited_ms: action.waitedMs,
    attempts: action.attempts ?? (action.startedAt === undefined ? 0 : 1),
    error_type: action.errorType ?? null,
    rule: action.rule ?? null,
    child_run_id: action.child ?? null,
  };
}

function wireFailure({ recovery, effect, tool, ...failure }: TraceFailure): WireTraceFailure {
  return {
    seq: failure.seq,
    at: failure.at,
    effect: effect ?? null,
    tool: tool ?? null,
    category: failure.category,
    code: failure.code,
    type: failure.type,
    severity: failure.severity,
    retryable: failure.retryable,
    recovered_by: recovery?.by ?? null,
  };
}

function wireUsage(usage: Usage): WireTraceSummary['usage'] {
  return {
    input_tokens: usage.inputTokens,
    output_tokens: usage.outputTokens,
    cached_tokens: usage.cachedTokens ?? 0,
    reasoning_tokens: usage.reasoningTokens ?? 0,
    cost: usage.cost ?? null,
  };
}
