import { defineAgent, Parked, tool, TreadleError, type Tool } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, mcpAgent, type TreadleServerOptions } from '@treadle/server';
import { describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { newClient, oldClient, type Answer, type ClientOptions } from './official-clients.ts';
import { storeOfTest } from '../server/support/test-store.ts';

const EMPTY = { type: 'object', properties: {} } as const;

const add = tool({
  name: 'add',
  description: 'Adds',
  input: z.object({ a: z.number(), b: z.number() }),
  output: z.object({ sum: z.number() }),
  effect: 'pure',
  touches: () => [],
  execute: ({ a, b }) => ({ sum: a + b }),
});

/** Counts how often it ran. */
function erasing(): { readonly erase: Tool; readonly runs: () => number } {
  let runs = 0;
  const erase = tool({
    name: 'erase',
    description: 'Needs an approval',
    input: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
    needsApproval: true,
    execute: ({ path }) => `Erased ${String(path)}, ${++runs}.`,
  });
  return { erase, runs: () => runs };
}

const who = tool({
  name: 'who',
  description: 'Asks',
  touches: () => [],
  execute: (_, { ask }) => ask({ prompt: 'Who are you?', choices: ['Ann', 'Bob'] }),
});

const approve: Answer = () => ({ action: 'accept', content: { approve: true } });

function start(options: Partial<TreadleServerOptions> = {}): Promise<InProcessServer> {
  return startInProcess(scriptedModel([]), options);
}

const CLIENTS = [
  { name: 'of SDK 2', open: newClient, revision: '2026-07-28' },
  { name: 'of SDK 1', open: oldClient, revision: '2025-11-25' },
] as const;

describe.each(CLIENTS)('a client $name', ({ open, revision }) => {
  test('calls a tool, and gets its structured output or its error', async () => {
    await using server = await start({ tools: [add] });
    await using client = await open(server);
    expect(client.revision).toBe(revision);
    const [listed] = await client.tools();
    expect(listed).toMatchObject({
      name: 'add',
      inputSchema: { type: 'object', required: ['a', 'b'] },
      outputSchema: { type: 'object', properties: { sum: { type: 'number' } } },
      annotations: { readOnlyHint: true },
    });
    expect(await client.call('add', { a: 1, b: 2 })).toEqual({
      text: '{"sum":3}',
      isError: false,
      structured: { sum: 3 },
    });
    expect(await client.call('add', { a: 'x', b: 2 })).toMatchObject({
      isError: true,
      text: expect.stringContaining('a: '),
    });
    await expect(client.call('multiply')).rejects.toThrow('There is no tool "multiply"');
  });

  test('is asked for the approval of a call', async () => {
    const { erase, runs } = erasing();
    await using server = await start({ tools: [erase] });
    const asked: string[] = [];
    const answers: Answer[] = [
      approve,
      () => ({ action: 'accept', content: { approve: false, reason: 'it is mine' } }),
      () => ({ action: 'decline' }),
    ];
    await using client = await open(server, {
      answer(message) {
        asked.push(message);
        return answers.shift()!(message);
      },
    });
    expect(await client.call('erase', { path: 'a' })).toEqual({ text: 'Erased a, 1.', isError: false });
    expect(await client.call('erase', { path: 'b' })).toEqual({
      text: 'The call of "erase" was not approved: it is mine',
      isError: true,
    });
    expect(await client.call('erase', { path: 'c' })).toMatchObject({ isError: true });
    expect(runs()).toBe(1);
    expect(asked).toEqual(['a', 'b', 'c'].map((path) => `The tool "erase" needs an approval:\n{"path":"${path}"}`));
  });

  test('that cannot be asked gets an error that says so', async () => {
    const { erase, runs } = erasing();
    await using server = await start({ tools: [erase] });
    await using client = await open(server);
    expect(await client.call('erase', { path: 'a' })).toEqual({
      text: expect.stringContaining('this MCP client cannot ask for one: it does not support elicitation'),
      isError: true,
    });
    expect(runs()).toBe(0);
  });

  test('calls an agent: a run with progress, questions and approvals', async () => {
    const model = scriptedModel([
      { calls: [{ name: 'erase', arguments: { path: 'x' } }] },
      { calls: [{ name: 'who' }] },
      { calls: [{ name: 'report', arguments: { summary: 'Done for Ann' } }] },
    ]);
    const { erase } = erasing();
    const agent = defineAgent({
      name: 'clean',
      description: 'Cleans up',
      model,
      prompts: { user: ({ topic }: { topic: string }) => `Clean ${topic}` },
      tools: { helpers: [erase, who], output: { name: 'report', description: 'Reports' } },
      validation: { outputSchema: z.object({ summary: z.string() }), maxAttempts: 1 },
    });
    await using server = await start({
      mcp: { agents: [mcpAgent({ agent, input: z.object({ topic: z.string() }) })] },
    });
    const asked: string[] = [];
    await using client = await open(server, {
      answer(message) {
        asked.push(message.split('\n')[0]!);
        return message.startsWith('Who') ? { action: 'accept', content: { answer: 'Ann' } } : approve(message);
      },
    });
    const progress: string[] = [];
    const result = await client.call(
      'clean',
      { topic: 'all' },
      { onprogress: ({ message = '' }) => progress.push(message) },
    );
    expect(result).toEqual({
      text: '{"summary":"Done for Ann"}',
      isError: false,
      structured: { summary: 'Done for Ann' },
    });
    expect(asked).toEqual(['The tool "erase" needs an approval:', 'Who are you?']);
    expect(progress).toContain('Turn 1');
    expect(model.requests[2]!.messages.at(-1)).toMatchObject({
      content: [{ content: [{ type: 'text', text: 'Ann' }] }],
    });
    await expect(client.call('clean', { topic: 1 })).rejects.toThrow('Invalid arguments for clean: topic');
    const { body } = await server.send('GET', '/v1/runs');
    expect(body.data).toMatchObject([{ status: 'completed', title: 'Clean all' }]);
    expect(JSON.parse(await client.read(`treadle://runs/${body.data[0].id}`))).toMatchObject({
      status: 'completed',
      turns: 3,
    });
  });

  test('cancels a call', async () => {
    const { promise: isRunning, resolve: running } = Promise.withResolvers<void>();
    const { promise: isAborted, resolve: aborted } = Promise.withResolvers<void>();
    const hang = tool({
      name: 'hang',
      description: 'Runs until it is aborted',
      input: EMPTY,
      execute: (_, { signal }) => {
        running();
        return new Promise((resolve) => {
          signal.addEventListener('abort', () => {
            aborted();
            resolve('aborted');
          });
        });
      },
    });
    const store = await storeOfTest();
    await using server = await start({ tools: [hang], store });
    await using client = await open(server);
    const controller = new AbortController();
    const called = client.call('hang', {}, { signal: controller.signal });
    await isRunning;
    controller.abort();
    await expect(called).rejects.toThrow(/abort/i);
    await isAborted;
    await expect.poll(async () => (await store.list({}))[0]!.status).toBe('cancelled');
  });

  test('lists the runs of its tenant in pages, and reads no others', async () => {
    const keys = ['ann', 'bob'].map((name) => ({
      name,
      hash: hashKey(`tk_${name}`),
      tenant: name,
      scopes: ['tools:execute', 'runs:read'] as const,
    }));
    await using server = await start({ tools: [add], keys });
    const [ann, bob] = await Promise.all(['tk_ann', 'tk_bob'].map((key) => open(server, { key })));
    for (let b = 0; b < 51; b++) await ann!.call('add', { a: 1, b });
    const first = await ann!.resources();
    const second = await ann!.resources(first.nextCursor);
    expect([first.resources.length, second.resources.length, second.nextCursor]).toEqual([50, 1, undefined]);
    expect(new Set([...first.resources, ...second.resources].map(({ uri }) => uri)).size).toBe(51);
    expect((await bob!.resources()).resources).toEqual([]);
    const { uri } = second.resources[0]!;
    expect(JSON.parse(await ann!.read(uri))).toMatchObject({ status: 'completed', calls: 1 });
    await expect(bob!.read(uri)).rejects.toThrow('not found');
    await ann![Symbol.asyncDispose]();
    await bob![Symbol.asyncDispose]();
  });

  test('gets only what the scopes of its key allow', async () => {
    const agent = defineAgent({
      name: 'clean',
      description: 'Cleans up',
      model: scriptedModel([]),
      prompts: { user: 'Clean' },
      tools: { output: { name: 'report', description: 'Reports' } },
      validation: { outputSchema: EMPTY, maxAttempts: 1 },
    });
    const key = (name: string, ...scopes: ('agents:invoke' | 'tools:execute:add' | 'runs:read')[]) => ({
      name,
      hash: hashKey(`tk_${name}`),
      scopes,
    });
    const keys = [key('agent', 'agents:invoke'), key('adder', 'tools:execute:add'), key('reader', 'runs:read')];
    await using server = await start({
      tools: [add, erasing().erase],
      mcp: { agents: [mcpAgent({ agent, input: EMPTY })] },
      keys,
    });
    const offered: Record<string, readonly string[]> = {};
    for (const { name } of keys) {
      await using client = await open(server, { key: `tk_${name}` });
      offered[name] = (await client.tools()).map((one) => one.name);
      if (name !== 'adder') await expect(client.call('add', { a: 1, b: 2 })).rejects.toThrow('lacks the scope');
    }
    expect(offered).toEqual({ agent: ['clean'], adder: ['add'], reader: [] });
    await expect(open(server, { key: 'tk_none' })).rejects.toThrow(/401|not valid/i);
  });
});

/** A request of revision 2026-07-28. */
async function post(server: InProcessServer, method: string, params: object, key?: string): Promise<WireAnswer> {
  const { name = '' } = params as { name?: string };
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': '2026-07-28',
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
  };
  const { body } = await server.send(
    'POST',
    '/mcp',
    { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } },
    {
      accept: 'application/json, text/event-stream',
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': method,
      'mcp-name': name,
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
    },
  );
  return body;
}

