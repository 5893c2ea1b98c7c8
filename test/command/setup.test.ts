import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { command } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

const KEY = 'sk-very-secret-key-0123456789';
const CALL: Step = { calls: [{ name: 'ping', arguments: '{"word":"treadle"}' }] };

let play: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  await server?.close();
  server = undefined;
  await play.remove();
});

const written = (name = 'treadle.toml'): Promise<string> => readFile(join(play.folder, name), 'utf8');

describe('init', () => {
  test('writes a file that doctor accepts, and never a key', async () => {
    const env = { OPENAI_API_KEY: KEY };
    const { code, stdout } = await command(['init', '--provider', 'openai'], play.folder, { env });
    expect([code, stdout]).toEqual([
      0,
      'Wrote treadle.toml for openai/gpt-5-mini.\nCheck it:     treadle doctor\nStart a chat: treadle chat\n',
    ]);
    expect(await written()).not.toContain(KEY);
    const checked = await command(['doctor', '--no-test'], play.folder, { env });
    expect(checked).toMatchObject({ code: 0, stdout: expect.stringContaining('treadle.toml is valid') });
  });

  test('refuses to overwrite a file without --force', async () => {
    await play.write('treadle.toml', '# mine\n');
    const { code, stderr } = await command(['init', '--provider', 'demo'], play.folder);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--force replaces it')]);
    expect(await written()).toBe('# mine\n');
    expect((await command(['init', '--provider', 'demo', '--force'], play.folder)).code).toBe(0);
    expect(await written()).toContain('provider = "demo"');
  });

  test.each([
    [[], 'There is no terminal to ask on. Name the provider: "treadle init --provider anthropic"'],
    [['--provider', 'azure'], '--base-url is missing'],
    [['--provider', 'vllm'], '--model is missing'],
    [['--provider', 'vllm', '--model', 'm', '--base-url', 'https://u:p@host/v1'], 'contains a password'],
  ])('%j writes nothing without a terminal', async (args, message) => {
    const { code, stderr } = await command(['init', ...args], play.folder, { env: { ANTHROPIC_API_KEY: KEY } });
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    await expect(written()).rejects.toThrow('ENOENT');
  });

  test('asks on a terminal', async () => {
    const { type, shows, exit } = fakeTerminal(['init'], play.folder);
    await shows('Provider [demo]: ');
    type('antropic\r');
    await shows('There is no provider "antropic".');
    await shows('Provider [demo]: ');
    type('anthropic\r');
    await shows('Model [claude-sonnet-5]: ');
    type('\r');
    await shows('Set the key:  export ANTHROPIC_API_KEY=…');
    expect(await exit).toBe(0);
    expect(await written()).toContain('provider = "anthropic"\nmodel = "claude-sonnet-5"\n');
  });

  test('writes nothing at Ctrl-C', async () => {
    const { type, shows, exit } = fakeTerminal(['init'], play.folder);
    await shows('Provider [demo]: ');
    type('\u0003');
    expect(await exit).toBe(130);
    await expect(written()).rejects.toThrow('ENOENT');
  });
});

