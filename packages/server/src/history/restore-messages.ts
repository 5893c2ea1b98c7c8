import type {
  AssistantPart,
  Message,
  ReasoningPart,
  ResultBlock,
  SaidText,
  ToolCall,
  ToolResult,
  UserBlock,
  UserMessage,
} from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { ApprovedCall, ConversationBefore, OpenTurn, PausedCall } from './conversation.ts';
import { itemOrigin } from '../ids.ts';
import { fileBlock, imageBlock } from '../parse/media.ts';
import { summaryMessage, type CompactedConversation } from '../apis/responses/compaction.ts';
import type { DecodedReasoning } from '../apis/responses/reasoning-seal.ts';
import type {
  CompactionItem,
  FunctionCallItem,
  FunctionCallOutputItem,
  InputItem,
  InputPart,
  McpApprovalResponseItem,
  McpCallItem,
  MessageItem,
  ReasoningItem,
  PASSED_OVER,
} from '../apis/responses/wire.ts';
import { outputTypeOf, type FunctionCallOutputWithFacts } from '../apis/responses/built-in-calls.ts';

/** The messages that the items of a conversation represent: the last step of `restoreHistory`. */

export interface RestoredConversation {
  readonly messages: readonly Message[];
  /** The texts of system and developer messages, in order. */
  readonly system: readonly string[];
  /** Set if the last message is a reply with calls that are approved or denied now. */
  readonly open?: OpenTurn;
}

/** A call of a tool that takes a text, as one of a function. Never received from a client. */
export interface FunctionCallWithText extends FunctionCallItem {
  readonly custom?: true;
}

/** A reasoning item with what the model needs to get back. Never received from a client. */
export interface OpenedReasoning extends ReasoningItem {
  readonly decoded?: DecodedReasoning;
}

/** A compaction with what it represents. Never received from a client. */
export interface OpenedCompaction extends CompactionItem {
  readonly opened?: CompactedConversation;
}

export function unknownItem(id: string, at: string): Error {
  return badRequest(
    `Item with id '${id}' not found. Items of responses that were not stored cannot be referenced: send the item itself.`,
    `${at}.id`,
    'item_not_found',
  );
}

const EMPTY_CONVERSATION: ConversationBefore = { messages: [], system: [] };

/**
 * The conversation that complete items represent.
 *
 * 1. What the model said and called in one turn is one message, and the results of its calls are the next one, in call
 *    order.
 * 2. Every call has exactly one result, and every result follows its call. Otherwise a 400 names the calls.
 * 3. Only empty content is dropped, and what a compaction stands for.
 */
export function conversationFrom(
  items: readonly InputItem[],
  before: ConversationBefore = EMPTY_CONVERSATION,
): RestoredConversation {
  const first = items.findLastIndex(standsForAll);
  const from = first === -1 ? before : EMPTY_CONVERSATION;
  const messages = [...from.messages];
  const system = [...from.system];
  let turn: RestoredTurn | undefined = from.open && pausedTurn(from.open.calls);
  /** What the user said while calls of the turn have no results yet. */
  let followUp: UserMessage[] = [];
  const closeTurn = (): void => {
    if (turn) messages.push(...turn.close());
    messages.push(...followUp);
    turn = undefined;
    followUp = [];
  };

  for (const index of withOutputsFirst(items, from, first)) {
    const item = items[index]!;
    const at = `input[${index}]`;
    switch (item.type) {
      case 'message': {
        if (item.role === 'assistant') break;
        if (item.role !== 'user') {
          const text = item.content.map((part) => (part.type === 'input_text' ? part.text : '')).join('');
          if (text !== '') system.push(text);
          continue;
        }
        if (!turn?.isDecided()) closeTurn();
        const content = item.content.flatMap((part) => (isEmptyText(part) ? [] : [inputBlock(part)]));
        if (content.length > 0) (turn ? followUp : messages).push({ role: 'user', content });
        continue;
      }
      case 'function_call_output':
        if (turn === undefined) throw outputWithoutCall(item, at, before);
        turn.addResult(item, at);
        continue;
      case 'mcp_approval_response':
        if (!turn?.addDecision(item)) throw decisionWithoutCall(item, at);
        continue;
      case 'mcp_list_tools':
        continue;
      case 'custom_tool_call':
      case 'custom_tool_call_output':
        throw new Error('Calls with a text are converted first.');
      case 'additional_tools':
        continue;
      // An earlier version has stored only their types and ids. Others are converted first.
      case 'shell_call':
      case 'shell_call_output':
      case 'local_shell_call':
      case 'local_shell_call_output':
      case 'apply_patch_call':
      case 'apply_patch_call_output':
        continue;
      case 'compaction': {
        const { opened }: OpenedCompaction = item;
        closeTurn();
        if (!opened) throw new Error('A compaction must be opened before its conversation is restored.');
        system.push(...opened.system);
        messages.push(summaryMessage(opened));
        continue;
      }
      case 'item_reference':
        throw unknownItem(item.id, at);
      case 'reasoning':
      case 'function_call':
      case 'mcp_call':
      case 'mcp_approval_request':
        break;
      default:
        item.type satisfies (typeof PASSED_OVER)[number];
        continue;
    }
    if (item.type === 'mcp_call' && turn?.addApprovedResult(item)) continue;
    if (item.type === 'mcp_approval_request' && turn?.has(item.id)) continue;
    if (!turn?.includes(item, at)) {
      closeTurn();
      turn = newTurn();
    }
    turn!.addItem(item, at);
  }
  if (turn?.isDecided()) {
    const { reply, ...open } = turn.closeOpen();
    return { messages: [...messages, ...reply], system, open: { ...open, followUp } };
  }
  closeTurn();
  return { messages: messages.length > 0 ? messages : [lastInstruction(system)], system };
}

