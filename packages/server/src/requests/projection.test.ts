import { createSecretKey } from 'node:crypto';
import { BetaMessageStream } from '@anthropic-ai/sdk/lib/BetaMessageStream';
import type { AnthropicEvent, AnthropicMessage } from '@treadle/models/anthropic-wire';
import fc from 'fast-check';
import { ResponseStream } from 'openai/lib/responses/ResponseStream';
import { describe, expect, test } from 'vitest';
import {
  memoryJournal,
  runLoop,
  tool,
  type AssistantPart,
  type Finish,
  type Item,
  type Model,
  type ModelReply,
  type Tool,
  type ToolDefinition,
} from '@treadle/core';
import { inPieces, isPiece, picking, recut, withoutTails } from '../../test/pieces.ts';
import { createdResponse, RESPONSE_ID, responseOutput, type ResponseOutputOptions } from '../../test/response.ts';
import { checkStream, type WireEvent, type WireResponse } from '../../test/stream-rules.ts';
import { chatProjection } from '../apis/chat/projection.ts';
import type { AnswerPart, ChatEvent } from '../apis/chat/wire.ts';
import { completionProjection } from '../apis/completions/projection.ts';
import { callProjection } from '../apis/mcp/projection.ts';
import {
  messageProjection,
  replayedEvents,
  type MessageProjectionOptions,
  type MessageResult,
} from '../apis/messages/projection.ts';
import { responseProjection } from '../apis/responses/projection.ts';
import { reasoningSeal } from '../apis/responses/reasoning-seal.ts';
import { presentedResponse, type ResponseResource } from '../apis/responses/wire.ts';
import type { CallKinds } from '../engine/tools.ts';
import { completionId } from '../history/restore-turns.ts';
import { callIdFor } from '../ids.ts';
import { walkRun, type Projection } from './projection.ts';
import type { FinalEnd } from './requests.ts';
import { endingOf, type Ending } from './ending.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const SEAL = reasoningSeal(createSecretKey(new Uint8Array(32)), 'acme');

/** One reply of the model, or how it is interrupted. */
interface Step {
  readonly content: readonly AssistantPart[];
  readonly finish: Finish;
  /** The seed of its deltas; absent: no deltas. */
  readonly pieces: number | undefined;
  /** After how many deltas the interruption happens. */
  readonly breaks?: { readonly after: number; readonly by: 'failure' | 'cancel' };
}

interface World {
  readonly steps: readonly Step[];
  readonly limits: { readonly calls?: number };
  readonly choice: 'auto' | 'none' | 'required' | { readonly tool: string };
  readonly allowed: readonly string[] | undefined;
  readonly maxTurns: number;
  readonly encrypted: boolean;
  readonly requiresAction: boolean;
}

const CLIENT = ['ask_user', 'pay'];
const SERVER = ['read', 'explode', 'look', 'stop'];

function toolsFor(cancel: () => void): Tool[] {
  const parameters = { type: 'object' } as const;
  const made = (name: string, execute: ToolDefinition['execute']): Tool =>
    tool({ name, description: '', parameters, ...(execute && { execute }) });
  return [
    ...CLIENT.map((name) => tool({ name, description: '', parameters, asWritten: true, uncounted: true })),
    made('read', () => 'all of it'),
    made('explode', () => {
      throw new Error('boom');
    }),
    made('look', () => ({
      content: [
        { type: 'text', text: 'here' },
        { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } },
      ],
    })),
    made('stop', (_input, { signal }) => {
      cancel();
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))));
    }),
  ];
}

function kindsOf({ choice, allowed }: World): CallKinds {
  return {
    labelOf: (name) => `label of ${name}`,
    kindOf(name, index) {
      if (SERVER.includes(name)) return 'server';
      if (!CLIENT.includes(name) || choice === 'none' || index >= 128) return 'refused';
      if (allowed && !allowed.includes(name)) return 'refused';
      const isForced = typeof choice === 'object' && choice.tool !== name;
      return isForced ? 'client-later' : 'client';
    },
  };
}

