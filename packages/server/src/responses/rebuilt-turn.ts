import type { AssistantPart, Message, ReasoningPart, SaidText, ToolResult } from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { McpCallItem } from '../wire/items.ts';
import { reasoningFrom, type Thought } from './encrypted-content.ts';
import type { InputItem, ReasoningInput, SaidByModel } from './input-items.ts';
import { placeOf } from './ids.ts';

/** A call of a turn that the previous response paused on. */
export interface PausedCall {
  /** `call_id`, as the client knows it. */
  readonly wireId: string;
  readonly callId: string;
  readonly name: string;
  /** The server has answered it. */
  readonly result?: ToolResult;
}

/** What a model gives: of these a turn is made. */
type TurnItem = SaidByModel | Extract<InputItem, { type: 'reasoning' | 'function_call' | 'mcp_call' }>;

/** A turn that is put together again from its items. */
export interface Turn {
  /** Whether the item belongs to this turn, and not to a later one. */
  takes(item: TurnItem, at: string): boolean;
  add(item: TurnItem, at: string): void;
  /** Throws a 400 if no call waits for it. */
  answer(wireId: string, result: Given, at: string): void;
  /** The reply and its results. Throws a 400 if calls are unanswered. */
  close(): readonly Message[];
}

type Given = Pick<ToolResult, 'content' | 'isError'>;

interface Call {
  /** As clients name it; absent for calls that only the server answers. */
  readonly wireId?: string;
  readonly name: string;
  readonly arguments: string;
  /** Its place among the turn's calls, where the id tells. */
  readonly index?: number;
  result?: Given;
}

/** `undefined` stands for a call: which one is known when all are there. */
type Part = SaidText | ReasoningPart | undefined;

/** Of what the model said and did in this request's input. */
export function newTurn(): Turn {
  const parts: Part[] = [];
  const moved: Thought[] = [];
  const calls: Call[] = [];
  const byId = new Map<string, Call>();
  let key: string | undefined;
  let answered = false;

  const call = (made: Call, param: string): void => {
    const { wireId } = made;
    if (wireId !== undefined && byId.has(wireId)) throw calledTwice(wireId, param);
    if (wireId !== undefined) byId.set(wireId, made);
    parts.push(undefined);
    calls.push(made);
  };

  return {
    takes(item) {
      const own = keyOf(item);
      if (own !== undefined && key !== undefined) return own === key;
      // After outputs of the client the model was asked again, and also before words that follow calls with results.
      const goesOn = item.type === 'function_call' || item.type === 'mcp_call';
      return !answered && (goesOn || calls.length === 0 || calls.some(({ result }) => result === undefined));
    },

    add(item, at) {
      key ??= keyOf(item);
      switch (item.type) {
        case 'message':
          parts.push(...textsOf(item));
          break;
        case 'reasoning':
          for (const { part, after } of thoughtsOf(item)) {
            if (after === undefined) parts.push(part);
            else moved.push({ part, after });
          }
          break;
        case 'function_call': {
          const { call_id: wireId, name, arguments: json } = item;
          const index = placeOf(wireId)?.n;
          call({ wireId, name, arguments: json, ...(index !== undefined && { index }) }, `${at}.call_id`);
          break;
        }
        case 'mcp_call':
          call(
            {
              ...(placeOf(item.id) === undefined && { wireId: item.id }),
              name: item.name,
              arguments: item.arguments,
              result: mcpResult(item),
            },
            `${at}.id`,
          );
          break;
        default:
          item satisfies never;
      }
    },

    answer(wireId, result, at) {
      answered = true;
      settle(byId, { wireId, result, at });
    },

    close() {
      checkAnswered(calls);
      const order = inCallOrder(calls).map((call, index) => ({ ...call, id: call.wireId ?? `call_${key}_${index}` }));
      let next = 0;
      const content = inPlace(parts, moved).map((part): AssistantPart => {
        if (part) return part;
        const { id, name, arguments: json } = order[next++]!;
        return { type: 'tool-call', id, name, arguments: json };
      });
      if (content.length === 0) return [];
      const reply: Message = { role: 'assistant', content };
      if (order.length === 0) return [reply];
      return [reply, { role: 'tool', content: order.map(({ id, name, result }) => resultFor(id, name, result!)) }];
    },
  };
}

