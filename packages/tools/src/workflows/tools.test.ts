import { approve, answer, memoryJournal, runLoop, tool, type LoopResult, type Tool } from '@treadle/core';
import { programModel } from '@treadle/core/program';
import { manualClock } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { compileWorkflow, type Flow, type WorkflowDefinition } from './definition.ts';
import { workflowProgram } from './program.ts';
import { resultsOf } from './results.ts';
import { workflowTools } from './tools.ts';

function flowOf(text: string): Flow {
  const compiled = compileWorkflow('flow', parse(text) as WorkflowDefinition, undefined);
  if (compiled.type === 'flow') return compiled.flow;
  throw new Error(compiled.problems.map(({ path, message }) => `${path.join('.')}: ${message}`).join('\n'));
}

/** Tools that write what they were called with into a log. */
function world(): { readonly log: string[]; readonly tools: Tool[]; readonly fails: Map<string, number> } {
  const log: string[] = [];
  const fails = new Map<string, number>();
  const note = tool({
    name: 'note',
    description: 'Notes',
    input: { type: 'object' },
    effect: 'idempotent',
    execute(input) {
      const { text, value = text } = input as { readonly text: string; readonly value?: unknown };
      const left = fails.get(text) ?? 0;
      if (left > 0) {
        fails.set(text, left - 1);
        throw new Error(`${text} is broken`);
      }
      log.push(text);
      return value;
    },
  });
  return { log, tools: [note], fails };
}

interface Started {
  readonly result: LoopResult;
  readonly again: (more?: object) => Promise<LoopResult>;
  readonly journal: ReturnType<typeof memoryJournal>;
  readonly flow: Flow;
}

async function start(text: string, tools: readonly Tool[], inputs: object = {}, more: object = {}): Promise<Started> {
  const flow = flowOf(text);
  const journal = memoryJournal();
  const clock = (more as { readonly clock?: ReturnType<typeof manualClock> }).clock;
  const options = () => ({
    model: programModel(workflowProgram(flow, 1)),
    tools: workflowTools({ flow, version: '1', tools, ...(clock && { clock }) }),
    maxParallel: 128,
    journal,
    runId: 'r',
    ...more,
  });
  const result = await runLoop({ ...options(), input: JSON.stringify(inputs) });
  return { result, again: (given = {}) => runLoop({ ...options(), ...given }), journal, flow };
}

const outputOf = ({ outcome, text }: LoopResult): unknown =>
  outcome?.type === 'completed' ? JSON.parse(text) : (outcome ?? 'waiting');

