import { describe, it } from 'vitest';
import { ENGINE_NAMES, installedEngine } from '@treadle/tools/sandbox';
import { needs } from '../needs.ts';
import { useDisk } from '../on-disk.ts';
import { demandStopped } from '../sandbox/demand-stopped.ts';
import { openWorld } from '../sandbox/world.ts';

useDisk();

/** In `npm run verify`, because these engines take long to start a program. `npm test` attacks bubblewrap. */
describe.runIf(needs('Linux', process.platform === 'linux'))('attacks', () => {
  for (const name of ENGINE_NAMES.filter((one) => one !== 'bubblewrap')) {
    const engine = installedEngine(name);
    it.runIf(name === 'firejail' ? needs(name, engine !== undefined) : engine !== undefined)(
      `are stopped by ${name}, as far as it was seen to keep its promises`,
      async () => {
        const world = await openWorld();
        try {
          await demandStopped(engine!, world);
        } finally {
          await world.close();
        }
      },
    );
  }
});
