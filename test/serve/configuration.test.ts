import { mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { hashKey } from '@treadle/server';
import { main } from 'treadle';
import { describe, expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import type { Step } from '../command/scripted-openai.ts';
import { logLines, testIo, useServeFixture, type ServeCommand } from './serve-command.ts';

const SERVER_TOOLS = [{ type: 'mcp', server_label: 'treadle' }] as const;
const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };

const fixture = useServeFixture();

const POLL = { interval: 5, timeout: 30_000 };

describe('models', () => {
  test('are all entries of the configuration with a key; requests without a model get the default', async () => {
    const provider = await fixture.script({ text: ['one'] }, { text: ['two'] });
    const at = `base_url = "${provider.baseURL}"`;
    await fixture.play.write(
      'treadle.toml',
      `[models]\ndefault = "b"\n[models.a]\nmodel = "m-a"\n${at}\n[models.b]\nmodel = "m-b"\n${at}\n` +
        '[models.c]\nprovider = "anthropic"\nmodel = "m-c"\n[models.play]\nprovider = "demo"\n',
    );
    const server = await fixture.serve();
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
        msg: 'The model c is left out because it has no key: set the environment variable ANTHROPIC_API_KEY.',
      }),
    );
  });

  test('include the one of --model and --base-url', async () => {
    const provider = await fixture.script({ text: ['one'] });
    await fixture.play.write('treadle.toml', '[models.play]\nprovider = "demo"\n');
    const server = await fixture.serve('--model', 'mine', '--base-url', provider.baseURL);
    expect((await server.get('/v1/models')).body.data).toMatchObject([{ id: 'mine' }, { id: 'play' }]);
    expect((await server.respond({ input: 'hi' })).body).toMatchObject({ status: 'completed', model: 'mine' });
    expect((await server.stop()).code).toBe(0);
  });
});

describe('tools', () => {
  test('in default_tools are offered to every request', async () => {
    await fixture.configure('[server]\ntools = ["coding"]\ndefault_tools = ["read", "todowrite"]', READ, {
      text: ['ok'],
    });
    const server = await fixture.serve();
    const { body } = await server.respond({ input: 'go' });
    expect(body.output).toMatchObject([{ type: 'mcp_call', name: 'read', status: 'completed' }, { type: 'message' }]);
    expect(fixture.provider.requests[0]!.tools!.map((tool) => tool.function.name)).toEqual(['read', 'todowrite']);
  });

  test('without default_tools are offered only to requests that list them', async () => {
    await fixture.configure('', { text: ['ok'] }, { text: ['ok'] });
    const server = await fixture.serve();
    await server.respond({ input: 'go' });
    await server.respond({ input: 'go', tools: SERVER_TOOLS });
    expect(fixture.provider.requests.map(({ tools = [] }) => tools.map((tool) => tool.function.name))).toEqual([
      [],
      ['read', 'glob', 'grep'],
    ]);
  });

  test('are removed by file_read = false', async () => {
    await fixture.configure('[orchestrator.tools.permissions]\nfile_read = false', { text: ['ok'] });
    const server = await fixture.serve();
    const { status, body } = await server.respond({
      input: 'go',
      tools: [{ ...SERVER_TOOLS[0], allowed_tools: ['read'] }],
    });
    expect([status, body.error.message]).toEqual([400, expect.stringContaining('has no tool "read"')]);
  });

  test('are limited to max_tool_iterations turns', async () => {
    await fixture.configure('[orchestrator]\nmax_tool_iterations = 1', READ);
    const server = await fixture.serve();
    const { body } = await server.respond({ input: 'go', tools: SERVER_TOOLS });
    expect(body).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_turns' } });
  });
});

