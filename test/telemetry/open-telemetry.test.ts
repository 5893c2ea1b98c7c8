import { context as otelContext, ROOT_CONTEXT, trace, type Tracer } from '@opentelemetry/api';
import {
  agentTool,
  approve,
  forkRun,
  handoff,
  memoryJournal,
  runLoop,
  tool,
  type LoopOptions,
  type Model,
  type ModelRequest,
} from '@treadle/core';
import { openTelemetry } from '@treadle/core/otel';
import { call, programModel } from '@treadle/core/program';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { traceOf } from '@treadle/core/trace';
import { expect, test } from 'vitest';
import { recordingSdk, type RecordedSpan } from './recorded-spans.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const GIVEN = `00-${TRACE}-b7ad6b7169203331-01`;

/** `name (below the name of its parent)`, in the order of their ends. */
function tree(spans: readonly RecordedSpan[]): readonly string[] {
  const names = new Map(spans.map(({ spanId, name }) => [spanId, name]));
  return spans.map(({ name, parentId }) => `${name} < ${names.get(parentId ?? '') ?? '-'}`);
}

const echo = tool({ name: 'echo', description: 'Repeats', effect: 'pure', execute: () => 'said' });
const fail = tool({ name: 'fail', description: 'Fails', execute: () => Promise.reject(new Error('broken')) });

test('a run is a span, its model calls and tool calls are spans below it, with the names and kinds of the conventions', async () => {
  const { tracer, meter, spans, values } = recordingSdk();
  const model: Model = {
    ...scriptedModel([{ calls: [{ name: 'echo', arguments: { secret: 'x1' } }, { name: 'fail' }] }, 'secret answer']),
    provider: 'openai',
  };
  await runLoop({
    model,
    tools: [echo, fail],
    input: 'a secret',
    instructions: 'secret rules',
    settings: { temperature: 0.5 },
    session: 'chat 7',
    task: 'TRE-12',
    trace: GIVEN,
    tracing: openTelemetry({ tracer, meter }),
  });
  const run = 'invoke_agent';
  expect(tree(spans)).toEqual([
    `chat scripted < ${run}`,
    `execute_tool echo < ${run}`,
    `execute_tool fail < ${run}`,
    `chat scripted < ${run}`,
    `${run} < -`,
  ]);
  expect(spans.map(({ kind, traceId }) => [kind, traceId])).toEqual([2, 0, 0, 2, 0].map((kind) => [kind, TRACE]));
  expect(spans.at(-1)!.parentId).toBe('b7ad6b7169203331');
  expect(spans[0]!.attributes).toMatchObject({
    'gen_ai.operation.name': 'chat',
    'gen_ai.provider.name': 'openai',
    'gen_ai.request.model': 'scripted',
    'gen_ai.request.temperature': 0.5,
    'gen_ai.conversation.id': 'chat 7',
    'gen_ai.response.finish_reasons': ['tool-calls'],
    'gen_ai.usage.input_tokens': 10,
    'treadle.turn': 1,
  });
  expect(spans[2]).toMatchObject({
    isError: true,
    attributes: {
      'gen_ai.tool.name': 'fail',
      'error.type': 'execution_failed',
      'treadle.failure.code': 'F-EXE',
      'treadle.failure.category': 'tool',
      'treadle.call.status': 'error',
    },
  });
  expect(spans.at(-1)!.attributes).toMatchObject({ 'treadle.run.status': 'completed', 'treadle.task.id': 'TRE-12' });
  expect(JSON.stringify(spans)).not.toMatch(/secret|said|broken/);
  const count = (name: string): number => values.filter((one) => one.name === name).length;
  expect([count('gen_ai.client.inference.duration'), count('gen_ai.execute_tool.duration')]).toEqual([2, 2]);
  expect([count('gen_ai.invoke_agent.duration'), count('gen_ai.workflow.duration')]).toEqual([1, 0]);
});

