import type { Touch, Usage } from '@treadle/core';

/* The objects of `/v1/chat`. Pages import them as types from `@treadle/server/wire`. */

/** What a client of a conversation receives, each with the number `seq`, which counts per conversation. */
export type ChatEvent =
  | {
      readonly type: 'conversation_meta';
      readonly conversation_id: string;
      readonly title: string | null;
      /** The ids of the message and of its answer, as `GET /v1/chat/{id}` has them. */
      readonly message_id: string;
      readonly answer_id: string;
      readonly run_id: string;
      readonly model: string;
    }
  /** `id`: of the text. An answer has several texts if calls or reasoning are between them. */
  | { readonly type: 'token_delta'; readonly id: string; readonly delta: string }
  | { readonly type: 'reasoning_delta'; readonly id: string; readonly delta: string }
  /** `arguments`: the JSON text of the model, also if it is invalid. */
  | {
      readonly type: 'tool_call_start';
      readonly id: string;
      readonly name: string;
      readonly arguments: string;
      /** When the model called it, in milliseconds since 1970. */
      readonly called_at: number;
      /** The step of a workflow. */
      readonly step?: string;
    }
  /** People or the policy have decided about the call. `id`: of the call. */
  | ({ readonly type: 'tool_call_decision'; readonly id: string } & CallDecision)
  | { readonly type: 'tool_call_output'; readonly id: string; readonly delta: string }
  | ({
      readonly type: 'tool_call_result';
      readonly id: string;
      readonly duration_ms: number;
      readonly step?: string;
    } & ResultContent)
  | ({ readonly type: 'approval_request' } & ApprovalRequest)
  | ({ readonly type: 'question' } & QuestionRequest)
  /** The client executes the call. `id`: of the wait, `call_id`: of the call. */
  | {
      readonly type: 'client_call';
      readonly id: string;
      readonly call_id: string;
      readonly tool: string;
      readonly step?: string;
    }
  /** What tools remember: the new values by key. `null`: the key was removed. `id`: of the change. */
  | { readonly type: 'memory'; readonly id: string; readonly values: Readonly<Record<string, unknown>> }
  /** `item_incomplete`: the text with the id `item` is not part of the answer. `item_stopped`: it is, as far as it was sent. */
  | ({ readonly type: 'warning'; readonly item?: string } & ChatProblem)
  | ({ readonly type: 'error' } & ChatProblem)
  | ({ readonly type: 'usage' } & ChatUsage)
  | { readonly type: 'done'; readonly status: ChatStatus; readonly narrowed_by?: readonly string[] };

export type NumberedEvent = ChatEvent & { readonly seq: number };

/** A call that somebody has to approve. */
export interface ApprovalRequest {
  /** Sent back with the answer, and the digest too. */
  readonly id: string;
  /** The call of the run that waits. If it is that of a child run, the approval is for a call of that. */
  readonly call_id: string;
  readonly tool: string;
  /** The step of a workflow. */
  readonly step?: string;
  readonly arguments: string;
  readonly digest: string;
  readonly touches: readonly Touch[];
  readonly reason: string | null;
  /** The rule that requires the approval. Absent: it has no name. */
  readonly rule?: string;
  /** What the policy wants to be shown, such as a diff. Plain JSON. */
  readonly shown?: unknown;
  /** How many people have to approve. Absent: one. */
  readonly required?: number;
  /** Who has approved so far, if several people have to. */
  readonly approved_by?: readonly string[];
  /** In milliseconds since 1970. Then the call is denied. */
  readonly expires_at: number;
}

/** What a person has to answer: an approval has a digest, a question a prompt. */
export type AskRequest = ApprovalRequest | QuestionRequest;

/** An answer of a person. `id`: of the request. `signature`: for `verifyAnswer`, and not stored. */
export type ChatAnswer = { readonly id: string; readonly signature?: string } & (
  | {
      readonly approved: boolean;
      readonly digest: string;
      readonly reason?: string;
      /** Later calls of the tool that touch nothing else are allowed too, in the rest of the conversation. */
      readonly for_run?: boolean;
    }
  | { readonly answer: unknown }
);

/** A decision about a call that people were asked about, or that the policy denied. */
export interface CallDecision {
  readonly approved: boolean;
  /** `policy`: it denied the call without asking. `deadline`: nobody has answered in time. */
  readonly source: 'person' | 'policy' | 'deadline';
  /** The names of those who answered. Empty if they have none: the server has no keys. */
  readonly by: readonly string[];
  /** The rule that denied the call or required the approval; null if it has no name. */
  readonly rule: string | null;
  /** Of a denial. */
  readonly reason: string | null;
}

/** The result of a call. */
export interface ResultContent {
  /** Its text. What is not text is described. */
  readonly content: string;
  readonly is_error: boolean;
  /** All of it, in order. Absent if it is only text. */
  readonly parts?: readonly ResultPart[];
}

export type ResultPart =
  | { readonly type: 'text'; readonly text: string }
  | ({ readonly type: 'image' } & StoredAttachment)
  | ({ readonly type: 'file' } & StoredAttachment);

/** A question of a tool. */
export interface QuestionRequest {
  readonly id: string;
  readonly call_id: string;
  readonly tool: string;
  readonly step?: string;
  readonly prompt: string;
  readonly choices: readonly string[] | null;
  readonly schema: object | null;
  readonly expires_at: number | null;
}