const part: fc.Arbitrary<AssistantPart> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record(
      { type: fc.constant('text' as const), text: fc.string({ maxLength: 12 }), refusal: fc.constant(true as const) },
      { requiredKeys: ['type', 'text'] },
    ),
  },
  {
    weight: 2,
    arbitrary: fc.record(
      {
        type: fc.constant('reasoning' as const),
        text: fc.string({ maxLength: 12, unit: 'grapheme' }),
        summary: fc.constant(true as const),
        signature: fc.string({ minLength: 1, maxLength: 4 }),
        protocol: fc.constant('p'),
      },
      { requiredKeys: ['type', 'text'] },
    ),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant('tool-call' as const),
      id: fc.constantFrom('', 'a', 'b', 'call_t1_0', 'call_t2_1'),
      name: fc.oneof(
        { weight: 6, arbitrary: fc.constantFrom(...CLIENT, 'read', 'look') },
        fc.constantFrom('explode', 'ghost', 'stop', 'no such tool', ''),
      ),
      arguments: fc.constantFrom('{}', '', '{"a":1}', '{"path":"ä\\n/b"}'),
    }),
  },
);

const step: fc.Arbitrary<Step> = fc.record(
  {
    content: fc.array(part, { maxLength: 6 }),
    finish: fc.oneof(
      { weight: 12, arbitrary: fc.constant<Finish>('stop') },
      fc.constantFrom<Finish>('length', 'content-filter'),
    ),
    pieces: fc.option(fc.nat(1000), { nil: undefined, freq: 4 }),
    breaks: fc.record({ after: fc.nat(8), by: fc.constantFrom('failure' as const, 'cancel' as const) }),
  },
  { requiredKeys: ['content', 'finish', 'pieces'] },
);

const world: fc.Arbitrary<World> = fc.record({
  steps: fc.array(
    fc.oneof({ weight: 6, arbitrary: step.map(({ breaks: _, ...fine }) => fine) }, { weight: 1, arbitrary: step }),
    { minLength: 1, maxLength: 4 },
  ),
  limits: fc.oneof(fc.constant({}), fc.record({ calls: fc.integer({ min: 1, max: 4 }) })),
  choice: fc.constantFrom<World['choice']>(
    'auto',
    'auto',
    'auto',
    'none',
    'required',
    { tool: 'read' },
    { tool: 'pay' },
  ),
  allowed: fc.option(
    fc.subarray(['ask_user', 'explode']).map((names) => ['read', 'pay', ...names]),
    { nil: undefined, freq: 2 },
  ),
  maxTurns: fc.integer({ min: 1, max: 4 }),
  encrypted: fc.boolean(),
  requiresAction: fc.boolean(),
});

interface Ran {
  readonly items: readonly Item[];
  readonly ending: Ending;
}

/** Like the server: a reply that reached the token limit is the last one, and its calls are not answered. */
async function randomRun({ steps, limits, choice, allowed, maxTurns }: World): Promise<Ran> {
  const controller = new AbortController();
  const items: Item[] = [];
  let next = 0;
  let wasCut = false;
  const model: Model = {
    id: 'm',
    async reply(_request, emit) {
      if (wasCut) controller.abort();
      const { content, finish, pieces, breaks } = steps[next++ % steps.length]!;
      const deltas = pieces === undefined || wasCut ? [] : inPieces(content, picking(pieces));
      for (const delta of breaks ? deltas.slice(0, breaks.after) : deltas) emit(delta);
      if (breaks?.by === 'cancel') controller.abort();
      if (breaks?.by === 'failure') return FAILURE;
      wasCut ||= finish === 'length';
      return { type: 'reply', content, finish, usage: { inputTokens: 3, outputTokens: 2 }, model: 'm' };
    },
  };
  const around = {
    runId: RESPONSE_ID,
    journal: memoryJournal(),
    model,
    tools: toolsFor(() => controller.abort()),
    onItem: (item: Item) => void items.push(item),
  };
  const result = await runLoop({
    ...around,
    input: 'go',
    toolChoice: choice,
    ...(allowed && { allowedTools: allowed }),
    limits,
    maxTurns,
    signal: controller.signal,
  });
  if (!wasCut) return { items, ending: endingOf(result, { isSpent: false, failure: undefined, at: AT }) };
  if (!result.outcome) await runLoop({ ...around, signal: AbortSignal.abort() });
  const { usage } = result;
  return { items, ending: { at: AT, usage, type: 'incomplete', reason: 'max_output_tokens' } };
}

const FAILURE: ModelReply = {
  type: 'failure',
  error: { code: 'overloaded', message: 'too busy', retryable: false },
};

const AT = 1_700_000_009_999;

