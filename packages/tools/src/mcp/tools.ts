import { createHash } from 'node:crypto';
import { tool, type Tool, type ToolEffect } from '@treadle/core';
import { checkedSchema } from './schemas.ts';
import type { McpServer, McpServerOptions, McpTool } from './options.ts';
import { mcpServer } from './server.ts';

export interface McpToolsOptions {
  readonly signal?: AbortSignal;
  /** Names that other tools of the run have. */
  readonly taken?: Iterable<string>;
}

const LEGAL = /^[a-zA-Z0-9_-]{1,64}$/;
const MAX_NAME = 64;

/**
 * The tools of one or more servers for a run. A name that two of them have, that is taken or that providers do not accept
 * gets the name of its server in front of it. Rejects if a server cannot be used.
 */
export async function mcpTools(
  servers: McpServer | McpServerOptions | readonly McpServer[],
  { signal, taken = [] }: McpToolsOptions = {},
): Promise<readonly Tool[]> {
  const all: readonly McpServer[] = Array.isArray(servers)
    ? (servers as readonly McpServer[])
    : ['listTools' in servers ? servers : mcpServer(servers as McpServerOptions)];
  const lists = await Promise.all(all.map(async (server) => ({ server, tools: await server.listTools(signal) })));
  return toolsOf(lists, new Set(taken));
}

interface ListedTools {
  readonly server: McpServer;
  readonly tools: readonly McpTool[];
}

/** Tools with names that are unique among themselves and the taken ones. */
function toolsOf(lists: readonly ListedTools[], taken: ReadonlySet<string>): readonly Tool[] {
  const counts = new Map<string, number>();
  for (const { server, tools } of lists) {
    for (const { name } of tools) {
      const wanted = wantedName(server, name);
      counts.set(wanted, (counts.get(wanted) ?? 0) + 1);
    }
  }
  return lists.flatMap(({ server, tools }) =>
    tools.map((described) => {
      const wanted = wantedName(server, described.name);
      const isFree = LEGAL.test(wanted) && counts.get(wanted) === 1 && !taken.has(wanted);
      return toolOf(server, described, isFree ? wanted : prefixedName(server, described.name));
    }),
  );
}

function wantedName({ options: { prefix = '' } }: McpServer, name: string): string {
  return prefix + name;
}

/** The name with that of the server in front. Only depends on the two, so it is the same in every process. */
function prefixedName({ name: server, options: { prefix } }: McpServer, name: string): string {
  const whole = `${prefix ?? `${server}__`}${name}`;
  const legal = whole.replace(/[^a-zA-Z0-9_-]/g, '_');
  if (legal === whole && prefix === undefined && legal.length <= MAX_NAME) return legal;
  const hash = createHash('sha256').update(`${server}\0${name}`).digest('hex').slice(0, 8);
  return `${legal.slice(0, MAX_NAME - 9)}_${hash}`;
}

function toolOf(server: McpServer, described: McpTool, name: string): Tool {
  const { approval, timeoutMs, trustAnnotations = false } = server.options;
  const { readOnlyHint, idempotentHint } = (trustAnnotations && described.annotations) || {};
  const effect: ToolEffect = readOnlyHint === true ? 'pure' : idempotentHint === true ? 'idempotent' : 'once';
  return tool({
    name,
    description: descriptionOf(server, described),
    input: checkedSchema(described.inputSchema),
    parameters: described.inputSchema,
    effect,
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(readOnlyHint === true && { touches: () => [] }),
    needsApproval: needsApproval(approval, described.name),
    execute: (input, context) => server.callTool(described.name, input, context),
  });
}

function descriptionOf({ name }: McpServer, { title, description }: McpTool): string {
  const text = description === '' ? (title ?? 'No description.') : description;
  return `${text}\n\n(A tool of the MCP server "${name}".)`;
}

function needsApproval(approval: McpServerOptions['approval'], name: string): boolean {
  if (approval === undefined || approval === 'never') return false;
  if (approval === 'always') return true;
  const { always, never } = approval;
  if (always?.includes(name)) return true;
  // With only `never`, all others are asked about.
  return always === undefined && never !== undefined && !never.includes(name);
}
