import { createSecretKey } from 'node:crypto';
import type { AssistantPart, Message, ResultBlock, SaidText, ToolResult, UserBlock } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { callIdFor, itemId } from '../ids.ts';
import type { ConversationBefore } from './conversation.ts';
import { reasoningSeal } from '../apis/responses/reasoning-seal.ts';
import { openReasoning } from './restore-history.ts';
import { conversationFrom } from './restore-messages.ts';
import { parseRequest } from '../apis/responses/parse-request.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/** A part of a turn. `kind`: who executes a call. */
type Said =
  | SaidText
  | { readonly type: 'reasoning'; readonly text: string; readonly signature?: string; readonly protocol?: string }
  | {
      readonly type: 'call';
      readonly kind: 'client' | 'server';
      readonly name: string;
      readonly arguments: string;
      readonly result: CallResult;
    };

interface CallResult {
  readonly text: string;
  readonly isError: boolean;
  readonly image: boolean;
}

/** A user message, and the turns of the response to it. */
interface Exchange {
  readonly said: readonly UserBlock[];
  readonly turns: readonly (readonly Said[])[];
}

const words = fc.string({ minLength: 1, unit: 'grapheme', maxLength: 12 });
const call = fc.record({
  type: fc.constant('call' as const),
  kind: fc.constantFrom('client' as const, 'server' as const),
  name: fc.constantFrom('get_weather', 'read'),
  arguments: fc.oneof(fc.constant('{}'), words),
  result: fc.record({ text: fc.string({ maxLength: 12 }), isError: fc.boolean(), image: fc.boolean() }),
});
const text = fc.record({ type: fc.constant('text' as const), text: words });
const spoken = fc.record(
  {
    type: fc.constant('text' as const),
    text: words,
    phase: fc.constantFrom('commentary' as const, 'final_answer' as const),
  },
  { requiredKeys: ['type', 'text'] },
);
const reasoning = fc.record(
  { type: fc.constant('reasoning' as const), text: fc.string({ maxLength: 12 }), signature: words, protocol: words },
  { requiredKeys: ['type', 'text'] },
);
const turn: fc.Arbitrary<readonly Said[]> = fc
  .array(fc.oneof(call, call, spoken, reasoning), { minLength: 1, maxLength: 6 })
  .filter((said) => said.some(({ type }) => type === 'call'));
const final: fc.Arbitrary<readonly Said[]> = fc.array(fc.oneof(spoken, reasoning), { minLength: 1, maxLength: 2 });
const block: fc.Arbitrary<UserBlock> = fc.oneof(
  text,
  fc.constant({ type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const),
  fc.constant({
    type: 'file',
    mediaType: 'application/pdf',
    name: 'a.pdf',
    source: { type: 'data', data: 'JVBERi0x' },
  } as const),
);
const exchange: fc.Arbitrary<Exchange> = fc
  .tuple(fc.array(block, { minLength: 1, maxLength: 3 }), fc.array(turn, { maxLength: 4 }), final)
  .map(([said, turns, last]) => ({ said, turns: [...turns, last] }));
const exchanges = fc.array(exchange, { minLength: 1, maxLength: 3 });

/** How a client sends outputs: after all calls, in reverse, or each right after its call. */
const habit = fc.constantFrom('after', 'reversed', 'between');
type Habit = 'after' | 'reversed' | 'between';

const responseId = (index: number): string => `resp_${String(index).padStart(32, 'f')}`;

/** The history of the loop. */
function messagesOf(all: readonly Exchange[]): Message[] {
  return all.flatMap(({ said, turns }, index) => [
    { role: 'user', content: said } as const,
    ...turns.flatMap((turn, number) => turnMessages(turn, responseId(index), number + 1)),
  ]);
}

function turnMessages(turn: readonly Said[], response: string, number: number): Message[] {
  const results: ToolResult[] = [];
  const content = turn.map((part): AssistantPart => {
    if (part.type !== 'call') return part;
    const id = callIdFor(response, number, results.length);
    const { name, kind, result } = part;
    const { isError } = result;
    results.push({ type: 'tool-result', callId: id, name, content: resultBlocks(kind, result), isError });
    return { type: 'tool-call', id, name, arguments: part.arguments };
  });
  const reply: Message = { role: 'assistant', content };
  return results.length === 0 ? [reply] : [reply, { role: 'tool', content: results }];
}

function resultBlocks(kind: 'client' | 'server', { text, isError, image }: CallResult): readonly ResultBlock[] {
  if (kind === 'server') return [{ type: isError ? 'error' : 'text', text }];
  const shown: ResultBlock = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } };
  return image ? [{ type: 'text', text }, shown] : [{ type: 'text', text }];
}