/** A model call was interrupted: its deltas were sent, but are not part of a fact. */
function wasBrokenOff({ steps }: World): boolean {
  return steps.some(({ breaks }) => breaks);
}

type AnyProjection = Projection<object, object, unknown>;

const HEAD = {
  id: completionId(RESPONSE_ID),
  created: 0,
  model: 'm',
  service_tier: 'default',
  system_fingerprint: null,
};

function messageOptions(sample: World): MessageProjectionOptions {
  return {
    runId: RESPONSE_ID,
    model: 'm',
    calls: kindsOf(sample),
    names: new Map(),
    thinking: sample.encrypted ? { display: sample.requiresAction ? 'omitted' : 'summarized', seal: SEAL } : undefined,
    edited: null,
    stops: [],
    answerOnly: !sample.encrypted && sample.requiresAction,
  };
}

const PROJECTIONS: Readonly<Record<string, (sample: World) => AnyProjection>> = {
  responses: (sample) =>
    responseProjection({
      response: createdResponse(),
      calls: kindsOf(sample),
      seal: sample.encrypted ? SEAL : undefined,
      carrier: sample.encrypted ? undefined : SEAL,
      requiresAction: sample.requiresAction,
    }) as AnyProjection,
  completions: (sample) =>
    completionProjection({
      head: HEAD,
      calls: kindsOf(sample),
      includeUsage: sample.encrypted,
      lastTextOnly: sample.requiresAction,
    }) as AnyProjection,
  messages: (sample) => messageProjection(messageOptions(sample)) as AnyProjection,
  chat: () => chatProjection(RESPONSE_ID) as AnyProjection,
  mcp: () => callProjection as AnyProjection,
};

/** The events of a run, and its result. `cut`: the state is replaced by a copy before this item. */
function project(
  { start, open, project: next, end, result, last }: AnyProjection,
  items: readonly Item[],
  how: FinalEnd,
  cut?: number,
): { readonly events: readonly object[]; readonly result: unknown } {
  let state = start({ sent: [], isSilent: false });
  const events: object[] = [...(open?.(state) ?? [])];
  for (const [index, item] of items.entries()) {
    // A copy has no functions: a state with one cannot be copied.
    if (index === cut) state = structuredClone(state);
    events.push(...next(state, item));
  }
  events.push(...(end?.(state, how) ?? []), ...(last?.(state, undefined) ?? []));
  return { events: structuredClone(events), result: result(state) };
}

describe.each(Object.entries(PROJECTIONS))('the projection of %s', (_, projectionOf) => {
  test('is a function of the items and of a state that is a plain value', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat(), async (sample, at) => {
        const { items, ending } = await randomRun(sample);
        const whole = project(projectionOf(sample), items, { ending });
        const cut = at % (items.length + 1);
        expect(project(projectionOf(sample), items, { ending }, cut)).toEqual(whole);
      }),
      { numRuns: 50 * CASES },
    );
  });

  test('makes the same result of a run that is resumed from its journal', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat(), async (sample, at) => {
        const { items, ending } = await randomRun(sample);
        if (wasBrokenOff(sample)) return;
        const known = items.slice(0, at % (items.length + 1)).findLastIndex((item) => !isPiece(item)) + 1;
        const walk = walkRun(projectionOf(sample));
        walk.replay({ items: items.slice(0, known).filter((item) => !isPiece(item)) });
        for (const item of items.slice(known)) void walk.add(item);
        expect(walk.end({ ending })).toEqual(project(projectionOf(sample), items, { ending }).result);
      }),
      { numRuns: 50 * CASES },
    );
  });
});

/** The parts that the events of an answer add up to. Fails if an event that happens once is repeated. */
function addedUp(events: readonly ChatEvent[]): { readonly texts: AnswerPart[]; readonly calls: AnswerPart[] } {
  const texts = new Map<string, Extract<AnswerPart, { type: 'text' | 'reasoning' }>>();
  const calls = new Map<string, Extract<AnswerPart, { type: 'tool_call' }>>();
  for (const event of events) {
    if (event.type === 'token_delta' || event.type === 'reasoning_delta') {
      const { text } = texts.get(event.id) ?? { text: '' };
      texts.set(event.id, { type: event.type === 'token_delta' ? 'text' : 'reasoning', text: text + event.delta });
    } else if (event.type === 'warning') {
      const about = texts.get(event.item!);
      expect(about).toMatchObject({ text: expect.any(String) });
      if (event.code === 'item_incomplete') texts.delete(event.item!);
      else texts.set(event.item!, { ...about!, stopped: true });
    } else if (event.type === 'tool_call_start') {
      expect(calls.has(event.id)).toBe(false);
      calls.set(event.id, { ...event, type: 'tool_call', result: null });
    } else if (event.type === 'tool_call_result') {
      const { type: _, id, ...result } = event;
      expect(calls.get(id)).toMatchObject({ result: null });
      calls.set(id, { ...calls.get(id)!, result });
    }
  }
  expect(events.filter(({ type }) => type === 'usage')).toHaveLength(1);
  return { texts: [...texts.values()], calls: [...calls.values()] };
}

