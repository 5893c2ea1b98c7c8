import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { Step } from '../provider/script.ts';
import { followChat, partsSeen, postChat, type ChatEvent } from '../server/support/chat-events.ts';
import { call } from '../server/support/fixture.ts';
import { modelOf, startServer, type ServerProcess } from '../server/support/server-process.ts';

const TURNS = 3;

/** A server that is killed, and one with the same store that only forwards what it stored. */
interface Servers {
  readonly provider: Provider;
  readonly start: () => Promise<ServerProcess>;
  readonly other: ServerProcess;
}

async function startServers(cleanUp: AsyncDisposableStack): Promise<Servers> {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-server-chat-'));
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const provider = cleanUp.use(await startProvider());
  const settings = { store: path.join(folder, 'runs.db'), chatTitles: false };
  const start = async (): Promise<ServerProcess> => cleanUp.use(await startServer(provider, settings));
  return { provider, start, other: await start() };
}

const turn = (n: number): Step => ({
  reasoning: `Hm ${n}.`,
  text: `Turn ${n} of it.`,
  calls: [call('add', { a: n, b: 1 })],
});

/**
 * The client reads at a server that is killed at an event, then at the other one, while a third process resumes the run.
 * Checks that it got every event once. Resolves to the third process, and what the client had got before.
 */
async function killOnce(
  { provider, start, other }: Servers,
  first: ServerProcess,
  { steps, isPoint }: { readonly steps: readonly Step[]; readonly isPoint: (event: ChatEvent) => boolean },
): Promise<{ readonly next: ServerProcess; readonly before: readonly ChatEvent[] }> {
  // A reply that was lost with the server is asked for again.
  const ends: Step[] = [{ text: 'Done.' }, { text: 'Done.' }];
  const script = await provider.script([...steps, ...steps.map((_, n) => turn(n)), ...ends]);
  const request = { model: modelOf(script), message: 'Add', tools: ['add'], on_disconnect: 'continue' };
  let killed: Promise<void> | undefined;
  const onEvent = (event: ChatEvent): void => {
    if (isPoint(event) || event.type === 'done') killed ??= first.kill();
  };
  const client = await postChat(first.url, request, { onEvent });
  const before = await client.ended;
  await killed;
  const { conversation_id: id } = before[0]!;
  const { seq, type } = before.at(-1)!;
  const rest = type === 'done' ? undefined : await followChat(other.url, id, { after: seq });
  const next = await start();
  const got = [...before, ...((await rest?.ended) ?? [])];

  expect(got.map((event) => event.seq)).toEqual(got.map((_, index) => index + 1));
  expect(got.at(-1)).toMatchObject({ type: 'done', status: 'completed' });
  const ofType = (wanted: string): ChatEvent[] => got.filter((event) => event.type === wanted);
  for (const once of ['conversation_meta', 'usage', 'done']) expect(ofType(once)).toHaveLength(1);
  for (const { url } of [other, next]) expect(await (await followChat(url, id)).ended).toEqual(got);
  const { messages } = (await (await fetch(`${next.url}/v1/chat/${id}`)).json()) as { messages: { parts: object[] }[] };
  expect(messages[1]!.parts).toEqual(partsSeen(got));
  const calls = ofType('tool_call_start').map((event) => event['id'] as string);
  expect(new Set(calls).size).toBe(calls.length);
  expect(ofType('tool_call_result').map((event) => event['id'])).toEqual(calls);
  return { next, before };
}

test('a client whose server is killed after any event gets every event once from another server', async ({
  annotate,
}) => {
  await using cleanUp = new AsyncDisposableStack();
  const servers = await startServers(cleanUp);
  const steps = Array.from({ length: TURNS }, (_, n) => turn(n));
  let server = await servers.start();
  const kills: number[] = [];
  for (let after = 1, isWhole = false; !isWhole; after++) {
    const { next, before } = await killOnce(servers, server, { steps, isPoint: ({ seq }) => seq === after });
    server = next;
    kills.push(before.length);
    isWhole = before.at(-1)!.type === 'done' && before.length <= after;
  }
  await annotate(`events before each kill: ${kills.join(', ')}`);
});

test('a client whose server is killed in the middle of any reply gets every event once from another server', async () => {
  await using cleanUp = new AsyncDisposableStack();
  const servers = await startServers(cleanUp);
  let server = await servers.start();
  const reply = { text: 'Half of this comes, and then nothing.' };
  for (let stalled = 0; stalled < TURNS; stalled++) {
    const steps: Step[] = [...Array.from({ length: stalled }, (_, n) => turn(n)), { fault: 'stall', reply }];
    const isPoint = ({ type, delta }: ChatEvent): boolean =>
      type === 'token_delta' && reply.text.startsWith(delta as string);
    const { next, before } = await killOnce(servers, server, { steps, isPoint });
    server = next;
    expect(before.at(-1)).toMatchObject({ type: 'token_delta' });
    expect(before.filter(({ type }) => type === 'tool_call_result')).toHaveLength(stalled);
  }
});
