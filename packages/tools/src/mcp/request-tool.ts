import { pathToFileURL } from 'node:url';
import {
  isInputRequiredResult,
  UrlElicitationRequiredError,
  type CallToolRequest,
  type CallToolResult,
  type Client,
  type ElicitRequestURLParams,
  type InputRequests,
  type InputResponse,
  type Progress,
  type Root,
} from '@modelcontextprotocol/client';
import { sample, type ActiveCall } from './calls.ts';
import { cleanText } from './describe.ts';
import { McpError, type McpServerOptions, type McpTool } from './options.ts';
import { answeredBefore, elicit, inputId } from './questions.ts';
import { taskParams } from './tasks.ts';

/* One call on an open connection: its requests, its progress, and the input that the server asks for in its answers. */

/** The SDK limits every request. A call has a limit of its own, which does not count the time of people. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** How often a server may ask for input in one call. */
const MAX_ROUNDS = 10;
/** Between two requests if the server asks for nothing but another request. */
const POLL_MS = 250;
/** Servers may report progress at any rate. */
const PROGRESS_MS = 50;

export interface ToolRequest {
  readonly options: McpServerOptions;
  readonly client: Client;
  readonly definition: McpTool;
  readonly input: unknown;
  readonly call: ActiveCall;
}

/** Calls a tool, until it has a result. If people have answered a request for input in another process, it starts there. */
export async function requestTool(request: ToolRequest): Promise<CallToolResult> {
  const { options, client, definition, input, call } = request;
  const { name } = options;
  const { traceparent } = call.context;
  const first = {
    name: definition.name,
    ...(traceparent !== undefined && { _meta: { traceparent } }),
    arguments: input as Record<string, unknown>,
    ...taskParams(client, definition),
  };
  const before = answeredBefore(call.context);
  let params = before ? withInput(first, before.responses, before.requestState) : first;
  for (let round = before ? before.round + 1 : 0; ; round++) {
    const answer = await requestOnce(request, params);
    if (!(answer instanceof UrlElicitationRequiredError) && !isInputRequiredResult(answer))
      return answer as CallToolResult;
    if (round >= MAX_ROUNDS) {
      throw new McpError('protocol', `MCP server "${name}" asked for input more than ${MAX_ROUNDS} times in one call.`);
    }
    if (answer instanceof UrlElicitationRequiredError) {
      await openAddresses(name, call, answer.elicitations);
      continue;
    }
    const { inputRequests = {}, requestState } = answer;
    // Only answers of people are recorded. With other requests the call starts from its beginning after a restart.
    const isKept = Object.values(inputRequests).every(({ method }) => method === 'elicitation/create');
    const idOf: IdOf = (asked, kind) =>
      isKept ? inputId({ round, request: asked, kind, requestState }) : `input ${round} ${asked}`;
    params = withInput(first, await fulfil(request, inputRequests, idOf), requestState);
  }
}

async function requestOnce(
  { client, definition, call }: ToolRequest,
  params: CallToolRequest['params'],
): Promise<unknown> {
  try {
    return await client.callTool(params, {
      signal: call.signal,
      timeout: NO_TIMEOUT_MS,
      allowInputRequired: true,
      // Without `outputSchema`: a request for input would be taken for a result without structured content.
      toolDefinition: { name: definition.name, inputSchema: definition.inputSchema as { type: 'object' } },
      onprogress: progressFor(call),
    });
  } catch (error) {
    if (error instanceof UrlElicitationRequiredError) return error;
    throw error;
  }
}

function progressFor({ context }: ActiveCall): (progress: Progress) => void {
  let next = 0;
  return ({ progress, total, message }) => {
    const now = Date.now();
    if (now < next) return;
    next = now + PROGRESS_MS;
    context.report({
      progress,
      ...(total !== undefined && { total }),
      ...(message !== undefined && { message: cleanText(message, 1_000) }),
    });
  };
}

function withInput(
  params: CallToolRequest['params'],
  inputResponses: Record<string, InputResponse>,
  requestState: string | undefined,
): CallToolRequest['params'] {
  const hasResponses = Object.keys(inputResponses).length > 0;
  return {
    ...params,
    ...(hasResponses && { inputResponses }),
    ...(requestState !== undefined && { requestState }),
  } as CallToolRequest['params'];
}

async function openAddresses(
  name: string,
  call: ActiveCall,
  addresses: readonly ElicitRequestURLParams[],
): Promise<void> {
  for (const address of addresses.slice(0, MAX_ROUNDS)) {
    const { action } = await elicit(name, call, { ...address, mode: 'url' }, `address ${address.elicitationId}`);
    if (action !== 'accept') {
      throw new McpError('refused', `The address that MCP server "${name}" needs was not opened.`);
    }
  }
}

/** The id of a question of a server. */
type IdOf = (request: string, kind: 'form' | 'url') => string;

/** What a server asks for in an answer. */
export async function fulfil(
  { options, call }: Pick<ToolRequest, 'options' | 'call'>,
  inputRequests: InputRequests,
  idOf: IdOf,
): Promise<Record<string, InputResponse>> {
  const { name, sampling, roots = [] } = options;
  const entries = Object.entries(inputRequests);
  if (entries.length === 0) await new Promise((done) => void setTimeout(done, POLL_MS));
  const responses = await Promise.all(
    entries.map(async ([request, one]): Promise<readonly [string, InputResponse]> => {
      switch (one.method) {
        case 'elicitation/create': {
          const kind = one.params.mode === 'url' ? 'url' : 'form';
          return [request, await elicit(name, call, one.params, idOf(request, kind))];
        }
        case 'sampling/createMessage':
          if (!sampling) throw new McpError('refused', `MCP server "${name}" may not ask for a model.`);
          return [request, await sample(name, call, sampling, one.params, call.signal)];
        case 'roots/list':
          return [request, { roots: rootsOf(roots) }];
        default:
          throw new McpError('protocol', `MCP server "${name}" asked for input of an unknown kind.`);
      }
    }),
  );
  return Object.fromEntries(responses);
}

export function rootsOf(folders: readonly string[]): Root[] {
  return folders.map((folder) => ({ uri: pathToFileURL(folder).href }));
}
