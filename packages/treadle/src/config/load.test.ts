import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CommandError } from '../command-line/command.ts';
import { loadConfig, parseConfig } from './load.ts';

/** A file with every section. */
const WHOLE = `
[server]
host = "127.0.0.1"
port = 3210
[[server.keys]]
name = "ci"
hash = "sha256:${'0aF9'.repeat(16)}"
scopes = ["agents:invoke", "tools:execute"]
tenant = "acme"

[store]
url = "sqlite:.treadle/treadle.db"

[models]
default = "main"
[models.main]
provider = "openai"
model = "m"
base_url = "https://host/v1"
api_key_env = "SOME_KEY"
fallback = ["backup"]
[models.backup]
provider = "anthropic"
model = "c"
[models.play]
provider = "demo"

[orchestrator]
tool_loop_enabled = true
max_tool_iterations = 10
tool_error_limit = 3
default_tool_timeout_ms = 30000
[orchestrator.tools]
offer = ["read-only"]
[orchestrator.tools.permissions]
file_read = true

[mcp.servers.files]
command = "npx"
args = ["x"]
`;

test('parses a file with every section', () => {
  expect(parseConfig(WHOLE, 'treadle.toml')).toMatchObject({
    models: { default: 'main', main: { provider: 'openai', model: 'm', api_key_env: 'SOME_KEY' } },
    orchestrator: { max_tool_iterations: 10, tool_error_limit: 3, default_tool_timeout_ms: 30_000 },
  });
  expect(parseConfig('', 'treadle.toml')).toEqual({});
});