describe('keys', () => {
  const KEY = /^tk_[\w-]{43}\n$/;

  test('from "treadle key new" grant access to their tenant and scopes only', async () => {
    const acmeKey = await command(['key', 'new', '--name', 'ci', '--tenant', 'acme'], fixture.play.folder);
    const otherKey = await command(
      ['key', 'new', '--scope', 'agents:invoke', '--scope', 'tools:execute'],
      fixture.play.folder,
    );
    for (const { code, stdout } of [acmeKey, otherKey]) expect([code, stdout]).toEqual([0, expect.stringMatching(KEY)]);
    const [lines, otherLines] = [acmeKey, otherKey].map(({ stderr }) =>
      stderr.slice(stderr.indexOf('[[server.keys]]')),
    );
    expect(lines).toMatch(
      /^\[\[server\.keys\]\]\nname = "ci"\nhash = "sha256:[0-9a-f]{64}"\nscopes = \[ "agents:invoke" \]\ntenant = "acme"\n$/,
    );
    expect(otherLines).toMatch(/\nname = "key-[0-9a-f]{8}"\n/);
    expect(acmeKey.stderr).not.toContain(acmeKey.stdout.trim());

    await fixture.configure(`${lines}${otherLines}`, { text: ['ok'] });
    const server = await fixture.serve();
    const headersFor = (key: string): Record<string, string> => ({ authorization: `Bearer ${key.trim()}` });
    expect((await server.respond({ input: 'go' })).status).toBe(401);
    expect((await server.respond({ input: 'go' }, headersFor(`${acmeKey.stdout.trim()}x`))).status).toBe(401);
    const { status, body } = await server.respond({ input: 'go' }, headersFor(acmeKey.stdout));
    expect([status, body.status]).toEqual([200, 'completed']);
    expect((await server.get(`/v1/responses/${body.id}`, headersFor(acmeKey.stdout))).status).toBe(200);
    expect((await server.get(`/v1/responses/${body.id}`, headersFor(otherKey.stdout))).status).toBe(404);
    const withTools = await server.respond({ input: 'go', tools: SERVER_TOOLS }, headersFor(acmeKey.stdout));
    expect(withTools.status).toBe(403);
    const { code, stdout, stderr } = await server.stop();
    expect(code).toBe(0);
    for (const { stdout: key } of [acmeKey, otherKey]) expect(stdout + stderr).not.toContain(key.trim());
  });

  test('allow the server to listen beyond loopback', async () => {
    const { stderr } = await command(['key', 'new'], fixture.play.folder);
    await fixture.play.write(
      'treadle.toml',
      `[server]\nhost = "0.0.0.0"\n${stderr.slice(stderr.indexOf('[[server.keys]]'))}`,
    );
    const server = await fixture.serve();
    expect((await server.get('/healthz')).status).toBe(200);
    expect((await server.respond({ input: 'go' })).status).toBe(401);
    expect((await server.stop()).code).toBe(0);
  });

  test('without agents:invoke are created with a note', async () => {
    const { code, stderr } = await command(['key', 'new', '--scope', 'tools:execute'], fixture.play.folder);
    expect([code, stderr]).toEqual([0, expect.stringContaining('Add --scope agents:invoke.')]);
  });
});

test('SIGHUP reloads the keys, and an invalid configuration changes nothing', async () => {
  const entry = (name: string): string => `[[server.keys]]\nname = "${name}"\nhash = "${hashKey(name)}"\n`;
  const models = async (key: string): Promise<number> =>
    (await server.get('/v1/models', { authorization: `Bearer ${key}` })).status;
  await fixture.configure(entry('one'));
  const server = await fixture.serve();
  expect([await models('one'), await models('two')]).toEqual([200, 401]);
  await fixture.configure(entry('two'));
  await server.reload!('the configuration was reloaded');
  expect([await models('one'), await models('two')]).toEqual([401, 200]);
  await fixture.configure('[server]\nport = "x"');
  await server.reload!('server.port');
  await fixture.configure('');
  await server.reload!('would open the server to everybody');
  expect([await models('one'), await models('two')]).toEqual([401, 200]);
});