test('the run of an agent has its name, until it is handed over', async () => {
  const { tracer, meter, spans, values } = recordingSdk();
  const billing = { name: 'billing', description: 'Bills', model: scriptedModel(['Paid.']) };
  const model = scriptedModel([{ calls: [{ name: 'hand_off_to_billing' }] }]);
  const definition = { name: 'front-desk', description: 'Receives' };
  const tracing = openTelemetry({ tracer, meter });
  await runLoop({ model, tools: [handoff(billing)], input: 'Pay.', definition, tracing });
  expect(tree(spans).slice(-2)).toEqual([
    'invoke_agent billing < invoke_agent front-desk',
    'invoke_agent front-desk < -',
  ]);
  expect(spans.at(-1)!.attributes).toMatchObject({ 'gen_ai.agent.name': 'front-desk' });
  const ran = values.find(({ name }) => name === 'gen_ai.invoke_agent.duration');
  expect(ran!.attributes).toMatchObject({ 'gen_ai.agent.name': 'front-desk' });
});

test('with content, spans have the instructions, messages, arguments and results', async () => {
  const { tracer, spans } = recordingSdk();
  const model = scriptedModel([{ calls: [{ name: 'echo', arguments: { a: 1 } }] }, 'Done.']);
  const tracing = openTelemetry({ tracer, content: true });
  await runLoop({ model, tools: [echo], input: 'Say it.', instructions: 'Be brief.', tracing });
  const [first, call, second] = spans.map(({ attributes }) => attributes);
  // Conventions: the arguments and the result of a call are objects.
  const structured = recordingSdk();
  const weigh = tool({ name: 'weigh', description: 'Weighs', effect: 'pure', execute: () => ({ kg: 3 }) });
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'weigh' }] }, 'Done.']),
    tools: [weigh],
    input: 'Weigh it.',
    tracing: openTelemetry({ tracer: structured.tracer, content: true }),
  });
  expect(structured.spans[1]!.attributes).toMatchObject({
    'gen_ai.tool.call.arguments': '{}',
    'gen_ai.tool.call.result': '{"kg":3}',
  });
  expect(JSON.parse(first!['gen_ai.system_instructions'] as string)).toEqual([{ type: 'text', content: 'Be brief.' }]);
  expect(JSON.parse(first!['gen_ai.output.messages'] as string)).toMatchObject([
    {
      role: 'assistant',
      parts: [{ type: 'tool_call', name: 'echo', arguments: { a: 1 } }],
      finish_reason: 'tool_call',
    },
  ]);
  expect(call).toMatchObject({
    'gen_ai.tool.call.arguments': '{"a":1}',
    'gen_ai.tool.call.result': '{"content":[{"type":"text","content":"said"}]}',
  });
  expect(JSON.parse(second!['gen_ai.input.messages'] as string)).toMatchObject([
    { role: 'user', parts: [{ type: 'text', content: 'Say it.' }] },
    { role: 'assistant', parts: [{ type: 'tool_call' }] },
    { role: 'tool', parts: [{ type: 'tool_call_response', response: [{ type: 'text', content: 'said' }] }] },
  ]);
  expect(JSON.parse(second!['gen_ai.tool.definitions'] as string)).toMatchObject([{ type: 'function', name: 'echo' }]);
});

test('a model call that failed says why, and counts with no tokens', async () => {
  const { tracer, meter, spans, values } = recordingSdk();
  const failure = { type: 'failure', error: { code: 'auth', message: 'no key', retryable: false } } as const;
  const model: Model = { id: 'm', provider: 'openai', reply: () => Promise.resolve(failure) };
  await runLoop({ model, input: 'Go.', tracing: openTelemetry({ tracer, meter }) });
  expect(spans[0]).toMatchObject({
    name: 'chat m',
    isError: true,
    attributes: {
      'error.type': 'auth',
      'gen_ai.response.finish_reasons': ['error'],
      'treadle.failure.category': 'model',
      'treadle.failure.code': 'F-SEC',
    },
  });
  expect(spans[0]!.attributes).not.toHaveProperty(['gen_ai.usage.input_tokens']);
  expect(spans[1]).toMatchObject({ name: 'invoke_agent', isError: true, attributes: { 'error.type': 'auth' } });
  expect(values.map(({ name, value, attributes }) => [name, value > 0, attributes['error.type']])).toEqual([
    ['gen_ai.client.inference.duration', expect.any(Boolean), 'auth'],
    ['gen_ai.client.inference.operation.input_tokens', false, 'auth'],
    ['gen_ai.client.inference.operation.output_tokens', false, 'auth'],
    ['gen_ai.client.inference.usage.input_tokens', false, undefined],
    ['gen_ai.client.inference.usage.output_tokens', false, undefined],
    ['gen_ai.invoke_agent.duration', expect.any(Boolean), 'auth'],
  ]);
  expect(JSON.stringify(spans)).not.toContain('no key');
});

