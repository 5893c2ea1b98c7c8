import type { Program } from './process.ts';
import { killed, undisturbed, type Outcome } from './schedule.ts';

/** As many at once as there are cores to speak of. */
const AT_ONCE = 2;

/**
 * Kills so many processes, a few for each seed from the first one on. `TREADLE_SEED` in the environment: only those of
 * that seed.
 */
export async function killMany(program: Program, first: number, wanted: number): Promise<readonly Outcome[]> {
  const reference = await undisturbed(program);
  const only = process.env['TREADLE_SEED'];
  if (only !== undefined) return [await killed(Number(only), reference)];
  const outcomes: Outcome[] = [];
  const failures: unknown[] = [];
  let seed = first;
  const work = async (): Promise<void> => {
    while (failures.length === 0 && countKills(outcomes) < wanted) {
      await killed(seed++, reference).then(
        (outcome) => outcomes.push(outcome),
        (error: unknown) => failures.push(error),
      );
    }
  };
  // All of them, so that nothing is left running.
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (failures.length > 0) throw failures[0];
  return outcomes;
}

export function countKills(outcomes: readonly Outcome[]): number {
  return outcomes.reduce((sum, { kills }) => sum + kills.length, 0);
}

/** In words, what was killed and what came of it. */
export function told(outcomes: readonly Outcome[]): string {
  const interrupted = outcomes.filter((outcome) => outcome.interrupted.length > 0);
  const where = interrupted.map((outcome) => `seed ${outcome.seed}: ${outcome.interrupted.join(', ')}`).join('; ');
  return `${countKills(outcomes)} kills of ${outcomes.length} runs. Interrupted, effect unknown: ${where || 'none'}`;
}
