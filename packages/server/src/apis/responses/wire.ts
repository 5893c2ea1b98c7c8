import type { ErrorFacts, TokenLogprob, ToolResult, Usage } from '@treadle/core';
import { shownResult } from '@treadle/core/web';
import type { ShownTool } from '../../parse/tools.ts';

/** The objects of the Responses API, and the conversions of single values between them and the loop. */

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete';

export interface OutputText {
  readonly type: 'output_text';
  readonly text: string;
  readonly annotations: readonly unknown[];
  readonly logprobs: readonly WireLogprob[];
}

/** A token in the form of both APIs. */
export interface WireLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly Omit<WireLogprob, 'top_logprobs'>[];
}

export interface MessageItem {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'assistant';
  /** `commentary` accompanies calls, `final_answer` ends the response. */
  readonly phase?: 'commentary' | 'final_answer';
  readonly content: readonly (OutputText | Refusal)[];
}

export interface ReasoningItem {
  readonly type: 'reasoning';
  readonly id: string;
  readonly status: ItemStatus;
  readonly summary: readonly { readonly type: 'summary_text'; readonly text: string }[];
  /** The reasoning itself, where the provider returns it. */
  readonly content?: readonly { readonly type: 'reasoning_text'; readonly text: string }[];
  /** What the model needs to get back. Only for clients that request it because they store the conversation. */
  readonly encrypted_content?: string;
}

/** A call that the client executes. */
export interface FunctionCallItem {
  readonly type: 'function_call';
  readonly id: string;
  readonly call_id: string;
  readonly name: string;
  /** Absent: the tool belongs to none. */
  readonly namespace?: string;
  readonly arguments: string;
  readonly status: ItemStatus;
}

/** A call that the client executes, of a tool that takes a text. */
export interface CustomCallItem {
  readonly type: 'custom_tool_call';
  readonly id: string;
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  readonly input: string;
  readonly status: ItemStatus;
}

/** A call of a search for tools that the client executes. Its tools are in the output. */
export interface ToolSearchCallItem {
  readonly type: 'tool_search_call';
  readonly id: string;
  readonly call_id: string;
  readonly execution: 'client';
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly status: ItemStatus;
}

/** A call of `shell`, which the client executes. */
export interface ShellCallItem {
  readonly type: 'shell_call';
  readonly id: string;
  readonly call_id: string;
  readonly action: {
    readonly commands: readonly string[];
    readonly timeout_ms: number | null;
    readonly max_output_length: number | null;
  };
  /** A call that another server has executed may have a container. */
  readonly environment:
    | { readonly type: 'local' }
    | { readonly type: 'container_reference'; readonly container_id: string }
    | null;
  readonly status: ItemStatus;
}

/** A call of `local_shell`, which the client executes. */
export interface LocalShellCallItem {
  readonly type: 'local_shell_call';
  readonly id: string;
  readonly call_id: string;
  readonly action: {
    readonly type: 'exec';
    readonly command: readonly string[];
    readonly env: Readonly<Record<string, string>>;
    readonly timeout_ms: number | null;
    readonly user: string | null;
    readonly working_directory: string | null;
  };
  readonly status: ItemStatus;
}

/** A call of `apply_patch`, which the client executes. */
export interface ApplyPatchCallItem {
  readonly type: 'apply_patch_call';
  readonly id: string;
  readonly call_id: string;
  readonly operation:
    | { readonly type: 'create_file' | 'update_file'; readonly path: string; readonly diff: string }
    | { readonly type: 'delete_file'; readonly path: string };
  readonly status: ItemStatus;
}

/** A call that the server executes or has refused. */
export interface McpCallItem {
  readonly type: 'mcp_call';
  readonly id: string;
  readonly server_label: string;
  readonly name: string;
  readonly arguments: string;
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed';
  readonly output: string | null;
  readonly error: McpError | null;
  /** The request for the approval that the client has given, or refused. */
  readonly approval_request_id: string | null;
}

/** A call that the client has to approve. */
export interface McpApprovalRequestItem {
  readonly type: 'mcp_approval_request';
  readonly id: string;
  readonly server_label: string;
  readonly name: string;
  readonly arguments: string;
}

/** The tools of another server. `error`: why it has not listed them. */
export interface McpListToolsItem {
  readonly type: 'mcp_list_tools';
  readonly id: string;
  readonly server_label: string;
  readonly tools: readonly McpListedTool[];
  readonly error?: string;
}

export interface McpListedTool {
  readonly name: string;
  readonly description?: string;
  readonly input_schema: unknown;
  readonly annotations?: Readonly<Record<string, unknown>>;
}

export type OutputItem =
  | MessageItem
  | ReasoningItem
  | FunctionCallItem
  | CustomCallItem
  | ToolSearchCallItem
  | ShellCallItem
  | LocalShellCallItem
  | ApplyPatchCallItem
  | McpCallItem
  | McpApprovalRequestItem
  | McpListToolsItem
  | CompactionItem;

