import {
  memoryJournal,
  runLoop,
  tool,
  type AssistantPart,
  type Message,
  type ModelReply,
  type ToolResult,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import type { AnthropicEvent, AnthropicMessage } from '@treadle/models/anthropic-wire';
import { sqliteStore } from '@treadle/store';
import fc from 'fast-check';
import pino from 'pino';
import { expect, test } from 'vitest';
import { ApiError } from '../../api-error.ts';
import { activeRuns, type Engine } from '../../engine/engine.ts';
import { registeredTools } from '../../engine/executors.ts';
import type { Caller } from '../../http/admission.ts';
import { requests } from '../../requests/requests.ts';
import { messages } from './messages.ts';
import { parseMessageRequest } from './parse-request.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const log = pino({ level: 'silent' });
const caller: Caller = { tenant: 't', key: '', scopes: ['agents:invoke', 'tools:execute'], requestId: '', log };

const parameters = { type: 'object', properties: {} };
const look = tool({
  name: 'look',
  description: '',
  parameters,
  effect: 'pure',
  execute: async (input) => ({
    content: [
      { type: 'text', text: `saw ${JSON.stringify(input)}` },
      { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } },
    ],
  }),
});
const ask = tool({ name: 'ask', description: '', parameters });

/** The client's results depend only on the arguments. */
const answerTo = (json: string): string => `answer to ${json}`;

interface Turn {
  readonly text: string;
  readonly thought: '' | 'hm' | 'signed' | 'hidden';
  readonly calls: readonly ('look' | 'ask' | 'unknown')[];
  /** The id of all calls of the model; undefined: unique ids. */
  readonly id: string | undefined;
  readonly hasData: boolean;
}

const turn: fc.Arbitrary<Turn> = fc.record({
  text: fc.constantFrom('', 'some text', 'other text'),
  thought: fc.constantFrom('', 'hm', 'signed', 'hidden'),
  calls: fc.array(fc.constantFrom('look', 'ask', 'unknown'), { minLength: 1, maxLength: 4 }),
  id: fc.constantFrom(undefined, 'same', ''),
  hasData: fc.boolean(),
});

const THOUGHTS: Readonly<Record<Turn['thought'], readonly AssistantPart[]>> = {
  '': [],
  hm: [{ type: 'reasoning', text: 'hm' }],
  signed: [{ type: 'reasoning', text: 'hm', summary: true, signature: 'sig', protocol: 'p' }],
  hidden: [{ type: 'reasoning', text: '', signature: 'sig', protocol: 'p' }],
};

