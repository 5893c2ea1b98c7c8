import { request, send } from '../api/client.ts';

/** Conversations as `docs/chat.md` describes them. */

export interface ConversationSummary {
  readonly id: string;
  readonly title: string | null;
  readonly created_at: number;
  readonly updated_at: number;
}

export interface ConversationPage {
  readonly data: readonly ConversationSummary[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

export interface WireConversation extends ConversationSummary {
  readonly messages: readonly WireMessage[];
}

export type WireMessage = WireUserMessage | WireAnswer;

export interface WireUserMessage {
  readonly id: string;
  readonly role: 'user';
  readonly content: string;
  readonly attachments: readonly WireAttachment[];
}

export interface WireAttachment {
  readonly id: string;
  readonly name: string | null;
  readonly media_type: string;
  readonly size: number;
}

export type AnswerStatus = 'in_progress' | 'waiting' | 'completed' | 'incomplete' | 'failed' | 'cancelled';

export interface WireAnswer {
  readonly id: string;
  readonly role: 'assistant';
  /** Null: a client has added it to the conversation. */
  readonly run_id: string | null;
  readonly model: string | null;
  readonly events_after: number;
  readonly status: AnswerStatus;
  readonly parts: readonly WirePart[];
  readonly error: AnswerError | null;
  readonly usage: Usage | null;
  /** About the message, such as attachments that the model cannot see. */
  readonly warnings: readonly AnswerError[];
  readonly waiting: readonly Ask[];
}

export interface AnswerError {
  readonly code: string;
  readonly message: string;
}

export type WirePart =
  /** `stopped`: the answer ended before the model completed the text. */
  | { readonly type: 'text' | 'reasoning'; readonly text: string; readonly stopped?: true }
  | { readonly type: 'input'; readonly text: string }
  | {
      readonly type: 'tool_call';
      readonly id: string;
      readonly name: string;
      readonly arguments: string;
      readonly called_at?: number;
      readonly decision?: CallDecision;
      readonly result: CallResult | null;
    };

/** A decision about a call that people were asked about, or that the policy denied. */
export interface CallDecision {
  readonly approved: boolean;
  readonly source: 'person' | 'policy' | 'deadline';
  /** The names of those who answered. */
  readonly by: readonly string[];
  readonly rule: string | null;
  readonly reason: string | null;
}

export interface CallResult {
  readonly content: string;
  readonly is_error: boolean;
  /** Absent if it is only text. */
  readonly parts?: readonly ResultPart[];
  /** Null if it is not known. */
  readonly duration_ms: number | null;
}

export type ResultPart =
  | { readonly type: 'text'; readonly text: string }
  | ({ readonly type: 'image' } & WireAttachment)
  | ({ readonly type: 'file' } & WireAttachment);

export interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly reasoning_tokens: number;
  readonly cost: number | null;
}

/** What a person has to answer: an approval has a digest, a question a prompt. */
export type Ask = ApprovalAsk | QuestionAsk;

export interface ApprovalAsk {
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly arguments: string;
  readonly digest: string;
  readonly touches: readonly Touch[];
  readonly reason: string | null;
  readonly rule?: string;
  /** What the policy wants to be shown. */
  readonly shown?: unknown;
  /** How many people have to approve. Absent: one. */
  readonly required?: number;
  readonly approved_by?: readonly string[];
  readonly expires_at: number;
}

export interface Touch {
  readonly type: string;
  readonly path?: string;
  readonly command?: string;
  readonly url?: string;
  readonly session?: string;
  readonly device?: string;
}

export interface QuestionAsk {
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly prompt: string;
  readonly choices: readonly string[] | null;
  readonly schema: object | null;
  readonly expires_at: number | null;
}

export type ChatEvent = { readonly seq: number } & (
  | {
      readonly type: 'conversation_meta';
      readonly conversation_id: string;
      readonly title: string | null;
      readonly message_id: string;
      readonly answer_id: string;
      readonly run_id: string;
      readonly model: string;
    }
  | { readonly type: 'token_delta' | 'reasoning_delta'; readonly id: string; readonly delta: string }
  | {
      readonly type: 'tool_call_start';
      readonly id: string;
      readonly name: string;
      readonly arguments: string;
      readonly called_at: number;
    }
  | ({ readonly type: 'tool_call_decision'; readonly id: string } & CallDecision)
  | { readonly type: 'tool_call_output'; readonly id: string; readonly delta: string }
  | ({ readonly type: 'tool_call_result'; readonly id: string } & CallResult)
  | ({ readonly type: 'approval_request' } & ApprovalAsk)
  | ({ readonly type: 'question' } & QuestionAsk)
  | { readonly type: 'warning'; readonly code: string; readonly message: string; readonly item?: string }
  | ({ readonly type: 'error' } & AnswerError)
  | ({ readonly type: 'usage' } & Usage)
  | { readonly type: 'done'; readonly status: AnswerStatus }
);

/** A file that is sent with a message. `data`: base64. */
export interface NewAttachment {
  readonly name: string;
  readonly media_type: string;
  readonly data: string;
}

export type Answer =
  | { readonly id: string; readonly approved: boolean; readonly digest: string; readonly reason?: string }
  | { readonly id: string; readonly answer: unknown };

const pathOf = (id: string, ...rest: readonly string[]): string =>
  ['/v1/chat', ...[id, ...rest].map((part) => encodeURIComponent(part))].join('/');

export function listConversations(query: {
  search?: string;
  cursor?: string;
  limit?: number;
}): Promise<ConversationPage> {
  const given = Object.entries(query).flatMap(([name, value]) => (value ? [[name, String(value)]] : []));
  return request('GET', `/v1/chat?${new URLSearchParams(given)}`);
}

export const getConversation = (id: string, signal: AbortSignal): Promise<WireConversation> =>
  request('GET', pathOf(id), { signal });
export const renameConversation = (id: string, title: string): Promise<WireConversation> =>
  request('PATCH', pathOf(id), { body: { title } });
export const deleteConversation = (id: string): Promise<unknown> => request('DELETE', pathOf(id));
export const branchConversation = (id: string, message: string): Promise<WireConversation> =>
  request('POST', pathOf(id, 'branch'), { body: { message_id: message } });
export const sendAnswer = (id: string, answer: Answer): Promise<unknown> =>
  request('POST', pathOf(id, 'answers'), { body: answer });
export const steer = (id: string, message: string): Promise<unknown> =>
  request('POST', pathOf(id, 'messages'), { body: { message } });
export const cancel = (id: string): Promise<unknown> => request('POST', pathOf(id, 'cancel'));

export interface NewMessage {
  readonly conversation_id?: string;
  readonly message: string;
  readonly attachments?: readonly NewAttachment[];
  readonly model?: string;
  readonly tools?: readonly string[];
}

/** Sends a message. The answer goes on if the page is closed. */
export const postMessage = (message: NewMessage): Promise<Response> =>
  send('POST', '/v1/chat', { body: { ...message, approvals: 'ask', on_disconnect: 'continue' } });
export const openStream = (id: string, after: number, signal: AbortSignal): Promise<Response> =>
  send('GET', `${pathOf(id, 'stream')}?after=${after}`, { signal });

export async function attachmentBlob(id: string, attachment: string): Promise<Blob> {
  return (await send('GET', pathOf(id, 'attachments', attachment))).blob();
}

export async function exportConversation(id: string, format: 'json' | 'markdown'): Promise<Blob> {
  return (await send('GET', `${pathOf(id, 'export')}?format=${format}`)).blob();
}

/** The number of the journal entry that `matches`, counted from the end of the run. Undefined if there is none. */
export async function entryOf(
  run: string,
  matches: (event: { readonly type: string; readonly effect?: string }) => boolean,
): Promise<number | undefined> {
  interface Page {
    readonly data: readonly {
      readonly seq: number;
      readonly event: { readonly type: string; readonly effect?: string };
    }[];
    readonly has_more: boolean;
  }
  let after = -1;
  let found: number | undefined;
  for (;;) {
    const page: Page = await request('GET', `/v1/runs/${encodeURIComponent(run)}/events?limit=500&after=${after}`);
    found = page.data.findLast(({ event }) => matches(event))?.seq ?? found;
    after = page.data.at(-1)?.seq ?? after;
    if (!page.has_more) return found;
  }
}
