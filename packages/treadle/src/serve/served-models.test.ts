import { describe, expect, test } from 'vitest';
import { CommandError } from '../command-error.ts';
import { parseConfig } from '../config/load.ts';
import { servedModels, type ModelNames } from './served-models.ts';

const served = (toml: string, env: Record<string, string> = {}, wish: object = {}): ModelNames =>
  servedModels(wish, { config: parseConfig(toml, 'treadle.toml'), file: 'treadle.toml', named: true }, env);

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
  test('the demo model under its name, which says what it is', () => {
    const { notices, ...rest } = servedModels({}, { config: {}, named: false }, {});
    expect(rest).toEqual({ default: 'demo', choices: new Map([['demo', expect.objectContaining({ type: 'demo' })]]) });
    expect(notices).toEqual([expect.stringContaining('this is the demo model')]);
  });

  test('with a key, that of OpenAI', () => {
    const names = servedModels({}, { config: {}, named: false }, { OPENAI_API_KEY: 'k' });
    expect(names).toEqual({
      default: 'gpt-5-mini',
      choices: new Map([['gpt-5-mini', { type: 'openai', model: 'gpt-5-mini', apiKey: 'k' }]]),
      notices: [],
    });
  });

  test('the one that was wished for, as it was named', () => {
    expect(servedModels({ model: 'ollama/llama' }, { config: {}, named: false }, {})).toEqual({
      default: 'ollama/llama',
      choices: new Map([['ollama/llama', { type: 'ollama', model: 'llama' }]]),
      notices: [],
    });
  });
});

describe('of the configuration', () => {
  const env = { OPENAI_API_KEY: 'o', ANTHROPIC_API_KEY: 'a' };

  test('all entries under their names, with what they fall back on', () => {
    const { default: standard, choices, notices } = served(TWO, env);
    expect([standard, notices]).toEqual(['b', []]);
    expect(Object.fromEntries(choices)).toEqual({
      a: { type: 'ollama', model: 'llama', fallback: [{ type: 'openai', model: 'gpt', apiKey: 'o' }] },
      b: { type: 'openai', model: 'gpt', apiKey: 'o' },
      c: { type: 'anthropic', model: 'claude', apiKey: 'a' },
    });
  });

  test('without its key one is left out, and said so', () => {
    const { choices, notices } = served(TWO, { OPENAI_API_KEY: 'o' });
    expect([...choices.keys()]).toEqual(['b', 'a']);
    expect(notices).toEqual([
      'The model c is left out, as it has no key: set the environment variable ANTHROPIC_API_KEY.',
    ]);
  });

  test('without the key of the default nothing is served', () => {
    expect(() => served(TWO, { ANTHROPIC_API_KEY: 'a' })).toThrow(/no key for gpt: set .* OPENAI_API_KEY/);
  });

  test('--model makes another the default, or adds one', () => {
    expect(served(TWO, env, { model: 'a' })).toMatchObject({ default: 'a' });
    const { default: standard, choices } = served(TWO, env, { model: 'demo' });
    expect([standard, ...choices.keys()]).toEqual(['demo', 'demo', 'a', 'b', 'c']);
  });

  test('the only one is the default; of several, one has to be', () => {
    expect(served('[models.x]\nprovider = "demo"').default).toBe('x');
    expect(() => served('[models.x]\nprovider = "demo"\n[models.y]\nprovider = "demo"')).toThrow(
      new CommandError(
        'treadle.toml has the models x, y and no default. Choose one with --model, or write default = "…" under [models].',
      ),
    );
  });
});
