import { expect, test } from 'vitest';
import type { TempStores } from './temp-stores.ts';

const MINUTE = 60_000;

export function inboxContract(tempStore: () => Promise<TempStores>): void {
  test('a request is taken once, and its reply is read by the process that has sent it', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    const added = new Promise<void>((resolve) => void other.inbox.watch(resolve));
    const id = await one.inbox.add('run', { type: 'cancel' });
    await added;
    expect(await other.inbox.open()).toEqual([{ id, runId: 'run', request: { type: 'cancel' } }]);
    expect(await other.inbox.take(id)).toBe(true);
    expect(await one.inbox.take(id)).toBe(false);
    expect(await one.inbox.open()).toEqual([]);
    expect(await one.inbox.replyTo(id)).toBeUndefined();
    const replied = new Promise<void>((resolve) => void one.inbox.watch(resolve));
    await other.inbox.reply(id, { ok: true });
    await replied;
    expect(await one.inbox.replyTo(id)).toEqual({ ok: true });
    expect(await one.inbox.remove(id)).toBe(true);
    expect(await one.inbox.remove(id)).toBe(false);
  });

  test('a request that nobody has taken in time expires, also by a clock that was set back', async () => {
    await using temp = await tempStore();
    const { inbox } = await temp.open();
    const [id, taken] = [await inbox.add('run', { type: 'cancel' }), await inbox.add('run', { type: 'cancel' })];
    expect(await inbox.take(taken)).toBe(true);
    for (const by of [-MINUTE, 2 * MINUTE]) {
      await temp.exec(`UPDATE inbox SET at = at + ${by}`);
      expect(await inbox.open()).toEqual([]);
      expect(await inbox.take(id)).toBe(false);
    }
    // Who has sent it withdraws it, and a request that was taken gets its reply.
    expect(await inbox.remove(id, { ifOpen: true })).toBe(true);
    await inbox.reply(taken, { ok: true });
    expect(await inbox.replyTo(taken)).toEqual({ ok: true });
  });

  test('requests of a process that died are removed after an hour', async () => {
    await using temp = await tempStore();
    const { inbox } = await temp.open();
    await inbox.add('run', {});
    await temp.exec(`UPDATE inbox SET at = at - ${61 * MINUTE}`);
    await inbox.add('run', {});
    expect(await temp.count('inbox')).toBe(1);
  });

  test('a request can be withdrawn until it is taken', async () => {
    await using temp = await tempStore();
    const { inbox } = await temp.open();
    const [first, second] = [await inbox.add('run', {}), await inbox.add('run', {})];
    expect(await inbox.remove(first, { ifOpen: true })).toBe(true);
    expect(await inbox.take(first)).toBe(false);
    await inbox.take(second);
    expect(await inbox.remove(second, { ifOpen: true })).toBe(false);
  });
}
