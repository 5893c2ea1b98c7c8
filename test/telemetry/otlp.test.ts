import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { describe, expect, test, vi } from 'vitest';
import { command } from '../command/in-process.ts';
import { READ, runsFixture } from '../command/runs-fixture.ts';
import { useServeFixture } from '../serve/serve-command.ts';
import { startCollector, type Attributes, type Collector } from './collector.ts';
import conventions from './conventions.json' with { type: 'json' };

// Starting processes takes a long time on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

type Operation = keyof typeof conventions.spans;
const KINDS: Readonly<Record<string, number>> = { internal: 1, client: 3 };
const OPT_IN: ReadonlySet<string> = new Set(conventions.optIn);

/** What is wrong with the names, kinds, units and types of what was received, by the registry of the conventions. */
function problemsIn({ spans, metrics }: Collector): readonly string[] {
  const attributeProblems = (where: string, attributes: Attributes, required: readonly string[]): readonly string[] => [
    ...required.filter((name) => !(name in attributes)).map((name) => `${where} has no ${name}`),
    ...Object.entries(attributes).flatMap(([name, value]) => {
      if (name.startsWith('treadle.')) return [];
      const type = (conventions.attributes as Readonly<Record<string, string>>)[name];
      if (type === undefined) return [`${where} has the unknown ${name}`];
      if (OPT_IN.has(name)) return [`${where} has content: ${name}`];
      const is = Array.isArray(value) ? 'string[]' : typeof value === 'number' ? 'number' : typeof value;
      return (type === 'int' || type === 'double' ? 'number' : type) === is ? [] : [`${where}: ${name} is a ${is}`];
    }),
  ];
  return [
    ...spans.flatMap(({ name, kind, attributes, startedAt, endedAt }) => {
      if (endedAt < startedAt) return [`${name} ends before it begins`];
      const operation = attributes['gen_ai.operation.name'] as Operation | undefined;
      if (operation === undefined) return name.startsWith('treadle.') ? [] : [`${name} has no operation`];
      const known = conventions.spans[operation];
      const subject = attributes[known.subject];
      const right = subject === undefined ? operation : `${operation} ${String(subject)}`;
      return [
        ...(name === right ? [] : [`${name} should be ${right}`]),
        ...(kind === KINDS[known.kind] ? [] : [`${name} has the kind ${kind}`]),
        ...attributeProblems(name, attributes, known.required),
      ];
    }),
    ...metrics.flatMap(({ name, unit, instrument, points }) => {
      const known = conventions.metrics[name as keyof typeof conventions.metrics];
      if (!known) return [`unknown metric ${name}`];
      const wrong = unit !== known.unit || instrument !== known.instrument;
      return [
        ...(wrong ? [`${name} is a ${instrument} in ${unit}`] : []),
        ...points.flatMap(({ attributes }) => attributeProblems(name, attributes, known.required)),
      ];
    }),
  ];
}

