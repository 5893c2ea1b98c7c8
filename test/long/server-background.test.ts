import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { startProvider, type Provider } from '../provider/provider.ts';
import type { Step } from '../provider/script.ts';
import { followBackground, postBackground } from '../server/support/background-events.ts';
import { call, SERVER_TOOLS } from '../server/support/fixture.ts';
import type { StreamEvent } from '../server/support/responses-client.ts';
import { modelOf, startServer, type ServerProcess } from '../server/support/server-process.ts';
import { validateStream } from '../server/support/stream-rules.ts';

const TURNS = 3;

interface Servers {
  readonly provider: Provider;
  readonly start: () => Promise<ServerProcess>;
}

async function startProviderAndFolder(cleanUp: AsyncDisposableStack): Promise<Servers> {
  const folder = await mkdtemp(path.join(tmpdir(), 'treadle-server-background-'));
  cleanUp.defer(() => rm(folder, { recursive: true }));
  const provider = cleanUp.use(await startProvider());
  const settings = { store: path.join(folder, 'runs.db') };
  return { provider, start: async () => cleanUp.use(await startServer(provider, settings)) };
}

const turn = (n: number): Step => ({
  reasoning: `Hm ${n}.`,
  text: `Turn ${n} of it.`,
  calls: [call('add', { a: n, b: 1 })],
});
const isLast = ({ type }: StreamEvent): boolean => type === 'response.completed';

test('a client of a background response whose server is killed after any event gets every event once from another server', async ({
  annotate,
}) => {
  await using cleanUp = new AsyncDisposableStack();
  const { provider, start } = await startProviderAndFolder(cleanUp);
  const other = await start();
  let server = await start();
  const kills: number[] = [];
  for (let after = 0, isWhole = false; !isWhole; after++) {
    const turns = Array.from({ length: TURNS }, (_, n) => turn(n));
    // A reply that was lost with the server is asked for again.
    const script = await provider.script([...turns, ...turns, { text: 'Done.' }, { text: 'Done.' }]);
    let killed: Promise<void> | undefined;
    const request = { model: modelOf(script), input: 'Add', tools: [SERVER_TOOLS] };
    const first = server;
    const client = await postBackground(first.url, request, {
      onEvent(event) {
        if (event.sequence_number === after || isLast(event)) killed ??= first.kill();
      },
    });
    const before = await client.ended;
    await killed;
    kills.push(before.length);
    isWhole = isLast(before.at(-1)!) && before.length <= after;
    const { id } = before[0]!.response!;
    const rest = isLast(before.at(-1)!)
      ? undefined
      : await followBackground(other.url, id, { after: before.at(-1)!.sequence_number });
    server = await start();
    const got = [...before, ...((await rest?.ended) ?? [])];
    const response = validateStream(got, { wasResumed: true });
    expect(response).toMatchObject({ status: 'completed' });
    for (const { url } of [other, server]) {
      expect(await (await followBackground(url, id)).ended).toEqual(got);
      expect(await (await fetch(`${url}/v1/responses/${id}`)).json()).toEqual(response);
    }
    const answered = response.output.filter(({ type, status }) => type === 'mcp_call' && status === 'completed');
    expect(new Set(answered.map((item) => item.id)).size).toBe(answered.length);
    expect(answered.length).toBeGreaterThanOrEqual(TURNS);
  }
  await annotate(`events before each kill: ${kills.join(', ')}`);
});

test('500 background responses survive a kill of their server', async ({ annotate }) => {
  await using cleanUp = new AsyncDisposableStack();
  const { provider, start } = await startProviderAndFolder(cleanUp);
  const server = await start();
  const ids: string[] = [];
  const held: Promise<void>[] = [];
  for (let from = 0; from < 500; from += 50) {
    const some = Array.from({ length: 50 }, async (_, index) => {
      const tag = `t${from + index}`;
      const script = await provider.script([
        { text: 'Holding.', calls: [call('hold', { tag })] },
        { text: `Done ${tag}.` },
        { text: `Done ${tag}.` },
      ]);
      const answer = await fetch(`${server.url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: modelOf(script), input: 'Hold', tools: [SERVER_TOOLS], background: true }),
      });
      const { id, status } = (await answer.json()) as { id: string; status: string };
      expect(status).toBe('queued');
      held.push(server.held(tag));
      ids.push(id);
    });
    await Promise.all(some);
  }
  // Half of them wait in a tool. The others are at any point.
  await Promise.all(held.slice(0, 250));
  await server.kill();
  const next = await start();
  for (let n = 0; n < 500; n++) next.release(`t${n}`);
  const startedAt = performance.now();
  expect(next.recovered).toBe(500);
  for (const id of ids) {
    const response = validateStream(await (await followBackground(next.url, id)).ended, { wasResumed: true });
    expect(response).toMatchObject({ status: expect.stringMatching(/^completed$/) });
    const texts = response.output.filter(({ type, status }) => type === 'message' && status === 'completed');
    expect(JSON.stringify(texts.at(-1))).toContain('Done t');
  }
  await annotate(`all ended ${Math.round(performance.now() - startedAt)} ms after the restart`);
});
