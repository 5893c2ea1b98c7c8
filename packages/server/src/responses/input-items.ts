import type { FunctionCallItem, ItemStatus, McpCallItem, OutputText, ReasoningItem } from '../wire/items.ts';

/** The input of a response, as it is kept and given out again: every item has an id, and content is a list of parts. */
export type InputItem =
  | SaidToModel
  | SaidByModel
  | ReasoningInput
  | FunctionCallItem
  | FunctionCallOutputItem
  | McpCallItem
  | McpToolList
  | ItemReference;

export interface InputText {
  readonly type: 'input_text';
  readonly text: string;
}

/** `image_url` is an http(s) URL or a data URL. */
export interface InputImage {
  readonly type: 'input_image';
  readonly image_url: string;
  readonly detail: 'low' | 'high' | 'auto';
}

/** With exactly one of `file_data`, which is a data URL or base64, and `file_url`. */
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

/** System and developer messages hold texts only. */
export interface SaidToModel {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'user' | 'system' | 'developer';
  readonly content: readonly InputPart[];
}

export interface SaidByModel {
  readonly type: 'message';
  readonly id: string;
  readonly status: ItemStatus;
  readonly role: 'assistant';
  readonly phase?: 'commentary' | 'final_answer';
  readonly content: readonly (OutputText | Refusal)[];
}

/** With the thoughts themselves where another provider has given them. */
export interface ReasoningInput extends ReasoningItem {
  readonly content?: readonly { readonly type: 'reasoning_text'; readonly text: string }[];
}

/** The API has no mark for errors: `status: 'incomplete'` is one, and `is_error` says it outright. */
export interface FunctionCallOutputItem {
  readonly type: 'function_call_output';
  readonly id: string;
  readonly call_id: string;
  readonly output: string | readonly InputPart[];
  readonly status: ItemStatus;
  readonly is_error?: boolean;
}

/** Clients send it back with the rest; it says nothing to the model. */
export interface McpToolList {
  readonly type: 'mcp_list_tools';
  readonly id: string;
  readonly server_label: string;
}

/** Stands for an item of an earlier response. */
export interface ItemReference {
  readonly type: 'item_reference';
  readonly id: string;
}
