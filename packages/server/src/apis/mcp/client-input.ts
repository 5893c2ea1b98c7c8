import type {
  ClientCapabilities,
  CreateMessageRequestParams,
  CreateMessageResult,
  ElicitRequestFormParams,
  InputRequest,
  ListRootsResult,
} from '@modelcontextprotocol/server';
import type { Answer, JsonSchema, Question, ToolContext, Waiting } from '@treadle/core';
import { exactText } from '@treadle/core/describe';
import { isObject } from './content.ts';

/* What a run waits for, as requests to the MCP client, and the answers in what the client sends back. */

/** What the tools of a run find in `context` if an MCP client called them. */
interface McpContext {
  readonly mcp: McpClient;
}

/** The client of a call. */
export interface McpClient {
  readonly capabilities: ClientCapabilities;
}

export function mcpContext(capabilities: ClientCapabilities): McpContext {
  return { mcp: { capabilities } };
}

/** The MCP client that called a tool. Undefined if something else did. */
export function mcpClientOf({ context }: Pick<ToolContext, 'context'>): McpClient | undefined {
  return isObject(context) && isObject(context['mcp']) ? (context as unknown as McpContext).mcp : undefined;
}

/** A request to the client itself. `id`: as in a question. */
export type McpClientRequest = { readonly id?: string } & (
  | { readonly method: 'sampling/createMessage'; readonly params: CreateMessageRequestParams }
  | { readonly method: 'roots/list' }
);

/**
 * Asks the MCP client of a call for a reply of its model, or for its folders. It is a question of the tool, so the call may
 * pause, and what `ToolContext.ask` says applies. A client without the ability gets an error, and the call is cancelled.
 */
export function askMcpClient(
  context: Pick<ToolContext, 'ask'>,
  request: McpClientRequest & { readonly method: 'sampling/createMessage' },
): Promise<CreateMessageResult>;
export function askMcpClient(
  context: Pick<ToolContext, 'ask'>,
  request: McpClientRequest & { readonly method: 'roots/list' },
): Promise<ListRootsResult>;
export function askMcpClient({ ask }: Pick<ToolContext, 'ask'>, request: McpClientRequest): Promise<unknown> {
  const { id, ...sent } = request;
  return ask({
    ...(id !== undefined && { id }),
    prompt: `The MCP client is asked for ${request.method}.`,
    schema: { type: 'object', required: [...RESULT_FIELDS[request.method]], [CLIENT_REQUEST]: sent },
  });
}

/** Extends the schema of a question: the request that gets its answer. */
const CLIENT_REQUEST = 'x-mcp-request';

const RESULT_FIELDS = { 'sampling/createMessage': ['role', 'content'], 'roots/list': ['roots'] } as const;

/** What is asked of the client. */
export function inputRequest(wait: Waiting, rejected?: string): InputRequest | undefined {
  const elicit = (message: string, requestedSchema: FormSchema): InputRequest => ({
    method: 'elicitation/create',
    params: { mode: 'form', message: rejected === undefined ? message : `${rejected}\n\n${message}`, requestedSchema },
  });
  switch (wait.type) {
    case 'approval':
      return elicit(approvalText(wait), APPROVAL_FORM);
    case 'question':
      return clientRequestIn(wait.question) ?? elicit(wait.question.prompt, formOf(wait.question));
    case 'client':
    case 'parked':
      return undefined;
    default:
      return wait satisfies never;
  }
}

/** The capability that a client needs for a request. */
export function neededCapability({ method }: InputRequest): 'elicitation' | 'sampling' | 'roots' {
  if (method === 'elicitation/create') return 'elicitation';
  return method === 'roots/list' ? 'roots' : 'sampling';
}

function clientRequestIn({ schema }: Question): InputRequest | undefined {
  return schema?.[CLIENT_REQUEST] as InputRequest | undefined;
}

type ApprovalWait = Waiting & { readonly type: 'approval' };
type FormSchema = ElicitRequestFormParams['requestedSchema'];

