import { expect, test } from 'vitest';
import { traitsOf } from './models.ts';

const OLD = { thinking: 'budget', thinksByDefault: false, forcedTools: true, sampling: true };
const ADAPTIVE = { ...OLD, thinking: 'adaptive' };
const UNSAMPLED = { ...ADAPTIVE, sampling: false };
const THINKING = { ...UNSAMPLED, thinksByDefault: true };
const FREE = { ...THINKING, forcedTools: false };

test.each([
  ['claude-3-7-sonnet-20250219', OLD],
  ['claude-3-5-haiku-latest', OLD],
  ['claude-opus-4-20250514', OLD],
  ['claude-opus-4@20250514', OLD],
  ['anthropic/claude-sonnet-4', OLD],
  ['anthropic.claude-sonnet-4-20250514-v1:0', OLD],
  ['claude-sonnet-4-0', OLD],
  ['anthropic.claude-opus-4-1-20250805-v1:0', OLD],
  ['claude-opus-4-5', OLD],
  ['anthropic/claude-opus-4.5', OLD],
  ['claude-sonnet-4-5-20250929', OLD],
  ['claude-haiku-4-5', OLD],
  ['claude-opus-4-6', ADAPTIVE],
  ['claude-sonnet-4-6', ADAPTIVE],
  ['us.anthropic.claude-sonnet-4-6-v1:0', ADAPTIVE],
  ['claude-opus-4-7', UNSAMPLED],
  ['claude-opus-4-8', UNSAMPLED],
  ['claude-opus-4-15', UNSAMPLED],
  ['claude-opus-5', THINKING],
  ['claude-opus-5@20260724', THINKING],
  ['claude-opus-5-20260724', THINKING],
  ['claude-sonnet-5', THINKING],
  ['claude-haiku-5-5', THINKING],
  ['claude-opus-5-5', FREE],
  ['anthropic/claude-opus-5.5', FREE],
  ['global.anthropic.claude-opus-5-5-v1:0', FREE],
  ['claude-sonnet-5-5', FREE],
  ['claude-opus-6', FREE],
  ['claude-fable-5', FREE],
  ['claude-fable-5-1', FREE],
  ['claude-fable-5-2', FREE],
  ['claude-mythos-preview', FREE],
  ['claude-mythos-5-1', FREE],
  ['some-other-model', UNSAMPLED],
  [undefined, UNSAMPLED],
])('derives the traits of %s', (model, traits) => {
  expect(traitsOf(model)).toEqual(traits);
});
