import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI from 'openai';
import { describe, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { newClient } from '../mcp/official-clients.ts';
import { logLines, useServeFixture } from './serve-command.ts';

const SERVER_TOOLS = [{ type: 'mcp', server_label: 'treadle' }] as const;

const fixture = useServeFixture();

const exists = (path: string): Promise<boolean> =>
  stat(join(fixture.play.folder, path)).then(
    () => true,
    () => false,
  );

describe('without a configuration', () => {
  test('prints only its address, logs that the model is a demo, and exits with 0 on SIGTERM', async () => {
    const server = await fixture.serveProcess();
    expect((await server.get('/healthz')).status).toBe(200);
    expect((await server.get('/readyz')).status).toBe(200);
    const { code, stdout, stderr } = await server.stop('SIGTERM');
    expect([code, stdout]).toEqual([0, `Treadle listens on ${server.url}\n`]);
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const lines = logLines(stderr);
    expect(lines.filter(({ level }) => level === 'warn')).toEqual([
      expect.objectContaining({ msg: expect.stringContaining('this is the demo model') }),
    ]);
    expect(lines.some(({ level }) => level === 'error')).toBe(false);
  });

  test('the demo model reads files with the server tools, and the response is stored as a run', async () => {
    const server = await fixture.serve();
    expect((await server.get('/v1/models')).body.data).toMatchObject([{ id: 'demo' }]);
    const { status, body } = await server.respond({ model: 'demo', input: 'Read notes.txt', tools: SERVER_TOOLS });
    expect([status, body.status]).toEqual([200, 'completed']);
    expect(body.output[0]).toMatchObject({ type: 'mcp_call', name: 'read', status: 'completed' });
    expect(body.output[0]!.output).toContain(fixture.play.nonce);
    expect((await server.get(`/v1/responses/${body.id}`)).body).toEqual(body);
    expect((await server.stop()).code).toBe(0);
    const listed = await command(['runs', 'list'], fixture.play.folder);
    expect(listed).toMatchObject({ code: 0, stdout: expect.stringContaining('Read notes.txt') });
  });

  test('MCP clients call the tools of the server', async () => {
    const server = await fixture.serve();
    await using client = await newClient(server);
    expect((await client.tools()).map(({ name }) => name)).toContain('read');
    expect((await client.call('read', { path: 'notes.txt' })).text).toContain(fixture.play.nonce);
    await client[Symbol.asyncDispose]();
    expect((await server.stop()).code).toBe(0);
  });

  test('the OpenAI client streams a response and creates a chat completion', async () => {
    const server = await fixture.serve();
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
    const stream = client.responses.stream({ model: 'demo', input: 'Read notes.txt', tools: [...SERVER_TOOLS] });
    const types = new Set<string>();
    for await (const { type } of stream) types.add(type);
    expect(types).toContain('response.completed');
    expect((await stream.finalResponse()).output_text).toContain(fixture.play.nonce);
    const chat = await client.chat.completions.create({
      model: 'demo',
      messages: [{ role: 'user', content: 'Hello' }],
    });
    expect(chat.choices[0]!.message.content).not.toBe('');
    expect((await server.stop()).code).toBe(0);
  });

  test('--store memory: creates no files', async () => {
    const server = await fixture.serve('--store', 'memory:');
    const { body } = await server.respond({ model: 'demo', input: 'Hello' });
    expect((await server.get(`/v1/responses/${body.id}`)).body).toEqual(body);
    expect((await server.stop()).code).toBe(0);
    expect(await exists('.treadle')).toBe(false);
  });

  test('--cwd sets the folder of the tools and of the store', async () => {
    await fixture.play.write('sub/only-here.txt', 'x');
    const server = await fixture.serve('--cwd', 'sub');
    const { body } = await server.respond({ model: 'demo', input: 'List the files', tools: SERVER_TOOLS });
    expect(JSON.stringify(body.output)).toContain('only-here.txt');
    expect(JSON.stringify(body.output)).not.toContain('notes.txt');
    expect((await server.stop()).code).toBe(0);
    expect([await exists('.treadle'), await exists('sub/.treadle/treadle.db')]).toEqual([false, true]);
  });
});
