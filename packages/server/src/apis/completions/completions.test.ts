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
import { sqliteStore } from '@treadle/store';
import fc from 'fast-check';
import pino from 'pino';
import { expect, test } from 'vitest';
import { addedChunks } from '../../../test/added-chunks.ts';
import { ApiError } from '../../api-error.ts';
import { registeredTools } from '../../engine/executors.ts';
import { requests } from '../../requests/requests.ts';
import type { Caller } from '../../http/admission.ts';
import { activeRuns, type Engine } from '../../engine/engine.ts';
import { completions } from './completions.ts';
import { parseCompletion } from './parse-request.ts';

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
  execute: async (input) => `saw ${JSON.stringify(input)}`,
});
const ask = tool({ name: 'ask', description: '', parameters });

/** The client's results depend only on the arguments. */
const answerTo = (json: string): string => `answer to ${json}`;

interface Turn {
  readonly text: string;
  readonly thought: string;
  readonly calls: readonly ('look' | 'ask' | 'unknown')[];
  /** The id of all calls of the model; undefined: unique ids. */
  readonly id: string | undefined;
}

const turn: fc.Arbitrary<Turn> = fc.record({
  text: fc.constantFrom('', 'some text', 'other text'),
  thought: fc.constantFrom('', 'hm'),
  calls: fc.array(fc.constantFrom('look', 'ask', 'unknown'), { minLength: 1, maxLength: 4 }),
  id: fc.constantFrom(undefined, 'same', ''),
});

function replyOf({ text, thought, calls, id }: Turn, number: number): ModelReply {
  // One call succeeds, so that the error limit does not end the run.
  const names = calls.every((name) => name === 'unknown') ? [...calls, 'look'] : calls;
  const content: AssistantPart[] = [
    ...(thought === '' ? [] : [{ type: 'reasoning', text: thought, signature: 'sig', protocol: 'p' } as const]),
    ...(text === '' ? [] : [{ type: 'text', text } as const]),
    ...names.map((name, index): AssistantPart => {
      return { type: 'tool-call', id: id ?? `m${number}${index}`, name, arguments: `{"n": ${number * 10 + index}}` };
    }),
  ];
  return { type: 'reply', content, finish: 'tool-calls', usage: { inputTokens: 1, outputTokens: 1 }, model: 'm' };
}

/** Ids are not compared, only the call that a result belongs to. */
function withoutIds(messages: readonly Message[]): readonly unknown[] {
  let calls: readonly string[] = [];
  return messages.map((message) => {
    if (message.role === 'assistant')
      calls = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
    const content = (message.content as readonly (AssistantPart | ToolResult)[]).map((part) => {
      if (part.type === 'tool-call') return { ...part, id: calls.indexOf(part.id) };
      return part.type === 'tool-result' ? { ...part, callId: calls.indexOf(part.callId) } : part;
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

/** By a client that stores the conversation itself, and answers in call order or reversed. */
async function asClient(
  script: readonly (ModelReply | string)[],
  { streamed, reversed }: { readonly streamed: boolean; readonly reversed: boolean },
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
  const { prepare } = completions(engine, requests(engine));
  const tools = [{ type: 'function', function: { name: 'ask', parameters } }];
  const messages: object[] = [{ role: 'user', content: 'go' }];
  try {
    for (;;) {
      const body = { messages, tools, stream_options: { include_usage: true } };
      const frames: object[] = [];
      const prepared = await prepare(parseCompletion(body), caller);
      const emit = streamed ? (frame: object): void => void frames.push(frame) : undefined;
      const completion = await prepared.run(emit, new AbortController().signal);
      if (completion instanceof ApiError) throw completion;
      if (streamed) expect(addedChunks(frames)).toEqual(completion);
      const [{ message, finish_reason }] = completion.choices;
      if (finish_reason !== 'tool_calls') {
        expect([finish_reason, message.content?.endsWith('The end.')]).toEqual(['stop', true]);
        return [
          ...model.requests.at(-1)!.messages,
          { role: 'assistant', content: [{ type: 'text', text: 'The end.' }] },
        ];
      }
      const results = message.tool_calls!.map((call) => {
        if (call.type !== 'function') throw new Error('There is no tool that takes a text.');
        const { id, function: called } = call;
        expect(called.name).toBe('ask');
        return { role: 'tool', tool_call_id: id, content: answerTo(called.arguments) };
      });
      messages.push(JSON.parse(JSON.stringify(message)), ...(reversed ? results.toReversed() : results));
    }
  } finally {
    await store.close();
  }
}

test('restores the whole conversation for a client that sees only its own calls', async () => {
  const how = fc.record({ streamed: fc.boolean(), reversed: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(turn, { maxLength: 5 }), how, async (turns, how) => {
      const script = [...turns.map(replyOf), 'The end.'];
      expect(withoutIds(await asClient(script, how))).toEqual(withoutIds(await asOneRun(script)));
    }),
    { numRuns: 40 * CASES },
  );
});
