import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  answer,
  approve,
  memoryJournal,
  replay,
  runLoop,
  tool,
  waiting,
  type Answer,
  type LoopResult,
  type Model,
  type RunStore,
  type Tool,
  type Waiting,
} from '@treadle/core';
import {
  agentHost,
  agentModel,
  agentRun,
  agentTools,
  type AgentRegistry,
  type NamedAgent,
} from '@treadle/core/named-agents';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { checkWorkflow, workflowHost } from '@treadle/tools/workflows';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { randomFrom } from '../random.ts';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';

/* Workflows that die at each append of their journals, large ones, and approvals that are answered at two servers. */

function workflow(text: string): NamedAgent {
  const checked = checkWorkflow(parse(text) as Record<string, unknown>);
  if (checked.type === 'agent') return checked.agent;
  throw new Error(JSON.stringify(checked.problems));
}

const EVERY_ACTION = (last: string): string => `
name: all
description: Has steps of every action
undo_on: [failed]
steps:
  - { id: pay, action: run_tool, tool: act, inputs: { text: pay }, undo: refund }
  - { id: refund, action: run_tool, tool: act, inputs: { text: "refund \${{ steps.pay.output }}" } }
  - { id: list, action: transform, value: "\${{ [1, 2, 3] }}" }
  - id: each
    action: map
    over: steps.list.output
    limit: 2
    steps: [{ id: one, action: run_tool, tool: act, inputs: { text: "item \${{ item + 1 }}" } }]
    undo: unpack
  - { id: unpack, action: run_tool, tool: act, inputs: { text: "unpack \${{ size(steps.each.output) }}" }, retry: 2 }
  - id: both
    action: parallel
    depends_on: pay
    steps:
      - { id: x, action: run_tool, tool: act, inputs: { text: x } }
      - { id: y, action: transform, value: "\${{ size('four') }}" }
  - { id: sub, action: sub_workflow, workflow: inner, inputs: { text: sub }, depends_on: pay }
  - { id: agent, action: invoke_agent, agent: helper, inputs: { task: help }, depends_on: both }
  - { id: nap, action: sleep, for: 5s, depends_on: sub }
  - { id: ok, action: wait_approval, message: ok, depends_on: pay }
  - { id: how, action: ask, question: How?, choices: [fast, slow], depends_on: ok }
  - { id: quick, action: condition, if: steps.how.output == 'fast', then: [run], else: [walk] }
  - { id: run, action: run_tool, tool: act, inputs: { text: run }, retry: { times: 2, delay: 1s } }
  - { id: walk, action: run_tool, tool: act, inputs: { text: walk } }
  - { id: lost, action: run_tool, tool: act, inputs: { text: broken }, on_error: found, depends_on: nap }
  - { id: found, action: run_tool, tool: act, inputs: { text: "found after \${{ error.type }}" } }
  - { id: last, action: run_tool, tool: act, inputs: { text: ${last} }, depends_on: [each, agent, run, walk, lost] }
outputs: { each: "\${{ steps.each.output }}", both: "\${{ steps.both.output }}", last: "\${{ steps.last.output }}", sub: "\${{ steps.sub.output }}", agent: "\${{ steps.agent.output }}", lost: "\${{ steps.lost.output }}" }
`;

const INNER = `
name: inner
description: Is called
inputs: { text: { type: string, required: true } }
steps: [{ id: only, action: run_tool, tool: act, inputs: { text: "inner \${{ inputs.text }}" } }]
`;

const HELPER: NamedAgent = { name: 'helper', description: 'Helps', tools: ['act'] };

/** Calls its tool once, and answers. */
const model: Model = {
  id: 'm',
  async reply({ messages }) {
    const usage = { inputTokens: 1, outputTokens: 1 };
    const call = { type: 'tool-call', id: 'c', name: 'act', arguments: '{"text":"help"}' } as const;
    const isFirst = messages.length === 1;
    const content = isFirst ? [call] : [{ type: 'text' as const, text: 'helped' }];
    return { type: 'reply', content, finish: isFirst ? 'tool-calls' : 'stop', usage, model: 'm' };
  },
};

function registryOf(agents: readonly NamedAgent[]): AgentRegistry {
  const all = new Map(agents.map((one) => [one.name, one]));
  return { list: () => [...all.values()], get: (name) => all.get(name), onChange: () => () => {} };
}

/** What is outside of the processes: it accepts each key once. */
interface Outside {
  readonly acts: { readonly key: string; readonly text: string }[];
  readonly flaky: Set<string>;
}

interface Death {
  /** The append at which the process dies, from 0. */
  readonly at: number;
  /** Whether the entries were stored. */
  readonly isStored: boolean;
}

