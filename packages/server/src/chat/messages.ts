import type { AssistantPart, Message, ToolCall, ToolResult } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { checked, checkedList, notOneOf } from '../responses/fields.ts';
import { LONGEST, type RequestLimits } from '../responses/limits.ts';
import { blocksFrom, textsFrom } from './content.ts';

export interface Conversation {
  readonly messages: readonly Message[];
  /** What system and developer messages say, in order. */
  readonly system: readonly string[];
}

/**
 * The messages of a request as the loop keeps them. Throws a 400 for what no model could go on with; above all each call
 * has to have one result, before anybody says something else.
 */
export function messagesFrom(given: unknown, limits: RequestLimits): Conversation {
  const messages: Message[] = [];
  const system: string[] = [];
  let open: OpenCalls | undefined;

  function close(): void {
    if (open) messages.push({ role: 'tool', content: resultsOf(open) });
    open = undefined;
  }

  const entries = checkedList(given, 'messages', { kind: 'a list of messages', most: limits.inputItems });
  for (const [index, entry] of entries.entries()) {
    const at = `messages[${index}]`;
    const message = checked(MESSAGE, entry, at);
    const { role } = message;
    if (role === 'tool') {
      answer(open, message, at, limits);
      continue;
    }
    if (role === 'system' || role === 'developer') {
      const texts = textsFrom(message['content'], `${at}.content`, limits);
      if (texts.length > 0) system.push(texts.map(({ text }) => text).join(''));
      continue;
    }
    close();
    if (role === 'user') {
      const content = blocksFrom(message['content'], `${at}.content`, limits);
      messages.push({ role, content: content.length > 0 ? content : [{ type: 'text', text: '' }] });
    } else if (role === 'assistant') {
      const content = assistantFrom(message, at, limits);
      if (content.length > 0) messages.push({ role, content });
      open = opened(content, at);
    } else if (role === 'function') {
      throw badRequest(LEGACY_ROLE, `${at}.role`, 'unsupported_value');
    } else {
      throw notOneOf(role, ROLES, `${at}.role`);
    }
  }
  close();
  if (messages.length > 0) return { messages, system };
  // Models want somebody to answer.
  const asked = system.pop();
  if (asked !== undefined) return { messages: [{ role: 'user', content: [{ type: 'text', text: asked }] }], system };
  throw badRequest("Invalid 'messages': they say nothing. Send at least one message with a text.", 'messages');
}

const ROLES = ['system', 'developer', 'user', 'assistant', 'tool'];

const LEGACY_ROLE =
  "Messages of role 'function' are not supported. Declare functions in 'tools', and answer their calls by messages of " +
  "role 'tool' with the 'tool_call_id'.";

const LEGACY_CALL =
  "'function_call' of messages is not supported. Give the call in 'tool_calls', with an id, and its result in a " +
  "message of role 'tool'.";

const MESSAGE = z.looseObject({ role: z.string() });
const CALLS = z.array(
  z.object({
    id: z.string().min(1).max(LONGEST.id),
    type: z.string().nullish(),
    function: z.object({ name: z.string().min(1), arguments: z.string() }).nullish(),
  }),
);
const TOOL = z.object({
  tool_call_id: z.string().min(1),
  // Not of the official API, which has no mark for errors.
  is_error: z.boolean().nullish(),
});

type Given = z.infer<typeof MESSAGE>;

/** The parts that an assistant's message has, reasoning first and calls last, as models give them. */
function assistantFrom(message: Given, at: string, limits: RequestLimits): readonly AssistantPart[] {
  const { content, refusal, tool_calls: calls, function_call: legacy, reasoning_content: reasoning } = message;
  if (legacy != null) throw badRequest(LEGACY_CALL, `${at}.function_call`, 'unsupported_parameter');
  const texts = content == null ? [] : textsFrom(content, `${at}.content`, limits).filter(({ text }) => text !== '');
  const refused = refusal == null ? '' : checked(z.string(), refusal, `${at}.refusal`);
  const said = [
    ...texts,
    ...(refused === '' ? [] : [{ type: 'text', text: refused } as const]),
    ...(calls == null ? [] : callsFrom(calls, `${at}.tool_calls`)),
  ];
  if (said.length === 0 || typeof reasoning !== 'string' || reasoning === '') return said;
  return [{ type: 'reasoning', text: reasoning }, ...said];
}

function callsFrom(given: unknown, at: string): readonly ToolCall[] {
  return checked(CALLS, given, at).map(({ id, type, function: called }, index) => {
    if (type != null && type !== 'function') throw notOneOf(type, ['function'], `${at}[${index}].type`);
    if (!called) throw badRequest(`'${at}[${index}]' has no 'function'.`, `${at}[${index}].function`);
    return { type: 'tool-call', id, name: called.name, arguments: called.arguments };
  });
}

/** Calls that wait for their results. */
interface OpenCalls {
  /** Of the message that has them. */
  readonly at: string;
  readonly calls: readonly ToolCall[];
  readonly results: Map<string, ToolResult>;
}

function opened(content: readonly AssistantPart[], at: string): OpenCalls | undefined {
  const calls = content.filter((part) => part.type === 'tool-call');
  const twice = calls.find(({ id }, index) => calls.findIndex((one) => one.id === id) < index);
  if (twice) throw badRequest(`'${at}.tool_calls' has the id '${twice.id}' twice.`, `${at}.tool_calls`);
  return calls.length === 0 ? undefined : { at, calls, results: new Map() };
}

function answer(open: OpenCalls | undefined, message: Given, at: string, limits: RequestLimits): void {
  const { tool_call_id: callId, is_error: isError } = checked(TOOL, message, at);
  const param = `${at}.tool_call_id`;
  const call = open?.calls.find(({ id }) => id === callId);
  if (!open || !call) {
    const calls = open
      ? `its calls are ${open.calls.map(({ id }) => `'${id}'`).join(', ')}`
      : 'there is none with calls';
    throw badRequest(
      `'${param}' answers the call '${callId}', which the assistant's message before it does not have: ${calls}.`,
      param,
      'unknown_tool_call',
    );
  }
  if (open.results.has(callId))
    throw badRequest(`The call '${callId}' is answered twice.`, param, 'duplicate_tool_result');
  open.results.set(callId, {
    type: 'tool-result',
    callId,
    name: call.name,
    content: blocksFrom(message['content'] ?? '', `${at}.content`, limits),
    isError: isError ?? false,
  });
}

/** In the order of the calls. */
function resultsOf({ at, calls, results }: OpenCalls): readonly ToolResult[] {
  const missing = calls.filter(({ id }) => !results.has(id));
  if (missing.length === 0) return calls.map(({ id }) => results.get(id)!);
  const ids = missing.map(({ id }) => `'${id}'`).join(', ');
  throw badRequest(
    `The calls of '${at}' are not all answered: there is no message of role 'tool' for ${ids} after it.`,
    `${at}.tool_calls`,
    'missing_tool_result',
  );
}
