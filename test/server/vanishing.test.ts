import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import { startServer } from './process/start.ts';
import { askShortly, vanishingCrowds } from './streams/crowds.ts';

const MB = 1024 * 1024;

let folder: string;
let provider: Provider;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'treadle-vanishing-'));
  provider = await startProvider();
});
afterAll(async () => {
  await provider[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

test('clients that vanish at any moment cancel their runs, and leave nothing behind', async () => {
  const store = path.join(folder, 'store.db');
  await using server = await startServer(provider, { store, logLevel: 'silent' });
  const place = { server, provider };
  await vanishingCrowds(place, 4);
  const before = await server.usage();
  await vanishingCrowds(place, 10);
  const after = await server.usage();
  expect(after.heap - before.heap).toBeLessThan(MB);
  // Those to the provider are kept for the next ones: no more than there were runs at once.
  expect(after.connections).toBeLessThan(30);

  // Whatever was cancelled is kept as such: a server that starts anew finds nothing to go on with.
  await server.close();
  await using next = await startServer(provider, { store, logLevel: 'silent' });
  expect(next.recovered).toBe(0);
  await askShortly({ server: next, provider });
});