describe('the steps of a workflow', () => {
  test('take inputs and outputs of others, in text and as values', async () => {
    const { tools, log } = world();
    const { result } = await start(
      `
steps:
  - { id: a, action: run_tool, tool: note, inputs: { text: "hello \${{ inputs.name }}", value: { n: "\${{ inputs.n }}" } } }
  - { id: b, action: transform, inputs: { twice: "\${{ steps.a.output.n * 2 }}", plain: 1, list: ["\${{ steps.a.output.n }}", x] } }
outputs: { result: "\${{ steps.b.output }}", status: "\${{ steps.a.status }}" }
`,
      tools,
      { name: 'Ada', n: 4 },
    );
    expect(outputOf(result)).toEqual({ result: { twice: 8, plain: 1, list: [4, 'x'] }, status: 'done' });
    expect(log).toEqual(['hello Ada']);
  });

  test('conditions skip what is not taken, and a join goes on', async () => {
    const { tools, log } = world();
    const text = `
steps:
  - { id: big, action: condition, if: inputs.n > 3, then: [many], else: [few] }
  - { id: many, action: run_tool, tool: note, inputs: { text: many } }
  - { id: few, action: run_tool, tool: note, inputs: { text: few } }
  - { id: after_few, action: run_tool, tool: note, depends_on: few, inputs: { text: after few } }
  - { id: join, action: transform, inputs: { many: "\${{ steps.many.output }}", few: "\${{ steps.few.output }}" } }
  - { id: never, action: run_tool, tool: note, when: inputs.n == 0, inputs: { text: never } }
outputs: { join: "\${{ steps.join.output }}", never: "\${{ steps.never.status }}" }
`;
    const { result } = await start(text, tools, { n: 4 });
    expect(outputOf(result)).toEqual({ join: { many: 'many', few: null }, never: 'skipped' });
    expect(log).toEqual(['many']);
  });

  test('sleep for texts, and until times without a time zone, which are in UTC', async () => {
    const clock = manualClock(Date.parse('2030-01-31T07:58:30Z'));
    const text = `
steps:
  - { id: a, action: sleep, for: "\${{ inputs.wait }}" }
  - { id: b, action: sleep, until: 2030-01-31T08:00, depends_on: a }
  - { id: c, action: transform, value: "\${{ {'x': {'y': inputs.wait}} }}", depends_on: b }
`;
    const { result, again } = await start(text, [], { wait: '90s' }, { clock });
    expect(result.waiting).toHaveLength(1);
    await clock.advance(89_999);
    expect((await again()).outcome).toBeUndefined();
    await clock.advance(1);
    expect(outputOf(await again())).toEqual({ c: { x: { y: '90s' } } });
  });

  test('expressions calculate with all numbers, and a result that is too large is refused', async () => {
    const text = `
steps:
  - { id: odd, action: transform, value: "\${{ inputs.list.filter(x, x % inputs.two == 1) }}" }
  - { id: rest, action: transform, value: "\${{ 7 % inputs.two + inputs.two % 7 }}" }
`;
    const inputs = { list: [1, 2, 3], two: 2 };
    expect(outputOf((await start(text, [], inputs)).result)).toEqual({ odd: [1, 3], rest: 3 });
    const large = 'steps: [{ id: a, action: transform, value: "${{ inputs.list.map(x, inputs.text) }}" }]';
    const { result } = await start(large, [], { list: [1, 2, 3], text: 'x'.repeat(4_000_000) });
    expect(result.outcome).toMatchObject({ error: { message: expect.stringContaining('its result is too large') } });
    const missing = 'steps: [{ id: a, action: transform, value: 1 }]\noutputs: { x: "${{ inputs.none }}" }';
    expect((await start(missing, [])).result.outcome).toMatchObject({
      error: { message: expect.stringMatching(/^The outputs cannot be returned: "inputs" has no "none"/) },
    });
  });

  test('retry, continue, and go to a handler', async () => {
    const { tools, log, fails } = world();
    fails.set('flaky', 2).set('lost', 9).set('bad', 9);
    const clock = manualClock();
    const { result, again } = await start(
      `
steps:
  - { id: flaky, action: run_tool, tool: note, inputs: { text: flaky }, retry: { times: 3, delay: 10s } }
  - { id: lost, action: run_tool, tool: note, inputs: { text: lost }, on_error: continue }
  - { id: bad, action: run_tool, tool: note, inputs: { text: bad }, on_error: instead }
  - { id: instead, action: run_tool, tool: note, inputs: { text: "instead: \${{ error.message }}" } }
  - { id: end, action: transform, inputs: { flaky: "\${{ steps.flaky.output }}", lost: "\${{ steps.lost.error.type }}", bad: "\${{ steps.bad.output }}" } }
outputs: "\${{ steps.end.output }}"
`,
      tools,
      {},
      { clock },
    );
    expect(result.wakeAt).toBe(10_000);
    await clock.advance(10_000);
    expect((await again()).wakeAt).toBe(30_000);
    await clock.advance(20_000);
    expect(outputOf(await again())).toEqual({
      flaky: 'flaky',
      lost: 'execution_failed',
      bad: expect.stringContaining('instead:'),
    });
    expect(log).toContain('flaky');
  });

  test('a failure ends the workflow with the step and the reason', async () => {
    const { tools, fails } = world();
    fails.set('a', 1);
    const { result } = await start(`steps: [{ id: a, action: run_tool, tool: note, inputs: { text: a } }]`, tools);
    expect(result.outcome).toMatchObject({
      type: 'failed',
      error: { code: 'step-failed', message: expect.stringMatching(/The step "a" failed: .*a is broken/) },
    });
  });

  test('maps take each item, directly or with several steps', async () => {
    const { tools, fails } = world();
    const text = `
steps:
  - id: plain
    action: map
    over: inputs.items
    steps: [{ id: one, action: run_tool, tool: note, inputs: { text: "\${{ item.name }}", value: "\${{ index }}" } }]
  - id: deep
    action: map
    over: inputs.items
    as: entry
    limit: 2
    steps:
      - { id: first, action: run_tool, tool: note, inputs: { text: "\${{ entry.name }}" } }
      - { id: second, action: transform, value: "\${{ steps.first.output + '!' }}" }
outputs: { plain: "\${{ steps.plain.output }}", deep: "\${{ steps.deep.output }}" }
`;
    const items = [{ name: 'x' }, { name: 'y' }, { name: 'z' }];
    const { result } = await start(text, tools, { items });
    expect(outputOf(result)).toEqual({ plain: [0, 1, 2], deep: ['x!', 'y!', 'z!'] });
    fails.set('y', 9);
    const broken = await start(text, tools, { items });
    expect(broken.result.outcome).toMatchObject({ error: { message: expect.stringContaining('Item 1 failed') } });
    const empty = await start(text, tools, { items: [] });
    expect(outputOf(empty.result)).toEqual({ plain: [], deep: [] });
  });

  test('a parallel step returns what its steps return', async () => {
    const { tools } = world();
    const { result } = await start(
      `
steps:
  - id: both
    action: parallel
    steps:
      - { id: x, action: run_tool, tool: note, inputs: { text: x } }
      - { id: y, action: run_tool, tool: note, inputs: { text: y } }
`,
      tools,
    );
    expect(outputOf(result)).toEqual({ both: { x: 'x', y: 'y' } });
  });

  test('approvals and questions wait for people', async () => {
    const { tools } = world();
    const { result, again } = await start(
      `
steps:
  - { id: ok, action: wait_approval, message: "Send \${{ inputs.n }}?", timeout: 2h }
  - { id: how, action: ask, question: How?, choices: [fast, slow], depends_on: ok }
  - { id: many, action: ask, question: How many?, schema: { type: integer }, depends_on: how }
outputs: { how: "\${{ steps.how.output }}", many: "\${{ steps.many.output }}" }
`,
      tools,
      { n: 3 },
    );
    const [wait] = result.waiting;
    expect(wait).toMatchObject({
      type: 'approval',
      call: { label: 'ok', arguments: expect.stringContaining('Send 3?') },
    });
    const asked = await again({ answers: [approve(wait as never)] });
    expect(asked.waiting[0]).toMatchObject({
      type: 'question',
      question: { prompt: 'How?', choices: ['fast', 'slow'] },
    });
    const more = await again({ answers: [answer(asked.waiting[0]!, 'slow')] });
    expect(outputOf(await again({ answers: [answer(more.waiting[0]!, 3)] }))).toEqual({ how: 'slow', many: 3 });
  });
});

