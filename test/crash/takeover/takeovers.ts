import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { newStore, type StoreKind } from '../../store/kinds.ts';
import { startDriver, type DriverOptions, type Driver } from './driver.ts';

export interface TakeoverOptions {
  readonly kind: StoreKind;
  readonly ttlMs: number;
  /** Only some of the tests. */
  readonly isShort?: boolean;
}

interface Bench extends AsyncDisposable {
  readonly start: (options: Pick<DriverOptions, 'before'> & Partial<DriverOptions>) => Driver;
  readonly payments: () => number;
  /** Ends the block of a tool that blocks the event loop. */
  readonly unblock: () => void;
}

async function newBench(kind: StoreKind, ttlMs: number): Promise<Bench> {
  const store = await newStore(kind);
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-takeover-'));
  const paid = path.join(folder, 'paid');
  return {
    start: (options) => startDriver({ folder, store: store.url, ttlMs, tryMs: 2 * ttlMs, ...options }),
    payments: () => (existsSync(paid) ? readFileSync(paid, 'utf8').trimEnd().split('\n').length : 0),
    unblock: () => writeFileSync(path.join(folder, 'unblock'), ''),
    async [Symbol.asyncDispose]() {
      rmSync(folder, { recursive: true, force: true });
      await store[Symbol.asyncDispose]();
    },
  };
}

/*
 * Two processes and a run with one payment by a `once` tool with `verify`. While the first pays, the second tries to take
 * over for two lease times. There is exactly one payment.
 */
export function testTakeovers({ kind, ttlMs, isShort = false }: TakeoverOptions): void {
  const bench = (ms: number): Promise<Bench> => newBench(kind, ms);
  // A busy machine must not keep a live process from renewing its lease, which another one of the same host takes over otherwise.
  const liveMs = kind === 'SQLite' ? ttlMs : Math.max(ttlMs, 3_500);

  if (kind === 'SQLite') testSuspended(ttlMs, bench);

  describe.concurrent('a driver that cannot renew its lease', () => {
    // The database has its own clock, so there a process of the same host is taken over like one of another host.
    const hosts =
      kind === 'SQLite' ? ['another host'] : isShort ? ['the same host'] : ['another host', 'the same host'];
    const [one, two] = [{ host: 'one' }, { host: 'two' }];

    test.each(hosts)(
      'a suspended process of %s that was taken over aborts its tool when it continues',
      async (where) => {
        const isElsewhere = where === 'another host';
        await using place = await bench(ttlMs);
        await using first = place.start({ before: 'message', ...(isElsewhere && one) });
        await first.prints('paying');
        first.signal('SIGSTOP');
        await using second = place.start({ before: 'pay', ...(isElsewhere && two), tryMs: 100 * ttlMs });
        expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
        first.signal('SIGCONT');
        await first.prints('aborted');
        first.send();
        expect(await first.ended).toEqual(['paying', 'aborted', 'end lease-lost']);
        expect(place.payments()).toBe(1);
      },
    );

    test.skipIf(isShort)(
      'a tool that continues after a takeover is refused by a system that checks the token',
      async () => {
        await using place = await bench(ttlMs);
        await using first = place.start({ before: 'block', ...one, ignoresSignal: true });
        await first.prints('paying');
        await using second = place.start({ before: 'pay', ...two, tryMs: 100 * ttlMs });
        expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
        place.unblock();
        expect(await first.ended).toEqual(expect.arrayContaining(['refused by the bank', 'end lease-lost']));
        expect(place.payments()).toBe(1);
      },
    );
  });

  // They wait most of the time, like those above, and run beside them.
  test.skipIf(isShort).concurrent.each([[undefined], ['elsewhere']])(
    'a process whose clock is 60 seconds ahead does not take over a live driver; its host: %s',
    async (host) => {
      // Twice as long: on another host, nobody can ask whether the first process lives.
      await using place = await bench(Math.max(2 * ttlMs, liveMs));
      await using first = place.start({ before: 'message' });
      await first.prints('paying');
      await using second = place.start({ before: 'pay', ahead: true, ...(host !== undefined && { host }) });
      expect(await second.ended).toEqual(['end run-driven']);
      first.send();
      expect(await first.ended).toEqual(['paying', 'paid', 'end completed']);
      expect(place.payments()).toBe(1);
    },
  );

  test('of several processes that start or resume a run at the same moment, one drives it', async () => {
    await using place = await bench(liveMs);
    const drivers = Array.from({ length: 4 }, () => place.start({ before: 'message', tryMs: 0 }));
    await using all = new AsyncDisposableStack();
    for (const driver of drivers) all.use(driver);
    const paying = await Promise.any(drivers.map((driver) => driver.prints('paying').then(() => driver)));
    const others = drivers.filter((driver) => driver !== paying);
    for (const { ended } of others) expect(await ended).toEqual(['end run-driven']);
    paying.send();
    expect(await paying.ended).toEqual(['paying', 'paid', 'end completed']);
    // The same call returns the stored result.
    await using later = place.start({ before: 'pay' });
    expect(await later.ended).toEqual(['end completed']);
    expect(place.payments()).toBe(1);
  });

  test.skipIf(isShort)('a process that makes the call of a killed one resumes its run', async () => {
    await using place = await bench(ttlMs);
    await using first = place.start({ before: 'message' });
    await first.prints('paying');
    first.signal('SIGKILL');
    await expect(first.ended).rejects.toThrow('The process ended after "paying"');
    await using second = place.start({ before: 'pay' });
    expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
    expect(place.payments()).toBe(1);
  });
}

/** Only with SQLite: whoever drives a run on the same host can be asked whether it lives. */
function testSuspended(ttlMs: number, bench: (ttlMs: number) => Promise<Bench>): void {
  describe.concurrent('a driver on the same host that cannot renew its lease', () => {
    test('a suspended process of the same host is not taken over', async () => {
      await using place = await bench(ttlMs);
      await using first = place.start({ before: 'message' });
      await first.prints('paying');
      first.signal('SIGSTOP');
      await using second = place.start({ before: 'pay' });
      expect(await second.ended).toEqual(['end run-driven']);
      first.signal('SIGCONT');
      first.send();
      expect(await first.ended).toEqual(['paying', 'paid', 'end completed']);
      expect(place.payments()).toBe(1);
    });

    test('a suspended process is not taken over after the name of the host has changed', async () => {
      await using place = await bench(ttlMs);
      await using first = place.start({ before: 'message' });
      await first.prints('paying');
      first.signal('SIGSTOP');
      await using second = place.start({ before: 'pay', renamed: true });
      expect(await second.ended).toEqual(['end run-driven']);
      first.signal('SIGCONT');
      first.send();
      expect(await first.ended).toEqual(['paying', 'paid', 'end completed']);
      expect(place.payments()).toBe(1);
    });

    test('a process of the same host with a blocked event loop is not taken over', async () => {
      await using place = await bench(ttlMs);
      await using first = place.start({ before: 'block' });
      await first.prints('paying');
      await using second = place.start({ before: 'pay' });
      expect(await second.ended).toEqual(['end run-driven']);
      place.unblock();
      expect(await first.ended).toEqual(['paying', 'paid', 'end completed']);
      expect(place.payments()).toBe(1);
    });
  });
}
