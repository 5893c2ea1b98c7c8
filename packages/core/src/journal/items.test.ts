import { expect, test } from 'vitest';
import { userText, type Message } from '../messages.ts';
import type { Policy } from '../policy/port.ts';
import { scriptedModel, type ScriptStep } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import type { Item } from './items.ts';
import type { LoopOptions } from '../driver/options.ts';
import { streamLoop } from '../driver/run.ts';

const look = tool({ name: 'look', description: 'x', execute: () => 'seen' });
const fail = tool({
  name: 'fail',
  description: 'x',
  execute: () => {
    throw new Error('ouch');
  },
});
const slow = tool({ name: 'slow', description: 'x', execute: async () => 'at last' });
const client = tool({ name: 'client', description: 'x' });

/** The items of a run without deltas, in short form: facts by their event, the others by their call. */
async function items(script: readonly ScriptStep[], options: Partial<LoopOptions> = {}): Promise<string[]> {
  using model = scriptedModel(script);
  const live = streamLoop({ model, tools: [look, fail, slow, client], input: 'go', ...options });
  const all = (await Array.fromAsync(live)).map(short);
  return all.filter((one) => !one.endsWith('-delta'));
}

function short(item: Item): string {
  switch (item.type) {
    case 'fact':
      return `fact ${item.event.type}`;
    case 'turn-started':
      return `turn ${item.turn}`;
    case 'call-started':
      return `started ${item.call.id}`;
    case 'call-answered': {
      expect(item.result).toMatchObject({ callId: item.call.id, name: item.call.name });
      return `answered ${item.call.id}${item.result.isError ? ' with an error' : ''}`;
    }
    default:
      return item.type;
  }
}

const call = (name: string, id: string): { name: string; id: string } => ({ name, id });

test('emits the items of a turn with calls in the order of the events', async () => {
  expect(await items([{ text: 'hm', calls: [call('slow', 'a'), call('look', 'b')] }, 'done'])).toEqual([
    'fact run-started',
    'turn 1',
    'fact model-replied',
    'started a',
    'started b',
    'fact tool-settled',
    'answered b',
    'fact tool-settled',
    'answered a',
    'turn 2',
    'fact model-replied',
  ]);
});

test('emits deltas before the reply that contains them', async () => {
  using model = scriptedModel([{ text: 'two words', calls: [call('look', 'a')] }, 'done']);
  const all = await Array.fromAsync(streamLoop({ model, tools: [look], input: 'go' }));
  expect(all.slice(0, 6)).toMatchObject([
    { type: 'fact', seq: 0, event: { type: 'run-started' } },
    { type: 'turn-started', turn: 1 },
    { type: 'text-delta', text: 'two ' },
    { type: 'text-delta', text: 'words' },
    { type: 'call-delta', call: 0, name: 'look', arguments: '{}' },
    { type: 'fact', seq: 1, event: { type: 'model-replied' } },
  ]);
});

test('emits call-answered for a call that never runs', async () => {
  expect(await items([{ calls: [call('unknown', 'a'), call('look', 'b')] }, 'done'])).toEqual([
    'fact run-started',
    'turn 1',
    'fact model-replied',
    'answered a with an error',
    'started b',
    'fact tool-settled',
    'answered b',
    'turn 2',
    'fact model-replied',
  ]);
});

test('emits call-answered for every call of a turn in which none runs', async () => {
  expect(await items([{ calls: [call('unknown', 'a'), call('unknown', 'b')] }, 'done'])).toEqual([
    'fact run-started',
    'turn 1',
    'fact model-replied',
    'answered a with an error',
    'answered b with an error',
    'turn 2',
    'fact model-replied',
  ]);
});

test('emits call-answered for denied calls after the verdicts', async () => {
  const policy: Policy = {
    judge: (calls) => calls.map(({ id }) => (id === 'a' ? { type: 'deny', reason: 'no' } : { type: 'allow' })),
  };
  expect(
    await items([{ calls: [call('look', 'a'), call('look', 'b'), call('unknown', 'c')] }, 'done'], { policy }),
  ).toEqual([
    'fact run-started',
    'turn 1',
    'fact model-replied',
    'answered c with an error',
    'fact calls-judged',
    'answered a with an error',
    'started b',
    'fact tool-settled',
    'answered b',
    'turn 2',
    'fact model-replied',
  ]);
});

test('uses the changed call ids in all items', async () => {
  expect((await items([{ calls: [call('look', 'a'), call('fail', 'a')] }, 'done'])).slice(3)).toEqual([
    'started a',
    'started call_t1_1',
    'fact tool-settled',
    'answered a',
    'fact tool-settled',
    'answered call_t1_1 with an error',
    'turn 2',
    'fact model-replied',
  ]);
});

test('emits no call-started for a client tool, and call-answered for cancelled calls', async () => {
  const received: string[] = [];
  using model = scriptedModel([{ calls: [call('client', 'a'), call('slow', 'b')] }]);
  const live = streamLoop({
    model,
    tools: [client, slow],
    input: 'go',
    onItem: (item) => {
      received.push(short(item));
      if (item.type === 'call-started') live.cancel();
    },
  });
  await live.result;
  expect(received.filter((one) => !one.endsWith('-delta'))).toEqual([
    'fact run-started',
    'turn 1',
    'fact model-replied',
    'started b',
    'fact cancel-requested',
    'answered a with an error',
    'answered b with an error',
    'run-failed',
  ]);
});

test('emits nothing for results in the input', async () => {
  const input: Message[] = [
    userText('go'),
    { role: 'assistant', content: [{ type: 'tool-call', id: 'old', name: 'look', arguments: '{}' }] },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', callId: 'old', name: 'look', content: [{ type: 'text', text: 'seen' }], isError: false },
      ],
    },
  ];
  expect(await items(['done'], { input })).toEqual(['fact run-started', 'turn 1', 'fact model-replied']);
});

test('emits call-answered once for every call of a run', async () => {
  const all = await items([
    { calls: [call('slow', 'a'), call('fail', 'a'), call('unknown', ''), call('look', '')] },
    { calls: [call('look', 'a'), call('slow', 'b')] },
    'done',
  ]);
  const answered = all.filter((one) => one.startsWith('answered'));
  expect(answered).toHaveLength(6);
  expect(new Set(answered.map((one) => one.split(' ')[1])).size).toBe(6);
});
