import { describe, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import type { Step } from '../command/scripted-openai.ts';
import { logLines } from './serve-command.ts';
import { serveStage } from './stage.ts';

const OWN_TOOLS = [{ type: 'mcp', server_label: 'treadle' }] as const;
const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };

const here = serveStage();
const { scripted } = here;

describe('models', () => {
  test('all entries under their names, and the default for requests that name none', async () => {
    const provider = await here.script({ text: ['one'] }, { text: ['two'] });
    const at = `base_url = "${provider.baseURL}"`;
    await here.play.write(
      'treadle.toml',
      `[models]\ndefault = "b"\n[models.a]\nmodel = "m-a"\n${at}\n[models.b]\nmodel = "m-b"\n${at}\n` +
        '[models.c]\nprovider = "anthropic"\nmodel = "m-c"\n[models.play]\nprovider = "demo"\n',
    );
    const server = await here.serving();
    const { body: listed } = await server.get('/v1/models');
    expect(listed.data.map(({ id }) => id).toSorted()).toEqual(['a', 'b', 'play']);
    expect((await server.respond({ input: 'hi' })).body).toMatchObject({ status: 'completed', model: 'b' });
    expect((await server.respond({ model: 'a', input: 'hi' })).body).toMatchObject({ status: 'completed', model: 'a' });
    expect(provider.requests.map(({ model }) => model)).toEqual(['m-b', 'm-a']);
    const unknown = await server.respond({ model: 'c', input: 'hi' });
    expect([unknown.status, unknown.body.error.code]).toEqual([404, 'model_not_found']);
    const { code, stderr } = await server.stop();
    expect(code).toBe(0);
    expect(logLines(stderr)).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        msg: 'The model c is left out, as it has no key: set the environment variable ANTHROPIC_API_KEY.',
      }),
    );
  });

  test('--model and --base-url serve one beside them', async () => {
    const provider = await here.script({ text: ['one'] });
    await here.play.write('treadle.toml', '[models.play]\nprovider = "demo"\n');
    const server = await here.serving('--model', 'mine', '--base-url', provider.baseURL);
    expect((await server.get('/v1/models')).body.data).toMatchObject([{ id: 'mine' }, { id: 'play' }]);
    expect((await server.respond({ input: 'hi' })).body).toMatchObject({ status: 'completed', model: 'mine' });
    expect((await server.stop()).code).toBe(0);
  });
});

describe('tools', () => {
  test('default_tools are offered to every request', async () => {
    const server = await scripted('[server]\ndefault_tools = ["read"]', READ, { text: ['ok'] });
    const { body } = await server.respond({ input: 'go' });
    expect(body.output).toMatchObject([{ type: 'mcp_call', name: 'read', status: 'completed' }, { type: 'message' }]);
    expect(here.provider.requests[0]!.tools!.map((tool) => tool.function.name)).toEqual(['read']);
  });

  test('without them only to those that ask', async () => {
    const server = await scripted('', { text: ['ok'] }, { text: ['ok'] });
    await server.respond({ input: 'go' });
    await server.respond({ input: 'go', tools: OWN_TOOLS });
    expect(here.provider.requests.map(({ tools = [] }) => tools.map((tool) => tool.function.name))).toEqual([
      [],
      ['read', 'glob', 'grep'],
    ]);
  });

  test('file_read = false: there are none', async () => {
    const server = await scripted('[orchestrator.tools.permissions]\nfile_read = false', { text: ['ok'] });
    const { status, body } = await server.respond({
      input: 'go',
      tools: [{ ...OWN_TOOLS[0], allowed_tools: ['read'] }],
    });
    expect([status, body.error.message]).toEqual([400, expect.stringContaining('has no tool "read"')]);
  });

  test('max_tool_iterations limits the turns', async () => {
    const server = await scripted('[orchestrator]\nmax_tool_iterations = 1', READ);
    const { body } = await server.respond({ input: 'go', tools: OWN_TOOLS });
    expect(body).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' } });
  });
});

describe('keys', () => {
  const KEY = /^tk_[\w-]{43}\n$/;

  test('what "treadle key new" prints, pasted into the file, lets its holder in and nobody else', async () => {
    const made = await command(['key', 'new', '--name', 'ci', '--tenant', 'acme'], here.play.folder);
    const other = await command(
      ['key', 'new', '--scope', 'agents:invoke', '--scope', 'tools:execute'],
      here.play.folder,
    );
    for (const { code, stdout } of [made, other]) expect([code, stdout]).toEqual([0, expect.stringMatching(KEY)]);
    const [lines, otherLines] = [made, other].map(({ stderr }) => stderr.slice(stderr.indexOf('[[server.keys]]')));
    expect(lines).toMatch(
      /^\[\[server\.keys\]\]\nname = "ci"\nhash = "sha256:[0-9a-f]{64}"\nscopes = \[ "agents:invoke" \]\ntenant = "acme"\n$/,
    );
    expect(otherLines).toMatch(/\nname = "key-[0-9a-f]{8}"\n/);
    expect(made.stderr).not.toContain(made.stdout.trim());

    const server = await scripted(`${lines}${otherLines}`, { text: ['ok'] });
    const as = (key: string): Record<string, string> => ({ authorization: `Bearer ${key.trim()}` });
    expect((await server.respond({ input: 'go' })).status).toBe(401);
    expect((await server.respond({ input: 'go' }, as(`${made.stdout.trim()}x`))).status).toBe(401);
    const { status, body } = await server.respond({ input: 'go' }, as(made.stdout));
    expect([status, body.status]).toEqual([200, 'completed']);
    expect((await server.get(`/v1/responses/${body.id}`, as(made.stdout))).status).toBe(200);
    expect((await server.get(`/v1/responses/${body.id}`, as(other.stdout))).status).toBe(404);
    const refused = await server.respond({ input: 'go', tools: OWN_TOOLS }, as(made.stdout));
    expect(refused.status).toBe(403);
    const { code, stdout, stderr } = await server.stop();
    expect(code).toBe(0);
    for (const { stdout: key } of [made, other]) expect(stdout + stderr).not.toContain(key.trim());
  });

  test('with a key it listens beyond loopback', async () => {
    const { stderr } = await command(['key', 'new'], here.play.folder);
    await here.play.write(
      'treadle.toml',
      `[server]\nhost = "0.0.0.0"\n${stderr.slice(stderr.indexOf('[[server.keys]]'))}`,
    );
    const server = await here.serving();
    expect((await server.get('/healthz')).status).toBe(200);
    expect((await server.respond({ input: 'go' })).status).toBe(401);
    expect((await server.stop()).code).toBe(0);
  });

  test('a key that cannot use the API comes with a note', async () => {
    const { code, stderr } = await command(['key', 'new', '--scope', 'tools:execute'], here.play.folder);
    expect([code, stderr]).toEqual([0, expect.stringContaining('Add --scope agents:invoke.')]);
  });
});

test('log_level = "silent" logs nothing, and max_body_bytes is heeded', async () => {
  const server = await scripted('[server]\nlog_level = "silent"\nmax_body_bytes = 1000');
  expect((await server.respond({ input: 'x'.repeat(1_000) })).status).toBe(413);
  expect(await server.stop()).toMatchObject({ code: 0, stderr: '' });
});

test('requires_action_status tells every client', async () => {
  const call: Step = { calls: [{ name: 'get_weather', arguments: '{}' }] };
  const server = await scripted('[server]\nrequires_action_status = true', call);
  const { body } = await server.respond({ input: 'go', tools: [{ type: 'function', name: 'get_weather' }] });
  expect(body.status).toBe('requires_action');
});
