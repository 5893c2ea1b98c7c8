/** Runs the attacks without a sandbox and in an engine, as the user of this process. Prints an `AttackReport`. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { installedEngine, probeEngine, sandboxed, type EngineName, type PromiseName } from '@treadle/tools/sandbox';
import { ATTACKS } from './attacks.ts';
import { ATTACK_LIMITS, bare, openWorld, runAttacks } from './world.ts';

export interface AttackReport {
  readonly user: number;
  readonly problem?: string;
  readonly kept: readonly PromiseName[];
  /** Names of attacks that have worked. */
  readonly outside: readonly string[];
  readonly inside: readonly string[];
  /** What commands print that close folders, and what is then left that git on the host would obey. */
  readonly closed: { readonly texts: readonly string[]; readonly left: readonly string[] };
}

/** One after the other, so that each begins with a new look at the folder. */
const CLOSING = [
  'chmod 0311 config',
  'chmod 755 config; cat config/.env.production',
  'chmod 0444 config',
  'chmod 755 config; cat config/.env.production',
  'git init -q new1; git -C new1 config core.fsmonitor ./evil; chmod 0555 new1/.git',
  'mkdir -p a/b; git init -q a/b/new2; git -C a/b/new2 config core.fsmonitor ./evil; chmod 0311 a/b/new2 a/b; chmod 0 a',
  'git init -q new3; echo evil >new3/.git/hooks/pre-commit; chmod 0311 new3/.git/hooks',
  'git init -q new4; git -C new4 config core.fsmonitor ./evil; chmod 0222 new4/.git/config',
];
const LEFT = ['new1/.git/config', 'a/b/new2/.git/config', 'new3/.git/hooks/pre-commit', 'new4/.git/config'];

const name = process.argv[2] as EngineName;
process.env['ATTACK_PASSPHRASE_OF_THE_SERVER'] = 'sk-attack-secret';
const engine = installedEngine(name)!;
const { kept, problem } = await probeEngine(engine);
async function closedBy(scripts: readonly string[]): Promise<AttackReport['closed']> {
  const world = await openWorld();
  try {
    const texts: string[] = [];
    for (const script of scripts) {
      const { exec } = sandboxed(bare(world), engine, { home: world.home });
      const { output } = await exec.start({ argv: ['bash', '-c', script] });
      for await (const { bytes } of output) texts.push(Buffer.from(bytes).toString());
    }
    return { texts, left: LEFT.filter((path) => existsSync(join(world.folder, path))) };
  } finally {
    execFileSync('chmod', ['-R', 'u+rwX', world.folder]);
    await world.close();
  }
}

const worked: (readonly string[])[] = [];
for (const isInside of [false, true]) {
  const world = await openWorld();
  try {
    const options = { home: world.home, limits: ATTACK_LIMITS, promises: kept };
    const ops = isInside ? sandboxed(bare(world), engine, options) : bare(world);
    worked.push([...(await runAttacks(ATTACKS, world, ops))]);
  } finally {
    await world.close();
  }
}
const report: AttackReport = {
  user: process.getuid!(),
  ...(problem !== undefined && { problem }),
  kept,
  outside: worked[0]!,
  inside: worked[1]!,
  closed: await closedBy(CLOSING),
};
process.stdout.write(JSON.stringify(report));
process.exit();