test('the stream of an answer that is cut anywhere continues without loss or repetition', async () => {
  await fc.assert(
    fc.asyncProperty(world, fc.nat(), fc.nat(4), fc.boolean(), async (sample, at, ahead, isTwice) => {
      const { items, ending } = await randomRun(sample);
      const stored = at % (items.length + 1);
      // The journal has an event before anything of it is sent.
      const known = Math.min(items.length, stored + ahead);
      const lost = items.slice(0, known).findLastIndex((item) => !isPiece(item)) + 1;
      const replayed = items.slice(0, lost).filter((item) => !isPiece(item));
      const events: ChatEvent[] = [];
      const walk = (sent?: readonly ChatEvent[]) =>
        walkRun(chatProjection(RESPONSE_ID), { emit: (event) => void events.push(structuredClone(event)), sent });
      const first = walk();
      for (const item of items.slice(0, stored)) void first.add(item);
      // The process that continues may die too.
      if (isTwice) walk([...events]).replay({ items: replayed });
      const out = walk([...events]);
      out.replay({ items: replayed });
      for (const item of items.slice(lost)) void out.add(item);
      const parts = out.end({ ending });
      const { texts, calls } = addedUp(events);
      expect(parts.filter(({ type }) => type === 'tool_call')).toEqual(calls);
      expect(parts.filter(({ type }) => type !== 'tool_call')).toEqual(texts);
      if (!wasBrokenOff(sample)) expect(parts).toEqual(project(PROJECTIONS['chat']!(sample), items, { ending }).result);
    }),
    { numRuns: 100 * CASES },
  );
});

/** The message that the official client adds up from a stream. Rejects where its user would see an error. */
async function addedMessage(events: readonly object[]): Promise<unknown> {
  const lines = events.map((event) => `${JSON.stringify(event)}\n`);
  const stream = ReadableStream.from(lines.map((line) => new TextEncoder().encode(line))) as ReadableStream;
  const { parsed_output: _, ...message } = await BetaMessageStream.fromReadableStream(stream).finalMessage();
  return JSON.parse(JSON.stringify(message));
}

describe('messages over random runs', () => {
  /** The blocks of a stream, each with its deltas. Fails unless one is open at a time, with an index of its own. */
  function checkBlocks(events: readonly AnthropicEvent[], isFailed = false): void {
    const blocks = events.filter(({ type }) => type.startsWith('content_block_'));
    let open: number | undefined;
    let next = 0;
    for (const event of blocks) {
      if (event.type === 'content_block_start') {
        expect([open, event.index]).toEqual([undefined, next++]);
        open = event.index;
      } else {
        expect((event as { index: number }).index).toBe(open);
        if (event.type === 'content_block_stop') open = undefined;
      }
    }
    if (!isFailed) expect(open).toBe(undefined);
  }

  test('the official client adds up the same message, for any deltas', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat(1000), async (sample, seed) => {
        const { items, ending } = await randomRun(sample);
        const projection = PROJECTIONS['messages']!(sample);
        for (const streamed of [items, recut(items, picking(seed))]) {
          const { events, result } = project(projection, streamed, { ending });
          const { message } = result as MessageResult;
          const wasFailed = message instanceof Error;
          checkBlocks(events as readonly AnthropicEvent[], wasFailed);
          // What was sent of a reply that is not part of the message cannot be taken back.
          if (wasFailed || wasBrokenOff(sample) || sample.steps.some(({ finish }) => finish !== 'stop')) continue;
          const whole = JSON.parse(JSON.stringify(message)) as AnthropicMessage;
          const added = (await addedMessage(events)) as AnthropicMessage;
          const isAnswered = (block: { type: string; id?: string }): boolean =>
            block.type !== 'tool_use' || whole.content.some((one) => 'id' in one && one.id === block.id);
          expect({ ...added, content: added.content.filter(isAnswered) }).toEqual(whole);
        }
      }),
      { numRuns: 100 * CASES },
    );
  });

  test('a message makes the same events again', async () => {
    await fc.assert(
      fc.asyncProperty(world, async (sample) => {
        const { items, ending } = await randomRun(sample);
        const { message } = project(PROJECTIONS['messages']!(sample), items, { ending }).result as MessageResult;
        if (message instanceof Error) return;
        const events = replayedEvents(message);
        checkBlocks(events);
        expect(await addedMessage(events)).toEqual(JSON.parse(JSON.stringify(message)));
      }),
      { numRuns: 50 * CASES },
    );
  });
});

