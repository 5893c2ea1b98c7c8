import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DEFAULT_REQUIRED } from './engine.ts';
import { installedEngine } from './engines.ts';
import { engineProblem, findEngine } from './probe.ts';

const real = installedEngine('bubblewrap')?.program;

let top: string;
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'treadle-probe-test-'));
  vi.stubEnv('PATH', `${top}${delimiter}${process.env.PATH}`);
  vi.stubEnv('XDG_CACHE_HOME', join(top, 'cache'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

/** A bubblewrap whose first starts of a program fail, as on a machine that is out of something. */
function failFor(starts: number): void {
  const program = join(top, 'bwrap');
  const count = join(top, 'starts');
  writeFileSync(count, '');
  writeFileSync(
    program,
    `#!/bin/sh
case "$1" in --version|--help) exec ${real} "$@";; esac
[ "$(wc -c <${count})" -lt ${starts} ] && { printf x >>${count}; echo "bwrap: out of something" >&2; exit 1; }
exec ${real} "$@"
`,
  );
  chmodSync(program, 0o755);
}

describe.runIf(real !== undefined)('a test of an engine', () => {
  it('is repeated if it fails once', async () => {
    failFor(1);
    const { found } = await findEngine(DEFAULT_REQUIRED, ['bubblewrap']);
    expect(found?.engine.name).toBe('bubblewrap');
    expect(readFileSync(join(top, 'starts'), 'utf8')).toBe('x');
  });

  it('is kept in the home folder if XDG_CACHE_HOME is not absolute', async () => {
    vi.stubEnv('HOME', top);
    vi.stubEnv('XDG_CACHE_HOME', '');
    await findEngine(DEFAULT_REQUIRED, ['bubblewrap']);
    expect(readdirSync(join(top, '.cache', 'treadle'))).toEqual([expect.stringMatching(/^sandbox-/)]);
  });

  it('says why the engine is not used, if it fails again', async () => {
    failFor(1_000);
    const { found, tried } = await findEngine(DEFAULT_REQUIRED, ['bubblewrap']);
    expect(found).toBeUndefined();
    expect(tried.map((probe) => engineProblem(probe, DEFAULT_REQUIRED))).toEqual([
      expect.stringMatching(/^bubblewrap does not start \(tried twice\): .*out of something/),
    ]);
  });
});