/** Starts or resumes the run until it ends or waits, or the process dies. */
async function live(
  agents: readonly NamedAgent[],
  {
    base,
    outside,
    clock,
    death,
  }: {
    readonly base: RunStore;
    readonly outside: Outside;
    readonly clock: ReturnType<typeof manualClock>;
    readonly death?: Death | undefined;
  },
): Promise<{ readonly result: LoopResult | undefined; readonly appends: number }> {
  let appends = 0;
  let isDead = false;
  const journal: RunStore = {
    ...base,
    async append(...entries) {
      if (isDead) throw new Error('The process is dead.');
      if (appends++ === death?.at) {
        isDead = true;
        if (death.isStored) await base.append(...entries);
        throw new Error('The process dies.');
      }
      await base.append(...entries);
    },
  };
  const act: Tool = tool({
    name: 'act',
    description: 'Acts',
    input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
    effect: 'idempotent',
    touches: () => [],
    execute({ text }, { key }) {
      if (isDead) throw new Error('The process is dead.');
      if (text === 'broken') throw new Error('broken');
      if (text === 'run' && !outside.flaky.has('run')) {
        outside.flaky.add('run');
        throw new Error('not yet');
      }
      if (!outside.acts.some((one) => one.key === key)) outside.acts.push({ key: key!, text: String(text) });
      return `did ${String(text)}`;
    },
  });
  const host = agentHost({
    registry: registryOf([...agents, HELPER]),
    model: () => model,
    tools: [act],
    workflows: workflowHost({ clock }),
  });
  const [agent] = agents as [NamedAgent];
  const common = { journal, clock, runId: 'r' };
  const entries = await base.read('r');
  try {
    const result =
      entries.length === 0
        ? await runLoop({ ...common, ...agentRun(agent, { inputs: {} }, host) })
        : await runLoop({
            ...common,
            ...agentTools(agent, host),
            model: agentModel(agent, host),
            maxParallel: 128,
            answers: waiting(replay(entries).state).flatMap(answersTo),
          });
    if (!isDead) return { result, appends };
  } catch (error) {
    if (!isDead) throw error;
  }
  return { result: undefined, appends };
}

function answersTo(wait: Waiting): readonly Answer[] {
  if (wait.type === 'approval') return [approve(wait)];
  return wait.type === 'question' ? [answer(wait, 'fast')] : [];
}

/** Lives until the end. The first process may die, and the second one too. */
async function finish(agents: readonly NamedAgent[], deaths: readonly Death[] = []) {
  const outside: Outside = { acts: [], flaky: new Set() };
  const base = memoryJournal() as unknown as RunStore;
  const clock = manualClock();
  let appends = 0;
  for (let life = 0; life < 40; life++) {
    const lived = await live(agents, { base, outside, clock, death: deaths[life] });
    appends += lived.appends;
    const { result } = lived;
    if (result?.outcome) return { outcome: result.outcome, text: result.text, outside, appends };
    // Longer than the workflow sleeps, and not as long as an approval waits.
    await clock.advance(6_000);
  }
  throw new Error('The run does not end.');
}

describe.each([
  ['that completes', 'end'],
  ['that fails and is undone', 'broken'],
])('a workflow with every action, %s', (_, last) => {
  const agents = [workflow(EVERY_ACTION(last)), workflow(INNER)];

  test.each([
    ['before', false],
    ['after', true],
  ])('survives a death %s each append is stored', async (__, isStored) => {
    const reference = await finish(agents);
    const texts = reference.outside.acts.map(({ text }) => text).toSorted();
    expect(reference.outcome.type).toBe(last === 'end' ? 'completed' : 'failed');
    if (last === 'broken')
      expect(reference.outside.acts.slice(-2).map(({ text }) => text)).toEqual(['unpack 3', 'refund did pay']);
    process.stdout.write(`${reference.appends} appends\n`);
    for (let at = 0; at < reference.appends; at++) {
      // The process that goes on dies too, a little later.
      const deaths = [
        { at, isStored },
        { at: at % 7, isStored: !isStored },
      ];
      const { outcome, text, outside } = await finish(agents, deaths);
      expect({ at, outcome, text }).toEqual({ at, outcome: reference.outcome, text: reference.text });
      expect(outside.acts.map((one) => one.text).toSorted()).toEqual(texts);
      if (last === 'broken')
        expect(outside.acts.slice(-2).map((one) => one.text)).toEqual(['unpack 3', 'refund did pay']);
    }
  });
});

