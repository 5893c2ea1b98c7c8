import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { stopLeftovers, treadle } from '../command/treadle-process.ts';
import { logLines, serving } from './serve-command.ts';

const OWN_TOOLS = [{ type: 'mcp', server_label: 'treadle' }] as const;

let play: Playground;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await play.remove();
});

const isThere = (path: string): Promise<boolean> =>
  stat(join(play.folder, path)).then(
    () => true,
    () => false,
  );

describe('without a configuration', () => {
  test('it prints its address alone, says that it is a demo, and stops in order', async () => {
    const server = await serving({ cwd: play.folder });
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

  test('the demo model reads the folder with the tools of the server, and the response is a run', async () => {
    const server = await serving({ cwd: play.folder });
    expect((await server.get('/v1/models')).body.data).toMatchObject([{ id: 'demo' }]);
    const asked = { model: 'demo', input: 'Read notes.txt', tools: OWN_TOOLS };
    const { status, body } = await server.respond(asked);
    expect([status, body.status]).toEqual([200, 'completed']);
    expect(body.output[0]).toMatchObject({ type: 'mcp_call', name: 'read', status: 'completed' });
    expect(body.output[0]!.output).toContain(play.nonce);
    expect((await server.get(`/v1/responses/${body.id}`)).body).toEqual(body);
    expect((await server.stop()).code).toBe(0);
    const listed = await treadle(['runs', 'list'], { cwd: play.folder, stdin: '' }).ended;
    expect(listed).toMatchObject({ code: 0, stdout: expect.stringContaining('Read notes.txt') });
  });

  test("OpenAI's client, streamed", async () => {
    const server = await serving({ cwd: play.folder });
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'any', maxRetries: 0 });
    const stream = client.responses.stream({ model: 'demo', input: 'Read notes.txt', tools: [...OWN_TOOLS] });
    const types = new Set<string>();
    for await (const { type } of stream) types.add(type);
    expect(types).toContain('response.completed');
    expect((await stream.finalResponse()).output_text).toContain(play.nonce);
    const chat = await client.chat.completions.create({
      model: 'demo',
      messages: [{ role: 'user', content: 'Hello' }],
    });
    expect(chat.choices[0]!.message.content).not.toBe('');
    expect((await server.stop()).code).toBe(0);
  });

  test('--store memory: leaves nothing behind', async () => {
    const server = await serving({ cwd: play.folder }, '--store', 'memory:');
    const { body } = await server.respond({ model: 'demo', input: 'Hello' });
    expect((await server.get(`/v1/responses/${body.id}`)).body).toEqual(body);
    expect((await server.stop()).code).toBe(0);
    expect(await isThere('.treadle')).toBe(false);
  });

  test('--cwd says what the tools see and where responses are kept', async () => {
    await play.write('sub/only-here.txt', 'x');
    const server = await serving({ cwd: play.folder }, '--cwd', 'sub');
    const { body } = await server.respond({ model: 'demo', input: 'List the files', tools: OWN_TOOLS });
    expect(JSON.stringify(body.output)).toContain('only-here.txt');
    expect(JSON.stringify(body.output)).not.toContain('notes.txt');
    expect((await server.stop()).code).toBe(0);
    expect([await isThere('.treadle'), await isThere('sub/.treadle/treadle.db')]).toEqual([false, true]);
  });
});
