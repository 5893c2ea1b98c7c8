import type { ResultBlock } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { itemOrigin } from '../../ids.ts';
import { MAX_LENGTH } from '../../parse/fields.ts';
import { list, validateBody } from '../../parse/validate.ts';
import { denialText } from '../../history/restore-messages.ts';
import type { FunctionCallOutputItem, InputItem, InputPart } from '../responses/wire.ts';
import { attachmentsSchema, messageWith } from './attachments.ts';
import { runOfMessage } from '../../history/conversation-records.ts';
import { userItem } from '../../history/record-items.ts';
import type { ListedMessage } from '../../history/client-list.ts';

/*
 * The messages of front ends: which of them are messages of the server, what the others say, and which are instructions.
 * Messages that say nothing are left out.
 */

export interface ListedMessages {
  readonly messages: readonly ListedMessage[];
  /** The texts of system and developer messages. */
  readonly instructions: readonly string[];
}

const MAX_MESSAGES = 100_000;
const messageId = z.string().max(200).nullish();
const callId = z.string().min(1).max(MAX_LENGTH.id);
const toolName = z.string().min(1).max(MAX_LENGTH.id);

// The AI SDK

type UiPart = Readonly<Record<string, unknown>> & { readonly type: string };

export interface UiMessage {
  readonly id?: string | null | undefined;
  readonly role: 'system' | 'user' | 'assistant';
  readonly parts: readonly UiPart[];
  readonly metadata?: unknown;
}

const uiPart: z.ZodType<UiPart> = z.looseObject({ type: z.string() });

export const uiMessage: z.ZodType<UiMessage> = z.looseObject({
  id: messageId,
  role: z.enum(['system', 'user', 'assistant']),
  parts: list(uiPart, { expected: 'a list of parts', max: MAX_MESSAGES }),
  metadata: z.unknown().optional(),
});

export const uiMessages: z.ZodType<readonly UiMessage[]> = list(uiMessage, {
  expected: 'a list of UI messages',
  max: MAX_MESSAGES,
});

export function listedUi(all: readonly UiMessage[]): ListedMessages {
  const messages: ListedMessage[] = [];
  const instructions: string[] = [];
  for (const [index, message] of all.entries()) {
    const { role, parts, metadata } = message;
    const at = `messages[${index}]`;
    const id = message.id ?? undefined;
    if (role === 'system') instructions.push(uiText(parts, at));
    else if (role === 'user') {
      if (parts.some((part) => part.type === 'file' || isText(part))) {
        const runId = runOfMessage(id ?? '', 'user');
        messages.push({ role, id, runId, items: () => [userItem('msg_', uiUserMessage(parts, at).message)] });
      }
    } else {
      const runId = runOfMessage(id ?? '', 'answer');
      const isResumed = (metadata as { readonly resumed?: unknown } | null | undefined)?.resumed === true;
      if (runId !== undefined || parts.some((part) => isToolPart(part) || isText(part)))
        messages.push({ role: 'answer', id, runId, isResumed, items: () => uiAnswerItems(parts, at) });
    }
  }
  return { messages, instructions: instructions.filter((text) => text !== '') };
}

/** Texts and files. Throws a 400 for what cannot be an attachment. */
export function uiUserMessage(parts: readonly UiPart[], at: string): ReturnType<typeof messageWith> {
  const files = parts.filter(({ type }) => type === 'file').map(uiFile);
  return messageWith(uiText(parts, at), validateBody(attachmentsSchema, files), `${at}.files`);
}

/** A file of a UI message as an attachment. Its URL is a data URL: other ones are not fetched. */
function uiFile({ url, mediaType, filename }: UiPart): object {
  if (!/^data:/i.test(String(url))) throw badRequest('The URL of a file must be a data URL.', 'messages');
  return { data: url, media_type: mediaType, name: filename };
}

function uiText(parts: readonly UiPart[], at: string): string {
  return parts.map((part) => (part.type === 'text' ? textOfPart(part['text'], at) : '')).join('');
}

function isText({ type, text }: UiPart): boolean {
  return type === 'text' && text !== '';
}

function isToolPart({ type }: UiPart): boolean {
  return type === 'dynamic-tool' || type.startsWith('tool-');
}

const uiCall = z.object({
  toolCallId: callId,
  toolName,
  state: z.string(),
  input: z.unknown().optional(),
  output: z.unknown().optional(),
  errorText: z.string().nullish(),
  approval: z.looseObject({ reason: z.string().nullish() }).nullish(),
});

function uiAnswerItems(parts: readonly UiPart[], at: string): readonly InputItem[] {
  const answer = answerItems();
  for (const part of parts) {
    if (part.type === 'step-start') answer.endStep();
    else if (part.type === 'text') answer.addText(textOfPart(part['text'], at));
    else if (isToolPart(part)) {
      const given = part.type === 'dynamic-tool' ? part : { ...part, toolName: part.type.slice('tool-'.length) };
      const call = inMessage(at, () => validateBody(uiCall, given));
      answer.addCall(call.toolCallId, call.toolName, JSON.stringify(call.input ?? {}));
      const result = uiResult(call);
      if (result) answer.addResult(call.toolCallId, result);
    }
  }
  return answer.end();
}

