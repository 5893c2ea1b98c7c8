import { batch, computed, signal, type ReadonlySignal } from '@preact/signals';
import type { WireRun, WireWaiting } from '@treadle/server/wire';
import type { Badge } from '../routes.ts';
import { isChildRun, listRuns } from './api.ts';
import { keepLooking } from './changes.ts';

/* What waits for people, in all runs. The navigation counts it on every part of the page, so this is loaded without the others. */

export interface Asked {
  readonly run: WireRun;
  readonly wait: WireWaiting;
}

const found = signal<readonly Asked[]>([]);
const more = signal(false);

export const asked: ReadonlySignal<readonly Asked[]> = found;
/** There are more open runs than were looked at. */
export const areMoreOpen: ReadonlySignal<boolean> = more;

/** The server replays the runs that are open. */
const GAP_MS = 1_000;

export async function lookForWaits(aborted?: AbortSignal): Promise<void> {
  const page = await listRuns({ status: 'paused,running', include: 'waiting', limit: '100' }, aborted);
  batch(() => {
    // Those of child runs are listed with their parent. Parked calls wait for nobody.
    found.value = page.data
      .filter((run) => !isChildRun(run))
      .flatMap((run) => (run.waiting ?? []).map((wait) => ({ run, wait })))
      .filter(({ wait }) => wait.type !== 'parked');
    more.value = page.has_more;
  });
}

export const badge: Badge = {
  count: computed(() => found.value.length),
  follow: () => keepLooking(lookForWaits, { gapMs: GAP_MS }).stop,
};
