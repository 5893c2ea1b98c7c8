import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Tracing } from '@treadle/core';
import { openTelemetry } from '@treadle/core/otel';
import { CommandError } from '../command-line/command.ts';
import { version } from '../version.ts';
import { collectorAt, openOutbox } from './otlp-exporter.ts';
import { keyValues } from './otlp-json.ts';
import { otlpMeter } from './otlp-meter.ts';
import { otlpTracer } from './otlp-tracer.ts';

/* [telemetry] of treadle.toml. This is loaded only if it names an endpoint. */

export interface TelemetryOptions {
  readonly endpoint: string;
  readonly content: boolean;
  readonly serviceName: string;
  /** That of OTEL_EXPORTER_OTLP_HEADERS: `name=value,name=value`. */
  readonly headers: string | undefined;
  readonly onProblem: (why: string) => void;
}

export interface Telemetry {
  readonly tracing: Tracing;
  /** Sends what there is, for at most so long. Nothing is sent regularly after it. */
  close(ms: number): Promise<void>;
}

const METRICS_INTERVAL_MS = 30_000;

/** Throws a `CommandError` if the headers are not valid. */
export function startTelemetry({ endpoint, content, serviceName, headers, onProblem }: TelemetryOptions): Telemetry {
  const senderTo = collectorAt({ endpoint, headers: headersIn(headers), onProblem });
  const resource = { attributes: keyValues({ 'service.name': serviceName, 'service.version': version() }) };
  const scope = { name: 'treadle', version: version() };
  const [about, from] = [JSON.stringify(resource), JSON.stringify(scope)];
  const spans = openOutbox(
    senderTo('/v1/traces'),
    (batch) => `{"resourceSpans":[{"resource":${about},"scopeSpans":[{"scope":${from},"spans":[${batch}]}]}]}`,
  );
  const { meter, collect } = otlpMeter();
  const sendMetrics = senderTo('/v1/metrics');
  let sending: Promise<unknown> | undefined;
  const reportMetrics = (): Promise<unknown> => {
    const metrics = collect();
    if (metrics.length === 0) return Promise.resolve();
    const json = JSON.stringify({ resourceMetrics: [{ resource, scopeMetrics: [{ scope, metrics }] }] });
    return (sending ??= sendMetrics(json).finally(() => {
      sending = undefined;
    }));
  };
  const interval = setInterval(() => void reportMetrics(), METRICS_INTERVAL_MS).unref();
  return {
    tracing: openTelemetry({ tracer: otlpTracer((span) => spans.add(span)), meter, content }),
    async close(ms) {
      clearInterval(interval);
      const late = Promise.withResolvers<void>();
      const timer = setTimeout(late.resolve, ms);
      await Promise.race([Promise.all([spans.flush(), sending, reportMetrics()]), late.promise]);
      clearTimeout(timer);
    },
  };
}

function headersIn(text = ''): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  for (const pair of text.split(',')) {
    const [name = '', value] = pair.split(/=(.*)/s, 2).map((part) => part.trim());
    if (name === '' || value === undefined) continue;
    try {
      const [key, decoded] = [decodeURIComponent(name), decodeURIComponent(value)];
      validateHeaderName(key);
      validateHeaderValue(key, decoded);
      headers[key] = decoded;
    } catch {
      throw new CommandError(
        `The environment variable OTEL_EXPORTER_OTLP_HEADERS must be name=value,name=value, with special characters escaped as in %25. ` +
          `${JSON.stringify(name)} is not a valid header.`,
      );
    }
  }
  return headers;
}