/** Whether an item represents all items before it, and the conversation before those. */
function standsForAll(item: InputItem): boolean {
  return item.type === 'compaction' && (item as OpenedCompaction).opened?.after !== undefined;
}

/**
 * The indices of the items from `first` on, in the order in which they are read. Some clients send a user message between a call and its
 * output or approval. That is read first then, because providers require the results right after the calls.
 */
function* withOutputsFirst(items: readonly InputItem[], { open }: ConversationBefore, first: number): Iterable<number> {
  const waiting = new Set(open?.calls.map(({ wireId }) => wireId));
  const nextAnswer = answersIn(items);
  const read = new Set<number>();
  for (const [index, item] of items.entries()) {
    if (index < first || read.has(index)) continue;
    if (item.type === 'function_call') waiting.add(item.call_id);
    if (item.type === 'mcp_approval_request') waiting.add(item.id);
    waiting.delete(answeredBy(item));
    if (item.type === 'message' && item.role === 'user') {
      for (const later of [...waiting].flatMap((id) => nextAnswer(id, index) ?? []).sort((a, b) => a - b)) {
        read.add(later);
        yield later;
      }
      // What has no answer after this message has none after a later one.
      waiting.clear();
    }
    yield index;
  }
}

/** Finds the first answer to a call after an index, which must not decrease. Searching the items for each message takes too long. */
function answersIn(items: readonly InputItem[]): (id: string, after: number) => number | undefined {
  const answers = new Map<string, number[]>();
  for (let index = items.length - 1; index >= 0; index--) {
    const id = answeredBy(items[index]!);
    if (id === '') continue;
    const known = answers.get(id);
    if (known) known.push(index);
    else answers.set(id, [index]);
  }
  return (id, after) => {
    const left = answers.get(id) ?? [];
    while (left.length > 0 && left.at(-1)! <= after) left.pop();
    return left.at(-1);
  };
}

/** The id of the call that an item has the output of, or of the request that it decides; empty if there is none. */
function answeredBy(item: InputItem): string {
  if (item.type === 'mcp_approval_response') return item.approval_request_id;
  return item.type === 'function_call_output' ? item.call_id : '';
}

function decisionWithoutCall({ approval_request_id: id }: McpApprovalResponseItem, at: string): Error {
  return badRequest(
    `No approval is requested by '${id}', or it was decided already. Send the 'mcp_approval_request' item before it, or the 'previous_response_id' of the response that requested it, and one decision for each. A client that sends neither, such as the AI SDK with 'store: false', needs stored responses: with 'store: true' it sends a reference to the item.`,
    `${at}.approval_request_id`,
    'unknown_approval',
  );
}