interface WireAnswer {
  readonly result?: {
    readonly inputRequests?: Readonly<Record<string, unknown>>;
    readonly requestState?: string;
    readonly content?: readonly { readonly text: string }[];
  };
  readonly error?: { readonly code: number; readonly message: string };
}

describe('a call that waits for its client', () => {
  const call = { name: 'erase', arguments: { path: 'a' } };
  const yes = { action: 'accept', content: { approve: true } };

  test('is continued by another process, once', async () => {
    const store = await storeOfTest();
    const { erase, runs } = erasing();
    const waiting = await (async () => {
      await using server = await start({ tools: [erase], store });
      return (await post(server, 'tools/call', call)).result!;
    })();
    await using server = await start({ tools: [erase], store });
    expect(server.recovered).toBe(0);
    const [key] = Object.keys(waiting.inputRequests!);
    const retry = { ...call, inputResponses: { [key!]: yes }, requestState: waiting.requestState };
    const { result } = await post(server, 'tools/call', retry);
    expect(result!.content).toEqual([{ type: 'text', text: 'Erased a, 1.' }]);
    expect((await post(server, 'tools/call', retry)).result!.content).toEqual(result!.content);
    expect(runs()).toBe(1);
  });

  test('is continued over the runs API', async () => {
    const { erase } = erasing();
    await using server = await start({ tools: [erase] });
    const { requestState } = (await post(server, 'tools/call', call)).result!;
    const { body } = await server.send('GET', '/v1/runs?status=paused');
    const run = `/v1/runs/${body.data[0].id}`;
    const [{ effect, digest }] = (await server.send('GET', run)).body.waiting;
    await server.send('POST', `${run}/answers`, { answers: [{ type: 'approval', effect, digest, approved: true }] });
    await expect
      .poll(async () => (await post(server, 'tools/call', { ...call, requestState })).result?.content)
      .toEqual([{ type: 'text', text: 'Erased a, 1.' }]);
  });

  test('is cancelled when its client has not answered for a day', async () => {
    const store = await storeOfTest();
    {
      await using server = await start({ tools: [who], store });
      await post(server, 'tools/call', { name: 'who', arguments: {} });
      expect((await store.list({}))[0]!.status).toBe('paused');
    }
    using _ = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 25 * 3_600_000);
    await using server = await start({ tools: [who], store });
    await expect.poll(async () => (await server.send('GET', '/v1/runs')).body.data[0].status).toBe('cancelled');
  });

  test('is not cancelled while it waits for something else than its client', async () => {
    const store = await storeOfTest();
    const wait = tool({
      name: 'wait',
      description: 'Waits',
      touches: () => [],
      execute: () => new Parked('a delivery'),
    });
    {
      await using server = await start({ tools: [wait, who], store });
      await post(server, 'tools/call', { name: 'wait', arguments: {} });
      // It is newer, so it is cancelled after the other one was looked at.
      await post(server, 'tools/call', { name: 'who', arguments: {} });
    }
    using _ = vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 25 * 3_600_000);
    await using server = await start({ tools: [wait, who], store });
    const statuses = async (): Promise<unknown> =>
      (await server.send('GET', '/v1/runs')).body.data.map(({ status }: { status: string }) => status);
    await expect.poll(statuses).toEqual(['cancelled', 'paused']);
  });

  test('is cancelled when its user declines to answer a question', async () => {
    await using server = await start({ tools: [who] });
    await using client = await newClient(server, { answer: () => ({ action: 'decline' }) });
    expect(await client.call('who')).toEqual({
      text: 'The call was cancelled: the user did not answer a question of the tool.',
      isError: true,
    });
    await using silent = await newClient(server);
    await expect(silent.call('who')).rejects.toMatchObject({ code: -32021 });
    const { body } = await server.send('GET', '/v1/runs');
    expect(body.data).toMatchObject([{ status: 'cancelled' }, { status: 'cancelled' }]);
  });

  test('is approved only if the client was asked, by its own state', async () => {
    const keys = ['ann', 'bob'].map((name) => ({
      name,
      hash: hashKey(`tk_${name}`),
      tenant: name,
      scopes: ['tools:execute'] as const,
    }));
    const { erase, runs } = erasing();
    await using server = await start({ tools: [erase], keys });
    const first = (await post(server, 'tools/call', call, 'tk_ann')).result!;
    const [key] = Object.keys(first.inputRequests!);
    const inputResponses = { [key!]: yes };
    const { requestState } = first;
    const unasked = await post(server, 'tools/call', { ...call, inputResponses }, 'tk_ann');
    expect(unasked.result!.inputRequests).toBeDefined();
    for (const [key, changes] of [
      ['tk_ann', { arguments: { path: 'b' } }],
      ['tk_ann', { requestState: `${requestState}0` }],
      ['tk_ann', { requestState: 'x' }],
      ['tk_bob', {}],
    ] as const) {
      const { error, result } = await post(
        server,
        'tools/call',
        { ...call, inputResponses, requestState, ...changes },
        key,
      );
      // Answers to another state of the run do not count: the client is asked again.
      if (changes && 'requestState' in changes && changes.requestState !== 'x')
        expect(result!.inputRequests).toBeDefined();
      else expect(error).toMatchObject({ code: -32602, message: 'Invalid or expired requestState' });
    }
    expect(runs()).toBe(0);
  });
});

