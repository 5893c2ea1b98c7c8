import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import { checkDisconnects } from './support/disconnecting-clients.ts';
import { expectServerResponds } from './support/fixture.ts';
import { startServer } from './support/server-process.ts';

const MB = 1024 * 1024;

let folder: string;
let provider: Provider;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-disconnect-'));
  provider = await startProvider();
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

// test/long/server-disconnect.test.ts has more clients.
test('cancels the run and frees its resources when a client disconnects at any moment', async () => {
  const store = path.join(folder, 'store.db');
  await using server = await startServer(provider, { store, logLevel: 'silent' });
  await checkDisconnects({ server, provider }, 3);
  const before = await server.usage();
  await checkDisconnects({ server, provider }, 6);
  const after = await server.usage();
  expect(after.heap - before.heap).toBeLessThan(MB);
  // Connections to the provider stay open for reuse: at most as many as there were concurrent runs.
  expect(after.connections).toBeLessThan(30);

  // The cancelled runs are stored as cancelled, so the next server has nothing to resume.
  await server.close();
  await using next = await startServer(provider, { store, logLevel: 'silent' });
  expect(next.recovered).toBe(0);
  await expectServerResponds({ server: next, provider });
});
