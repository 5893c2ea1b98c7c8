import { expect, test } from 'vitest';
import { stage } from './clients/stage.ts';
import { modelOf } from './process/start.ts';
import { keptWhenCut, sameHoweverAsked } from './streams/property.ts';
import type { StreamEvent } from './open-responses/asking.ts';
import { streamClient } from './streams/client.ts';
import { eventIn } from './streams/frames.ts';
import { checkedStream } from './open-responses/stream-rules.ts';
import { rawAnswer } from './streams/raw.ts';

const here = stage({ logLevel: 'silent' });

test('a random conversation keeps the rules of streams, and is the same streamed, not streamed and fetched', async () => {
  await sameHoweverAsked(here, 150);
});

test('a random run that is cut off keeps them too, and is kept as it was told', async () => {
  await keptWhenCut(here, 150);
});

test('each event is a write of its own', async () => {
  const calls = [{ name: 'add', arguments: '{"a":1,"b":2}' }];
  const script = await here.provider.script([
    { reasoning: 'Hm, 日本.', text: 'I add.', calls },
    { text: 'It is three.' },
  ]);
  const tools = [{ type: 'mcp', server_label: 'treadle' }];
  const body = { model: modelOf(script), input: 'go', stream: true, tools };
  const { head, chunks } = await rawAnswer(here.server.url, '/v1/responses', body);
  expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  expect(head.toLowerCase()).toContain('\r\ncontent-type: text/event-stream; charset=utf-8');
  expect(head.toLowerCase()).toContain('\r\ntransfer-encoding: chunked');
  expect(chunks.pop()).toBe('data: [DONE]\n\n');
  for (const [at, chunk] of chunks.entries()) {
    expect(chunk.endsWith('\n\n')).toBe(true);
    expect(eventIn(chunk.slice(0, -2)).sequence_number).toBe(at);
  }
});

test('whoever checks the rules sees each event that is missing, comes twice, or says something else', async () => {
  const script = await here.provider.script([
    { reasoning: 'I wonder.', text: 'I add.', calls: [{ name: 'add', arguments: '{"a":1,"b":2}' }] },
    {
      calls: [
        { name: 'fail', arguments: '{}' },
        { name: 'ghost', arguments: '{}' },
      ],
    },
    { text: 'And now you.', calls: [{ name: 'pay', arguments: '{"sum":3}' }] },
  ]);
  const tools = [
    { type: 'mcp', server_label: 'treadle' },
    { type: 'function', name: 'pay', parameters: {} },
  ];
  const client = streamClient(here.server.url, { model: modelOf(script), input: 'go', tools });
  expect(await client.over).toBe(true);
  const { events } = client;
  expect(checkedStream(events)).toMatchObject({ status: 'completed', pending_call_ids: [expect.any(String)] });
  for (const at of events.keys()) {
    expect(() => checkedStream(numbered(events.toSpliced(at, 1))), `without event ${at}`).toThrow(/./);
    expect(() => checkedStream(numbered(events.toSpliced(at, 0, events[at]!))), `twice event ${at}`).toThrow(/./);
    for (const changed of mutants(events[at]!)) {
      const why = `event ${at} as ${JSON.stringify(changed)}`;
      expect(() => checkedStream(events.with(at, changed)), why).toThrow(/./);
    }
  }
});

function numbered(events: readonly StreamEvent[]): readonly StreamEvent[] {
  return events.map((event, at) => ({ ...event, sequence_number: at }));
}

/** The event with something in it that is wrong. */
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