describe('a configuration that is reloaded', () => {
  test('applies to the next request, and says what changed and what needs a restart', async () => {
    await fixture.configure('', { text: ['one'] }, { text: ['two'] });
    const server = await fixture.serve();
    expect((await server.respond({ input: 'hi' })).status).toBe(200);
    const text = await readFile(`${fixture.play.folder}/treadle.toml`, 'utf8');
    await fixture.play.write(
      'treadle.toml',
      `[models]\ndefault = "main"\n${text}\n[models.play]\nprovider = "demo"\n[server]\nport = 1\nheartbeat_ms = 5\ninstructions = "Be brief."\n` +
        'default_tools = ["read"]\n[policy]\nautonomy = 3\n[budgets.small]\ncalls = 0\n[chat]\ninstructions = "x"\n',
    );
    await server.reload!('need a restart');
    expect((await server.get('/v1/models')).body.data.map(({ id }) => id)).toContain('play');
    await server.respond({ input: 'hi' });
    const [before, after] = fixture.provider.requests;
    expect([before!.tools, after!.tools!.map((tool) => tool.function.name)]).toEqual([undefined, ['read']]);
    expect(JSON.stringify(after!.messages)).toContain('Be brief.');
    const lines = logLines((await server.stop()).stderr);
    const changed = ['models.play', 'policy.autonomy', 'server.default_tools', 'server.instructions', 'budgets.small'];
    const reloaded = lines.find(({ msg }) => msg === 'the configuration was reloaded');
    expect(reloaded).toMatchObject({ changed: expect.arrayContaining(changed) });
    expect(lines).toContainEqual(
      expect.objectContaining({ level: 'warn', notApplied: ['server.port', 'server.heartbeat_ms'] }),
    );
  });

  test('changes nothing if a part of it is wrong, or if it cannot be read', async () => {
    await fixture.configure('', { text: ['one'] }, { text: ['two'] });
    const text = await readFile(`${fixture.play.folder}/treadle.toml`, 'utf8');
    const server = await fixture.serve();
    await fixture.play.write('treadle.toml', `${text}\n[server]\ninstructions = "New."\ndefault_tools = ["nothing"]\n`);
    await server.reload!('which is not a tool of the server');
    await fixture.play.write('treadle.toml', `${text}\n[server\n`);
    await server.reload!('This is not TOML');
    await rm(`${fixture.play.folder}/treadle.toml`);
    await mkdir(`${fixture.play.folder}/treadle.toml`);
    await server.reload!('cannot be read');
    await server.respond({ input: 'hi' });
    expect(JSON.stringify(fixture.provider.requests)).not.toContain('New.');
  });

  test('leaves runs in progress as they are', async () => {
    await fixture.configure('[server]\ndefault_tools = ["read"]', { hang: 'still ' }, { text: ['two'] });
    const server = await fixture.serve();
    const answering = server.respond({ input: 'hi' });
    await fixture.provider.answered(1);
    const text = await readFile(`${fixture.play.folder}/treadle.toml`, 'utf8');
    await fixture.play.write('treadle.toml', text.replace('default_tools = ["read"]', 'tools = ["none"]'));
    await server.reload!('the configuration was reloaded');
    expect((await server.respond({ input: 'hi' })).status).toBe(200);
    fixture.provider.resume();
    expect((await answering).body).toMatchObject({ status: 'completed' });
    const [before, after] = fixture.provider.requests;
    expect([before!.tools?.length, after!.tools]).toEqual([1, undefined]);
  });

  test('is reloaded when its file changes, with reload = true', async () => {
    await fixture.configure('[server]\nreload = true');
    const server = await fixture.serve();
    const text = await readFile(`${fixture.play.folder}/treadle.toml`, 'utf8');
    const next = `[models]\ndefault = "main"\n${text}\n[models.play]\nprovider = "demo"\n`;
    // As editors do it.
    await fixture.play.write('treadle.toml.new', next);
    await rename(`${fixture.play.folder}/treadle.toml.new`, `${fixture.play.folder}/treadle.toml`);
    await server.logged!('the configuration was reloaded');
    expect((await server.get('/v1/models')).body.data.map(({ id }) => id)).toContain('play');
  });

  test('is noticed behind links that lead to another file, as in a volume of Kubernetes', async () => {
    const at = (...parts: readonly string[]): string => path.join(fixture.play.folder, 'etc', ...parts);
    const write = async (version: string, instructions: string): Promise<void> => {
      await mkdir(at(version), { recursive: true });
      const text = `[models.play]\nprovider = "demo"\n[server]\nreload = true\ninstructions = "${instructions}"\n`;
      await writeFile(at(version, 'treadle.toml'), text);
    };
    await write('..1', 'one');
    await symlink('..1', at('..data'));
    await symlink('..data/treadle.toml', at('treadle.toml'));
    const server = await fixture.serve('--config', 'etc/treadle.toml');
    for (const version of ['..2', '..3']) {
      await write(version, version);
      await symlink(version, at('..data_tmp'));
      await rename(at('..data_tmp'), at('..data'));
      await server.logged!('"server.instructions"');
      server.forgetLog!();
    }
    await writeFile(at('..3', 'treadle.toml'), 'nothing');
    await server.logged!('the configuration was not reloaded');
  });

  test('changes nothing while its file does not exist, also with SIGHUP, and is noticed when it does again', async () => {
    await fixture.configure('[server]\nreload = true\ninstructions = "Kept."', { text: ['one'] });
    const file = path.join(fixture.play.folder, 'treadle.toml');
    const server = await fixture.serve();
    const text = await readFile(file, 'utf8');
    await rm(file);
    await server.logged!('there is no such file');
    server.forgetLog!();
    await server.reload!('there is no such file');
    await server.respond({ input: 'hi' });
    expect(JSON.stringify(fixture.provider.requests)).toContain('Kept.');
    await writeFile(file, text.replace('Kept.', 'New.'));
    await server.logged!('"server.instructions"');
  });
});

