import Anthropic from '@anthropic-ai/sdk';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { startRemoteServer, type RemoteServer } from './remote-server.ts';

let remote: RemoteServer;
beforeAll(async () => {
  remote = await startRemoteServer();
});
afterAll(async () => remote[Symbol.asyncDispose]());
beforeEach(() => {
  remote.calls.length = 0;
  remote.headers.length = 0;
});

const MAIL = { name: 'send_mail', arguments: '{"to":"ann"}' };
const NOTE = { name: 'read_note', arguments: '{}' };
const GO = { model: 'm', max_tokens: 1_000, messages: [{ role: 'user' as const, content: 'Go' }] };
const weather = { name: 'weather', input_schema: { type: 'object' as const } };
const TOKEN = 'a-token-for-the-mail-server';

interface Setting extends AsyncDisposable {
  readonly server: InProcessServer;
  readonly client: Anthropic;
  readonly offered: () => readonly string[];
}

async function setting(steps: readonly ScriptStep[]): Promise<Setting> {
  const model = scriptedModel(steps);
  const server = await startInProcess(model, { mcpServers: { allowPrivate: true } });
  const client = new Anthropic({ baseURL: server.url, apiKey: 'any', maxRetries: 0 });
  return {
    server,
    client,
    offered: () => model.requests.at(-1)!.tools.map(({ name }) => name),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const mail = (): Anthropic.Beta.BetaRequestMCPServerURLDefinition => ({
  type: 'url',
  name: 'mail',
  url: remote.url,
  authorization_token: TOKEN,
});

test('the tools of an MCP server run in the loop, beside those of the client, and the token is told to nobody', async () => {
  await using at = await setting([{ calls: [MAIL] }, { calls: [NOTE, { name: 'weather' }] }, 'Done.']);
  const tools = [weather, { type: 'mcp_toolset' as const, mcp_server_name: 'mail' }];
  const first = await at.client.beta.messages.create({ ...GO, tools, mcp_servers: [mail()] });
  expect(first.content).toMatchObject([
    { type: 'mcp_tool_use', name: 'send_mail', server_name: 'mail', input: { to: 'ann' } },
    { type: 'mcp_tool_result', is_error: false, content: [{ text: 'sent to ann' }] },
    { type: 'mcp_tool_use', name: 'read_note' },
    { type: 'tool_use', name: 'weather' },
    { type: 'mcp_tool_result', content: [{ text: 'the note' }] },
  ]);
  expect(remote.calls).toEqual(['send_mail {"to":"ann"}', 'read_note {}']);
  expect(remote.headers.every((sent) => sent.get('authorization') === `Bearer ${TOKEN}`)).toBe(true);
  const { body } = await at.server.send('GET', '/v1/runs');
  const events = await at.server.send('GET', `/v1/runs/${body.data[0].id}/events`);
  expect(JSON.stringify(events.body)).not.toContain(TOKEN);
});

test('a thread keeps the toolset, and gets the server and its token again with each request', async () => {
  await using at = await setting(['One.', { calls: [MAIL] }, 'Two.']);
  const tools = [{ type: 'mcp_toolset' as const, mcp_server_name: 'mail' }];
  const servers = { mcp_servers: [mail()] };
  const first = await at.client.beta.messages.create({ ...GO, ...servers, tools, thread: { type: 'create' } });
  const thread = { type: 'continue' as const, previous_message_id: first.id };
  const second = await at.client.beta.messages.create({ ...GO, ...servers, thread });
  expect(second.content.map(({ type }) => type)).toEqual(['mcp_tool_use', 'mcp_tool_result', 'text']);
});

test.each<[string, object, readonly string[]]>([
  ['all', {}, ['read_note', 'repeat_headers', 'send_mail']],
  ['all but some', { configs: { send_mail: { enabled: false } } }, ['read_note', 'repeat_headers']],
  ['some', { default_config: { enabled: false }, configs: { read_note: { enabled: true } } }, ['read_note']],
  ['those of an earlier list', { tools: [{ name: 'read_note', input_schema: {} }] }, ['read_note']],
])('a toolset offers %s of the tools', async (_, more, names) => {
  await using at = await setting(['Done.']);
  const toolset = { type: 'mcp_toolset' as const, mcp_server_name: 'mail', ...more };
  await at.client.beta.messages.create({ ...GO, tools: [toolset], mcp_servers: [mail()] });
  expect(at.offered()).toEqual(names);
});