/** The same conversation as items, as a client sends them that stores the conversation itself. */
function itemsOf(all: readonly Exchange[], habit: Habit): object[] {
  return all.flatMap(({ said, turns }, index) => [
    { role: 'user', content: said.map(wirePart) },
    ...turns.flatMap((turn, number) => turnItems(turn, { response: responseId(index), number: number + 1, habit })),
  ]);
}

interface Wire {
  readonly response: string;
  readonly number: number;
  readonly habit: Habit;
}

const SEAL = reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme');

function turnItems(turn: readonly Said[], { response, number, habit }: Wire): object[] {
  const items: object[] = [];
  const outputs: object[] = [];
  let calls = 0;
  for (const [n, part] of turn.entries()) {
    const id = (kind: Parameters<typeof itemId>[0]): string => itemId(kind, response, number, n);
    if (part.type === 'text') {
      const content = [{ type: 'output_text', text: part.text, annotations: [], logprobs: [] }];
      items.push({
        type: 'message',
        id: id('message'),
        role: 'assistant',
        status: 'completed',
        ...(part.phase && { phase: part.phase }),
        content,
      });
    } else if (part.type === 'reasoning') {
      const summary = part.text === '' ? [] : [{ type: 'summary_text', text: part.text }];
      items.push({ type: 'reasoning', id: id('reasoning'), summary, encrypted_content: SEAL.seal(part) });
    } else {
      const { kind, name, arguments: json, result } = part;
      const call_id = callIdFor(response, number, calls++);
      if (kind === 'server') {
        const [output, error] = result.isError ? [null, result.text] : [result.text, null];
        items.push({
          type: 'mcp_call',
          id: id('mcp_call'),
          server_label: 'treadle',
          name,
          arguments: json,
          output,
          error,
        });
        continue;
      }
      items.push({ type: 'function_call', id: id('function_call'), call_id, name, arguments: json });
      const text = { type: 'input_text', text: result.text };
      const output = result.image
        ? [text, { type: 'input_image', image_url: 'data:image/png;base64,AAAA' }]
        : result.text;
      const item = { type: 'function_call_output', call_id, output, ...(result.isError && { is_error: true }) };
      (habit === 'between' ? items : outputs).push(item);
    }
  }
  return [...items, ...(habit === 'reversed' ? outputs.reverse() : outputs)];
}

function wirePart(block: UserBlock): object {
  switch (block.type) {
    case 'text':
      return { type: 'input_text', text: block.text };
    case 'image':
      return { type: 'input_image', image_url: 'data:image/png;base64,AAAA' };
    case 'file':
      return { type: 'input_file', filename: block.name, file_data: 'data:application/pdf;base64,JVBERi0x' };
    default:
      return block satisfies never;
  }
}

test('a conversation that a client sends back is restored unchanged', () => {
  fc.assert(
    fc.property(exchanges, habit, (all, habit) => {
      const request = parseRequest(JSON.parse(JSON.stringify({ input: itemsOf(all, habit as Habit) })));
      expect(conversationFrom(openReasoning(request.input, SEAL))).toEqual({ messages: messagesOf(all), system: [] });
    }),
    { numRuns: 300 * CASES },
  );
});

test('a paused turn continues equally from the stored response and from the items of the client', () => {
  fc.assert(
    fc.property(exchanges, turn, habit, (all, paused, habit) => {
      const response = responseId(99);
      const asked: Message = { role: 'user', content: [{ type: 'text', text: 'Now?' }] };
      const [reply, results] = turnMessages(paused, response, 1);
      const whole = [...messagesOf(all), asked, reply!, results!];
      const wire = turnItems(paused, { response, number: 1, habit: habit as Habit });

      const kept = parseRequest({ input: [...itemsOf(all, 'after'), { role: 'user', content: 'Now?' }, ...wire] });
      expect(conversationFrom(openReasoning(kept.input, SEAL)).messages).toEqual(whole);

      const kinds = paused.flatMap((part) => (part.type === 'call' ? part.kind : []));
      const calls = (results!.content as readonly ToolResult[]).map((result, index) => ({
        wireId: result.callId,
        callId: result.callId,
        name: result.name,
        ...(kinds[index] === 'server' && { result }),
      }));
      const before: ConversationBefore = { messages: whole.slice(0, -1), system: [], open: { calls } };
      const outputs = wire.filter((item) => 'type' in item && item.type === 'function_call_output');
      const { input } = parseRequest({ previous_response_id: response, input: outputs });
      expect(conversationFrom(input, before).messages).toEqual(whole);
    }),
    { numRuns: 150 * CASES },
  );
});
