import type { AssistantPart, Message, TextBlock, SaidText, ToolCall, ToolResult, UserBlock } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { MAX_LENGTH, type RequestLimits } from '../../parse/fields.ts';
import { checkFile, checkImage, fileBlock, imageBlock, imageDetail } from '../../parse/media.ts';
import {
  checkCharacters,
  chosenSchema,
  isObject,
  list,
  PARAM,
  refuse,
  textOr,
  unsupported,
  UNSUPPORTED,
  variants,
} from '../../parse/validate.ts';

export interface ChatConversation {
  readonly messages: readonly Message[];
  /** The texts of system and developer messages, in order. */
  readonly system: readonly string[];
}

const longText = z.string().max(MAX_LENGTH.text);

const textPart = z
  .object({ type: z.literal('text'), text: longText })
  .transform(({ text }): TextBlock => ({ type: 'text', text }));

const refusalPart = z
  .object({ type: z.literal('refusal'), refusal: longText })
  .transform(({ refusal }): SaidText => ({ type: 'text', text: refusal, refusal: true }));

const imageUrl = z.string().max(MAX_LENGTH.image);

/** Many clients and hosts have the URL itself in place of the object. */
const imagePart = z
  .object({
    type: z.literal('image_url'),
    image_url: textOr(
      imageUrl.transform((url) => ({ url, detail: undefined })),
      z.object({ url: imageUrl, detail: imageDetail }),
    ),
  })
  .transform(({ image_url: { url, detail } }, ctx): UserBlock => {
    const before = ctx.issues.length;
    checkImage(url, ctx, ['image_url']);
    return ctx.issues.length > before ? z.NEVER : imageBlock(url, detail);
  });

const filePart = z
  .object({
    type: z.literal('file'),
    file: z.object({
      file_data: z.string().max(MAX_LENGTH.file).nullish(),
      file_id: z.unknown().optional(),
      filename: z.string().max(MAX_LENGTH.id).nullish(),
    }),
  })
  .transform(({ file: { file_data: data, file_id: id, filename: name } }, ctx): UserBlock => {
    if (data == null && id != null) {
      const message = `${PARAM} names an uploaded file, and this server does not store files. Send the file itself in 'file_data'.`;
      return refuse(ctx, message, { path: ['file', 'file_id'], ...UNSUPPORTED });
    }
    const before = ctx.issues.length;
    checkFile({ data }, ctx, ['file']);
    return ctx.issues.length > before ? z.NEVER : fileBlock({ name, data });
  });

const asText = longText.transform((text): readonly TextBlock[] => (text === '' ? [] : [{ type: 'text', text }]));

const callFields = { id: z.string().min(1).max(MAX_LENGTH.id) };

const functionCall = z
  .object({
    ...callFields,
    type: z.literal('function').nullish(),
    function: z.object({ name: z.string().min(1), arguments: z.string() }),
  })
  .transform(({ id, function: { name, arguments: json } }): ToolCall => ({
    type: 'tool-call',
    id,
    name,
    arguments: json,
  }));

const customCall = z
  .object({ ...callFields, custom: z.object({ name: z.string().min(1), input: z.string() }) })
  .transform(({ id, custom: { name, input } }): ToolCall => ({
    type: 'tool-call',
    id,
    name,
    arguments: JSON.stringify({ input }),
    custom: true,
  }));

const toolCalls = list(
  chosenSchema<ToolCall>(
    (call) => (isObject(call) && call['type'] === 'custom' ? customCall : functionCall),
    () => [functionCall, customCall],
  ),
  { expected: 'array', max: Infinity },
).superRefine((calls, ctx) => {
  const ids = new Set<string>();
  const duplicate = calls.find(({ id }) => ids.has(id) || (ids.add(id), false));
  if (duplicate) refuse(ctx, `${PARAM} contains the id '${duplicate.id}' twice.`);
});

const LEGACY_ROLE =
  "Messages of role 'function' are not supported. Declare functions in 'tools', and answer their calls by messages of " +
  "role 'tool' with the 'tool_call_id'.";

const LEGACY_CALL = "Send the call in 'tool_calls', with an id, and its result in a message of role 'tool'.";

/** The messages of a request, as the conversation that they represent. */
export function messagesSchema(limits: RequestLimits): z.ZodType<ChatConversation> {
  return messageList(limits)
    .superRefine((messages, ctx) => checkCharacters(messages, limits.inputChars, ctx))
    .transform(chatConversation);
}

