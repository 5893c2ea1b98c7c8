import { traceIdOf } from '../journal/family.ts';
import type { RunStatus, JournalEntry } from '../journal/port.ts';
import { statusOf, walkInSlices } from '../journal/replay.ts';
import type { Parent } from '../machine/rules.ts';
import type { State } from '../machine/state.ts';
import { NEW } from '../machine/step.ts';
import type { ErrorType } from '../messages.ts';
import type { Attempt, Finish, Usage } from '../model.ts';
import { failureReader } from './failure-reader.ts';
import type { TraceFailure } from './failures.ts';
import { callKey, spanReader, type Span, type SpanReader } from './spans.ts';
import { agentIn, type AppliedEntry } from './steps.ts';

/**
 * A run as operators see it: which turns there were, which calls, how long each took, and what failed. It is a pure function of the
 * entries: the same while the run is driven, and later from the store. It contains no texts of the conversation.
 */
export interface Trace {
  /** As in a `traceparent`: of the trace that the run continues, or derived from the id of the first run. */
  readonly traceId: string;
  readonly runId: string;
  /** The run whose call started it (`effect`), or that it is a fork of (`seq`). */
  readonly parent?: Parent;
  readonly task?: string;
  readonly session?: string;
  readonly tenant?: string;
  readonly subject?: string;
  readonly agent?: string;
  readonly model: string;
  readonly status: RunStatus;
  readonly startedAt: number;
  /** Absent: it has not ended. */
  readonly endedAt?: number;
  /** Without pauses, and without the time in which nobody drove it. */
  readonly durationMs: number;
  readonly turns: number;
  readonly calls: number;
  readonly usage: Usage;
  readonly steps: readonly TraceStep[];
  readonly failures: readonly TraceFailure[];
}

/** A turn. */
export interface TraceStep {
  readonly turn: number;
  readonly startedAt: number;
  readonly endedAt?: number;
  /** The model calls, checks and summaries, in the order in which they began. */
  readonly work: readonly TraceWork[];
  readonly actions: readonly TraceAction[];
}

export interface TraceWork {
  readonly effect: string;
  /** `check`: policies, guardrails, validation and `prepareTurn`. */
  readonly kind: 'model' | 'check';
  /** The name of the model, or of the check. */
  readonly name: string;
  readonly startedAt: number;
  readonly endedAt?: number;
  readonly problem?: 'error' | 'denied' | 'lost';
  /** Of a model call that was answered. */
  readonly reply?: TraceReply;
  /** All attempts of a model call that had several. */
  readonly attempts?: readonly Attempt[];
}

export interface TraceReply {
  /** The model that the provider says it was. */
  readonly model: string;
  readonly finish: Finish;
  readonly usage: Usage;
}

export type TraceActionStatus = 'queued' | 'running' | 'waiting' | 'succeeded' | 'failed' | 'denied';

/** A call. */
export interface TraceAction {
  /** `t3.1`: the second call of the third turn. */
  readonly id: string;
  /** As the model names it. */
  readonly callId: string;
  readonly tool: string;
  readonly status: TraceActionStatus;
  /** When it first ran or waited. Absent: it never did. */
  readonly startedAt?: number;
  readonly endedAt?: number;
  /** How long it ran, without the times at which it was lost: how long these were is not known. */
  readonly ranMs: number;
  /** How long it waited for people, clients and devices. */
  readonly waitedMs: number;
  readonly errorType?: ErrorType;
  /** The rule of the policy that decided about it. */
  readonly rule?: string;
  /** The id of the child run that it started. */
  readonly child?: string;
  /** How often it began, if more than once. */
  readonly attempts?: number;
}

export interface TraceReader {
  readonly spans: SpanReader;
  /** Adds the entry that follows. Returns the spans that it ended. */
  add(entry: AppliedEntry): readonly Span[];
  /** What is known so far. Undefined before the first entry. */
  trace(): Trace | undefined;
}

/** What a step is made of besides its spans. */
interface Turn {
  readonly replies: Map<string, TraceReply>;
  readonly calls: Map<
    string,
    Pick<TraceAction, 'callId' | 'tool' | 'errorType' | 'rule'> & { status?: TraceActionStatus; at: number }
  >;
}

