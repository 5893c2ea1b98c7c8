import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { FORMS } from '../provider/script.ts';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';
import { stopLeftovers, treadle } from './treadle-process.ts';

const KEY = 'sk-very-secret-key-0123456789';
const CALL: Step = { calls: [{ name: 'ping', arguments: '{"word":"treadle"}' }] };

let play: Playground;
const servers: ScriptedOpenAi[] = [];

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await Promise.all(servers.splice(0).map((server) => server.close()));
  await play.remove();
});

async function script(...steps: Step[]): Promise<ScriptedOpenAi> {
  const server = await scriptedOpenAi(steps);
  servers.push(server);
  return server;
}

async function models(args: string[] = [], env: Record<string, string> = {}): Promise<Printed> {
  const ended = await command(['models', ...args], play.folder, { env });
  expect(ended.stdout + ended.stderr).not.toContain(KEY);
  return ended;
}

const hostOf = ({ baseURL }: ScriptedOpenAi): string => new URL(baseURL).host;
const lines = ({ stdout }: Printed): string[][] =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split(/ {2,}/));

describe('lists', () => {
  test('the models of the configuration without sending a request', async () => {
    await play.write(
      'treadle.toml',
      `[models]
default = "main"
[models.main]
model = "gpt-x"
fallback = ["local"]
[models.far]
provider = "anthropic"
model = "claude-x"
api_key_env = "MY_KEY"
[models.local]
provider = "ollama"
model = "qwen3"
[models.play]
provider = "demo"
`,
    );
    const ended = await models(['--no-test'], { MY_KEY: KEY });
    expect(ended).toMatchObject({ code: 0, stderr: '' });
    expect(lines(ended)).toEqual([
      ['NAME', 'PROVIDER', 'MODEL', 'HOST', 'KEY'],
      ['main (default)', 'openai', 'gpt-x', 'api.openai.com', 'OPENAI_API_KEY is not set'],
      ['far', 'anthropic', 'claude-x', 'api.anthropic.com', 'MY_KEY is set'],
      ['local', 'ollama', 'qwen3', '127.0.0.1:11434', 'none needed'],
      ['play', 'demo', 'in this process', 'none needed'],
    ]);
    const { stdout } = await models(['main', '--no-test', '--json'], { MY_KEY: KEY });
    expect(JSON.parse(stdout)).toEqual([
      {
        name: 'main',
        isDefault: true,
        provider: 'openai',
        model: 'gpt-x',
        host: 'api.openai.com',
        key: { variable: 'OPENAI_API_KEY', standing: 'missing' },
        fallback: ['local'],
      },
    ]);
  });

  test('the default model without a configuration', async () => {
    const demo = await models();
    expect(demo).toMatchObject({ code: 0, stderr: expect.stringContaining('This model is used instead') });
    expect(lines(demo)[1]!.slice(0, 4)).toEqual(['demo (default)', 'demo', 'in this process', 'none needed']);
    expect(demo.stdout).toMatch(/reachable, supports tools, streams \(\d/);
    const keyed = await models(['--no-test'], { OPENAI_API_KEY: KEY });
    expect(lines(keyed)[1]).toEqual([
      'gpt-5-mini (default)',
      'openai',
      'gpt-5-mini',
      'api.openai.com',
      'OPENAI_API_KEY is set',
    ]);
    const elsewhere = { OPENAI_API_KEY: KEY, OPENAI_BASE_URL: 'https://gate.example/v1' };
    expect(lines(await models(['--no-test'], elsewhere))[1]![3]).toBe('gate.example (OPENAI_BASE_URL)');
  });
});

describe('tests', () => {
  const entry = (name: string, { baseURL }: ScriptedOpenAi, more = ''): string =>
    `[models.${name}]\nmodel = "m-${name}"\nbase_url = "${baseURL}"\n${more}\n`;

  test('a model by asking for one call', async () => {
    const server = await script(CALL);
    await play.write('treadle.toml', entry('a', server, 'api_key_env = "MY_KEY"'));
    const ended = await models([], { MY_KEY: KEY });
    expect(ended).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/^a: testing…\na: reachable, supports tools/),
    });
    expect(lines(ended)[1]).toEqual([
      'a (default)',
      'openai',
      'm-a',
      hostOf(server),
      'MY_KEY is set',
      expect.stringMatching(/^reachable, supports tools, streams \(/),
    ]);
    expect(server.requests).toMatchObject([{ model: 'm-a', tools: [{ function: { name: 'ping' } }] }]);
    expect(server.keys).toEqual([`Bearer ${KEY}`]);
  });

  test('again with a required call, or without tools if the model rejects them', async () => {
    const talks = await script({ text: ['pong'] }, CALL);
    const never = await script({ text: ['pong'] }, { text: ['pong'] });
    const refuses = await script({ status: 400, message: 'm-c does not support tools' }, { text: ['ok'] });
    await play.write('treadle.toml', entry('a', talks) + entry('b', never) + entry('c', refuses));
    const { code, stdout, stderr } = await models(['--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject([
      { name: 'a', isDefault: false, test: { reachable: true, tools: true, streams: true, ms: expect.any(Number) } },
      { name: 'b', test: { reachable: true, tools: false, streams: true } },
      { name: 'c', test: { reachable: true, tools: false, error: { code: 'invalid-request', status: 400 } } },
    ]);
    expect(talks.requests[1]).toMatchObject({ tool_choice: 'required' });
    expect(refuses.requests[1]).not.toHaveProperty('tools');
    expect(stderr).toContain('b: The model replies, but does not call tools.\n');
    expect(stderr).toContain('c: The model replies, but does not call tools. It rejected them: ');
    expect(stderr).toContain('The provider answered 400: m-c does not support tools\n');
  });

  test('every model, and reports the reason of each failure', async () => {
    const refuses = await script({ status: 401, message: `Incorrect API key provided: ${KEY}` });
    const closed = await scriptedOpenAi([]);
    await closed.close();
    const works = await script(CALL);
    await play.write(
      'treadle.toml',
      entry('refused', refuses, 'api_key_env = "MY_KEY"') +
        entry('closed', closed) +
        '[models.keyless]\nprovider = "anthropic"\nmodel = "claude-x"\n' +
        entry('works', works),
    );
    const ended = await models([], { MY_KEY: KEY });
    expect(ended.code).toBe(1);
    expect(lines(ended).map((cells) => [cells[0], cells.at(-1)])).toEqual([
      ['NAME', 'TEST'],
      ['refused', 'failed: auth'],
      ['closed', 'failed: network'],
      ['keyless', 'failed: auth'],
      ['works', expect.stringMatching(/^reachable, supports tools/)],
    ]);
    expect(ended.stderr).toContain('refused: The provider answered 401: Incorrect API key provided: [redacted]\n');
    expect(ended.stderr).toMatch(/closed: Connection to 127\.0\.0\.1:\d+ failed/);
    expect(ended.stderr).toContain('keyless: There is no key: set the environment variable ANTHROPIC_API_KEY.\n');
    expect(refuses.requests).toHaveLength(1);
    expect(await models(['works'])).toMatchObject({ code: 1 });
  });

  test('with a deadline', async () => {
    const server = await script({ hang: 'so' });
    await play.write('treadle.toml', entry('a', server));
    expect(await models(['--timeout', '1'])).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('failed: timeout'),
      stderr: expect.stringContaining('a: There was no complete reply within 1 s. --timeout sets another deadline.\n'),
    });
  });

  test('until Ctrl-C', async () => {
    const server = await script({ hang: 'so' });
    await play.write('treadle.toml', entry('a', server));
    const running = treadle(['models'], { cwd: play.folder, stdin: '' });
    await server.answered(1);
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({ code: 130, stdout: '' });
  });
});