/** Blocks until it is aborted the first time, and ends the second time. */
function slowTool(): { readonly slow: Tool; readonly isRunning: Promise<void>; readonly attempts: () => number } {
  const { promise: isRunning, resolve: running } = Promise.withResolvers<void>();
  let attempts = 0;
  const slow = tool({
    name: 'slow',
    description: 'Takes its time',
    effect: 'idempotent',
    execute: (_, { signal }) => {
      attempts += 1;
      if (attempts > 1) return 'done';
      running();
      return new Promise((resolve) => {
        signal.addEventListener('abort', resolve);
      });
    },
  });
  return { slow, isRunning, attempts: () => attempts };
}

test.each(['tool', 'agent'])('a call of a %s that the end of the server interrupts is resumed later', async (kind) => {
  const store = await storeOfTest();
  const { slow, isRunning, attempts } = slowTool();
  const agent = defineAgent({
    name: 'agent',
    description: 'Works',
    model: scriptedModel([{ calls: [{ name: 'slow' }] }, { calls: [{ name: 'report', arguments: {} }] }]),
    prompts: { user: 'Work' },
    tools: { helpers: [slow], output: { name: 'report', description: 'Reports' } },
    validation: { outputSchema: EMPTY, maxAttempts: 1 },
  });
  const options = { tools: [slow], mcp: { agents: [mcpAgent({ agent, input: EMPTY })] }, store };
  let called: Promise<WireAnswer>;
  {
    await using server = await start(options);
    called = post(server, 'tools/call', { name: kind === 'tool' ? 'slow' : 'agent', arguments: {} });
    await isRunning;
  }
  expect((await called).error).toMatchObject({ message: expect.stringContaining('The server is shutting down') });
  await using server = await start(options);
  expect(server.recovered).toBe(1);
  await expect.poll(async () => (await server.send('GET', '/v1/runs')).body.data[0].status).toBe('completed');
  expect(attempts()).toBe(2);
});