/** An input item as it is stored and returned: it has an id, and its content is a list of parts. */
export type InputItem =
  | InstructionOrUserMessage
  | MessageItem
  | ReasoningItem
  | FunctionCallItem
  | FunctionCallOutputItem
  | CustomCallItem
  | CustomCallOutputItem
  | ToolSearchCallItem
  | ToolSearchOutputItem
  | ShellCallItem
  | ShellCallOutputItem
  | LocalShellCallItem
  | LocalShellCallOutputItem
  | ApplyPatchCallItem
  | ApplyPatchCallOutputItem
  | AdditionalToolsItem
  | PassedOverItem
  | McpCallItem
  | McpApprovalRequestItem
  | McpApprovalResponseItem
  | McpListToolsItem
  | CompactionItem
  | ItemReference;

export interface InputText {
  readonly type: 'input_text';
  readonly text: string;
}

/** `image_url` is an http(s) URL or a data URL. */
export interface InputImage {
  readonly type: 'input_image';
  readonly image_url: string;
  readonly detail: 'low' | 'high' | 'auto' | 'original';
}

/** Exactly one of `file_data`, a data URL or base64, and `file_url` is present. */
export interface InputFile {
  readonly type: 'input_file';
  readonly filename?: string;
  readonly file_data?: string;
  readonly file_url?: string;
}

export interface Refusal {
  readonly type: 'refusal';
  readonly refusal: string;
}

export type InputPart = InputText | InputImage | InputFile;

/** System and developer messages contain only texts. */
export interface InstructionOrUserMessage {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'user' | 'system' | 'developer';
  readonly content: readonly InputPart[];
}

/** The API has no error flag: `status: 'incomplete'` marks an error, and so does our own field `is_error`. */
export interface FunctionCallOutputItem {
  readonly type: 'function_call_output';
  readonly id: string;
  readonly call_id: string;
  readonly output: string | readonly InputPart[];
  readonly status: ItemStatus;
  readonly is_error?: boolean;
}

export interface CustomCallOutputItem extends Omit<FunctionCallOutputItem, 'type'> {
  readonly type: 'custom_tool_call_output';
}

/** The tools that a search of the client has found. They apply from here on. */
export interface ToolSearchOutputItem {
  readonly type: 'tool_search_output';
  readonly id: string;
  readonly call_id: string;
  readonly execution: 'client';
  readonly tools: readonly ShownTool[];
  readonly status: ItemStatus;
}

/** What one command of a `shell_call` has printed, and how it ended. */
export interface ShellOutput {
  readonly stdout: string;
  readonly stderr: string;
  readonly outcome: { readonly type: 'exit'; readonly exit_code: number } | { readonly type: 'timeout' };
}

export interface ShellCallOutputItem {
  readonly type: 'shell_call_output';
  readonly id: string;
  readonly call_id: string;
  readonly output: readonly ShellOutput[];
  readonly max_output_length: number | null;
  readonly status: ItemStatus;
}

export interface LocalShellCallOutputItem {
  readonly type: 'local_shell_call_output';
  readonly id: string;
  readonly call_id: string;
  readonly output: string;
  readonly status: ItemStatus;
}

export interface ApplyPatchCallOutputItem {
  readonly type: 'apply_patch_call_output';
  readonly id: string;
  readonly call_id: string;
  readonly status: 'completed' | 'failed';
  readonly output: string | null;
}

/** Tools that apply from here on. */
export interface AdditionalToolsItem {
  readonly type: 'additional_tools';
  readonly id: string;
  readonly role: 'developer';
  readonly tools: readonly ShownTool[];
}

/**
 * The kinds of items that belong to tools of other servers, which this server does not have. Clients send them back with the
 * rest of a conversation. They are accepted, and not sent to the model.
 */
export const PASSED_OVER = [
  'web_search_call',
  'file_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'computer_call',
  'computer_call_output',
  'tool_search_call',
  'tool_search_output',
] as const;

/** Only its type and its id are stored. */
export interface PassedOverItem {
  readonly type: (typeof PASSED_OVER)[number];
  readonly id: string;
}

/** What the client decided about a call. */
export interface McpApprovalResponseItem {
  readonly type: 'mcp_approval_response';
  readonly id: string;
  readonly approval_request_id: string;
  readonly approve: boolean;
  readonly reason?: string;
}

/** Represents a conversation that was compacted. Only this server can read it. */
export interface CompactionItem {
  readonly type: 'compaction';
  readonly id: string;
  readonly encrypted_content: string;
}

/** Refers to an item of an earlier response. */
export interface ItemReference {
  readonly type: 'item_reference';
  readonly id: string;
}

/**
 * `requires_action` is stored as such. Clients that did not request this status see `completed`, because the official
 * clients do not know it. A background response is `queued` until its run begins.
 */
export type ResponseStatus =
  | 'queued'
  | 'in_progress'
  | 'completed'
  | 'incomplete'
  | 'failed'
  | 'cancelled'
  | 'requires_action';

