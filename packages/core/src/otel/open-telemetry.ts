import {
  context as otelContext,
  metrics,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace as otelTrace,
  type Attributes,
  type Context,
  type HrTime,
  type Meter,
  type Span as OtelSpan,
  type Tracer,
} from '@opentelemetry/api';
import type { FollowedRun, RunSpans, Tracing } from '../driver/tracing.ts';
import { TreadleError } from '../errors.ts';
import { statusOf } from '../journal/replay.ts';
import type { Event } from '../machine/events.ts';
import { messagesOf } from '../machine/history.ts';
import type { State } from '../machine/state.ts';
import { NEW } from '../machine/step.ts';
import type { ErrorType } from '../messages.ts';
import type { Settings, Usage } from '../model.ts';
import { failureReader, type FailureReader } from '../trace/failure-reader.ts';
import { TOOL_FAILURES, type TraceFailure } from '../trace/failures.ts';
import { callKey, spanReader, type Span } from '../trace/spans.ts';
import { agentIn, type AppliedEntry } from '../trace/steps.ts';
import { inputMessages, instructionParts, outputMessages, resultText } from './content.ts';
import { ATTEMPT_EVENT, ATTRIBUTE, METRIC, OPERATION, OWN_SPAN, UNKNOWN_PROVIDER } from './conventions.ts';
import { instrumentsOf, type Instruments } from './instruments.ts';

/*
 * Runs as spans and metrics of OpenTelemetry, over its API: a program that uses an SDK gets them, others nothing.
 *
 * 1. A span begins and ends with entries of the journal, at their times. A process that resumes a run knows from the journal what
 *    was open, so the spans of what another process has begun end here.
 * 2. All processes that drive a run, its child runs and its forks use the trace that the run has recorded.
 * 3. Each entry counts once for the metrics: in the process that has appended it.
 * 4. Texts of the conversation leave the process only with `content`.
 */

export interface OpenTelemetryOptions {
  /** Default: the tracer `treadle` of the SDK that the program has registered. */
  readonly tracer?: Tracer;
  readonly meter?: Meter;
  /** Whether spans contain instructions, messages, arguments and results; default false. */
  readonly content?: boolean;
}

/** Makes spans and metrics of runs: the option `tracing`. */
export function openTelemetry(options: OpenTelemetryOptions = {}): Tracing {
  const { tracer = otelTrace.getTracer('treadle'), meter = metrics.getMeter('treadle'), content = false } = options;
  if (typeof tracer?.startSpan !== 'function') {
    throw new TreadleError(
      'invalid-options',
      'The tracer is not one. Pass trace.getTracer(name) of @opentelemetry/api.',
    );
  }
  const instruments = instrumentsOf(meter);
  return { follow: (run) => new SpansOfRun(run, { tracer, instruments, content }) };
}

interface Parts {
  readonly tracer: Tracer;
  readonly instruments: Instruments;
  readonly content: boolean;
}

interface OpenSpan {
  readonly otel: OtelSpan;
  readonly context: Context;
  readonly startedAt: number;
}

class SpansOfRun implements RunSpans {
  readonly #run: FollowedRun;
  readonly #parts: Parts;
  readonly #reader = spanReader();
  readonly #failures: FailureReader = failureReader();
  readonly #open = new Map<Span, OpenSpan>();
  readonly #byEffect = new Map<string, OpenSpan>();
  #state: State = NEW;
  #root: OpenSpan | undefined;
  /** Of the agent that the run was handed to, below the span of the run. */
  #agent: OpenSpan | undefined;
  #agentName: string | undefined;

  constructor(run: FollowedRun, parts: Parts) {
    this.#run = run;
    this.#parts = parts;
  }

  recall(entry: AppliedEntry): void {
    this.#reader.add(entry);
    this.#failures.add(entry);
    this.#state = entry.state;
  }