test('an agent that waits is continued by another process', async () => {
  const store = await storeOfTest();
  const { erase } = erasing();
  const model = scriptedModel([
    { calls: [{ name: 'erase', arguments: { path: 'x' } }] },
    { calls: [{ name: 'report', arguments: { ok: true } }] },
  ]);
  const agent = defineAgent({
    name: 'clean',
    description: 'Cleans up',
    model,
    prompts: { user: 'Clean' },
    tools: { helpers: [erase], output: { name: 'report', description: 'Reports' } },
    validation: { outputSchema: { type: 'object', properties: { ok: { type: 'boolean' } } }, maxAttempts: 1 },
  });
  const options = { mcp: { agents: [mcpAgent({ agent, input: EMPTY })] }, store };
  const call = { name: 'clean', arguments: {} };
  const waiting = await (async () => {
    await using server = await start(options);
    return (await post(server, 'tools/call', call)).result!;
  })();
  await using server = await start(options);
  const [key] = Object.keys(waiting.inputRequests!);
  const inputResponses = { [key!]: { action: 'accept', content: { approve: true } } };
  const { result } = await post(server, 'tools/call', { ...call, inputResponses, requestState: waiting.requestState });
  expect(result).toMatchObject({ content: [{ text: '{"ok":true}' }], structuredContent: { ok: true } });
  model.assertDone();
});

