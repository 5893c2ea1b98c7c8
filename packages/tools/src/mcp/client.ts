import { Client, INVALID_REQUEST, ProtocolError } from '@modelcontextprotocol/client';
import { sample, type ActiveCall } from './calls.ts';
import { DEFAULT_LIST_TIMEOUT_MS, McpError, type McpServerOptions } from './options.ts';
import { elicit } from './questions.ts';
import { rootsOf } from './request-tool.ts';
import { safeValidator } from './schemas.ts';
import { relatedTask, taskQuestion, TASKS } from './tasks.ts';

/** A server that is a process and does not answer the question for its version for so long speaks an older version. */
const MAX_PROBE_MS = 10_000;
const MAX_PAGES = 64;
const MAX_TOOLS = 5_000;
const MAX_LIST_CHARS = 16 * 1024 * 1024;

export interface ClientEvents {
  /** Calls in progress, which a request of the server may be about. */
  readonly calls: ReadonlySet<ActiveCall>;
  readonly onListChanged: () => void;
}

/** The client of the SDK for a new connection. It answers what a server asks. */
export function makeClient(options: McpServerOptions, { calls, onListChanged }: ClientEvents): Client {
  const { name, roots, sampling, listTimeoutMs = DEFAULT_LIST_TIMEOUT_MS } = options;
  const client = new Client(
    { name: 'treadle', version: '0.0.0' },
    {
      capabilities: {
        elicitation: { form: {}, url: {} },
        ...(roots && { roots: {} }),
        ...(sampling && { sampling: {} }),
        extensions: { [TASKS]: {} },
      },
      versionNegotiation: { mode: 'auto', probe: { timeoutMs: Math.min(MAX_PROBE_MS, listTimeoutMs / 2) } },
      listMaxPages: MAX_PAGES,
      jsonSchemaValidator: safeValidator,
    },
  );
  limitLists(client, name);
  client.setNotificationHandler('notifications/tools/list_changed', onListChanged);
  client.setRequestHandler('elicitation/create', async ({ params }, { mcpReq }) => {
    const call = callAsking(calls, params);
    reportTo(client, mcpReq._meta?.progressToken, 'A person is asked.');
    const id = `elicitation ${call.questions++}`;
    return elicit(name, call, params, call.task === undefined ? id : taskQuestion(call.task, id));
  });
  if (roots) client.setRequestHandler('roots/list', () => ({ roots: rootsOf(roots) }));
  if (sampling) {
    client.setRequestHandler('sampling/createMessage', async ({ params }, { mcpReq }) => {
      reportTo(client, mcpReq._meta?.progressToken, 'A model is asked.');
      return sample(name, callAsking(calls, params), sampling, params, mcpReq.signal);
    });
  }
  return client;
}

/**
 * The call that a request of the server is about. Servers of older versions say that only of tasks. Calls of one run ask the
 * same people and share their limits, so any of them will do; those of several runs must not be mixed up.
 */
function callAsking(calls: ReadonlySet<ActiveCall>, params: Parameters<typeof relatedTask>[0]): ActiveCall {
  const task = relatedTask(params);
  const [first, ...others] = [...calls].filter((call) => task === undefined || call.task === task);
  if (!first) throw new ProtocolError(INVALID_REQUEST, 'There is no call in progress that could ask.');
  if (others.every(({ runId }) => runId === first.runId)) return first;
  throw new ProtocolError(INVALID_REQUEST, 'Calls of several runs are in progress, and the request does not name one.');
}

/** Tells a server that its request is being worked on. */
function reportTo(client: Client, progressToken: string | number | undefined, message: string): void {
  if (progressToken === undefined) return;
  client
    .notification({ method: 'notifications/progress', params: { progressToken, progress: 0, message } })
    .catch(() => {});
}

/** Counts what the pages of a listing contain. The SDK limits only their number. */
function limitLists(client: Client, name: string): void {
  const request = client.request.bind(client) as (...args: readonly unknown[]) => Promise<unknown>;
  let tools = 0;
  let chars = 0;
  const counted = async (
    asked: { method: string; params?: { cursor?: string } },
    ...rest: unknown[]
  ): Promise<unknown> => {
    const result = await request(asked, ...rest);
    if (asked.method !== 'tools/list') return result;
    if (asked.params?.cursor === undefined) tools = chars = 0;
    tools += (result as { tools: readonly unknown[] }).tools.length;
    chars += JSON.stringify(result).length;
    if (tools <= MAX_TOOLS && chars <= MAX_LIST_CHARS) return result;
    const what = tools > MAX_TOOLS ? `more than ${MAX_TOOLS} tools` : `more than ${MAX_LIST_CHARS} characters`;
    throw new McpError('too-large', `MCP server "${name}" lists ${what}. Choose some with its own options.`);
  };
  client.request = counted as unknown as Client['request'];
}