  begin(): string | undefined {
    const { started, isResumed } = this.#run;
    const at = isResumed ? this.#run.now : started.at;
    const name = isWorkflow(this.#run) ? workflowName(this.#run) : agentIn(started, NEW);
    this.#root = this.#start({
      parent: parentContext(started.trace ?? started.parent?.trace),
      name: [this.#operation, name].filter((part) => part !== undefined).join(' '),
      kind: SpanKind.INTERNAL,
      at,
      attributes: {
        [ATTRIBUTE.operation]: this.#operation,
        ...(isWorkflow(this.#run)
          ? defined({ [ATTRIBUTE.workflow]: name })
          : defined({
              [ATTRIBUTE.agent]: name,
              [ATTRIBUTE.provider]: this.#provider(started.model),
              [ATTRIBUTE.requestModel]: started.model,
            })),
        ...this.#facts(),
        ...(isResumed && { [ATTRIBUTE.resumed]: true }),
      },
    });
    this.#followAgent(this.#state);
    for (const span of this.#reader.spans) if (span.end === undefined) this.#startEffect(span, this.#state);
    return traceparentOf(this.#root);
  }

  add(entry: AppliedEntry): void {
    const { ended, begun } = this.#reader.add(entry);
    const known = this.#failures.failures.length;
    this.#failures.add(entry);
    const failures = this.#failures.failures.slice(known);
    this.#state = entry.state;
    for (const span of ended) this.#endEffect(span, entry, failures);
    this.#followAgent(entry.state);
    for (const span of begun) this.#startEffect(span, entry.state);
  }

  traceparent(effect: string): string | undefined {
    return traceparentOf(this.#byEffect.get(effect) ?? this.#agent ?? this.#root);
  }

  within(effect: string, start: () => void): void {
    const span = this.#byEffect.get(effect) ?? this.#agent ?? this.#root;
    if (span) otelContext.with(span.context, start);
    else start();
  }

  end(): void {
    const { instruments } = this.#parts;
    // What is open ends in the process that resumes the run.
    this.#open.clear();
    this.#endAgent();
    if (!this.#root) return;
    const { otel, startedAt } = this.#root;
    const { phase, usage, turn, calls } = this.#state;
    const status = statusOf(this.#state);
    const at = Math.max(startedAt, this.#reader.at);
    const error = phase.type === 'ended' ? errorOf(phase.outcome) : undefined;
    otel.setAttributes({
      [ATTRIBUTE.status]: status,
      ...usageAttributes(usage),
      [ATTRIBUTE.turns]: turn,
      [ATTRIBUTE.calls]: calls,
    });
    const failure = this.#failures.failures.findLast(({ severity }) => severity === 'high');
    if (error !== undefined) setError(otel, error, failure);
    otel.end(timeOf(at));
    if (phase.type === 'ended') {
      const metric = isWorkflow(this.#run) ? METRIC.workflow : METRIC.agent;
      instruments.record(metric, (at - startedAt) / 1000, {
        ...(isWorkflow(this.#run)
          ? defined({ [ATTRIBUTE.workflow]: workflowName(this.#run) })
          : defined({
              [ATTRIBUTE.operation]: OPERATION.agent,
              [ATTRIBUTE.agent]: agentIn(this.#run.started, NEW),
              [ATTRIBUTE.provider]: this.#provider(this.#run.started.model),
              [ATTRIBUTE.requestModel]: this.#run.started.model,
            })),
        ...defined({ [ATTRIBUTE.error]: error }),
      });
    }
    this.#root = undefined;
  }

  get #operation(): string {
    return isWorkflow(this.#run) ? OPERATION.workflow : OPERATION.agent;
  }

  #facts(): Attributes {
    const { runId, started } = this.#run;
    const { session, task, principal, parent } = started;
    return defined({
      [ATTRIBUTE.run]: runId,
      [ATTRIBUTE.parentRun]: parent?.runId,
      [ATTRIBUTE.conversation]: session,
      [ATTRIBUTE.task]: task,
      [ATTRIBUTE.tenant]: principal?.tenant,
    });
  }

  #provider(id: string): string {
    const model = this.#run.models.find((one) => one.id === id);
    return model?.provider ?? model?.asks?.find(({ provider }) => provider !== undefined)?.provider ?? UNKNOWN_PROVIDER;
  }

  #start(span: { parent: Context; name: string; kind: SpanKind; at: number; attributes: Attributes }): OpenSpan {
    const { parent, name, kind, at, attributes } = span;
    const otel = this.#parts.tracer.startSpan(name, { kind, startTime: timeOf(at), attributes }, parent);
    return { otel, context: otelTrace.setSpan(parent, otel), startedAt: at };
  }

  /** The agent that a run was handed to has a span of its own, which ends when it hands the run on. */
  #followAgent({ handedTo, model }: State): void {
    if (handedTo === this.#agentName || !this.#root) return;
    this.#endAgent();
    this.#agentName = handedTo;
    if (handedTo === undefined) return;
    this.#agent = this.#start({
      parent: this.#root.context,
      name: `${OPERATION.agent} ${handedTo}`,
      kind: SpanKind.INTERNAL,
      at: Math.max(this.#root.startedAt, this.#reader.at),
      attributes: {
        [ATTRIBUTE.operation]: OPERATION.agent,
        [ATTRIBUTE.agent]: handedTo,
        [ATTRIBUTE.provider]: this.#provider(model),
        [ATTRIBUTE.requestModel]: model,
        ...this.#facts(),
      },
    });
  }

  #endAgent(): void {
    this.#agent?.otel.end(timeOf(Math.max(this.#agent.startedAt, this.#reader.at)));
    this.#agent = undefined;
  }

  #startEffect(span: Span, state: State): void {
    const made = this.#spanFor(span, state);
    if (!made || !this.#root) return;
    const { parent, ...rest } = { parent: (this.#agent ?? this.#root).context, ...made };
    const open = this.#start({
      parent,
      ...rest,
      at: span.startedAt,
      attributes: {
        ...rest.attributes,
        [ATTRIBUTE.turn]: span.turn,
        [ATTRIBUTE.effect]: span.effect,
        [ATTRIBUTE.run]: this.#run.runId,
      },
    });
    this.#open.set(span, open);
    this.#byEffect.set(span.effect, open);
  }

  #spanFor(
    { kind, label, effect }: Span,
    state: State,
  ): { readonly name: string; readonly kind: SpanKind; readonly attributes: Attributes } | undefined {
    switch (kind) {
      case 'model': {
        const isSummary = effect.includes('.compact');
        const model = isSummary ? state.model : label;
        // A program decides in no time, and asks nobody.
        if (this.#run.models.find(({ id }) => id === model)?.usesTokens === false) return undefined;
        return {
          name: `${OPERATION.chat} ${model}`,
          kind: SpanKind.CLIENT,
          attributes: {
            [ATTRIBUTE.operation]: OPERATION.chat,
            [ATTRIBUTE.provider]: this.#provider(model),
            [ATTRIBUTE.requestModel]: model,
            ...defined({ [ATTRIBUTE.conversation]: this.#run.started.session }),
            ...settingAttributes(state.settings),
            ...(this.#parts.content && !isSummary && askedContent(state)),
          },
        };
      }
      case 'tool':
        return {
          name: `${OPERATION.tool} ${label}`,
          kind: SpanKind.INTERNAL,
          attributes: {
            [ATTRIBUTE.operation]: OPERATION.tool,
            [ATTRIBUTE.tool]: label,
            ...this.#callAttributes(effect, state),
          },
        };
      case 'wait':
        return {
          name: `${OWN_SPAN.wait} ${label}`,
          kind: SpanKind.INTERNAL,
          attributes: { [ATTRIBUTE.tool]: label, ...this.#callAttributes(effect, state) },
        };
      case 'check':
        return { name: `${OWN_SPAN.check} ${label}`, kind: SpanKind.INTERNAL, attributes: {} };
      default:
        return kind satisfies never;
    }
  }

  #callAttributes(effect: string, { phase, tools }: State): Attributes {
    const index = Number(effect.slice(effect.lastIndexOf('.') + 1));
    const call = 'slots' in phase ? phase.slots?.find((slot) => slot.call.index === index)?.call : undefined;
    if (!call) return {};
    const facts = tools.find(({ name }) => name === call.name);
    return defined({
      [ATTRIBUTE.callId]: call.id,
      [ATTRIBUTE.toolType]: 'function',
      [ATTRIBUTE.toolDescription]: facts?.description,
      [ATTRIBUTE.callArguments]: this.#parts.content ? call.arguments : undefined,
    });
  }

  #endEffect(span: Span, entry: AppliedEntry, failures: readonly TraceFailure[]): void {
    const open = this.#open.get(span);
    if (!open) return;
    this.#open.delete(span);
    if (this.#byEffect.get(span.effect) === open) this.#byEffect.delete(span.effect);
    const { event } = entry.entry;
    const { otel } = open;
    const failure = failures.find(({ effect }) => effect === span.effect || effect === effectOfCall(span.effect));
    const error = span.problem === undefined ? undefined : errorOfSpan(span, event, failure);
    if (error !== undefined) setError(otel, error, failure);
    const seconds = (span.endedAt! - span.startedAt) / 1000;
    if (span.kind === 'model') this.#endModel(span, { otel, event, error, seconds });
    if (span.kind === 'tool') {
      otel.setAttribute(
        ATTRIBUTE.callStatus,
        span.problem ?? (event.type === 'tool-settled' ? 'succeeded' : 'waiting'),
      );
      const answered = this.#parts.content && answerIn(event);
      if (answered) otel.setAttribute(ATTRIBUTE.callResult, answered);
      // A call that waits has not ended.
      if (event.type !== 'tool-parked') {
        const attributes = {
          [ATTRIBUTE.operation]: OPERATION.tool,
          [ATTRIBUTE.tool]: span.label,
          [ATTRIBUTE.toolType]: 'function',
        };
        this.#parts.instruments.record(METRIC.tool, seconds, {
          ...attributes,
          ...defined({ [ATTRIBUTE.error]: error }),
        });
      }
    }
    otel.end(timeOf(span.endedAt!));
  }

  #endModel(
    { label, effect, attempts = [] }: Span,
    { otel, event, error, seconds }: { otel: OtelSpan; event: Event; error: string | undefined; seconds: number },
  ): void {
    const { instruments, content } = this.#parts;
    const model = effect.includes('.compact') ? this.#state.model : label;
    const replied = event.type === 'model-replied' ? event : undefined;
    const attributes = defined({
      [ATTRIBUTE.operation]: OPERATION.chat,
      [ATTRIBUTE.provider]: this.#provider(model),
      [ATTRIBUTE.requestModel]: model,
      [ATTRIBUTE.responseModel]: replied?.model,
    });
    instruments.record(METRIC.inference, seconds, { ...attributes, ...defined({ [ATTRIBUTE.error]: error }) });
    for (const attempt of attempts) {
      if (!attempt.error) continue;
      otel.addEvent(ATTEMPT_EVENT, {
        [ATTRIBUTE.attemptModel]: attempt.model,
        [ATTRIBUTE.attemptMs]: attempt.ms,
        [ATTRIBUTE.error]: attempt.error.code,
      });
    }
    const usage = replied?.usage ?? summaryUsage(event);
    // A call that failed counts with no tokens, so that all metrics have the same number of calls.
    instruments.recordUsage(usage ?? NO_USAGE, attributes, error);
    if (usage) otel.setAttributes(usageAttributes(usage));
    if (error !== undefined) otel.setAttribute(ATTRIBUTE.finishReasons, ['error']);
    if (!replied) return;
    otel.setAttributes({
      [ATTRIBUTE.responseModel]: replied.model,
      [ATTRIBUTE.finishReasons]: [finishReason(replied)],
    });
    if (content) otel.setAttribute(ATTRIBUTE.outputMessages, outputMessages(replied.content, replied.finish));
  }
}

const NO_USAGE: Usage = { inputTokens: 0, outputTokens: 0 };

function isWorkflow({ started }: FollowedRun): boolean {
  return started.program !== undefined;
}

function workflowName({ started: { program, model } }: FollowedRun): string {
  const { name } = program as { readonly name?: unknown };
  return typeof name === 'string' ? name : model;
}

/** What the run recorded; else what the program is in at this moment; else a new trace. */
function parentContext(recorded: string | undefined): Context {
  const active = otelContext.active();
  const given = recorded === undefined ? undefined : spanContextOf(recorded);
  if (!given) return active;
  const isActive = otelTrace.getSpanContext(active)?.spanId === given.spanId;
  return isActive ? active : otelTrace.setSpanContext(ROOT_CONTEXT, given);
}

function spanContextOf(traceparent: string): Parameters<typeof otelTrace.setSpanContext>[1] | undefined {
  const [, traceId, spanId, flags] = /^[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})/.exec(traceparent) ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: parseInt(flags!, 16) & 1, isRemote: true };
}

function traceparentOf(span: OpenSpan | undefined): string | undefined {
  if (!span) return undefined;
  const { traceId, spanId, traceFlags } = span.otel.spanContext();
  // Without an SDK there are no spans.
  if (/^0+$/.test(spanId)) return undefined;
  return `00-${traceId}-${spanId}-${(traceFlags & 1).toString(16).padStart(2, '0')}`;
}

/** With the seconds apart, so that an SDK does not take it for a time since the process has started. */
function timeOf(at: number): HrTime {
  return [Math.floor(at / 1000), Math.round((at % 1000) * 1e6)];
}

function defined(attributes: Attributes): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}

function settingAttributes(settings: Settings): Attributes {
  return defined({
    [ATTRIBUTE.temperature]: settings.temperature,
    [ATTRIBUTE.maxTokens]: settings.maxOutputTokens,
    [ATTRIBUTE.topP]: settings.topP,
    [ATTRIBUTE.stop]: settings.stop && [...settings.stop],
    [ATTRIBUTE.seed]: settings.seed,
    [ATTRIBUTE.presencePenalty]: settings.presencePenalty,
    [ATTRIBUTE.frequencyPenalty]: settings.frequencyPenalty,
    [ATTRIBUTE.reasoningLevel]: settings.reasoning,
  });
}

function usageAttributes(usage: Usage): Attributes {
  return defined({
    [ATTRIBUTE.inputTokens]: usage.inputTokens,
    [ATTRIBUTE.outputTokens]: usage.outputTokens,
    [ATTRIBUTE.cacheRead]: usage.cachedTokens,
    [ATTRIBUTE.cacheWrite]: usage.cacheWriteTokens,
    [ATTRIBUTE.reasoningTokens]: usage.reasoningTokens,
    [ATTRIBUTE.cost]: usage.cost,
  });
}

function askedContent({ history, instructions, tools }: State): Attributes {
  return defined({
    [ATTRIBUTE.inputMessages]: inputMessages(messagesOf(history)),
    [ATTRIBUTE.instructions]: instructions === undefined ? undefined : instructionParts(instructions),
    [ATTRIBUTE.toolDefinitions]:
      tools.length === 0
        ? undefined
        : JSON.stringify(
            tools.map(({ name, description, parameters }) => ({ type: 'function', name, description, parameters })),
          ),
  });
}

function answerIn(event: Event): string | undefined {
  return event.type === 'tool-settled' && event.result.type === 'result' ? resultText(event.result.content) : undefined;
}

function summaryUsage(event: Event): Usage | undefined {
  return event.type === 'history-compacted' && 'usage' in event.result ? event.result.usage : undefined;
}

function finishReason({ finish, rawFinish }: Extract<Event, { type: 'model-replied' }>): string {
  return rawFinish ?? finish;
}

function effectOfCall(effect: string): string | undefined {
  const key = callKey(effect);
  return key?.replace('.', '.tool.');
}

/** A word of few, as the conventions ask for. */
function errorOfSpan({ problem }: Span, event: Event, failure: TraceFailure | undefined): string {
  if (event.type === 'model-failed') return event.error.code;
  if (problem === 'lost') return 'interrupted';
  if (event.type === 'cancel-requested') return 'cancelled';
  return failure?.type ?? (problem === 'denied' ? 'denied' : '_OTHER');
}

function errorOf(outcome: Extract<State['phase'], { type: 'ended' }>['outcome']): string | undefined {
  if (outcome.type === 'failed') return outcome.error.code;
  return outcome.type === 'exhausted' ? outcome.limit : undefined;
}

function setError(otel: OtelSpan, type: string, failure: TraceFailure | undefined): void {
  const known = failure ?? TOOL_FAILURES[type as ErrorType];
  otel.setStatus({ code: SpanStatusCode.ERROR });
  otel.setAttributes(
    defined({
      [ATTRIBUTE.error]: type,
      [ATTRIBUTE.failureCategory]: known?.category,
      [ATTRIBUTE.failureCode]: known?.code,
    }),
  );
}
