import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';

export function budgetsContract(tempStore: () => Promise<TempStores>): void {
  const ABOUT = { runId: 'run', effect: 'call-tool', name: 't', context: undefined } as const;

  test('a reservation survives the process, and the next one reuses it', async () => {
    await using temp = await tempStore();
    const first = await temp.open();
    await first.budgets.setLimits('acme', { calls: 1 });
    await first.budgets.ledger(['acme']).reserve('run/t1.tool.0', { calls: 1 }, ABOUT);
    await first.close();
    const ledger = await (await temp.open()).budgets.ledger(['acme']);
    expect(await ledger.reserve('run/t1.tool.1', { calls: 1 }, ABOUT)).toMatchObject({ type: 'refused' });
    expect(await ledger.reserve('run/t1.tool.0', { calls: 1 }, ABOUT)).toEqual({ type: 'reserved' });
  });
}
