import { spawn, spawnSync } from 'node:child_process';
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

test.runIf(needs('npm, and groups of processes', hasNpm))(
  'npm start runs the server, and Ctrl-C stops it',
  async () => {
    const args = ['start', '--silent', '--', '--port', '0', '--cwd', play.folder];
    // A new process group: the Ctrl-C of a terminal goes to the whole group.
    const npm = spawn('npm', args, { cwd: ROOT, env: PROCESS_ENV, detached: true });
    try {
      let stdout = '';
      npm.stdout.setEncoding('utf8');
      npm.stderr.resume();
      while (!stdout.includes('\n')) stdout += String((await once(npm.stdout, 'data'))[0]);
      const url = /^Treadle listens on (\S+)\n$/.exec(stdout)?.[1];
      expect(url, stdout).toBeDefined();
      expect((await fetch(`${url}/readyz`)).status).toBe(200);
      process.kill(-npm.pid!, 'SIGINT');
      await once(npm, 'close');
      await expect(fetch(`${url}/readyz`)).rejects.toThrow('fetch failed');
    } finally {
      if (npm.exitCode === null && npm.signalCode === null) process.kill(-npm.pid!, 'SIGKILL');
    }
  },
);
