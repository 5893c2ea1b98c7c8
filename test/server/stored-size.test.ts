import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { responseIdIn, startInProcess } from './support/in-process.ts';

const RESPONSES = 200;
const CHARS = 2_000;

test('the size of the store grows with the messages of a conversation, not with their square', async () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-size-'));
  const file = path.join(folder, 'runs.db');
  const text = (n: number): string => `${n} `.repeat(CHARS).slice(0, CHARS);
  try {
    const store = sqliteStore(file);
    const replies = Array.from({ length: RESPONSES }, (_, n) => text(n));
    const model = scriptedModel(replies);
    {
      await using server = await startInProcess(model, { store });
      const ids: string[] = [];
      for (let n = 0; n < RESPONSES; n++) {
        const previous = ids.length > 0 && { previous_response_id: ids.at(-1) };
        const { status, text: body } = await server.post({ input: text(1_000 + n), ...previous });
        expect(status).toBe(200);
        ids.push(responseIdIn(body));
      }
      expect(model.requests.at(-1)!.messages).toHaveLength(2 * RESPONSES - 1);
      // An early response can be deleted; the conversation after it is complete.
      await store.responses.delete('default', ids[0]!);
      const continued = await store.read(ids[1]!);
      expect(continued[0]!.event).toMatchObject({ type: 'run-started', input: { length: 3 } });
    }
    await store.close();
    // The messages have 800 kB. Each is stored in the input of the runs after it, in the journal or in the request of its own
    // response, and a reply also in that response. Rows of 2 kB fill half of a page.
    expect(statSync(file).size).toBeLessThan(5_000_000);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
