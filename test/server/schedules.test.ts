import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tool } from '@treadle/core';
import type { AgentRegistry, NamedAgent } from '@treadle/core/named-agents';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type TreadleServerOptions } from '@treadle/server';
import type { Store } from '@treadle/store';
import { checkWorkflow } from '@treadle/tools/workflows';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { startInProcess, type InProcessServer } from './support/in-process.ts';
import { openTestStore } from './support/test-store.ts';

/* Schedules and triggers over HTTP. The rules for due times are tested in packages/server/src/schedules. */

let cleanUp: AsyncDisposableStack;
let store: Store;
let folder: string;
let log: string[];
beforeEach(async () => {
  cleanUp = new AsyncDisposableStack();
  folder = mkdtempSync(join(tmpdir(), 'treadle-schedules-'));
  cleanUp.defer(() => rmSync(folder, { recursive: true }));
  store = cleanUp.adopt(await openTestStore(join(folder, 'store.db')), (one) => one.close());
  log = [];
});
afterEach(() => cleanUp.disposeAsync());

const POLL = { timeout: 60_000, interval: 10 };
const note = tool({
  name: 'note',
  description: 'Notes a text',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  effect: 'idempotent',
  touches: () => [],
  execute: ({ text }) => void log.push(String(text)),
});
const WORKFLOWS = [
  `
name: notes
description: Notes
inputs: { text: { type: string, default: hello } }
steps: [{ id: one, action: run_tool, tool: note, inputs: { text: "\${{ inputs.text }}" } }]
outputs: { said: "\${{ inputs.text }}" }
`,
  `
name: echo
description: Echoes
inputs: { text: { type: string, required: true } }
steps: [{ id: one, action: run_tool, tool: note, inputs: { text: "echo \${{ inputs.text }}" } }]
`,
];

function registry(): AgentRegistry {
  const agents = WORKFLOWS.map((text): NamedAgent => {
    const checked = checkWorkflow(parse(text) as Record<string, unknown>);
    if (checked.type === 'invalid') throw new Error(JSON.stringify(checked.problems));
    return checked.agent;
  });
  const named: NamedAgent = { name: 'writer', description: 'Writes' };
  const all = new Map([...agents, named].map((one) => [one.name, one]));
  return { list: () => [...all.values()], get: (name) => all.get(name), onChange: () => () => {} };
}

async function serve(options: Partial<TreadleServerOptions> = {}): Promise<InProcessServer> {
  const own = await openTestStore(join(folder, 'store.db'));
  cleanUp.defer(() => own.close());
  return cleanUp.use(
    await startInProcess(scriptedModel([]), { store: own, tools: [note], namedAgents: registry(), ...options }),
  );
}

const list = async (server: InProcessServer, headers = {}): Promise<readonly Record<string, unknown>[]> =>
  (await server.send('GET', '/v1/schedules', undefined, headers)).body.data;

