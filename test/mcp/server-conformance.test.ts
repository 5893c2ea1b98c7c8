import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { conformanceMcp, conformanceTools } from './conformance-server.ts';

const SUITE = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));

/**
 * Scenarios of an extension take too long, and need tools of their own; the suite does not require them. `server-stateless`
 * gives a stream one second, which is too little beside other tests. `npm run mcp:conformance` runs them with nothing beside.
 */
const ELSEWHERE = /^✗ (tasks-|server-stateless\b)/;

interface Report {
  /** The summary of the suite: a line for each scenario. */
  readonly scenarios: readonly string[];
  readonly failed: readonly string[];
}

async function conformance(url: string, revision: string): Promise<Report> {
  const args = [SUITE, 'server', '--url', `${url}/mcp`, '--requirements', revision];
  // The exit code says whether all required scenarios pass, also those that run elsewhere.
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: PROCESS_ENV }).catch(
    (error: Error & { stdout?: string }) => {
      if (!error.stdout) throw error;
      return { stdout: error.stdout };
    },
  );
  const scenarios = stdout.split('\n').filter((line) => /^[✓✗] /.test(line));
  const failed = scenarios.filter((line) => line.startsWith('✗') && !ELSEWHERE.test(line));
  const why = failed.length > 0 ? stdout.match(/^(.*FAILURE|  - ).*$/gm) : [];
  return { scenarios, failed: [...failed, ...(why ?? [])] };
}

test('passes the scenarios that the conformance suite requires of a server', async () => {
  await using server = await startInProcess(scriptedModel([]), { tools: conformanceTools, mcp: conformanceMcp });
  const [older, newer] = await Promise.all([
    conformance(server.url, '2025-11-25'),
    conformance(server.url, '2026-07-28'),
  ]);
  expect([older.failed, newer.failed]).toEqual([[], []]);
  expect([older.scenarios.length, newer.scenarios.length]).toEqual([33, 50]);
}, 60_000);