test('a run that continues no trace records its own, and model calls and tools are given the traceparent of their span', async () => {
  const { tracer, spans } = recordingSdk();
  const given: (string | undefined)[] = [];
  const scripted = scriptedModel([{ calls: [{ name: 'look' }] }, 'Done.']);
  const model: Model = {
    ...scripted,
    reply: (request: ModelRequest, ...rest) => (given.push(request.traceparent), scripted.reply(request, ...rest)),
  };
  const look = tool({
    name: 'look',
    description: 'Looks',
    execute: (_, context) => void given.push(context.traceparent),
  });
  const journal = memoryJournal();
  await runLoop({ model, tools: [look], input: 'Look.', journal, runId: 'r', tracing: openTelemetry({ tracer }) });
  const [chat, call, again, run] = spans;
  expect(given).toEqual([chat, call, again].map((span) => `00-${run!.traceId}-${span!.spanId}-01`));
  expect((await traceOf(await journal.read('r')))!.traceId).toBe(run!.traceId);
  const untraced: LoopOptions = { model: scriptedModel(['Done.']), input: 'Go.', journal, runId: 'u' };
  await runLoop(untraced);
  expect((await journal.read('u'))[0]!.event).not.toHaveProperty('trace');
});

test('child runs, handoffs, workflows and forks of forks are parts of one trace', async () => {
  const { tracer, spans } = recordingSdk();
  const tracing = openTelemetry({ tracer });
  const journal = memoryJournal();
  const helper = agentTool({
    name: 'helper',
    description: 'Helps',
    model: scriptedModel([{ calls: [{ name: 'echo' }] }, 'Helped.']),
    tools: [echo],
  });
  const billing = { name: 'billing', description: 'Bills', model: scriptedModel(['Paid.']), tools: [echo] };
  const model = scriptedModel([
    { calls: [{ name: 'helper', arguments: { task: 'x' } }] },
    { calls: [{ name: 'hand_off_to_billing' }] },
  ]);
  await runLoop({ model, tools: [helper, handoff(billing)], input: 'Go.', journal, runId: 'r', tracing });
  expect(tree(spans)).toEqual([
    'chat scripted < invoke_agent',
    'chat scripted < invoke_agent',
    'execute_tool echo < invoke_agent',
    'chat scripted < invoke_agent',
    'invoke_agent < execute_tool helper',
    'execute_tool helper < invoke_agent',
    'chat scripted < invoke_agent',
    'execute_tool hand_off_to_billing < invoke_agent',
    'chat scripted < invoke_agent billing',
    'invoke_agent billing < invoke_agent',
    'invoke_agent < -',
  ]);
  expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(1);

  const fork = await forkRun({ journal, runId: 'r', at: 1, newRunId: 'f' });
  const second = await forkRun({ journal, runId: fork, at: 1, newRunId: 'g' });
  const ids = await Promise.all(
    ['r', fork, second, 'r.t1.tool.0'].map(async (id) => (await traceOf(await journal.read(id)))!.traceId),
  );
  expect(new Set(ids)).toEqual(new Set([spans[0]!.traceId]));
  // Also of runs that were not traced when they were made.
  await runLoop({ model: scriptedModel(['Done.']), input: 'Go.', journal, runId: 'u' });
  const first = await forkRun({ journal, runId: 'u', at: 1, newRunId: 'u1' });
  await forkRun({ journal, runId: first, at: 1, newRunId: 'u2' });
  const derived = await Promise.all(
    ['u', 'u1', 'u2'].map(async (id) => (await traceOf(await journal.read(id)))!.traceId),
  );
  expect(new Set(derived).size).toBe(1);
});

test('a call that is cancelled says so, and is no failure of the infrastructure', async () => {
  const { tracer, meter, spans } = recordingSdk();
  const stop = new AbortController();
  const hang = tool({ name: 'hang', description: 'Hangs', execute: () => new Promise(() => stop.abort()) });
  const model = scriptedModel([{ calls: [{ name: 'hang' }] }]);
  await runLoop({
    model,
    tools: [hang],
    input: 'Go.',
    signal: stop.signal,
    tracing: openTelemetry({ tracer, meter }),
  });
  const { attributes } = spans.find(({ name }) => name === 'execute_tool hang')!;
  expect(attributes).toMatchObject({ 'error.type': 'cancelled' });
  expect(attributes).not.toHaveProperty('treadle.failure.category');
});

