import { chmodSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { installedEngine } from './engines.ts';

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-engines-')));
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

it.runIf(process.platform === 'linux')(
  'starts no engine that a package or a command of the project can replace',
  () => {
    const programs = join(folder, 'node_modules', '.bin');
    mkdirSync(programs, { recursive: true });
    for (const name of ['bwrap', 'firejail', 'podman']) {
      writeFileSync(join(programs, name), `#!/bin/sh\n: >${join(folder, 'started')}\n`);
      chmodSync(join(programs, name), 0o755);
    }
    vi.stubEnv('PATH', [programs, process.env['PATH']].join(delimiter));
    for (const name of ['bubblewrap', 'firejail', 'podman'] as const) {
      expect(installedEngine(name)?.program ?? '').not.toContain(folder);
    }
    expect(existsSync(join(folder, 'started'))).toBe(false);
  },
);
