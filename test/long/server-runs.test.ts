import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { JournalEntry } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { startProvider } from '../provider/provider.ts';
import { call, SERVER_TOOLS } from '../server/support/fixture.ts';
import { readRunEvents } from '../server/support/run-events.ts';
import { modelOf, startServer } from '../server/support/server-process.ts';

const TURNS = 4;

test('a client whose server is killed after any event gets every event once from the next server', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-server-runs-'));
  await using provider = await startProvider();
  for (let killedAfter = 1; killedAfter <= 2 * TURNS; killedAfter++) {
    const file = path.join(folder, `${killedAfter}.db`);
    const calls = Array.from({ length: TURNS }, (_, n) => ({
      text: `Turn ${n}.`,
      calls: [call('add', { a: n, b: 1 })],
    }));
    // A reply that was lost with the server is asked for again.
    const script = await provider.script([...calls, ...calls, { text: 'Done.' }]);
    await using first = await startServer(provider, { store: file });
    const posted = fetch(`${first.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ model: modelOf(script), input: 'Add', tools: [SERVER_TOOLS] }),
    }).catch(() => undefined);
    const id = await runningRun(first.url);
    const before = await readRunEvents(first.url, id);
    await Promise.race([before.received(killedAfter), before.ended]);
    await first.kill();
    await Promise.all([before.ended, posted]);
    const got: JournalEntry[] = [...before.entries];
    await using second = await startServer(provider, { store: file });
    // It pauses nowhere, so the stream ends with the run.
    const after = await readRunEvents(second.url, id, { after: got.at(-1)?.seq ?? -1 });
    expect(await after.ended).toBe('[DONE]');
    got.push(...after.entries);
    const store = sqliteStore(file);
    expect(got).toEqual(await store.read(id));
    expect(got.at(-1)!.status).toBeDefined();
    await store.close();
  }
  await rm(folder, { recursive: true });
});

async function runningRun(url: string): Promise<string> {
  for (;;) {
    const { data } = (await (await fetch(`${url}/v1/runs`)).json()) as { data: { id: string }[] };
    if (data.length > 0) return data[0]!.id;
    await setImmediate();
  }
}