export interface ChatUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly reasoning_tokens: number;
  /** In US dollars; null if a price is unknown. */
  readonly cost: number | null;
}

/** An error or a warning. `code` is for programs, `message` for people. */
export interface ChatProblem {
  readonly code: string;
  readonly message: string;
}

export type ChatStatus = 'completed' | 'incomplete' | 'failed' | 'cancelled';

/** A piece of an answer, in order. Stored as JSON, so its fields must not change. */
export type AnswerPart =
  /** `stopped`: the run ended before the model completed the text. */
  | { readonly type: 'text' | 'reasoning'; readonly text: string; readonly stopped?: true }
  | ToolCallPart
  /** A message that was sent while the answer was in progress. */
  | { readonly type: 'input'; readonly text: string };

export interface ToolCallPart {
  readonly type: 'tool_call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /** Absent: it is not known. */
  readonly called_at?: number;
  /** Absent: nobody was asked, and the policy did not deny it. */
  readonly decision?: CallDecision;
  /** Null while it has none. */
  readonly result: CallResult | null;
}

export interface CallResult extends ResultContent {
  /** Null if it is not known: the call belongs to a response, or its client executed it. */
  readonly duration_ms: number | null;
}

/** A file that was sent with a message. Stored as JSON, so its fields must not change. */
export interface Attachment {
  readonly name: string | null;
  readonly media_type: string;
  /** In bytes. */
  readonly size: number;
}

/** Its bytes are those of `GET /v1/chat/{id}/attachments/{id of the attachment}`. */
export interface StoredAttachment extends Attachment {
  readonly id: string;
}

/** An attachment in a request. */
export interface SentAttachment {
  readonly name?: string | null | undefined;
  /** Absent: it follows from the data URL, or from the name. */
  readonly media_type?: string | null | undefined;
  /** Base64, or a data URL. */
  readonly data: string;
}

/** The body of `POST /v1/chat`. */
export interface ChatBody {
  /** Absent: a new conversation. */
  readonly conversation_id?: string | null | undefined;
  /** May be empty if there are attachments. */
  readonly message: string;
  readonly attachments?: readonly SentAttachment[] | null | undefined;
  readonly model?: string | null | undefined;
  /** Of a new conversation: what the model is told in all of it. */
  readonly instructions?: string | null | undefined;
  readonly tools?: readonly string[] | null | undefined;
  /** Gives the model the tools of this device, and of the server only those that `tools` names. */
  readonly device?: string | null | undefined;
  readonly approvals?: 'ask' | null | undefined;
  /** Sources of narrowings of the conversation, such as `plan` or `skill:NAME`, that do not apply any more. */
  readonly lift_narrowing?: readonly string[] | null | undefined;
  /**
   * From this message on; default: as before in the conversation. `off`: nothing is recalled or noted. `incognito`: nor is anything
   * remembered, and the conversation stays so.
   */
  readonly memory?: MemorySwitch | null | undefined;
  readonly on_disconnect?: 'cancel' | 'continue' | null | undefined;
}

export type MemorySwitch = 'on' | 'off' | 'incognito';

/** A conversation without its messages. */
export interface ChatSummary {
  readonly id: string;
  readonly object: 'conversation';
  readonly title: string | null;
  readonly created_at: number;
  readonly updated_at: number;
}

export interface ChatConversation extends ChatSummary {
  /** What the model is told in the conversation. Null: nothing. */
  readonly instructions: string | null;
  /** Null: the server remembers nothing. */
  readonly memory: MemorySwitch | null;
  readonly messages: readonly ChatMessage[];
}

export type ChatMessage = ChatUserMessage | ChatAnswerMessage;

export interface ChatUserMessage {
  readonly id: string;
  readonly role: 'user';
  readonly created_at: number;
  readonly content: string;
  readonly attachments: readonly StoredAttachment[];
}

export interface ChatAnswerMessage {
  readonly id: string;
  readonly role: 'assistant';
  readonly created_at: number;
  /** Null: a client has added it to the conversation. */
  readonly run_id: string | null;
  /** The name of the model; null: the default model of the server. */
  readonly model: string | null;
  /** `seq` of the last event before those of the answer: its stream begins after it. */
  readonly events_after: number;
  readonly status: ChatStatus | 'in_progress' | 'waiting';
  readonly parts: readonly AnswerPart[];
  readonly error: ChatProblem | null;
  readonly usage: ChatUsage | null;
  /** About the message, such as attachments that the model cannot see. */
  readonly warnings: readonly ChatProblem[];
  /** Open approvals and questions. */
  readonly waiting: readonly AskRequest[];
  /** The sources of what narrows the run, and the next answer. Absent: there are none. */
  readonly narrowed_by?: readonly string[];
}

export function chatUsage({
  inputTokens,
  outputTokens,
  cachedTokens = 0,
  reasoningTokens = 0,
  cost,
}: Usage): ChatUsage {
  return {
    input_tokens: inputTokens,
    output_tokens: outputTokens,
    cached_tokens: cachedTokens,
    reasoning_tokens: reasoningTokens,
    cost: cost ?? null,
  };
}
