import {
  customInput,
  textOf,
  type AssistantMessage,
  type JsonSchema,
  type Message,
  type ModelRequest,
  type ResultBlock,
  type SaidText,
  type Settings,
  type ToolCall,
  type ToolResult,
  type ToolSpec,
  type UserBlock,
} from '@treadle/core';
import { bodyWriter, histories, memoized, perKind, type WriteBody } from '../body.ts';
import { allowedOf, argumentsObject, callIdFor, callNameFor, type CallIds } from '../calls.ts';
import { jsonOf, sliceableJson } from '../json.ts';
import { mediaURL } from '../media.ts';
import { reasoningItem, type Sender } from './items.ts';

export interface ResponsesBody {
  readonly model: string;
  readonly stream: boolean;
  readonly store: boolean;
  readonly encryptedReasoning: boolean;
  readonly reasoningSummary?: 'auto' | 'concise' | 'detailed';
  readonly strict: boolean;
  /** Tools that take a text are sent as such; default true. */
  readonly customTools?: boolean;
  /** Only reasoning signed under this name is sent back. */
  readonly signer: string;
}

const responsesHistories = perKind((kind) => {
  const sender = JSON.parse(kind) as Sender;
  return histories<CustomCalls>({
    start: () => new Set(),
    write(message, custom) {
      const json = inputItems(message, sender, custom);
      return json === '' ? '' : `,${json}`;
    },
    close: () => ']}',
  });
});

/** The ids of the calls of a history that are sent as calls with a text. Their results have a type of their own. */
type CustomCalls = Set<string>;

export function responsesBody(body: ResponsesBody): WriteBody {
  const { model, strict, signer, store: stored, customTools: custom = true } = body;
  const toolsOf = memoized((tools: readonly ToolSpec[]) => {
    // The API defaults to strict schemas.
    const wire = tools.map(({ name, description, parameters, strict: own = strict, custom: form }) =>
      custom && form
        ? { type: 'custom', name, ...form }
        : { type: 'function', name, description, parameters, strict: own },
    );
    return tools.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
  });

  return bodyWriter(responsesHistories(JSON.stringify({ signer, stored, custom } satisfies Sender)), {
    write(request) {
      const { instructions, tools } = request;
      const rest = sliceableJson({
        model,
        instructions: instructions || undefined,
        ...responsesFields(body, request),
      }).slice(0, -1);
      return `${rest}${toolsOf(tools)},"input":[`;
    },
  });
}

/** The API rejects fewer. */
const MIN_OUTPUT_TOKENS = 16;

/** Undefined fields are not sent. */
function responsesFields(body: ResponsesBody, request: ModelRequest): Record<string, unknown> {
  const { settings, tools, parallel, output, outputForm } = request;
  const reasoning = { effort: settings.reasoning, summary: body.reasoningSummary };
  return {
    stream: body.stream,
    store: body.store,
    include: includedFields(body, settings),
    tool_choice: tools.length === 0 ? undefined : responsesToolChoice(request, body.customTools ?? true),
    parallel_tool_calls: tools.length === 0 || parallel ? undefined : false,
    temperature: settings.temperature,
    max_output_tokens: settings.maxOutputTokens && Math.max(MIN_OUTPUT_TOKENS, settings.maxOutputTokens),
    top_p: settings.topP,
    reasoning: reasoning.effort === undefined && reasoning.summary === undefined ? undefined : reasoning,
    service_tier: settings.serviceTier,
    prompt_cache_key: settings.promptCacheKey,
    top_logprobs: settings.topLogprobs,
    text: (output ?? settings.verbosity) && {
      format: output && formatOf(output, { strict: body.strict, ...outputForm }),
      verbosity: settings.verbosity,
    },
  };
}

function includedFields({ encryptedReasoning }: ResponsesBody, { topLogprobs }: Settings): unknown {
  if (topLogprobs === undefined) return encryptedReasoning ? ['reasoning.encrypted_content'] : undefined;
  return [...(encryptedReasoning ? ['reasoning.encrypted_content'] : []), 'message.output_text.logprobs'];
}

function formatOf(
  schema: JsonSchema,
  { name = 'answer', description, strict, anyObject }: NonNullable<ModelRequest['outputForm']>,
): unknown {
  if (anyObject) return { type: 'json_object' };
  return { type: 'json_schema', name, description, schema, strict };
}

