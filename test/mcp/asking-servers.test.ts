import {
  childRuns,
  memoryJournal,
  runLoop,
  startLoop,
  type Answer,
  type LoopResult,
  type Waiting,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { mcpServer, mcpTools, type McpServer, type McpServerOptions } from '@treadle/tools/mcp';
import { afterEach, describe, expect, test } from 'vitest';
import { discovered, listed, scriptedServer, type Handler, type ScriptedServer } from './scripted-server.ts';

const open: McpServer[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()));
});

type Options = Partial<McpServerOptions>;

/** As another process would connect. */
function connectTo({ fetch }: ScriptedServer, options: Options = {}): McpServer {
  const server = mcpServer({ name: 'srv', url: 'http://mcp.test/mcp', fetch, ...options } as McpServerOptions);
  open.push(server);
  return server;
}

const scripted = (handlers: Record<string, Handler>): ScriptedServer =>
  scriptedServer({ 'tools/list': () => listed('tool'), ...handlers });

const text = (said: unknown): object => ({
  content: [{ type: 'text', text: typeof said === 'string' ? said : JSON.stringify(said) }],
});
const complete = (said: unknown): object => ({ resultType: 'complete', ...text(said) });
const CALL = { calls: [{ name: 'tool', arguments: { a: 1 } }] };

function said({ messages }: LoopResult): string {
  const results = messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  return results.map(({ content }) => content.map((block) => ('text' in block ? block.text : '')).join('')).join('\n');
}

const FORM = {
  message: 'Who\u202e are you?',
  requestedSchema: {
    type: 'object',
    properties: { user: { type: 'string' }, port: { type: 'number', default: 80 } },
    required: ['user'],
  },
};

const answerTo = ([wait]: readonly Waiting[], value: unknown): Answer[] => [
  { type: 'answer', effect: wait!.effect, value },
];

/** Calls the tool, and resumes the run with the answer as another process would. */
async function asked(
  server: ScriptedServer,
  value: unknown,
  options: Options = {},
): Promise<{ readonly wait: unknown; readonly end: LoopResult }> {
  const run = { journal: memoryJournal(), runId: 'r' };
  const first = await runLoop({
    ...run,
    model: scriptedModel([CALL]),
    tools: await mcpTools(connectTo(server, options)),
    input: 'go',
  });
  const end = await runLoop({
    ...run,
    model: scriptedModel(['done']),
    tools: await mcpTools(connectTo(server, options)),
    answers: answerTo(first.waiting, value),
  });
  return { wait: first.waiting[0], end };
}

describe('a server of an older version', () => {
  const asking = (params: object): ScriptedServer =>
    scripted({
      'tools/call': async ({ ask }) => text((await ask('elicitation/create', params)).result),
    });

  test('asks a form, and the run waits for the answer', async () => {
    const { wait, end } = await asked(asking(FORM), { user: 'me' });
    expect(wait).toMatchObject({
      type: 'question',
      question: {
        prompt: 'MCP server "srv" asks: Who are you?',
        schema: { anyOf: [{ type: 'object' }, { type: 'null' }] },
      },
    });
    expect(JSON.parse(said(end))).toEqual({ action: 'accept', content: { user: 'me', port: 80 } });
  });

  test('is told that people decline', async () => {
    expect(JSON.parse(said((await asked(asking(FORM), null)).end))).toEqual({ action: 'decline' });
  });

  test('asks for a confirmation with a form without fields', async () => {
    const form = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } };
    const { wait, end } = await asked(asking(form), 'accept');
    expect(wait).toMatchObject({ question: { choices: ['accept', 'decline'] } });
    expect(JSON.parse(said(end))).toEqual({ action: 'accept', content: {} });
  });

  test('asks to open an address', async () => {
    const address = { mode: 'url', message: 'Sign in', url: 'https://example.com/in', elicitationId: 'e1' };
    const { wait, end } = await asked(asking(address), 'opened');
    expect(wait).toMatchObject({ question: { prompt: expect.stringContaining('https://example.com/in') } });
    expect(JSON.parse(said(end))).toEqual({ action: 'accept' });
  });

  test('does not get people to open an address without encryption', async () => {
    const address = { mode: 'url', message: 'Sign in', url: 'http://example.com/in', elicitationId: 'e1' };
    const tools = await mcpTools(connectTo(asking(address)));
    const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
    expect(JSON.parse(said(end))).toEqual({ action: 'decline' });
  });

  test('is told that nobody can answer', async () => {
    const tools = await mcpTools(connectTo(asking(FORM)));
    const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go', canAnswer: false });
    expect(JSON.parse(said(end))).toEqual({ action: 'cancel' });
  });

  test('does not get the answer of one run for another', async () => {
    const both = Promise.withResolvers<void>();
    let calls = 0;
    const server = connectTo(
      scripted({
        'tools/call': async ({ ask }) => {
          if (++calls === 2) both.resolve();
          await both.promise;
          const { error } = await ask('elicitation/create', FORM);
          return text(error?.message ?? 'asked');
        },
      }),
    );
    const tools = await mcpTools(server);
    const start = (): Promise<LoopResult> => runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
    const ends = await Promise.all([start(), start()]);
    expect(ends.map(said).join()).toContain('Calls of several runs are in progress');
  });

  test('asks for a sign-in by an error, and is called again afterwards', async () => {
    const url = 'https://example.com/in';
    let isSignedIn = false;
    const server = scripted({
      'tools/call': () => {
        if (isSignedIn) return text('ok');
        isSignedIn = true;
        const elicitations = [{ mode: 'url', message: 'Sign in', url, elicitationId: 'e1' }];
        throw Object.assign(new Error('sign in'), { code: -32042, data: { elicitations } });
      },
    });
    const run = { journal: memoryJournal(), runId: 'r', tools: await mcpTools(connectTo(server)) };
    const first = await runLoop({ ...run, model: scriptedModel([CALL]), input: 'go' });
    expect(first.waiting).toMatchObject([{ question: { prompt: expect.stringContaining(url) } }]);
    const end = await runLoop({ ...run, model: scriptedModel(['done']), answers: answerTo(first.waiting, 'opened') });
    expect(said(end)).toBe('ok');
  });
});

