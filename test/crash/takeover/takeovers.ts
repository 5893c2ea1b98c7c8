import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { startDriver, type DriverOptions, type Driver } from './driver.ts';

interface Bench extends Disposable {
  readonly start: (options: Pick<DriverOptions, 'before'> & Partial<DriverOptions>) => Driver;
  readonly payments: () => number;
  /** Ends the block of a tool that blocks the event loop. */
  readonly unblock: () => void;
}

function bench(ttlMs: number): Bench {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-takeover-'));
  const paid = path.join(folder, 'paid');
  return {
    start: (options) => startDriver({ folder, ttlMs, tryMs: 2 * ttlMs, ...options }),
    payments: () => (existsSync(paid) ? readFileSync(paid, 'utf8').trimEnd().split('\n').length : 0),
    unblock: () => writeFileSync(path.join(folder, 'unblock'), ''),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/*
 * Two processes and a run with one payment by a `once` tool with `verify`. While the first pays, the second tries to take
 * over for two lease times. There is exactly one payment.
 */
export function testTakeovers(ttlMs: number): void {
  describe.concurrent('a driver that cannot renew its lease', () => {
    test('a suspended process of the same host is not taken over', async () => {
      using place = bench(ttlMs);
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
      using place = bench(ttlMs);
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
      using place = bench(ttlMs);
      await using first = place.start({ before: 'block' });
      await first.prints('paying');
      await using second = place.start({ before: 'pay' });
      expect(await second.ended).toEqual(['end run-driven']);
      place.unblock();
      expect(await first.ended).toEqual(['paying', 'paid', 'end completed']);
      expect(place.payments()).toBe(1);
    });

    test('a suspended process of another host that was taken over aborts its tool when it continues', async () => {
      using place = bench(ttlMs);
      await using first = place.start({ before: 'message', host: 'one' });
      await first.prints('paying');
      first.signal('SIGSTOP');
      await using second = place.start({ before: 'pay', host: 'two', tryMs: 100 * ttlMs });
      expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
      first.signal('SIGCONT');
      await first.prints('aborted');
      first.send();
      expect(await first.ended).toEqual(['paying', 'aborted', 'end lease-lost']);
      expect(place.payments()).toBe(1);
    });

    test('a tool that continues after a takeover is refused by a system that checks the token', async () => {
      using place = bench(ttlMs);
      await using first = place.start({ before: 'block', host: 'one', ignoresSignal: true });
      await first.prints('paying');
      await using second = place.start({ before: 'pay', host: 'two', tryMs: 100 * ttlMs });
      expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
      place.unblock();
      expect(await first.ended).toEqual(expect.arrayContaining(['refused by the bank', 'end lease-lost']));
      expect(place.payments()).toBe(1);
    });
  });

  // They wait most of the time, like those above, and run beside them.
  test.concurrent.each([[undefined], ['elsewhere']])(
    'a process whose clock is 60 seconds ahead does not take over a live driver; its host: %s',
    async (host) => {
      // Twice as long: a busy machine must not keep the first process from renewing its lease.
      using place = bench(2 * ttlMs);
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
    using place = bench(ttlMs);
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

  test('a process that makes the call of a killed one resumes its run', async () => {
    using place = bench(ttlMs);
    await using first = place.start({ before: 'message' });
    await first.prints('paying');
    first.signal('SIGKILL');
    await expect(first.ended).rejects.toThrow('The process ended after "paying"');
    await using second = place.start({ before: 'pay' });
    expect(await second.ended).toEqual(['verified false', 'paying', 'paid', 'end completed']);
    expect(place.payments()).toBe(1);
  });
}