test('tests every protocol against a provider that validates requests', async () => {
  await using provider = await startProvider();
  const script = await provider.script(
    FORMS.map(() => ({ calls: [{ name: 'ping', arguments: '{"word":"treadle"}' }] })),
  );
  const entries = FORMS.map(
    (form) =>
      `[models.${form}]\nprovider = "${form === 'openai-chat' ? 'openai' : form}"\nmodel = "m-1"\n` +
      `base_url = "${script.baseURL(form)}"\napi_key_env = "MY_KEY"\n`,
  );
  await play.write('treadle.toml', entries.join(''));
  const { code, stdout } = await models(['--json'], { MY_KEY: KEY });
  expect(JSON.parse(stdout)).toMatchObject(
    FORMS.map((name) => ({ name, test: { reachable: true, tools: true, streams: true } })),
  );
  expect(code).toBe(0);
  const requests = await script.requests();
  expect(requests).toHaveLength(FORMS.length);
  for (const { headers } of requests) expect(JSON.stringify(headers)).toContain(KEY);
});

test('leaves out a fallback without a key', async () => {
  const first = await script({ text: ['hello'] });
  await play.write(
    'treadle.toml',
    `[models]
default = "a"
[models.a]
model = "m-a"
base_url = "${first.baseURL}"
fallback = ["b"]
[models.b]
provider = "anthropic"
model = "m-b"
`,
  );
  const ended = await command(['run', 'hi'], play.folder);
  expect(ended).toMatchObject({ code: 0, stdout: 'hello\n' });
  expect(ended.stderr).toContain(
    'The fallback b is left out because it has no key: set the environment variable ANTHROPIC_API_KEY.\n',
  );
});

