import { manualClock } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { tempStore } from '../../test/temp-store.ts';
import { INBOX_PATIENCE_MS } from '../ports/inbox.ts';

test('a request is taken once, and its reply is read by the process that has sent it', async () => {
  await using temp = tempStore();
  const [one, other] = [temp.open(), temp.open()];
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

test('a request can be withdrawn until it is taken', async () => {
  await using temp = tempStore();
  const { inbox } = temp.open();
  const [first, second] = [await inbox.add('run', {}), await inbox.add('run', {})];
  expect(await inbox.remove(first, { ifOpen: true })).toBe(true);
  expect(await inbox.take(first)).toBe(false);
  await inbox.take(second);
  expect(await inbox.remove(second, { ifOpen: true })).toBe(false);
});

test('requests of a process that died are removed after an hour', async () => {
  await using temp = tempStore();
  const clock = manualClock();
  const { inbox } = temp.open({ clock });
  await inbox.add('run', {});
  await clock.advance(3_600_001);
  const id = await inbox.add('run', {});
  expect((await inbox.open()).map((one) => one.id)).toEqual([id]);
});

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
