import type { Principal, Schema, ToolContext, ToolDefinition } from '@treadle/core';

/** A tool of a request that is not a function: `{ type: 'mcp', server_label: 'treadle', … }`. */
export interface RequestTool {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** What the model is told of a function that an executor can run, and how the loop is to treat it. */
export type OfferedFunction = Omit<ToolDefinition<Schema>, 'execute'>;

/** A call that is to be run. */
export interface ExecutorCall {
  /** The function's name, one of those that were offered. */
  readonly name: string;
  /** The arguments, checked against the function's schema. */
  readonly input: unknown;
  /** The tool of the request that brought the function. */
  readonly tool: RequestTool;
}

/**
 * Runs tools of one kind on the server. A request with a tool that no executor takes is refused. Functions are the
 * client's: their calls are returned to it, as single-shot inference would.
 */
export interface ToolExecutor {
  /** The `type` of the tools in requests that it may take: `mcp`, `sandbox`, … Never `function`: those are the client's. */
  readonly kind: string;
  /** Whether it runs this tool. The first executor that says so gets it. */
  canExecute(tool: RequestTool): boolean;
  /** The functions that the tool stands for, for whoever asks. Rejects with an `ApiError` if the request cannot be served. */
  functions(tool: RequestTool, asker: Principal): readonly OfferedFunction[] | Promise<readonly OfferedFunction[]>;
  /** Runs a call, and gives what a tool may give: a text, `{ content, isError }`, anything with a JSON form, or a promise. What it throws is an error result for the model, and the loop goes on. */
  execute(call: ExecutorCall, context: ToolContext): unknown;
}