/** The messages, each with its content converted to the parts of the loop. */
function messageList(limits: RequestLimits) {
  const parts = <T>(part: z.ZodType<T>) =>
    list(part, { expected: 'a string or a list of content parts', max: limits.parts });
  const texts = textOr(asText, parts(variants('type', ['text', 'refusal'], [textPart, refusalPart])));
  const blocks = textOr(
    asText,
    parts<UserBlock>(variants('type', ['text', 'image_url', 'file'], [textPart, imagePart, filePart])),
  );
  const message = variants(
    'role',
    ['system', 'developer', 'user', 'assistant', 'tool'],
    [
      z.object({ role: z.enum(['system', 'developer']), content: texts }),
      z.object({ role: z.literal('user'), content: blocks }),
      z.object({
        role: z.literal('assistant'),
        function_call: unsupported(LEGACY_CALL),
        content: texts.nullish(),
        refusal: z.string().nullish(),
        reasoning_content: z.unknown().optional(),
        tool_calls: toolCalls.nullish(),
      }),
      z.object({
        role: z.literal('tool'),
        tool_call_id: z.string().min(1),
        content: blocks.nullish(),
        // Not part of the official API, which has no error flag.
        is_error: z.boolean().nullish(),
      }),
      z
        .object({ role: z.literal('function') })
        .transform((_, ctx): never => refuse(ctx, LEGACY_ROLE, { path: ['role'], code: 'unsupported_value' })),
    ],
  );
  return list(message, { expected: 'a list of messages', max: limits.inputItems });
}

type ParsedMessage = z.infer<ReturnType<typeof messageList>>[number];

/**
 * The conversation as the loop stores it. Throws a 400 if no model could continue it: each call needs exactly one result,
 * before any other message of the user or the assistant.
 */
function chatConversation(parsed: readonly ParsedMessage[]): ChatConversation {
  const messages: Message[] = [];
  const system: string[] = [];
  let open: OpenCalls | undefined;

  function closeCalls(): void {
    if (open) messages.push({ role: 'tool', content: resultsInOrder(open) });
    open = undefined;
  }

  for (const [index, message] of parsed.entries()) {
    const at = `messages[${index}]`;
    switch (message.role) {
      case 'tool':
        addResult(open, message, `${at}.tool_call_id`);
        break;
      case 'system':
      case 'developer':
        if (message.content.length > 0) system.push(message.content.map(({ text }) => text).join(''));
        break;
      case 'user': {
        closeCalls();
        const { content } = message;
        messages.push({ role: 'user', content: content.length > 0 ? content : [{ type: 'text', text: '' }] });
        break;
      }
      case 'assistant': {
        closeCalls();
        const content = assistantParts(message);
        if (content.length > 0) messages.push({ role: 'assistant', content });
        const calls = message.tool_calls ?? [];
        if (calls.length > 0) open = { at, calls: new Map(calls.map((call) => [call.id, call])), results: new Map() };
        break;
      }
      default:
        message satisfies never;
    }
  }
  closeCalls();
  if (messages.length > 0) return { messages, system };
  // Models need a user message.
  const text = system.pop();
  if (text !== undefined) return { messages: [{ role: 'user', content: [{ type: 'text', text }] }], system };
  throw badRequest("Invalid 'messages': they are empty. Send at least one message with a text.", 'messages');
}

/** The parts of an assistant message: reasoning first and calls last, as models return them. */
function assistantParts(message: Extract<ParsedMessage, { role: 'assistant' }>): readonly AssistantPart[] {
  const { content, refusal, tool_calls: calls, reasoning_content: reasoning } = message;
  const parts: AssistantPart[] = (content ?? []).filter(({ text }) => text !== '');
  if (refusal) parts.push({ type: 'text', text: refusal, refusal: true });
  // No spread: the list is as long as the request allows, and a function takes some ten thousand arguments at most.
  for (const call of calls ?? []) parts.push(call);
  if (parts.length === 0 || typeof reasoning !== 'string' || reasoning === '') return parts;
  return [{ type: 'reasoning', text: reasoning }, ...parts];
}

/** The calls of the last assistant message, and their results so far. */
interface OpenCalls {
  /** The path of the message. */
  readonly at: string;
  /** By id, in order. */
  readonly calls: ReadonlyMap<string, ToolCall>;
  readonly results: Map<string, ToolResult>;
}

function addResult(
  open: OpenCalls | undefined,
  { tool_call_id: callId, content, is_error: isError }: Extract<ParsedMessage, { role: 'tool' }>,
  param: string,
): void {
  const call = open?.calls.get(callId);
  if (!open || !call) {
    const calls = open ? `its calls are ${idList(open.calls.keys())}` : 'there is none with calls';
    throw badRequest(
      `'${param}' answers the call '${callId}', which the assistant message before it does not have: ${calls}.`,
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
    content: content ?? [],
    isError: isError ?? false,
  });
}

/** The results in the order of the calls. */
function resultsInOrder({ at, calls, results }: OpenCalls): readonly ToolResult[] {
  const ids = [...calls.keys()];
  const missing = ids.filter((id) => !results.has(id));
  if (missing.length === 0) return ids.map((id) => results.get(id)!);
  throw badRequest(
    `The calls of '${at}' are not all answered: there is no message of role 'tool' for ${idList(missing)} after it.`,
    `${at}.tool_calls`,
    'missing_tool_result',
  );
}

function idList(ids: Iterable<string>): string {
  return Array.from(ids, (id) => `'${id}'`).join(', ');
}
