import { spawn, spawnSync, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { needs } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let play: Playground;

beforeEach(async () => {
  play = await playground();
});
afterEach(() => play.remove());

const hasNpm = process.platform !== 'win32' && spawnSync('npm', ['--version']).status === 0;
const canRun = needs('npm, and groups of processes', hasNpm);

interface Started {
  readonly npm: ChildProcessWithoutNullStreams;
  readonly url: string;
  readonly log: () => string;
}

/** Runs `npm start` in a process group of its own, and ends all that is left of the group afterwards. */
async function withNpmStart(act: (started: Started) => Promise<void>): Promise<void> {
  const args = ['start', '--silent', '--', '--port', '0', '--cwd', play.folder];
  const npm = spawn('npm', args, { cwd: ROOT, env: PROCESS_ENV, detached: true });
  try {
    let stdout = '';
    let stderr = '';
    npm.stdout.setEncoding('utf8');
    npm.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    while (!stdout.includes('\n')) stdout += String((await once(npm.stdout, 'data'))[0]);
    const url = /^Treadle listens on (\S+)\n$/.exec(stdout)?.[1];
    expect(url, stdout).toBeDefined();
    await act({ npm, url: url!, log: () => stderr });
  } finally {
    try {
      process.kill(-npm.pid!, 'SIGKILL');
    } catch {
      // Nothing is left.
    }
  }
}

test.runIf(canRun)('npm start runs the server, and Ctrl-C stops it', () =>
  withNpmStart(async ({ npm, url }) => {
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    // The Ctrl-C of a terminal goes to the whole group.
    process.kill(-npm.pid!, 'SIGINT');
    await once(npm, 'close');
    await expect(fetch(`${url}/readyz`)).rejects.toThrow('fetch failed');
  }),
);

test.runIf(canRun)('SIGTERM to npm alone stops the server, which answers the request in progress first', () =>
  withNpmStart(async ({ npm, url, log }) => {
    // The server waits for the rest of the body.
    const rest = Promise.withResolvers<void>();
    const body = new ReadableStream({
      async start(controller) {
        controller.enqueue(new TextEncoder().encode('{"input": '));
        await rest.promise;
        controller.enqueue(new TextEncoder().encode('"Hello"}'));
        controller.close();
      },
    });
    const headers = { 'content-type': 'application/json' };
    const answer = fetch(`${url}/v1/responses`, { method: 'POST', headers, body, duplex: 'half' });
    while (!/treadle_http_requests_in_progress 2/.test(await (await fetch(`${url}/metrics`)).text()));
    const closed = once(npm, 'close');
    npm.kill('SIGTERM');
    while (!log().includes('"shutting down"')) await once(npm.stderr, 'data');
    rest.resolve();
    expect(await (await answer).json()).toMatchObject({ status: 'completed' });
    // npm ends after the server, with its exit code.
    expect(await closed).toEqual([0, null]);
    expect(log()).toContain('"stopped"');
    expect(() => process.kill(-npm.pid!, 0)).toThrow('ESRCH');
  }),
);