describe('doctor', () => {
  const doctor = async (
    ...args: string[]
  ): Promise<{ code: number; ok: boolean; checks: Record<string, string>[] }> => {
    const env = { OPENAI_API_KEY: KEY, PATH: process.env['PATH'] };
    const { code, stdout, stderr } = await command(['doctor', '--json', ...args], play.folder, { env });
    expect(stdout + stderr).not.toContain(KEY);
    return { code, ...(JSON.parse(stdout) as { ok: boolean; checks: Record<string, string>[] }) };
  };
  /** Without the engines of sandboxes, which depend on the machine. */
  const shown = (checks: readonly Record<string, string>[]): (string | undefined)[][] =>
    checks.flatMap(({ name, status }) => (name!.startsWith('sandbox') ? [] : [[name, status]]));
  const entry = (lines: string): Promise<void> =>
    play.write('treadle.toml', `[models.main]\nmodel = "m"\nbase_url = "${server!.baseURL}"\n${lines}`);

  test('finds no problem with a model that replies and calls tools', async () => {
    server = await scriptedOpenAi([CALL]);
    await entry('');
    const { code, ok, checks } = await doctor();
    expect([code, ok]).toEqual([0, true]);
    expect(shown(checks)).toEqual([
      ['node', 'ok'],
      ['configuration', 'ok'],
      ['store', 'ok'],
      ['model main', 'ok'],
      ['git', 'ok'],
    ]);
    expect(checks[3]!['message']).toMatch(/^openai\/m \(default\): reachable, supports tools, streams \(/);
  });

  test('says what to do about each model that does not work', async () => {
    server = await scriptedOpenAi([{ status: 401, message: `wrong key ${KEY}` }]);
    await entry('[models.other]\nprovider = "anthropic"\nmodel = "c"\n[models]\ndefault = "main"\n');
    const { code, checks } = await doctor();
    expect(code).toBe(1);
    expect(checks.slice(3, 5)).toMatchObject([
      { status: 'problem', message: expect.stringContaining('401'), remedy: expect.stringContaining('OPENAI_API_KEY') },
      { status: 'warning', remedy: 'Set the environment variable: export ANTHROPIC_API_KEY=…' },
    ]);
  });

  test('names the variable of an address that nobody answers at', async () => {
    await play.write('treadle.toml', '[models.main]\nmodel = "m"\n');
    // A port that is never open.
    const env = { OPENAI_API_KEY: KEY, OPENAI_BASE_URL: 'http://127.0.0.1:1/v1', PATH: process.env['PATH'] };
    const { code, stdout } = await command(['doctor', '--json'], play.folder, { env });
    const { checks } = JSON.parse(stdout) as { checks: Record<string, string>[] };
    expect(code).toBe(1);
    expect(checks[3]).toMatchObject({ remedy: 'Check the network, or correct OPENAI_BASE_URL.' });
  });

  test('gives up on a model that does not answer', async () => {
    server = await scriptedOpenAi([{ hang: '' }]);
    await entry('');
    const { code, checks } = await doctor('--timeout', '1');
    expect(code).toBe(1);
    expect(checks[3]).toMatchObject({ status: 'problem', remedy: expect.stringContaining('--timeout') });
  });

  test('reports a configuration with problems', async () => {
    await play.write('treadle.toml', '[models.a]\nprovider = "demo"\n[models.b]\nprovider = "demo"\n');
    expect((await doctor()).checks[1]).toMatchObject({
      status: 'warning',
      remedy: 'Add default = "NAME" to [models].',
    });
    await play.write('treadle.toml', '[egde]\n');
    const { code, stdout } = await command(['doctor'], play.folder);
    expect(code).toBe(1);
    expect(stdout).toContain('FAIL  configuration: treadle.toml: egde is not known, did you mean edge?');
    expect(stdout).toMatch(/\n1 problem\.\n$/);
  });

  test('reports a store that cannot be used, agents, and MCP servers', async () => {
    await play.write('broken.db', 'no database at all, but long enough to look at '.repeat(20));
    await play.write(
      'treadle.toml',
      '[mcp.servers.gone]\ncommand = "./no-such-program"\n[models.a]\nprovider = "demo"\n',
    );
    await play.write('agents/good.yaml', 'description: Good.\n');
    await play.write('agents/bad.yaml', 'x: 1\n');
    const { code, checks } = await doctor('--store', 'sqlite:broken.db');
    expect(code).toBe(1);
    expect(shown(checks)).toEqual([
      ['node', 'ok'],
      ['configuration', 'ok'],
      ['store', 'problem'],
      ['model a', 'ok'],
      ['git', 'ok'],
      ['agents', 'ok'],
      ['agents', 'warning'],
      ['mcp server gone', 'problem'],
    ]);
    expect(checks.at(-2)!['message']).toBe('1 file of agents is not used. "treadle agents check" says why.');
    expect(checks.at(-1)!['remedy']).toContain('Install the program');
  });
});