describe('a run that is resumed', () => {
  const started: Item = { type: 'turn-started', turn: 1 };
  const content = [{ type: 'text', text: 'Noon.' }] as const;
  const usage = { inputTokens: 0, outputTokens: 0 };
  const event = { type: 'model-replied', at: 4, effect: 't1.model.0', content, finish: 'stop', usage } as const;
  const replied: Item = { type: 'fact', seq: 2, event: { ...event, checks: [], model: 'm' } };
  const id = `msg_${RESPONSE_ID.slice('resp_'.length)}_1_0`;

  function replayedEvents(items: readonly Item[], sent?: readonly ChatEvent[], isOver = false): readonly ChatEvent[] {
    const events: ChatEvent[] = [];
    const walk = walkRun(chatProjection(RESPONSE_ID), { emit: (one) => void events.push(one), sent });
    walk.replay({ items, isOver });
    return events;
  }

  test('sends nothing again to a client that has everything', () => {
    expect(replayedEvents([started, replied])).toEqual([]);
  });

  test('sends what the stream does not have', () => {
    expect(replayedEvents([started, replied], [])).toEqual([{ type: 'token_delta', id, delta: 'Noon.' }]);
    const sent = [{ type: 'token_delta', id, delta: 'No' }] as const;
    expect(replayedEvents([started, replied], sent)).toEqual([{ type: 'token_delta', id, delta: 'on.' }]);
  });

  test('marks a text whose reply was lost as incomplete, unless the model is not called again', () => {
    const sent = [{ type: 'token_delta', id, delta: 'No' }] as const;
    expect(replayedEvents([started], sent)).toMatchObject([{ type: 'warning', code: 'item_incomplete', item: id }]);
    expect(replayedEvents([started], sent, true)).toEqual([]);
  });
});

interface StreamedRun {
  readonly response: ResponseResource;
  readonly events: readonly WireEvent[];
}

function streamRun(
  items: readonly Item[],
  ending: Ending,
  options: Omit<ResponseOutputOptions, 'response' | 'emit'>,
): StreamedRun {
  const events: WireEvent[] = [];
  const out = responseOutput({
    response: createdResponse(),
    ...options,
    emit: (event) => void events.push(plain(event)),
  });
  out.sendCreated();
  for (const item of items) void out.addItem(item);
  const response = out.endResponse(ending);
  out.sendTerminal();
  return { response: plain(response), events };
}

interface Cut extends Omit<ResponseOutputOptions, 'response' | 'emit' | 'sent'> {
  /** The events of so many items were stored. */
  readonly stored: number;
  /** The journal has what is in so many items. */
  readonly known: number;
}

interface ResumedStream extends StreamedRun {
  /** Deltas of a reply were stored that is not in the journal. */
  readonly isReplyLost: boolean;
}

/** The stream of a run whose process died. Its model repeats the reply that was lost. */
function resumeRun(items: readonly Item[], ending: Ending, { stored, known, ...options }: Cut): ResumedStream {
  const sent: WireEvent[] = [];
  const first = responseOutput({
    response: { ...createdResponse(), status: 'queued' },
    ...options,
    emit: (event) => void sent.push(plain(event)),
  });
  first.sendCreated();
  for (const item of items.slice(0, stored)) void first.addItem(item);
  const events = [...sent];
  const out = responseOutput({
    response: { ...createdResponse(), status: 'queued' },
    ...options,
    sent: plain(sent),
    emit: (event) => void events.push(plain(event)),
  });
  out.sendCreated();
  const lost = items.slice(0, known).findLastIndex((item) => !isPiece(item)) + 1;
  out.replay(items.slice(0, lost).filter((item) => !isPiece(item)));
  for (const item of items.slice(lost)) void out.addItem(item);
  const response = out.endResponse(ending);
  out.sendTerminal();
  return { response: plain(response), events, isReplyLost: lost < stored };
}

