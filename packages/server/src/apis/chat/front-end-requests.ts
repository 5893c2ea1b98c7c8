import { userText, type Memory, type UserMessage } from '@treadle/core';
import type { AgUiIds } from '@treadle/core/web';
import { z } from 'zod';
import { badRequest } from '../../api-error.ts';
import type { FunctionTool } from '../../engine/tools.ts';
import { DEFAULT_LIMITS } from '../../parse/fields.ts';
import { functionTool } from '../../parse/tools.ts';
import { isObject, list, validateBody } from '../../parse/validate.ts';
import { messageText } from './attachments.ts';
import type { ClientResult } from './conversations.ts';
import type { ClientList } from '../../history/client-list.ts';
import type { Attachment, ChatAnswer, ChatEvent } from './wire.ts';
import {
  agUiMessages,
  agUiResult,
  agUiUserMessage,
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
  /** Those that the client executes. */
  readonly functions?: readonly FunctionTool[];
  /** What the client says that tools remember. */
  readonly memory?: Memory;
  readonly onDisconnect: 'cancel' | 'continue';
}

export interface FrontEndAnswers {
  readonly answers: readonly (ChatAnswer | ClientResult)[];
  /** The ids of what the client gives up because its deadline has passed. It needs no answer. */
  readonly expired: readonly string[];
  /** The message of the request is for the run that the answers are for. */
  readonly hasInput?: boolean;
  /** The client does not know of the calls that wait for it: the run is cancelled. */
  readonly isAbandoned?: boolean;
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
  state: z.unknown().optional(),
  tools: list(functionTool, { expected: 'a list of tools', max: DEFAULT_LIMITS.tools }).nullish(),
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

/**
 * `RunAgentInput` of AG-UI. `resume` and the results of calls are answers to the run in progress; a message of the user after them
 * is new. Options are in `forwardedProps`.
 */
export function parseAgUiRequest(body: unknown): { readonly ids: AgUiIds; readonly request: FrontEndRequest } {
  const given = validateBody(agUiBody, body);
  const { threadId, runId, messages, context, forwardedProps, resume } = given;
  const named = validateBody(namedOptions, forwardedProps ?? {});
  const functions = functionsOf(given.tools ?? []);
  const memory = memoryOf(given.state);
  const common = {
    chat: threadId,
    ...optionsOf(named),
    ...(functions.length > 0 && { functions }),
    ...(memory && { memory }),
  };
  const last = messages.at(-1);
  const said = last?.role === 'user' ? agUiUserMessage(last.content, `messages[${messages.length - 1}]`) : undefined;
  const isSaid = said !== undefined && (messageText(said.message) !== '' || said.message.content.length > 1);
  const hasResume = resume != null && resume.length > 0;
  const isContinued = !isSaid && !hasResume && (last?.role === 'assistant' || last?.role === 'tool');
  if (!isSaid && !hasResume && !isContinued) {
    throw badRequest('The last message must be one of the user with a text or a file, or a result.', 'messages');
  }
  const answersTo = (events: readonly ChatEvent[]): FrontEndAnswers => {
    const answered = hasResume ? resumeAnswers(resume, events) : { answers: [], expired: [] };
    return withClientResults(answered, events, { messages, isSaid });
  };
  const mayAnswer = hasResume || isContinued || messages.some(({ role }) => role === 'tool') || functions.length > 0;
  const request: FrontEndRequest = {
    ...common,
    ...(isSaid && { ...said, ...clientIdOf(last!), ...agUiListOf(messages.slice(0, -1), context) }),
    ...(isContinued && { continues: '', message: userText(CONTINUE), ...agUiListOf(messages, context) }),
    ...(mayAnswer && { answersTo }),
  };
  return { ids: { threadId, runId }, request };
}

function functionsOf(tools: readonly FunctionTool[]): readonly FunctionTool[] {
  const names = tools.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice === undefined) return tools;
  throw badRequest(
    `Two tools have the name ${JSON.stringify(twice)}. Names must be unique.`,
    'tools',
    'duplicate_tool',
  );
}

const MAX_STATE_CHARS = 200_000;

/** The state of the client, without what tools note for themselves. Undefined if there is none. */
function memoryOf(state: unknown): Memory | undefined {
  if (!isObject(state)) return undefined;
  const entries = Object.entries(state).filter(([key, value]) => !key.includes(':') && value !== null);
  if (entries.length === 0) return undefined;
  const size = JSON.stringify(state).length;
  if (size <= MAX_STATE_CHARS) return Object.fromEntries(entries);
  const [is, most] = [size, MAX_STATE_CHARS].map((chars) => chars.toLocaleString('en-US'));
  throw badRequest(`The state has ${is} characters of JSON. At most ${most} are allowed.`, 'state', 'invalid_value');
}

/** Adds the results of the calls that the run has for the client. After a new message, those that have none are errors. */
function withClientResults(
  answered: FrontEndAnswers,
  events: readonly ChatEvent[],
  { messages, isSaid }: { readonly messages: readonly AgUiMessage[]; readonly isSaid: boolean },
): FrontEndAnswers {
  const settled = new Set(events.flatMap((event) => (event.type === 'tool_call_result' ? event.id : [])));
  const open = events.filter((event) => event.type === 'client_call' && !settled.has(event.call_id));
  if (open.length === 0) return answered;
  const calls = new Map(open.map((event) => [(event as ClientCall).call_id, event as ClientCall]));
  const isShown = messages.some(({ toolCalls }) => toolCalls?.some(({ id: called }) => calls.has(called)));
  if (isSaid && !isShown) return { ...answered, isAbandoned: true };
  const results = [...calls.values()].flatMap(({ id: wait, call_id: called }): ClientResult | [] => {
    const at = messages.findIndex(({ role, toolCallId }) => role === 'tool' && toolCallId === called);
    const message = messages[at];
    if (message) return { id: wait, result: agUiResult(message, `messages[${at}]`), isError: message.error != null };
    return isSaid ? { id: wait, result: [{ type: 'text', text: NOT_EXECUTED }], isError: true } : [];
  });
  return { ...answered, answers: [...answered.answers, ...results], hasInput: isSaid };
}

type ClientCall = Extract<ChatEvent, { type: 'client_call' }>;

const NOT_EXECUTED = 'The client did not execute the call.';

function agUiListOf(
  messages: readonly AgUiMessage[],
  context: z.infer<typeof agUiBody>['context'],
): Pick<FrontEndRequest, 'list' | 'instructions'> {
  const { instructions, messages: before } = listedAgUi(messages);
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