/** Models need a user message. Without one, the last instruction is removed from `system` and used as the message. */
function lastInstruction(system: string[]): Message {
  const text = system.pop();
  if (text === undefined) throw badRequest("'input' is empty. Send at least one message.", 'input', 'empty_input');
  return { role: 'user', content: [{ type: 'text', text }] };
}

function isEmptyText(part: InputPart): boolean {
  return part.type === 'input_text' && part.text === '';
}

function inputBlock(part: InputPart): UserBlock {
  switch (part.type) {
    case 'input_text':
      return { type: 'text', text: part.text };
    case 'input_image':
      return imageBlock(part.image_url, part.detail);
    case 'input_file':
      return fileBlock({ name: part.filename, data: part.file_data, url: part.file_url });
    default:
      return part satisfies never;
  }
}

type ResultContent = Pick<ToolResult, 'content' | 'isError' | 'errorType' | 'exitCode'>;

function outputContent(item: FunctionCallOutputWithFacts): ResultContent {
  const { output, status, is_error: isError, facts } = item;
  const content: readonly ResultBlock[] =
    typeof output === 'string' ? [{ type: 'text', text: output }] : output.map(inputBlock);
  return { content, isError: isError ?? status === 'incomplete', ...facts };
}

function outputWithoutCall({ call_id: id }: FunctionCallOutputItem, at: string, before: ConversationBefore): Error {
  const remedy =
    before === EMPTY_CONVERSATION
      ? "Send the 'function_call' item before it, or the 'previous_response_id' of the response that made the call."
      : 'No call of the previous response waits for an output: all of its calls are answered.';
  return badRequest(
    `No tool call found for function call output with call_id '${id}'. ${remedy}`,
    `${at}.call_id`,
    'unknown_call',
  );
}

/** The items that a model's turn consists of. */
type TurnItem =
  | MessageItem
  | Extract<InputItem, { type: 'reasoning' | 'function_call' | 'mcp_call' | 'mcp_approval_request' }>;

/** A turn that is being rebuilt from its items. */
interface RestoredTurn {
  /** Whether the item belongs to this turn, and not to a later one. */
  includes(item: TurnItem, at: string): boolean;
  addItem(item: TurnItem, at: string): void;
  /** Throws a 400 if no call waits for the output, or if it has the type of others. */
  addResult(item: FunctionCallOutputWithFacts, at: string): void;
  /** Whether a call of the turn has this id: a `call_id`, or that of a request for an approval. */
  has(wireId: string): boolean;
  /** False if no call waits for the decision. */
  addDecision(item: McpApprovalResponseItem): boolean;
  /** Adds the result of a call that was approved in the turn. False if there is none. */
  addApprovedResult(item: McpCallItem): boolean;
  /** Whether calls have no result although nothing is missing for them: the next run begins with them. */
  isDecided(): boolean;
  /**
   * The reply and its results. Throws a 400 if a call has no result. A call that was decided has one, which the client left
   * out.
   */
  close(): readonly Message[];
  /** The reply, if it is not in the history, and what the next run needs to begin with its calls. Throws like `close`. */
  closeOpen(): Omit<OpenTurn, 'followUp'> & { readonly reply: readonly Message[] };
}

/** A call of a turn that is being rebuilt. */
interface TurnCall {
  readonly wireId?: string;
  readonly name: string;
  /** The server of a call that needs an approval. */
  readonly label?: string;
  result?: ResultContent;
  /** What is missing for a call without a result. Absent: nothing. */
  needs?: 'output' | 'approval';
  /** What the client decided about it. */
  decision?: Omit<ApprovedCall, 'index'>;
}

/** The calls of a turn. How many have no result is counted, because every item of the input asks for it. */
interface TurnCalls<Call extends TurnCall> {
  readonly all: readonly Call[];
  /** Throws a 400 if there is a call with the same id. */
  add(call: Call, param: string): void;
  /** Throws a 400 if no call waits for the output, or if it has the type of others. */
  addResult(item: FunctionCallOutputWithFacts, at: string): void;
  hasUnanswered(): boolean;
  hasDecision(): boolean;
  /** What turns have in common, whether their items are in the input or their reply is in the history. */
  readonly common: Pick<RestoredTurn, 'has' | 'addDecision' | 'addApprovedResult' | 'isDecided'>;
}