/** How often the schedule was due, and the runs of it, when nothing is left to be started; after at least so many further due times. */
async function counted(
  more: number,
): Promise<{ readonly due: number; readonly runs: number; readonly skipped: number }> {
  let from: number | undefined;
  for (;;) {
    const [before] = await store.schedules.list();
    // A run is listed a moment after its request is stored.
    const open = await store.requests.unfinished();
    const runs = (await store.list({ labels: { schedule: 'tick' }, limit: 10_000 })).length;
    const [after] = await store.schedules.list();
    const { next, pending, skipped } = before!.state as { next: number; pending: readonly number[]; skipped: number };
    from ??= next;
    const isSettled = before!.version === after!.version && pending.length === 0 && open.length === 0;
    if (isSettled && next >= from + more * 1_000) return { due: next / 1_000, runs, skipped };
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

describe('the schedules API', () => {
  test('adds, lists, runs and deletes a schedule, which every server with the store knows', async () => {
    const [one, other] = [await serve(), await serve()];
    const body = {
      name: 'nightly',
      workflow: 'notes',
      inputs: { text: 'a' },
      cron: '0 3 * * *',
      time_zone: 'Europe/Oslo',
    };
    const added = await one.send('POST', '/v1/schedules', body);
    expect(added).toMatchObject({
      status: 201,
      body: {
        object: 'schedule',
        source: 'api',
        agent: 'notes',
        inputs: { text: 'a' },
        cron: '0 3 * * *',
        time_zone: 'Europe/Oslo',
        every: null,
        missed: 'once',
        overlap: 'skip',
        next_at: expect.stringMatching(/T0[12]:00:00.000Z$/),
        last: null,
        pending: [],
        skipped: 0,
        problem: null,
      },
    });
    expect(await list(other)).toEqual([added.body]);
    expect((await other.send('GET', '/v1/schedules/nightly')).body).toEqual(added.body);
    expect((await one.send('POST', '/v1/schedules', body)).status).toBe(409);
    const key = { 'idempotency-key': 'k' };
    const first = await other.send('POST', '/v1/schedules/nightly/run', undefined, key);
    expect(first).toMatchObject({ status: 202, body: { schedule: 'nightly', agent: 'notes' } });
    expect((await other.send('POST', '/v1/schedules/nightly/run', undefined, key)).body).toEqual(first.body);
    await expect.poll(() => log, POLL).toEqual(['a']);
    const { body: runs } = await one.send('GET', '/v1/runs?label=schedule%3Dnightly');
    expect(runs.data ?? runs).toBeDefined();
    expect((await one.send('DELETE', '/v1/schedules/nightly')).body).toMatchObject({ deleted: true });
    expect(await list(other)).toEqual([]);
  });

  test('starts what is due once, on one of two servers, over restarts', async () => {
    const schedules = [{ name: 'tick', workflow: 'notes', every: 1, missed: 'all', overlap: 'allow' }] as const;
    let servers = [await serve({ schedules }), await serve({ schedules })];
    for (let restart = 0; restart < 3; restart++) {
      const before = log.length;
      await expect.poll(() => log.length, POLL).toBeGreaterThan(before);
      await servers[restart % 2]![Symbol.asyncDispose]();
      servers = servers.with(restart % 2, await serve({ schedules }));
    }
    // As many runs as due times: none was lost, and none was started twice.
    const [first, second] = [await counted(0), await counted(3)];
    expect(second.runs - first.runs).toBe(second.due - first.due);
    expect([first.skipped, second.skipped]).toEqual([0, 0]);
  }, 120_000);

  test('a key sees and uses schedules of its tenant and its agents only', async () => {
    const [ann, bob, eve] = ['tk_ann', 'tk_bob', 'tk_eve'].map((key) => ({ authorization: `Bearer ${key}` }));
    const server = await serve({
      keys: [
        { name: 'ann', hash: hashKey('tk_ann'), tenant: 'acme' },
        { name: 'bob', hash: hashKey('tk_bob'), tenant: 'bolt' },
        { name: 'eve', hash: hashKey('tk_eve'), tenant: 'acme', scopes: ['agents:invoke:echo'] },
      ],
    });
    const body = { name: 'n', workflow: 'notes', every: '1h' };
    expect((await server.send('POST', '/v1/schedules', body, ann)).status).toBe(201);
    for (const other of [bob!, eve!]) {
      expect(await list(server, other)).toEqual([]);
      for (const [method, path] of [
        ['GET', '/v1/schedules/n'],
        ['DELETE', '/v1/schedules/n'],
        ['POST', '/v1/schedules/n/run'],
      ] as const) {
        expect((await server.send(method, path, undefined, other)).status).toBe(404);
      }
    }
    expect((await server.send('POST', '/v1/schedules', { ...body, name: 'm' }, eve)).status).toBe(403);
    expect((await server.send('POST', '/v1/schedules', body, bob)).status).toBe(201);
    expect(await list(server, ann)).toHaveLength(1);
  });

  test.each([
    [{ workflow: 'notes', every: 5 }, 400, 'name'],
    [{ name: 'n', workflow: 'nothing', every: 5 }, 404, 'nothing'],
    [{ name: 'n', workflow: 'writer', every: 5 }, 400, 'is an agent'],
    [{ name: 'n', workflow: 'echo', every: 5 }, 422, 'text'],
    [{ name: 'n', workflow: 'notes', every: 5, inputs: { txt: 1 } }, 422, 'txt'],
    [{ name: 'n', workflow: 'notes', cron: '61 * * * *' }, 400, 'Invalid value for minute'],
    [{ name: 'n', workflow: 'notes', cron: '* * * * *', time_zone: 'X' }, 400, 'time zone'],
    [{ name: 'n', workflow: 'notes', every: 5, mised: 'all' }, 400, 'mised'],
    [{ name: 'n', workflow: 'notes', every: 5, missed: 'never' }, 400, 'missed'],
  ])('refuses %j with %d', async (body, status, message) => {
    const answer = await (await serve()).send('POST', '/v1/schedules', body);
    expect(answer.status).toBe(status);
    expect(JSON.stringify(answer.body)).toContain(message);
  });

  test('refuses a configuration that cannot work', async () => {
    const key = { name: 'ci', hash: hashKey('tk_ci') };
    const schedule = { name: 'n', workflow: 'notes', every: 5 };
    await expect(serve({ schedules: [{ ...schedule, every: 0 }] })).rejects.toThrow('schedules[0].every');
    await expect(serve({ schedules: [schedule, schedule] })).rejects.toThrow('Two schedules');
    await expect(serve({ schedules: [schedule], keys: [key] })).rejects.toThrow('The schedule "n" has no key.');
    await expect(serve({ schedules: [{ ...schedule, key: 'x' }] })).rejects.toThrow('does not exist');
  });
});

const SECRET = 'a secret of 20 chars';

function signed(body: string, { id = 'm1', at = Date.now(), secret = SECRET } = {}): Record<string, string> {
  const timestamp = String(Math.floor(at / 1_000));
  const signature = createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}` };
}

describe('triggers', () => {
  const hook = { name: 'hook', workflow: 'notes', webhook: { secret: SECRET } } as const;
  const send = async (server: InProcessServer, body: object, headers: Record<string, string>, name = 'hook') =>
    server.send('POST', `/v1/triggers/${name}`, body, headers);

  test('a signed request starts a run, once for its id, without a key', async () => {
    const keys = [
      { name: 'ci', hash: hashKey('tk_ci'), tenant: 'acme', scopes: ['agents:invoke', 'tools:execute'] },
    ] as const;
    const inputs = { text: '${{ event.body.name + "!" }}' };
    const triggers = [{ ...hook, inputs, key: 'ci' }];
    const [one, other] = [await serve({ keys, triggers }), await serve({ keys, triggers })];
    const body = { name: 'Ada' };
    const headers = signed(JSON.stringify(body));
    const first = await send(one, body, headers);
    expect(first).toMatchObject({ status: 202, body: { trigger: 'hook', agent: 'notes' } });
    expect((await send(other, body, headers)).body).toEqual(first.body);
    await expect.poll(() => log, POLL).toEqual(['Ada!']);
    const [run] = await store.list({ labels: { trigger: 'hook' } });
    expect(run).toMatchObject({ runId: first.body.run_id, tenant: 'acme' });
  });

  test('what is not signed starts nothing', async () => {
    const server = await serve({ triggers: [hook] });
    const body = { text: 'a' };
    const text = JSON.stringify(body);
    const good = signed(text);
    for (const headers of [
      {},
      { ...good, 'webhook-signature': 'v1,' },
      { ...good, 'webhook-id': 'm2' },
      { ...good, 'webhook-timestamp': String(Number(good['webhook-timestamp']) + 1) },
      signed(text, { secret: 'another secret of 20' }),
      signed(text, { at: Date.now() - 600_000 }),
      signed('{"text":"b"}'),
    ] as Record<string, string>[]) {
      expect(await send(server, body, headers)).toMatchObject({
        status: 401,
        body: { error: { code: 'invalid_signature' } },
      });
    }
    expect((await send(server, body, good, 'other')).status).toBe(404);
    const wrong = { txt: 1 };
    expect((await send(server, wrong, signed(JSON.stringify(wrong)))).status).toBe(422);
    expect(log).toEqual([]);
    expect(
      (await send(server, body, { ...good, 'webhook-signature': `v1a,x ${good['webhook-signature']}` })).status,
    ).toBe(202);
  });

  test('the end of another run starts one, with what it has returned, on one of two servers', async () => {
    const triggers = [
      {
        name: 'then',
        workflow: 'echo',
        after: 'notes',
        inputs: { text: '${{ event.output.said }} ${{ event.status }}' },
      },
    ];
    const [one] = [await serve({ triggers }), await serve({ triggers })];
    await one.send('POST', '/v1/workflows/notes/execute', { inputs: { text: 'first' } });
    await expect.poll(() => log, POLL).toEqual(['first', 'echo first completed']);
    // Those of agents by other means, such as schedules, too.
    await one.send('POST', '/v1/workflows/echo/execute', { inputs: { text: 'alone' } });
    await expect.poll(async () => (await store.notices.nextDue()) ?? null, POLL).toBeNull();
    expect(log).toEqual(['first', 'echo first completed', 'echo alone']);
  });

  test('a file that is added, changed or removed starts a run, once, also while no server ran', async () => {
    const triggers = [
      {
        name: 'files',
        workflow: 'notes',
        file: join(folder, '*.txt'),
        inputs: { text: '${{ event.change }} ${{ event.path }}' },
      },
    ];
    const file = join(folder, 'a.txt');
    const write = (text: string, at: number): void => {
      writeFileSync(file, text);
      utimesSync(file, at, at);
    };
    writeFileSync(join(folder, 'before.txt'), 'no event');
    utimesSync(join(folder, 'before.txt'), 1_000, 1_000);
    const first = await serve({ triggers });
    await expect.poll(async () => (await store.schedules.list()).length, POLL).toBe(1);
    write('one', 2_000);
    await expect.poll(() => log, POLL).toEqual([`added ${file}`]);
    await first[Symbol.asyncDispose]();
    write('two', 3_000);
    await serve({ triggers });
    await serve({ triggers });
    await expect.poll(() => log, POLL).toEqual([`added ${file}`, `changed ${file}`]);
    rmSync(file);
    await expect.poll(() => log, POLL).toEqual([`added ${file}`, `changed ${file}`, `removed ${file}`]);
  });

  test.each([
    [{ name: 'a b', workflow: 'w', file: '/x' }, 'needs a name'],
    [{ name: 'n', file: '/x' }, 'either a workflow or an agent'],
    [{ name: 'n', workflow: 'w' }, 'needs one of'],
    [{ name: 'n', workflow: 'w', file: '/x', after: 'y' }, 'needs one of'],
    [{ name: 'n', workflow: 'w', webhook: { secret: 'short' } }, 'at least 16'],
    [{ name: 'n', workflow: 'w', file: '/x', status: ['failed'] }, 'for "after"'],
    [{ name: 'n', workflow: 'w', after: 'w' }, 'without end'],
    [{ name: 'n', workflow: 'notes', file: '/x', inputs: { text: '${{ evnt.path }}' } }, 'no value "evnt"'],
    [{ name: 'n', workflow: 'notes', file: '/x', inputs: { text: '${{ 1 + }}' } }, 'not valid CEL'],
  ] as const)('%j is refused', async (trigger, message) => {
    await expect(serve({ triggers: [trigger as never] })).rejects.toThrow(message);
  });
});
