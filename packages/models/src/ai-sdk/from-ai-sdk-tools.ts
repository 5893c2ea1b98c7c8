import {
  checkOptions,
  tool,
  TreadleError,
  type JsonSchema,
  type OptionNames,
  type Policy,
  type ResultBlock,
  type Schema,
  type Source,
  type StandardSchema,
  type Tool,
  type ToolContext,
  type ToolEffect,
  type ToolOutput,
} from '@treadle/core';

/** A tool of the AI SDK, such as `tool()` and `dynamicTool()` return. Nothing of the AI SDK is imported. */
export interface AiSdkTool {
  readonly type?: 'function' | 'dynamic' | 'provider' | undefined;
  readonly description?: unknown;
  readonly inputSchema?: unknown;
  readonly execute?: unknown;
  readonly toModelOutput?: unknown;
  readonly needsApproval?: unknown;
}

/** A `ToolSet` of the AI SDK. */
export type AiSdkTools = { readonly [name: string]: AiSdkTool };

export interface FromAiSdkToolsOptions {
  /** The effect of each tool, which the AI SDK does not know; default `once`. */
  readonly effects?: { readonly [name: string]: ToolEffect };
  /** `policy`: the run has a policy that asks for approval where a tool needs it, such as `aiSdkApprovals(tools)`. */
  readonly approvals?: 'policy';
}

const NAMES: OptionNames<FromAiSdkToolsOptions> = { effects: 'object', approvals: 'string' };

/** The second argument of `execute`. `messages` is empty: tools of the loop do not see the conversation. */
interface CallInfo {
  readonly toolCallId: string;
  readonly messages: readonly never[];
  readonly abortSignal: AbortSignal;
  /** The run's `context`; V3 has it under the second name. */
  readonly context: unknown;
  readonly experimental_context: unknown;
}

type Execute = (input: unknown, info: CallInfo) => unknown;
type ToModelOutput = (result: { toolCallId: string; input: unknown; output: unknown }) => unknown;
type NeedsApproval =
  | boolean
  | ((input: unknown, info: Omit<CallInfo, 'abortSignal'>) => boolean | PromiseLike<boolean>);

/**
 * The tools of the AI SDK as tools of the loop. One without `execute` is executed by the client. Throws for a tool that
 * the provider executes, and for one that needs approval if there is no policy for it.
 */
export function fromAiSdkTools(tools: AiSdkTools, options: FromAiSdkToolsOptions = {}): Tool[] {
  checkOptions('fromAiSdkTools', options, { names: NAMES });
  if (typeof tools !== 'object' || tools === null || Array.isArray(tools)) {
    throw new TreadleError(
      'invalid-options',
      'fromAiSdkTools: pass the tools by name, such as { weather: tool({ … }) }.',
    );
  }
  const unknown = Object.keys(options.effects ?? {}).find((name) => !Object.hasOwn(tools, name));
  if (unknown !== undefined) {
    throw new TreadleError(
      'invalid-options',
      `fromAiSdkTools: "effects" names "${unknown}", which is not one of the tools.`,
    );
  }
  return Object.entries(tools).map(([name, aiSdkTool]) => {
    checkTool(name, aiSdkTool, options);
    const { execute, toModelOutput } = aiSdkTool as { execute?: Execute; toModelOutput?: ToModelOutput };
    const effect = options.effects?.[name];
    return tool({
      name,
      description: typeof aiSdkTool.description === 'string' ? aiSdkTool.description : '',
      ...inputOf(name, aiSdkTool.inputSchema),
      ...(effect !== undefined && { effect }),
      ...(execute && {
        execute: async (input: unknown, context: ToolContext) => {
          const info = callInfo(context.key, context.context);
          const output = await lastOf(execute(input, { ...info, abortSignal: context.signal }), context);
          if (!toModelOutput) return plainOutput(output);
          return modelOutput(await toModelOutput({ toolCallId: context.key, input, output }));
        },
      }),
    });
  });
}

