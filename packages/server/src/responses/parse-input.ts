import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { mcpError, mcpErrorText } from '../wire/mcp-error.ts';
import type { ItemStatus } from '../wire/items.ts';
import { checked, checkedList, isObject, notOneOf, wrongType, type Body } from './fields.ts';
import type { InputItem, SaidByModel, SaidToModel } from './input-items.ts';
import { checkInputSize } from './input-size.ts';
import { LONGEST, type RequestLimits } from './limits.ts';
import { inputContent, outputContent, SYSTEM_PARTS, USER_PARTS } from './parse-content.ts';

export interface InputContext {
  readonly limits: RequestLimits;
  /** For items that come without an id. */
  readonly newId: (prefix: string) => string;
}

/** `input`, or any list of items, with an id for each. */
export function parseInput(input: unknown, at: string, context: InputContext): readonly InputItem[] {
  const { limits, newId } = context;
  if (typeof input === 'string') {
    const said = { type: 'message', role: 'user', content: input };
    return input === '' ? [] : within(limits, at, [itemOf(said, at, { limits, newId, text: true })]);
  }
  const items = checkedList(input, at, { kind: 'a string or a list of items', most: limits.inputItems });
  return within(
    limits,
    at,
    items.map((item, index) => itemOf(item, `${at}[${index}]`, context)),
  );
}

const status = z.string().nullish();
const id = z.string().max(LONGEST.id).nullish();
const callId = z.string().min(1).max(LONGEST.id);
const longText = z.string().max(LONGEST.text);
const texts = z.array(z.object({ text: longText })).nullish();

const message = z.object({
  id,
  status,
  role: z.enum(['user', 'assistant', 'system', 'developer']),
  content: z.unknown().optional(),
  phase: z.enum(['commentary', 'final_answer']).nullish(),
});
const reasoning = z.object({ id, status, summary: texts, content: texts, encrypted_content: longText.nullish() });
const functionCall = z.object({
  id,
  status,
  call_id: callId,
  name: z.string().min(1).max(LONGEST.id),
  arguments: longText,
});
const functionCallOutput = z.object({
  id,
  status,
  call_id: callId,
  output: z.unknown().optional(),
  is_error: z.boolean().nullish(),
});
const mcpCall = z.object({
  id,
  status,
  server_label: z.string().max(LONGEST.id),
  name: z.string().min(1).max(LONGEST.id),
  arguments: longText,
  output: longText.nullish(),
  error: z.unknown().optional(),
});
const mcpList = z.object({ id, server_label: z.string().max(LONGEST.id) });
const reference = z.object({ id: z.string().min(1).max(LONGEST.id) });

const TYPES = ['message', 'reasoning', 'function_call', 'function_call_output', 'mcp_call', 'item_reference'] as const;

interface ItemContext extends InputContext {
  /** The input is one text, so there is no `content` to speak of. */
  readonly text?: true;
}

function itemOf(item: unknown, at: string, context: ItemContext): InputItem {
  if (!isObject(item)) throw wrongType('object', item, at);
  const { newId, limits } = context;
  const type = typeOf(item);
  switch (type) {
    case 'message':
      return messageOf(item, at, context);
    case 'reasoning': {
      const { id, status, summary, content, encrypted_content: sealed } = checked(reasoning, item, at);
      return {
        type,
        id: id || newId('rs'),
        status: statusOf(status),
        summary: (summary ?? []).map(({ text }) => ({ type: 'summary_text', text })),
        ...(content &&
          content.length > 0 && { content: content.map(({ text }) => ({ type: 'reasoning_text', text })) }),
        ...(sealed && { encrypted_content: sealed }),
      };
    }
    case 'function_call': {
      const { id, status, call_id, name, arguments: json } = checked(functionCall, item, at);
      return { type, id: id || newId('fc'), call_id, name, arguments: json, status: statusOf(status) };
    }
    case 'function_call_output': {
      const { id, status, call_id, output, is_error: isError } = checked(functionCallOutput, item, at);
      return {
        type,
        id: id || newId('fco'),
        call_id,
        output:
          typeof output === 'string'
            ? checked(longText, output, `${at}.output`)
            : inputContent(output, `${at}.output`, { types: USER_PARTS, most: limits.parts }),
        status: statusOf(status),
        ...(isError != null && { is_error: isError }),
      };
    }
    case 'mcp_call': {
      const { id, status, server_label, name, arguments: json, output, error } = checked(mcpCall, item, at);
      const told = mcpErrorText(error);
      return {
        type,
        id: id || newId('mcp'),
        server_label,
        name,
        arguments: json,
        status: told === null && status !== 'failed' ? statusOf(status) : 'failed',
        output: output ?? null,
        error: told === null ? null : mcpError(told),
        approval_request_id: null,
      };
    }
    case 'mcp_list_tools': {
      const { id, server_label } = checked(mcpList, item, at);
      return { type, id: id || newId('mcpl'), server_label };
    }
    case 'item_reference':
      return { type, id: checked(reference, item, at).id };
    case 'compaction':
      throw badRequest(
        `Invalid '${at}.type': items of type 'compaction' are not supported by this server. Send the conversation itself.`,
        `${at}.type`,
        'unsupported_value',
      );
    default:
      throw notOneOf(type, TYPES, `${at}.type`);
  }
}

/** The short forms leave the type out: `{ role, content }` is a message, and a mere `{ id }` a reference. */
function typeOf(item: Body): unknown {
  const { type, role, id } = item;
  if (type != null) return type;
  if (role !== undefined || 'content' in item) return 'message';
  return id === undefined ? undefined : 'item_reference';
}

function messageOf(item: object, at: string, { limits, newId, text }: ItemContext): SaidToModel | SaidByModel {
  const { id: given, status, role, content, phase } = checked(message, item, at);
  const place = text ? at : `${at}.content`;
  const common = { type: 'message', id: given || newId('msg'), status: statusOf(status) } as const;
  if (role === 'assistant') {
    return { ...common, role, ...(phase && { phase }), content: outputContent(content, place, limits.parts) };
  }
  const types = role === 'user' ? USER_PARTS : SYSTEM_PARTS;
  return { ...common, role, content: inputContent(content, place, { types, most: limits.parts }) };
}

function statusOf(status: string | null | undefined): ItemStatus {
  return status === 'in_progress' || status === 'incomplete' ? status : 'completed';
}

function within(limits: RequestLimits, at: string, items: readonly InputItem[]): readonly InputItem[] {
  checkInputSize(items, at, limits.inputChars);
  return items;
}