/** Of a turn whose reply is in the history already, and whose calls the client has to answer. */
export function resumedTurn(open: readonly PausedCall[]): Turn {
  const calls = open.map(({ result, ...call }): PausedCall & { result?: Given } => ({
    ...call,
    ...(result && { result }),
  }));
  const byId = new Map(calls.map((call) => [call.wireId, call]));
  return {
    takes(item, at) {
      if (item.type === 'function_call' && byId.has(item.call_id)) {
        throw badRequest(
          `The call '${item.call_id}' is part of the previous response already. With 'previous_response_id' send only what is new: the outputs.`,
          `${at}.call_id`,
          'duplicate_call',
        );
      }
      return false;
    },
    add() {
      throw new Error('A reply that is in the history takes no more items: `takes` says so.');
    },
    answer: (wireId, result, at) => settle(byId, { wireId, result, at }),
    close() {
      checkAnswered(calls);
      if (calls.length === 0) return [];
      return [{ role: 'tool', content: calls.map(({ callId, name, result }) => resultFor(callId, name, result!)) }];
    },
  };
}

/** The turn that an id of ours names. */
function keyOf(item: TurnItem): string | undefined {
  return (placeOf(item.id) ?? (item.type === 'function_call' ? placeOf(item.call_id) : undefined))?.turn;
}

function resultFor(callId: string, name: string, { content, isError }: Given): ToolResult {
  return { type: 'tool-result', callId, name, content, isError };
}

interface Waiting {
  readonly wireId?: string;
  result?: Given;
}

interface Output {
  readonly wireId: string;
  readonly result: Given;
  readonly at: string;
}

function settle(calls: ReadonlyMap<string, Waiting>, { wireId, result, at }: Output): void {
  const call = calls.get(wireId);
  const param = `${at}.call_id`;
  if (call === undefined) {
    const open = listed([...calls.values()].filter(({ result }) => result === undefined));
    throw badRequest(
      `No tool call found for function call output with call_id '${wireId}'. ${open === '' ? 'No call waits for an output here' : `Waiting for an output: ${open}`}.`,
      param,
      'unknown_call',
    );
  }
  if (call.result !== undefined) {
    throw badRequest(
      `The call '${wireId}' has an output already. Send one output for each call.`,
      param,
      'duplicate_output',
    );
  }
  call.result = result;
}

function checkAnswered(calls: readonly Waiting[]): void {
  const open = calls.filter(({ result }) => result === undefined);
  if (open.length === 0) return;
  throw badRequest(
    `No tool output found for function call ${listed(open)}. Send a 'function_call_output' item for each call, before anything else that follows it.`,
    'input',
    'missing_output',
  );
}

function listed(calls: readonly Waiting[]): string {
  return calls.map(({ wireId }) => wireId).join(', ');
}

function calledTwice(id: string, param: string): Error {
  return badRequest(`Two calls have the id '${id}'. Send each call once.`, param, 'duplicate_call');
}

/**
 * Items come in the order in which they were shown, and that of some calls is late. Those whose ids tell their places
 * go there, and the others fill the gaps.
 */
function inCallOrder(calls: readonly Call[]): readonly Call[] {
  const placed = calls.filter(({ index }) => index !== undefined).sort((a, b) => a.index! - b.index!);
  const others = calls.filter(({ index }) => index === undefined);
  let fromPlaced = 0;
  let fromOthers = 0;
  return calls.map((_, place) => {
    const next = placed[fromPlaced];
    if (next === undefined || (next.index! > place && fromOthers < others.length)) return others[fromOthers++]!;
    fromPlaced++;
    return next;
  });
}

function textsOf({ content, phase }: SaidByModel): readonly SaidText[] {
  return content.flatMap((part) => {
    const text = part.type === 'refusal' ? part.refusal : part.text;
    return text === '' ? [] : [{ type: 'text', text, ...(phase && { phase }) }];
  });
}

function thoughtsOf({ summary, content = [], encrypted_content: sealed }: ReasoningInput): readonly Thought[] {
  const known = sealed === undefined ? undefined : reasoningFrom(sealed);
  if (known) return [known];
  const text = (content.length > 0 ? content : summary).map(({ text }) => text).join('\n\n');
  return text === '' ? [] : [{ part: { type: 'reasoning', text } }];
}

/** The parts, with thoughts that were shown last back where they stood. */
function inPlace(parts: readonly Part[], moved: readonly Thought[]): readonly Part[] {
  const behind = (count: number): readonly Part[] =>
    moved.flatMap(({ part, after }) => (Math.min(after!, parts.length) === count ? part : []));
  return [...parts.flatMap((part, index) => [...behind(index), part]), ...behind(parts.length)];
}

/** What the server answered stands in the call itself, unless a client has left it out. */
function mcpResult({ output, error, status }: McpCallItem): Given {
  const text = output === null ? [] : [{ type: 'text', text: output } as const];
  if (error !== null) return { content: [...text, { type: 'error', text: error.message }], isError: true };
  if (output !== null) return { content: text, isError: status === 'failed' };
  if (status === 'completed')
    return { content: [{ type: 'text', text: '(The output of this call was left out.)' }], isError: false };
  return { content: [{ type: 'error', text: 'The call was not finished.' }], isError: true };
}
