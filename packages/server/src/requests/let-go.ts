import { setTimeout as delay } from 'node:timers/promises';
import { isDrivenElsewhere } from './interruption.ts';

/** How long the process of a run that has ended may take to give its lease back. */
const LET_GO_MS = 2_000;
const LOOK_MS = 20;

/**
 * Does what needs a run that nobody drives. Readers are told of an end as soon as it is stored, and its process gives the lease back a
 * moment later. That is waited for if `hasEnded`.
 */
export async function whenLetGo<T>(hasEnded: () => Promise<boolean>, work: () => Promise<T>): Promise<T> {
  for (const startedAt = performance.now(); ;) {
    try {
      return await work();
    } catch (error) {
      const isLate = performance.now() - startedAt > LET_GO_MS;
      if (!isDrivenElsewhere(error) || isLate || !(await hasEnded())) throw error;
    }
    await delay(LOOK_MS);
  }
}
