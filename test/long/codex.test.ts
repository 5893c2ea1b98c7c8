import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { tool, type Model } from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { policy } from '@treadle/core/policy';
import { scriptedModel } from '@treadle/core/testing';
import { anthropic } from '@treadle/models/anthropic';
import { openaiChat } from '@treadle/models/openai-chat';
import { openaiResponses } from '@treadle/models/openai-responses';
import { hashKey, type TreadleServerOptions } from '@treadle/server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  answerIn,
  codexFolder,
  failureIn,
  sessionIn,
  startCodex,
  type CodexEnd,
  type CodexFolder,
  type CodexSettings,
} from '../clients/codex.ts';
import { fetchedClient } from '../clients/fetched.ts';
import { needs } from '../needs.ts';
import { chromiumNeed, launch, openPage, type Launched } from '../page/browser.ts';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { ScriptedCall, Seen, Step } from '../provider/script.ts';
import { PNG } from '../server/support/fixture.ts';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';

/*
 * The real Codex against this server, over HTTP and WebSocket. The model of the server is a scripted provider that checks every
 * request by the rules of the real one. `npm run clients` runs it.
 */

const binary = await fetchedClient('codex');
const launched: Launched = binary === undefined ? { error: 'There is no Codex.' } : await launch();

type Form = 'openai-chat' | 'openai-responses' | 'anthropic';
type Transport = NonNullable<CodexSettings['transport']>;

/** A client and its server. */
interface World extends AsyncDisposable {
  readonly server: InProcessServer;
  readonly folder: CodexFolder;
  /** Runs it to its end. Its session has runs in the page. */
  run(...args: readonly string[]): Promise<CodexEnd>;
  start(...args: readonly string[]): ReturnType<typeof startCodex>;
  /** What the provider got, and did not reject. */
  seen(): Promise<readonly Seen[]>;
  /** The last request to the provider, as JSON. */
  lastRequest(): Promise<string>;
  /** How many requests it has sent, by `POST` and `WS`. */
  sent(): Promise<Readonly<Record<string, number>>>;
  /** The runs of a session as the page shows them, the first one first. */
  runs(session: string): Promise<readonly WireRun[]>;
}

interface WireRun {
  readonly id: string;
  readonly status: string;
  readonly title: string;
  readonly model: string;
}

interface WorldOptions extends Omit<CodexSettings, 'url'> {
  readonly form?: Form;
  readonly server?: Partial<TreadleServerOptions>;
}

const call = (name: string, input: object): ScriptedCall => ({ name, arguments: JSON.stringify(input) });

/** The models that it knows have different tools. Null: its own. */
const MODELS: readonly ModelName[] = ['main', 'gpt-5.5', 'gpt-5.6-luna', null];
type ModelName = string | null;
const TRANSPORTS = ['HTTP', 'WebSocket'] as const;

const exec = (cmd: string): ScriptedCall => call('exec_command', { cmd });

/** A command, as the model of a name calls it. */
function execFor(cmd: string, model: ModelName): ScriptedCall {
  if (model === 'main' || model === 'gpt-5.5') return exec(cmd);
  return script(`text(await tools.exec_command({ cmd: ${JSON.stringify(cmd)} }));`);
}

/** JavaScript that calls its tools. */
const script = (input: string): ScriptedCall => call('functions__exec', { input });

function patch(file: string, content: string, model: ModelName): ScriptedCall {
  const text = `*** Begin Patch\n*** Add File: ${file}\n+${content}\n*** End Patch\n`;
  if (model === 'gpt-5.5') return call('apply_patch', { input: text });
  return script(`text(await tools.apply_patch(${JSON.stringify(text)}));`);
}

const ONE_MODEL = { default: 'main', models: new Map([['main', scriptedModel([])]]) };