describe('errors name the file, the path and what is allowed', () => {
  test.each([
    [
      '[modles]',
      'modles is not known, did you mean models? Allowed here: models, orchestrator, policy, server, chat, agents, workflows, schedules, triggers, hooks, telemetry, memory, store, budgets, mcp, edge.',
    ],
    [
      'x = 1',
      'x is not known. Allowed here: models, orchestrator, policy, server, chat, agents, workflows, schedules, triggers, hooks, telemetry, memory, store, budgets, mcp, edge.',
    ],
    [
      '[models.a]\nmodel = "m"\nmodell = "x"',
      'models.a.modell is not known, did you mean model? Allowed here: provider, model, base_url, api_key_env, headers_env, context_tokens, images, files, temperature, max_output_tokens, reasoning, timeout_ms, tool_support, price, fallback.',
    ],
    ['[models.a]\nmodel = 3', 'models.a.model must be a string in quotes, but is 3.'],
    ['[models.a]\nmodel = ""', 'models.a.model must be a string in quotes, but is empty.'],
    ['[models.a]\nprovider = "openai"', 'models.a.model is missing: the name of the model at the provider.'],
    [
      '[models.a]\nmodel = "m"\nprovider = "gemini"',
      'models.a.provider must be one of openai, openai-responses, anthropic, google, ollama, openai-compatible, openrouter, groq, ' +
        'together, deepseek, mistral, azure, vllm, llama-cpp, lm-studio, demo.',
    ],
    [
      '[models.a]\nprovider = "ollama"\nmodel = "m"\ncontext_tokens = 0',
      'models.a.context_tokens must be a whole number from 1, but is 0.',
    ],
    ['[models.a]\nmodel = "m"\nbase_url = "host/v1"', 'models.a.base_url must be an address such as https://host/v1.'],
    [
      '[models.a]\nmodel = "m"\nfallback = "b"',
      'models.a.fallback must be a list of strings such as ["a", "b"], but is a string.',
    ],
    [
      '[models.main]\nmodel = "m"\nfallback = ["b", "main"]',
      'models.main.fallback does not name an entry of [models]. Entries: main.\n' +
        'my.toml: models.main.fallback names the entry itself. Name other entries, or remove it.',
    ],
    [
      '[models.main]\nmodel = "m"\nfallback = ["backpu"]\n[models.backup]\nmodel = "n"',
      'models.main.fallback does not name an entry of [models], did you mean backup? Entries: main, backup.',
    ],
    [
      '[models.a]\nprovider = "azure"\nmodel = "m"',
      'models.a.base_url is missing: the address of the server, because azure has no default address.',
    ],
    [
      '[models]\ndefault = "b"\n[models.a]\nmodel = "m"',
      'models.default does not name an entry of [models]. Entries: a.',
    ],
    ['[models.""]\nprovider = "demo"', 'models has an entry without a name. Give it one, such as [models.main].'],
    ['[models.a]\nmodel = "m"\ntemperature = 3', 'models.a.temperature must be a number from 0 to 2, but is 3.'],
    [
      '[models.a]\nmodel = "m"\nreasoning = "hard"',
      'models.a.reasoning must be one of none, minimal, low, medium, high, xhigh, max.',
    ],
    [
      '[models.a]\nmodel = "m"\nprice = { input = 1 }',
      'models.a.price needs input and output, in US dollars per million tokens.',
    ],
    [
      '[models.a]\nmodel = "m"\nheaders_env = { x-team = "not a name" }',
      'models.a.headers_env.x-team must be the name of an environment variable, such as OPENAI_API_KEY, and not the key itself.',
    ],
    [
      '[models.a]\nprovider = "demo"\ntemperature = 1',
      'models.a.temperature has no effect on the demo model. Remove it, or name another provider.',
    ],
    [
      '[edge]\nbroker = "http://x"',
      'edge.broker must be "embedded", or an address such as mqtts://host:8883 without a user.',
    ],
    [
      '[edge]\nbroker = "mqtts://me:pw@x"',
      'edge.broker must be "embedded", or an address such as mqtts://host:8883 without a user.',
    ],
    [
      '[edge]\npassword = "x"',
      'edge.password must not be here: passwords do not belong in a file. Put it in an environment variable, and name that with password_env.',
    ],
    [
      '[edge.devices."a b"]',
      'edge.devices.a b cannot be the name of a device: use at most 64 letters, digits, "_", "-" and ".".',
    ],
    [
      '[edge]\nbroker = "mqtts://x"\nport = 1\nusername = "a"\npassword_env = "A"',
      'edge.port is for the embedded broker, and edge.broker is another one. Remove it.',
    ],
    [
      '[edge]\nbroker = "mqtt://127.0.0.1.example"\nusername = "a"\npassword_env = "A"',
      'edge.broker is not on this machine, so it needs TLS: use mqtts:// or wss://.',
    ],
    [
      '[edge]\nbroker = "wss://x/mqtt"',
      'edge.broker is not on this machine, so it needs credentials: set username and password_env, or cert and key.',
    ],
    [
      '[edge]\nhost = "0.0.0.0"',
      'edge.host is 0.0.0.0, which others can reach. Set cert and key, username and password_env, and password_env of each device.',
    ],
    [
      '[edge.devices.a]\npassword_env = "A"\n[edge.devices.b]',
      'edge: if one device has password_env, all need it, and [edge] needs username and password_env for the orchestrator.',
    ],
    [
      '[edge]\npassword_env = "A"\n[edge.devices.b]\npassword_env = "B"',
      'edge.password_env is the password of edge.username, which is missing.',
    ],
    [
      '[edge]\nusername = "b"\npassword_env = "A"\n[edge.devices.b]\npassword_env = "B"',
      'edge.username is the name of a device, which has a user of that name. Give the orchestrator another one.',
    ],
    ['[edge]\ncert = "x"', 'edge.cert and edge.key belong together: set both, or none.'],
    [
      '[orchestrator.tools]\npackage_binaries = ["jq"]',
      'orchestrator.tools.package_binaries must contain only absolute paths.',
    ],
    ['[orchestrator.tools]\nskills_path = 1', 'orchestrator.tools.skills_path must be a string in quotes, but is 1.'],
    ['[models]\ndefault = 1', 'models.default must be a string in quotes, but is 1.'],
    ['[models]\nmain = "m"', 'models.main must be a table, but is a string.'],
    ['models = []', 'models must be a table, but is a list.'],
    [
      '[orchestrator]\nmax_tool_iterations = 0',
      'orchestrator.max_tool_iterations must be a whole number from 1, but is 0.',
    ],
    [
      '[orchestrator]\nmax_tool_iterations = 1.5',
      'orchestrator.max_tool_iterations must be a whole number from 1, but is 1.5.',
    ],
    [
      '[orchestrator]\ntool_loop_enabled = "no"',
      'orchestrator.tool_loop_enabled must be true or false, but is a string.',
    ],
    [
      '[orchestrator]\ntool_loop_enabled = 2026-01-01',
      'orchestrator.tool_loop_enabled must be true or false, but is a date.',
    ],
    ['store = "sqlite:x"', 'store must be a table, but is a string.'],
  ])('%s', (toml, problem) => {
    expect(() => parseConfig(toml, 'my.toml')).toThrow(new CommandError(`my.toml: ${problem}`));
  });

  test('reports all problems at once', () => {
    expect(() => parseConfig('a = 1\nb = 2', 'my.toml')).toThrow(/^my\.toml: a is.*\nmy\.toml: b is/);
  });

  test('reports line and column of a syntax error', () => {
    expect(() => parseConfig('[models]\ndefault = main', 'my.toml')).toThrow(/^my\.toml:2:11: This is not TOML: /);
    expect(() => parseConfig('a = 1\na = 2', 'my.toml')).toThrow(/^my\.toml:2:1: This is not TOML: /);
  });
});

