import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { installedEngine } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';
import type { AttackReport } from '../sandbox/attack-program.ts';
import { ATTACKS } from '../sandbox/attacks.ts';

/** Owns nothing, and can start programs. */
const NOBODY = 65_534;

/** The account of a person: firejail refuses others. */
function person(): number | undefined {
  const ids = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => Number(line.split(':')[2]));
  return ids.find((id) => id >= 1_000 && id < NOBODY);
}

/** `test/sandbox` runs them as the user of the tests, who is root in CI. */
describe.runIf(uses('root, to become a plain user', process.getuid?.() === 0))('attacks of a plain user', () => {
  for (const name of ['bubblewrap', 'firejail'] as const) {
    const isInstalled = needs(name, installedEngine(name) !== undefined);
    const user = name === 'firejail' ? person() : NOBODY;
    it.runIf(isInstalled && uses(`an account for ${name}`, user !== undefined))(`are stopped by ${name}`, () => {
      const top = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-user-')));
      for (const one of ['', 'home', 'tmp']) {
        mkdirSync(join(top, one), { recursive: true });
        chownSync(join(top, one), user!, user!);
      }
      try {
        const { problem, kept, outside, inside, closed, ...report } = reportOf(name, user!, top);
        expect([report.user, problem]).toEqual([user, undefined]);
        // Those of root alone fail outside too. Most need no rights.
        expect(outside.length).toBeGreaterThanOrEqual(80);
        const broken = ATTACKS.filter((one) => inside.includes(one.name) && (kept as string[]).includes(one.promise));
        expect(broken.map((one) => `${one.promise}: ${one.name}`)).toEqual([]);
        expect(closed.left).toEqual([]);
        expect(closed.texts.join('')).not.toContain('sk-attack-secret');
        expect(closed.texts.join('').match(/commands may not create/g)).toHaveLength(4);
        expect(installedEngine(name)!.promises.filter((promise) => !kept.includes(promise))).toEqual([]);
      } finally {
        rmSync(top, { recursive: true, force: true });
      }
    });
  }
});

function reportOf(engine: string, user: number, top: string): AttackReport {
  const program = join(import.meta.dirname, '..', 'sandbox', 'attack-program.ts');
  const become = [`--reuid=${user}`, `--regid=${user}`, '--clear-groups', '--inh-caps=-all'];
  const text = execFileSync('setpriv', [...become, process.execPath, '--conditions=treadle-source', program, engine], {
    env: { ...PROCESS_ENV, HOME: join(top, 'home'), TMPDIR: join(top, 'tmp'), XDG_CACHE_HOME: join(top, 'cache') },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: top,
  });
  return JSON.parse(text) as AttackReport;
}
