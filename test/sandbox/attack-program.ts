/** Runs the attacks without a sandbox and in an engine, as the user of this process. Prints an `AttackReport`. */
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
}

const name = process.argv[2] as EngineName;
process.env['ATTACK_PASSPHRASE_OF_THE_SERVER'] = 'sk-attack-secret';
const engine = installedEngine(name)!;
const { kept, problem } = await probeEngine(engine);
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
};
process.stdout.write(JSON.stringify(report));
process.exit();
