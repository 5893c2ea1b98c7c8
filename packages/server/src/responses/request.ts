import type { Settings } from '@treadle/core';
import type { RequestTool } from '../executors/executor.ts';
import type { Echo } from '../wire/response.ts';
import type { InputItem } from './input-items.ts';

/** A function that the client executes. */
export interface FunctionTool {
  readonly type: 'function';
  readonly name: string;
  readonly description: string | null;
  readonly parameters: Readonly<Record<string, unknown>> | null;
  readonly strict: boolean | null;
}

export type WireToolChoice =
  | 'auto'
  | 'required'
  | 'none'
  | { readonly type: 'function'; readonly name: string }
  | { readonly type: 'mcp'; readonly server_label: string; readonly name?: string | null }
  | { readonly type: 'allowed_tools'; readonly mode: 'auto' | 'required'; readonly tools: readonly RequestTool[] };

/** JSON Schema, and what a model that can make sure of it is told. */
export interface AnswerForm {
  readonly schema: Readonly<Record<string, unknown>>;
  readonly name?: string;
  readonly strict?: boolean;
}

/** A request for a response that has been checked; plain JSON. What is kept with the response is its `storable` form. */
export interface ResponseRequest {
  /** Absent: the server's default. */
  readonly model?: string;
  readonly stream: boolean;
  readonly store: boolean;
  readonly previous?: string;
  readonly instructions?: string;
  /** With an id each, in the order in which they came. */
  readonly input: readonly InputItem[];
  readonly functions: readonly FunctionTool[];
  /** Everything in `tools` that is not a function, with the secrets that it may hold: `storable` leaves those out. */
  readonly otherTools: readonly RequestTool[];
  readonly toolChoice: WireToolChoice;
  readonly parallel: boolean;
  readonly maxToolCalls?: number;
  /** Of the whole response, over all turns. */
  readonly maxOutputTokens?: number;
  /** Without `maxOutputTokens`. */
  readonly settings: Settings;
  /** The form of the answer. */
  readonly format?: AnswerForm;
  readonly truncation: 'auto' | 'disabled';
  readonly include: readonly string[];
  /** What the response repeats; `model` is filled in when it is known. */
  readonly echo: Omit<Echo, 'model'>;
}