test('sends context_tokens to Ollama', async () => {
  await using provider = await startProvider();
  const script = await provider.script([{ text: 'hello' }]);
  await play.write(
    'treadle.toml',
    `[models.a]\nprovider = "ollama"\nmodel = "m"\ncontext_tokens = 32768\nbase_url = "${script.baseURL('ollama')}"\n`,
  );
  expect(await command(['run', 'hi'], play.folder)).toMatchObject({ code: 0 });
  expect(await script.requests()).toMatchObject([{ body: { options: { num_ctx: 32_768 } } }]);
});

test('calls a fallback when the first model fails, and stores the name of the first', async () => {
  const first = await script({ status: 401, message: 'no such key' });
  const second = await script({ text: ['hello'] });
  await play.write(
    'treadle.toml',
    `[models]
default = "a"
[models.a]
model = "m-a"
base_url = "${first.baseURL}"
fallback = ["b"]
[models.b]
provider = "openai-compatible"
model = "m-b"
base_url = "${second.baseURL}"
`,
  );
  const ended = await command(['run', '--json', 'hi'], play.folder);
  expect(ended).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(ended.stdout)).toMatchObject({ text: 'hello', outcome: { type: 'completed' } });
  expect([first.requests[0]!.model, second.requests[0]!.model]).toEqual(['m-a', 'm-b']);
  const list = await command(['runs', 'list', '--json'], play.folder);
  expect(JSON.parse(list.stdout)).toMatchObject([{ model: 'm-a' }]);
});

describe('usage', () => {
  test.each([
    [['mian'], /There is no model "mian"\. Did you mean "main"\? treadle\.toml has main\./],
    [['--no-tests'], /has no flag --no-tests.* Did you mean "--no-test"\?/],
    [['a', 'b'], /takes one argument/],
  ])('rejects %j', async (args, message) => {
    await play.write('treadle.toml', '[models.main]\nmodel = "m"\n');
    const { code, stdout, stderr } = await models(args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
  });

  test('shows help', async () => {
    const { code, stdout } = await models(['--help']);
    expect(code).toBe(0);
    expect(stdout).toContain('Usage: treadle models [name] [flags]');
  });
});
