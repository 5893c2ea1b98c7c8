import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { messageOf, tool, type LiveRun, type Tool, type ToolEffect } from '@treadle/core';
import { cancelSamples } from './calls.ts';
import { DEFAULT_TIMEOUT_MS, type McpServer, type McpServerOptions, type McpTool } from './options.ts';
import { checkedInput } from './schemas.ts';
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

export interface FollowOptions {
  readonly servers: readonly McpServer[];
  /** The other tools of the run. */
  readonly tools?: readonly Tool[];
  /** Other names that its tools must not have. */
  readonly taken?: Iterable<string>;
  /** The tools of a server could not be listed, or not be changed. The run keeps those that it has. */
  readonly onProblem?: (problem: string) => void;
}

/** A server can report changes without end. Its tools are listed once in this time. */
const LIST_PAUSE_MS = 250;

/**
 * Gives a run the changed tools of its servers from its next turn on, until it ends or the returned function is called. A
 * server that does not answer keeps the tools that it had.
 */
export function followMcpTools(
  run: Pick<LiveRun, 'changeTools' | 'result'>,
  { servers, tools = [], taken: others = [], onProblem }: FollowOptions,
): () => void {
  const taken = new Set([...others, ...tools.map(({ name }) => name)]);
  const stopping = new AbortController();
  let known: string | undefined;
  let isListing = false;
  let isChanged = false;
  let mayListAt = 0;

  async function change(): Promise<void> {
    isChanged = true;
    if (isListing) return;
    isListing = true;
    try {
      while (isChanged && !stopping.signal.aborted) {
        await sleep(Math.max(0, mayListAt - Date.now()), undefined, { signal: stopping.signal, ref: false });
        isChanged = false;
        mayListAt = Date.now() + LIST_PAUSE_MS;
        const current = await mcpTools(servers, { signal: stopping.signal, taken });
        const fingerprint = current.map((one) => `${one.name} ${one.fingerprint}`).join('\n');
        if (fingerprint === known) continue;
        known = fingerprint;
        if (!(await run.changeTools([...tools, ...current]))) break;
      }
    } catch (error) {
      if (!stopping.signal.aborted) onProblem?.(messageOf(error));
    } finally {
      isListing = false;
    }
  }

  const unsubscribe = servers.map((server) => server.onToolsChanged(() => void change()));
  const stop = (): void => {
    stopping.abort();
    for (const one of unsubscribe) one();
  };
  void run.result.then(stop, stop);
  return stop;
}

interface ListedTools {
  readonly server: McpServer;
  readonly tools: readonly McpTool[];
}

/**
 * Tools with names that are unique among themselves and the taken ones. A tool does not get a name that another one could
 * get, so that no server can take the name of another server's tool.
 */
function toolsOf(lists: readonly ListedTools[], taken: ReadonlySet<string>): readonly Tool[] {
  const all = lists.flatMap(({ server, tools }) =>
    tools.map((described) => ({ server, described, names: namesFor(server, described.name) })),
  );
  const counts = new Map<string, number>();
  for (const { names } of all) for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  const used = new Set(taken);
  return all.flatMap(({ server, described, names }) => {
    const isFree = (name: string): boolean => LEGAL.test(name) && counts.get(name) === 1 && !taken.has(name);
    const name = names.find(isFree) ?? names.at(-1)!;
    if (used.has(name)) return [];
    used.add(name);
    return [toolOf(server, described, name)];
  });
}

/**
 * The names that a tool can have, best first. The last one is legal. They only depend on the server and the tool, so they are
 * the same in every process.
 */
function namesFor({ name: server, options: { prefix } }: McpServer, name: string): readonly string[] {
  const whole = `${prefix ?? `${server}__`}${name}`;
  const hash = createHash('sha256').update(`${server}\0${name}`).digest('hex').slice(0, 8);
  const hashed = `${whole.replace(/[^a-zA-Z0-9_-]/g, '_').slice(0, MAX_NAME - 9)}_${hash}`;
  return prefix === undefined ? [name, whole, hashed] : [whole, hashed];
}

function toolOf(server: McpServer, described: McpTool, name: string): Tool {
  const { approval, timeoutMs = DEFAULT_TIMEOUT_MS, trustAnnotations = false, sampling } = server.options;
  const { readOnlyHint, idempotentHint, openWorldHint } = (trustAnnotations && described.annotations) || {};
  const effect: ToolEffect = readOnlyHint === true ? 'pure' : idempotentHint === true ? 'idempotent' : 'once';
  const { fingerprint } = described;
  const made = tool({
    name,
    description: descriptionOf(server, described),
    input: checkedInput(described.inputSchema),
    parameters: described.inputSchema,
    effect,
    timeoutMs,
    fingerprint,
    ...(readOnlyHint === true && { touches: () => [] }),
    // Anybody may have written what it returns, unless the server is believed and says otherwise.
    ...(openWorldHint !== false && { exposes: 'outside' as const }),
    needsApproval: needsApproval(approval, described.name),
    ...((sampling || server.mayBecomeTask(described)) && {
      async verify(_, context) {
        const verified = await server.verifyCall(described.name, context);
        if (sampling && 'type' in verified && verified.type === 'unknown') await cancelSamples(sampling, context);
        return verified;
      },
    }),
    execute: (input, context) => server.callTool(described.name, input, context, fingerprint),
  });
  // A call may have child runs then: the requests of the server for a model.
  return sampling ? { ...made, share: SAMPLING_SHARE, asks: [sampling] } : made;
}

/** The part of the remaining limits of a run that the server may use in one call. */
const SAMPLING_SHARE = 0.5;

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
