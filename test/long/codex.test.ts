import { createRequire } from 'node:module';
import { openaiChat } from '@treadle/models/openai-chat';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { answerIn, codexFolder, runCodex, type CodexEnd, type CodexFolder } from '../clients/codex.ts';
import { fetchedClient } from '../clients/fetched.ts';
import { needs } from '../needs.ts';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { ScriptedCall, Step } from '../provider/script.ts';
import { startInProcess } from '../server/support/in-process.ts';

/*
 * The real Codex against this server over HTTP, whose model is a scripted provider that checks every request by the rules of the
 * real one. `npm run clients` runs it.
 */

const binary = await fetchedClient('codex');

/** A client and its server. */
interface World extends AsyncDisposable {
  readonly folder: CodexFolder;
  run(...args: readonly string[]): Promise<CodexEnd>;
  /** The last request to the provider, as JSON. */
  lastRequest(): Promise<string>;
}

const call = (name: string, input: object): ScriptedCall => ({ name, arguments: JSON.stringify(input) });
const exec = (cmd: string): ScriptedCall => call('exec_command', { cmd });

describe.runIf(needs('Codex, from the npm registry', binary !== undefined))('Codex', () => {
  let provider: Provider;
  beforeAll(async () => {
    provider = await startProvider();
  });
  afterAll(() => provider[Symbol.asyncDispose]());

  async function world(steps: readonly Step[], settings?: string): Promise<World> {
    const script = await provider.script(steps);
    const options = { apiKey: 'k', baseURL: script.baseURL('openai-chat'), maxRetries: 0 };
    const model = openaiChat({ model: 'gpt', ...options });
    const server = await startInProcess(model, { models: { default: 'main', models: new Map([['main', model]]) } });
    const folder = codexFolder(server.url, settings);
    return {
      folder,
      run: (...args) => runCodex(binary!, folder, args),
      async lastRequest() {
        const requests = await script.requests();
        expect(requests.flatMap(({ refused }) => refused ?? [])).toEqual([]);
        return JSON.stringify(requests.at(-1)!.body);
      },
      async [Symbol.asyncDispose]() {
        await server[Symbol.asyncDispose]();
        folder[Symbol.dispose]();
      },
    };
  }

  test('gets an answer, and its model the tools of a namespace', async () => {
    await using one = await world([{ text: 'Hello there.' }]);
    const end = await one.run('Say hello');
    expect([answerIn(end), end.code]).toEqual(['Hello there.', 0]);
    expect(await one.lastRequest()).toContain('"multi_agent_v1__spawn_agent"');
  });

  test('runs a command', async () => {
    await using one = await world([{ calls: [exec('echo out-$((6*7))')] }, { text: 'It is 42.' }]);
    expect(answerIn(await one.run('Run it'))).toBe('It is 42.');
    expect(await one.lastRequest()).toContain('out-42');
  });

  test('calls a tool of its MCP server, which is a namespace', async () => {
    const main = createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/dist/index.js');
    const settings = `[mcp_servers.every]\ncommand = ${JSON.stringify(process.execPath)}\nargs = [${JSON.stringify(main)}]`;
    const echo = call('mcp__every__echo', { message: 'over MCP' });
    await using one = await world([{ calls: [echo] }, { text: 'Done.' }], settings);
    expect(answerIn(await one.run('Echo'))).toBe('Done.');
    expect(await one.lastRequest()).toContain('Echo: over MCP');
  });

  test('starts an agent of its own', async () => {
    const spawn = call('multi_agent_v1__spawn_agent', { message: 'Look around.' });
    await using one = await world([{ calls: [spawn] }, { text: 'Either.' }, { text: 'Either.' }, { text: 'Either.' }]);
    const { code } = await one.run('Look');
    expect(code).toBe(0);
    expect(await one.lastRequest()).toContain('Look around.');
  });

  test('resumes a session with all of its history', async () => {
    await using one = await world([{ calls: [exec('echo first')] }, { text: 'One.' }, { text: 'Two.' }]);
    const { events } = await one.run('Go');
    const session = events.find(({ thread_id: id }) => id !== undefined)!.thread_id!;
    expect(answerIn(await one.run('resume', session, 'Go on'))).toBe('Two.');
    expect(await one.lastRequest()).toMatch(/echo first.*One\..*Go on/);
  });
});
