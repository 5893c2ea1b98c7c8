import { expect, test } from 'vitest';
import { argumentsObject } from './calls.ts';

test.each([
  ['{"a": 1}', '{"a": 1}'],
  ['', '{}'],
  [' \n', '{}'],
  ['{"a":', '{"invalid_json":"{\\"a\\":"}'],
  ['[1]', '{"invalid_json":"[1]"}'],
  ['null', '{"invalid_json":"null"}'],
  ['"x"', '{"invalid_json":"\\"x\\""}'],
  ['{"a":"\\ud83d"}', '{"a":"\\ufffd"}'],
  ['{"a":"\\\\ud83d"}', '{"a":"\\\\ud83d"}'],
  ['\ud83d', '{"invalid_json":"\\ufffd"}'],
])('the arguments %j are sent as %s', (json, object) => {
  expect(argumentsObject(json)).toBe(object);
});
