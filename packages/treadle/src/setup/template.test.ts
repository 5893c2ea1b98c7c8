import { expect, test } from 'vitest';
import { checkConfig } from '../config/load.ts';
import { factsOf, PROVIDERS } from '../config/providers.ts';
import { configTemplate } from './template.ts';

const answers = PROVIDERS.map((provider) => {
  if (provider === 'demo') return { provider };
  const { model = 'm', baseURL } = factsOf(provider);
  return { provider, model, ...(baseURL === undefined && { baseUrl: 'https://host.example/v1' }) };
});

test.each(answers)('is valid for $provider, and so is every example in it', (given) => {
  const text = configTemplate(given);
  const { config, problems } = checkConfig(text, 'treadle.toml');
  expect(problems).toEqual([]);
  expect(config.models).toEqual({
    default: 'main',
    main: {
      provider: given.provider,
      ...('model' in given && { model: given.model }),
      ...('baseUrl' in given && { base_url: given.baseUrl }),
    },
  });
  const whole = text.replaceAll(/^# (?! )/gm, '');
  expect(whole).not.toBe(text);
  expect(checkConfig(whole, 'treadle.toml').problems).toEqual([]);
});
