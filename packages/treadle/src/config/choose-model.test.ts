import { describe, expect, test } from 'vitest';
import type { ModelValues } from '../command-line/flags.ts';
import { chooseModel, chooseModelOf, type ModelChoice } from './choose-model.ts';
import { parseConfig } from './load.ts';

const KEY = { OPENAI_API_KEY: 'secret' };

function choose(values: ModelValues, toml = '', env: Record<string, string> = {}, named = false): ModelChoice {
  return chooseModel(values, { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named }, env);
}

const TWO = '[models.a]\nmodel = "model-a"\n[models.b]\nprovider = "demo"\n';

describe('without flags', () => {
  test('chooses the demo model with a notice if there is no key and no configuration', () => {
    expect(choose({})).toEqual({ type: 'demo', notice: expect.stringMatching(/demo model.*\n.*OPENAI_API_KEY/) });
    expect(choose({}, '[orchestrator]\n')).toMatchObject({ type: 'demo', notice: expect.any(String) });
    expect(choose({}, '', { OPENAI_API_KEY: ' ' })).toMatchObject({ type: 'demo' });
  });
  test.each([
    [{ ...KEY, ANTHROPIC_API_KEY: 'other' }, 'openai', 'secret'],
    [{ ANTHROPIC_API_KEY: 'a' }, 'anthropic', 'a'],
    [{ GOOGLE_API_KEY: 'g' }, 'google', 'g'],
  ])('chooses a model of the provider whose key is set: %j', (env, type, apiKey) => {
    expect(choose({}, '', env)).toEqual({ type, model: expect.any(String), apiKey });
  });
  test('chooses the default of the configuration, or its only model', () => {
    expect(choose({}, `[models]\ndefault = "b"\n${TWO}`)).toEqual({ type: 'demo' });
    expect(choose({}, '[models.x]\nmodel = "m"', KEY)).toEqual({ type: 'openai', model: 'm', apiKey: 'secret' });
    expect(() => choose({}, TWO)).toThrow('treadle.toml has the models a, b, but no default. Choose one with --model');
  });
});

describe('the base URL of the environment', () => {
  const env = { OPENAI_BASE_URL: 'https://gate.example/v1', ANTHROPIC_BASE_URL: 'http://localhost:4000' };

  test('is used with the key of the environment, and without a key on this machine', () => {
    const openai = { type: 'openai', model: 'gpt-x', baseURL: env.OPENAI_BASE_URL, apiKey: 'secret' };
    expect(choose({ model: 'gpt-x' }, '', { ...KEY, ...env })).toEqual(openai);
    expect(choose({}, '[models.x]\nmodel = "gpt-x"', { ...KEY, ...env })).toEqual(openai);
    expect(() => choose({ model: 'gpt-x' }, '', env)).toThrow('There is no key for gpt-x');
    const claude = { type: 'anthropic', model: 'c', baseURL: 'http://localhost:4000/v1' };
    expect(choose({ model: 'anthropic/c' }, '', env)).toEqual(claude);
    const ollama = { type: 'ollama', model: 'q', baseURL: 'http://gpu.lan:11434/' };
    expect(choose({ model: 'ollama/q' }, '', { OLLAMA_HOST: 'gpu.lan' })).toEqual(ollama);
  });
  test('does not replace one that the configuration or a flag names', () => {
    const toml = '[models.x]\nmodel = "m"\nbase_url = "http://localhost:1/v1"';
    expect(choose({}, toml, { ...KEY, ...env })).toMatchObject({ baseURL: 'http://localhost:1/v1' });
    const flags = { model: 'm', 'base-url': 'http://localhost:2/v1' };
    expect(choose(flags, '', { ...KEY, ...env })).toMatchObject({ baseURL: 'http://localhost:2/v1' });
    expect(choose({ model: 'groq/m' }, '', { ...env, GROQ_API_KEY: 'g' })).toEqual({
      type: 'groq',
      model: 'm',
      apiKey: 'g',
    });
  });
  test('is named if it is not an address', () => {
    for (const value of ['gate.example', 'localhost:8080/v1']) {
      expect(() => choose({ model: 'gpt-x' }, '', { ...KEY, OPENAI_BASE_URL: value })).toThrow(
        'OPENAI_BASE_URL is not the address of a server. Set it to one such as https://api.openai.com/v1.',
      );
    }
    expect(choose({}, '', { OPENAI_BASE_URL: 'gate.example' })).toMatchObject({ type: 'demo' });
  });
});

