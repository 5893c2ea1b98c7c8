import { tool, type Ledger } from '@treadle/core';
import type { AgentRegistry, NamedAgent } from '@treadle/core/named-agents';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Store } from '@treadle/store';
import { checkWorkflow } from '@treadle/tools/workflows';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

/* The workflows API. What steps do is tested in packages/tools/src/workflows. */

let cleanUp: AsyncDisposableStack;
let store: Store;
let log: string[];
/** What the tool waits for. */
let blocked: PromiseWithResolvers<void> | undefined;
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  store = cleanUp.adopt(await openTestStore(), (one) => one.close());
  log = [];
  blocked = undefined;
});
afterEach(() => cleanUp.disposeAsync());

const note = tool({
  name: 'note',
  description: 'Notes a text',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  effect: 'idempotent',
  touches: () => [],
  async execute({ text }) {
    log.push(String(text));
    await blocked?.promise;
    return `noted ${String(text)}`;
  },
});

const PUBLISH = `
name: publish
description: Publishes
inputs: { topic: { type: string, required: true } }
undo_on: [cancelled]
steps:
  - { id: draft, action: run_tool, tool: note, inputs: { text: "draft of \${{ inputs.topic }}" }, undo: discard }
  - { id: discard, action: run_tool, tool: note, inputs: { text: "discard \${{ steps.draft.output }}" } }
  - { id: ok, action: wait_approval, message: "Publish \${{ inputs.topic }}?", depends_on: draft }
  - { id: count, action: run_tool, tool: note, inputs: { text: count }, depends_on: draft }
  - { id: out, action: run_tool, tool: note, inputs: { text: out }, depends_on: [ok, count] }
outputs: { text: "\${{ steps.out.output }}" }
`;
const QUICK = `
name: quick
description: Notes at once
inputs: { text: { type: string, default: hello } }
steps: [{ id: one, action: run_tool, tool: note, inputs: { text: "\${{ inputs.text }}" } }]
`;
const LACKING = `
name: lacking
description: Calls a tool with what it does not take
steps:
  - { id: first, action: run_tool, tool: note, inputs: { text: first } }
  - { id: last, action: run_tool, tool: note, inputs: { text: 7 }, depends_on: first }
`;
const SPEND = `
name: spend
description: Does more than its budget allows
undo_on: [failed]
steps:
  - { id: draft, action: run_tool, tool: note, inputs: { text: draft }, undo: discard }
  - { id: discard, action: run_tool, tool: note, inputs: { text: "discard \${{ steps.draft.output }}: \${{ error.type }}" } }
  - { id: left, action: run_tool, tool: note, inputs: { text: left }, depends_on: draft, undo: leave }
  - { id: right, action: run_tool, tool: note, inputs: { text: right }, depends_on: draft, undo: leave }
  - { id: leave, action: run_tool, tool: note, inputs: { text: leave } }
  - { id: out, action: run_tool, tool: note, inputs: { text: out }, depends_on: [left, right] }
  - { id: never, action: run_tool, tool: note, inputs: { text: never }, depends_on: out, undo: leave }
`;
const SUMS = `
name: sums
description: Calculates
inputs: { list: { type: array, default: [1, 2, 3] }, most: { type: integer, default: 5 } }
steps:
  - { id: sum, action: transform, value: { of: "\${{ inputs.list }}", size: "\${{ size(inputs.list) }}" } }
  - { id: large, action: condition, if: steps.sum.output.size > inputs.most, then: [much] }
  - { id: much, action: transform, value: "\${{ steps.sum.output }}" }
`;
const AGAIN = `
name: again
description: Tries again
undo_on: [cancelled]
steps:
  - { id: late, action: run_tool, tool: note, inputs: { text: late }, retry: { times: 2, on: [interrupted] }, undo: back }
  - { id: back, action: run_tool, tool: note, inputs: { text: back } }
`;
const WRITER: NamedAgent = { name: 'writer', description: 'Writes', tools: ['agent:quick'] };

