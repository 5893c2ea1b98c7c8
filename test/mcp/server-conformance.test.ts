import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { PROCESS_ENV } from '../process-env.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { conformanceMcp, conformanceTools } from './conformance-server.ts';

const SUITE = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));

/** Scenarios of an extension take too long, and need tools of their own: test/long. The suite does not require them. */
const EXTENSION = /^✗ tasks-/;

/** The summary of the suite: a line for each scenario. */
async function conformance(url: string, revision: string): Promise<readonly string[]> {
  const args = [SUITE, 'server', '--url', `${url}/mcp`, '--requirements', revision];
  // The exit code is 0 if all required scenarios pass.
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: PROCESS_ENV }).catch(
    ({ stdout: said, message }: Error & { stdout?: string }) => {
      throw new Error(
        `${message}\n${said?.match(/^(✗ (?!tasks-)|.*FAILURE(?!.*tasks)|  - (?!Tasks|Sep2663)).*$/gm)?.join('\n')}`,
      );
    },
  );
  return stdout.split('\n').filter((line) => /^[✓✗] /.test(line));
}

test('passes all scenarios that the conformance suite requires of a server', async () => {
  await using server = await startInProcess(scriptedModel([]), { tools: conformanceTools, mcp: conformanceMcp });
  const [older, newer] = await Promise.all([
    conformance(server.url, '2025-11-25'),
    conformance(server.url, '2026-07-28'),
  ]);
  expect(older.filter((line) => line.startsWith('✗'))).toEqual([]);
  expect(newer.filter((line) => line.startsWith('✗') && !EXTENSION.test(line))).toEqual([]);
  expect([older.length, newer.length]).toEqual([33, 50]);
}, 60_000);