test('an agent that waits is cancelled over the runs API, and a tool that is gone fails its call', async () => {
  const store = await storeOfTest();
  const { slow, isRunning } = slowTool();
  const agent = defineAgent({
    name: 'asking',
    description: 'Asks',
    model: scriptedModel([{ calls: [{ name: 'who' }] }]),
    prompts: { user: 'Ask' },
    tools: { helpers: [who], output: { name: 'report', description: 'Reports' } },
    validation: { outputSchema: EMPTY, maxAttempts: 1 },
  });
  {
    const mcp = { agents: [mcpAgent({ agent, input: EMPTY })] };
    await using server = await start({ tools: [slow], mcp, store });
    const { requestState } = (await post(server, 'tools/call', { name: 'asking', arguments: {} })).result!;
    await server.send('POST', `/v1/runs/${requestState!.split('.')[0]}/cancel`);
    const { result } = await post(server, 'tools/call', { name: 'asking', arguments: {}, requestState });
    expect(result).toMatchObject({ isError: true, content: [{ text: 'The execution was cancelled.' }] });
    void post(server, 'tools/call', { name: 'slow', arguments: {} });
    await isRunning;
  }
  await using server = await start({ store });
  expect(server.recovered).toBe(1);
  await expect
    .poll(async () => (await server.send('GET', '/v1/runs')).body.data.map((one: { status: string }) => one.status))
    .toEqual(['cancelled', 'cancelled']);
  expect(await store.requests.unfinished()).toEqual([]);
});

