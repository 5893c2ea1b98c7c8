import {
  customInput,
  textOf,
  type AssistantMessage,
  type Message,
  type ModelRequest,
  type ResultBlock,
  type ToolMessage,
  type ToolResult,
  type ToolSpec,
  type UserBlock,
} from '@treadle/core';
import { histories, instructionsWithForm, messagesBody, perKind, type Histories, type WriteBody } from '../body.ts';
import { allowedOf, argumentsObject, callIdFor, callNameFor, type CallIds } from '../calls.ts';
import { jsonOf, sliceableJson } from '../json.ts';
import { mediaURL, notShown } from '../media.ts';
import type { Quirks } from './quirks.ts';
import { detailsOf, OPENROUTER } from './reasoning-details.ts';

export interface ChatBody extends Quirks {
  readonly model: string;
  readonly stream: boolean;
  /** Only reasoning and data of calls that have this name are sent back; default `openrouter`, without a host. */
  readonly signer?: string;
}

export function chatBody(body: ChatBody): WriteBody {
  return messagesBody({
    model: body.model,
    histories: historiesFor(body),
    system: (request) =>
      (body.output ?? 'schema') === 'schema' ? request.instructions : instructionsWithForm(request),
    tools: (request) => offeredChatTools(body, request).tools,
    customTools: body.customTools ?? false,
    rest: (request) => chatFields(body, request),
  });
}

/** Models with the same message form share what has been written. */
function historiesFor(body: ChatBody): Histories<PreviousMessage> {
  const { reasoning = 'none', callIds = 'any', userAfterResults = true, media = true } = body;
  const { signer = OPENROUTER, customTools = false } = body;
  const form: MessageForm = { reasoning, callIds, userAfterResults, media, signer, customTools };
  return chatHistories(JSON.stringify(form));
}

interface PreviousMessage {
  role: Message['role'] | undefined;
  /** A user message with the images and files of results is open for what the user says next: hosts reject two in a row. */
  isOpen: boolean;
}

const chatHistories = perKind((kind) => {
  const form = JSON.parse(kind) as MessageForm;
  return histories<PreviousMessage>({
    start: () => ({ role: undefined, isOpen: false }),
    write(message, previous) {
      const { role, isOpen } = previous;
      previous.role = message.role;
      previous.isOpen = message.role === 'tool' && hasAttachments(message, form);
      if (isOpen && message.role === 'user') return `${addedParts(message.content, form)}]}`;
      const bridge = !form.userAfterResults && message.role === 'user' && role === 'tool' ? `,${BRIDGE}` : '';
      return (isOpen ? ']}' : '') + bridge + chatMessages(message, form);
    },
    close: ({ isOpen }) => (isOpen ? ']}]}' : ']}'),
  });
});

/** Undefined fields are not sent: hosts reject fields that they do not support. */
function chatFields(body: ChatBody, request: ModelRequest): Record<string, unknown> {
  const { settings, parallel } = request;
  const { tools, choice } = offeredChatTools(body, request);
  const hasNoTools = tools.length === 0;
  const isOpenRouter = body.reasoning === 'openrouter';
  return {
    stream: body.stream,
    stream_options: body.stream && body.streamUsage !== false ? { include_usage: true } : undefined,
    tool_choice: hasNoTools ? undefined : choice,
    parallel_tool_calls: hasNoTools || parallel || body.parallelSwitch === false ? undefined : false,
    temperature: settings.temperature,
    [body.maxTokensField ?? 'max_tokens']: settings.maxOutputTokens,
    top_p: settings.topP,
    stop: settings.stop,
    seed: settings.seed,
    presence_penalty: settings.presencePenalty,
    frequency_penalty: settings.frequencyPenalty,
    logit_bias: settings.logitBias,
    logprobs: settings.topLogprobs === undefined ? undefined : true,
    // 0 is the default.
    top_logprobs: settings.topLogprobs || undefined,
    ...(body.hints !== false && hintFields(settings)),
    reasoning_effort: isOpenRouter ? undefined : settings.reasoning,
    reasoning: isOpenRouter && settings.reasoning ? { effort: settings.reasoning } : undefined,
    response_format: responseFormat(body, request, hasNoTools || choice === 'none'),
  };
}

function hintFields({ promptCacheKey, verbosity, serviceTier }: ModelRequest['settings']): Record<string, unknown> {
  return { prompt_cache_key: promptCacheKey, verbosity, service_tier: serviceTier };
}

const JSON_OBJECT = { type: 'json_object' };

