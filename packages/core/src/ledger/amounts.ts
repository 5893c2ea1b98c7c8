import { TreadleError } from '../errors.ts';
import type { Amounts } from './port.ts';

export const KINDS = ['tokens', 'cost', 'calls', 'files', 'lines', 'requests', 'durationMs'] as const;

/** Throws `invalid-options` for amounts that are not numbers of at least 0. `owner` has them. */
export function checkAmounts(owner: string, amounts: Amounts): void {
  for (const [kind, amount] of Object.entries(amounts)) {
    const known = (KINDS as readonly string[]).includes(kind);
    if (known && (amount === undefined || (Number.isFinite(amount) && amount >= 0))) continue;
    const problem = known ? `has ${String(amount)} ${kind}` : `has "${kind}"`;
    throw new TreadleError(
      'invalid-options',
      `${owner} ${problem}. Use numbers of at least 0 for ${KINDS.join(', ')}.`,
    );
  }
}
