import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { tool, type Model } from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { policy } from '@treadle/core/policy';
import { scriptedModel, type ScriptedModel } from '@treadle/core/testing';
import { anthropic } from '@treadle/models/anthropic';
import { openaiChat } from '@treadle/models/openai-chat';
import { hashKey, type ServedModels, type TreadleServerOptions } from '@treadle/server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  claudeFolder,
  startClaude,
  type ClaudeEnd,
  type ClaudeFolder,
  type ClaudeResult,
} from '../clients/claude-code.ts';
import { fetchedClient } from '../clients/fetched.ts';
import { needs } from '../needs.ts';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { ScriptedCall, Seen, Step } from '../provider/script.ts';
import { PDF, PNG } from '../server/support/fixture.ts';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';

/*
 * The real Claude Code against this server, whose model is a scripted provider that checks every request by the rules of the
 * real one. `npm run clients` runs it.
 */

const binary = await fetchedClient('claude-code');

type Form = 'openai-chat' | 'anthropic';
type Env = Readonly<Record<string, string>>;

/** A client and its server. */
interface World extends AsyncDisposable {
  readonly server: InProcessServer;
  readonly folder: ClaudeFolder;
  /** Runs `claude -p` with a prompt. */
  ask(prompt: string, ...args: readonly string[]): Promise<Answered>;
  /** Runs `claude` with any arguments. */
  run(args: readonly string[], more?: { readonly env?: Env; readonly input?: string }): Promise<ClaudeEnd>;
  start(args: readonly string[]): ReturnType<typeof startClaude>;
  /** What the provider got, and did not reject. */
  seen(): Promise<readonly Seen[]>;
  /** The messages of a request to the provider, as JSON; default: of the last one. */
  messagesOf(index?: number): Promise<string>;
  /** The runs of a session as the page shows them, the first one first. */
  runs(session: string): Promise<readonly WireRun[]>;
}

interface WireRun {
  readonly id: string;
  readonly status: string;
  readonly title: string;
  readonly model: string;
}

interface Answered extends ClaudeResult {
  readonly code: number | null;
  readonly stderr: string;
}

interface WorldOptions {
  readonly form?: Form;
  readonly aliases?: Readonly<Record<string, string>>;
  readonly server?: Partial<TreadleServerOptions>;
  readonly env?: Env;
}

const call = (name: string, input: object): ScriptedCall => ({ name, arguments: JSON.stringify(input) });
const bash = (command: string): ScriptedCall => call('Bash', { command, description: 'A command' });
/** A model that is not behind a provider. */
function modelsWith(model: ScriptedModel): {
  readonly models: ServedModels;
  readonly requests: ScriptedModel['requests'];
} {
  return {
    models: { default: 'main', models: new Map([['main', model]]), aliases: { '*': 'main' } },
    requests: model.requests,
  };
}

const ALLOW_BASH = ['--allowedTools', 'Bash'];

