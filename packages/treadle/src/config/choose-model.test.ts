import { describe, expect, test } from 'vitest';
import { chooseModel, chooseModelOf, type ModelChoice, type ModelWish } from './choose-model.ts';
import { parseConfig } from './load.ts';

const KEY = { OPENAI_API_KEY: 'secret' };

function choose(wish: ModelWish, toml = '', env: Record<string, string> = {}, named = false): ModelChoice {
  return chooseModel(wish, { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named }, env);
}

const TWO = '[models.a]\nmodel = "model-a"\n[models.b]\nprovider = "demo"\n';

describe('without a word', () => {
  test('no key, no configuration: the demo model, and it says so', () => {
    expect(choose({})).toEqual({ type: 'demo', notice: expect.stringMatching(/demo model.*\n.*OPENAI_API_KEY/) });
    expect(choose({}, '[orchestrator]\n')).toMatchObject({ type: 'demo', notice: expect.any(String) });
    expect(choose({}, '', { OPENAI_API_KEY: ' ' })).toMatchObject({ type: 'demo' });
  });
  test('a key: a model of OpenAI', () => {
    expect(choose({}, '', KEY)).toEqual({ type: 'openai', model: expect.any(String), apiKey: 'secret' });
  });
  test('the default of the configuration, or the only model there', () => {
    expect(choose({}, `[models]\ndefault = "b"\n${TWO}`)).toEqual({ type: 'demo' });
    expect(choose({}, '[models.x]\nmodel = "m"', KEY)).toEqual({ type: 'openai', model: 'm', apiKey: 'secret' });
    expect(() => choose({}, TWO)).toThrow('treadle.toml has the models a, b and no default. Choose one with --model');
  });
});

describe('--model', () => {
  test.each([
    ['a', 'model-a'],
    ['openai/gpt-x', 'gpt-x'],
    ['gpt-x', 'gpt-x'],
    ['openai/meta/llama', 'meta/llama'],
  ])('%s is %s', (model, id) => {
    expect(choose({ model }, TWO, KEY)).toEqual({ type: 'openai', model: id, apiKey: 'secret' });
  });
  test('demo, by any name', () => {
    for (const model of ['demo', 'demo/any', 'b']) expect(choose({ model }, TWO)).toEqual({ type: 'demo' });
  });
  test.each([
    ['anthropic/claude', { ANTHROPIC_API_KEY: 'secret' }, { type: 'anthropic', model: 'claude', apiKey: 'secret' }],
    ['openai-responses/gpt-x', KEY, { type: 'openai-responses', model: 'gpt-x', apiKey: 'secret' }],
    ['openrouter/meta/llama', { OPENROUTER_API_KEY: 's' }, { type: 'openrouter', model: 'meta/llama', apiKey: 's' }],
    ['ollama/qwen3', KEY, { type: 'ollama', model: 'qwen3' }],
    ['mistral/large', { MISTRAL_API_KEY: 's' }, { type: 'mistral', model: 'large', apiKey: 's' }],
    ['vllm/qwen3', KEY, { type: 'vllm', model: 'qwen3' }],
  ])('%s of its provider, with the key of that and no other', (model, env, choice) => {
    expect(choose({ model }, '', env)).toEqual(choice);
  });
  test('a provider without an address of its own', () => {
    expect(() => choose({ model: 'azure/d' }, '', KEY)).toThrow('azure has no address of its own. Add --base-url URL.');
    expect(choose({ model: 'openai-compatible/m', baseUrl: 'http://10.0.0.1/v1' })).toEqual({
      type: 'openai-compatible',
      model: 'm',
      baseURL: 'http://10.0.0.1/v1',
    });
  });
  test('a provider that nobody knows', () => {
    expect(() => choose({ model: 'opnai/gpt' }, '', KEY)).toThrow(/no provider "opnai". Did you mean "openai"\?/);
    expect(() => choose({ model: 'meta/llama' }, '', KEY)).toThrow(
      /or openai\/meta\/llama if that is the model's whole name/,
    );
  });
  test('a whole name with a slash, at a server of its own', () => {
    expect(choose({ model: 'meta/llama', baseUrl: 'http://localhost:1/v1' })).toEqual({
      type: 'openai',
      model: 'meta/llama',
      baseURL: 'http://localhost:1/v1',
    });
  });
});

