import { expect, test, vi } from 'vitest';
import { failureOf, requiredScenarios } from '../mcp/conformance.ts';

vi.setConfig({ testTimeout: 300_000 });

/** The suite itself would start all clients at once. */
test.each([
  ['2025-11-25', 18],
  ['2026-07-28', 32],
])('our client passes every scenario that %s requires', async (revision, count) => {
  const scenarios = await requiredScenarios(revision);
  expect(scenarios).toHaveLength(count);
  const failed: string[] = [];
  for (const scenario of scenarios) failed.push(...[(await failureOf(scenario, revision)) ?? []].flat());
  expect(failed).toEqual([]);
});
