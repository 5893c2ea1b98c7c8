import type { CallAnswered } from '../journal/items.ts';
import type { Event } from '../machine/events.ts';
import type { Outcome, State } from '../machine/state.ts';
import { toolChoiceOf } from '../machine/effects.ts';
import type { ErrorType, ToolCall } from '../messages.ts';
import type { Attempt } from '../model.ts';
import {
  DENIED_BY_PERSON,
  INVALID_OUTPUT,
  LIMIT_FAILURES,
  LOST_FAILURE,
  MODEL_FAILURES,
  OVER_LIMIT,
  RULED_OUT,
  RUN_FAILURES,
  TOOL_FAILURES,
  UNKNOWN_FAILURE,
  type FailureKind,
  type Recovery,
  type TraceFailure,
} from './failures.ts';
import { callKey } from './spans.ts';
import { lossReader, type AppliedEntry } from './steps.ts';

type Found = { -readonly [Field in keyof TraceFailure]: TraceFailure[Field] };

/** What failed in a run, and what it recovered from. It grows with the journal. */
export interface FailureReader {
  readonly failures: readonly TraceFailure[];
  /** Adds the entry that follows. */
  add(entry: AppliedEntry): void;
}

export function failureReader(): FailureReader {
  const failures: Found[] = [];
  /** Failures that the run may still recover from, by what recovers them: an effect, `tool NAME` or `output`. */
  const open = new Map<string, Found[]>();
  const lossOf = lossReader();
  let last: AppliedEntry['entry'];

  function add(kind: FailureKind, type: string, more: Partial<Found>, recoverable?: string): Found {
    const failure: Found = { seq: last.seq, at: last.event.at, ...more, ...kind, type, severity: 'medium' };
    failures.push(failure);
    if (recoverable !== undefined) open.set(recoverable, [...(open.get(recoverable) ?? []), failure]);
    return failure;
  }

  function recover(key: string, by: Recovery['by']): void {
    for (const failure of open.get(key) ?? []) {
      failure.recovery = { by, seq: last.seq };
      failure.severity = 'low';
    }
    open.delete(key);
  }

  /** The attempts of one model call before the last one. */
  function addAttempts(effect: string, attempts: readonly Attempt[], isAnswered: boolean): void {
    const final = attempts.at(-1);
    for (const attempt of attempts.slice(0, -1)) {
      if (!attempt.error) continue;
      const { code, retryable } = attempt.error;
      const kind: FailureKind = { category: 'model', code: MODEL_FAILURES[code] ?? 'F-UNK', retryable };
      const failure = add(kind, code, { effect }, isAnswered ? undefined : effect);
      if (!isAnswered) continue;
      const by = attempt.model === final?.model && attempt.fallback === final.fallback ? 'retry' : 'fallback';
      failure.recovery = { by, seq: last.seq };
      failure.severity = 'low';
    }
  }

  function addCall({ index, call, result }: CallAnswered, { before, state }: AppliedEntry): void {
    const { event } = last;
    const effect = `t${before.turn}.tool.${index}`;
    const isVerified = 'effect' in event && event.effect?.includes('.verify.') === true;
    if (!result.isError) {
      recover(effect, isVerified ? 'verified' : 'resume');
      recover(`tool ${call.name}`, 'success');
      return;
    }
    const type = result.errorType ?? 'execution_failed';
    const end = type === 'interrupted' && state.phase.type === 'ended' ? state.phase.outcome : undefined;
    // Nothing failed: somebody has stopped it.
    if (end?.type === 'cancelled') return;
    const kind = end?.type === 'exhausted' ? LIMIT_FAILURES[end.limit] : kindOfCall(type, call, { event, before });
    const failure = add(kind, type, { effect, tool: call.name }, `tool ${call.name}`);
    // A call that runs once was lost, and its tool could not tell what came of it.
    if (type === 'interrupted' && open.has(effect)) failure.severity = 'critical';
  }

  function addEvent(event: Event, { before }: AppliedEntry): void {
    switch (event.type) {
      case 'model-replied':
        addAttempts(event.effect, event.attempts ?? [], true);
        recover(event.effect, 'resume');
        break;
      case 'model-failed': {
        const { effect, error, attempts = [] } = event;
        addAttempts(effect, attempts, false);
        const code = MODEL_FAILURES[error.code] ?? 'F-UNK';
        add({ category: 'model', code, retryable: error.retryable }, error.code, { effect }, effect);
        break;
      }
      case 'history-compacted': {
        const refused = before.phase.type === 'compacting' ? before.phase.refused?.effect : undefined;
        if (event.result.type === 'summary' && refused !== undefined) recover(refused, 'compaction');
        break;
      }
      case 'output-checked':
        if (event.result.type === 'valid') recover('output', 'success');
        else add(INVALID_OUTPUT, event.result.validator ?? 'schema', { effect: event.effect }, 'output');
        break;
      default:
    }
  }

  function endRun(outcome: Outcome): void {
    if (outcome.type === 'completed' || outcome.type === 'cancelled') return;
    const blamed = failures.findLast(({ seq, effect }) => seq === last.seq && effect !== undefined);
    if (outcome.type === 'failed' && blamed?.type === outcome.error.code) {
      // It is in the list already.
      blamed.severity = 'high';
      return;
    }
    const { type, kind } =
      outcome.type === 'exhausted'
        ? { type: outcome.limit, kind: LIMIT_FAILURES[outcome.limit] }
        : { type: outcome.error.code, kind: RUN_FAILURES[outcome.error.code] ?? UNKNOWN_FAILURE };
    add(kind, type, {}).severity = 'high';
  }

  return {
    failures,
    add(step) {
      const { entry, before, state, items } = step;
      last = entry;
      const { event } = entry;
      const loss = lossOf(entry, before);
      if (event.type === 'effect-lost' && loss === 'stopped') {
        add(LOST_FAILURE, 'lost', { effect: event.effect }, recoverableOf(event.effect));
      }
      // A run that its model failed is resumed.
      const isReopened = before.phase.type === 'ended' && state.phase.type !== 'ended';
      if (isReopened) for (const failure of failures) if (failure.severity === 'high') failure.severity = 'medium';
      addEvent(event, step);
      for (const item of items) if (item.type === 'call-answered') addCall(item, step);
      if (state.phase.type === 'ended' && before.phase.type !== 'ended') endRun(state.phase.outcome);
    },
  };
}

function kindOfCall(
  type: ErrorType,
  { name }: ToolCall,
  { event, before }: { readonly event: Event; readonly before: State },
): FailureKind {
  if (event.type === 'approval-given') return DENIED_BY_PERSON;
  if (type === 'denied' && event.type === 'deadline-passed') return DENIED_BY_PERSON;
  // Policies decide later.
  if (type !== 'denied' || event.type !== 'model-replied') return TOOL_FAILURES[type];
  const choice = before.closing === undefined && before.spent === 0 ? toolChoiceOf(before) : undefined;
  const isOther = choice === 'none' || (typeof choice === 'object' && choice.tool !== name);
  return isOther || name === before.rules.agent?.submit ? RULED_OUT : OVER_LIMIT;
}

/** `t3.verify.1` finds out about the call `t3.tool.1`. */
function recoverableOf(effect: string): string {
  return callKey(effect) === undefined ? effect : effect.replace('.verify.', '.tool.');
}