function uiResult({
  state,
  toolName: name,
  output,
  errorText,
  approval,
}: z.infer<typeof uiCall>): CallResult | undefined {
  switch (state) {
    case 'output-available':
      return { output: typeof output === 'string' ? output : JSON.stringify(output ?? null) };
    case 'output-error':
      return { output: errorText ?? '', is_error: true };
    case 'output-denied':
      return { output: denialText(name, approval?.reason == null ? {} : { reason: approval.reason }), is_error: true };
    default:
      return undefined;
  }
}

// AG-UI

export interface AgUiMessage {
  readonly id?: string | null | undefined;
  readonly role: (typeof AG_UI_ROLES)[number];
  readonly content?: unknown;
  readonly toolCalls?: readonly AgUiCall[] | null | undefined;
  readonly toolCallId?: string | null | undefined;
  readonly error?: string | null | undefined;
}

interface AgUiCall {
  readonly id: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

const AG_UI_ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'reasoning', 'activity'] as const;

const agUiMessage: z.ZodType<AgUiMessage> = z.looseObject({
  id: messageId,
  role: z.enum(AG_UI_ROLES),
  content: z.unknown().optional(),
  toolCalls: list<AgUiCall>(
    z.looseObject({ id: callId, function: z.looseObject({ name: toolName, arguments: z.string() }) }),
    { expected: 'a list of calls', max: MAX_MESSAGES },
  ).nullish(),
  toolCallId: callId.nullish(),
  error: z.string().nullish(),
});

export const agUiMessages: z.ZodType<readonly AgUiMessage[]> = list(agUiMessage, {
  expected: 'a list of messages',
  max: MAX_MESSAGES,
});

/** Messages between two of the user are one answer, if they are of the same run, or of none. */
export function listedAgUi(all: readonly AgUiMessage[]): ListedMessages {
  const messages: ListedMessage[] = [];
  const instructions: string[] = [];
  let parts: AnswerMessage[] = [];
  for (const [index, message] of all.entries()) {
    const { role, content } = message;
    const at = `messages[${index}]`;
    const id = message.id ?? undefined;
    const last = messages.at(-1);
    if (role === 'activity') continue;
    if (role === 'system' || role === 'developer') instructions.push(agUiText(content, at));
    else if (role === 'user') {
      const runId = runOfMessage(id ?? '', 'user');
      const items = (): readonly InputItem[] => [userItem('msg_', agUiUserMessage(content, at).message)];
      if (!isEmpty(content)) messages.push({ role, id, runId, items });
    } else {
      const runId = agUiRunOf(message);
      const saysNothing =
        role === 'reasoning' || (role === 'assistant' && isEmpty(content) && !message.toolCalls?.length);
      if (runId === undefined && saysNothing) continue;
      if (last?.role !== 'answer' || last.runId !== runId) {
        const group: AnswerMessage[] = (parts = []);
        messages.push({ role: 'answer', id, runId, items: () => agUiAnswerItems(group) });
      }
      parts.push({ ...message, at });
    }
  }
  return { messages, instructions: instructions.filter((text) => text !== '') };
}

type AnswerMessage = AgUiMessage & { readonly at: string };

function isEmpty(content: unknown): boolean {
  return content == null || content === '' || (Array.isArray(content) && content.length === 0);
}

/** The id of a message, or those of its calls. */
function agUiRunOf({ id, toolCalls, toolCallId }: AgUiMessage): string | undefined {
  const ids = [id, toolCallId, ...(toolCalls ?? []).map((call) => call.id)].filter((one) => one != null);
  for (const one of ids) {
    const runId = itemOrigin(one)?.response ?? runOfMessage(one, 'answer');
    if (runId !== undefined) return runId;
  }
  return undefined;
}

function agUiAnswerItems(messages: readonly AnswerMessage[]): readonly InputItem[] {
  const answer = answerItems();
  for (const { role, content, toolCalls, toolCallId, error, at } of messages) {
    if (role === 'tool') {
      const result = { output: agUiOutput(content, at) || (error ?? ''), ...(error != null && { is_error: true }) };
      if (!answer.addResult(toolCallId ?? '', result)) throw resultWithoutCall(toolCallId ?? '', at);
    } else if (role === 'assistant') {
      answer.endStep();
      answer.addText(agUiText(content, at));
      for (const { id, function: called } of toolCalls ?? []) answer.addCall(id, called.name, called.arguments);
    }
  }
  return answer.end();
}