const APPROVAL_FORM: FormSchema = {
  type: 'object',
  properties: {
    approve: { type: 'boolean', title: 'Approve', description: 'Whether the tool may be called' },
    reason: { type: 'string', title: 'Reason', description: 'Why not, for the agent' },
  },
  required: ['approve'],
};

/** Longer arguments are cut in the message. */
const MOST_SHOWN = 4_000;

function approvalText({ call, reason, shown }: ApprovalWait): string {
  const what = shown === undefined ? call.arguments : typeof shown === 'string' ? shown : JSON.stringify(shown);
  const text = what.length > MOST_SHOWN ? `${what.slice(0, MOST_SHOWN)} … (${what.length} characters)` : what;
  const why = reason === undefined ? '' : ` (${reason})`;
  return exactText(`The tool "${call.name}" needs an approval${why}:\n${text}`);
}

/** Elicitation knows only flat objects. Any other answer is the field `answer`, as JSON if it is not a text. */
function formOf({ choices, schema }: Question): FormSchema {
  if (schema && isForm(schema)) {
    const { properties, required } = schema as unknown as FormSchema;
    return { type: 'object', properties, ...(required && { required }) };
  }
  const answer = schema
    ? { type: 'string' as const, title: 'Answer', description: `JSON for the schema ${JSON.stringify(schema)}` }
    : { type: 'string' as const, title: 'Answer', ...(choices && { enum: [...choices] }) };
  return { type: 'object', properties: { answer }, required: ['answer'] };
}

const FLAT_TYPES: readonly unknown[] = ['string', 'number', 'integer', 'boolean'];

function isForm({ type, properties }: JsonSchema): boolean {
  if (type !== 'object' || !isObject(properties)) return false;
  return Object.values(properties).every((field) => isObject(field) && (isFlat(field) || isSelection(field)));
}

function isFlat({ type }: Record<string, unknown>): boolean {
  return FLAT_TYPES.includes(type);
}

function isSelection({ type, items }: Record<string, unknown>): boolean {
  return type === 'array' && isObject(items) && (Array.isArray(items['enum']) || Array.isArray(items['anyOf']));
}

/** `declined`: the user does not answer the question. `missing`: the client did not send what was asked for. */
export type GivenAnswer = Answer | 'declined' | 'missing';

/** The answer in what the client sent for `inputRequest`. `by`: who sent it, if that is known. */
export function answerFrom(wait: Waiting, response: unknown, by: string | undefined): GivenAnswer {
  if (!isObject(response)) return 'missing';
  const named = by !== undefined && { by };
  const { effect } = wait;
  if (wait.type === 'approval') {
    const { action, content } = response;
    const { approve, reason } = isObject(content) ? content : {};
    const isAnswered = action === 'accept' && typeof approve === 'boolean';
    if (!isAnswered && action !== 'decline' && action !== 'cancel') return 'missing';
    const why = typeof reason === 'string' && reason !== '' ? { reason } : {};
    return { type: 'approval', effect, digest: wait.digest, approved: isAnswered && approve, ...why, ...named };
  }
  if (wait.type !== 'question') return 'missing';
  const { question } = wait;
  if (clientRequestIn(question)) return { type: 'answer', effect, value: response, ...named };
  const { action, content } = response;
  if (action === 'decline' || action === 'cancel') return 'declined';
  if (action !== 'accept' || !isObject(content)) return 'missing';
  const value = question.schema && isForm(question.schema) ? content : answerIn(content, question);
  return value === undefined ? 'missing' : { type: 'answer', effect, value, ...named };
}

function answerIn({ answer }: Record<string, unknown>, { schema }: Question): unknown {
  if (typeof answer !== 'string') return undefined;
  if (!schema) return answer;
  try {
    return JSON.parse(answer);
  } catch {
    return answer;
  }
}

/** Denies a call that nobody can be asked about. */
export function denial({ effect, digest }: ApprovalWait): Answer {
  const reason = 'it needs an approval, and this MCP client cannot ask for one: it does not support elicitation';
  return { type: 'approval', effect, digest, approved: false, reason };
}