test('hooks are reloaded when their module changes, with reload = true, and the log says that they did', async () => {
  await fixture.configure('[server]\nreload = true\n[hooks]\nmodule = "hooks.mjs"', { text: ['one'] });
  await fixture.play.write('hooks.mjs', '');
  const server = await fixture.serve();
  await fixture.play.write('hooks.mjs.new', `export const guardrails = { output: [() => 'no'] };`);
  await rename(`${fixture.play.folder}/hooks.mjs.new`, `${fixture.play.folder}/hooks.mjs`);
  await server.logged!('the configuration was reloaded');
  expect((await server.respond({ input: 'hi' })).body).toMatchObject({ status: 'failed' });
  const reloaded = logLines((await server.stop()).stderr).find(({ msg }) => msg === 'the configuration was reloaded');
  expect(reloaded).toMatchObject({ changed: ['hooks.module'] });
});

test('packages of tools are reloaded when they change, and one that is added is found', async () => {
  const skills = await mkdtemp(path.join(tmpdir(), 'treadle-skills-'));
  try {
    const write = async (name: string, version: string): Promise<void> => {
      await mkdir(path.join(skills, name));
      await writeFile(path.join(skills, name, 'x'), '#!/bin/sh\n', { mode: 0o755 });
      const text = `[[tools]]\nname = "say"\nbinary = "x"\ndescription = "${name}"\nversion = "${version}"\n`;
      await writeFile(path.join(skills, name, 'skill.toml'), text);
    };
    await write('first', '1.0.0');
    await fixture.configure(
      `[orchestrator.tools]\nskills_path = "${skills}"\nsandbox_engine = "none"\n[server]\ntools = ["packages"]\ndefault_tools = ["say"]`,
      { text: ['one'] },
      { text: ['two'] },
    );
    const server = await fixture.serve();
    await server.respond({ input: 'hi' });
    await write('second', '2.0.0');
    await server.logged!('"packaged":2');
    await server.respond({ input: 'hi' });
    expect(fixture.provider.requests.map(({ tools }) => tools!.map((one) => one.function.description))).toEqual([
      ['first'],
      ['second'],
    ]);
  } finally {
    await rm(skills, { recursive: true });
  }
});

