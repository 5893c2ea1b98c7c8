import { manualClock } from '@treadle/core/testing';
import { describe, expect, test, vi } from 'vitest';
import { contest } from '../../test/contest.ts';
import { entries, entry, textOf } from '../../test/entries.ts';
import { place } from '../../test/place.ts';
import { remote } from '../../test/remote.ts';
import { thisProcess } from '../holder.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 60_000 });

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** A clock on which every lease has expired long since. */
const later = () => manualClock(Date.now() + 3_600_000);

describe('another process', () => {
  test('that drives a run is named to whoever wants it too', async () => {
    await using at = place();
    const store = at.open();
    await using other = await remote(at.file);
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    await expect(store.acquire('a')).rejects.toEqual(code('run-driven'));
    await expect(store.acquire('a')).rejects.toThrow(
      `Run "a" is driven by process ${other.pid} on host ${thisProcess().host} since 20`,
    );
    await expect(store.append('a', [entry(2)])).rejects.toEqual(code('run-driven'));
    await expect(store.delete('a')).rejects.toEqual(code('run-driven'));
    expect(await store.read('a')).toEqual(entries(2));

    await other.release(token);
    const lease = await store.acquire('a');
    await expect(other.acquire('a')).rejects.toThrow(`process ${process.pid} on host`);
    await store.append('a', [entry(2)], lease);
    await expect(other.append('a', [entry(3)], token)).rejects.toEqual(code('lease-lost'));
  });

  test('that was killed has its runs taken over at once', async () => {
    await using at = place();
    const store = at.open();
    await using other = await remote(at.file);
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    await other.kill();
    const lease = await store.acquire('a');
    expect(lease.token).toBeGreaterThan(token);
    await store.append('a', [entry(2)], lease);
    expect(await store.read('a')).toEqual(entries(3));
  });

  test('that was stopped keeps its runs until its lease expires, and can write nothing more once it was taken over', async () => {
    await using at = place();
    await using other = await remote(at.file);
    const token = await other.acquire('a');
    await other.append('a', entries(1), token);
    other.signal('SIGSTOP');
    await expect(at.open().acquire('a')).rejects.toEqual(code('run-driven'));
    const store = at.open({ clock: later() });
    const lease = await store.acquire('a');
    await store.append('a', [entry(1, 'here')], lease);
    other.signal('SIGCONT');
    await expect(other.append('a', [entry(2)], token)).rejects.toEqual(code('lease-lost'));
    expect(await store.read('a')).toEqual([entry(0), entry(1, 'here')]);
  });

  test('of another host that was stopped is taken over, and can write nothing more when it goes on', async () => {
    await using at = place();
    await using other = await remote(at.file, { store: { holder: { host: 'elsewhere', pid: 1 } } });
    const token = await other.acquire('a');
    await other.append('a', entries(2), token);
    other.signal('SIGSTOP');
    await expect(at.open().acquire('a')).rejects.toThrow('driven by process 1 on host elsewhere');
    const store = at.open({ clock: later() });
    const lease = await store.acquire('a');
    await store.append('a', [entry(2, 'here')], lease);
    other.signal('SIGCONT');
    await expect(other.append('a', [entry(3)], token)).rejects.toEqual(code('lease-lost'));
    await expect(other.append('a', [entry(3)])).rejects.toEqual(code('run-driven'));
    expect(await store.read('a')).toEqual([...entries(2), entry(2, 'here')]);
  });

  test('a run that two want at the same moment goes to one of them', async () => {
    await using at = place();
    at.open();
    await using one = await remote(at.file);
    await using two = await remote(at.file);
    for (let round = 0; round < 30; round++) {
      const both = [one, two];
      const settled = await Promise.allSettled(both.map((process) => process.acquire('a')));
      expect(settled.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
      const winner = settled.findIndex(({ status }) => status === 'fulfilled');
      await both[winner]!.release((settled[winner] as PromiseFulfilledResult<number>).value);
    }
  });
});

/**
 * Two share this host; two say that they are elsewhere, so that leases between them and the others are taken when they
 * expire. While they fight, whoever has got the run is put to sleep in the middle of something and woken when another
 * has it, or when he sleeps on the lock of the file; or he is killed.
 */
test('never two drivers', async () => {
  await using at = place();
  const store = at.open();
  await using fight = contest(at.file, 'a');
  for (const host of [undefined, undefined, 'one', 'two']) fight.join(host);
  for (let round = 1; round <= 40; round++) {
    const { by } = await fight.next(({ type }) => type === 'acquired');
    if (round % 8 === 0) {
      by.child.kill('SIGKILL');
      await by.gone;
      fight.join(by.host);
    } else {
      by.child.kill('SIGSTOP');
      await fight.next((heard) => heard.by !== by && (heard.type === 'acquired' || heard.type === 'locked'));
      by.child.kill('SIGCONT');
    }
  }
  await fight.stop();

  const { told } = fight;
  expect(told.filter(({ type }) => type === 'unexpected')).toEqual([]);
  const acquired = told.flatMap((heard) => (heard.type === 'acquired' ? heard.token : []));
  expect(new Set(acquired).size).toBe(acquired.length);
  const tokens = (await store.read('a')).map((one) => Number(textOf(one)));
  expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
  const appended = told.flatMap((heard) => (heard.type === 'appended' ? heard : []));
  expect(appended.filter(({ token, seq }) => tokens[seq] !== token)).toEqual([]);
  expect(appended.length).toBeGreaterThan(100);
  expect(told.filter(({ type }) => type === 'lost').length).toBeGreaterThan(5);
});
