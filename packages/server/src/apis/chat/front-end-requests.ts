import { userText, type UserMessage } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import { list, validateBody } from '../../parse/validate.ts';
import type { AgUiIds } from './ag-ui.ts';
import { messageText } from './attachments.ts';
import type { ClientList } from '../../history/client-list.ts';
import type { Attachment, ChatAnswer, ChatEvent } from './wire.ts';
import {
  agUiMessages,
  agUiText,
  listedAgUi,
  listedUi,
  uiMessage,
  uiMessages,
  uiUserMessage,
  type AgUiMessage,
  type ListedMessages,
} from './listed-messages.ts';
import { approvalOf } from './ui-stream.ts';

/** What the request of a front end asks for. Both protocols produce it. */
export interface FrontEndRequest {
  /** What the front end calls the conversation. */
  readonly chat: string;
  /** Absent: the request has answers only. */
  readonly message?: UserMessage;
  /** The id that the client has for the message. */
  readonly clientId?: string;
  /** The id of the client's last answer, which the model is asked to continue. */
  readonly continues?: string;
  /** The messages before it. Absent: the client sends no others. */
  readonly list?: ClientList;
  /** For this message only. */
  readonly instructions?: readonly string[];
  readonly attachments?: readonly Attachment[];
  /** Absent: the request has a message only. `events`: those of the last answer of the conversation. */
  answersTo?(events: readonly ChatEvent[]): FrontEndAnswers;
  readonly model?: string;
  readonly tools?: readonly string[];
  readonly onDisconnect: 'cancel' | 'continue';
}

export interface FrontEndAnswers {
  readonly answers: readonly ChatAnswer[];
  /** The ids of what the client gives up because its deadline has passed. It needs no answer. */
  readonly expired: readonly string[];
}

const id = z.string().min(1).max(200);

const options = {
  model: id.nullish(),
  tools: list(id, { expected: 'a list of tool names', max: 128 }).nullish(),
  on_disconnect: z.enum(['cancel', 'continue']).nullish(),
};

const namedOptions = z.object(options);

function optionsOf({ model, tools, on_disconnect }: z.infer<typeof namedOptions>) {
  return {
    ...(model != null && { model }),
    ...(tools != null && { tools }),
    onDisconnect: on_disconnect ?? ('cancel' as const),
  };
}

// The AI SDK

const uiBody = z.object({
  id,
  messages: uiMessages.nullish(),
  /** Instead of `messages`: the last one. */
  message: uiMessage.nullish(),
  messageId: z.string().nullish(),
  trigger: z.string().nullish(),
  ...options,
});

const uiApproval = z.object({ id: z.string(), approved: z.boolean(), reason: z.string().nullish() });

/** A request of `DefaultChatTransport`. It has the whole conversation, or only its last message. */
export function parseUiRequest(body: unknown): FrontEndRequest {
  const { id: chat, messages, message, messageId, trigger, ...named } = validateBody(uiBody, body);
  if (!messages && !message) {
    throw badRequest("Missing required parameter: 'messages'.", 'messages', 'missing_required_parameter');
  }
  const all = messages ?? [message!];
  const last = all.at(-1);
  const common = { chat, ...optionsOf(named) };
  const isAgain = trigger === 'regenerate-message';
  if (last?.role === 'user') {
    const replaces = isAgain || (messageId != null && messageId === last.id);
    if (replaces && !messages) {
      throw badRequest('An edited message, and one that is answered again, needs the messages before it.', 'messages');
    }
    const said = uiUserMessage(last.parts, `messages[${all.length - 1}]`);
    if (messageText(said.message) === '' && said.message.content.length === 1) {
      throw badRequest('The last message has no text and no files.', 'messages');
    }
    return { ...common, ...said, ...clientIdOf(last), ...listOf(listedUi(all.slice(0, -1)), messages && { replaces }) };
  }
  if (isAgain) throw badRequest('The last message must be the one of the user that is answered again.', 'messages');
  const answers = (last?.parts ?? []).flatMap((part): ChatAnswer | [] => {
    if (part['state'] !== 'approval-responded') return [];
    const { id: approvalId, approved, reason } = validateBody(uiApproval, part['approval']);
    return { ...approvalOf(approvalId), approved, ...(reason != null && { reason }) };
  });
  if (answers.length > 0) return { ...common, answersTo: () => ({ answers, expired: [] }) };
  if (last?.role !== 'assistant') throw badRequest('The last message must be of the user, or an answer.', 'messages');
  const continued = { continues: last.id ?? '', message: userText(CONTINUE) };
  return { ...common, ...continued, ...listOf(listedUi(all), messages && { replaces: false }) };
}

/** What the model is told if a client sends nothing new: models reply to a message of the user. */
const CONTINUE = 'Continue.';