test('judges calls by the policy for MCP clients, and limits how many run', async () => {
  const { slow, isRunning } = slowTool();
  await using server = await start({
    tools: [add, slow],
    policy: policy({ tools: { '*': 'deny' } }),
    mcp: { policy: policy({ tools: { add: 'ask', slow: 'allow' } }) },
    maxConcurrentRuns: 1,
  });
  let asked = 0;
  await using client = await newClient(server, {
    answer(message) {
      asked += 1;
      return approve(message);
    },
  });
  expect(await client.call('add', { a: 1, b: 2 })).toMatchObject({ structured: { sum: 3 } });
  expect(asked).toBe(1);
  const controller = new AbortController();
  const called = client.call('slow', {}, { signal: controller.signal });
  await isRunning;
  await expect(client.call('add', { a: 1, b: 2 })).rejects.toThrow('limit of concurrent runs');
  controller.abort();
  await expect(called).rejects.toThrow(/abort/i);
});

test('stops although older clients keep their streams open', async () => {
  const server = await start({ tools: [add] });
  await using client = await oldClient(server);
  await client.call('add', { a: 1, b: 2 });
  await server[Symbol.asyncDispose]();
  await expect(client.call('add', { a: 1, b: 2 })).rejects.toThrow(/fetch failed|closed/);
});