function workflowIn(text: string): NamedAgent {
  const checked = checkWorkflow(parse(text) as Record<string, unknown>);
  if (checked.type === 'invalid') throw new Error(JSON.stringify(checked.problems));
  return checked.agent;
}

let agents: Map<string, NamedAgent>;

function registry(): AgentRegistry {
  const workflows = [PUBLISH, QUICK, LACKING, SPEND, SUMS, AGAIN].map(workflowIn);
  agents = new Map([...workflows, WRITER].map((one) => [one.name, one]));
  return { list: () => [...agents.values()], get: (name) => agents.get(name), onChange: () => () => {} };
}

async function serve(
  script: readonly ScriptStep[] = [],
  given: Parameters<typeof startInProcess>[1] = {},
): Promise<InProcessServer> {
  const options = { store, tools: [note], namedAgents: registry(), waitForAnswers: true, ...given };
  return cleanUp.use(await startInProcess(scriptedModel(script), options));
}

interface Run {
  readonly run_id: string;
  readonly status: string;
  readonly output: unknown;
  readonly waiting: readonly { readonly effect: string; readonly digest: string; readonly type: string }[];
  readonly steps: readonly { readonly id: string; readonly status: string }[];
}

const POLL = { timeout: 60_000, interval: 5 };
const execute = (server: InProcessServer, name: string, body: object, headers = {}) =>
  server.send('POST', `/v1/workflows/${name}/execute`, body, headers);
const runOf = async (server: InProcessServer, name: string, id: string): Promise<Run> =>
  (await server.send('GET', `/v1/workflows/${name}/runs/${id}`)).body as unknown as Run;
const statuses = ({ steps }: Run): object => Object.fromEntries(steps.map(({ id, status }) => [id, status]));

