import type { Tracing } from '@treadle/core';
import type { Shape } from '@treadle/tools/toml';
import type { Telemetry } from '../telemetry/telemetry.ts';
import type { LoadedConfig } from './load.ts';
import { isWebAddress } from './web-address.ts';

/** [telemetry] of treadle.toml. */
export interface TelemetryConfig {
  readonly otlp_endpoint?: string;
  readonly content?: boolean;
  readonly service_name?: string;
}

export const TELEMETRY_SHAPE: Shape = {
  type: 'table',
  fields: {
    otlp_endpoint: {
      type: 'text',
      form: { matches: isWebAddress, means: 'the address of a collector such as "http://127.0.0.1:4318"' },
    },
    content: { type: 'switch' },
    service_name: { type: 'text' },
  } satisfies Record<keyof TelemetryConfig, Shape>,
};

/** What this process sends to. A server that is configured again keeps those that it still uses. */
const started = new Map<string, Promise<Telemetry>>();
/** Problems that nobody was told of. */
let problems: string[] = [];
const collect = (why: string): void => void problems.push(why);
let report = collect;

/** Undefined: nothing is sent, and no code for it is loaded. */
export async function configuredTracing({ config }: LoadedConfig): Promise<Tracing | undefined> {
  const { otlp_endpoint: endpoint, content = false, service_name: serviceName = 'treadle' } = config.telemetry ?? {};
  if (endpoint === undefined) return undefined;
  const options = { endpoint, content, serviceName, headers: process.env['OTEL_EXPORTER_OTLP_HEADERS'] };
  const key = JSON.stringify(options);
  const telemetry =
    started.get(key) ??
    import('../telemetry/telemetry.ts').then(({ startTelemetry }) =>
      startTelemetry({ ...options, onProblem: (why) => report(why) }),
    );
  started.set(key, telemetry);
  telemetry.catch(() => started.delete(key));
  return (await telemetry).tracing;
}

/** From now on, problems are told so. A server logs them. */
export function reportTelemetry(to: (why: string) => void): void {
  report = to;
}

/** How long a command that has ended waits for a collector. */
const CLOSE_MS = 1_000;

/** Sends what there is, for a limited time. Returns the problems that nobody was told of. */
export async function closeTelemetry(): Promise<readonly string[]> {
  if (started.size === 0) return [];
  const open = [...started.values()];
  started.clear();
  await Promise.all(open.map(async (telemetry) => (await telemetry).close(CLOSE_MS)));
  const untold = problems;
  problems = [];
  report = collect;
  return untold;
}