/** Texts and files. Throws a 400 for what cannot be an attachment. */
export function agUiUserMessage(content: unknown, at: string): ReturnType<typeof messageWith> {
  const parts = partsOf(content);
  const text = parts.map((part) => (part?.type === 'text' ? textOfPart(part['text'], at) : '')).join('');
  const files = parts
    .filter((part) => part?.type !== 'text')
    .map((part, index) => agUiFile(part, `${at}.content[${index}]`));
  return messageWith(
    text,
    inMessage(at, () => validateBody(attachmentsSchema, files)),
    `${at}.files`,
  );
}

/** The result of a call. */
export function agUiResult({ content, error }: AgUiMessage, at: string): readonly ResultBlock[] {
  const blocks = agUiUserMessage(content, at).message.content.filter(
    (block) => block.type !== 'text' || block.text !== '',
  );
  return blocks.length === 0 && error != null ? [{ type: 'text', text: error }] : blocks;
}

function agUiOutput(content: unknown, at: string): FunctionCallOutputItem['output'] {
  const { content: parts } = userItem('msg_', agUiUserMessage(content, at).message) as Said;
  const texts = parts.flatMap((part) => (part.type === 'input_text' ? part.text : []));
  return texts.length === parts.length ? texts.join('') : parts;
}

type Said = Extract<InputItem, { type: 'message'; content: readonly InputPart[] }>;

type AgUiPart = (Readonly<Record<string, unknown>> & { readonly type?: unknown }) | null;

function partsOf(content: unknown): readonly AgUiPart[] {
  if (Array.isArray(content)) return content as readonly AgUiPart[];
  return typeof content === 'string' ? [{ type: 'text', text: content }] : [];
}

/** An image or another file as an attachment. The data is in the message: nothing is fetched. */
function agUiFile(part: AgUiPart, at: string): object {
  const { source, metadata } = (part ?? {}) as { readonly source?: unknown; readonly metadata?: unknown };
  const { type, value, mimeType } = (source ?? {}) as Readonly<Record<string, unknown>>;
  const isData = type === 'data' || (type === 'url' && /^data:/i.test(String(value)));
  if (!isData) {
    const message = `${at} is neither a text nor a file with its data. Send {"type": "image", "source": {"type": "data", "value": "…", "mimeType": "image/png"}}.`;
    throw badRequest(message, 'messages', 'unsupported_media_type');
  }
  const { filename } = (metadata ?? {}) as { readonly filename?: unknown };
  return {
    data: value,
    ...(mimeType != null && { media_type: mimeType }),
    ...(filename != null && { name: filename }),
  };
}

/** The text of a message that has nothing else. */
function agUiText(content: unknown, at: string): string {
  return partsOf(content)
    .map((part) => {
      if (part?.type === 'text') return textOfPart(part['text'], at);
      throw badRequest(`${at} has a file. Only messages of the user and results of calls may have files.`, 'messages');
    })
    .join('');
}

function resultWithoutCall(id: string, at: string): Error {
  const message = `${at} has the result of the call ${JSON.stringify(id)}, which does not wait for one. Send the result after the message with the call, once, or leave it out.`;
  return badRequest(message, at, 'unknown_call');
}

// Both

function textOfPart(text: unknown, at: string): string {
  if (typeof text === 'string') return text;
  throw badRequest(`A part of ${at} has the type "text" and no text.`, 'messages');
}

type CallResult = Pick<FunctionCallOutputItem, 'output' | 'is_error'>;

const NO_RESULT: CallResult = { output: 'The call has no result.', is_error: true };

/** The items of an answer. */
interface AnswerItems {
  addText(text: string): void;
  addCall(id: string, name: string, json: string): void;
  /** False if no call of the step waits for the result. */
  addResult(callId: string, result: CallResult): boolean;
  /** The results of the calls so far follow here. */
  endStep(): void;
  end(): readonly InputItem[];
}

/** The calls of a step come before their results, and every call has one: providers require both. */
function answerItems(): AnswerItems {
  const items: InputItem[] = [];
  const status = 'completed';
  /** By the ids of the calls of the step. */
  const results = new Map<string, CallResult | undefined>();

  function endStep(): void {
    for (const [call_id, result = NO_RESULT] of results) {
      items.push({ type: 'function_call_output', id: 'fco_', call_id, status, ...result });
    }
    results.clear();
  }

  return {
    addText(text) {
      if (text === '') return;
      endStep();
      const content = [{ type: 'output_text' as const, text, annotations: [], logprobs: [] }];
      items.push({ type: 'message', id: 'msg_', status, role: 'assistant', content });
    },
    addCall(call_id, name, json) {
      results.set(call_id, undefined);
      items.push({ type: 'function_call', id: 'fc_', call_id, name, arguments: json, status });
    },
    addResult(id, result) {
      if (!results.has(id) || results.get(id)) return false;
      results.set(id, result);
      return true;
    },
    endStep,
    end() {
      endStep();
      return items;
    },
  };
}

/** Names the message in an error about one of its fields. */
function inMessage<T>(at: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw badRequest(`${at}: ${(error as Error).message}`, at, 'invalid_value');
  }
}
