import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span as a collector reads it. Times are nanoseconds since 1970. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  readonly name: string;
  readonly kind: number;
  readonly startedAt: bigint;
  readonly endedAt: bigint;
  readonly isError: boolean;
  readonly attributes: Attributes;
}

export interface ReceivedMetric {
  readonly name: string;
  readonly unit: string;
  readonly instrument: 'histogram' | 'counter';
  readonly points: readonly { readonly attributes: Attributes; readonly count: number; readonly sum: number }[];
}

export type Attributes = Readonly<Record<string, string | number | boolean | readonly unknown[]>>;

export interface Collector extends AsyncDisposable {
  readonly endpoint: string;
  readonly spans: ReceivedSpan[];
  readonly metrics: ReceivedMetric[];
  readonly services: Set<unknown>;
  readonly headers: Readonly<Record<string, unknown>>[];
  /** How often it was asked. */
  readonly requests: () => number;
}

/** `hang`: never answers. A number: the status of each answer. */
export type Behaviour = 'hang' | number;

/** An OTLP receiver on this machine. It reads JSON as strictly as the definition of the protocol, and answers 400 to anything else. */
export async function startCollector(behaviour: Behaviour = 200): Promise<Collector> {
  const spans: ReceivedSpan[] = [];
  const metrics: ReceivedMetric[] = [];
  const services = new Set<unknown>();
  const headers: Readonly<Record<string, unknown>>[] = [];
  let requests = 0;
  const server = createServer(async (request, response) => {
    requests++;
    headers.push(request.headers);
    let text = '';
    for await (const chunk of request.setEncoding('utf8')) text += chunk;
    if (behaviour === 'hang') return;
    const answer = (status: number, body: object): void => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    };
    if (behaviour !== 200) return answer(behaviour, { message: 'not today' });
    try {
      const body = JSON.parse(text) as unknown;
      if (request.url === '/v1/traces') spans.push(...spansIn(body, services));
      else if (request.url === '/v1/metrics') metrics.splice(0, Infinity, ...metricsIn(body, services));
      else throw new Error(`unknown path ${request.url}`);
      answer(200, {});
    } catch (error) {
      answer(400, { message: (error as Error).message });
      throw error;
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spans,
    metrics,
    services,
    headers,
    requests: () => requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

type Fields = Readonly<Record<string, unknown>>;

/** An object with these fields and no others. `?` marks one that may be absent. */
function message(value: unknown, ...names: readonly string[]): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error(`not a message: ${String(value)}`);
  const known = names.map((name) => name.replace('?', ''));
  for (const name of Object.keys(value)) if (!known.includes(name)) throw new Error(`unknown field ${name}`);
  for (const name of names) if (!name.endsWith('?') && !(name in value)) throw new Error(`no field ${name}`);
  return value as Fields;
}

function list(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error(`not a list: ${JSON.stringify(value)}`);
  return value;
}

function matching(value: unknown, pattern: RegExp): string {
  if (typeof value !== 'string' || !pattern.test(value)) throw new Error(`${JSON.stringify(value)} is not ${pattern}`);
  return value;
}

const INTEGER = /^\d{1,20}$/;

function number(value: unknown): number {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Error(`${String(value)} is not a number`);
  return value;
}

function valueIn(value: unknown): Attributes[string] {
  const any = message(value, 'stringValue?', 'intValue?', 'doubleValue?', 'boolValue?', 'arrayValue?');
  const [[type, given] = []] = Object.entries(any);
  if (Object.keys(any).length !== 1) throw new Error(`not one value: ${JSON.stringify(any)}`);
  if (type === 'arrayValue') return list(message(given, 'values')['values']).map(valueIn);
  if (type === 'intValue') return Number(matching(given, /^-?\d+$/));
  if (type === 'doubleValue') return number(given);
  if (typeof given !== (type === 'boolValue' ? 'boolean' : 'string')) throw new Error(`wrong ${type}`);
  return given as string | boolean;
}

function attributesIn(value: unknown): Attributes {
  return Object.fromEntries(
    list(value).map((one) => {
      const { key, value: given } = message(one, 'key', 'value');
      return [matching(key, /./), valueIn(given)];
    }),
  );
}

/** What a request has of one resource and scope each. */
function scoped(
  body: unknown,
  [top, middle, inner]: readonly [string, string, string],
  services: Set<unknown>,
): readonly unknown[] {
  return list(message(body, top)[top]).flatMap((one) => {
    const { resource, [middle]: scopes } = message(one, 'resource', middle);
    services.add(attributesIn(message(resource, 'attributes')['attributes'])['service.name']);
    return list(scopes).flatMap((each) => {
      const { scope, [inner]: records } = message(each, 'scope', inner);
      message(scope, 'name', 'version');
      return list(records);
    });
  });
}

const SPAN_FIELDS =
  'traceId spanId parentSpanId? flags name kind startTimeUnixNano endTimeUnixNano attributes events status'.split(' ');

function spansIn(body: unknown, services: Set<unknown>): readonly ReceivedSpan[] {
  return scoped(body, ['resourceSpans', 'scopeSpans', 'spans'], services).map((one) => {
    const span = message(one, ...SPAN_FIELDS);
    for (const event of list(span['events'])) {
      const { attributes, timeUnixNano, name } = message(event, 'timeUnixNano', 'name', 'attributes');
      attributesIn(attributes);
      matching(timeUnixNano, INTEGER);
      matching(name, /./);
    }
    const { code = 0 } = message(span['status'], 'code?', 'message?');
    const parent = span['parentSpanId'];
    return {
      traceId: matching(span['traceId'], /^(?!0+$)[\da-f]{32}$/),
      spanId: matching(span['spanId'], /^(?!0+$)[\da-f]{16}$/),
      parentSpanId: parent === undefined ? undefined : matching(parent, /^(?!0+$)[\da-f]{16}$/),
      name: matching(span['name'], /./),
      kind: number(span['kind']),
      startedAt: BigInt(matching(span['startTimeUnixNano'], INTEGER)),
      endedAt: BigInt(matching(span['endTimeUnixNano'], INTEGER)),
      isError: code === 2,
      attributes: attributesIn(span['attributes']),
    };
  });
}

function metricsIn(body: unknown, services: Set<unknown>): readonly ReceivedMetric[] {
  return scoped(body, ['resourceMetrics', 'scopeMetrics', 'metrics'], services).map((one) => {
    const { name, unit, histogram, sum } = message(one, 'name', 'unit', 'description', 'histogram?', 'sum?');
    const isHistogram = histogram !== undefined;
    const data = isHistogram
      ? message(histogram, 'aggregationTemporality', 'dataPoints')
      : message(sum, 'aggregationTemporality', 'dataPoints', 'isMonotonic');
    if (data['aggregationTemporality'] !== 2) throw new Error('not cumulative');
    const points = list(data['dataPoints']).map((point) => {
      const times = ['startTimeUnixNano', 'timeUnixNano'];
      if (!isHistogram) {
        const { attributes, asInt } = message(point, 'attributes', ...times, 'asInt');
        return { attributes: attributesIn(attributes), count: 1, sum: Number(matching(asInt, INTEGER)) };
      }
      const fields = message(
        point,
        'attributes',
        ...times,
        'count',
        'sum',
        'min',
        'max',
        'bucketCounts',
        'explicitBounds',
      );
      const buckets = list(fields['bucketCounts']).map((count) => Number(matching(count, INTEGER)));
      if (buckets.length !== list(fields['explicitBounds']).length + 1) throw new Error('wrong number of buckets');
      const count = Number(matching(fields['count'], INTEGER));
      if (buckets.reduce((all, each) => all + each, 0) !== count) throw new Error('the buckets do not add up');
      return { attributes: attributesIn(fields['attributes']), count, sum: number(fields['sum']) };
    });
    return { name: matching(name, /./), unit: String(unit), instrument: isHistogram ? 'histogram' : 'counter', points };
  });
}