function clientIdOf({ id: clientId }: { readonly id?: string | null | undefined }): { readonly clientId?: string } {
  return clientId ? { clientId } : {};
}

/** `list`: absent if the client does not send all messages. */
function listOf(
  { messages, instructions }: ListedMessages,
  list: Pick<ClientList, 'replaces'> | null | undefined,
): Pick<FrontEndRequest, 'list' | 'instructions'> {
  return { ...(list && { list: { ...list, messages } }), ...(instructions.length > 0 && { instructions }) };
}

// AG-UI

const agUiBody = z.object({
  threadId: id,
  runId: id,
  messages: agUiMessages,
  tools: z.array(z.unknown()).nullish(),
  context: list(z.looseObject({ description: z.string(), value: z.string() }), {
    expected: 'a list of descriptions with values',
    max: 1_000,
  }).nullish(),
  forwardedProps: z.unknown().optional(),
  resume: list(
    z.object({ interruptId: id, status: z.enum(['resolved', 'cancelled']), payload: z.unknown().optional() }),
    { expected: 'a list of answers', max: 100 },
  ).nullish(),
});

const agUiApproval = z.object({ approved: z.boolean(), digest: z.string(), reason: z.string().nullish() });

/** `RunAgentInput` of AG-UI: the last message counts, and `resume` before it. Options are in `forwardedProps`. */
export function parseAgUiRequest(body: unknown): { readonly ids: AgUiIds; readonly request: FrontEndRequest } {
  const { threadId, runId, messages, tools, context, forwardedProps, resume } = validateBody(agUiBody, body);
  if (tools && tools.length > 0) throw badRequest('Tools of the front end are not supported. Send none.', 'tools');
  const named = validateBody(namedOptions, forwardedProps ?? {});
  const common = { chat: threadId, ...optionsOf(named) };
  const ids = { threadId, runId };
  const last = messages.at(-1);
  const text = last?.role === 'user' ? agUiText(last.content, `messages[${messages.length - 1}]`) : '';
  const message = text !== '' && { message: userText(text), ...clientIdOf(last!), ...agUiListOf(messages, context) };
  if (resume && resume.length > 0) {
    return { ids, request: { ...common, ...message, answersTo: (events) => resumeAnswers(resume, events) } };
  }
  if (!message) throw badRequest('The last message must be one of the user, with text.', 'messages');
  return { ids, request: { ...common, ...message } };
}

function agUiListOf(
  messages: readonly AgUiMessage[],
  context: z.infer<typeof agUiBody>['context'],
): Pick<FrontEndRequest, 'list' | 'instructions'> {
  const { instructions, messages: before } = listedAgUi(messages.slice(0, -1));
  const about = (context ?? []).map(({ description, value }) => `${description}:\n${value}`);
  return listOf({ messages: before, instructions: [...instructions, ...about] }, { replaces: false });
}

interface ResumeEntry {
  readonly interruptId: string;
  readonly status: 'resolved' | 'cancelled';
  readonly payload?: unknown;
}

/** The client has to send an entry for each interrupt. One that has expired can only be cancelled. */
function resumeAnswers(entries: readonly ResumeEntry[], events: readonly ChatEvent[]): FrontEndAnswers {
  const now = Date.now();
  const isExpired = ({ interruptId, status }: ResumeEntry): boolean => {
    const asked = events.find((event) => 'id' in event && event.id === interruptId);
    if (status !== 'cancelled' || (asked?.type !== 'approval_request' && asked?.type !== 'question')) return false;
    return asked.expires_at !== null && asked.expires_at <= now;
  };
  const { expired = [], open = [] } = Object.groupBy(entries, (entry) => (isExpired(entry) ? 'expired' : 'open'));
  return {
    answers: open.map((entry) => resumeAnswer(entry, events)),
    expired: expired.map(({ interruptId }) => interruptId),
  };
}

function resumeAnswer({ interruptId, status, payload }: ResumeEntry, events: readonly ChatEvent[]): ChatAnswer {
  const asked = events.find((event) => 'id' in event && event.id === interruptId);
  if (asked?.type === 'question') {
    if (status === 'resolved') return { id: interruptId, answer: payload };
    throw badRequest('A question cannot be cancelled. Cancel the run, or wait for its deadline.', 'resume');
  }
  if (status === 'cancelled') {
    const digest = asked?.type === 'approval_request' ? asked.digest : '';
    return { id: interruptId, approved: false, digest };
  }
  const { approved, digest, reason } = validateBody(agUiApproval, payload);
  return { id: interruptId, approved, digest, ...(reason != null && { reason }) };
}

/** The bodies of requests, for `/openapi.json`. */
export const FRONT_END_BODIES: Readonly<Record<'ui' | 'agUi', z.ZodType>> = { ui: uiBody, agUi: agUiBody };
