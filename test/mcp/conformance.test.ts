import { expect, test } from 'vitest';
import { failureOf } from './conformance.ts';

/** The others are in test/long. */
test.each([
  ['2025-11-25', 'elicitation-sep1034-client-defaults'],
  ['2026-07-28', 'sep-2322-client-request-state'],
])('our client passes a scenario of the conformance suite for %s: %s', async (revision, scenario) => {
  expect(await failureOf(scenario, revision)).toBeUndefined();
});