export interface WireUsage {
  readonly input_tokens: number;
  readonly input_tokens_details: { readonly cached_tokens: number };
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly reasoning_tokens: number };
  readonly total_tokens: number;
}

/** The fields of a response that repeat the request, with the defaults filled in. */
export interface Echo {
  readonly background: boolean;
  /** Absent: the response belongs to no conversation. */
  readonly conversation?: { readonly id: string };
  readonly frequency_penalty: number;
  readonly instructions: unknown;
  readonly max_output_tokens: number | null;
  readonly max_tool_calls: number | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly model: string;
  readonly parallel_tool_calls: boolean;
  readonly presence_penalty: number;
  readonly previous_response_id: string | null;
  readonly prompt_cache_key: string | null;
  readonly reasoning: unknown;
  readonly safety_identifier: string | null;
  readonly service_tier: string;
  readonly store: boolean;
  readonly temperature: number;
  readonly text: unknown;
  readonly tool_choice: unknown;
  readonly tools: readonly unknown[];
  readonly top_logprobs: number;
  readonly top_p: number;
  readonly truncation: 'auto' | 'disabled';
  readonly user?: string;
}

/** A response as it is sent and stored. */
export interface ResponseResource extends Echo {
  readonly id: string;
  readonly object: 'response';
  /** In seconds since 1970. */
  readonly created_at: number;
  readonly completed_at: number | null;
  readonly status: ResponseStatus;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly output: readonly OutputItem[];
  readonly usage: WireUsage | null;
  /**
   * The calls that the client has to answer before the conversation continues, and the ids of requests for its approval.
   * Absent when there are none.
   */
  readonly pending_call_ids?: readonly string[];
}

/** Whether the response has more than the items with which it was created. */
export function hasReply({ output }: ResponseResource): boolean {
  return output.some(({ type }) => type !== 'mcp_list_tools' && type !== 'compaction');
}

/** The response as one client sees it. */
export function presentedResponse(response: ResponseResource, requiresAction: boolean): ResponseResource {
  if (requiresAction || response.status !== 'requires_action') return response;
  return { ...response, status: 'completed' };
}

export function wireUsage({ inputTokens, outputTokens, cachedTokens = 0, reasoningTokens = 0 }: Usage): WireUsage {
  return {
    input_tokens: inputTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: inputTokens + outputTokens,
  };
}

export function wireLogprobs(tokens: readonly TokenLogprob[]): readonly WireLogprob[] {
  return tokens.map((token) => ({ ...wireToken(token), top_logprobs: (token.top ?? []).map(wireToken) }));
}

function wireToken({
  token,
  logprob,
  bytes = [...Buffer.from(token)],
}: TokenLogprob): Omit<WireLogprob, 'top_logprobs'> {
  return { token, logprob, bytes };
}

/**
 * Why a call of the server failed, in the forms of the official clients: an error of JSON-RPC, an HTTP answer that is an
 * error, with its status as the code, or any other. `message` of the last one is for clients that show it.
 */
export type McpError =
  | { readonly type: 'mcp_protocol_error' | 'http_error'; readonly code: number; readonly message: string }
  | {
      readonly type: 'mcp_tool_execution_error';
      readonly message: string;
      readonly content: readonly { readonly type: 'text'; readonly text: string }[];
    };

export function mcpError(message: string, { protocolCode, httpStatus }: ErrorFacts = {}): McpError {
  if (protocolCode !== undefined) return { type: 'mcp_protocol_error', code: protocolCode, message };
  if (httpStatus !== undefined) return { type: 'http_error', code: httpStatus, message };
  return { type: 'mcp_tool_execution_error', message, content: [{ type: 'text', text: message }] };
}

/** An error in any form that clients send back. */
export function sentMcpError(error: unknown): McpError | null {
  const text = mcpErrorText(error);
  if (text === null) return null;
  const { type, code } = error as { readonly type?: unknown; readonly code?: unknown };
  if (!Number.isSafeInteger(code)) return mcpError(text);
  return mcpError(text, {
    ...(type === 'mcp_protocol_error' && { protocolCode: code as number }),
    ...(type === 'http_error' && { httpStatus: code as number }),
  });
}

/** The text of an error in any form that clients send back: ours, the form of MCP itself, or a string. */
export function mcpErrorText(error: unknown): string | null {
  if (error === undefined || error === null) return null;
  if (typeof error === 'string') return error;
  const { message, content } = error as { readonly message?: unknown; readonly content?: unknown };
  if (typeof message === 'string') return message;
  const texts = Array.isArray(content)
    ? content.flatMap((part: { readonly text?: unknown } | null) => part?.text ?? [])
    : [];
  return texts.length > 0 ? texts.join('\n') : JSON.stringify(error);
}

/** A result in an `mcp_call` item, which contains only text. An error has a field of its own. */
export function mcpCallResult(result: ToolResult): Pick<McpCallItem, 'output' | 'error'> {
  const text = shownResult(result.content);
  return result.isError
    ? { output: null, error: mcpError(text || 'The call was not executed.', result) }
    : { output: text, error: null };
}
