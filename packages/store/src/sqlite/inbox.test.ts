import { manualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';
import { INBOX_PATIENCE_MS } from '../ports/inbox.ts';

// What holds on every store is in `test/store/contract/inbox.ts`. Here: the clock of the store; in PostgreSQL that of the database counts.

test('a request that nobody has taken in time expires, also by a clock that was set back', async () => {
  await using temp = tempStore();
  const clock = manualClock(1_000_000);
  const { inbox } = temp.open({ clock });
  const id = await inbox.add('run', { type: 'cancel' });
  const taken = await inbox.add('run', { type: 'cancel' });
  await clock.advance(INBOX_PATIENCE_MS);
  expect((await inbox.open()).map((one) => one.id)).toEqual([id, taken]);
  expect(await inbox.take(taken)).toBe(true);
  await clock.advance(1);
  expect(await inbox.open()).toEqual([]);
  expect(await inbox.take(id)).toBe(false);
  // Who has sent it withdraws it, and a request that was taken gets its reply.
  expect(await inbox.remove(id, { ifOpen: true })).toBe(true);
  await inbox.reply(taken, { ok: true });
  expect(await inbox.replyTo(taken)).toEqual({ ok: true });

  const ahead = await inbox.add('run', { type: 'cancel' });
  const { inbox: earlier } = temp.open({ clock: manualClock(clock.now() - INBOX_PATIENCE_MS - 1) });
  expect(await earlier.open()).toEqual([]);
  expect(await earlier.take(ahead)).toBe(false);
});