export function traceReader(): TraceReader {
  const spans = spanReader();
  const failures = failureReader();
  const turns = new Map<number, Turn>();
  let first: AppliedEntry['entry']['event'] | undefined;
  let state: State = NEW;

  const turnFor = (turn: number): Turn => {
    const known = turns.get(turn);
    if (known) return known;
    const made: Turn = { replies: new Map(), calls: new Map() };
    turns.set(turn, made);
    return made;
  };

  function addCalls({ before, state: after, items }: AppliedEntry): void {
    const slots = ('slots' in after.phase && after.phase.slots) || [];
    for (const { call } of slots) {
      const { calls } = turnFor(call.turn);
      const id = `t${call.turn}.${call.index}`;
      if (!calls.has(id)) calls.set(id, { callId: call.id, tool: call.name, at: spans.at });
    }
    for (const item of items) {
      if (item.type !== 'call-answered') continue;
      const { call, index, result, rule } = item;
      const isDenied = result.errorType === 'denied' || result.errorType === 'permission_denied';
      turnFor(before.turn).calls.set(`t${before.turn}.${index}`, {
        callId: call.id,
        tool: call.name,
        status: result.isError ? (isDenied ? 'denied' : 'failed') : 'succeeded',
        ...(result.isError && { errorType: result.errorType ?? 'execution_failed' }),
        ...(rule !== undefined && { rule }),
        at: spans.at,
      });
    }
  }

  return {
    spans,
    add(step) {
      const { event } = step.entry;
      first ??= event;
      ({ state } = step);
      const { ended } = spans.add(step);
      failures.add(step);
      if (event.type === 'model-replied') {
        const { model, finish, usage } = event;
        turnFor(step.before.turn).replies.set(event.effect, { model, finish, usage });
      }
      addCalls(step);
      return ended;
    },
    trace() {
      if (first?.type !== 'run-started') return undefined;
      const { parent, task, session, principal, trace } = first;
      const agent = agentIn(first, state);
      const isEnded = state.phase.type === 'ended';
      return {
        traceId: traceIdOf({ runId: state.runId, parent, trace }),
        runId: state.runId,
        ...(parent && { parent }),
        ...(task !== undefined && { task }),
        ...(session !== undefined && { session }),
        ...(principal && { tenant: principal.tenant, subject: principal.subject }),
        ...(agent !== undefined && { agent }),
        model: state.model,
        status: statusOf(state),
        startedAt: first.at,
        ...(isEnded && { endedAt: spans.at }),
        durationMs: state.activeMs,
        turns: state.turn,
        calls: state.calls,
        usage: state.usage,
        steps: stepsOf(spans, turns, isEnded),
        failures: failures.failures,
      };
    },
  };
}

/** The trace of a stored run. Undefined if there are no entries, or if they do not replay. */
export async function traceOf(entries: readonly JournalEntry[]): Promise<Trace | undefined> {
  const reader = traceReader();
  const walked = await walkInSlices(entries, (step) => void reader.add(step));
  return walked.type === 'replayed' ? reader.trace() : undefined;
}

function stepsOf({ spans, at }: SpanReader, turns: ReadonlyMap<number, Turn>, isEnded: boolean): readonly TraceStep[] {
  const byTurn = Map.groupBy(spans, ({ turn }) => turn);
  const numbers = [...new Set([...byTurn.keys(), ...turns.keys()])].toSorted((a, b) => a - b);
  return numbers.map((turn, index) => {
    const own = byTurn.get(turn) ?? [];
    const { replies, calls } = turns.get(turn) ?? {
      replies: new Map<string, TraceReply>(),
      calls: new Map() as Turn['calls'],
    };
    const isOver = isEnded || index < numbers.length - 1;
    const starts = own.map(({ startedAt }) => startedAt);
    const ends = own.map(({ endedAt }) => endedAt ?? at);
    const answered = [...calls.values()].map((call) => call.at);
    return {
      turn,
      startedAt: Math.min(...starts, ...answered),
      ...(isOver && { endedAt: Math.max(...ends, ...answered) }),
      work: own.filter(({ kind }) => kind === 'model' || kind === 'check').map((span) => workOf(span, replies)),
      actions: [...calls].map(([id, call]) => actionOf(id, call, own, at)),
    };
  });
}

function workOf(span: Span, replies: ReadonlyMap<string, TraceReply>): TraceWork {
  const { effect, kind, label, startedAt, endedAt, problem, attempts } = span;
  const reply = problem === undefined && endedAt !== undefined ? replies.get(effect) : undefined;
  return {
    effect,
    kind: kind as TraceWork['kind'],
    name: label,
    startedAt,
    ...(endedAt !== undefined && { endedAt }),
    ...(problem && { problem }),
    ...(reply && { reply }),
    ...(attempts && { attempts }),
  };
}

type TurnCall = Turn['calls'] extends Map<string, infer Call> ? Call : never;

function actionOf(
  id: string,
  { at: answeredAt, status, ...call }: TurnCall,
  spans: readonly Span[],
  now: number,
): TraceAction {
  const own = spans.filter(({ effect, kind }) => (kind === 'tool' || kind === 'wait') && callKey(effect) === id);
  const open = own.find(({ end }) => end === undefined);
  const sum = (kind: Span['kind']): number =>
    own
      .filter((span) => span.kind === kind && span.problem !== 'lost')
      .reduce((ms, { startedAt, endedAt = now }) => ms + endedAt - startedAt, 0);
  const child = own.find((span) => span.child !== undefined)?.child;
  const runs = own.filter(({ kind }) => kind === 'tool').length;
  return {
    id,
    ...call,
    status: status ?? (open ? (open.kind === 'wait' ? 'waiting' : 'running') : 'queued'),
    ...(own[0] && { startedAt: own[0].startedAt }),
    ...(status && { endedAt: answeredAt }),
    ranMs: sum('tool'),
    waitedMs: sum('wait'),
    ...(child !== undefined && { child }),
    ...(runs > 1 && { attempts: runs }),
  };
}
