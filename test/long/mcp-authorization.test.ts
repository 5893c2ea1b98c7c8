import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test, vi } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';

vi.setConfig({ testTimeout: 300_000 });

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const SUITE = join(ROOT, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
const PROGRAM = fileURLToPath(new URL('../mcp/conformance-client.ts', import.meta.url));
const CLIENT = `${process.execPath} --conditions=treadle-source ${PROGRAM}`;

async function conformance(...args: readonly string[]): Promise<string> {
  const { stdout, stderr } = await run(process.execPath, [SUITE, ...args], {
    cwd: ROOT,
    env: PROCESS_ENV,
    maxBuffer: 2 ** 26,
  });
  return stdout + stderr;
}

/** The suite itself would start all clients at once. */
test.each(['2025-11-25', '2026-07-28'])('passes every authorization scenario that %s requires', async (revision) => {
  const list = await conformance('list', '--requirements', revision);
  const scored = list.slice(0, list.indexOf('never scored'));
  const scenarios = [...scored.matchAll(/^ +- (auth\/\S+)$/gm)].map(([, name]) => name!);
  expect(scenarios.length).toBeGreaterThan(13);
  const failed: string[] = [];
  for (const scenario of scenarios) {
    const flags = ['--scenario', scenario, '--spec-version', revision];
    const output = await conformance('client', '--command', CLIENT, ...flags).catch((error: Error) => error.message);
    if (!output.includes('OVERALL: PASSED')) failed.push(`${scenario}\n${output}`);
  }
  expect(failed).toEqual([]);
});
