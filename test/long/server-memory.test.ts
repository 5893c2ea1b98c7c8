import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { startServer } from '../server/support/server-process.ts';
import { CHAT_KINDS, mixedLoad } from '../server/support/mixed-load.ts';

test.for([
  ['request', undefined],
  ['message of chats', CHAT_KINDS],
] as const)('the heap does not grow from the 2,000th %s to the 10,000th', async ([, kinds], { annotate }) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-heap-'));
  try {
    await using provider = await startProvider();
    await using server = await startServer(provider, {
      store: path.join(folder, 'store.db'),
      logLevel: 'silent',
      chatTitles: false,
    });
    const load = await mixedLoad(server, provider, 8, kinds);
    await load.send(2_000);
    await provider.quiet();
    const heaps = [await server.heap()];
    for (let thousand = 3; thousand <= 10; thousand++) {
      await load.send(1_000);
      await provider.quiet();
      heaps.push(await server.heap());
    }
    const growth = heaps.at(-1)! / heaps[0]! - 1;
    await annotate(
      `${(growth * 100).toFixed(2)}% of ${heaps.map((heap) => (heap / 1024 ** 2).toFixed(2)).join(', ')} MB`,
    );
    expect(growth).toBeLessThan(0.02);
  } finally {
    await rm(folder, { recursive: true });
  }
});
