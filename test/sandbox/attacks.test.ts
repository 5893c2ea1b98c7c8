import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ENGINE_NAMES, installedEngine, probeEngine, sandboxed } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { useDisk } from '../on-disk.ts';
import { ATTACKS } from './attacks.ts';
import { ATTACK_LIMITS, bare, openWorld, runAttacks, type World } from './world.ts';

useDisk();

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

describe.runIf(needs('Linux', process.platform === 'linux'))('attacks', () => {
  it('are at least 80, each with a name of its own', () => {
    expect(new Set(ATTACKS.map(({ name }) => name)).size).toBe(ATTACKS.length);
    expect(ATTACKS.length).toBeGreaterThanOrEqual(80);
  });

  it('are not confused by those of another run', async () => {
    const other = await openWorld();
    await other.close();
    expect([0, 1, 2].map((digit) => [world.isRunning(digit), other.isRunning(digit)])).toEqual(
      [0, 1, 2].map(() => [true, false]),
    );
  });

  it.runIf(uses('root', process.getuid?.() === 0))('all work without a sandbox', async () => {
    const worked = await runAttacks(ATTACKS, world, bare(world));
    expect(ATTACKS.map(({ name }) => name).filter((name) => !worked.has(name))).toEqual([]);
  });

  for (const name of ENGINE_NAMES) {
    const engine = installedEngine(name);
    const isExpected = name === 'bubblewrap' || name === 'firejail';
    it.runIf(isExpected ? needs(name, engine !== undefined) : engine !== undefined)(
      `are stopped by ${name}, as far as it was seen to keep its promises`,
      async () => {
        vi.stubEnv('ATTACK_PASSPHRASE_OF_THE_SERVER', 'sk-attack-secret');
        const { kept, problem } = await probeEngine(engine!);
        expect(problem).toBeUndefined();
        const ops = sandboxed(bare(world), engine!, { home: world.home, limits: ATTACK_LIMITS, promises: kept });
        const worked = await runAttacks(ATTACKS, world, ops);
        const broken = ATTACKS.filter(
          (one) => worked.has(one.name) && (kept as readonly string[]).includes(one.promise),
        );
        expect(broken.map((one) => `${one.promise}: ${one.name}`)).toEqual([]);
        vi.unstubAllEnvs();
      },
      60_000,
    );
  }
});