const EVERY = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
const MCP = `[mcp_servers.every]\ncommand = ${JSON.stringify(process.execPath)}\nargs = [${JSON.stringify(EVERY)}]\nrequired = true\nstartup_timeout_sec = 60`;

describe.runIf(needs('Codex, from the npm registry', binary !== undefined)).concurrent('Codex', () => {
  let provider: Provider;
  beforeAll(async () => {
    provider = await startProvider();
  });
  afterAll(async () => {
    await provider[Symbol.asyncDispose]();
    if ('browser' in launched) await launched.browser.close();
  });

  async function world(
    steps: readonly Step[],
    { form = 'openai-chat', server: more, ...settings }: WorldOptions = {},
  ): Promise<World> {
    const scripted = await provider.script(steps);
    const options = { apiKey: 'k', baseURL: scripted.baseURL(form), maxRetries: 0 };
    const model = modelOf(form, options);
    const models = { default: 'main', models: new Map([['main', model]]), aliases: { 'gpt-*': 'main' } };
    const server = await startInProcess(model, { models, recordUnstored: true, ...more });
    const folder = codexFolder({ url: server.url, ...settings });
    const runs: World['runs'] = async (session) => {
      const { body } = await server.send('GET', `/v1/runs?session=${session}&limit=50`);
      return body.data.toReversed();
    };
    const seen = async (): Promise<readonly Seen[]> => {
      const requests = await scripted.requests();
      expect(requests.flatMap(({ refused }) => refused ?? [])).toEqual([]);
      return requests;
    };
    const start: World['start'] = (...args) => startCodex(binary!, folder, args);
    return {
      server,
      folder,
      runs,
      seen,
      start,
      async run(...args) {
        const end = await start(...args).ended;
        expect(await runs(sessionIn(end)), end.stderr).not.toEqual([]);
        return end;
      },
      async sent() {
        const text = await (await fetch(`${server.url}/metrics`)).text();
        const counted = text.matchAll(
          /^treadle_http_requests_total\{method="(\w+)",route="\/v1\/responses".* (\d+)$/gm,
        );
        const counts: Record<string, number> = {};
        for (const [, method, count] of counted)
          if (method !== 'GET') counts[method!] = (counts[method!] ?? 0) + Number(count);
        return counts;
      },
      async lastRequest() {
        return JSON.stringify((await seen()).at(-1)!.body);
      },
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        folder[Symbol.dispose]();
      },
    };
  }

  function modelOf(form: Form, options: { apiKey: string; baseURL: string; maxRetries: number }): Model {
    if (form === 'anthropic') return anthropic({ model: 'claude-opus-4-8', ...options });
    if (form === 'openai-responses') return openaiResponses({ model: 'gpt-5.5', ...options });
    return openaiChat({ model: 'gpt', ...options });
  }

  const statuses = async (one: World, end: CodexEnd): Promise<readonly string[]> =>
    (await one.runs(sessionIn(end))).map(({ status }) => status);

  const ways = MODELS.flatMap((model) =>
    TRANSPORTS.map((transport): [string, WorldOptions] => [
      `the model ${model ?? 'that it has itself'}, over ${transport}`,
      { model, transport },
    ]),
  );

  test.each(ways)('runs a command and answers, with %s', async (_, way) => {
    const steps = [
      {
        text: 'I run it.',
        calls: [execFor('echo out-$((6*7))', way.model ?? null)],
        usage: { input: 100, cached: 60, output: 7 },
      },
      { text: 'It is 42.', usage: { input: 130, cached: 100, output: 9 } },
    ];
    await using one = await world(steps, way);
    const end = await one.run('Run it');
    expect([end.code, answerIn(end)]).toEqual([0, 'It is 42.']);
    expect(await one.lastRequest()).toContain('out-42');
    const { usage } = end.events.at(-1)!;
    expect(usage).toMatchObject({ input_tokens: 230, cached_input_tokens: 160, output_tokens: 16 });
    expect(await one.runs(sessionIn(end))).toMatchObject([{ status: 'paused' }, { status: 'completed', model: 'gpt' }]);
    expect(await one.sent()).toEqual(way.transport === 'WebSocket' ? { WS: 3 } : { POST: 2 });
  });

  test.each<[ModelName, Form, Transport]>([
    ['gpt-5.5', 'openai-chat', 'HTTP'],
    ['gpt-5.5', 'openai-responses', 'WebSocket'],
    ['gpt-5.5', 'anthropic', 'HTTP'],
    ['gpt-5.6-luna', 'openai-chat', 'WebSocket'],
    ['gpt-5.6-luna', 'anthropic', 'WebSocket'],
    [null, 'openai-chat', 'HTTP'],
    [null, 'openai-responses', 'HTTP'],
  ])('patches a file, with the model %s behind which is one of %s, over %s', async (model, form, transport) => {
    await using one = await world([{ calls: [patch('a.txt', 'made', model)] }, { text: 'Done.' }], {
      form,
      model,
      transport,
    });
    expect(answerIn(await one.run('Write it'))).toBe('Done.');
    expect(readFileSync(path.join(one.folder.work, 'a.txt'), 'utf8')).toBe('made\n');
  });

  test('gives the model instructions, its tools and the prompt, in order', async () => {
    await using one = await world([{ text: 'Hello.' }]);
    await one.run('Say hello');
    expect(await one.lastRequest()).toMatch(
      /"exec_command".*"multi_agent_v1__spawn_agent".*"system".*You are a coding agent.*<environment_context>.*Say hello/,
    );
  });

  test.each(TRANSPORTS)('has a page with all that a session did, over %s', async (transport) => {
    await using one = await world([{ calls: [exec('echo seen')] }, { text: 'Done.' }], { transport });
    const end = await one.run('Run it');
    const [first, last] = await one.runs(sessionIn(end));
    const events = async ({ id }: WireRun): Promise<string> => {
      const { body } = await one.server.send('GET', `/v1/runs/${id}/events`);
      return JSON.stringify(body.data);
    };
    expect(first!.title).toContain('Run it');
    expect(await events(first!)).toContain('"name":"exec_command"');
    expect(await events(last!)).toMatch(/seen.*Done\./);
    expect((await one.server.send('POST', `/v1/runs/${last!.id}/replay`)).body).toMatchObject({ equal: true });
  });

  test.runIf(needs(...chromiumNeed(launched)))('is seen in the page', async () => {
    await using one = await world([{ calls: [exec('echo seen')] }, { text: 'All is done.' }], { model: 'gpt-5.5' });
    const end = await one.run('Run it');
    const [first] = await one.runs(sessionIn(end));
    await using opened = await openPage(launched, `${one.server.url}/#/runs`);
    const rows = opened.page.getByRole('row', { name: /Run it/ });
    await rows.nth(1).waitFor();
    expect(await rows.count()).toBe(2);
    await opened.page.goto(`${one.server.url}/#/runs/${first!.id}`);
    await opened.page.getByRole('heading', { name: 'Run it' }).waitFor();
    await opened.page.getByText('exec_command').first().waitFor();
  });

  test.each(TRANSPORTS)('runs several commands at the same time, and more of them, over %s', async (transport) => {
    const steps = [
      { text: 'Both.', calls: [exec('sleep 0.3; echo slow'), exec('echo fast')] },
      { calls: [exec('echo third')] },
      { text: 'Done.' },
    ];
    await using one = await world(steps, { transport });
    const end = await one.run('Run all');
    expect(answerIn(end)).toBe('Done.');
    expect(await one.lastRequest()).toMatch(/echo slow.*echo fast.*slow.*fast.*echo third.*third/);
    expect(await statuses(one, end)).toEqual(['paused', 'paused', 'completed']);
  });

  test('talks to a command that goes on', async () => {
    const begin = call('exec_command', { cmd: 'read line; echo got-$line', tty: true, yield_time_ms: 250 });
    const write = call('write_stdin', { session_id: 1000, chars: 'it\n', yield_time_ms: 2_000 });
    await using one = await world([{ calls: [begin] }, { calls: [write] }, { text: 'Done.' }]);
    const end = await one.run('Talk');
    expect(answerIn(end)).toBe('Done.');
    expect(await statuses(one, end)).toEqual(['paused', 'paused', 'completed']);
  });

  test.each<[Form, Transport]>([
    ['openai-chat', 'HTTP'],
    ['openai-responses', 'WebSocket'],
    ['anthropic', 'HTTP'],
  ])('shows images of the user and of its tool, with a model of %s, over %s', async (form, transport) => {
    const steps = [{ calls: [call('view_image', { path: 'a.png' })] }, { text: 'I see.' }];
    await using one = await world(steps, { form, transport });
    const image = path.join(one.folder.work, 'a.png');
    writeFileSync(image, Buffer.from(PNG, 'base64'));
    expect(answerIn(await one.run('Look', '-i', image))).toBe('I see.');
    const images = (await one.seen()).map(({ body }) => JSON.stringify(body).split(PNG.slice(0, 20)).length - 1);
    expect(images).toEqual([1, 2]);
  });

  describe('has MCP servers', () => {
    const echo = call('mcp__every__echo', { message: 'over MCP' });
    const search = call('tool_search', { query: 'echo a message', limit: 3 });
    const nested = script('text(await tools.mcp__every__echo({ message: "over MCP" }));');

    test.each<[string, Transport, ModelName, readonly ScriptedCall[]]>([
      ['as a namespace', 'HTTP', 'main', [echo]],
      ['as a namespace', 'WebSocket', 'main', [echo]],
      ['whose tools are deferred and searched', 'HTTP', 'gpt-5.5', [search, echo]],
      ['whose tools are deferred and searched', 'WebSocket', 'gpt-5.5', [search, echo]],
      ['in scripts', 'WebSocket', 'gpt-5.6-luna', [nested]],
    ])('%s, over %s', async (_, transport, model, calls) => {
      const steps = [...calls.map((one) => ({ calls: [one] })), { text: 'Done.' }];
      await using one = await world(steps, { transport, model, last: MCP });
      expect(answerIn(await one.run('Echo'))).toBe('Done.');
      expect(await one.lastRequest()).toContain('Echo: over MCP');
      const [first] = await one.seen();
      const isOffered = JSON.stringify(first!.body).includes('"name":"mcp__every__echo"');
      expect(isOffered).toBe(model === 'main');
    });
  });

  test('shows images of its MCP servers', async () => {
    const image = call('mcp__every__get_tiny_image', {});
    await using one = await world([{ calls: [image] }, { text: 'I see.' }], { last: MCP });
    expect(answerIn(await one.run('Look'))).toBe('I see.');
    expect(await one.lastRequest()).toContain('data:image/png;base64,');
  });

  test('has MCP servers whose tools have the same names', async () => {
    const last = `${MCP}\n${MCP.replace('every]', 'other]')}`;
    const calls = ['every', 'other'].map((name) => call(`mcp__${name}__echo`, { message: `over ${name}` }));
    await using one = await world([{ calls }, { text: 'Done.' }], { last });
    expect(answerIn(await one.run('Echo'))).toBe('Done.');
    expect(await one.lastRequest()).toMatch(/Echo: over every.*Echo: over other/);
  });

  test.each<[ModelName, Transport]>([
    ['main', 'HTTP'],
    ['main', 'WebSocket'],
    [null, 'WebSocket'],
  ])('starts an agent of its own, whose runs belong to its session: %s, over %s', async (model, transport) => {
    const spawn =
      model === 'main'
        ? call('multi_agent_v1__spawn_agent', { message: 'Look around.' })
        : call('collaboration__spawn_agent', { task_name: 'look', message: 'Look around.' });
    const wait = model === 'main' ? exec('sleep 1') : call('clock__sleep', { duration_ms: 1_000 });
    const either = { text: 'Either.' };
    await using one = await world([{ calls: [spawn] }, { calls: [wait] }, either, either, either], {
      model,
      transport,
    });
    const end = await one.run('Look');
    expect(end.code).toBe(0);
    expect((await one.runs(sessionIn(end))).length).toBeGreaterThan(2);
    const all = (await one.seen()).map(({ body }) => JSON.stringify(body));
    expect(all.some((body) => !body.includes('spawn_agent"') || body.includes('Look around.'))).toBe(true);
  });

  test.each(TRANSPORTS)('resumes a session with all of its history, over %s', async (transport) => {
    await using one = await world([{ calls: [exec('echo first')] }, { text: 'One.' }, { text: 'Two.' }], { transport });
    const first = await one.run('Go');
    const second = await one.run('resume', sessionIn(first), 'Go on');
    expect([answerIn(second), sessionIn(second)]).toEqual(['Two.', sessionIn(first)]);
    expect(await one.lastRequest()).toMatch(/echo first.*One\..*Go on/);
    expect(await statuses(one, first)).toEqual(['paused', 'completed', 'completed']);
  });

  test.each(TRANSPORTS)('resumes a session of another server without its thoughts, over %s', async (transport) => {
    const steps = [{ reasoning: 'Hm.', calls: [exec('echo first')] }, { text: 'One.' }];
    await using before = await world(steps, { transport, form: 'openai-responses' });
    const first = await before.run('Go');
    await using after = await world([{ text: 'Two.' }], { transport, form: 'openai-responses' });
    const base = `model_providers.treadle.base_url="${after.server.url}/v1"`;
    const second = await before.start('-c', base, 'resume', sessionIn(first), 'Go on').ended;
    expect(answerIn(second)).toBe('Two.');
    expect(await after.lastRequest()).not.toContain('encrypted_content":"');
  });

  test('forks a session', async () => {
    await using one = await world([{ text: 'One.' }, { text: 'Two.' }]);
    const first = await one.run('Go');
    const second = await one.run('fork', sessionIn(first), 'Go elsewhere');
    expect(answerIn(second)).toBe('Two.');
    expect(await one.lastRequest()).toMatch(/Go".*One\..*Go elsewhere/);
  });

  test('reviews changes', async () => {
    const review = JSON.stringify({
      findings: [],
      overall_correctness: 'patch is correct',
      overall_explanation: 'It is fine.',
      overall_confidence_score: 0.9,
    });
    await using one = await world([{ calls: [exec('git status --short')] }, { text: review }]);
    const { work } = one.folder;
    execFileSync('git', ['init', '-q'], { cwd: work });
    writeFileSync(path.join(work, 'changed.txt'), 'new\n');
    const end = await one.run('review', '--uncommitted');
    expect([end.code, answerIn(end)]).toEqual([0, expect.stringContaining('It is fine.')]);
    expect(await one.lastRequest()).toContain('changed.txt');
  });

  test.each(TRANSPORTS)('summarises its conversation, over %s', async (transport) => {
    const steps = [
      { calls: [exec('echo first')], usage: { input: 50_000, output: 10 } },
      { text: 'A summary of all.', usage: { input: 1_000, output: 10 } },
      { text: 'Done.', usage: { input: 1_000, output: 10 } },
    ];
    await using one = await world(steps, { transport, first: 'model_auto_compact_token_limit = 20000' });
    expect(answerIn(await one.run('Go'))).toBe('Done.');
    const [, , last] = (await one.seen()).map(({ body }) => JSON.stringify(body));
    expect(last).toContain('A summary of all.');
    expect(last).not.toContain('echo first');
  });

  test.each(TRANSPORTS)('forms its answer by a schema, over %s', async (transport) => {
    await using one = await world([{ text: '{"title":"A walk"}' }], { transport });
    const file = path.join(one.folder.home, 'schema.json');
    const schema = { type: 'object', properties: { title: { type: 'string' } }, required: ['title'] };
    writeFileSync(file, JSON.stringify({ ...schema, additionalProperties: false }));
    expect(answerIn(await one.run('A title', '--output-schema', file))).toBe('{"title":"A walk"}');
    expect(await one.lastRequest()).toContain('"json_schema"');
  });

  test.each(TRANSPORTS)(
    'shows summaries of reasoning, and gives the model its reasoning back, over %s',
    async (transport) => {
      const steps = [
        { reasoning: 'I think of it.', calls: [exec('echo a')] },
        { reasoning: 'Again.', text: 'Done.' },
      ];
      await using one = await world(steps, { transport, form: 'openai-responses' });
      const end = await one.run('Think');
      expect(answerIn(end)).toBe('Done.');
      expect(end.events.flatMap(({ item }) => (item?.type === 'reasoning' ? item.text : []))).toEqual([
        'I think of it.',
        'Again.',
      ]);
      expect(await one.lastRequest()).toContain('encrypted_content');
    },
  );

  test.each(TRANSPORTS)('gives a model its signed thoughts back, over %s', async (transport) => {
    const steps = [{ reasoning: 'Hm.', text: 'One.', calls: [exec('echo a')] }, { text: 'Done.' }];
    await using one = await world(steps, { transport, form: 'anthropic', model: 'gpt-5.5' });
    expect(answerIn(await one.run('Think'))).toBe('Done.');
    expect(await one.lastRequest()).toMatch(/"thinking":"Hm\.","signature"/);
  });

  test('is kept by the policy of the server from running a command', async () => {
    const rules = policy({ tools: { exec_command: 'deny' } }, { folder: '/' });
    await using one = await world([{ calls: [exec('touch made')] }, { text: 'I may not.' }], {
      server: { policy: rules },
    });
    expect(answerIn(await one.run('Run it'))).toBe('I may not.');
    expect(existsSync(path.join(one.folder.work, 'made'))).toBe(false);
  });

  test.each(TRANSPORTS)('gets the tools of the server, which run in the loop, over %s', async (transport) => {
    const clock = tool({
      name: 'time',
      description: 'The time',
      effect: 'pure',
      touches: () => [],
      execute: () => 'noon',
    });
    const steps = [{ calls: [call('time', {})] }, { calls: [exec('echo at')] }, { text: 'At noon.' }];
    await using one = await world(steps, { transport, server: { tools: [clock], defaultTools: ['time'] } });
    const end = await one.run('When?');
    expect(answerIn(end)).toBe('At noon.');
    expect(await one.lastRequest()).toMatch(/noon.*echo at/);
    expect(await statuses(one, end)).toEqual(['paused', 'completed']);
  });

  describe('is told about faults so that it sends a request again only if that helps', () => {
    const fault = (status: number, more: object = {}): Step => ({ fault: 'status', status, ...more });
    const answer: Step = { text: 'Done.' };

    test.each(
      TRANSPORTS.flatMap((transport): [string, Transport, Step][] => [
        ['a limit of the provider', transport, fault(429, { retryAfter: 1 })],
        ['a provider that is down', transport, fault(500)],
        ['a provider without capacity', transport, fault(503)],
        ['a stream that breaks off', transport, { fault: 'close', reply: { text: 'Half of it.' } }],
      ]),
    )('again: %s, over %s', async (_, transport, step) => {
      await using one = await world([step, answer], { transport });
      const end = await one.run('Go');
      expect([end.code, answerIn(end)]).toEqual([0, 'Done.']);
      expect(await one.seen()).toHaveLength(2);
    });

    test.each(
      TRANSPORTS.flatMap((transport): [string, Transport, Step, string][] => [
        ['what the provider rejects', transport, fault(400), 'The provider answered 400'],
        ['a credit that is used up', transport, fault(402), 'The provider answered 402'],
        ['credentials that the provider rejects', transport, fault(401), 'rejects the credentials of this server'],
      ]),
    )('once: %s, over %s', async (_, transport, step, why) => {
      await using one = await world([step, answer], { transport });
      const end = await one.run('Go');
      expect([end.code, failureIn(end)]).toEqual([1, expect.stringContaining(why)]);
      expect(await one.seen()).toHaveLength(1);
    });

    test.each(TRANSPORTS)('once: a conversation that is too long for the model, over %s', async (transport) => {
      const error = { code: 'context-length', message: 'It takes 1,000 tokens.', retryable: false } as const;
      const model = scriptedModel([{ type: 'failure', error }, 'Never.']);
      const models = { default: 'main', models: new Map([['main', model]]) };
      await using one = await world([], { transport, server: { models } });
      const end = await one.run('Go');
      expect([end.code, failureIn(end)]).toEqual([1, expect.stringMatching(/context/)]);
      expect(model.requests).toHaveLength(1);
    });

    test.each(TRANSPORTS)('once: a model that the server does not have, over %s', async (transport) => {
      await using one = await world([], { model: 'gpt-5.5', transport, server: { models: ONE_MODEL } });
      const end = await one.start('Go').ended;
      expect([end.code, failureIn(end)]).toEqual([1, expect.stringContaining('This server has no model "gpt-5.5"')]);
      expect(await one.sent()).toEqual(transport === 'WebSocket' ? { WS: 2 } : { POST: 1 });
    });

    test.each(TRANSPORTS)('once: a wrong key, over %s', async (transport) => {
      const keys = [{ name: 'other', hash: hashKey('other') }];
      await using one = await world([], { transport, server: { keys }, provider: 'env_key = "TREADLE_KEY"' });
      const end = await one.start('Go').ended;
      expect([end.code, failureIn(end)]).toEqual([1, expect.stringContaining('invalid_api_key')]);
    });

    test.each(TRANSPORTS)('once: a budget that is spent, over %s', async (transport) => {
      const budgets = memoryBudgets({ none: { tokens: 0 } });
      await using one = await world([answer], { transport, server: { ledger: () => budgets.ledger(['none']) } });
      const end = await one.start('Go').ended;
      expect([end.code, failureIn(end)]).toEqual([1, expect.stringContaining('budget')]);
      expect(await one.seen()).toEqual([]);
    });

    test.each(TRANSPORTS)('again: a server without capacity, over %s', async (transport) => {
      await using one = await world([{ fault: 'slow-headers' }, answer], {
        transport,
        server: { maxConcurrentRuns: 1 },
      });
      const gone = new AbortController();
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ input: 'Wait' });
      const other = fetch(`${one.server.url}/v1/responses`, { method: 'POST', headers, body, signal: gone.signal });
      other.catch(() => {});
      while ((await one.seen()).length === 0) await setTimeout(20);
      const { ended } = one.start('Go');
      while (Object.values(await one.sent()).reduce((sum, count) => sum + count, 0) === 0) await setTimeout(20);
      gone.abort();
      const end = await ended;
      expect([end.code, answerIn(end)]).toEqual([0, 'Done.']);
    });
  });

  test.each(TRANSPORTS)('stops its run when it is interrupted, over %s', async (transport) => {
    await using one = await world([{ fault: 'slow-headers' }], { transport });
    const { child, ended } = one.start('Wait');
    while ((await one.seen()).length === 0) await setTimeout(20);
    child.kill('SIGINT');
    const end = await ended;
    let [run] = await one.runs(sessionIn(end));
    while (run!.status === 'running') [run] = await one.runs(sessionIn(end));
    expect(run!.status).toBe('cancelled');
  });
});