/** Each sealing differs. */
function unsealed(item: object): object {
  return { ...item, encrypted_content: undefined };
}

function plain<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

/** The response that the official client accumulates from a stream. Rejects where its user would see an error. */
async function accumulated(events: readonly WireEvent[]): Promise<WireResponse> {
  const lines = events.map((event) => `${JSON.stringify(event)}\n`);
  const stream = ReadableStream.from(lines.map((line) => new TextEncoder().encode(line))) as ReadableStream;
  const response = await ResponseStream.fromReadableStream(stream).finalResponse();
  return withoutAdditions(response) as WireResponse;
}

/** Without the fields that the client adds. */
function withoutAdditions(value: unknown): unknown {
  const added = ['output_text', 'output_parsed', 'parsed', 'parsed_arguments'];
  return JSON.parse(JSON.stringify(value, (key, field: unknown) => (added.includes(key) ? undefined : field)));
}

describe('responses over random runs', () => {
  test('streams follow the rules, and end with the response', async () => {
    await fc.assert(
      fc.asyncProperty(world, async (sample) => {
        const { items, ending } = await randomRun(sample);
        const options = {
          calls: kindsOf(sample),
          seal: sample.encrypted ? SEAL : undefined,
          requiresAction: sample.requiresAction,
        };
        const { events, response } = streamRun(items, ending, options);
        const checked = checkStream(events);
        expect(checked.response).toEqual(presentedResponse(response, sample.requiresAction));
        checkCalls(sample, items, response, ending);
      }),
      { numRuns: 200 * CASES },
    );
  });

  test('a reply makes the same response for any deltas, and without deltas', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat(1000), async (sample, seed) => {
        const { items, ending } = await randomRun(sample);
        const options = {
          calls: kindsOf(sample),
          seal: sample.encrypted ? SEAL : undefined,
          requiresAction: sample.requiresAction,
        };
        const { response } = streamRun(items, ending, options);
        const pick = picking(seed);
        expect(streamRun(recut(items, pick), ending, options).response).toEqual(response);
        if (wasBrokenOff(sample)) return;
        const others = [withoutTails(items, pick), items.filter((item) => !isPiece(item))];
        for (const other of others) {
          const streamed = streamRun(other, ending, options);
          expect(streamed.response).toEqual(response);
          checkStream(streamed.events);
        }
      }),
      { numRuns: 100 * CASES },
    );
  });

  test('a stream that is cut anywhere continues without loss or repetition', async () => {
    await fc.assert(
      fc.asyncProperty(world, fc.nat(), fc.nat(4), async (sample, at, ahead) => {
        const { items, ending } = await randomRun(sample);
        const options = {
          calls: kindsOf(sample),
          seal: sample.encrypted ? SEAL : undefined,
          requiresAction: sample.requiresAction,
        };
        const stored = at % (items.length + 1);
        // The journal has an event before anything of it is sent.
        const known = Math.min(items.length, stored + ahead);
        const { events, response, isReplyLost } = resumeRun(items, ending, { ...options, stored, known });
        const checked = checkStream(events, { wasResumed: true });
        expect(checked.response).toEqual(presentedResponse(response, sample.requiresAction));
        if (isReplyLost || wasBrokenOff(sample)) return;
        const whole = streamRun(items, ending, options);
        expect(response.output.map(unsealed)).toEqual(whole.response.output.map(unsealed));
      }),
      { numRuns: 150 * CASES },
    );
  });

  test('the official client accumulates the same response', async () => {
    await fc.assert(
      fc.asyncProperty(world, async (sample) => {
        const { items, ending } = await randomRun(sample);
        const options = {
          calls: kindsOf(sample),
          seal: sample.encrypted ? SEAL : undefined,
          requiresAction: sample.requiresAction,
        };
        const { events } = streamRun(items, ending, options);
        const last = events.at(-1)!['response'] as ResponseResource;
        if (last.status === 'failed') {
          await expect(accumulated(events)).rejects.toMatchObject({
            message: last.error!.message,
            code: 'server_error',
          });
        } else expect(await accumulated(events)).toEqual(last);
        // The accumulated items, before the terminal event replaces them.
        const before = events.slice(0, last.status === 'failed' ? -2 : -1);
        expect((await accumulated(before)).output).toEqual(last.output);
      }),
      { numRuns: 60 * CASES },
    );
  });
});

