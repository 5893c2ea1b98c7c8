import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { installedEngine } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';

/** Starts programs in a room that try to stay, and says so. */
const PROGRAM = `
import { local } from '@treadle/tools';
import { installedEngine, sandboxed } from '@treadle/tools/sandbox';
const [, , name, folder] = process.argv;
const { exec } = sandboxed(local(folder), installedEngine(name));
const room = await exec.sandbox.openRoom();
const script = 'trap "" TERM HUP; setsid env -i sleep 88001 & touch /tmp/left; mkdir /tmp/closed; chmod 0 /tmp/closed; echo started; exec sleep 88001';
for (const place of [{ room }, {}]) {
  const execution = await exec.start({ argv: ['bash', '-c', script], ...place });
  const { value } = await execution.output[Symbol.asyncIterator]().next();
  if (Buffer.from(value.bytes).toString().includes('started')) console.log('ready');
}
setInterval(() => {}, 1000);
`;

function processes(): readonly string[] {
  return readdirSync('/proc').filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('sleep\u000088001');
    } catch {
      return false;
    }
  });
}

/** The folder of the control group that counts processes, if this process is in one of Treadle. */
function groupOf(pid: string): string | undefined {
  const path = /:(\/.*treadle-\w+)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8'))?.[1];
  return ['/sys/fs/cgroup/pids', '/sys/fs/cgroup'].map((tree) => `${tree}${path}`).find((one) => existsSync(one));
}

describe('after kill -9 of the process', () => {
  for (const name of ['bubblewrap', 'firejail', 'podman'] as const) {
    const isInstalled = installedEngine(name) !== undefined;
    it.runIf(name === 'podman' ? uses(name, isInstalled) : needs(name, isInstalled))(
      `${name} leaves no process, no file and no control group`,
      async () => {
        const top = mkdtempSync(join(tmpdir(), 'treadle-killed-'));
        const [folder, tmp] = ['folder', 'tmp'].map((one) => join(top, one)) as [string, string];
        mkdirSync(folder);
        mkdirSync(tmp);
        // In the repository, so that the packages are found.
        const program = join(import.meta.dirname, `sandbox-kill-${process.pid}.mts`);
        writeFileSync(program, PROGRAM);
        try {
          const child = spawn(process.execPath, ['--conditions=treadle-source', program, name, folder], {
            env: { ...PROCESS_ENV, TMPDIR: tmp },
            stdio: ['ignore', 'pipe', 'inherit'],
          });
          let shown = '';
          child.stdout.setEncoding('utf8').on('data', (text: string) => (shown += text));
          await expect.poll(() => shown, { timeout: 30_000 }).toBe('ready\nready\n');
          const [first] = processes();
          expect(first).toBeDefined();
          const group = groupOf(first!);
          expect(readdirSync(tmp)).not.toEqual([]);
          child.kill('SIGKILL');
          await expect.poll(processes, { timeout: 10_000 }).toEqual([]);
          await expect.poll(() => readdirSync(tmp), { timeout: 10_000 }).toEqual([]);
          if (group !== undefined) expect(existsSync(group)).toBe(false);
        } finally {
          rmSync(program);
          rmSync(top, { recursive: true, force: true });
        }
      },
    );
  }
});