function responseFormat(
  { output: mode = 'schema', jsonObject = true }: Quirks,
  { output, outputForm = {} }: ModelRequest,
  noCalls: boolean,
): unknown {
  if (output === undefined || mode === 'none') return undefined;
  if (mode === 'object') return JSON_OBJECT;
  if (mode === 'schema-without-tools' && !noCalls) return undefined;
  const { name = 'answer', description, strict, anyObject } = outputForm;
  if (anyObject && jsonObject) return JSON_OBJECT;
  return { type: 'json_schema', json_schema: { name, description, schema: output, ...(strict && { strict }) } };
}

interface OfferedTools {
  readonly tools: readonly ToolSpec[];
  /** Undefined means `auto`, the default of every host. */
  readonly choice: unknown;
}

const LEVELS = ['auto', 'required', 'named', 'subset'] as const;

/** The tools and the tool choice to send, as far as the host supports it. */
function offeredChatTools(
  { toolChoice: supported = 'subset', customTools = false }: Quirks,
  request: ModelRequest,
): OfferedTools {
  const { toolChoice, tools } = request;
  const can = (level: (typeof LEVELS)[number]): boolean => LEVELS.indexOf(level) <= LEVELS.indexOf(supported);
  const required = can('required') ? 'required' : undefined;
  const named = (name: string): unknown => {
    const isCustom = customTools && tools.find((tool) => tool.name === name)?.custom;
    return isCustom ? { type: 'custom', custom: { name } } : { type: 'function', function: { name } };
  };
  if (toolChoice === 'none') return { tools, choice: 'none' };
  if (typeof toolChoice === 'object') {
    if (can('named')) return { tools, choice: named(toolChoice.tool) };
    return { tools: tools.filter(({ name }) => name === toolChoice.tool), choice: required };
  }
  const allowed = allowedOf(request);
  if (allowed.length === 0) return { tools, choice: 'none' };
  const choice = toolChoice === 'required' ? required : undefined;
  if (allowed.length === tools.length) return { tools, choice };
  // All tools are sent: leaving some out would invalidate the prompt cache of the host and leave earlier calls without
  // their tool. The loop rejects calls outside the subset.
  if (!can('subset')) return { tools, choice };
  const names = allowed.map(({ name }) => named(name));
  return { tools, choice: { type: 'allowed_tools', allowed_tools: { mode: toolChoice, tools: names } } };
}

/** Sent between results and a user message if the host requires an assistant message there. */
const BRIDGE = jsonOf({ role: 'assistant', content: 'Noted.' });

/** All that the form of a message depends on. */
interface MessageForm extends Required<
  Pick<Quirks, 'reasoning' | 'callIds' | 'userAfterResults' | 'media' | 'customTools'>
> {
  /** Only reasoning and data of calls that have this name are sent back. */
  readonly signer: string;
}

/**
 * The wire messages of a message, each starting with a comma. A tool message becomes one per result; its images and files
 * follow in a user message, which stays open. Messages of the assistant and of tools are written as text directly: building objects first
 * would cost as much again.
 */
function chatMessages(message: Message, form: MessageForm): string {
  switch (message.role) {
    case 'user':
      return `,${sliceableJson({ role: 'user', content: chatUserContent(message.content, form) })}`;
    case 'assistant':
      return chatAssistantMessage(message, form);
    case 'tool':
      return chatToolMessages(message, form);
    default:
      return message satisfies never;
  }
}

function chatUserContent(blocks: readonly UserBlock[], form: MessageForm): unknown {
  if (blocks.every((block) => block.type === 'text')) return textOf(blocks);
  if (form.media) return blocks.map((block) => chatUserPart(block, form));
  return blocks.map((block) => (block.type === 'text' ? block.text : notShown(block))).join('\n');
}

/** Parts that are added to an open message. */
function addedParts(blocks: readonly UserBlock[], form: MessageForm): string {
  return blocks.map((block) => `,${sliceableJson(chatUserPart(block, form))}`).join('');
}

function chatUserPart(block: UserBlock, form: MessageForm): unknown {
  if (block.type === 'text') return { type: 'text', text: block.text };
  if (!isAccepted(block, form)) return { type: 'text', text: notShown(block) };
  const url = mediaURL(block);
  return block.type === 'image'
    ? { type: 'image_url', image_url: { url, detail: block.detail } }
    : { type: 'file', file: { filename: block.name ?? 'file', file_data: url } };
}

type MediaBlock = Extract<ResultBlock, { type: 'image' | 'file' }>;

function isMedia(block: ResultBlock): block is MediaBlock {
  return block.type === 'image' || block.type === 'file';
}