describe('the workflows API', () => {
  test('lists workflows, and shows one with its graph', async () => {
    const server = await serve();
    const { body } = await server.send('GET', '/v1/workflows');
    expect((body as unknown as { data: { name: string }[] }).data.map(({ name }) => name)).toEqual([
      'publish',
      'quick',
      'lacking',
      'spend',
      'sums',
      'again',
    ]);
    const { body: one } = await server.send('GET', '/v1/workflows/quick');
    expect(one).toMatchObject({
      object: 'workflow',
      name: 'quick',
      definition: { steps: [{ id: 'one' }] },
      input_schema: { properties: { text: {} } },
      graph: { nodes: [{ id: 'one', action: 'run_tool', calls: 'note', column: 0, row: 0 }], edges: [] },
    });
  });

  test('runs a workflow, once for an idempotency key', async () => {
    const server = await serve();
    const key = { 'idempotency-key': 'k1' };
    const first = await execute(server, 'quick', { inputs: { text: 'a' } }, key);
    expect(first).toMatchObject({
      status: 200,
      body: { status: 'completed', output: { one: 'noted a' }, waiting: [] },
    });
    expect((await execute(server, 'quick', { inputs: { text: 'a' } }, key)).body).toEqual(first.body);
    expect(log).toEqual(['a']);
  });

  test('shows what it would do, and does nothing', async () => {
    const server = await serve();
    const { body } = await execute(server, 'publish', { inputs: { topic: 'tides' }, dry_run: true });
    expect(body).toMatchObject({
      object: 'workflow.plan',
      steps: expect.arrayContaining([
        expect.objectContaining({ id: 'draft', values: { inputs: { text: 'draft of tides' } }, taken: 'yes' }),
        expect.objectContaining({ id: 'discard', taken: 'undo' }),
      ]),
    });
    expect(log).toEqual([]);
  });

  test('waits for an approval, tells the status of each step, and goes on', async () => {
    const server = await serve();
    const { status, body } = await execute(server, 'publish', { inputs: { topic: 'tides' } });
    expect(status).toBe(202);
    const { run_id: id, waiting } = body as unknown as Run;
    expect(waiting).toEqual(expect.arrayContaining([expect.objectContaining({ type: 'approval', step: 'ok' })]));
    const waits = await runOf(server, 'publish', id);
    expect(statuses(waits)).toEqual({
      draft: 'done',
      discard: 'pending',
      ok: 'waiting',
      count: 'done',
      out: 'pending',
    });
    const [{ effect, digest }] = waiting.filter(({ type }) => type === 'approval') as [Run['waiting'][0]];
    const answers = [{ type: 'approval', effect, digest, approved: true }];
    expect((await server.send('POST', `/v1/runs/${id}/answers`, { answers })).status).toBeLessThan(300);
    await expect
      .poll(() => runOf(server, 'publish', id), POLL)
      .toMatchObject({
        status: 'completed',
        output: { text: 'noted out' },
        steps: expect.arrayContaining([
          expect.objectContaining({
            id: 'draft',
            inputs: { text: 'draft of tides' },
            output: 'noted draft of tides',
            run: id,
          }),
          // It was taken in a branch.
          expect.objectContaining({ id: 'count', inputs: { text: 'count' }, run: expect.stringContaining(`${id}.t`) }),
        ]),
      });
    expect(log).toEqual(['draft of tides', 'count', 'out']);
  });

  test('a run that has not begun has pending steps', async () => {
    const server = await serve();
    // So that there are no branches yet.
    blocked = Promise.withResolvers();
    const { body } = await execute(server, 'publish', { inputs: { topic: 'tides' }, background: true });
    const { run_id: id } = body as unknown as Run;
    const read = store.read.bind(store);
    store.read = async (...args) => (args[0] === id ? [] : read(...args));
    const run = await runOf(server, 'publish', id);
    store.read = read;
    blocked.resolve();
    expect(statuses(run)).toEqual({
      draft: 'pending',
      discard: 'pending',
      ok: 'pending',
      count: 'pending',
      out: 'pending',
    });
    await expect.poll(() => runOf(server, 'publish', id), POLL).toMatchObject({ status: 'waiting' });
  });

  test('a cancel undoes what is done, if the definition says so', async () => {
    const server = await serve();
    const { body } = await execute(server, 'publish', { inputs: { topic: 'tides' }, background: true });
    const { run_id: id } = body as unknown as Run;
    await expect.poll(() => runOf(server, 'publish', id), POLL).toMatchObject({ status: 'waiting' });
    const cancelled = await server.send('POST', `/v1/workflows/publish/runs/${id}/cancel`);
    const { undo_run_id: undo } = cancelled.body as unknown as { undo_run_id: string };
    expect(cancelled.status).toBe(202);
    await expect
      .poll(() => runOf(server, 'publish', undo), POLL)
      .toMatchObject({ status: 'completed', output: { undone: ['draft'] } });
    expect(await runOf(server, 'publish', id)).toMatchObject({ status: 'cancelled' });
    expect(log).toEqual(['draft of tides', 'count', 'discard noted draft of tides']);
    const again = await server.send('POST', `/v1/workflows/publish/runs/${id}/cancel`);
    expect(again.body).toMatchObject({ undo_run_id: null });
  });

  test('a cancel undoes a step that would be tried again', async () => {
    const server = await serve();
    blocked = Promise.withResolvers();
    const { body } = await execute(server, 'again', { background: true });
    const { run_id: id } = body as unknown as Run;
    await expect.poll(() => log, POLL).toEqual(['late']);
    expect((await runOf(server, 'again', id)).steps).toMatchObject([{ id: 'late', status: 'running' }, { id: 'back' }]);
    // The call does not end before it is cancelled.
    const { resolve } = blocked;
    blocked = undefined;
    const cancelled = await server.send('POST', `/v1/workflows/again/runs/${id}/cancel`);
    const { undo_run_id: undo } = cancelled.body as unknown as { undo_run_id: string };
    await expect
      .poll(() => runOf(server, 'again', undo), POLL)
      .toMatchObject({ status: 'completed', output: { undone: ['late'] } });
    expect(log).toEqual(['late', 'back']);
    resolve();
  });

  test('a cancel by the runs API undoes too, and a cancel of the undo does not undo it', async () => {
    const server = await serve();
    const { body } = await execute(server, 'publish', { inputs: { topic: 'tides' }, background: true });
    const { run_id: id } = body as unknown as Run;
    await expect.poll(() => runOf(server, 'publish', id), POLL).toMatchObject({ status: 'waiting' });
    blocked = Promise.withResolvers();
    expect((await server.send('POST', `/v1/runs/${id}/cancel`)).body).toMatchObject({ status: 'cancelled' });
    const undoing = async () =>
      (await store.list({ labels: { undoes: id } })).map(({ runId, status }) => ({ runId, status }));
    await expect.poll(() => log, POLL).toContain('discard noted draft of tides');
    const undo = (await undoing())[0]!.runId;
    const stopped = await server.send('POST', `/v1/workflows/publish/runs/${undo}/cancel`);
    expect(stopped).toMatchObject({ status: 200, body: { undo_run_id: null } });
    expect(await undoing()).toEqual([{ runId: undo, status: 'cancelled' }]);
    expect(log).toEqual(['draft of tides', 'count', 'discard noted draft of tides']);
  });

  test('a client that disconnects does not cancel a workflow that would have to be undone', async () => {
    const server = await serve();
    blocked = Promise.withResolvers();
    const gone = new AbortController();
    const headers = { 'content-type': 'application/json' };
    const sent = { method: 'POST', headers, body: '{"inputs":{"topic":"tides"}}', signal: gone.signal };
    const lost = fetch(`${server.url}/v1/workflows/publish/execute`, sent);
    await expect.poll(() => log, POLL).toEqual(['draft of tides']);
    gone.abort();
    await expect(lost).rejects.toThrow(/abort/);
    blocked.resolve();
    blocked = undefined;
    await expect
      .poll(async () => (await store.list({})).find(({ parent }) => parent === undefined)?.status, POLL)
      .toBe('paused');
    expect(log).toEqual(['draft of tides', 'count']);
  });

  test('tells what the expressions of a step have named', async () => {
    const server = await serve();
    const { body } = await execute(server, 'sums', {});
    const { steps } = await runOf(server, 'sums', (body as unknown as Run).run_id);
    expect(steps).toMatchObject([
      { id: 'sum', inputs: { 'inputs.list': [1, 2, 3] }, output: { of: [1, 2, 3], size: 3 } },
      { id: 'large', inputs: { 'steps.sum.output.size': 3, 'inputs.most': 5 }, output: false },
      { id: 'much', status: 'skipped', inputs: null },
    ]);
  });

  describe('a run that ends at a limit', () => {
    /** Refuses the first run from its fourth call on. */
    const ledger = (): Ledger => {
      let first: string | undefined;
      return {
        reserve(_, __, { runId, name }) {
          first ??= runId;
          const isSpent = name === 'note' && runId.startsWith(first) && log.length >= 3;
          return isSpent ? { type: 'refused', reason: 'Nothing is left.' } : { type: 'reserved' };
        },
        settle() {},
        release() {},
      };
    };
    const undoing = (id: string) => store.list({ labels: { undoes: id } });
    const UNDONE = ['leave', 'leave', 'discard noted draft: exhausted'];

    test('is undone by a run of its own', async () => {
      const shared = ledger();
      const server = await serve([], { ledger: () => shared });
      const { body } = await execute(server, 'spend', {});
      const { run_id: id } = body as unknown as Run;
      expect(await store.list({ runId: id })).toMatchObject([{ status: 'exhausted' }]);
      await expect.poll(() => undoing(id), POLL).toMatchObject([{ status: 'completed' }]);
      const undo = (await undoing(id))[0]!.runId;
      expect(await runOf(server, 'spend', undo)).toMatchObject({ output: { undone: ['right', 'left', 'draft'] } });
      expect(log.toSorted()).toEqual(['draft', 'left', 'right', ...UNDONE].toSorted());
      expect(log.at(-1)).toBe(UNDONE.at(-1));
    });

    test('is undone once, when servers die before and after they have started it', async () => {
      const shared = ledger();
      const dying = { ...store.notices, take: async () => [] };
      const first = await serve([], { ledger: () => shared, store: { ...store, notices: dying } });
      const { body } = await execute(first, 'spend', {});
      const { run_id: id } = body as unknown as Run;
      await first[Symbol.asyncDispose]();
      expect(await undoing(id)).toEqual([]);
      // It starts the run, and dies before it has recorded that.
      blocked = Promise.withResolvers();
      const forgetting = {
        ...store.notices,
        take: (options: Parameters<typeof store.notices.take>[0]) =>
          store.notices.take({ ...options, until: options.now }),
        remove: async () => {},
      };
      const second = await serve([], { ledger: () => shared, store: { ...store, notices: forgetting } });
      await expect.poll(() => log, POLL).toContain('leave');
      await second[Symbol.asyncDispose]();
      blocked.resolve();
      blocked = undefined;
      await Promise.all([serve([], { ledger: () => shared }), serve([], { ledger: () => shared })]);
      await expect.poll(() => undoing(id), POLL).toMatchObject([{ status: 'completed' }]);
      await expect.poll(() => store.notices.nextDue(), POLL).toBeUndefined();
      expect(await undoing(id)).toHaveLength(1);
      expect(log.slice(3).filter((text) => text.startsWith('discard'))).toEqual(UNDONE.slice(-1));
    });
  });

  test('sends the events of a run with the names of the steps', async () => {
    const server = await serve();
    const headers = { 'content-type': 'application/json' };
    const sent = { method: 'POST', headers, body: '{}' };
    const text = await (await fetch(`${server.url}/v1/workflows/quick/execute/stream`, sent)).text();
    expect(text).toMatch(/"type":"tool_call_start".*"name":"note".*"step":"one"/);
    expect(text).toMatch(/"type":"tool_call_result".*"step":"one"/);
    expect(text).toContain('"status":"completed"');

    const asking = { ...sent, body: '{"inputs": {"topic": "tides"}}' };
    const waits = await (await fetch(`${server.url}/v1/workflows/publish/execute/stream`, asking)).text();
    const events = [...waits.matchAll(/^data: (.*)$/gm)].map(
      ([, data]) => JSON.parse(data!) as Record<string, unknown>,
    );
    const started = events.find(({ type, step }) => type === 'tool_call_start' && step === 'ok');
    const approval = events.find(({ type }) => type === 'approval_request');
    expect(approval).toMatchObject({ step: 'ok', call_id: started!['id'] });
  });

  test('a run is forked from a step, with the current definition and with other inputs', async () => {
    const server = await serve();
    const define = (first: string, second: string): void => {
      const text = `
name: flow
description: Two steps
inputs: { who: { type: string, default: Ada } }
steps:
  - { id: one, action: run_tool, tool: note, inputs: { text: ${first} } }
  - { id: long, action: condition, if: size(steps.one.output) > 100, then: [never] }
  - { id: never, action: run_tool, tool: note, inputs: { text: never } }
  - { id: two, action: run_tool, tool: note, inputs: { text: "${second} for \${{ inputs.who }}" }, depends_on: long }
outputs: { text: "\${{ steps.two.output }}" }
`;
      agents.set('flow', workflowIn(text));
    };
    define('one', 'two');
    const { run_id: id } = (await execute(server, 'flow', {})).body as unknown as Run;
    const fork = (body: object) => server.send('POST', `/v1/runs/${id}/fork`, body);
    const forked = async (body: object): Promise<string> => {
      const made = await fork(body);
      expect(made.status).toBe(200);
      return (made.body as { id: string }).id;
    };
    const endOf = async (run: string, end: object): Promise<void> => {
      await expect.poll(() => runOf(server, 'flow', run), POLL).toMatchObject(end);
    };

    define('one', 'other');
    await endOf(await forked({ step: 'two' }), { output: { text: 'noted two for Ada' } });
    await endOf(await forked({ step: 'two', definition: 'current' }), { output: { text: 'noted other for Ada' } });
    expect(log).toEqual(['one', 'two for Ada', 'two for Ada', 'other for Ada']);
    const input = JSON.stringify({ who: 'Bob' });
    await endOf(await forked({ step: 'long', definition: 'current', input }), {
      output: { text: 'noted other for Bob' },
    });
    expect(log.slice(4)).toEqual(['other for Bob']);
    define('first', 'other');
    const diverged = await forked({ step: 'two', definition: 'current' });
    await endOf(diverged, { status: 'failed', error: { code: 'program_diverged' } });
    await endOf(await forked({ step: 'one', definition: 'current' }), { output: { text: 'noted other for Ada' } });
    expect(log.slice(5)).toEqual(['first', 'other for Ada']);

    const refused = async (body: object, param: string): Promise<void> => {
      expect(await fork(body)).toMatchObject({ status: 400, body: { error: { param } } });
    };
    await refused({ step: 'nothing' }, 'step');
    await refused({ step: 'two', at: 0 }, 'step');
    await refused({ step: 'two', definition: 'other' }, 'definition');
  });

  test('case 33: the agent of a step works with its tools until it is done', async () => {
    const call: ScriptStep = { calls: [{ name: 'note', arguments: { text: 'high tide' } }] };
    const server = await serve([call, 'The tide is noted.', 'The tide is noted.']);
    agents.set('noter', { name: 'noter', description: 'Notes', tools: ['note'] });
    agents.set(
      'tide',
      workflowIn(`
name: tide
description: Notes the tide
steps: [{ id: work, action: invoke_agent, agent: noter, inputs: { task: Note the tide } }]
outputs: { said: "\${{ steps.work.output }}" }
`),
    );
    const { status, body } = await execute(server, 'tide', {});
    expect({ status, output: body['output'] }).toEqual({ status: 200, output: { said: 'The tide is noted.' } });
    expect(log).toEqual(['high tide']);
    const { steps } = (await runOf(server, 'tide', body['run_id'] as string)) as unknown as {
      steps: { run: string }[];
    };
    const run = (await server.send('GET', `/v1/runs/${steps[0]!.run}`)).body;
    // The call, the answer, and the confirmation that everything is done.
    expect(run).toMatchObject({ status: 'completed', turns: 3, calls: 1, labels: { agent: 'noter' } });
  });

  test('agents call workflows as tools', async () => {
    const call: ScriptStep = { calls: [{ name: 'agent_quick', arguments: { text: 'from an agent' } }] };
    const server = await serve([call, 'Done.']);
    const body = { inputs: { task: 'x' }, enable_double_confirmation: false };
    expect((await server.send('POST', '/v1/agents/writer/invoke-iterative', body)).status).toBe(200);
    expect(log).toEqual(['from an agent']);
  });

  test.each([
    ['GET', '/v1/workflows/nothing', undefined, 404, 'no workflow'],
    ['GET', '/v1/workflows/writer', undefined, 404, 'Its workflows: publish, quick'],
    ['POST', '/v1/workflows/publish/execute', { inputs: {} }, 422, 'topic'],
    ['POST', '/v1/workflows/publish/execute', { inputs: { topic: 3 }, dry_run: true }, 422, 'topic'],
    ['POST', '/v1/workflows/publish/execute', { input: {} }, 400, 'input'],
    ['POST', '/v1/workflows/lacking/execute', {}, 400, 'steps.1.inputs.text: The tool \\"note\\" does not take'],
    ['POST', '/v1/workflows/quick/execute/stream', { background: true }, 400, 'background'],
    ['GET', '/v1/workflows/quick/runs/resp_x', undefined, 404, 'has no run'],
    ['POST', '/v1/workflows/quick/runs/resp_x/cancel', undefined, 404, 'has no run'],
  ])('%s %s with %j is refused with %d', async (method, path, body, status, message) => {
    const server = await serve();
    const answer = await server.send(method as 'GET', path, body);
    expect(answer.status).toBe(status);
    expect(JSON.stringify(answer.body)).toContain(message);
    expect(log).toEqual([]);
  });
});