test.each([
  ['is still there', 'old'],
  ['is gone', undefined],
])('after a restart, a run has the version of a tool that it was started with, if that %s', async (_, printed) => {
  const skills = await mkdtemp(path.join(tmpdir(), 'treadle-skills-'));
  const write = async (word: string, version: string): Promise<void> => {
    await mkdir(path.join(skills, word));
    await writeFile(path.join(skills, word, 'x'), `#!/bin/sh\necho ${word}\n`, { mode: 0o755 });
    const text = `[[tools]]\nname = "say"\nbinary = "x"\ndescription = "${word}"\nversion = "${version}"\n`;
    await writeFile(path.join(skills, word, 'skill.toml'), text);
  };
  type Waiting = { readonly effect: string; readonly digest: string };
  const waitingFor = async (server: ServeCommand, id: string): Promise<readonly Waiting[]> =>
    (JSON.parse((await server.get(`/v1/runs/${id}`)).text) as { waiting: readonly Waiting[] }).waiting;
  try {
    await write('old', '1.0.0');
    await fixture.configure(
      `[orchestrator.tools]\nskills_path = "${skills}"\nsandbox_engine = "none"\n` +
        '[server]\ntools = ["say"]\ndefault_tools = ["say"]\nwait_for_answers = true',
      { calls: [{ name: 'say', arguments: '{}' }] },
      { text: ['done'] },
      { calls: [{ name: 'say', arguments: '{}' }] },
      { text: ['done'] },
    );
    const first = await fixture.serve();
    const { body } = await first.respond({ input: 'hi', background: true });
    const { id } = body;
    await expect.poll(() => waitingFor(first, id), POLL).toHaveLength(1);
    const [asked] = await waitingFor(first, id);
    await first.stop();

    await write('new', '2.0.0');
    if (printed === undefined) await rm(path.join(skills, 'old'), { recursive: true });
    const second = await fixture.serve();
    const answer = { type: 'approval', effect: asked!.effect, digest: asked!.digest, approved: true };
    const sent = await fetch(`${second.url}/v1/runs/${id}/answers`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ answers: [answer] }),
    });
    expect(sent.status).toBe(200);
    if (printed === undefined) {
      // The answer was about the other version, so people are asked again.
      const again = { effect: asked!.effect, digest: expect.not.stringContaining(asked!.digest) };
      await expect.poll(() => waitingFor(second, id), POLL).toMatchObject([again]);
      expect(fixture.provider.requests).toHaveLength(1);
      return;
    }
    await expect.poll(async () => (await second.get(`/v1/responses/${id}`)).body.status, POLL).toBe('completed');
    const [, after] = fixture.provider.requests;
    expect(after!.messages.at(-1)).toMatchObject({ role: 'tool', content: `${printed}\n` });
    expect(after!.tools!.map((one) => [one.function.name, one.function.description])).toEqual([['say', 'old']]);
    // A new run has the newest.
    await second.respond({ input: 'hi', background: true });
    await expect.poll(() => fixture.provider.requests.length, POLL).toBe(3);
    expect(fixture.provider.requests[2]!.tools!.map((one) => one.function.description)).toEqual(['new']);
  } finally {
    await rm(skills, { recursive: true });
  }
});

test('budgets of the server, a tenant and a key apply to their runs', async () => {
  const entry = (name: string, more = ''): string =>
    `[[server.keys]]\nname = "${name}"\nhash = "${hashKey(name)}"\n${more}\n`;
  const keys = entry('one') + entry('two', 'budgets = ["none"]') + entry('three', 'tenant = "t"');
  await fixture.configure(
    `${keys}[server.tenants.t]\nbudgets = ["none"]\n[server]\nbudgets = ["much"]\n` +
      '[budgets.none]\ntokens = 0\n[budgets.much]\ntokens = 1000000\nwarn_at = 0.000001\n',
    { text: ['one'] },
  );
  const server = await fixture.serve();
  const status = async (key: string): Promise<number> =>
    (await server.respond({ input: 'hi' }, { authorization: `Bearer ${key}` })).status;
  expect([await status('one'), await status('two'), await status('three')]).toEqual([200, 429, 429]);
  const { stderr } = await server.stop();
  const warned = logLines(stderr).filter((line) => (line as { msg?: string }).msg === 'a budget has little left');
  expect(warned).toEqual([
    expect.objectContaining({ level: 'warn', budget: 'much', kind: 'tokens', limit: 1_000_000, tenant: 'default' }),
  ]);
});