describe('a response to a run with lists of tools, approvals and tools that take a text', () => {
  const call = (id: string, name: string, args: object): AssistantPart & { type: 'tool-call' } => ({
    type: 'tool-call',
    id,
    name,
    arguments: JSON.stringify(args),
  });
  const answer = (turn: number, index: number, id: string, name: string): object => ({
    type: 'call-answered',
    turn,
    index,
    result: {
      type: 'tool-result',
      callId: id,
      name,
      content: [{ type: 'text', text: `${turn}.${index}` }],
      isError: false,
    },
  });
  const tokens = ['Let ', 'me.'].map((token) => ({ token, logprob: -1, bytes: [], top: [] }));
  const items: readonly Item[] = [
    { type: 'call-started', turn: 0, index: 0 },
    { type: 'call-started', turn: 0, index: 1 },
    answer(0, 1, 'b', 'look'),
    answer(0, 0, 'a', 'look'),
    { type: 'turn-started', turn: 1 },
    { type: 'text-delta', turn: 1, text: 'Let ', logprobs: [tokens[0]!] },
    { type: 'text-delta', turn: 1, text: 'me.', logprobs: [tokens[1]!] },
    { type: 'call-delta', turn: 1, call: 0, name: 'patch', arguments: '{"input":' },
    {
      type: 'fact',
      event: {
        type: 'model-replied',
        effect: 't1.model.0',
        content: [
          { type: 'text', text: 'Let me.', logprobs: tokens },
          call('p', 'patch', { input: 'a text' }),
          call('c', 'look', { at: 1 }),
          call('d', 'look', { at: 1 }),
        ],
        finish: 'tool-calls',
        usage: { inputTokens: 1, outputTokens: 1 },
        model: 'm',
      },
    },
    {
      type: 'fact',
      event: {
        type: 'calls-judged',
        turn: 1,
        verdicts: [{ type: 'allow' }, { type: 'ask', rule: 'needsApproval' }, { type: 'ask', rule: 'needsApproval' }],
      },
    },
    { type: 'call-started', turn: 1, index: 2 },
    { type: 'call-started', turn: 1, index: 1 },
    answer(1, 2, 'd', 'look'),
    answer(1, 1, 'c', 'look'),
  ] as never;
  const options = {
    calls: {
      kindOf: (name: string) => (name === 'patch' ? 'client' : 'approved-later'),
      isCustom: (name: string) => name === 'patch',
      labelOf: () => 'files',
    } satisfies CallKinds,
    lists: [{ label: 'files', tools: [{ name: 'look', description: '', schema: {} }] }],
    begunWith: new Map(
      ['a', 'b'].map((id, index) => [
        index,
        { call: call(id, 'look', {}), approval: { index, requestId: `mcpr_${id}`, approved: true } },
      ]),
    ),
    requiresAction: true,
  };
  const place = (event: WireEvent): number => event['output_index'] as number;
  const ending: Ending = { at: AT, usage: { inputTokens: 1, outputTokens: 1 }, type: 'completed' };

  test('continues without loss or repetition, wherever it is cut', () => {
    const whole = streamRun(items, ending, options);
    expect(whole.response.output.map(({ type }) => type)).toEqual([
      'mcp_list_tools',
      'mcp_call',
      'mcp_call',
      'message',
      'custom_tool_call',
      'mcp_approval_request',
      'mcp_approval_request',
      'mcp_call',
      'mcp_call',
    ]);
    for (let stored = 0; stored <= items.length; stored++) {
      for (const known of [stored, Math.min(items.length, stored + 3)]) {
        const { events, response, isReplyLost } = resumeRun(items, ending, { ...options, stored, known });
        expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, number) => number));
        const itemsOf = (type: string) =>
          events.filter((event) => event.type === type).sort((one, two) => place(one) - place(two));
        const added = itemsOf('response.output_item.added').map(place);
        expect(added).toEqual(response.output.map((_, index) => index));
        expect(itemsOf('response.output_item.done').map(({ item }) => item)).toEqual(response.output);
        expect(events.at(-1)!['response']).toEqual(response);
        if (!isReplyLost) expect(response.output).toEqual(whole.response.output);
      }
    }
  });

  test('tells identical calls apart by their approvals if they are repeated in another order', () => {
    const created = { ...createdResponse(), status: 'queued' } as const;
    const sent: WireEvent[] = [];
    const first = responseOutput({ response: created, ...options, emit: (event) => void sent.push(plain(event)) });
    first.sendCreated();
    void first.addItem({ type: 'call-started', turn: 0, index: 1 } as never);
    const out = responseOutput({ response: created, ...options, sent });
    out.sendCreated();
    out.replay([]);
    for (const [index, id] of ['a', 'b'].entries()) {
      void out.addItem({ type: 'call-started', turn: 0, index } as never);
      void out.addItem(answer(0, index, id, 'look') as never);
    }
    const calls = out.endResponse(ending).output.filter((item) => item.type === 'mcp_call');
    expect(calls.map((item) => [item.approval_request_id, item.output])).toEqual([
      ['mcpr_b', '0.1'],
      ['mcpr_a', '0.0'],
    ]);
  });
});

