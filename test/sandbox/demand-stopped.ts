import { expect, vi } from 'vitest';
import { probeEngine, sandboxed, type Engine } from '@treadle/tools/sandbox';
import { ATTACKS } from './attacks.ts';
import { ATTACK_LIMITS, bare, runAttacks, type World } from './world.ts';

/** Runs all attacks in a sandbox: those against a promise that the engine was seen to keep do not work. */
export async function demandStopped(engine: Engine, world: World): Promise<void> {
  vi.stubEnv('ATTACK_PASSPHRASE_OF_THE_SERVER', 'sk-attack-secret');
  const { kept, problem } = await probeEngine(engine);
  expect(problem).toBeUndefined();
  const ops = sandboxed(bare(world), engine, { home: world.home, limits: ATTACK_LIMITS, promises: kept });
  const worked = await runAttacks(ATTACKS, world, ops);
  const broken = ATTACKS.filter((one) => worked.has(one.name) && (kept as readonly string[]).includes(one.promise));
  expect(broken.map((one) => `${one.promise}: ${one.name}`)).toEqual([]);
  vi.unstubAllEnvs();
}