test('hooks apply to every run, and a changed module to the next ones', async () => {
  const guard = (word: string): string =>
    `export const guardrails = { output: [({ text }) => !text.includes('${word}') || 'not ${word}'] };`;
  await fixture.configure('[hooks]\nmodule = "hooks.mjs"', { text: ['one'] }, { text: ['one'] }, { text: ['two'] });
  await fixture.play.write('hooks.mjs', guard('one'));
  const server = await fixture.serve();
  const respond = async (): Promise<unknown> => (await server.respond({ input: 'hi' })).body;
  expect(await respond()).toMatchObject({ status: 'failed', error: { message: expect.stringContaining('not one') } });
  await fixture.play.write('hooks.mjs', `${guard('two')} // another length`);
  await server.reload!('the configuration was reloaded');
  expect(await respond()).toMatchObject({ status: 'completed' });
  expect(await respond()).toMatchObject({ status: 'failed', error: { message: expect.stringContaining('not two') } });
  await fixture.play.write('hooks.mjs', 'export const none = 1;');
  await server.reload!('which is not a hook');
  expect((await server.stop()).code).toBe(0);
});

test('of two SIGHUPs, the second reads the configuration after the keys of the first were set', async () => {
  await fixture.configure(`[[server.keys]]\nname = "one"\nhash = "${hashKey('one')}"\n`);
  const { io, written, waitFor, terminate, reload } = testIo({ cwd: fixture.play.folder, isTTY: false });
  const reloaded = (): number => written.stderr.split('the configuration was reloaded').length - 1;
  /** How many reloads were complete when the configuration was read. */
  const reads: number[] = [];
  const cwd = { get: () => (reads.push(reloaded()), fixture.play.folder) };
  const ended = main(['serve', '--port', '0'], Object.defineProperty({ ...io }, 'cwd', cwd));
  await waitFor('\n', 'stdout');
  reads.length = 0;
  reload();
  reload();
  while (reloaded() < 2) await setImmediate();
  terminate();
  expect(await ended).toBe(0);
  expect([...new Set(reads)]).toEqual([0, 1]);
});

test('SIGHUP is caught before the server listens', async () => {
  await fixture.configure('');
  const { io, written, waitFor, terminate } = testIo({ cwd: fixture.play.folder, isTTY: false });
  let before = 'never';
  const onReload = (listener: () => void): (() => void) => {
    before = written.stderr;
    return io.onReload!(listener);
  };
  const ended = main(['serve', '--port', '0'], { ...io, onReload });
  await waitFor('\n', 'stdout');
  terminate();
  expect(await ended).toBe(0);
  expect(before).not.toContain('listening');
  expect(before).not.toBe('never');
});

test('log_level = "silent" logs nothing, and max_body_bytes limits the body', async () => {
  await fixture.configure('[server]\nlog_level = "silent"\nmax_body_bytes = 1000');
  const server = await fixture.serve();
  expect((await server.respond({ input: 'x'.repeat(1_000) })).status).toBe(413);
  expect(await server.stop()).toMatchObject({ code: 0, stderr: '' });
});

test('requires_action_status sets the status for every client', async () => {
  const call: Step = { calls: [{ name: 'get_weather', arguments: '{}' }] };
  await fixture.configure('[server]\nrequires_action_status = true', call);
  const server = await fixture.serve();
  const { body } = await server.respond({ input: 'go', tools: [{ type: 'function', name: 'get_weather' }] });
  expect(body.status).toBe('requires_action');
});