/** The API fetches images by URL, but not files. */
function isAccepted({ type, source }: MediaBlock, { media }: MessageForm): boolean {
  return media && (type === 'image' || source.type === 'data');
}

function chatAssistantMessage({ content }: AssistantMessage, form: MessageForm): string {
  const text = textOf(content);
  let calls = '';
  for (const part of content) {
    if (part.type !== 'tool-call') continue;
    const id = jsonOf(chatCallId(part.id, form));
    if (part.custom && form.customTools) {
      const called = sliceableJson({ name: callNameFor(part.name), input: customInput(part.arguments) });
      calls += `${calls === '' ? '' : ','}{"id":${id},"type":"custom","custom":${called}}`;
      continue;
    }
    const json = sliceableJson(argumentsObject(part.arguments));
    const called = `{"name":"${callNameFor(part.name)}","arguments":${json}}`;
    const extra = part.provider?.protocol === form.signer ? `,"extra_content":${jsonOf(part.provider.data)}` : '';
    calls += `${calls === '' ? '' : ','}{"id":${id},"type":"function","function":${called}${extra}}`;
  }
  if (calls === '') return `,{"role":"assistant","content":${sliceableJson(text)}}`;
  const textOrNull = text === '' ? 'null' : sliceableJson(text);
  return `,{"role":"assistant","content":${textOrNull},${reasoningFields(content, form)}"tool_calls":[${calls}]}`;
}

/** Only sent with calls: the reasoning of a final answer is no longer needed, and some hosts reject it. */
function reasoningFields(content: AssistantMessage['content'], { reasoning, signer }: MessageForm): string {
  if (reasoning === 'none') return '';
  const parts = content.filter((part) => part.type === 'reasoning');
  const text = parts.map((part) => part.text).join('');
  switch (reasoning) {
    case 'reasoning_content':
      return `"reasoning_content":${sliceableJson(text)},`;
    case 'openrouter': {
      const details = detailsOf(parts, signer);
      if (details.length > 0) return `"reasoning_details":${sliceableJson(details)},`;
      return text === '' ? '' : `"reasoning":${sliceableJson(text)},`;
    }
    default:
      return reasoning satisfies never;
  }
}

function chatToolMessages({ content }: ToolMessage, form: MessageForm): string {
  let wire = '';
  const media: unknown[] = [];
  for (const result of content) {
    const id = jsonOf(chatCallId(result.callId, form));
    const text = sliceableJson(chatResultText(result, form));
    wire += `,{"role":"tool","tool_call_id":${id},"name":"${callNameFor(result.name)}","content":${text}}`;
    if (result.content.some(isMedia)) media.push(...mediaParts(result, form));
  }
  if (media.length === 0) return wire;
  const bridge = form.userAfterResults ? '' : `,${BRIDGE}`;
  return `${wire}${bridge},${sliceableJson({ role: 'user', content: media }).slice(0, -2)}`;
}

/** Whether images or files of results follow in a user message. */
function hasAttachments({ content }: ToolMessage, form: MessageForm): boolean {
  return content.some((result) => result.content.some((block) => isMedia(block) && isAccepted(block, form)));
}

/** The API has no field that marks an error, so the text does. */
function chatResultText({ content, isError }: ToolResult, form: MessageForm): string {
  const text = content.some(isMedia) ? mediaText(content, form) : textOf(content);
  return isError && !/^error\b/i.test(text) ? `Error: ${text}` : text;
}

/** The text of a result with images or files, with a note for each one that is not accepted. */
function mediaText(content: readonly ResultBlock[], form: MessageForm): string {
  const missing = content.filter(isMedia).filter((block) => !isAccepted(block, form));
  const text = [textOf(content), ...missing.map(notShown)].filter((line) => line !== '').join('\n');
  return text === '' ? 'The result is attached to the next message.' : text;
}

function mediaParts({ callId, name, content }: ToolResult, form: MessageForm): unknown[] {
  const media = content.filter(isMedia).filter((block) => isAccepted(block, form));
  if (media.length === 0) return [];
  const title = `Result of ${callNameFor(name)} (${chatCallId(callId, form)}):`;
  return [{ type: 'text', text: title }, ...media.map((block) => chatUserPart(block, form))];
}

const CALL_IDS: Record<MessageForm['callIds'], CallIds> = {
  any: { accepted: /^[^]{1,40}$/, length: 40 },
  nine: { accepted: /^[a-zA-Z0-9]{9}$/, length: 9 },
};

function chatCallId(id: string, { callIds }: MessageForm): string {
  return callIdFor(id, CALL_IDS[callIds]);
}