test('the stream of a call of a built-in tool continues without loss or repetition, wherever it is cut', () => {
  const written = { type: 'tool-call', id: 'a', name: 'shell', arguments: '{"commands":["ls"],}' };
  const usage = { inputTokens: 1, outputTokens: 1 };
  const items: readonly Item[] = [
    { type: 'turn-started', turn: 1 },
    {
      type: 'fact',
      event: {
        type: 'model-replied',
        effect: 't1.model.1',
        content: [written],
        finish: 'tool-calls',
        usage,
        model: 'm',
      },
    },
  ] as never;
  const call = { turn: 1, index: 0, id: 'a', name: 'shell', arguments: '{"commands":["ls"]}' };
  const ending = { at: AT, usage, type: 'pending', waiting: [{ type: 'client', effect: 't1.call.0', call }] } as never;
  const calls: CallKinds = { kindOf: () => 'client-later', builtInOf: () => 'shell', labelOf: () => 'treadle' };
  const options = { calls, requiresAction: false };
  const whole = streamRun(items, ending, options);
  expect(whole.response.output).toMatchObject([
    { type: 'shell_call', action: { commands: ['ls'] }, status: 'completed' },
  ]);
  for (let stored = 2; stored < whole.events.length; stored++) {
    const events = whole.events.slice(0, stored);
    const emit = (event: WireEvent): void => void events.push(plain(event));
    const out = responseOutput({ response: createdResponse(), ...options, sent: plain(events), emit });
    out.sendCreated();
    out.replay(items);
    const response = plain(out.endResponse(ending));
    out.sendTerminal();
    expect(response.output).toEqual(whole.response.output);
    expect(events.map(({ type }) => type)).toEqual(whole.events.map(({ type }) => type));
  }
});

/** Every call occurs once, as its kind requires, and the pending calls are those that the run waits for. */
function checkCalls(sample: World, items: readonly Item[], response: ResponseResource, ending: Ending): void {
  const waiting = ending.type === 'pending' ? ending.waiting : [];
  const pending = waiting.map(({ call }) => callIdFor(RESPONSE_ID, call.turn, call.index));
  expect(response.pending_call_ids ?? []).toEqual(pending);
  if (wasBrokenOff(sample)) return;
  const replies = items.flatMap((item) =>
    item.type === 'fact' && item.event.type === 'model-replied' ? item.event : [],
  );
  const { kindOf } = kindsOf(sample);
  const expected = replies.flatMap(({ content, finish }, turn) => {
    const calls = content.filter(({ type }) => type === 'tool-call');
    return calls.flatMap((call, index) => {
      const kind = kindOf((call as { name: string }).name, index);
      if (kind !== 'client-later') return kind === 'client' ? 'function_call' : 'mcp_call';
      if (finish === 'content-filter') return [];
      return pending.includes(callIdFor(RESPONSE_ID, turn + 1, index)) ? 'function_call' : 'mcp_call';
    });
  });
  const shown = response.output.flatMap(({ type }) => (type.endsWith('_call') ? type : []));
  expect(shown.sort()).toEqual(expected.sort());
  const texts = replies.flatMap(({ content }) => content.flatMap((one) => (one.type === 'text' ? one.text : [])));
  const said = response.output.flatMap((item) =>
    item.type === 'message' ? item.content.map((part) => (part.type === 'refusal' ? part.refusal : part.text)) : [],
  );
  expect(said.join('')).toBe(texts.join(''));
}
