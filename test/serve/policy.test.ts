import { hashKey } from '@treadle/server';
import OpenAI from 'openai';
import { describe, expect, test, vi } from 'vitest';
import type { Step } from '../command/scripted-openai.ts';
import { logLines, useServeFixture, type HttpResult, type ServeCommand } from './serve-command.ts';

// Starting processes takes a long time on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

const fixture = useServeFixture();
const SERVER_TOOLS = [{ type: 'mcp', server_label: 'treadle' }] as const;
const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
const OUTSIDE: Step = { calls: [{ name: 'read', arguments: '{"path":"/srv/notes.txt"}' }] };
const DONE: Step = { text: ['Done.'] };

const key = (name: string, tenant: string, scope = 'tools:execute'): string =>
  `[[server.keys]]\nname = "${name}"\nhash = "${hashKey(`tk_${name}`)}"\ntenant = "${tenant}"\n` +
  `scopes = ["agents:invoke", "${scope}"]\n`;

function ask(server: ServeCommand, name?: string, tools: readonly object[] = SERVER_TOOLS): Promise<HttpResult> {
  return server.respond({ input: 'Look', tools }, name === undefined ? {} : { authorization: `Bearer tk_${name}` });
}

/** The call of a response, as the client sees it. */
const callIn = ({ body }: HttpResult): string => JSON.stringify(body.output[0]);
const callLogs = (stderr: string): readonly object[] =>
  logLines(stderr).filter(({ msg }) => msg === 'a tool was called');

describe('two tenants side by side', () => {
  test('each key has its own rate', async () => {
    const lines = `${key('ann', 'acme')}${key('bob', 'bolt')}[policy]\nrate.minute = 1\n`;
    await fixture.configure(lines, READ, DONE, READ, DONE, READ, DONE);
    const server = await fixture.serveProcess();
    expect(callIn(await ask(server, 'ann'))).toContain(fixture.play.nonce);
    expect(callIn(await ask(server, 'ann'))).toContain('was denied: there may be 1 calls in a minute');
    expect(callIn(await ask(server, 'bob'))).toContain(fixture.play.nonce);
    const { stderr } = await server.stop();
    expect(callLogs(stderr)).toMatchObject([
      { subject: 'ann', tenant: 'acme', tool: 'read', success: true, rule: 'paths', parameters: { path: 'notes.txt' } },
      { subject: 'ann', tenant: 'acme', tool: 'read', success: false, rule: 'rate' },
      { subject: 'bob', tenant: 'bolt', tool: 'read', success: true, supervised: true },
    ]);
  });

  test('each key has its own scopes', async () => {
    const lines = key('ann', 'acme', 'tools:execute:read') + key('bob', 'bolt', 'tools:execute:glob');
    await fixture.configure(lines, READ, DONE, READ, DONE);
    const server = await fixture.serve();
    expect(callIn(await ask(server, 'ann'))).toContain(fixture.play.nonce);
    expect(callIn(await ask(server, 'bob'))).not.toContain(fixture.play.nonce);
    const offered = fixture.provider.requests.map(({ tools }) => tools!.map((one) => one.function.name));
    expect(offered).toEqual([['read'], ['read'], ['glob'], ['glob']]);
    const named = [{ ...SERVER_TOOLS[0], allowed_tools: ['read'] }];
    expect(await ask(server, 'bob', named)).toMatchObject({
      status: 403,
      body: { error: { code: 'insufficient_scope' } },
    });
  });
});

test('what the policy asks about is denied, and the model gets the line that allows it', async () => {
  await fixture.configure('', OUTSIDE, DONE);
  const server = await fixture.serve();
  const answer = await ask(server);
  expect(answer.body.status).toBe('completed');
  const line =
    'Nobody can be asked here. To allow it, set in [policy] of treadle.toml: paths.read = ["**", "/srv/notes.txt"]';
  expect(JSON.stringify(answer.body.output)).toContain(JSON.stringify(line).slice(1, -1));
  expect(fixture.provider.requests[1]!.messages.at(-1)!.content).toContain(line);
  const { stderr } = await server.stop();
  const remedy = line.slice(line.indexOf('To allow'));
  expect(logLines(stderr)).toContainEqual(
    expect.objectContaining({ level: 'warn', tool: 'read', rule: 'autonomy', remedy }),
  );
});

describe('functions of the client', () => {
  const ping = { type: 'function', name: 'ping', parameters: { type: 'object', properties: {} } } as const;
  const PING: Step = { calls: [{ name: 'ping', arguments: '{}' }] };

  test('are not judged by rules that do not name them', async () => {
    await fixture.configure(`${key('ann', 'acme', 'agents:invoke')}[policy]\nautonomy = 0\nrate.minute = 0\n`, PING);
    const { body } = await ask(await fixture.serve(), 'ann', [ping]);
    expect(body.output).toMatchObject([{ type: 'function_call', name: 'ping', status: 'completed' }]);
  });

  test('are refused by an entry that names them, and are not sent to the client before that', async () => {
    await fixture.configure('[policy]\ntools.ping = "deny"\n', PING, DONE);
    const { url } = await fixture.serve();
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 });
    const added: string[] = [];
    for await (const event of client.responses.stream({
      model: 'main',
      input: 'Look',
      tools: [{ ...ping, strict: false }],
    })) {
      if (event.type === 'response.output_item.added') added.push(event.item.type);
    }
    expect(added).not.toContain('function_call');
    expect(fixture.provider.requests[1]!.messages.at(-1)!.content).toContain('the entry "ping" denies it');
  });
});