describe('keys', () => {
  test('come from the variable that the configuration names', () => {
    const toml = '[models.x]\nmodel = "m"\napi_key_env = "MINE"';
    expect(choose({}, toml, { MINE: 'mine', ...KEY })).toEqual({ type: 'openai', model: 'm', apiKey: 'mine' });
    expect(() => choose({}, toml, KEY)).toThrow('There is no key for m: set the environment variable MINE.');
  });
  test.each(['two words', 'a\nb', 'schlüssel'])('one that cannot be sent is not shown: %j', (key) => {
    expect(() => choose({ model: 'gpt-x' }, '', { OPENAI_API_KEY: key })).toThrow(
      'The key in OPENAI_API_KEY cannot be sent: it holds spaces, line breaks or letters that no key has. Set it anew.',
    );
  });
  test('a missing one says what to set', () => {
    expect(() => choose({ model: 'gpt-x' })).toThrow(
      'There is no key for gpt-x: set the environment variable OPENAI_API_KEY.',
    );
    expect(() => choose({ model: 'm', baseUrl: 'https://elsewhere/v1' })).toThrow(/There is no key/);
  });
  test.each([
    'http://localhost:8080/v1',
    'http://127.0.0.1:1/v1',
    'http://127.9.9.9/v1',
    'http://[::1]:1/v1',
    'https://llm.localhost/v1',
  ])('none is needed on this machine: %s', (baseUrl) => {
    expect(choose({ model: 'm', baseUrl })).toEqual({ type: 'openai', model: 'm', baseURL: baseUrl });
  });
  test.each(['http://localhost.evil.com/v1', 'http://127.0.0.1.evil.com/v1', 'http://10.0.0.1/v1'])(
    'one is needed at %s',
    (baseUrl) => {
      expect(() => choose({ model: 'm', baseUrl })).toThrow(/There is no key/);
    },
  );
  test('a file that was only found does not send one to a strange host unseen', () => {
    const toml = '[models.x]\nmodel = "m"\nbase_url = "https://elsewhere.example/v1"';
    expect(choose({}, toml, KEY)).toMatchObject({
      notice: 'As treadle.toml says, the key in OPENAI_API_KEY goes to elsewhere.example.',
    });
    expect(choose({}, toml, KEY, true)).not.toHaveProperty('notice');
    expect(choose({}, toml.replace('elsewhere.example', 'api.openai.com'), KEY)).not.toHaveProperty('notice');
    const own = `${toml}\nprovider = "openai-compatible"`;
    expect(choose({}, own, KEY)).not.toHaveProperty('apiKey');
    expect(choose({}, `${own}\napi_key_env = "OPENAI_API_KEY"`, KEY)).toMatchObject({
      notice: 'As treadle.toml says, the key in OPENAI_API_KEY goes to elsewhere.example.',
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
  test('each with its own provider and key, once, and with none of their own', () => {
    expect(choose({}, toml, { ...KEY, ANTHROPIC_API_KEY: 'other', C: 'third' })).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      fallback: [
        { type: 'anthropic', model: 'm-b', apiKey: 'other' },
        { type: 'ollama', model: 'm-c', baseURL: 'https://elsewhere.example', apiKey: 'third' },
      ],
      notice: 'As treadle.toml says, the key in C goes to elsewhere.example.',
    });
  });
  test('one without its key is left out, and it is said what to set', () => {
    expect(choose({}, toml, { ...KEY, C: 'third' })).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      fallback: [{ type: 'ollama', model: 'm-c', baseURL: 'https://elsewhere.example', apiKey: 'third' }],
      notice:
        'As treadle.toml says, the key in C goes to elsewhere.example.\n' +
        'The fallback b is left out, as it has no key: set the environment variable ANTHROPIC_API_KEY.',
    });
    expect(choose({}, toml, KEY)).toEqual({
      type: 'openai',
      model: 'm-a',
      apiKey: 'secret',
      notice:
        'The fallback b is left out, as it has no key: set the environment variable ANTHROPIC_API_KEY.\n' +
        'The fallback c is left out, as it has no key: set the environment variable C.',
    });
    expect(() => choose({}, toml, { ANTHROPIC_API_KEY: 'other', C: 'third' })).toThrow('There is no key for m-a');
  });
  test('is not for whom --base-url is not meant', () => {
    const env = { ...KEY, ANTHROPIC_API_KEY: 'other', C: 'third' };
    const choice = choose({ baseUrl: 'http://localhost:1/v1' }, toml, env);
    expect(choice).toMatchObject({ baseURL: 'http://localhost:1/v1', fallback: [{ type: 'anthropic' }, {}] });
    expect(JSON.stringify(choice)).not.toMatch(/anthropic[^}]*localhost/);
  });
});

