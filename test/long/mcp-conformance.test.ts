import { scriptedModel } from '@treadle/core/testing';
import { expect, test, vi } from 'vitest';
import { conformanceMcp, conformanceTaskTools, conformanceTools } from '../mcp/conformance-server.ts';
import { failureOf, requiredScenarios, serverFailureOf } from '../mcp/conformance.ts';
import { startInProcess } from '../server/support/in-process.ts';

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

/** Not in `npm test`: the suite gives one of its streams a second, whatever runs beside it. */
test('our server passes the scenario `server-stateless`', async () => {
  await using server = await startInProcess(scriptedModel([]), { tools: conformanceTools, mcp: conformanceMcp });
  expect(await serverFailureOf('server-stateless', server.url)).toBeUndefined();
});

const TASKS = [
  'tasks-lifecycle',
  'tasks-capability-negotiation',
  'tasks-wire-fields',
  'tasks-request-state-removal',
  'tasks-mrtr-input',
  'tasks-request-headers',
  'tasks-dispatch-and-envelope',
  'tasks-mrtr-composition',
];

test('our server passes the scenarios of the extension `tasks`', async () => {
  const tools = [...conformanceTools, ...conformanceTaskTools];
  await using server = await startInProcess(scriptedModel([]), { tools, mcp: conformanceMcp });
  const failed: string[] = [];
  for (const scenario of TASKS) failed.push(...[(await serverFailureOf(scenario, server.url)) ?? []].flat());
  expect(failed).toEqual([]);
});