describe.runIf(needs('Claude Code, from the npm registry', binary !== undefined)).concurrent('Claude Code', () => {
  let provider: Provider;
  beforeAll(async () => {
    provider = await startProvider();
  });
  afterAll(() => provider[Symbol.asyncDispose]());

  async function world(
    given: readonly Step[] | ((folder: ClaudeFolder) => readonly Step[]),
    { form = 'openai-chat', aliases = { '*': 'main' }, server: more, env = {} }: WorldOptions = {},
  ): Promise<World> {
    const folder = claudeFolder();
    const script = await provider.script(typeof given === 'function' ? given(folder) : given);
    const options = { apiKey: 'k', baseURL: script.baseURL(form), maxRetries: 0 };
    const model: Model =
      form === 'anthropic'
        ? anthropic({ model: 'claude-opus-4-8', ...options })
        : openaiChat({ model: 'gpt', ...options });
    const models = { default: 'main', models: new Map([['main', model]]), aliases };
    const server = await startInProcess(model, { models, ...more });
    const started = (args: readonly string[], with_: { readonly env?: Env; readonly input?: string } = {}) =>
      startClaude(args, { binary: binary!, url: server.url, folder, ...with_, env: { ...env, ...with_.env } });
    const seen = async (): Promise<readonly Seen[]> => {
      const requests = await script.requests();
      expect(requests.flatMap(({ refused }) => refused ?? [])).toEqual([]);
      return requests;
    };
    return {
      server,
      folder,
      start: (args) => started(args),
      run: (args, with_) => started(args, with_).ended,
      async ask(prompt, ...args) {
        const { stdout, ...end } = await started(['-p', prompt, '--output-format', 'json', ...args]).ended;
        if (!stdout.startsWith('{')) throw new Error(`Claude Code printed ${stdout}${end.stderr}`);
        return { ...(JSON.parse(stdout) as ClaudeResult), ...end };
      },
      seen,
      async messagesOf(index = -1) {
        return JSON.stringify(((await seen()).at(index)!.body as { messages: unknown }).messages);
      },
      async runs(session) {
        const { body } = await server.send('GET', `/v1/runs?session=${session}&limit=50`);
        return body.data.toReversed();
      },
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        folder[Symbol.dispose]();
      },
    };
  }

  const statuses = async (one: World, session: string): Promise<readonly string[]> =>
    (await one.runs(session)).map(({ status }) => status);

  test('answers, and its usage has cached tokens apart', async () => {
    await using one = await world([{ text: 'Hello there.', usage: { input: 100, cached: 60, output: 7 } }]);
    const { result, session_id: session, usage, code } = await one.ask('Say hello');
    expect([code, result]).toEqual([0, 'Hello there.']);
    expect(usage).toMatchObject({ input_tokens: 40, cache_read_input_tokens: 60, output_tokens: 7 });
    expect(await one.runs(session)).toMatchObject([{ status: 'completed', title: 'Say hello', model: 'gpt' }]);
  });

  test.each<[Form]>([['openai-chat'], ['anthropic']])('runs a command, with a model of %s', async (form) => {
    const steps = [{ reasoning: 'I run.', text: 'Now.', calls: [bash('echo out-$((6*7))')] }, { text: 'It is 42.' }];
    await using one = await world(steps, { form });
    const { result, num_turns: turns, session_id: session } = await one.ask('Run it', ...ALLOW_BASH);
    expect([result, turns]).toEqual(['It is 42.', 2]);
    expect(await one.messagesOf()).toContain('out-42');
    expect(await statuses(one, session)).toEqual(['paused', 'completed']);
  });

  test('has a page with all that a session did', async () => {
    await using one = await world([{ calls: [bash('echo seen')] }, { text: 'Done.' }]);
    const { session_id: session } = await one.ask('Run it', ...ALLOW_BASH);
    const [first, last] = await one.runs(session);
    const events = async ({ id }: WireRun): Promise<string> => {
      const { body } = await one.server.send('GET', `/v1/runs/${id}/events`);
      return JSON.stringify(body.data);
    };
    expect(await events(first!)).toContain('"name":"Bash"');
    expect(await events(last!)).toMatch(/seen.*Done\./);
    expect((await one.server.send('POST', `/v1/runs/${last!.id}/replay`)).status).toBe(200);
  });

  test('writes and edits a file', async () => {
    await using one = await world(({ work }) => [
      { calls: [call('Write', { file_path: path.join(work, 'a.txt'), content: 'one\n' })] },
      { calls: [call('Edit', { file_path: path.join(work, 'a.txt'), old_string: 'one', new_string: 'two' })] },
      { text: 'Done.' },
    ]);
    const { result } = await one.ask('Write it', '--permission-mode', 'acceptEdits');
    expect([result, readFileSync(path.join(one.folder.work, 'a.txt'), 'utf8')]).toEqual(['Done.', 'two\n']);
  });

  test('asks several times in one session', async () => {
    await using one = await world([{ text: 'One.' }, { calls: [bash('echo two')] }, { text: 'Two.' }]);
    const input = ['first', 'second'].map((content) => ({ type: 'user', message: { role: 'user', content } }));
    const format = ['--input-format', 'stream-json', '--output-format', 'stream-json', '--verbose'];
    const { stdout } = await one.run(['-p', ...format, ...ALLOW_BASH], {
      input: `${input.map((message) => JSON.stringify(message)).join('\n')}\n`,
    });
    const ends = stdout
      .trim()
      .split('\n')
      .map(
        (line) => JSON.parse(line) as { readonly type: string; readonly result?: string; readonly session_id: string },
      )
      .filter(({ type }) => type === 'result');
    expect(ends.map(({ result }) => result)).toEqual(['One.', 'Two.']);
    expect(await statuses(one, ends[0]!.session_id)).toEqual(['completed', 'paused', 'completed']);
    expect(await one.messagesOf()).toMatch(/first.*One\..*second.*echo two/);
  });

  test.each<[Form]>([['openai-chat'], ['anthropic']])(
    'runs calls at the same time, with a model of %s',
    async (form) => {
      // The results come in the order in which the calls end, and the model gets them in the order of the calls.
      const calls = [bash('sleep 0.3; echo slow'), bash('echo fast')];
      await using one = await world([{ text: 'Both.', calls }, { text: 'Done.' }], { form });
      expect((await one.ask('Run both', ...ALLOW_BASH)).result).toBe('Done.');
      expect(await one.messagesOf()).toMatch(/slow.*fast.*\bslow\b.*\bfast\b/);
    },
  );

  test.each<[Form]>([['openai-chat'], ['anthropic']])(
    'reads an image and a document, with a model of %s',
    async (form) => {
      await using one = await world(
        ({ work }) => [
          {
            calls: [
              call('Read', { file_path: path.join(work, 'a.png') }),
              call('Read', { file_path: path.join(work, 'a.pdf') }),
            ],
          },
          { text: 'I see.' },
        ],
        { form },
      );
      writeFileSync(path.join(one.folder.work, 'a.png'), Buffer.from(PNG, 'base64'));
      writeFileSync(
        path.join(one.folder.work, 'a.pdf'),
        `${Buffer.from(PDF, 'base64').toString('latin1')}\ntrailer\n%%EOF\n`,
      );
      expect((await one.ask('Look')).result).toBe('I see.');
      expect(await one.messagesOf()).toContain(PNG);
    },
  );

  test('has MCP servers of its own', async () => {
    const main = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
    const config = { mcpServers: { every: { command: process.execPath, args: [main] } } };
    await using one = await world([{ calls: [call('mcp__every__echo', { message: 'over MCP' })] }, { text: 'Done.' }]);
    const allowed = ['--mcp-config', JSON.stringify(config), '--allowedTools', 'mcp__every__echo'];
    expect((await one.ask('Echo', ...allowed)).result).toBe('Done.');
    expect(await one.messagesOf()).toContain('over MCP');
  });

  test('gets the tools of the server, which run in the loop', async () => {
    const clock = tool({
      name: 'clock',
      description: 'The time',
      effect: 'pure',
      touches: () => [],
      execute: () => 'noon',
    });
    await using one = await world(
      [{ text: 'I look.', calls: [call('clock', {})] }, { calls: [bash('echo at')] }, { text: 'At noon.' }],
      {
        server: { tools: [clock], defaultTools: ['clock'] },
      },
    );
    const { result, session_id: session } = await one.ask('When?', ...ALLOW_BASH);
    expect(result).toBe('At noon.');
    expect(await one.messagesOf()).toMatch(/I look\..*noon.*echo at/);
    expect(await statuses(one, session)).toEqual(['paused', 'completed']);
  });

  test('is kept by the policy of the server from calling a tool', async () => {
    const rules = policy({ tools: { Bash: 'deny' } }, { folder: '/' });
    await using one = await world([{ calls: [bash('touch made')] }, { text: 'I may not.' }], {
      server: { policy: rules },
    });
    const { result, num_turns: turns } = await one.ask('Run it', ...ALLOW_BASH);
    expect([result, turns, existsSync(path.join(one.folder.work, 'made'))]).toEqual(['I may not.', 1, false]);
  });

  test.each([
    ['--continue', () => ['--continue']],
    ['--resume', (session: string) => ['--resume', session]],
  ])('goes on with a session: %s', async (_, argsFor) => {
    const steps = [{ reasoning: 'Hm.', text: 'One.', calls: [bash('echo a')] }, { text: 'Two.' }, { text: 'Three.' }];
    await using one = await world(steps, { form: 'anthropic' });
    const first = await one.ask('first', ...ALLOW_BASH);
    const second = await one.ask('second', ...argsFor(first.session_id));
    expect([second.result, second.session_id]).toEqual(['Three.', first.session_id]);
    expect(await one.messagesOf()).toMatch(/first.*Hm\..*One\..*Two\..*second/);
  });

  test('forms its answer by a schema', async () => {
    const schema = { type: 'object', properties: { title: { type: 'string' } }, required: ['title'] };
    await using one = await world([{ calls: [call('StructuredOutput', { title: 'A walk' })] }]);
    const { structured_output: output } = await one.ask('A title', '--json-schema', JSON.stringify(schema));
    expect(output).toEqual({ title: 'A walk' });
  });

  test('starts an agent of its own, with the small model', async () => {
    const agent = call('Agent', { description: 'look', prompt: 'Look around.', subagent_type: 'Explore' });
    await using one = await world([{ calls: [agent] }, { text: 'I looked.' }, { text: 'All seen.' }]);
    const { result, session_id: session } = await one.ask('Look');
    expect(result).toBe('All seen.');
    expect(await one.messagesOf()).toContain('I looked.');
    expect(await statuses(one, session)).toEqual(['paused', 'completed', 'completed']);
  });

  test('searches the web with a nested request, which the model answers itself', async () => {
    const search = call('WebSearch', { query: 'weather in Oslo' });
    await using one = await world([{ calls: [search] }, { text: 'Sunny.' }, { text: 'It is sunny.' }]);
    expect((await one.ask('Weather?', '--allowedTools', 'WebSearch')).result).toBe('It is sunny.');
    expect(await one.messagesOf()).toContain('Sunny.');
  });

  test('summarises its conversation', async () => {
    const steps = [{ text: 'One.' }, { text: 'Two.' }, { text: '<summary>All so far.</summary>' }, { text: 'Four.' }];
    await using one = await world(steps);
    await one.ask('first');
    await one.ask('second', '--continue');
    expect((await one.run(['-p', '/compact', '--continue'])).code).toBe(0);
    expect((await one.ask('fourth', '--continue')).result).toBe('Four.');
    const last = await one.messagesOf();
    expect(last).toContain('All so far.');
    expect(last).not.toContain('"One."');
  });

  test('counts the tokens of its context', async () => {
    await using one = await world([]);
    const { stdout } = await one.run(['-p', '/context']);
    const [, tools] = /System tools \| ([\d.]+)k/.exec(stdout) ?? [];
    expect(Number(tools)).toBeGreaterThan(5);
  });

  test.each<[Form]>([['openai-chat'], ['anthropic']])(
    'removes the thoughts of another server when they are refused, with a model of %s',
    async (form) => {
      const steps: readonly Step[] = [{ reasoning: 'Hm.', text: 'One.', calls: [bash('echo a')] }, { text: 'Two.' }];
      await using before = await world(steps, { form });
      const { session_id: session } = await before.ask('first', ...ALLOW_BASH);
      await using after = await world([{ text: 'Three.' }], { form });
      // Another store has another key.
      const env = { ANTHROPIC_BASE_URL: after.server.url };
      const { stdout } = await before.run(['-p', 'second', '--resume', session], { env });
      expect(stdout.trim()).toBe('Three.');
      expect(await after.messagesOf()).not.toContain('Hm.');
    },
  );

  describe.concurrent('faults', () => {
    const again = { CLAUDE_CODE_MAX_RETRIES: '2' };

    test.each([[500], [503], [529]])('asks again after %s', async (status) => {
      await using one = await world([{ fault: 'status', status }, { text: 'There.' }], { env: again });
      const { result, session_id: session } = await one.ask('Hello');
      expect(result).toBe('There.');
      expect(await statuses(one, session)).toEqual(['failed', 'completed']);
    });

    test('asks again for longer than a provider is down', async () => {
      const down: Step = { fault: 'status', status: 500 };
      await using one = await world([down, down, down, down, { text: 'There.' }], {
        env: { CLAUDE_CODE_MAX_RETRIES: '10' },
      });
      expect((await one.ask('Hello')).result).toBe('There.');
    });

    test('asks again after the time that a rate limit names', async () => {
      await using one = await world([{ fault: 'status', status: 429, retryAfter: 1 }, { text: 'There.' }], {
        env: again,
      });
      expect((await one.ask('Hello')).result).toBe('There.');
    });

    test.each([['reset'], ['close'], ['error-in-stream']] as const)(
      'asks again, without a stream, if one breaks: %s',
      async (fault) => {
        const reply = { text: 'A text that is cut off in the middle of it, so that a part of it was sent.' };
        await using one = await world([{ fault, reply }, { text: 'Whole.' }], { env: again });
        const { result, session_id: session } = await one.ask('Hello');
        expect(result).toBe('Whole.');
        expect(await statuses(one, session)).toEqual(['failed', 'completed']);
      },
    );

    test('shows what the provider says about a request that it rejects, and asks once', async () => {
      await using one = await world([{ fault: 'status', status: 400 }, { text: 'Never.' }], { env: again });
      const { result, is_error: isError } = await one.ask('Hello');
      expect([isError, result]).toEqual([true, expect.stringMatching(/^API Error: 400/)]);
      expect((await one.seen()).length).toBe(1);
    });

    test('shows which model is missing, and takes one that the server has', async () => {
      await using one = await world([{ text: 'Hello.' }], { aliases: {}, env: { CLAUDE_CODE_MAX_RETRIES: '0' } });
      const { result, is_error: isError } = await one.ask('Hello');
      expect([isError, result]).toEqual([true, expect.stringContaining('claude-opus-4-8')]);
      expect((await one.ask('Hello', '--model', 'main')).result).toBe('Hello.');
    });

    test('summarises its conversation when it is too long for the model', async () => {
      const { models, requests } = modelsWith(
        scriptedModel([
          'One.',
          'Two.',
          { type: 'failure', error: { code: 'context-length', message: 'It takes 1,000 tokens.', retryable: false } },
          '<summary>All so far.</summary>',
          'Three.',
        ]),
      );
      await using one = await world([], { server: { models } });
      await one.ask('first');
      await one.ask('second', '--continue');
      const { result, session_id: session } = await one.ask('third', '--continue');
      expect([result, JSON.stringify(requests.at(-1)!.messages).includes('All so far.')]).toEqual(['Three.', true]);
      expect(await statuses(one, session)).toEqual(['completed', 'completed', 'failed', 'completed', 'completed']);
    });

    test.each([
      ['the credit at the provider is used up', 402, 'The provider answered 402'],
      ['the provider rejects the credentials', 401, 'rejects the credentials of this server'],
    ])('asks once if %s', async (_, status, why) => {
      await using one = await world([{ fault: 'status', status }, { text: 'Never.' }], { env: again });
      const { result, is_error: isError } = await one.ask('Hello');
      expect([isError, result]).toEqual([true, expect.stringContaining(why)]);
      expect(await one.seen()).toHaveLength(1);
    });

    test('asks once if a budget has nothing left', async () => {
      const budgets = memoryBudgets({ none: { tokens: 0 } });
      await using one = await world([], { server: { ledger: () => budgets.ledger(['none']) }, env: again });
      const { result, is_error: isError, session_id: session } = await one.ask('Hello');
      expect([isError, result]).toEqual([true, expect.stringContaining('The budget "none" has 0 tokens left')]);
      expect(await statuses(one, session)).toHaveLength(1);
    });

    test.each<[string, Env, boolean]>([
      ['the wrong key', { ANTHROPIC_API_KEY: 'wrong' }, false],
      ['the right key', { ANTHROPIC_API_KEY: 'right' }, true],
      ['the right token', { ANTHROPIC_API_KEY: '', ANTHROPIC_AUTH_TOKEN: 'right' }, true],
    ])('with %s', async (_, env, isRight) => {
      const keys = [{ name: 'ann', hash: hashKey('right') }];
      await using one = await world([{ text: 'Hello.' }], {
        server: { keys },
        env: { ...env, CLAUDE_CODE_MAX_RETRIES: '0' },
      });
      const { result, is_error: isError } = await one.ask('Hello');
      expect([isError, result]).toEqual(isRight ? [false, 'Hello.'] : [true, expect.stringMatching(/API key|401/)]);
    });
  });

  test('ends its run when it is interrupted', async () => {
    await using one = await world([{ fault: 'stall', reply: { text: 'A text that never comes to its end at all.' } }]);
    const { child, ended } = one.start(['-p', 'Hello', '--output-format', 'json']);
    const statusIs = async (status: string): Promise<boolean> =>
      (await one.server.send('GET', `/v1/runs?status=${status}`)).body.data.length === 1;
    while (!(await statusIs('running'))) await setTimeout(20);
    child.kill('SIGINT');
    await ended;
    while (!(await statusIs('cancelled'))) await setTimeout(20);
  });
});