/** Undefined means `auto`, the default of the API. */
function responsesToolChoice(request: ModelRequest, customTools: boolean): unknown {
  const { toolChoice, tools } = request;
  const named = (tool: ToolSpec | undefined, name: string): unknown => ({
    type: customTools && tool?.custom ? 'custom' : 'function',
    name,
  });
  if (toolChoice === 'none') return 'none';
  if (typeof toolChoice === 'object') {
    return named(
      tools.find(({ name }) => name === toolChoice.tool),
      toolChoice.tool,
    );
  }
  const allowed = allowedOf(request);
  if (allowed.length === 0) return 'none';
  if (allowed.length === tools.length) return toolChoice === 'auto' ? undefined : toolChoice;
  return {
    type: 'allowed_tools',
    mode: toolChoice,
    tools: allowed.map((tool) => named(tool, tool.name)),
  };
}

/** The input items of a message, separated by commas; empty if nothing of it can be sent. */
export function inputItems(message: Message, sender: Sender, custom: CustomCalls = new Set()): string {
  return itemsOf(message, sender, custom)
    .map((item) => sliceableJson(item))
    .join(',');
}

function itemsOf(message: Message, sender: Sender, custom: CustomCalls): readonly unknown[] {
  switch (message.role) {
    case 'user':
      return [{ type: 'message', role: 'user', content: responsesUserContent(message.content) }];
    case 'assistant':
      return assistantItems(message, sender, custom);
    case 'tool':
      return message.content.map((result) => ({
        type: custom.has(result.callId) ? 'custom_tool_call_output' : 'function_call_output',
        call_id: responsesCallId(result.callId),
        output: resultOutput(result),
      }));
    default:
      return message satisfies never;
  }
}

/** Drops reasoning at the end, which a truncated reply may have: the API rejects it. */
function assistantItems({ content }: AssistantMessage, sender: Sender, custom: CustomCalls): readonly unknown[] {
  const items: unknown[] = [];
  let end = 0;
  for (const part of content) {
    if (part.type === 'reasoning') {
      const item = reasoningItem(part, sender);
      if (item !== undefined) items.push(item);
      continue;
    }
    if (part.type === 'tool-call') {
      if (part.custom && sender.custom) custom.add(part.id);
      items.push(part.custom && sender.custom ? customCall(part) : functionCall(part));
    } else if (part.text !== '') items.push(assistantText(part));
    else continue;
    end = items.length;
  }
  return items.slice(0, end);
}

function assistantText({ text, phase }: SaidText): unknown {
  return { type: 'message', role: 'assistant', content: text, ...(phase && { phase }) };
}

/** Without the id of the item, which the provider would have to find among stored responses. */
function functionCall({ id, name, arguments: json }: ToolCall): unknown {
  return {
    type: 'function_call',
    call_id: responsesCallId(id),
    name: callNameFor(name),
    arguments: argumentsObject(json),
  };
}

function customCall({ id, name, arguments: json }: ToolCall): unknown {
  return { type: 'custom_tool_call', call_id: responsesCallId(id), name: callNameFor(name), input: customInput(json) };
}

/** Ids of other providers may be longer than the API accepts. */
function responsesCallId(id: string): string {
  return callIdFor(id, CALL_IDS);
}

const CALL_IDS: CallIds = { accepted: /^[^]{1,64}$/, length: 43 };

function responsesUserContent(blocks: readonly UserBlock[]): unknown {
  return blocks.every((block) => block.type === 'text') ? textOf(blocks) : blocks.map(inputPart);
}

function inputPart(block: ResultBlock): unknown {
  switch (block.type) {
    case 'text':
    case 'error':
      return { type: 'input_text', text: block.text };
    case 'image':
      return { type: 'input_image', image_url: mediaURL(block), detail: block.detail ?? 'auto' };
    case 'file':
      return block.source.type === 'url'
        ? { type: 'input_file', file_url: block.source.url }
        : { type: 'input_file', filename: block.name ?? 'file', file_data: mediaURL(block) };
    default:
      return block satisfies never;
  }
}

/** The API has no field that marks an error, so the text does. */
function resultOutput({ content, isError }: ToolResult): unknown {
  const text = textOf(content);
  const needsPrefix = isError && !/^error\b/i.test(text);
  if (content.every((block) => block.type === 'text' || block.type === 'error')) {
    return needsPrefix ? `Error: ${text}` : text;
  }
  const parts = content.map(inputPart);
  return needsPrefix ? [{ type: 'input_text', text: 'Error:' }, ...parts] : parts;
}
