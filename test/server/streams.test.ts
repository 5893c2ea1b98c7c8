import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { call, SERVER_TOOLS, useServerFixture } from './support/fixture.ts';
import type { StreamEvent } from './support/responses-client.ts';
import { parseEventFrame } from './support/sse-frames.ts';
import { streamClient } from './support/stream-client.ts';
import { checkInterruptedRuns, checkSameResponses } from './support/stream-properties.ts';
import { validateStream } from './support/stream-rules.ts';

const fixture = useServerFixture({ logLevel: 'silent' });

// test/long/server-streams.test.ts has thousands of runs.
test('random conversations keep the stream rules and are the same streamed, not streamed and fetched', async () => {
  await checkSameResponses(fixture, 40);
});

test('interrupted random runs keep the stream rules and are stored as they were streamed', async () => {
  await checkInterruptedRuns(fixture, 40);
});

test('sends each event as one chunk', async () => {
  const script = await fixture.script(
    { reasoning: 'Hm, 日本.', text: 'I add.', calls: [call('add', { a: 1, b: 2 })] },
    { text: 'It is three.' },
  );
  const body = { model: script.model, input: 'go', stream: true, tools: [SERVER_TOOLS] };
  const { head, chunks } = await rawResponse(fixture.server.url, '/v1/responses', body);
  expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(head.toLowerCase()).toContain('\r\ncontent-type: text/event-stream; charset=utf-8');
  expect(head.toLowerCase()).toContain('\r\ntransfer-encoding: chunked');
  expect(chunks.pop()).toBe('data: [DONE]\n\n');
  for (const [at, chunk] of chunks.entries()) {
    expect(chunk.endsWith('\n\n')).toBe(true);
    expect(parseEventFrame(chunk.slice(0, -2)).sequence_number).toBe(at);
  }
});

test('the stream rules detect every event that is missing, duplicated or changed', async () => {
  const script = await fixture.script(
    { reasoning: 'I wonder.', text: 'I add.', calls: [call('add', { a: 1, b: 2 })] },
    { calls: [call('fail', {}), call('ghost', {})] },
    { text: 'And now you.', calls: [call('pay', { sum: 3 })] },
  );
  const tools = [SERVER_TOOLS, { type: 'function', name: 'pay', parameters: {} }];
  const client = streamClient(fixture.server.url, { model: script.model, input: 'go', tools });
  expect(await client.ended).toBe(true);
  const { events } = client;
  expect(validateStream(events)).toMatchObject({ status: 'completed', pending_call_ids: [expect.any(String)] });
  for (const at of events.keys()) {
    expect(() => validateStream(renumber(events.toSpliced(at, 1))), `without event ${at}`).toThrow(/./);
    expect(() => validateStream(renumber(events.toSpliced(at, 0, events[at]!))), `twice event ${at}`).toThrow(/./);
    for (const changed of mutants(events[at]!)) {
      const why = `event ${at} as ${JSON.stringify(changed)}`;
      expect(() => validateStream(events.with(at, changed)), why).toThrow(/./);
    }
  }
});

function renumber(events: readonly StreamEvent[]): readonly StreamEvent[] {
  return events.map((event, at) => ({ ...event, sequence_number: at }));
}

/** Copies of the event, each with one wrong field. */
function mutants(event: StreamEvent): readonly StreamEvent[] {
  const { item } = event;
  return [
    { ...event, sequence_number: event.sequence_number + 1 },
    { ...event, type: `${event.type}s` },
    ...(event.delta === undefined ? [] : [{ ...event, delta: `${event.delta}!` }]),
    ...(event.text === undefined ? [] : [{ ...event, text: `${event.text}!` }]),
    ...(event.item_id === undefined ? [] : [{ ...event, item_id: `${event.item_id}0` }]),
    ...(event.output_index === undefined ? [] : [{ ...event, output_index: event.output_index + 1 }]),
    ...(item ? [{ ...event, item: { ...item, id: `${item.id}0` } }] : []),
    ...(item
      ? [{ ...event, item: { ...item, status: item.status === 'completed' ? 'in_progress' : 'completed' } }]
      : []),
    ...(item?.call_id ? [{ ...event, item: { ...item, call_id: `${item.call_id}0` } }] : []),
  ];
}

/** Reads the bytes of a chunked response: each write of the server is one chunk. */
async function rawResponse(url: string, path: string, body: object): Promise<{ head: string; chunks: string[] }> {
  const { hostname, port } = new URL(url);
  const json = Buffer.from(JSON.stringify(body));
  const socket = connect(Number(port), hostname);
  const lines = [`POST ${path} HTTP/1.1`, `Host: ${hostname}:${port}`, 'Connection: close'];
  lines.push('Content-Type: application/json', `Content-Length: ${json.length}`, '', '');
  socket.write(Buffer.concat([Buffer.from(lines.join('\r\n')), json]));
  const pieces: Buffer[] = [];
  for await (const piece of socket) pieces.push(piece as Buffer);
  const all = Buffer.concat(pieces);

  const end = all.indexOf('\r\n\r\n') + 4;
  const chunks: string[] = [];
  for (let at = end; ;) {
    const line = all.indexOf('\r\n', at);
    const size = Number.parseInt(all.toString('latin1', at, line), 16);
    if (!(size > 0)) break;
    chunks.push(all.toString('utf8', line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  return { head: all.toString('latin1', 0, end), chunks };
}
