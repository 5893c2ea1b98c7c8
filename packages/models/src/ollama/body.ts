import {
  textOf,
  type AssistantMessage,
  type Effort,
  type Message,
  type ModelRequest,
  type ResultBlock,
  type Settings,
  type ToolMessage,
  type ToolResult,
  type ToolSpec,
  type UserBlock,
} from '@treadle/core';
import { instructionsWithForm, listOfMessages, messagesBody, type WriteBody } from '../body.ts';
import { allowedOf, argumentsObject, callNameFor } from '../calls.ts';
import { jsonOf, sliceableJson } from '../json.ts';
import { notShown } from '../media.ts';

export interface OllamaBody {
  readonly model: string;
  readonly stream: boolean;
  readonly contextTokens?: number | undefined;
  readonly keepAlive?: string | number | undefined;
  readonly think?: Think | undefined;
}

export type Think = boolean | 'low' | 'medium' | 'high';

const histories = listOfMessages(ollamaMessages);

export function ollamaBody(body: OllamaBody): WriteBody {
  return messagesBody({
    model: body.model,
    histories,
    system: instructionsWithForm,
    tools: offeredOllamaTools,
    rest: (request) => ollamaFields(body, request),
  });
}

/**
 * The API has no tool choice, so tools that may not be called are not sent: with `none` all of them, with a named tool all
 * others. A call cannot be required: the loop asks again if none came. Parallel calls cannot be prevented.
 */
function offeredOllamaTools(request: ModelRequest): readonly ToolSpec[] {
  const { tools, toolChoice } = request;
  if (toolChoice === 'none') return [];
  if (typeof toolChoice === 'object') return tools.filter(({ name }) => name === toolChoice.tool);
  return allowedOf(request);
}

/**
 * With `truncate` and `shift` off the server rejects a conversation that does not fit, and the loop can shorten it. By
 * default the server silently drops the oldest messages.
 */
function ollamaFields(
  { model, stream, contextTokens, keepAlive, think }: OllamaBody,
  request: ModelRequest,
): Record<string, unknown> {
  const { settings, output, outputForm } = request;
  return {
    stream,
    truncate: false,
    shift: false,
    think: thinkFor(model, settings) ?? think,
    // The server enforces the schema on every token, which prevents calls.
    format: offeredOllamaTools(request).length > 0 ? undefined : output && outputForm?.anyObject ? 'json' : output,
    keep_alive: keepAlive,
    logprobs: settings.topLogprobs === undefined ? undefined : true,
    top_logprobs: settings.topLogprobs || undefined,
    options: {
      temperature: settings.temperature,
      num_predict: settings.maxOutputTokens,
      top_p: settings.topP,
      stop: settings.stop,
      seed: settings.seed,
      presence_penalty: settings.presencePenalty,
      frequency_penalty: settings.frequencyPenalty,
      num_ctx: contextTokens,
    },
  };
}

const LEVELS = {
  none: 'low',
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'high',
  max: 'high',
} as const satisfies Record<Effort, Think>;

/** Only gpt-oss has levels, and accepts nothing else: it always thinks. Other models reject them. */
function thinkFor(model: string, { reasoning }: Settings): Think | undefined {
  if (reasoning === undefined) return undefined;
  return /gpt-?oss/i.test(model) ? LEVELS[reasoning] : reasoning !== 'none';
}

/** The wire messages of a message. A tool message becomes one per result; images of results follow in user messages. */
function ollamaMessages(message: Message): string {
  switch (message.role) {
    case 'user':
      return sliceableJson({ role: 'user', ...ollamaContent(message.content) });
    case 'assistant':
      return ollamaAssistantMessage(message);
    case 'tool':
      return ollamaToolMessages(message)
        .map((wire) => sliceableJson(wire))
        .join(',');
    default:
      return message satisfies never;
  }
}

/** Content is one text, with images beside it as base64. The API supports neither files nor URLs. */
function ollamaContent(blocks: readonly UserBlock[]): {
  readonly content: string;
  readonly images?: readonly string[];
} {
  const images = imagesOf(blocks);
  return { content: textWithNotes(blocks), ...(images.length > 0 && { images }) };
}

function imagesOf(blocks: readonly ResultBlock[]): string[] {
  return blocks.flatMap((block) => imageOf(block) ?? []);
}

function imageOf(block: ResultBlock): string | undefined {
  return block.type === 'image' && block.source.type === 'data' ? block.source.data : undefined;
}

/** The text, with a note for each image or file that cannot be sent. */
function textWithNotes(blocks: readonly ResultBlock[]): string {
  const notes = blocks.filter((block) => block.type === 'file' || (block.type === 'image' && !imageOf(block)));
  if (notes.length === 0) return textOf(blocks);
  const lines = blocks.flatMap((block) => {
    if (block.type === 'text' || block.type === 'error') return block.text;
    return imageOf(block) === undefined ? notShown(block) : [];
  });
  return lines.join('\n');
}

/** Writes calls as text, because their arguments are JSON already. The API requires an object. */
function ollamaAssistantMessage({ content }: AssistantMessage): string {
  const thinking = content.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');
  const calls = content.flatMap((part) => {
    if (part.type !== 'tool-call') return [];
    const start = `{"id":${jsonOf(part.id)},"function":{"name":${jsonOf(callNameFor(part.name))}`;
    return `${start},"arguments":${argumentsObject(part.arguments)}}}`;
  });
  const message = sliceableJson({ role: 'assistant', content: textOf(content), ...(thinking !== '' && { thinking }) });
  return calls.length === 0 ? message : `${message.slice(0, -1)},"tool_calls":[${calls.join(',')}]}`;
}

function ollamaToolMessages({ content }: ToolMessage): unknown[] {
  const results = content.map((result) => ({
    role: 'tool',
    tool_name: callNameFor(result.name),
    tool_call_id: result.callId,
    content: ollamaResultText(result),
  }));
  return [...results, ...content.flatMap(imageMessages)];
}

/** The API has no field that marks an error, so the text does. */
function ollamaResultText({ content, isError }: ToolResult): string {
  let text = textWithNotes(content);
  if (text === '' && imagesOf(content).length > 0) text = 'The result is attached to a later message.';
  return isError && !/^error\b/i.test(text) ? `Error: ${text}` : text;
}

function imageMessages({ callId, name, content }: ToolResult): unknown[] {
  const images = imagesOf(content);
  return images.length === 0 ? [] : [{ role: 'user', content: `Result of ${callNameFor(name)} (${callId}):`, images }];
}
