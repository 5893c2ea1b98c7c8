import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Tracing } from '@treadle/core';
import { openTelemetry, type OpenTelemetryOptions } from '@treadle/core/otel';
import { openaiChat } from '@treadle/models';
import { node } from '../measure/pinned.ts';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

type Otel = Required<OpenTelemetryOptions>;

/** What the command uses, which is no export of its package. */
const ofCommand = (name: string): Promise<unknown> =>
  import(new URL(`../../packages/treadle/src/telemetry/${name}.ts`, import.meta.url).href);
const { otlpMeter } = (await ofCommand('otlp-meter')) as { otlpMeter(): { meter: Otel['meter'] } };
const { otlpTracer } = (await ofCommand('otlp-tracer')) as { otlpTracer(onEnd: () => void): Otel['tracer'] };
const { startTelemetry } = (await ofCommand('telemetry')) as { startTelemetry(options: object): { tracing: Tracing } };

/** Spans and metrics are made, and go nowhere. */
const tracing = openTelemetry({ tracer: otlpTracer(() => {}), meter: otlpMeter().meter });

export const contender: Contender = treadle((task) => ({ model: openaiChat({ ...endpoint(task) }), tracing }));

/** As with `[telemetry]`: spans and metrics go to a collector on another core. */
export async function withCollector(behaviour: 'answers' | 'hangs'): Promise<Contender> {
  const file = new URL('../server/collector.ts', import.meta.url).pathname;
  const [command, args] = node(0, ['--disable-warning=ExperimentalWarning', file, behaviour]);
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  // It ends with this process, and does not keep it.
  for (const part of [child, child.stdin as Socket, child.stdout as Socket]) part.unref();
  const { tracing } = startTelemetry({
    endpoint: `http://127.0.0.1:${String(port).trim()}`,
    content: false,
    serviceName: 'bench',
    headers: undefined,
    onProblem: () => {},
  });
  return treadle((task) => ({ model: openaiChat({ ...endpoint(task) }), tracing }));
}