describe('--model', () => {
  test.each([
    ['a', 'model-a'],
    ['openai/gpt-x', 'gpt-x'],
    ['gpt-x', 'gpt-x'],
    ['openai/meta/llama', 'meta/llama'],
  ])('%s chooses %s', (model, id) => {
    expect(choose({ model }, TWO, KEY)).toEqual({ type: 'openai', model: id, apiKey: 'secret' });
  });
  test('chooses the demo model by several names', () => {
    for (const model of ['demo', 'demo/any', 'b']) expect(choose({ model }, TWO)).toEqual({ type: 'demo' });
  });
  test.each([
    ['anthropic/claude', { ANTHROPIC_API_KEY: 'secret' }, { type: 'anthropic', model: 'claude', apiKey: 'secret' }],
    ['openai-responses/gpt-x', KEY, { type: 'openai-responses', model: 'gpt-x', apiKey: 'secret' }],
    ['openrouter/meta/llama', { OPENROUTER_API_KEY: 's' }, { type: 'openrouter', model: 'meta/llama', apiKey: 's' }],
    ['ollama/qwen3', KEY, { type: 'ollama', model: 'qwen3' }],
    ['mistral/large', { MISTRAL_API_KEY: 's' }, { type: 'mistral', model: 'large', apiKey: 's' }],
    ['vllm/qwen3', KEY, { type: 'vllm', model: 'qwen3' }],
  ])('%s uses the key of its provider', (model, env, choice) => {
    expect(choose({ model }, '', env)).toEqual(choice);
  });
  test('requires --base-url for a provider without a default address', () => {
    expect(() => choose({ model: 'azure/d' }, '', KEY)).toThrow('azure has no default address. Add --base-url URL.');
    expect(choose({ model: 'openai-compatible/m', 'base-url': 'http://10.0.0.1/v1' })).toEqual({
      type: 'openai-compatible',
      model: 'm',
      baseURL: 'http://10.0.0.1/v1',
    });
  });
  test('rejects an unknown provider', () => {
    expect(() => choose({ model: 'opnai/gpt' }, '', KEY)).toThrow(/no provider "opnai". Did you mean "openai"\?/);
    expect(() => choose({ model: 'meta/llama' }, '', KEY)).toThrow(
      /or openai\/meta\/llama if that is the model's whole name/,
    );
  });
  test('accepts a name with a slash if --base-url names the server', () => {
    expect(choose({ model: 'meta/llama', 'base-url': 'http://localhost:1/v1' })).toEqual({
      type: 'openai',
      model: 'meta/llama',
      baseURL: 'http://localhost:1/v1',
    });
  });
});