describe('a server of the newer version', () => {
  const elicitation = (message: string): object => ({ method: 'elicitation/create', params: { ...FORM, message } });

  test('gets answers and its state back, also from another process', async () => {
    const server = scripted({
      'server/discover': discovered,
      'tools/call': ({ params }) => {
        const { inputResponses, requestState } = params;
        if (requestState === 'round 2') return complete({ inputResponses });
        return requestState === undefined
          ? { resultType: 'input_required', inputRequests: { who: elicitation('one') }, requestState: 'round 1' }
          : { resultType: 'input_required', inputRequests: { next: elicitation('two') }, requestState: 'round 2' };
      },
    });
    const run = { journal: memoryJournal(), runId: 'r' };
    const tools = async (): ReturnType<typeof mcpTools> => mcpTools(connectTo(server));
    const first = await runLoop({ ...run, model: scriptedModel([CALL]), tools: await tools(), input: 'go' });
    expect(first.waiting).toMatchObject([{ question: { prompt: 'MCP server "srv" asks: one' } }]);
    const second = await runLoop({
      ...run,
      model: scriptedModel([]),
      tools: await tools(),
      answers: answerTo(first.waiting, { user: 'a' }),
    });
    expect(second.waiting).toMatchObject([{ question: { prompt: 'MCP server "srv" asks: two' } }]);
    const end = await runLoop({
      ...run,
      model: scriptedModel(['done']),
      tools: await tools(),
      answers: answerTo(second.waiting, { user: 'b' }),
    });
    expect(JSON.parse(said(end))).toEqual({
      inputResponses: { next: { action: 'accept', content: { user: 'b', port: 80 } } },
    });
    // No round was repeated.
    const calls = server.received.filter(({ method }) => method === 'tools/call');
    expect(calls.map(({ params }) => params['requestState'])).toEqual([undefined, 'round 1', 'round 2']);
  });

  test('gets the folders that it may know', async () => {
    const server = scripted({
      'server/discover': discovered,
      'tools/call': ({ params }) =>
        params['inputResponses']
          ? complete(params['inputResponses'])
          : { resultType: 'input_required', inputRequests: { where: { method: 'roots/list' } } },
    });
    const tools = await mcpTools(connectTo(server, { roots: ['/some/folder'] }));
    const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
    expect(JSON.parse(said(end))).toEqual({ where: { roots: [{ uri: 'file:///some/folder' }] } });
  });

  test('cannot ask without end', async () => {
    let rounds = 0;
    const server = scripted({
      'server/discover': discovered,
      'tools/call': () => {
        rounds++;
        return { resultType: 'input_required', inputRequests: { where: { method: 'roots/list' } }, requestState: 'x' };
      },
    });
    const tools = await mcpTools(connectTo(server));
    const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
    expect(said(end)).toContain('asked for input more than 10 times');
    expect(rounds).toBe(11);
  });
});