/** A policy that asks for approval of the tools with `needsApproval`, and allows all others. */
export function aiSdkApprovals(tools: AiSdkTools): Policy {
  return {
    judge: (calls, { context }) =>
      Promise.all(
        calls.map(async ({ id, name, input }) => {
          const needs = Object.hasOwn(tools, name) ? (tools[name]!.needsApproval as NeedsApproval | undefined) : false;
          const asks = typeof needs === 'function' ? await needs(input, callInfo(id, context)) : needs;
          return asks ? { type: 'ask' } : { type: 'allow' };
        }),
      ),
  };
}

function callInfo(toolCallId: string, context: unknown): Omit<CallInfo, 'abortSignal'> {
  return { toolCallId, messages: [], context, experimental_context: context };
}

/** The last item of an async iterable. Each item is reported as progress. */
async function lastOf(result: unknown, { report, signal }: ToolContext): Promise<unknown> {
  const value = await result;
  if (typeof value !== 'object' || value === null || !(Symbol.asyncIterator in value)) return value;
  let last: unknown;
  for await (const item of value as AsyncIterable<unknown>) {
    if (signal.aborted) break;
    report(item);
    last = item;
  }
  return last;
}

function checkTool(name: string, aiSdkTool: AiSdkTool, { approvals }: FromAiSdkToolsOptions): void {
  const rejectTool = (what: string): never => {
    throw new TreadleError('invalid-tool', `fromAiSdkTools: ${what}`);
  };
  if (typeof aiSdkTool !== 'object' || aiSdkTool === null) rejectTool(`"${name}" is not a tool.`);
  if (aiSdkTool.type === 'provider')
    rejectTool(`"${name}" is executed by the provider, so the loop cannot call it. Leave it out.`);
  if (typeof aiSdkTool.description === 'function') {
    rejectTool(`the description of "${name}" is a function. Pass { ...tool, description: '…' } instead.`);
  }
  if (aiSdkTool.needsApproval && approvals !== 'policy') {
    rejectTool(
      `"${name}" needs approval. Pass policy: aiSdkApprovals(tools) or a policy of your own to the run, and ` +
        `{ approvals: 'policy' } to fromAiSdkTools.`,
    );
  }
}

// ── Schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────────

const MARK = Symbol.for('vercel.ai.schema');

/** What `jsonSchema()` of the AI SDK returns. */
interface AiSdkSchema {
  readonly jsonSchema: unknown;
  readonly validate?: (value: unknown) => Validation | PromiseLike<Validation>;
}

type Validation =
  | { readonly success: true; readonly value: unknown }
  | { readonly success: false; readonly error: Error };

/** The `inputSchema` of a tool. Standard Schemas such as those of zod are used unchanged. */
function inputOf(name: string, schema: unknown): { input?: Schema; parameters?: JsonSchema } {
  if (schema === undefined || schema === null) return {};
  // A lazy schema is a function that returns one. Some Standard Schemas are functions, too.
  const resolved: unknown =
    typeof schema === 'function' && !('~standard' in schema) ? (schema as () => unknown)() : schema;
  if (isAiSdkSchema(resolved)) return fromAiSdkSchema(name, resolved);
  if (
    (typeof resolved === 'object' || typeof resolved === 'function') &&
    resolved !== null &&
    '~standard' in resolved
  ) {
    return { input: resolved as StandardSchema };
  }
  throw new TreadleError(
    'invalid-tool',
    `fromAiSdkTools: the inputSchema of "${name}" is not a schema. Pass a schema of zod, another Standard Schema or jsonSchema({ … }).`,
  );
}

