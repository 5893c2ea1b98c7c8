import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { scriptedModel } from '@treadle/core/testing';
import { checkStore, sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';
import { responseIdIn, startInProcess, type InProcessServer } from './support/in-process.ts';

const CHARS = 2_000;

/** The input and the reply of a turn together have 4 kB. No two texts are equal. */
const inputOf = (turn: number): string => `Input ${turn}, `.repeat(CHARS).slice(0, CHARS);
const replyOf = (turn: number): string => `Reply ${turn}, `.repeat(CHARS).slice(0, CHARS);

interface Talk {
  readonly server: InProcessServer;
  readonly turn: number;
  /** The id of the response before. */
  readonly previous: string | undefined;
}

/** Sends the input of a turn. Returns the text of the response. */
type SendTurn = (talk: Talk) => Promise<string>;

async function continueResponse({ server, turn, previous }: Talk): Promise<string> {
  const { text } = await server.post({ input: inputOf(turn), ...(previous && { previous_response_id: previous }) });
  return text;
}

/** The whole conversation, as a client sends it that does not keep ids. */
function resent(turn: number): readonly object[] {
  const earlier = Array.from({ length: turn }, (_, n) => [
    { role: 'user', content: inputOf(n) },
    { role: 'assistant', content: replyOf(n) },
  ]);
  return [...earlier.flat(), { role: 'user', content: inputOf(turn) }];
}

async function resendInput({ server, turn }: Talk): Promise<string> {
  return (await server.post({ input: resent(turn) })).text;
}

async function resendMessages({ server, turn }: Talk): Promise<string> {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'idempotency-key': `turn-${turn}` },
    body: JSON.stringify({ model: 'm', messages: resent(turn) }),
  });
  return answer.text();
}

async function resendToMessages({ server, turn }: Talk): Promise<string> {
  const { body } = await server.send('POST', '/v1/messages', { model: 'm', max_tokens: 9_999, messages: resent(turn) });
  return JSON.stringify(body);
}

/** The size of a file after a conversation of so many turns. */
async function sizeAfter(turns: number, sendTurn: SendTurn): Promise<number> {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-size-'));
  const file = path.join(folder, 'runs.db');
  try {
    const store = sqliteStore(file);
    const model = scriptedModel(Array.from({ length: turns }, (_, turn) => replyOf(turn)));
    {
      await using server = await startInProcess(model, { store });
      let previous: string | undefined;
      for (let turn = 0; turn < turns; turn++) {
        const text = await sendTurn({ server, turn, previous });
        expect(text).toContain(replyOf(turn));
        if (text.includes('"resp_')) previous = responseIdIn(text);
      }
      if (turns > 0) expect(model.requests.at(-1)!.messages).toHaveLength(2 * turns - 1);
    }
    await store.close();
    expect((await checkStore(file)).problems).toEqual([]);
    return statSync(file).size;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const TURNS = 40;

test.each([
  ['that continues another one', continueResponse],
  ['that has the whole conversation as input', resendInput],
  ['for a completion with a key, which has the whole conversation', resendMessages],
  ['for a message, which has the whole conversation', resendToMessages],
] as const)(
  'the store grows by the new texts of a request %s',
  async (_, sendTurn) => {
    const [empty, half, whole] = [
      await sizeAfter(0, sendTurn),
      await sizeAfter(TURNS / 2, sendTurn),
      await sizeAfter(TURNS, sendTurn),
    ];
    // The first half also fills pages that an empty store has. If each turn stored all texts again, it would be 3 times as much.
    expect(whole - half).toBeLessThan(1.25 * (half - empty));
    // Two texts of 2 kB do not fit into one page of 4 kB.
    expect((whole - half) / (TURNS / 2)).toBeLessThan(2 * 4_096 + 2_500);
  },
  60_000,
);

test('an early response can be deleted; the conversation after it is complete', async () => {
  await using server = await startInProcess(scriptedModel([0, 1, 2].map(replyOf)));
  const first = responseIdIn(await continueResponse({ server, turn: 0, previous: undefined }));
  const second = responseIdIn(await continueResponse({ server, turn: 1, previous: first }));
  expect((await fetch(`${server.url}/v1/responses/${first}`, { method: 'DELETE' })).status).toBe(200);
  expect(JSON.stringify(await server.get(second))).toContain(replyOf(1));
  expect(await continueResponse({ server, turn: 2, previous: second })).toContain(replyOf(2));
});