test('1,000 steps beside each other, and a map over 500 items of two steps each', async () => {
  const wide = Array.from(
    { length: 1_000 },
    (_, n) => `  - { id: s${n}, action: run_tool, tool: act, inputs: { text: s${n} } }`,
  );
  const started = process.cpuUsage();
  const first = await finish(
    [workflow(`name: wide\ndescription: x\nsteps:\n${wide.join('\n')}`)],
    [{ at: 900, isStored: true }],
  );
  expect(first.outcome).toEqual({ type: 'completed' });
  expect(Object.keys(JSON.parse(first.text) as object)).toHaveLength(1_000);
  expect(new Set(first.outside.acts.map(({ text }) => text)).size).toBe(1_000);
  expect(first.outside.acts).toHaveLength(1_000);
  const map = `
name: many
description: x
steps:
  - { id: list, action: transform, value: [${Array.from({ length: 500 }, (_, n) => n).join(', ')}] }
  - id: each
    action: map
    over: steps.list.output
    steps:
      - { id: a, action: run_tool, tool: act, inputs: { text: "a \${{ item }}" } }
      - { id: b, action: run_tool, tool: act, inputs: { text: "b \${{ steps.a.output }} \${{ index * 2 }}" } }
outputs: { each: "\${{ steps.each.output }}" }
`;
  const second = await finish(
    [workflow(map)],
    [
      { at: 700, isStored: false },
      { at: 700, isStored: true },
    ],
  );
  expect((JSON.parse(second.text) as { each: unknown[] }).each).toEqual(
    Array.from({ length: 500 }, (_, n) => `did b did a ${n} ${n * 2}`),
  );
  expect(second.outside.acts).toHaveLength(1_000);
  process.stdout.write(`${Math.round(process.cpuUsage(started).user / 1_000)} ms CPU\n`);
});

test('an expression that takes too long is stopped', async () => {
  const list = JSON.stringify(Array.from({ length: 5_000 }, (_, n) => n));
  const slow = 'steps.list.output.map(x, steps.list.output.filter(y, y > x).size())';
  const steps = `  - { id: list, action: transform, value: ${list} }\n  - { id: slow, action: transform, value: "\${{ ${slow} }}" }`;
  const { outcome } = await finish([workflow(`name: slow\ndescription: x\nsteps:\n${steps}`)]);
  expect(outcome).toMatchObject({ error: { message: expect.stringContaining('took longer than 1 second') } });
});

describe('ten approvals in different branches', () => {
  const steps = Array.from(
    { length: 10 },
    (_, n) => `
  - { id: ok${n}, action: wait_approval, message: "Approve ${n}?" }
  - { id: act${n}, action: run_tool, tool: note, inputs: { text: "${n}" }, depends_on: [ok${n}] }
  - { id: late${n}, action: transform, value: ${n}, depends_on: [act${n}, act${(n + 3) % 10}] }`,
  );
  const TEN = workflow(`name: ten\ndescription: x\nsteps:${steps.join('')}`);

  test.each([1, 2, 3, 4, 5])('are answered in any order at two servers: seed %i', async (seed) => {
    const random = randomFrom(seed);
    const folder = mkdtempSync(join(tmpdir(), 'treadle-ten-'));
    await using cleanUp = new AsyncDisposableStack();
    cleanUp.defer(() => rmSync(folder, { recursive: true }));
    const log: string[] = [];
    const note = tool({
      name: 'note',
      description: 'Notes',
      input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
      effect: 'idempotent',
      touches: () => [],
      execute: ({ text }) => log.push(String(text)),
    });
    const namedAgents = registryOf([TEN]);
    const serve = async (): Promise<InProcessServer> => {
      const store = sqliteStore(join(folder, 'store.db'));
      cleanUp.defer(() => store.close());
      return cleanUp.use(
        await startInProcess(scriptedModel([]), { store, tools: [note], namedAgents, waitForAnswers: true }),
      );
    };
    const servers = [await serve(), await serve()];
    const any = (): InProcessServer => servers[Math.floor(random() * 2)]!;
    const { body } = await any().send('POST', '/v1/workflows/ten/execute', { background: true });
    const runOf = async () => (await any().send('GET', `/v1/workflows/ten/runs/${body.run_id}`)).body;
    const answered = new Set<string>();
    const isOpen = ({ type }: { type: string }): boolean => type === 'approval';
    await expect
      .poll(async () => (await runOf()).waiting.filter(isOpen).length, { timeout: 60_000, interval: 20 })
      .toBe(10);
    for (;;) {
      const run = await runOf();
      const open = (run.waiting as { type: string; effect: string; digest: string; call?: unknown }[]).filter(
        ({ type, effect }) => type === 'approval' && !answered.has(effect),
      );
      if (run.status === 'completed') break;
      expect(run.status).not.toBe('failed');
      // One or several at once, whatever the others are doing.
      const chosen = open.toSorted(() => random() - 0.5).slice(0, 1 + Math.floor(random() * 3));
      const answers = chosen.map(({ effect, digest }) => ({ type: 'approval', effect, digest, approved: true }));
      if (answers.length === 0) continue;
      const { status } = await any().send('POST', `/v1/runs/${body.run_id}/answers`, { answers });
      if (status < 300) for (const { effect } of chosen) answered.add(effect);
      else expect(status).toBe(409);
    }
    await expect.poll(async () => (await runOf()).status, { timeout: 120_000, interval: 20 }).toBe('completed');
    expect(log.toSorted()).toEqual(['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
  });
});
