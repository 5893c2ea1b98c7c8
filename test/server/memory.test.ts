import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { startServer } from './support/server-process.ts';
import { mixedLoad } from './support/mixed-load.ts';

const KB = 1024;

/** Detects a leak per request. test/long/server-memory.test.ts measures more precisely. */
test('frees the memory of every answered request, whatever its outcome', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-heap-'));
  try {
    await using provider = await startProvider();
    await using server = await startServer(provider, {
      store: path.join(folder, 'store.db'),
      logLevel: 'silent',
      chatTitles: false,
    });
    const load = await mixedLoad(server, provider, 8);
    await load.send(260);
    await provider.quiet();
    const before = await server.heap();
    await load.send(400);
    await provider.quiet();
    expect(((await server.heap()) - before) / 400).toBeLessThan(KB / 2);
  } finally {
    await rm(folder, { recursive: true });
  }
});
