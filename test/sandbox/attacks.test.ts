import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { installedEngine } from '@treadle/tools/sandbox';
import { needs, uses } from '../needs.ts';
import { useDisk } from '../on-disk.ts';
import { ATTACKS } from './attacks.ts';
import { demandStopped } from './demand-stopped.ts';
import { bare, openWorld, runAttacks, type World } from './world.ts';

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

  const bubblewrap = installedEngine('bubblewrap');
  it.runIf(needs('bubblewrap', bubblewrap !== undefined))(
    'are stopped by bubblewrap, as far as it was seen to keep its promises',
    () => demandStopped(bubblewrap!, world),
  );
});
