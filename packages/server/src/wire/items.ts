import type { McpError } from './mcp-error.ts';

/** The items of the Responses API, as they go over the wire. */

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

export interface OutputText {
  readonly type: 'output_text';
  readonly text: string;
  readonly annotations: readonly unknown[];
  readonly logprobs: readonly unknown[];
}

export interface MessageItem {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'assistant';
  /** `commentary` stands beside calls, `final_answer` is what the response ends with. */
  readonly phase?: 'commentary' | 'final_answer';
  readonly content: readonly OutputText[];
}

export interface ReasoningItem {
  readonly type: 'reasoning';
  readonly id: string;
  readonly status: ItemStatus;
  readonly summary: readonly { readonly type: 'summary_text'; readonly text: string }[];
  /** For clients that keep the conversation themselves and asked for it: what the model needs to get back. */
  readonly encrypted_content?: string;
}

/** A call that the client executes. */
export interface FunctionCallItem {
  readonly type: 'function_call';
  readonly id: string;
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
  readonly status: ItemStatus;
}

/** A call that the server executes, or has refused. */
export interface McpCallItem {
  readonly type: 'mcp_call';
  readonly id: string;
  readonly server_label: string;
  readonly name: string;
  readonly arguments: string;
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  readonly output: string | null;
  readonly error: McpError | null;
  readonly approval_request_id: null;
}

export type OutputItem = MessageItem | ReasoningItem | FunctionCallItem | McpCallItem;