function turnCalls<Call extends TurnCall>(): TurnCalls<Call> {
  const all: Call[] = [];
  const byId = new Map<string, Call>();
  let decisions = 0;
  /** Calls without a result: those that need something of the client, and those that do not. */
  let needing = 0;
  let ready = 0;

  function count(call: TurnCall, by: 1 | -1): void {
    if (call.result) return;
    if (call.needs) needing += by;
    else ready += by;
  }

  function change(call: TurnCall, changes: Pick<TurnCall, 'result' | 'decision'>): void {
    count(call, -1);
    delete call.needs;
    Object.assign(call, changes);
    count(call, 1);
  }

  return {
    all,
    add(call, param) {
      const { wireId } = call;
      if (wireId !== undefined && byId.has(wireId))
        throw badRequest(`Two calls have the id '${wireId}'. Send each call once.`, param, 'duplicate_call');
      if (wireId !== undefined) byId.set(wireId, call);
      all.push(call);
      count(call, 1);
    },
    addResult(item, at) {
      const call = callWaitingFor(byId, item.call_id, `${at}.call_id`);
      checkOutputType(call, item, at);
      change(call, { result: outputContent(item) });
    },
    hasUnanswered: () => needing + ready > 0,
    hasDecision: () => decisions > 0,
    common: {
      has: (wireId) => byId.has(wireId),
      addDecision({ approval_request_id: requestId, approve: approved, reason }) {
        const call = byId.get(requestId);
        if (call?.needs !== 'approval') return false;
        const { label } = call;
        const said = { ...(label !== undefined && { label }), ...(reason !== undefined && { reason }) };
        change(call, { decision: { requestId, approved, ...said } });
        decisions++;
        return true;
      },
      addApprovedResult(item) {
        const call = item.approval_request_id === null ? undefined : byId.get(item.approval_request_id);
        if (!call || call.result) return false;
        change(call, { result: mcpResult(item) });
        return true;
      },
      isDecided: () => ready > 0 && needing === 0,
    },
  };
}

/** What the model is told about a call that the client has denied. */
export function denialText(name: string, { reason }: Pick<ApprovedCall, 'reason'>): string {
  return `The call of "${name}" was not approved${reason ? `: ${reason}` : '.'}`;
}

function errorContent(text: string): ResultContent {
  return { content: [{ type: 'error', text }], isError: true };
}

/** The results that calls have in the conversation, if the next run does not begin with them. */
function resultOf({ result, decision, name }: TurnCall): ResultContent {
  if (result) return result;
  if (decision?.approved === false) return errorContent(denialText(name, decision));
  return { content: [{ type: 'text', text: '(The output of this call was left out.)' }], isError: false };
}

function openTurnOf(
  calls: readonly (TurnCall & { readonly id: string })[],
  reply: readonly Message[],
): ReturnType<RestoredTurn['closeOpen']> {
  return {
    reply,
    answered: calls.flatMap(({ id, name, result }) => (result ? toolResult(id, name, result) : [])),
    approvals: calls.flatMap(({ result, decision }, index) => (decision && !result ? { index, ...decision } : [])),
  };
}

/** `wireId`: the id that the client uses; absent for calls that only the server answers. */
interface RestoredCall extends TurnCall {
  readonly arguments: string;
  readonly custom?: true;
  /** The index among the calls of the turn, if the id contains it. */
  readonly index?: number;
}

/** `undefined` is a call: which one is known when all calls of the turn are known. */
type RestoredPart = SaidText | ReasoningPart | undefined;

