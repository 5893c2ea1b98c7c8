import type { Principal, Schema, Tool, ToolContext, ToolDefinition } from '@treadle/core';
import { badRequest } from '../api-error.ts';

/** A tool of a request that is not a function: `{ type: 'mcp', server_label: 'treadle', … }`. */
export interface RequestTool {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A function that an executor can run: what is sent to the model, and the rules that the loop applies to its calls. */
export type OfferedFunction = Omit<ToolDefinition<Schema>, 'execute'>;

/** A call that an executor has to run. */
export interface ExecutorCall {
  /** The name of one of the offered functions. */
  readonly name: string;
  /** The arguments, validated against the function's schema. */
  readonly input: unknown;
  /** The tool of the request that the function belongs to. */
  readonly tool: RequestTool;
}

/**
 * Runs tools of one kind on the server. A request with a tool that no executor accepts is rejected. Functions belong to
 * the client: their calls are returned to it, as in single-shot inference.
 */
export interface ToolExecutor {
  /** The `type` of the request's tools that it may run: `mcp`, `sandbox`, … Never `function`. */
  readonly kind: string;
  /** Whether it runs this tool. The first executor that returns true is used. */
  canExecute(tool: RequestTool): boolean;
  /** The functions of the tool for this principal. Rejects with an `ApiError` if the request cannot be served. */
  functions(tool: RequestTool, asker: Principal): readonly OfferedFunction[] | Promise<readonly OfferedFunction[]>;
  /**
   * Runs a call. Returns what a tool may return: a text, `{ content, isError }`, a value with a JSON form, or a promise. An
   * error that it throws becomes an error result for the model, and the run continues.
   */
  execute(call: ExecutorCall, context: ToolContext): unknown;
}

/** The `server_label` of the server's own tools. */
export const OWN_LABEL = 'treadle';

/** Runs the tools that the program registered: `{ type: 'mcp', server_label: 'treadle', allowed_tools? }`. */
export function registeredTools(tools: readonly Tool[]): ToolExecutor {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return {
    kind: 'mcp',
    canExecute: (tool) => tool['server_label'] === OWN_LABEL,
    functions(tool) {
      if (![undefined, null, 'never'].includes(tool['require_approval'] as string)) {
        throw badRequest(
          'Approvals of server tools are not supported. Leave require_approval out, or set it to "never".',
          'tools.require_approval',
          'unsupported_parameter',
        );
      }
      const allowed = allowedNames(tool['allowed_tools']);
      for (const name of allowed ?? []) {
        if (byName.has(name)) continue;
        const known = [...byName.keys()].join(', ') || 'none';
        throw badRequest(
          `This server has no tool ${JSON.stringify(name)}. Its tools: ${known}.`,
          'tools.allowed_tools',
          'unknown_tool',
        );
      }
      return allowed === undefined ? tools : allowed.map((name) => byName.get(name)!);
    },
    execute: ({ name, input }, context) => byName.get(name)!.execute!(input, context),
  };
}

/** `["read"]` or `{ tool_names: ["read"] }`. Undefined: all tools are allowed. */
function allowedNames(allowed: unknown): readonly string[] | undefined {
  if (allowed === undefined || allowed === null) return undefined;
  const isFilter = typeof allowed === 'object' && 'tool_names' in allowed;
  const names = isFilter ? allowed.tool_names : allowed;
  if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return [...new Set<string>(names)];
  throw badRequest('allowed_tools must be a list of tool names.', 'tools.allowed_tools');
}
