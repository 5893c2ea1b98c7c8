import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

let play: Playground;
let server: ScriptedOpenAi;

const ERROR: Step = { calls: [{ name: 'read', arguments: '{"path":"missing"}' }] };

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  await server?.close();
  await play.remove();
});

async function script(...steps: Step[]): Promise<void> {
  server = await scriptedOpenAi(steps);
}

const run = (args: string[], env: Record<string, string> = {}): Promise<Printed> =>
  command(['run', ...args], play.folder, { env });

describe('[models]', () => {
  test('uses the default, its address, and its key from the environment', async () => {
    await script({ text: ['hello'] });
    await play.write(
      'treadle.toml',
      `[models]\ndefault = "a"\n[models.a]\nmodel = "m-1"\nbase_url = "${server.baseURL}"\napi_key_env = "MY_KEY"\n`,
    );
    expect(await run(['hi'], { MY_KEY: 'sesame' })).toMatchObject({ code: 0, stdout: 'hello\n', stderr: '' });
    expect(server.requests[0]!.model).toBe('m-1');
    expect(server.keys).toEqual(['Bearer sesame']);
  });

  test('uses another model by name, from the file that --config names', async () => {
    await script({ text: ['hello'] });
    await play.write(
      'conf/my.toml',
      `[models.a]\nmodel = "m-1"\n[models.b]\nmodel = "m-2"\nbase_url = "${server.baseURL}"\n`,
    );
    expect(await run(['--config', 'conf/my.toml', '--model', 'b', 'hi'])).toMatchObject({ code: 0, stdout: 'hello\n' });
    expect(server.requests[0]!.model).toBe('m-2');
    expect(server.keys).toEqual([undefined]);
  });

  test('sends the settings of an entry, and counts its price', async () => {
    await script({ text: ['hello'] });
    await play.write(
      'treadle.toml',
      `[models.a]\nmodel = "m"\nbase_url = "${server.baseURL}"\ntemperature = 0.5\nmax_output_tokens = 77\n` +
        'price = { input = 1e6, output = 1e6 }\n',
    );
    const { code, stdout } = await run(['--json', 'hi']);
    expect(code).toBe(0);
    expect(server.requests[0]).toMatchObject({ temperature: 0.5, max_tokens: 77 });
    expect(JSON.parse(stdout)).toMatchObject({ usage: { inputTokens: 10, outputTokens: 5, cost: 15 } });
  });

  test('uses treadle.toml of the folder that --cwd names', async () => {
    await script({ text: ['hello'] });
    await play.write('sub/treadle.toml', `[models.a]\nmodel = "m-3"\nbase_url = "${server.baseURL}"\n`);
    expect(await run(['--cwd', 'sub', 'hi'])).toMatchObject({ code: 0 });
    expect(server.requests[0]!.model).toBe('m-3');
  });
});

describe('[orchestrator]', () => {
  const configured = async (lines: string): Promise<void> =>
    play.write('treadle.toml', `[models.a]\nmodel = "m"\nbase_url = "${server.baseURL}"\n[orchestrator]\n${lines}\n`);

  test('max_tool_iterations limits the turns, and --max-turns overrides it', async () => {
    await script(ERROR, { text: ['done'] });
    await configured('max_tool_iterations = 1');
    expect((await run(['hi'])).code).toBe(3);
    expect(server.requests).toHaveLength(1);
    expect(await run(['--max-turns', '5', 'hi'])).toMatchObject({ code: 0, stdout: 'done\n' });
  });

  test('tool_error_limit ends a run with only errors', async () => {
    await script(ERROR, ERROR, ERROR);
    await configured('tool_error_limit = 2');
    expect(await run(['hi'])).toMatchObject({ code: 3, stderr: expect.stringContaining('turns with only errors') });
    expect(server.requests).toHaveLength(2);
  });

  test.each([
    ['tool_loop_enabled = false', [], ['read', 'todoread']],
    ['[orchestrator.tools.permissions]\nfile_read = false', ['todoread'], ['read', 'grep']],
    ['[orchestrator.tools]\noffer = ["read-only", "todoread"]', ['read', 'todoread'], ['todowrite']],
  ])('%s: offers %j, not %j', async (lines, offered, left) => {
    await script({ text: ['ok'] });
    await configured(lines);
    expect((await command(['run', 'hi'], play.folder)).code).toBe(0);
    const names = (server.requests[0]!.tools ?? []).map((tool) => tool.function.name);
    expect(names).toEqual(expect.arrayContaining(offered));
    for (const name of left) expect(names).not.toContain(name);
  });
});

describe('rejects an invalid file before anything runs', () => {
  test.each([
    [
      '[models.a]\nmodel = "m"\napi_key = "sk-secret"',
      /^treadle: treadle\.toml: models\.a\.api_key must not be here.*api_key_env/,
    ],
    ['[modles]', /^treadle: treadle\.toml: modles is not known, did you mean models\?/],
    ['x = ', /^treadle: treadle\.toml:1:\d+: This is not TOML/],
    [
      '[models.a]\nmodel = "m"\nprovider = "anthropic"',
      /There is no key for m: set the environment variable ANTHROPIC_API_KEY/,
    ],
    ['[models.a]\nmodel = "m"\nfallback = ["b"]', /models\.a\.fallback does not name an entry of \[models\]/],
  ])('%s', async (toml, message) => {
    await script();
    await play.write('treadle.toml', toml);
    const { code, stdout, stderr } = await run(['hi']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('sk-secret');
  });
});

test('does not show a key, even if the server rejects it', async () => {
  await script({ status: 401, message: 'Incorrect API key provided: sk-very-secret-key' });
  const { code, stdout, stderr } = await run(['--model', 'm', '--base-url', server.baseURL, '--json', 'hi'], {
    OPENAI_API_KEY: 'sk-very-secret-key',
  });
  expect(code).toBe(1);
  expect(server.keys).toEqual(['Bearer sk-very-secret-key']);
  expect(stdout + stderr).not.toContain('sk-very-secret-key');
});