function fromAiSdkSchema(
  name: string,
  { jsonSchema, validate }: AiSdkSchema,
): { input: Schema; parameters: JsonSchema } {
  if (typeof jsonSchema !== 'object' || jsonSchema === null || 'then' in jsonSchema) {
    throw new TreadleError(
      'invalid-tool',
      `fromAiSdkTools: the JSON Schema of "${name}" is a promise. Await it first: jsonSchema(await …).`,
    );
  }
  const { $schema: _, ...parameters } = jsonSchema as Record<string, unknown>;
  return { parameters, input: validate === undefined ? parameters : standardSchema(validate) };
}

function standardSchema(validate: NonNullable<AiSdkSchema['validate']>): StandardSchema {
  return {
    '~standard': {
      version: 1,
      vendor: 'ai-sdk',
      validate: async (value) => {
        const result = await validate(value);
        return result.success ? { value: result.value } : { issues: [{ message: result.error.message }] };
      },
    },
  };
}

function isAiSdkSchema(value: unknown): value is AiSdkSchema {
  return typeof value === 'object' && value !== null && MARK in value;
}

// ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** What `toModelOutput` of the AI SDK returns: the fields of all types, of V3 and V4. */
interface ModelOutput {
  readonly type?: unknown;
  readonly value?: unknown;
  readonly reason?: unknown;
}

interface OutputPart {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly data?: unknown;
  readonly url?: unknown;
  readonly mediaType?: unknown;
  readonly filename?: unknown;
}

/** A result without `toModelOutput`: a string unchanged, anything else as JSON. */
function plainOutput(value: unknown): ToolOutput {
  return { content: typeof value === 'string' ? value : jsonOf(value) };
}

function modelOutput(output: unknown): ToolOutput {
  const { type, value, reason } = (output ?? {}) as ModelOutput;
  switch (type) {
    case 'text':
      return { content: String(value) };
    case 'json':
      return { content: jsonOf(value) };
    case 'error-text':
      return errorOutput(String(value));
    case 'error-json':
      return errorOutput(jsonOf(value));
    case 'execution-denied':
      return errorOutput(typeof reason === 'string' ? `Denied: ${reason}` : 'The call was denied.');
    case 'content':
      return { content: (value as readonly OutputPart[]).map(blockOf) };
    default:
      throw new Error(`toModelOutput returned the type ${JSON.stringify(type)}, which is not a type of the AI SDK.`);
  }
}

function errorOutput(text: string): ToolOutput {
  return { content: [{ type: 'error', text }], isError: true };
}

function jsonOf(value: unknown): string {
  const json = JSON.stringify(value ?? null);
  if (json === undefined) throw new Error(`it returned a ${typeof value}, which has no JSON form`);
  return json;
}

function blockOf(part: OutputPart): ResultBlock {
  if (part.type === 'text') return { type: 'text', text: String(part.text) };
  const { data } = part;
  if (typeof data === 'object' && data !== null && 'text' in data) return { type: 'text', text: String(data.text) };
  const source = sourceOf(part);
  if (source === undefined) return { type: 'text', text: `(A part of type ${String(part.type)} is not stored.)` };
  const isImage = String(part.type).startsWith('image') || String(part.mediaType).startsWith('image');
  const mediaType =
    typeof part.mediaType === 'string' ? part.mediaType : isImage ? 'image/*' : 'application/octet-stream';
  if (isImage) return { type: 'image', mediaType, source };
  return { type: 'file', mediaType, ...(typeof part.filename === 'string' && { name: part.filename }), source };
}

/** `{ data: 'base64' }` or `{ url }` of V3, `{ data: { type, data } }` or `{ data: { type, url } }` of V4. */
function sourceOf({ data, url }: OutputPart): Source | undefined {
  if (typeof url === 'string' || url instanceof URL) return { type: 'url', url: String(url) };
  if (data instanceof URL) return { type: 'url', url: data.href };
  if (typeof data === 'string') return { type: 'data', data };
  if (data instanceof Uint8Array) return { type: 'data', data: Buffer.from(data).toString('base64') };
  if (typeof data !== 'object' || data === null) return undefined;
  return sourceOf(data as OutputPart);
}