describe('requests for a model', () => {
  const request = {
    messages: [{ role: 'user', content: { type: 'text', text: 'Say hi' } }],
    systemPrompt: 'Be short',
    maxTokens: 50,
  };
  const sampling = (count = 1): ScriptedServer =>
    scripted({
      'tools/call': async ({ ask }) => {
        const answers: unknown[] = [];
        for (let i = 0; i < count; i++) answers.push(await ask('sampling/createMessage', request));
        return text(
          answers.map((answer) => {
            const { result, error } = answer as { result?: { content: { text: string } }; error?: { message: string } };
            return result?.content.text ?? error?.message;
          }),
        );
      },
    });

  test('are refused unless the options have one', async () => {
    const tools = await mcpTools(connectTo(sampling()));
    const end = await runLoop({ model: scriptedModel([CALL, 'done']), tools, input: 'go' });
    expect(said(end)).toContain('ethod not found');
  });

  test('are child runs that count for the run', async () => {
    const usage = { inputTokens: 100, outputTokens: 10, cost: 0.5 };
    const model = scriptedModel([
      { text: 'hi', usage },
      { text: 'hello', usage },
    ]);
    const journal = memoryJournal();
    const tools = await mcpTools(connectTo(sampling(2), { sampling: model }));
    const own = { ...CALL, usage: { inputTokens: 1, outputTokens: 1, cost: 0 } };
    const run = { model: scriptedModel([own, { text: 'done', usage: own.usage }]), tools, input: 'go' };
    const end = await runLoop({ ...run, journal, runId: 'r' });
    expect(JSON.parse(said(end))).toEqual(['hi', 'hello']);
    expect(model.requests[0]).toMatchObject({ instructions: 'Be short', settings: { maxOutputTokens: 50 }, tools: [] });
    expect(end.usage).toMatchObject({ inputTokens: 202, outputTokens: 22, cost: 1 });
    expect((await childRuns(journal, 'r')).map(({ status }) => status)).toEqual(['completed', 'completed']);
  });

  test('stay within the limits of the run', async () => {
    const usage = { inputTokens: 100, outputTokens: 0, cost: 0 };
    const model = scriptedModel([{ text: 'hi', usage }]);
    const tools = await mcpTools(connectTo(sampling(3), { sampling: model }));
    const run = { model: scriptedModel([CALL, 'done']), tools, input: 'go' };
    const end = await runLoop({ ...run, limits: { tokens: 150 } });
    const [first, ...others] = JSON.parse(said(end)) as string[];
    expect(first).toBe('hi');
    for (const other of others) expect(other).toContain('limit of tokens');
    expect(model.requests).toHaveLength(1);
  });

  test('end with the call', async () => {
    const started = Promise.withResolvers<AbortSignal>();
    const model = scriptedModel([
      (_, signal) => {
        started.resolve(signal);
        return new Promise<string>(() => {});
      },
    ]);
    const tools = await mcpTools(connectTo(sampling(), { sampling: model }));
    const controller = new AbortController();
    const { signal } = controller;
    const run = runLoop({ model: scriptedModel([CALL]), tools, input: 'go', signal });
    const asking = await started.promise;
    controller.abort();
    expect((await run).outcome?.type).toBe('cancelled');
    expect(asking.aborted).toBe(true);
  });

  test('can be mixed with questions', async () => {
    const server = scripted({
      'tools/call': async ({ ask }) => {
        const { result } = await ask('elicitation/create', FORM);
        const reply = await ask('sampling/createMessage', request);
        return text([result?.['action'], (reply.result!['content'] as { text: string }).text]);
      },
    });
    const { end } = await asked(server, { user: 'me' }, { sampling: scriptedModel(['hi']) });
    expect(JSON.parse(said(end))).toEqual(['accept', 'hi']);
  });

  test('of a call that was lost with its process are cancelled', async () => {
    const started = Promise.withResolvers<void>();
    const never = scriptedModel([
      () => {
        started.resolve();
        return new Promise<string>(() => {});
      },
    ]);
    const journal = memoryJournal();
    const run = { journal, runId: 'r' };
    const tools = await mcpTools(connectTo(sampling(), { sampling: never }));
    const live = startLoop({ ...run, model: scriptedModel([CALL]), tools, input: 'go' });
    await started.promise;
    await live.detach();
    const again = await mcpTools(connectTo(sampling(), { sampling: never }));
    const end = await runLoop({ ...run, model: scriptedModel(['done']), tools: again });
    expect(end.outcome?.type).toBe('completed');
    expect(said(end)).toContain('interrupted');
    expect((await childRuns(journal, 'r')).map(({ status }) => status)).toEqual(['cancelled']);
  });
});
