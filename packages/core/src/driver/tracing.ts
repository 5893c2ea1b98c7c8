import { itemsBetween } from '../journal/items.ts';
import type { Journal } from '../journal/port.ts';
import { walkInSlices } from '../journal/replay.ts';
import type { RunStarted } from '../machine/events.ts';
import type { Model } from '../model.ts';
import type { Clock } from '../platform.ts';
import type { AppliedEntry } from '../trace/steps.ts';
import type { Opening } from './open.ts';
import type { RunOptions } from './options.ts';
import type { Stepped } from './shell.ts';

/* This is loaded with the first run that is traced. */

/** Makes spans of runs while they are driven: `openTelemetry` of `@treadle/core/otel`. What it throws is ignored. */
export interface Tracing {
  /** Called when a process begins to drive a run. */
  readonly follow: (run: FollowedRun) => RunSpans;
}

export interface FollowedRun {
  readonly runId: string;
  /** The first event of the run. */
  readonly started: RunStarted;
  /** Another process, or an earlier call, has driven it before. */
  readonly isResumed: boolean;
  readonly now: number;
  /** The models that it may call. */
  readonly models: readonly Model[];
}

export interface RunSpans {
  /** Receives what the journal of a run that is resumed has, before `begin`. */
  recall(entry: AppliedEntry): void;
  /** The run is driven from here on. Returns the `traceparent` of its span. */
  begin(): string | undefined;
  /** Receives each fact that the journal has accepted, before its effects start. */
  add(entry: AppliedEntry): void;
  /** The `traceparent` for what an effect sends. */
  traceparent(effect: string): string | undefined;
  /** Starts an effect, so that spans that its code makes are below its own. */
  within(effect: string, start: () => void): void;
  /** The run has ended or paused, or this process does not drive it any more. */
  end(): void;
}

/** The spans of a run as its shell uses them: nothing of it throws. */
export interface TracedRun {
  /** A new run that continues no trace records its own span, so that whoever resumes it continues that trace. */
  readonly recordTrace: (opened: Opening) => Opening;
  readonly add: (batch: readonly Stepped[]) => void;
  readonly traceparent: (effect: string) => string | undefined;
  /** The same, by the idempotency key of a call. */
  readonly traceparentOfKey: (key: string) => string | undefined;
  readonly within: (effect: string, start: () => void) => void;
  readonly end: () => void;
}

/** Undefined if the spans cannot be made. */
export async function traceRun(
  options: RunOptions,
  { events, seq }: Opening,
  { runId, journal, clock }: { readonly runId: string; readonly journal: Journal | undefined; readonly clock: Clock },
): Promise<TracedRun | undefined> {
  const earlier = seq > 0 ? await journal!.read(runId) : [];
  const started = (earlier[0]?.event ?? events[0]) as RunStarted;
  const models = [
    options.model,
    ...(options.models ?? []),
    ...(options.agents ?? []).flatMap(({ model }) => model ?? []),
  ];
  const spans = guarded(() =>
    options.tracing!.follow({ runId, started, models, isResumed: seq > 0, now: clock.now() }),
  );
  if (!spans) return undefined;
  if (seq > 0) await walkInSlices(earlier, (step) => guarded(() => spans.recall(step)));
  const trace = guarded(() => spans.begin());
  const traceparent = (effect: string): string | undefined => guarded(() => spans.traceparent(effect));
  return {
    recordTrace(opened) {
      const [first, ...others] = opened.events;
      if (first?.type !== 'run-started' || first.trace !== undefined || trace === undefined) return opened;
      return { ...opened, events: [{ ...first, trace }, ...others] };
    },
    add(batch) {
      for (const { entry, before, next } of batch) {
        const { seq: number, event } = entry;
        const items = [{ type: 'fact' as const, seq: number, event }, ...itemsBetween(before, next, event)];
        guarded(() => spans.add({ entry, before, state: next.state, items }));
      }
    },
    traceparent,
    traceparentOfKey: (key) => traceparent(key.slice(runId.length + 1)),
    within(effect, start) {
      let hasStarted = false;
      const startOnce = (): void => {
        hasStarted = true;
        start();
      };
      try {
        spans.within(effect, startOnce);
      } catch (thrown) {
        if (hasStarted) throw thrown;
      }
      if (!hasStarted) start();
    },
    end: () => guarded(() => spans.end()),
  };
}

/** Spans are worth less than the run. */
function guarded<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}