describe('treadle run', () => {
  const fixture = runsFixture();

  async function configure({ endpoint }: Pick<Collector, 'endpoint'>): Promise<void> {
    await fixture.play.write('treadle.toml', `[telemetry]\notlp_endpoint = "${endpoint}"\nservice_name = "nightly"\n`);
  }

  test('sends spans and metrics that a collector reads, with the names, kinds and units of the conventions', async () => {
    await using collector = await startCollector();
    await configure(collector);
    const missing = { calls: [{ name: 'read', arguments: '{"path":"nowhere.txt"}' }] };
    await fixture.script(READ, missing, { text: ['It says hello.'] });
    const { code, stderr } = await fixture.treadle('run', ...fixture.model(), 'What is in notes.txt?');
    expect([code, stderr]).toEqual([0, expect.not.stringContaining('Telemetry')]);
    expect(problemsIn(collector)).toEqual([]);
    expect([...collector.services]).toEqual(['nightly']);
    const names = collector.spans.map(({ name, isError }) => `${name}${isError ? ' !' : ''}`);
    expect(names.filter((name) => !name.startsWith('treadle.check'))).toEqual([
      'chat scripted',
      'execute_tool read',
      'chat scripted',
      'execute_tool read !',
      'chat scripted',
      'invoke_agent',
    ]);
    const run = collector.spans.find(({ name }) => name === 'invoke_agent');
    expect(
      collector.spans.every(({ parentSpanId }) => parentSpanId === undefined || parentSpanId === run!.spanId),
    ).toBe(true);
    // What models are sent is the span of the call.
    const chats = collector.spans.filter(({ name }) => name === 'chat scripted');
    expect(fixture.server.traces).toEqual(chats.map(({ traceId, spanId }) => `00-${traceId}-${spanId}-01`));
    const tokens = collector.metrics.find(({ name }) => name === 'gen_ai.client.inference.operation.input_tokens')!;
    expect(tokens.points.map(({ count }) => count)).toEqual([3]);
  });

  test('a run that another process resumes after a kill stays in its trace', async () => {
    await using collector = await startCollector();
    await configure(collector);
    await fixture.script(READ, { hang: 'It sa' }, { text: ['It says hello.'] });
    const killed = fixture.start('run', ...fixture.model(), 'What is in notes.txt?');
    await fixture.server.answered(2);
    killed.child.kill('SIGKILL');
    await once(killed.child, 'close');
    const { runId } = (await fixture.runs())[0]!;
    expect(await fixture.treadle('runs', 'resume', runId, ...fixture.model())).toMatchObject({ code: 0 });
    const [first, second, third] = fixture.server.traces.map((trace) => trace!.split('-'));
    expect([first![1], second![1]]).toEqual([third![1], third![1]]);
    const ofSecond = collector.spans.filter(({ attributes }) => attributes['treadle.effect'] === 't2.model.0');
    expect(ofSecond.map(({ isError, attributes }) => [isError, attributes['error.type']])).toEqual([
      [true, 'interrupted'],
      [false, undefined],
    ]);
    expect(ofSecond[1]!.spanId).toBe(third![2]);
    expect(new Set(collector.spans.map(({ traceId }) => traceId))).toEqual(new Set([third![1]]));
    const resumed = collector.spans.find(({ attributes }) => attributes['treadle.run.resumed']);
    expect(resumed).toMatchObject({ name: 'invoke_agent', parentSpanId: expect.stringMatching(/^[\da-f]{16}$/) });
    expect(problemsIn(collector)).toEqual([]);
    const trace = JSON.parse((await fixture.treadle('trace', runId, '--json')).stdout) as { readonly traceId: string };
    expect(trace.traceId).toBe(third![1]);
  });

  test('continues the trace of the process that starts it', async () => {
    await using collector = await startCollector();
    await configure(collector);
    await fixture.script({ text: ['Hello.'] });
    const env = { TRACEPARENT: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01' };
    await command(['run', ...fixture.model(), 'Hi'], fixture.play.folder, { env });
    expect(collector.spans.at(-1)).toMatchObject({
      traceId: env.TRACEPARENT.slice(3, 35),
      parentSpanId: 'b7ad6b7169203331',
    });
    await fixture.script({ text: ['Hello.'] });
    const wrong = await command(['run', ...fixture.model(), 'Hi'], fixture.play.folder, { env: { TRACEPARENT: 'x' } });
    expect(wrong.code).toBe(0);
  });

  test.each([
    ['answers 503', async () => startCollector(503), 'it answered with status 503'],
    ['refuses what it gets', async () => startCollector(400), 'it answered with status 400'],
    ['is not there', async () => ({ ...(await absent()), [Symbol.asyncDispose]: async () => {} }), 'ECONNREFUSED'],
  ] as const)('a collector that %s costs spans, and nothing else', async (_, start, why) => {
    await using collector = await start();
    await configure(collector);
    await fixture.script({ text: ['Hello.'] });
    const { code, stdout, stderr } = await fixture.treadle('run', ...fixture.model(), 'Hi');
    expect([code, stdout]).toEqual([0, 'Hello.\n']);
    expect(stderr).toContain('treadle: Telemetry cannot be sent to http://127.0.0.1:');
    expect(stderr).toContain(why);
  });

  test('a collector that never answers does not keep the command', async () => {
    await using collector = await startCollector('hang');
    await configure(collector);
    await fixture.script({ text: ['Hello.'] });
    expect(await fixture.treadle('run', ...fixture.model(), 'Hi')).toMatchObject({ code: 0, stdout: 'Hello.\n' });
    expect(collector.requests()).toBeGreaterThan(0);
  });

  test('an address that is not one is refused', async () => {
    await configure({ endpoint: 'localhost:4318' });
    const { code, stderr } = await fixture.treadle('run', '--model', 'demo', 'Hi');
    expect([code, stderr]).toEqual([2, expect.stringContaining('telemetry.otlp_endpoint')]);
  });

  test('headers of the environment are sent, and refused if they are not valid', async () => {
    await using collector = await startCollector();
    await configure(collector);
    await fixture.script({ text: ['Hello.'] });
    vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', 'api-key=a%2Cb==, x = 1');
    try {
      expect((await fixture.treadle('run', ...fixture.model(), 'Hi')).code).toBe(0);
      expect(collector.headers[0]).toMatchObject({ 'api-key': 'a,b==', x: '1' });
      for (const wrong of ['my key=secret', 'x=%0Asecret', 'x=secret%']) {
        vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', wrong);
        const { code, stderr } = await fixture.treadle('run', '--model', 'demo', 'Hi');
        expect([code, stderr]).toEqual([2, expect.stringContaining('OTEL_EXPORTER_OTLP_HEADERS must be name=value')]);
        expect(stderr).not.toContain('secret');
      }
    } finally {
      vi.unstubAllEnvs();
    }
  });
});

async function absent(): Promise<{ readonly endpoint: string }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return { endpoint: `http://127.0.0.1:${port}` };
}

describe('treadle serve', () => {
  const fixture = useServeFixture();

  test('continues the trace of a request', async () => {
    await using collector = await startCollector();
    await fixture.configure(`[telemetry]\notlp_endpoint = "${collector.endpoint}"`, { text: ['Hello.'] });
    const serve = await fixture.serve();
    const given = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const { body } = await serve.respond({ input: 'Hi' }, { traceparent: given });
    await serve.stop();
    expect(collector.spans.map(({ name, traceId }) => [name, traceId])).toEqual([
      ['chat m-1', given.slice(3, 35)],
      ['invoke_agent', given.slice(3, 35)],
    ]);
    expect(collector.spans[1]).toMatchObject({
      parentSpanId: 'b7ad6b7169203331',
      attributes: { 'treadle.run.id': body.id },
    });
    expect(problemsIn(collector)).toEqual([]);
  });

  test('logs once that a collector fails, and answers as before', async () => {
    await using collector = await startCollector(500);
    await fixture.configure(`[telemetry]\notlp_endpoint = "${collector.endpoint}"`, { text: ['Hello.'] });
    const serve = await fixture.serve();
    expect((await serve.respond({ input: 'Hi' })).body.status).toBe('completed');
    const { stderr } = await serve.stop();
    expect(stderr.split('Telemetry cannot be sent').length - 1).toBe(1);
  });
});