describe('a session of an older client', () => {
  const keys = ['ann', 'bob'].map((name) => ({
    name,
    hash: hashKey(`tk_${name}`),
    scopes: ['tools:execute', 'runs:read'] as const,
  }));

  async function initialize({ url }: InProcessServer, key: string): Promise<string> {
    const answer = await fetch(`${url}/mcp`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: JSON.stringify({
        jsonrpc: '2.0',
        id: 1,
        method: 'initialize',
        params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: '1' } },
      }),
    });
    await answer.text();
    return answer.headers.get('mcp-session-id')!;
  }

  test('does not exist for another key', async () => {
    await using server = await start({ tools: [add], keys });
    const session = await initialize(server, 'tk_ann');
    const list = (key: string): Promise<Response> =>
      fetch(`${server.url}/mcp`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-session-id': session,
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'tools/list' }),
      });
    expect([(await list('tk_ann')).status, (await list('tk_bob')).status]).toEqual([200, 404]);
  });

  test('has a stream that counts as those of the other routes', async () => {
    await using server = await start({ tools: [add], keys, maxOpenStreams: 1 });
    const stop = new AbortController();
    const listen = async (): Promise<Response> => {
      const headers = { authorization: 'Bearer tk_ann', accept: 'text/event-stream' };
      const session = { 'mcp-session-id': await initialize(server, 'tk_ann') };
      return fetch(`${server.url}/mcp`, { signal: stop.signal, headers: { ...headers, ...session } });
    };
    expect([(await listen()).status, (await listen()).status]).toEqual([200, 429]);
    stop.abort();
  });

  test('subscribes to a run once, and only by the address that the server gives it', async () => {
    const { erase } = erasing();
    const store = await storeOfTest();
    let watching = 0;
    const watch: typeof store.watch = (...watched) => {
      watching += 1;
      const stop = store.watch(...watched);
      return () => {
        watching -= 1;
        stop();
      };
    };
    await using server = await start({ tools: [erase], store: { ...store, watch } });
    const { requestState } = (await post(server, 'tools/call', { name: 'erase', arguments: { path: 'a' } })).result!;
    const uri = `treadle://runs/${requestState!.split('.')[0]}`;
    const before = watching;
    await using client = await oldClient(server, { answer: approve });
    await Promise.all([client.subscribe(uri), client.subscribe(uri), client.subscribe(uri)]);
    for (const other of [uri.replace('mcp_', '%6dcp_'), `${uri}%zz`, 'treadle://runs/%zz']) {
      await expect(client.subscribe(other)).rejects.toThrow('not found');
    }
    expect(watching - before).toBe(1);
  });

  test('is told that a run has changed', async () => {
    const { erase } = erasing();
    await using server = await start({ tools: [erase] });
    const { promise: updated, resolve } = Promise.withResolvers<string>();
    const options: ClientOptions = { answer: approve, onUpdated: resolve };
    await using client = await oldClient(server, options);
    const { requestState } = (await post(server, 'tools/call', { name: 'erase', arguments: { path: 'a' } })).result!;
    const uri = `treadle://runs/${requestState!.split('.')[0]}`;
    await client.subscribe(uri);
    await server.send('POST', `/v1/runs/${uri.slice('treadle://runs/'.length)}/cancel`);
    expect(await updated).toBe(uri);
    await expect(client.subscribe('treadle://runs/mcp_none')).rejects.toThrow('not found');
  });
});

test('answers what is not JSON or not admitted as the other routes do', async () => {
  await using server = await start({ tools: [add] });
  const send = (body: string, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
    fetch(`${server.url}/mcp`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
  const broken = await send('{');
  expect([broken.status, await broken.json()]).toMatchObject([400, { error: { code: -32700 } }]);
  expect((await send('{}', { origin: 'https://evil.example' })).status).toBe(403);
  expect((await send('{}', { 'content-type': 'text/plain' })).status).toBe(415);
  expect((await fetch(`${server.url}/mcp`, { method: 'PUT' })).status).toBe(405);
  // The records of calls are not responses.
  await using client = await newClient(server);
  await client.call('add', { a: 1, b: 2 });
  const { body } = await server.send('GET', '/v1/runs');
  expect((await server.send('GET', `/v1/responses/${body.data[0].id}`)).status).toBe(404);
});

test('refuses a tool and an agent of the same name', async () => {
  const agent = defineAgent({
    name: 'add',
    description: 'Adds',
    model: scriptedModel([]),
    prompts: { user: 'Add' },
    tools: { output: { name: 'sum', description: 'The sum' } },
    validation: { outputSchema: EMPTY, maxAttempts: 1 },
  });
  await expect(start({ tools: [add], mcp: { agents: [mcpAgent({ agent, input: EMPTY })] } })).rejects.toThrow(
    'Two tools or agents of the MCP server are named "add"',
  );
});

test('a call that another server looks at for a moment is continued', async () => {
  const store = await storeOfTest();
  let held = 0;
  const acquire: typeof store.acquire = async (...given) => {
    if (held-- > 0) throw new TreadleError('run-driven', 'Another process drives the run.');
    return store.acquire(...given);
  };
  await using server = await startInProcess(scriptedModel([]), { tools: [who], store: { ...store, acquire } });
  const answer: Answer = () => {
    held = 2;
    return { action: 'accept', content: { answer: 'Ann' } };
  };
  await using client = await oldClient({ url: server.url }, { answer });
  expect(await client.call('who')).toMatchObject({ text: expect.stringContaining('Ann'), isError: false });
  expect(held).toBeLessThan(0);
});
