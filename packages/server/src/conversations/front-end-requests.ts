import { userText, type UserMessage } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import { list, validateBody } from '../request/validate.ts';
import type { AgUiIds } from './ag-ui.ts';
import { attachmentsSchema, messageWith, type Attachment } from './attachments.ts';
import type { ChatAnswer } from './conversations.ts';
import type { ChatEvent } from './events.ts';
import { approvalOf } from './ui-stream.ts';

/** What the request of a front end asks for. Both protocols produce it. */
export interface FrontEndRequest {
  /** What the front end calls the conversation. */
  readonly chat: string;
  /** Absent: the request has answers only. */
  readonly message?: UserMessage;
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
const MAX_MESSAGES = 100_000;

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
  messages: list(z.looseObject({ role: z.string(), parts: z.array(z.looseObject({ type: z.string() })) }), {
    expected: 'a list of UI messages',
    max: MAX_MESSAGES,
  }),
  trigger: z.string().nullish(),
  ...options,
});

const uiApproval = z.object({ id: z.string(), approved: z.boolean(), reason: z.string().nullish() });

/** A request of `DefaultChatTransport`. It has the whole conversation, of which only the last message counts. */
export function parseUiRequest(body: unknown): FrontEndRequest {
  const { id: chat, messages, trigger, ...named } = validateBody(uiBody, body);
  if (trigger === 'regenerate-message') {
    throw badRequest('Answers cannot be generated again. Branch the conversation before the message.', 'trigger');
  }
  const { role, parts = [] } = messages.at(-1) ?? {};
  const common = { chat, ...optionsOf(named) };
  if (role === 'user') {
    const text = parts.map((part) => (part.type === 'text' ? textOfPart(part['text']) : '')).join('');
    if (text === '') throw badRequest('The last message has no text.', 'messages');
    const files = parts.filter(({ type }) => type === 'file').map(uiFile);
    return { ...common, ...messageWith(text, validateBody(attachmentsSchema, files)) };
  }
  return {
    ...common,
    answersTo: () => ({
      answers: parts.flatMap((part): ChatAnswer | [] => {
        if (part['state'] !== 'approval-responded') return [];
        const { id: approvalId, approved, reason } = validateBody(uiApproval, part['approval']);
        return { ...approvalOf(approvalId), approved, ...(reason != null && { reason }) };
      }),
      expired: [],
    }),
  };
}

function textOfPart(text: unknown): string {
  if (typeof text === 'string') return text;
  throw badRequest('A part of the last message has the type "text" and no text.', 'messages');
}

/** A file of a UI message as an attachment. Its URL is a data URL: other ones are not fetched. */
function uiFile({ url, mediaType, filename }: Readonly<Record<string, unknown>>): object {
  if (!/^data:/i.test(String(url))) throw badRequest('The URL of a file must be a data URL.', 'messages');
  return { data: url, media_type: mediaType, name: filename };
}

// AG-UI

const agUiBody = z.object({
  threadId: id,
  runId: id,
  messages: list(z.looseObject({ role: z.string(), content: z.unknown().optional() }), {
    expected: 'a list of messages',
    max: MAX_MESSAGES,
  }),
  tools: z.array(z.unknown()).nullish(),
  forwardedProps: z.unknown().optional(),
  resume: list(
    z.object({ interruptId: id, status: z.enum(['resolved', 'cancelled']), payload: z.unknown().optional() }),
    { expected: 'a list of answers', max: 100 },
  ).nullish(),
});

const agUiApproval = z.object({ approved: z.boolean(), digest: z.string(), reason: z.string().nullish() });

/** `RunAgentInput` of AG-UI: `resume` counts, or the last message. Options are in `forwardedProps`. */
export function parseAgUiRequest(body: unknown): { readonly ids: AgUiIds; readonly request: FrontEndRequest } {
  const { threadId, runId, messages, tools, forwardedProps, resume } = validateBody(agUiBody, body);
  if (tools && tools.length > 0) throw badRequest('Tools of the front end are not supported. Send none.', 'tools');
  const named = validateBody(namedOptions, forwardedProps ?? {});
  const common = { chat: threadId, ...optionsOf(named) };
  const ids = { threadId, runId };
  const last = messages.at(-1);
  const text = last?.role === 'user' ? agUiText(last.content) : '';
  const message = text !== '' && { message: userText(text) };
  if (resume && resume.length > 0) {
    return { ids, request: { ...common, ...message, answersTo: (events) => resumeAnswers(resume, events) } };
  }
  if (!message) throw badRequest('The last message must be one of the user, with text.', 'messages');
  return { ids, request: { ...common, ...message } };
}

function agUiText(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part: { readonly type?: unknown; readonly text?: unknown } | null) => {
      if (part?.type !== 'text') throw badRequest('Only text is supported in messages.', 'messages');
      return textOfPart(part.text);
    })
    .join('');
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
