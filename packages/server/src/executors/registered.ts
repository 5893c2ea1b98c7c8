import type { Tool } from '@treadle/core';
import { badRequest } from '../api-error.ts';
import type { ToolExecutor } from './executor.ts';

/** The label under which clients ask for the server's own tools. */
export const OWN_LABEL = 'treadle';

/** Runs the tools that the embedding program has registered: `{ type: 'mcp', server_label: 'treadle', allowed_tools? }`. */
export function registeredTools(tools: readonly Tool[]): ToolExecutor {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return {
    kind: 'mcp',
    canExecute: (tool) => tool['server_label'] === OWN_LABEL,
    functions(tool) {
      if (![undefined, null, 'never'].includes(tool['require_approval'] as string)) {
        throw badRequest(
          'Approvals of server tools are not supported. Leave require_approval out, or say "never".',
          'tools.require_approval',
          'unsupported_parameter',
        );
      }
      const wanted = namesIn(tool['allowed_tools']);
      for (const name of wanted ?? []) {
        if (!byName.has(name))
          throw badRequest(unknownTool(name, [...byName.keys()]), 'tools.allowed_tools', 'unknown_tool');
      }
      return wanted === undefined ? tools : wanted.map((name) => byName.get(name)!);
    },
    execute: ({ name, input }, context) => byName.get(name)!.execute!(input, context),
  };
}

/** `["read"]` or `{ tool_names: ["read"] }`; absent: all of them. */
function namesIn(allowed: unknown): readonly string[] | undefined {
  if (allowed === undefined || allowed === null) return undefined;
  const isFilter = typeof allowed === 'object' && 'tool_names' in allowed;
  const names = isFilter ? allowed.tool_names : allowed;
  if (Array.isArray(names) && names.every((name) => typeof name === 'string')) return [...new Set<string>(names)];
  throw badRequest('allowed_tools must be a list of names of tools.', 'tools.allowed_tools');
}

function unknownTool(name: string, known: readonly string[]): string {
  return `This server has no tool ${JSON.stringify(name)}. It has: ${known.join(', ') || 'none'}.`;
}
