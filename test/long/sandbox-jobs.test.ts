import { execFileSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { local, type Ops } from '@treadle/tools';
import { installedEngine, sandboxed } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { JOBS, PROJECT, REGISTRY } from '../sandbox/jobs.ts';

/** What each job prints. */
async function results(confine: (ops: Ops) => Ops): Promise<ReadonlyMap<string, string>> {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-jobs-')));
  try {
    execFileSync('git', ['init', '-q', folder]);
    writeFileSync(join(folder, 'registry.mjs'), REGISTRY);
    writeFileSync(join(folder, 'project.json'), PROJECT);
    const { exec } = confine(local(folder));
    const room = await exec.sandbox?.openRoom();
    const found = new Map<string, string>();
    for (const { name, sh } of JOBS) {
      const execution = await exec.start({ argv: ['bash', '-c', sh], ...(room && { room }) });
      // Apart, because the order of what two pipes contain is not defined.
      const printed = { stdout: '', stderr: '' };
      for await (const { stream, bytes } of execution.output) printed[stream] += Buffer.from(bytes).toString();
      const { exitCode } = await execution.exit;
      await execution.kill();
      const text = `${printed.stdout}${printed.stderr}`.replaceAll(folder, 'FOLDER');
      found.set(name, `${text}[${exitCode}]`);
    }
    await room?.close();
    return found;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe('ordinary jobs', () => {
  it('are at least 60', () => expect(JOBS.length).toBeGreaterThanOrEqual(60));

  for (const name of ['bubblewrap', 'firejail', 'podman'] as const) {
    const engine = installedEngine(name);
    const isInstalled = engine !== undefined;
    it.runIf(name === 'podman' ? uses(name, isInstalled) : needs(name, isInstalled))(
      `work in ${name} as outside`,
      async () => {
        const [outside, inside] = [await results((ops) => ops), await results((ops) => sandboxed(ops, engine!))];
        expect(Object.fromEntries(inside)).toEqual(Object.fromEntries(outside));
      },
    );
  }
});