describe('keys', () => {
  test('are read from the variable that the configuration names', () => {
    const toml = '[models.x]\nmodel = "m"\napi_key_env = "MINE"';
    expect(choose({}, toml, { MINE: 'mine', ...KEY })).toEqual({ type: 'openai', model: 'm', apiKey: 'mine' });
    expect(() => choose({}, toml, KEY)).toThrow('There is no key for m: set the environment variable MINE.');
  });
  test('of Google are read from either variable', () => {
    const gemini = { type: 'google', model: 'gemini-x' };
    const choice = (env: Record<string, string>): unknown => choose({ model: 'google/gemini-x' }, '', env);
    expect(choice({ GOOGLE_API_KEY: 'b' })).toEqual({ ...gemini, apiKey: 'b' });
    expect(choice({ GOOGLE_API_KEY: 'b', GEMINI_API_KEY: 'a' })).toEqual({ ...gemini, apiKey: 'a' });
    expect(() => choice(KEY)).toThrow('There is no key for gemini-x: set the environment variable GEMINI_API_KEY.');
  });
  test.each(['two words', 'a\nb', 'schlüssel'])('that are invalid are not shown: %j', (key) => {
    expect(() => choose({ model: 'gpt-x' }, '', { OPENAI_API_KEY: key })).toThrow(
      'The key in OPENAI_API_KEY is invalid: it contains spaces, line breaks or non-ASCII characters. Set it again.',
    );
  });
  test('that are missing are reported with the variable to set', () => {
    expect(() => choose({ model: 'gpt-x' })).toThrow(
      'There is no key for gpt-x: set the environment variable OPENAI_API_KEY.',
    );
    expect(() => choose({ model: 'm', 'base-url': 'https://elsewhere/v1' })).toThrow(/There is no key/);
  });
  test.each([
    'http://localhost:8080/v1',
    'http://127.0.0.1:1/v1',
    'http://127.9.9.9/v1',
    'http://[::1]:1/v1',
    'https://llm.localhost/v1',
  ])('are not needed on this machine: %s', (baseUrl) => {
    expect(choose({ model: 'm', 'base-url': baseUrl })).toEqual({ type: 'openai', model: 'm', baseURL: baseUrl });
  });
  test.each(['http://localhost.evil.com/v1', 'http://127.0.0.1.evil.com/v1', 'http://10.0.0.1/v1'])(
    'are needed at %s',
    (baseUrl) => {
      expect(() => choose({ model: 'm', 'base-url': baseUrl })).toThrow(/There is no key/);
    },
  );
  test('are sent to another host with a notice if the configuration was not named', () => {
    const toml = '[models.x]\nmodel = "m"\nbase_url = "https://elsewhere.example/v1"';
    expect(choose({}, toml, KEY)).toMatchObject({
      notice: 'treadle.toml sends the key in OPENAI_API_KEY to elsewhere.example.',
    });
    expect(choose({}, toml, KEY, true)).not.toHaveProperty('notice');
    expect(choose({}, toml.replace('elsewhere.example', 'api.openai.com'), KEY)).not.toHaveProperty('notice');
    const own = `${toml}\nprovider = "openai-compatible"`;
    expect(choose({}, own, KEY)).not.toHaveProperty('apiKey');
    expect(choose({}, `${own}\napi_key_env = "OPENAI_API_KEY"`, KEY)).toMatchObject({
      notice: 'treadle.toml sends the key in OPENAI_API_KEY to elsewhere.example.',
    });
  });
});

describe('fallback', () => {
  const toml = `
[models]
default = "a"
[models.a]
model = "m-a"
fallback = ["b", "c", "b"]
[models.b]
provider = "anthropic"
model = "m-b"
fallback = ["a"]
[models.c]
provider = "ollama"
model = "m-c"
base_url = "https://elsewhere.example"
api_key_env = "C"
`;
  test('includes each model once, with its own provider and key, without nested fallbacks', () => {
    expect(choose({}, toml, { ...KEY, ANTHROPIC_API_KEY: 'other', C: 'third' })).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      fallback: [
        { type: 'anthropic', model: 'm-b', apiKey: 'other' },
        { type: 'ollama', model: 'm-c', baseURL: 'https://elsewhere.example', apiKey: 'third' },
      ],
      notice: 'treadle.toml sends the key in C to elsewhere.example.',
    });
  });
  test('leaves out a model without a key, with a notice', () => {
    expect(choose({}, toml, { ...KEY, C: 'third' })).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      fallback: [{ type: 'ollama', model: 'm-c', baseURL: 'https://elsewhere.example', apiKey: 'third' }],
      notice:
        'treadle.toml sends the key in C to elsewhere.example.\n' +
        'The fallback b is left out because it has no key: set the environment variable ANTHROPIC_API_KEY.',
    });
    expect(choose({}, toml, KEY)).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      notice:
        'The fallback b is left out because it has no key: set the environment variable ANTHROPIC_API_KEY.\n' +
        'The fallback c is left out because it has no key: set the environment variable C.',
    });
    expect(() => choose({}, toml, { ANTHROPIC_API_KEY: 'other', C: 'third' })).toThrow('There is no key for m-a');
  });
  test('does not use --base-url', () => {
    const env = { ...KEY, ANTHROPIC_API_KEY: 'other', C: 'third' };
    const choice = choose({ 'base-url': 'http://localhost:1/v1' }, toml, env);
    expect(choice).toMatchObject({ baseURL: 'http://localhost:1/v1', fallback: [{ type: 'anthropic' }, {}] });
    expect(JSON.stringify(choice)).not.toMatch(/anthropic[^}]*localhost/);
  });
});

test('includes what the model takes in the choice', () => {
  const toml = '[models.x]\nprovider = "ollama"\nmodel = "m"\nimages = false';
  expect(choose({}, toml)).toEqual({ type: 'ollama', model: 'm', accepts: { images: false } });
});

test('includes context_tokens in the choice', () => {
  const toml = '[models.x]\nprovider = "ollama"\nmodel = "m"\ncontext_tokens = 32768';
  expect(choose({}, toml)).toEqual({ type: 'ollama', model: 'm', contextTokens: 32_768 });
});