test('context_tokens goes with the choice', () => {
  const toml = '[models.x]\nprovider = "ollama"\nmodel = "m"\ncontext_tokens = 32768';
  expect(choose({}, toml)).toEqual({ type: 'ollama', model: 'm', contextTokens: 32_768 });
});

describe('--base-url', () => {
  test('wins over the configuration', () => {
    const toml = '[models.x]\nmodel = "m"\nbase_url = "https://host/v1"';
    expect(choose({ baseUrl: 'http://localhost:1/v1' }, toml)).toMatchObject({
      model: 'm',
      baseURL: 'http://localhost:1/v1',
    });
  });
  test('needs a model and must be an address', () => {
    expect(() => choose({ baseUrl: 'http://localhost:1/v1' })).toThrow(/Add --model NAME/);
    expect(() => choose({ model: 'm', baseUrl: 'localhost' })).toThrow(/--base-url cannot be "localhost"/);
    expect(() => choose({ model: 'm', baseUrl: 'file:///x' })).toThrow(/such as https:/);
  });
});

describe('the model of a run that goes on', () => {
  const of = (model: string, wish: ModelWish, toml = '', env: Record<string, string> = {}): ModelChoice =>
    chooseModelOf(model, wish, { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named: false }, env);

  test('is the one that it names, where it is known where that is', () => {
    expect(of('demo', {})).toEqual({ type: 'demo' });
    expect(of('model-a', {}, TWO, KEY)).toEqual({ type: 'openai', model: 'model-a', apiKey: 'secret' });
    expect(of('gpt-5-mini', {}, '', KEY)).toMatchObject({ type: 'openai', model: 'gpt-5-mini' });
    expect(of('x', { baseUrl: 'http://localhost:1/v1' })).toEqual({
      type: 'openai',
      model: 'x',
      baseURL: 'http://localhost:1/v1',
    });
  });
  test('is another one if that is named', () => {
    expect(of('demo', { model: 'gpt-x' }, '', KEY)).toMatchObject({ model: 'gpt-x' });
    expect(of('model-a', { model: 'demo' }, TWO)).toEqual({ type: 'demo' });
  });
  test('is not sent to OpenAI because a key happens to be set', () => {
    expect(() => of('llama', {}, '', KEY)).toThrow('it is not known where that is. Say it again: --model llama');
    expect(() => of('llama', {}, TWO, KEY)).toThrow('it is not known where that is');
  });
  test('that the configuration has twice has to be chosen', () => {
    const twice = '[models.a]\nmodel = "m"\n[models.b]\nmodel = "m"\nbase_url = "http://localhost:1/v1"\n';
    expect(() => of('m', {}, twice, KEY)).toThrow('treadle.toml has that as a and b. Choose one with --model.');
  });
});