/** A turn whose items are in the input of this request. */
function newTurn(): RestoredTurn {
  const parts: RestoredPart[] = [];
  const hidden: DecodedReasoning[] = [];
  const calls = turnCalls<RestoredCall>();
  let turnKey: string | undefined;
  let hasClientResults = false;

  function addCall(call: RestoredCall, param: string): void {
    calls.add(call, param);
    parts.push(undefined);
  }

  return {
    includes(item) {
      const own = turnKeyOf(item);
      if (own !== undefined && turnKey !== undefined) return own === turnKey;
      // The next turn begins after outputs of the client, and with a text that follows calls which have results.
      const isCall = item.type !== 'message' && item.type !== 'reasoning';
      const isAnswered = hasClientResults || calls.hasDecision();
      return !isAnswered && (isCall || calls.all.length === 0 || calls.hasUnanswered());
    },

    addItem(item, at) {
      turnKey ??= turnKeyOf(item);
      switch (item.type) {
        case 'message':
          parts.push(...textsOf(item));
          break;
        case 'reasoning':
          for (const { part, after } of reasoningOf(item)) {
            if (after === undefined) parts.push(part);
            else hidden.push({ part, after });
          }
          break;
        case 'function_call': {
          const { call_id: wireId, name, arguments: json, custom }: FunctionCallWithText = item;
          const index = itemOrigin(wireId)?.number;
          const call = { wireId, name, arguments: json, needs: 'output' as const, ...(custom && { custom }) };
          addCall({ ...call, ...(index !== undefined && { index }) }, `${at}.call_id`);
          break;
        }
        case 'mcp_approval_request': {
          const { id: wireId, name, arguments: json, server_label: label } = item;
          const index = itemOrigin(wireId)?.number;
          const call = { wireId, name, arguments: json, label, needs: 'approval' as const };
          addCall({ ...call, ...(index !== undefined && { index }) }, `${at}.id`);
          break;
        }
        case 'mcp_call':
          addCall(
            {
              ...(itemOrigin(item.id) === undefined && { wireId: item.id }),
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

    addResult(item, at) {
      hasClientResults = true;
      calls.addResult(item, at);
    },

    ...calls.common,

    close() {
      checkAllAnswered(calls.all);
      const { reply, ordered } = replyAndCalls();
      if (ordered.length === 0) return reply;
      return [
        ...reply,
        { role: 'tool', content: ordered.map((call) => toolResult(call.id, call.name, resultOf(call))) },
      ];
    },

    closeOpen() {
      checkAllAnswered(calls.all);
      const { reply, ordered } = replyAndCalls();
      return openTurnOf(ordered, reply);
    },
  };

  function replyAndCalls(): {
    reply: readonly Message[];
    ordered: readonly (RestoredCall & { readonly id: string })[];
  } {
    const ordered = inCallOrder(calls.all).map((call, index) => ({
      ...call,
      id: call.wireId ?? `call_${turnKey}_${index}`,
    }));
    let next = 0;
    const content = withHiddenReasoning(parts, hidden).map((part): AssistantPart => {
      if (part) return part;
      const { id, name, arguments: json, custom } = ordered[next++]!;
      return { type: 'tool-call', id, name, arguments: json, ...(custom && { custom }) };
    });
    return { reply: content.length === 0 ? [] : [{ role: 'assistant', content }], ordered };
  }
}

/** The last turn of the previous response: its reply is in the history, and the client has to answer its calls. */
function pausedTurn(open: readonly PausedCall[]): RestoredTurn {
  const calls = turnCalls<TurnCall & { readonly id: string }>();
  for (const { callId: id, needs = 'output', ...call } of open) {
    calls.add({ ...call, id, ...(needs !== 'nothing' && { needs }) }, 'previous_response_id');
  }
  return {
    includes(item, at) {
      if (item.type === 'function_call' && calls.common.has(item.call_id)) {
        throw badRequest(
          `The call '${item.call_id}' is part of the previous response already. With 'previous_response_id' send only what is new: the outputs.`,
          `${at}.call_id`,
          'duplicate_call',
        );
      }
      return false;
    },
    addItem() {
      throw new Error('Items cannot be added to a reply that is in the history. Check `includes` first.');
    },
    addResult: calls.addResult,
    ...calls.common,
    close() {
      checkAllAnswered(calls.all);
      if (calls.all.length === 0) return [];
      return [{ role: 'tool', content: calls.all.map((call) => toolResult(call.id, call.name, resultOf(call))) }];
    },
    closeOpen() {
      checkAllAnswered(calls.all);
      return openTurnOf(calls.all, []);
    },
  };
}

function turnKeyOf(item: TurnItem): string | undefined {
  return (itemOrigin(item.id) ?? (item.type === 'function_call' ? itemOrigin(item.call_id) : undefined))?.turnKey;
}

function toolResult(callId: string, name: string, result: ResultContent): ToolResult {
  return { type: 'tool-result', callId, name, ...result };
}

/** The result of a call that is not executed. */
export function refusedResult({ id, name }: Pick<ToolCall, 'id' | 'name'>, text: string): ToolResult {
  return toolResult(id, name, errorContent(text));
}

/** Throws a 400 if no call waits for an output with this id. */
function callWaitingFor(calls: ReadonlyMap<string, TurnCall>, wireId: string, param: string): TurnCall {
  const call = calls.get(wireId);
  if (call === undefined || call.needs === 'approval' || call.decision) {
    const open = idsOf([...calls.values()].filter((one) => !one.result && one.needs === 'output'));
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
  return call;
}

function checkOutputType({ name }: TurnCall, { call_id: id, onlyOf }: FunctionCallOutputWithFacts, at: string): void {
  if (onlyOf === undefined || onlyOf === name) return;
  throw badRequest(
    `The call '${id}' is one of '${name}', and '${outputTypeOf(onlyOf)}' is the output of '${onlyOf}'. Send an item of type '${outputTypeOf(name)}'.`,
    `${at}.type`,
    'invalid_value',
  );
}

function checkAllAnswered(calls: readonly TurnCall[]): void {
  const asked = calls.filter(({ result, needs }) => !result && needs === 'approval');
  if (asked.length > 0) {
    throw badRequest(
      `No decision found for mcp_approval_request ${idsOf(asked)}. Send an 'mcp_approval_response' item for each request, before any other item that follows it.`,
      'input',
      'missing_approval',
    );
  }
  const open = calls.filter(({ result, needs }) => !result && needs === 'output');
  if (open.length === 0) return;
  throw badRequest(
    `No tool output found for function call ${idsOf(open)}. Send a 'function_call_output' item for each call, before any other item that follows it.`,
    'input',
    'missing_output',
  );
}

function idsOf(calls: readonly TurnCall[]): string {
  return calls.map(({ wireId }) => wireId).join(', ');
}

/**
 * Items are sent in the order in which they were shown, and some calls are shown late. A call whose id contains its index
 * goes to that index, and the others fill the gaps.
 */
function inCallOrder(calls: readonly RestoredCall[]): readonly RestoredCall[] {
  const indexed = calls.filter(({ index }) => index !== undefined).sort((a, b) => a.index! - b.index!);
  const others = calls.filter(({ index }) => index === undefined);
  let nextIndexed = 0;
  let nextOther = 0;
  return calls.map((_, position) => {
    const call = indexed[nextIndexed];
    if (call === undefined || (call.index! > position && nextOther < others.length)) return others[nextOther++]!;
    nextIndexed++;
    return call;
  });
}

function textsOf({ content, phase }: MessageItem): readonly SaidText[] {
  return content.flatMap((part) => {
    const said = part.type === 'refusal' ? { text: part.refusal, refusal: true as const } : { text: part.text };
    return said.text === '' ? [] : [{ type: 'text', ...said, ...(phase && { phase }) }];
  });
}

function reasoningOf({ summary, content = [], decoded }: OpenedReasoning): readonly DecodedReasoning[] {
  if (decoded) return [decoded];
  const isSummary = content.length === 0;
  const text = (isSummary ? summary : content).map(({ text }) => text).join('\n\n');
  return text === '' ? [] : [{ part: { type: 'reasoning', text, ...(isSummary && { summary: true }) } }];
}

/** Hidden reasoning is sent as the last item of its turn. `after` is its original position. */
function withHiddenReasoning(
  parts: readonly RestoredPart[],
  hidden: readonly DecodedReasoning[],
): readonly RestoredPart[] {
  if (hidden.length === 0) return parts;
  const byPosition = Map.groupBy(hidden, ({ after }) => Math.min(after!, parts.length));
  const hiddenAt = (count: number): readonly RestoredPart[] => (byPosition.get(count) ?? []).map(({ part }) => part);
  return [...parts.flatMap((part, index) => [...hiddenAt(index), part]), ...hiddenAt(parts.length)];
}

/** An `mcp_call` item contains its result, unless the client left it out. */
function mcpResult({ output, error, status }: McpCallItem): ResultContent {
  const text = output === null ? [] : [{ type: 'text', text: output } as const];
  if (error !== null) return { content: [...text, { type: 'error', text: error.message }], isError: true };
  if (output !== null) return { content: text, isError: status === 'failed' };
  if (status === 'completed')
    return { content: [{ type: 'text', text: '(The output of this call was left out.)' }], isError: false };
  return { content: [{ type: 'error', text: 'The call was not finished.' }], isError: true };
}