describe('keys are rejected, and not shown in errors', () => {
  const secret = 'sk-0123456789abcdef';
  test.each(['api_key', 'apiKey', 'key', 'token'])('%s', (name) => {
    const toml = `[models.a]\nmodel = "m"\n${name} = "${secret}"`;
    expect(() => parseConfig(toml, 't')).toThrow(new RegExp(`models.a.${name} must not be here: .* with api_key_env`));
  });
  test.each([
    `[models.a]\nmodel = "m"\napi_key_env = "${secret}"`,
    `[models.a]\nmodel = "m"\napi_key = "${secret}"`,
    `[models.a]\nmodel = "m"\napi_key = ${secret}`,
    `[models.a]\nmodel = "m"\nprovider = "${secret}"`,
    `[models.a]\nmodel = "m"\nbase_url = "https://me:${secret}@host/v1"`,
    `[models.a]\nmodel = "m"\nbase_url = "https://host/v1?api_key=${secret}"`,
  ])('%s', (toml) => {
    let message = '';
    try {
      parseConfig(toml, 't');
    } catch (error) {
      message = (error as Error).message;
    }
    expect(message).not.toBe('');
    expect(message).not.toContain(secret);
  });
});

describe('loads the file', () => {
  let base: string;
  beforeAll(async () => {
    base = await mkdtemp(join(tmpdir(), 'treadle-config-'));
    await mkdir(join(base, 'work'));
    await mkdir(join(base, 'empty'));
    await writeFile(join(base, 'work/treadle.toml'), '[orchestrator]\nmax_tool_iterations = 1\n');
    await writeFile(join(base, 'other.toml'), '[orchestrator]\nmax_tool_iterations = 2\n');
  });
  afterAll(() => rm(base, { recursive: true }));

  test('of the working folder, if it exists', async () => {
    expect(await loadConfig({ cwd: base, folder: join(base, 'work') })).toEqual({
      config: { orchestrator: { max_tool_iterations: 1 } },
      file: 'treadle.toml',
      path: join(base, 'work', 'treadle.toml'),
      named: false,
    });
    expect(await loadConfig({ cwd: base, folder: join(base, 'empty') })).toEqual({ config: {}, named: false });
  });

  test('that --config names, relative to the current folder', async () => {
    expect(await loadConfig({ cwd: base, folder: join(base, 'work'), file: 'other.toml' })).toMatchObject({
      config: { orchestrator: { max_tool_iterations: 2 } },
      file: 'other.toml',
      named: true,
    });
    await expect(loadConfig({ cwd: base, folder: base, file: 'missing.toml' })).rejects.toThrow(
      /^The configuration missing\.toml cannot be read: there is no such file\./,
    );
    await expect(loadConfig({ cwd: base, folder: base, file: 'work' })).rejects.toThrow(
      /cannot be read: it is a folder, not a file\.$/,
    );
  });
});