function replyOf({ text, thought, calls, id, hasData }: Turn, number: number): ModelReply {
  // One call succeeds, so that the error limit does not end the run.
  const names = calls.every((name) => name === 'unknown') ? [...calls, 'look'] : calls;
  const content: AssistantPart[] = [
    ...THOUGHTS[thought],
    ...(text === '' ? [] : [{ type: 'text', text } as const]),
    ...names.map((name, index): AssistantPart => ({
      type: 'tool-call',
      id: id ?? `m${number}${index}`,
      name,
      arguments: `{"n": ${number * 10 + index}}`,
      ...(hasData && { provider: { protocol: 'p', data: index } }),
    })),
  ];
  return { type: 'reply', content, finish: 'tool-calls', usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' };
}

/** Ids are not compared, only the call that a result belongs to. */
function withoutIds(history: readonly Message[]): readonly unknown[] {
  let calls: readonly string[] = [];
  return history.map((message) => {
    if (message.role === 'assistant')
      calls = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
    const content = (message.content as readonly (AssistantPart | ToolResult)[]).map((part) => {
      if (part.type === 'tool-call')
        return { ...part, id: calls.indexOf(part.id), arguments: JSON.parse(part.arguments) };
      if (part.type !== 'tool-result') return part;
      const { errorType: _, ...result } = part;
      return { ...result, callId: calls.indexOf(part.callId) };
    });
    return { role: message.role, content };
  });
}

/** The same conversation as one run, by a program that drives the loop itself. */
async function asOneRun(script: readonly (ModelReply | string)[]): Promise<readonly Message[]> {
  const model = scriptedModel(script);
  const around = { model, tools: [ask, look], journal: memoryJournal(), runId: 'r' };
  let result = await runLoop({ ...around, input: 'go', maxTurns: 100 });
  while (!result.outcome) {
    const answers = result.waiting.map(({ effect, call }) => {
      return { type: 'result', effect, content: answerTo(call.arguments) } as const;
    });
    result = await runLoop({ ...around, answers });
  }
  return result.messages;
}

interface Client {
  readonly streamed: boolean;
  /** Results in the order of the calls, or reversed. */
  readonly reversed: boolean;
  /** The server holds the conversation. */
  readonly threaded: boolean;
  /** Whether the client gets thoughts. Otherwise the server alone has them. */
  readonly thinks: boolean;
}

/** By a client that sends back what it gets. */
async function asClient(
  script: readonly (ModelReply | string)[],
  { streamed, reversed, threaded, thinks }: Client,
): Promise<readonly Message[]> {
  const model = scriptedModel(script);
  const store = sqliteStore(':memory:');
  const engine: Engine = {
    models: { default: 'm', models: new Map([['m', model]]) },
    store,
    serverTools: { executors: [registeredTools([look])], defaultTools: ['look'] },
    limits: { maxTurns: 10, maxDurationMs: 60_000, toolTimeoutMs: 60_000, errorLimit: 3 },
    runs: activeRuns({ max: 1 }),
    driven: new Map(),
    log,
  };
  const { prepare } = messages(engine, requests(engine));
  const first = { tools: [{ name: 'ask', input_schema: parameters }], messages: [{ role: 'user', content: 'go' }] };
  const history: object[] = [...first.messages];
  let thread: object | undefined = threaded ? { thread: { type: 'create' } } : {};
  let sent: object = first;
  try {
    for (;;) {
      const thinking = thinks && { thinking: { type: 'adaptive' } };
      const events: AnthropicEvent[] = [];
      const body = { model: 'm', max_tokens: 10_000, ...sent, ...thread, ...thinking };
      const prepared = await prepare(parseMessageRequest(body), caller);
      const emit = streamed ? (event: AnthropicEvent): void => void events.push(event) : undefined;
      const message = await prepared.run(emit, new AbortController().signal);
      if (message instanceof ApiError) throw message;
      if (streamed) expect(events.at(-1)).toEqual({ type: 'message_stop' });
      const { content, stop_reason: reason } = JSON.parse(JSON.stringify(message)) as AnthropicMessage;
      if (reason !== 'tool_use') {
        expect([reason, content.at(-1)]).toMatchObject(['end_turn', { text: 'The end.' }]);
        return [
          ...model.requests.at(-1)!.messages,
          { role: 'assistant', content: [{ type: 'text', text: 'The end.' }] },
        ];
      }
      const results = content.flatMap((block) =>
        block.type === 'tool_use'
          ? { type: 'tool_result', tool_use_id: block.id, content: answerTo(JSON.stringify(block.input)) }
          : [],
      );
      const answer = { role: 'user', content: reversed ? results.toReversed() : results };
      history.push({ role: 'assistant', content }, answer);
      sent = threaded ? { messages: [answer] } : { ...first, messages: [...history] };
      thread = threaded ? { thread: { type: 'continue', previous_message_id: message.id } } : {};
    }
  } finally {
    await store.close();
  }
}

test('has the whole conversation, whoever holds it, and whatever the client gets of it', async () => {
  const how = fc.record({
    streamed: fc.boolean(),
    reversed: fc.boolean(),
    threaded: fc.boolean(),
    thinks: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(turn, { maxLength: 5 }), how, async (turns, client) => {
      const script = [...turns.map(replyOf), 'The end.'];
      const expected = withoutIds(await asOneRun(script.map(compactArguments)));
      expect(withoutIds(await asClient(script, client))).toEqual(expected);
    }),
    { numRuns: 20 * CASES },
  );
});

/** Clients parse arguments, and the answers here depend on their text. */
function compactArguments(reply: ModelReply | string): ModelReply | string {
  if (typeof reply === 'string' || reply.type === 'failure') return reply;
  const content = reply.content.map((part) =>
    part.type === 'tool-call' ? { ...part, arguments: JSON.stringify(JSON.parse(part.arguments)) } : part,
  );
  return { ...reply, content };
}
