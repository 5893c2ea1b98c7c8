import { describe, expect, test } from 'vitest';
import { CommandError } from '../command-line/command.ts';
import { parseConfig } from '../config/load.ts';
import { local, readOnlyTools } from '@treadle/tools';
import { servedModels, welcomeText, type ServedModels } from './serve.ts';

const URL = 'http://127.0.0.1:3210';

test('welcomes users of a server without keys', () => {
  const text = welcomeText({
    url: URL,
    models: ['demo'],
    default: 'demo',
    options: { tools: readOnlyTools(local('.')) },
    store: 'x/treadle.db',
  });
  expect(text.split('\n')).toEqual([
    'Models: demo (default)',
    'Tools:  read, glob, grep; for requests that ask for them',
    'Store:  x/treadle.db',
    '',
    'Point any OpenAI client at http://127.0.0.1:3210/v1; any key will do. Or try:',
    `  curl ${URL}/v1/responses -H 'Content-Type: application/json' -d ` +
      `'{"model":"demo","input":"List the files","tools":[{"type":"mcp","server_label":"treadle"}]}'`,
    'Press Ctrl-C to stop.',
  ]);
});

test('welcomes users of a server with keys and default tools, and quotes names for a shell', () => {
  const text = welcomeText({
    url: URL,
    models: ['a', "it's"],
    default: "it's",
    options: { tools: [], keys: [{ name: 'k', hash: '' }] },
    store: 'in memory, deleted when the server stops',
  });
  expect(text.split('\n')).toEqual([
    "Models: it's (default), a",
    'Store:  in memory, deleted when the server stops',
    '',
    'Point any OpenAI client at http://127.0.0.1:3210/v1, with one of your keys. Or try:',
    `  curl ${URL}/v1/responses -H 'Content-Type: application/json' -H "Authorization: Bearer $TREADLE_KEY" -d ` +
      `'{"model":"it'\\''s","input":"Hello"}'`,
    'Press Ctrl-C to stop.',
  ]);
  const offered = { tools: readOnlyTools(local('.')), defaultTools: ['read'] };
  expect(welcomeText({ url: URL, models: ['a'], default: 'a', options: offered, store: 'in memory' })).toContain(
    'Tools:  read, glob, grep; every request gets read\n',
  );
});

const served = (toml: string, env: Record<string, string> = {}, values: object = {}): ServedModels =>
  servedModels(values, { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named: true }, env);

const TWO = `
[models]
default = "b"
[models.a]
provider = "ollama"
model = "llama"
fallback = ["b"]
[models.b]
model = "gpt"
[models.c]
provider = "anthropic"
model = "claude"
`;

describe('without a configuration', () => {
  test('serves the demo model with a notice', () => {
    const { notices, ...rest } = servedModels({}, { config: {}, named: false }, {});
    expect(rest).toEqual({ default: 'demo', choices: new Map([['demo', expect.objectContaining({ type: 'demo' })]]) });
    expect(notices).toEqual([expect.stringContaining('this is the demo model')]);
  });

  test('serves an OpenAI model if there is a key', () => {
    const names = servedModels({}, { config: {}, named: false }, { OPENAI_API_KEY: 'k' });
    expect(names).toEqual({
      default: 'gpt-5-mini',
      choices: new Map([['gpt-5-mini', { type: 'openai', model: 'gpt-5-mini', apiKey: 'k' }]]),
      notices: [],
    });
  });

  test('serves the model of --model under its name', () => {
    expect(servedModels({ model: 'ollama/llama' }, { config: {}, named: false }, {})).toEqual({
      default: 'ollama/llama',
      choices: new Map([['ollama/llama', { type: 'ollama', model: 'llama' }]]),
      notices: [],
    });
  });
});

describe('with a configuration', () => {
  const env = { OPENAI_API_KEY: 'o', ANTHROPIC_API_KEY: 'a' };

  test('serves all entries under their names, with their fallbacks', () => {
    const { default: standard, choices, notices } = served(TWO, env);
    expect([standard, notices]).toEqual(['b', []]);
    expect(Object.fromEntries(choices)).toEqual({
      a: { type: 'ollama', model: 'llama', fallback: [{ type: 'openai', model: 'gpt', apiKey: 'o' }] },
      b: { type: 'openai', model: 'gpt', apiKey: 'o' },
      c: { type: 'anthropic', model: 'claude', apiKey: 'a' },
    });
  });

  test('maps further names to models, and leaves out those of a model without a key', () => {
    const toml = `${TWO}[server.model_aliases]\n"claude-opus-4-8" = "a"\nsmall = "c"\n"*" = "default"\n`;
    expect(served(toml, { OPENAI_API_KEY: 'o' }).aliases).toEqual({ 'claude-opus-4-8': 'a', '*': 'b' });
    expect(() => served(`${TWO}[server.model_aliases]\nx = "bb"\n`, env)).toThrow(
      'treadle.toml: server.model_aliases maps "x" to "bb", which is not a model. Did you mean "b"? Models: default, b, a, c.',
    );
  });

  test('leaves out a model without a key, with a notice', () => {
    const { choices, notices } = served(TWO, { OPENAI_API_KEY: 'o' });
    expect([...choices.keys()]).toEqual(['b', 'a']);
    expect(notices).toEqual([
      'The model c is left out because it has no key: set the environment variable ANTHROPIC_API_KEY.',
    ]);
  });

  test('fails without the key of the default', () => {
    expect(() => served(TWO, { ANTHROPIC_API_KEY: 'a' })).toThrow(/no key for gpt: set .* OPENAI_API_KEY/);
  });

  test('--model changes the default, or adds a model', () => {
    expect(served(TWO, env, { model: 'a' })).toMatchObject({ default: 'a' });
    const { default: standard, choices } = served(TWO, env, { model: 'demo' });
    expect([standard, ...choices.keys()]).toEqual(['demo', 'demo', 'a', 'b', 'c']);
  });

  test('uses the only model as the default, and requires a default if there are several', () => {
    expect(served('[models.x]\nprovider = "demo"').default).toBe('x');
    expect(() => served('[models.x]\nprovider = "demo"\n[models.y]\nprovider = "demo"')).toThrow(
      new CommandError(
        'treadle.toml has the models x, y, but no default. Choose one with --model, or add default = "…" to [models].',
      ),
    );
  });
});