describe('branches', () => {
  /** c needs a and b, d needs only a: no order of turns lets d go on without b. */
  const N = `
steps:
  - { id: a, action: run_tool, tool: note, inputs: { text: a } }
  - { id: b, action: wait_approval, message: b }
  - { id: c, action: run_tool, tool: note, inputs: { text: "c after \${{ steps.a.output }}" }, depends_on: [a, b] }
  - { id: d, action: run_tool, tool: note, inputs: { text: d }, depends_on: a }
  - { id: e, action: run_tool, tool: note, inputs: { text: e }, depends_on: [c, d] }
`;

  test('a slow approval stops only what depends on it', async () => {
    const { tools, log } = world();
    const { result, again, journal, flow } = await start(N, tools);
    expect(log).toEqual(['a', 'd']);
    expect(result.waiting.filter(({ type }) => type === 'approval')).toHaveLength(1);
    const { results } = await resultsOf(journal, 'r', flow);
    expect(
      Object.entries(results)
        .map(([id, { status }]) => `${id} ${status}`)
        .toSorted(),
    ).toEqual(['a done', 'd done']);
    const wait = result.waiting.find(({ type }) => type === 'approval')!;
    const done = await again({ answers: [approve(wait as never)] });
    expect(outputOf(done)).toEqual({ e: 'e' });
    expect(log).toEqual(['a', 'd', 'c after a', 'e']);
  });

  test('at most the limit work at once', async () => {
    let now = 0;
    let most = 0;
    const slow = tool({
      name: 'slow',
      description: 'Slow',
      effect: 'pure',
      async execute() {
        most = Math.max(most, ++now);
        await new Promise((resolve) => setImmediate(resolve));
        now--;
        return 1;
      },
    });
    const steps = Array.from({ length: 12 }, (_, n) => `  - { id: s${n}, action: run_tool, tool: slow }`).join('\n');
    const { result } = await start(`limit: 3\nsteps:\n${steps}`, [slow]);
    expect(Object.keys(outputOf(result) as object)).toHaveLength(12);
    expect(most).toBe(3);
  });

  test('a failure stops branches that wait for people, and undoes what is done', async () => {
    const { tools, log, fails } = world();
    fails.set('bad', 1);
    const text = `
undo_on: [failed]
steps:
  - { id: paid, action: run_tool, tool: note, inputs: { text: paid }, undo: refund }
  - { id: refund, action: run_tool, tool: note, inputs: { text: "refund \${{ steps.paid.output }}: \${{ error.step }}" } }
  - { id: packed, action: run_tool, tool: note, inputs: { text: packed }, depends_on: paid, undo: unpack }
  - { id: unpack, action: run_tool, tool: note, inputs: { text: unpack } }
  - { id: ok, action: wait_approval, message: ok, depends_on: packed }
  - { id: bad, action: run_tool, tool: note, inputs: { text: bad }, depends_on: paid }
`;
    const { result, again } = await start(text, tools);
    const ended = result.outcome ? result : await again();
    expect(ended.outcome).toMatchObject({ error: { message: expect.stringContaining('The step "bad" failed') } });
    expect(log).toEqual(['paid', 'packed', 'unpack', 'refund paid: bad']);
  });

  test('several failures while a branch waits for a person end the workflow as failed', async () => {
    const { tools, fails } = world();
    fails.set('b', 9).set('c', 9);
    const steps = ['b', 'c'].map(
      (id) => `  - { id: ${id}, action: run_tool, tool: note, inputs: { text: ${id} }, timeout: 1m }`,
    );
    const text = `steps:\n  - { id: ok, action: wait_approval, message: ok }\n${steps.join('\n')}`;
    const { result, again } = await start(text, tools);
    const ended = result.outcome ? result : await again();
    expect(ended.outcome).toMatchObject({ type: 'failed', error: { message: expect.stringContaining('is broken') } });
  });

  test('a step that takes too long fails with timeout, and may be repeated', async () => {
    let calls = 0;
    const hangs = tool({
      name: 'hangs',
      description: 'Hangs once',
      effect: 'pure',
      execute: (_, { signal }) =>
        calls++ > 0
          ? 'done'
          : new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
    });
    const step = '{ id: s, action: run_tool, tool: hangs, timeout: 10ms, retry: { times: 2, on: timeout } }';
    const { result } = await start(`steps: [${step}]`, [hangs]);
    expect(outputOf(result)).toEqual({ s: 'done' });
  });

  test('a step whose effect is not known, or that did a part, is undone too', async () => {
    const { tools, log, fails } = world();
    fails.set('bad', 9).set('second', 9);
    const hangs = tool({
      name: 'hangs',
      description: 'Hangs',
      effect: 'idempotent',
      execute: () => new Promise(() => {}),
    });
    let calls = 0;
    const later = tool({
      name: 'later',
      description: 'Hangs, and then fails',
      effect: 'idempotent',
      execute: () => (calls++ === 0 ? new Promise(() => {}) : Promise.reject(new Error('no'))),
    });
    const undo = (id: string): string =>
      `  - { id: un_${id}, action: run_tool, tool: note, inputs: { text: un ${id} } }`;
    const text = `
undo_on: [failed]
steps:
  - { id: late, action: run_tool, tool: hangs, timeout: 10ms, on_error: continue, undo: un_late }
  - { id: twice, action: run_tool, tool: later, timeout: 10ms, retry: { times: 2, on: [timeout] }, on_error: continue, undo: un_twice, depends_on: late }
  - id: half
    action: parallel
    steps:
      - { id: first, action: run_tool, tool: note, inputs: { text: first } }
      - { id: second, action: run_tool, tool: note, inputs: { text: second } }
    on_error: continue
    undo: un_half
    depends_on: twice
  - { id: refused, action: run_tool, tool: note, inputs: { text: bad }, on_error: continue, undo: un_refused, depends_on: half }
  - { id: bad, action: run_tool, tool: note, inputs: { text: bad }, depends_on: refused }
${['late', 'twice', 'half', 'refused'].map(undo).join('\n')}
`;
    const { result } = await start(text, [...tools, hangs, later]);
    expect(result.outcome).toMatchObject({ error: { message: expect.stringContaining('The step "bad" failed') } });
    expect(log).toEqual(['first', 'un half', 'un twice', 'un late']);
  });

  test('a chain of 1,000 steps is 1,000 turns of one run', async () => {
    const { tools, log } = world();
    const steps = Array.from({ length: 1_000 }, (_, n) => {
      const after = n === 0 ? '' : `, depends_on: s${n - 1}`;
      return `  - { id: s${n}, action: run_tool, tool: note, inputs: { text: t${n} }${after} }`;
    });
    const { result } = await start(`steps:\n${steps.join('\n')}`, tools);
    expect(outputOf(result)).toEqual({ s999: 't999' });
    expect(result.turns).toBe(1_001);
    expect(log).toHaveLength(1_000);
  });
});
