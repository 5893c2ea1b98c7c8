import { setTimeout } from 'node:timers/promises';
import type { JournalEntry, TreadleError } from '@treadle/core';
import { postgresStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { tcpProxy } from '../store/chaos/tcp-proxy.ts';
import { entry } from '../store/entries.ts';
import { startPostgres, withClient } from '../store/postgres-server.ts';

test('a store goes on with a standby that is promoted, and nothing is lost that was durable', async () => {
  await using primary = await startPostgres({ settings: ['fsync=off'] });
  // A durable commit waits for the standby when the server starts again, as it does when a standby is made.
  await withClient(primary.url(), (client) => client.query(`ALTER SYSTEM SET synchronous_standby_names = '*'`));
  await using standby = await primary.standby();
  let current = primary;
  await using proxy = await tcpProxy(() => Number(new URL(current.url()).port));
  const url = new URL(primary.url());
  url.port = String(proxy.port);
  await using cleanUp = new AsyncDisposableStack();
  const store = cleanUp.adopt(await postgresStore(url.href, { leaseTtlMs: 60_000 }), (one) => one.close());

  const acknowledged = new Map<string, JournalEntry[]>();
  const isUnderWay = Promise.withResolvers<void>();
  async function write(name: string): Promise<void> {
    const lease = await store.acquire(name);
    const written: JournalEntry[] = [];
    acknowledged.set(name, written);
    for (let seq = 0; seq < 60; seq++) {
      const next = entry(seq);
      try {
        await store.append(name, [next], lease);
      } catch (error) {
        expect((error as TreadleError).code).toMatch(/^(lease-lost|store-failed)$/);
        break;
      }
      written.push(next);
      if (seq === 10) isUnderWay.resolve();
      await setTimeout(1);
    }
    await lease.release();
  }
  const writing = Promise.all(Array.from({ length: 5 }, (_, index) => write(`run ${index}`)));
  await isUnderWay.promise;
  await primary.kill();
  await withClient(standby.url(), async (client) => {
    // A statement that waits for the promotion can keep it from being completed, and is canceled then.
    await client.query('SELECT pg_promote(false)');
    for (let isStandby = true; isStandby;) {
      const { rows } = await client.query<{ readonly found: boolean }>('SELECT pg_is_in_recovery() AS found');
      isStandby = rows[0]!.found;
    }
    await client.query(`ALTER SYSTEM RESET synchronous_standby_names`);
    await client.query('SELECT pg_reload_conf()');
  });
  // The address leads to the new primary when it is one. Before that, it would refuse writes as read-only.
  current = standby;
  proxy.cut();
  await writing;
  for (const [name, written] of acknowledged) {
    expect((await store.read(name)).slice(0, written.length)).toEqual(written);
  }
  // The standby gives leases, and its tokens go on.
  const lease = await store.acquire('after');
  await store.append('after', [entry(0)], lease);
  await lease.release();
});

test('a store on a standby can be read, and says that it is read-only', async () => {
  await using primary = await startPostgres({ settings: ['fsync=off'] });
  const before = await postgresStore(primary.url());
  await before.append('a', [entry(0)]);
  await before.close();
  await using standby = await primary.standby();
  await using cleanUp = new AsyncDisposableStack();
  const store = cleanUp.adopt(await postgresStore(standby.url()), (one) => one.close());
  expect(await store.read('a')).toEqual([entry(0)]);
  const calls = [
    () => store.append('a', [entry(1)]),
    () => store.acquire('a'),
    () => store.inbox.add('a', {}),
    async () => store.durable(),
  ];
  for (const call of calls) await expect(call()).rejects.toMatchObject({ code: 'store-read-only' });
});