describe('--base-url', () => {
  test('overrides the configuration', () => {
    const toml = '[models.x]\nmodel = "m"\nbase_url = "https://host/v1"';
    expect(choose({ 'base-url': 'http://localhost:1/v1' }, toml)).toMatchObject({
      model: 'm',
      baseURL: 'http://localhost:1/v1',
    });
  });
  test('requires a model, and must be a URL', () => {
    expect(() => choose({ 'base-url': 'http://localhost:1/v1' })).toThrow(/Add --model NAME/);
    expect(() => choose({ model: 'm', 'base-url': 'localhost' })).toThrow(/--base-url cannot be "localhost"/);
    expect(() => choose({ model: 'm', 'base-url': 'file:///x' })).toThrow(/such as https:/);
  });
});

describe('the model of a resumed run', () => {
  const of = (model: string, values: ModelValues, toml = '', env: Record<string, string> = {}): ModelChoice =>
    chooseModelOf(
      model,
      values,
      { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named: false },
      env,
    );

  test('is the model of the run, if its server is known', () => {
    expect(of('demo', {})).toEqual({ type: 'demo' });
    expect(of('model-a', {}, TWO, KEY)).toEqual({ type: 'openai', model: 'model-a', apiKey: 'secret' });
    expect(of('gpt-5-mini', {}, '', KEY)).toMatchObject({ type: 'openai', model: 'gpt-5-mini' });
    expect(of('x', { 'base-url': 'http://localhost:1/v1' })).toEqual({
      type: 'openai',
      model: 'x',
      baseURL: 'http://localhost:1/v1',
    });
  });
  test('is another model if --model names one', () => {
    expect(of('demo', { model: 'gpt-x' }, '', KEY)).toMatchObject({ model: 'gpt-x' });
    expect(of('model-a', { model: 'demo' }, TWO)).toEqual({ type: 'demo' });
  });
  test('is not sent to OpenAI only because a key is set', () => {
    expect(() => of('llama', {}, '', KEY)).toThrow('its server is not configured. Name the model with --model llama');
    expect(() => of('llama', {}, TWO, KEY)).toThrow('its server is not configured');
  });
  test('must be chosen if the configuration has it twice', () => {
    const twice = '[models.a]\nmodel = "m"\n[models.b]\nmodel = "m"\nbase_url = "http://localhost:1/v1"\n';
    expect(() => of('m', {}, twice, KEY)).toThrow('which treadle.toml has as a and b. Choose one with --model.');
  });
});

describe('an entry', () => {
  const ENTRY = `[models.a]
model = "m"
temperature = 0.2
max_output_tokens = 500
reasoning = "low"
timeout_ms = 9000
tool_support = "text"
price = { input = 1, output = 2, cached_input = 0.1 }
headers_env = { x-team = "TEAM" }
`;

  test('passes settings, headers, price and timeout on to the model', () => {
    expect(choose({}, ENTRY, { ...KEY, TEAM: 'blue team' })).toEqual({
      type: 'openai',
      model: 'm',
      apiKey: 'secret',
      headers: { 'x-team': 'blue team' },
      settings: { temperature: 0.2, maxOutputTokens: 500, reasoning: 'low' },
      timeoutMs: 9_000,
      price: { input: 1, output: 2, cachedInput: 0.1 },
      toolSupport: 'text',
    });
  });

  test('needs the variables of its headers', () => {
    expect(() => choose({}, ENTRY, KEY)).toThrow('There is no key for m: set the environment variable TEAM.');
    expect(() => choose({}, ENTRY, { ...KEY, TEAM: 'a\nb' })).toThrow('cannot be sent as the header x-team');
  });

  test('needs no key if a header has it', () => {
    const toml = '[models.a]\nmodel = "m"\nheaders_env = { Authorization = "TOKEN" }\n';
    expect(choose({}, toml, { TOKEN: 'Bearer x' })).toMatchObject({ headers: { Authorization: 'Bearer x' } });
  });

  test('says which variables it sends to another host', () => {
    const toml = `${ENTRY}base_url = "https://host.example/v1"\n`;
    expect(choose({}, toml, { ...KEY, TEAM: 't' }).notice).toBe(
      'treadle.toml sends the key in OPENAI_API_KEY, TEAM to host.example.',
    );
  });
});