test('a tracer that throws costs spans, and nothing else', async () => {
  const broken = {
    startSpan() {
      throw new Error('no spans today');
    },
  } as unknown as Tracer;
  const model = scriptedModel([{ calls: [{ name: 'echo' }] }, 'Done.']);
  const result = await runLoop({ model, tools: [echo], input: 'Go.', tracing: openTelemetry({ tracer: broken }) });
  expect(result.text).toBe('Done.');
  const tracing = {
    follow() {
      throw new Error('no runs today');
    },
  };
  expect((await runLoop({ model: scriptedModel(['Done.']), input: 'Go.', tracing })).text).toBe('Done.');
  expect(() => openTelemetry({ tracer: {} as Tracer })).toThrow('Pass trace.getTracer(name)');
});

test('without an SDK nothing is made, and the run records no trace', async () => {
  const journal = memoryJournal();
  const { text } = await runLoop({
    model: scriptedModel(['Done.']),
    input: 'Go.',
    journal,
    runId: 'r',
    tracing: openTelemetry(),
  });
  expect([text, (await journal.read('r'))[0]!.event]).toEqual([
    'Done.',
    expect.not.objectContaining({ trace: expect.anything() }),
  ]);
});

test('the span that the program is in is the parent of the run', async () => {
  const { tracer, spans } = recordingSdk();
  const outer = tracer.startSpan('request', { startTime: [0, 0] });
  const active = trace.setSpan(ROOT_CONTEXT, outer);
  const manager = {
    active: () => active,
    with: (_: unknown, act: () => unknown) => act(),
    bind: (_: unknown, x: unknown) => x,
  };
  otelContext.setGlobalContextManager({ ...manager, enable: () => manager, disable: () => manager } as never);
  try {
    await runLoop({ model: scriptedModel(['Done.']), input: 'Go.', tracing: openTelemetry({ tracer }) });
  } finally {
    otelContext.disable();
  }
  expect(spans.at(-1)).toMatchObject({ name: 'invoke_agent', parentId: outer.spanContext().spanId });
});

test('the spans of an interrupted call, and of one that waited for a person, end in the process that resumes the run', async () => {
  const clock = manualClock(1_000);
  const journal = memoryJournal();
  const before = recordingSdk();
  const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });
  const first = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'pay' }] }]),
    tools: [pay],
    input: 'Pay.',
    journal,
    runId: 'r',
    clock,
    tracing: openTelemetry({ tracer: before.tracer }),
  });
  expect(tree(before.spans)).toEqual([
    'chat scripted < invoke_agent',
    'treadle.check policy < invoke_agent',
    'invoke_agent < -',
  ]);
  await clock.advance(60_000);
  const after = recordingSdk();
  await runLoop({
    model: scriptedModel(['Done.']),
    tools: [pay],
    journal,
    runId: 'r',
    clock,
    answers: [approve(first.waiting[0]!)],
    tracing: openTelemetry({ tracer: after.tracer, meter: after.meter }),
  });
  const wait = after.spans.find(({ name }) => name === 'treadle.wait pay')!;
  expect(wait.endedAt - wait.startedAt).toBe(60_000);
  expect(new Set([...before.spans, ...after.spans].map(({ traceId }) => traceId)).size).toBe(1);
  expect(after.spans.at(-1)).toMatchObject({ name: 'invoke_agent', attributes: { 'treadle.run.resumed': true } });
  expect(after.values.filter(({ name }) => name === 'gen_ai.client.inference.duration')).toHaveLength(1);
});

test('a run whose model is a program is a workflow, without spans for the program itself', async () => {
  const { tracer, meter, spans, values } = recordingSdk();
  const nightly = programModel({
    name: 'nightly',
    version: 1,
    *run() {
      return String(yield* call('echo', {}));
    },
  });
  await runLoop({ model: nightly, tools: [echo], input: '{}', tracing: openTelemetry({ tracer, meter }) });
  expect(tree(spans)).toEqual(['execute_tool echo < invoke_workflow nightly', 'invoke_workflow nightly < -']);
  expect(values.map(({ name }) => name)).toEqual(['gen_ai.execute_tool.duration', 'gen_ai.workflow.duration']);
});
