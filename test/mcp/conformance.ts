import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { PROCESS_ENV } from '../process-env.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const require = createRequire(import.meta.url);
const SUITE = require.resolve('@modelcontextprotocol/conformance/dist/index.js');
const PROGRAM = fileURLToPath(new URL('conformance-client.ts', import.meta.url));
const CLIENT = `${process.execPath} --conditions=treadle-source ${PROGRAM}`;

async function conformance(...args: readonly string[]): Promise<string> {
  const options = { cwd: ROOT, env: PROCESS_ENV, maxBuffer: 2 ** 26 };
  const { stdout, stderr } = await run(process.execPath, [SUITE, ...args], options);
  return stdout + stderr;
}

/** The scenarios for clients that a revision requires. */
export async function requiredScenarios(revision: string): Promise<readonly string[]> {
  const list = await conformance('list', '--requirements', revision);
  const scored = list.slice(list.indexOf('Client scenarios'), list.indexOf('never scored'));
  return [...scored.matchAll(/^ +- (\S+)$/gm)].map(([, name]) => name!);
}

/** What went wrong; undefined if our client passes. */
export async function failureOf(scenario: string, revision: string): Promise<string | undefined> {
  const flags = ['--scenario', scenario, '--spec-version', revision];
  const output = await conformance('client', '--command', CLIENT, ...flags).catch(
    ({ message, stderr }: Error & { stderr?: string }) => `${message}\n${stderr}`,
  );
  return output.includes('OVERALL: PASSED') ? undefined : `${scenario}\n${output}`;
}

/** What went wrong in a scenario for servers, of an extension too; undefined if the server passes. */
export async function serverFailureOf(scenario: string, url: string): Promise<string | undefined> {
  const output = await conformance('server', '--url', `${url}/mcp`, '--scenario', scenario, '--force').catch(
    ({ message, stdout }: Error & { stdout?: string }) => `${message}\n${stdout}`,
  );
  return /Passed: (\d+)\/\1, 0 failed/.test(output) ? undefined : `${scenario}\n${output}`;
}
