import { afterAll, afterEach, beforeEach, expect, test, vi } from 'vitest';
import { entry } from './entries.ts';
import { withClient } from './postgres-server.ts';
import { testDatabase } from './shared-postgres.ts';
import type { Store } from '@treadle/store';

/* How listeners learn of changes. Stores do not look for them by themselves, unless a test lets time pass. */

const database = await testDatabase();
afterAll(() => database[Symbol.asyncDispose]());
beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'performance'] }));
afterEach(async () => {
  vi.useRealTimers();
  await database.clear();
});

const LISTENERS = `FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN treadle_changes'`;

async function untilListening(count: number): Promise<void> {
  await withClient(database.url, async (client) => {
    for (let found = -1; found !== count;)
      found = (await client.query<{ n: number }>(`SELECT count(*)::integer AS n ${LISTENERS}`)).rows[0]!.n;
  });
}

/** Counts calls of a listener of run "a". */
function watched(store: Store): { readonly next: () => Promise<void> } {
  let told = Promise.withResolvers<void>();
  store.watch('a', () => told.resolve());
  return {
    async next() {
      await told.promise;
      told = Promise.withResolvers();
    },
  };
}

async function listening(): Promise<{ readonly next: () => Promise<void>; readonly other: Store }> {
  const [store, other] = [await database.open(), await database.open()];
  const { next } = watched(store);
  // It is told once when it begins to listen.
  await next();
  await untilListening(1);
  return { next, other };
}

test('a listener is told of what another process appends', async () => {
  const { next, other } = await listening();
  for (let seq = 0; seq < 3; seq++) {
    const told = next();
    await other.append('a', [entry(seq)]);
    await told;
  }
});

test('a listener whose connection was cut is told of what came meanwhile, and of what comes later', async () => {
  const { next, other } = await listening();
  const missed = next();
  await withClient(database.url, (client) => client.query(`SELECT pg_terminate_backend(pid) ${LISTENERS}`));
  await untilListening(0);
  await other.append('a', [entry(0)]);
  await missed;
  await untilListening(1);
  const told = next();
  await other.append('a', [entry(1)]);
  await told;
});

test('a listener looks by itself every two seconds: who appends may die before it notifies', async () => {
  const { next } = await listening();
  const told = next();
  await vi.advanceTimersByTimeAsync(2_100);
  await told;
});

interface Changes {
  readonly changed: (...names: readonly string[]) => void;
  readonly close: () => Promise<void>;
}

test('what changes at once is notified in payloads that PostgreSQL takes, whatever it is called', async () => {
  const { openChanges } = (await import(
    new URL('../../packages/store/src/postgres/changes.ts', import.meta.url).href
  )) as { readonly openChanges: (db: object) => Changes };
  const payloads: string[] = [];
  const changes = openChanges({
    isDirect: () => false,
    once: async (_: string, [payload]: readonly [string]) => void payloads.push(payload),
  });
  changes.changed(...Array.from({ length: 3_000 }, (_, index) => `\u0000 ${'long '.repeat(500)} ${index}`));
  await changes.close();
  for (const payload of payloads) expect(Buffer.byteLength(payload)).toBeLessThan(8_000);
  // Each begins with who has sent it.
  expect(new Set(payloads.flatMap((payload) => payload.split(' ').slice(1))).size).toBe(3_000);
});
