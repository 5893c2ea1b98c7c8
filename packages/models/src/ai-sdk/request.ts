import {
  textOf,
  type AssistantMessage,
  type FileBlock,
  type ImageBlock,
  type JsonSchema,
  type Message,
  type ModelRequest,
  type ResultBlock,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import type { AiSdkVersion, CallOptions, ProviderOptions } from './language-model.ts';
import { signedOf } from './signature.ts';

export interface RequestOptions {
  readonly version: AiSdkVersion;
  /** The `provider` of the model, such as `openai.responses`. */
  readonly provider: string;
  /** Only signatures of this protocol are sent back. */
  readonly protocol: string;
  readonly providerOptions: ProviderOptions | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
}

/** Returns a function that converts requests. It converts each message once, since turns share messages. */
export function requestConverter(
  options: RequestOptions,
): (request: ModelRequest, abortSignal: AbortSignal) => CallOptions {
  const cache = new WeakMap<Message, object | null>();
  return (request, abortSignal) => {
    const { instructions, messages } = request;
    const prompt: object[] = instructions ? [{ role: 'system', content: instructions.toWellFormed() }] : [];
    for (const message of messages) {
      let converted = cache.get(message);
      if (converted === undefined) cache.set(message, (converted = promptMessage(message, options)));
      if (converted !== null) prompt.push(converted);
    }
    return { prompt, ...callOptions(request, options), abortSignal };
  };
}

/** Everything in a request except its messages. */
function callOptions(request: ModelRequest, defaults: RequestOptions): Omit<CallOptions, 'prompt' | 'abortSignal'> {
  const { temperature, maxOutputTokens, topP, stop, seed, reasoning } = request.settings;
  const { version, headers } = defaults;
  const providerOptions = providerOptionsOf(request, defaults);
  return {
    ...(temperature !== undefined && { temperature }),
    ...(maxOutputTokens !== undefined && { maxOutputTokens }),
    ...(topP !== undefined && { topP }),
    ...(stop !== undefined && { stopSequences: stop }),
    ...(seed !== undefined && { seed }),
    ...(version === 'v4' && reasoning !== undefined && { reasoning }),
    ...(request.output && { responseFormat: responseFormatOf(request.output, request.outputForm) }),
    ...toolsOf(request),
    ...(Object.keys(providerOptions).length > 0 && { providerOptions }),
    ...(headers && { headers }),
  };
}

function responseFormatOf(
  schema: JsonSchema,
  { name = 'answer', description, anyObject }: NonNullable<ModelRequest['outputForm']> = {},
): NonNullable<CallOptions['responseFormat']> {
  if (anyObject) return { type: 'json' };
  return { type: 'json', schema, name, ...(description !== undefined && { description }) };
}

/** The AI SDK cannot restrict calls to some of the tools, so the others are not sent. */
function toolsOf({ tools, toolChoice, allowedTools }: ModelRequest): Pick<CallOptions, 'tools' | 'toolChoice'> {
  const named = typeof toolChoice === 'object' ? toolChoice.tool : undefined;
  const allowed =
    allowedTools === undefined ? tools : tools.filter(({ name }) => name === named || allowedTools.includes(name));
  if (allowed.length === 0) return {};
  return {
    tools: allowed.map(({ name, description, parameters }) => ({
      type: 'function',
      name,
      description,
      inputSchema: parameters,
    })),
    toolChoice: typeof toolChoice === 'object' ? { type: 'tool', toolName: toolChoice.tool } : { type: toolChoice },
  };
}

/** The option for one call at a time, for each provider. The AI SDK has no common setting for it. */
const ONE_CALL: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  openai: { parallelToolCalls: false },
  groq: { parallelToolCalls: false },
  anthropic: { disableParallelToolUse: true },
};
/** The providers that have a setting for the effort. V3 has no common setting for it. */
const HAS_EFFORT = new Set(['openai', 'groq', 'xai']);

function providerOptionsOf(
  { parallel, settings, tools }: ModelRequest,
  { version, provider, providerOptions = {} }: RequestOptions,
): ProviderOptions {
  const name = provider.split('.', 1)[0]!;
  const own = {
    ...(version === 'v3' && settings.reasoning && HAS_EFFORT.has(name) && { reasoningEffort: settings.reasoning }),
    ...(!parallel && tools.length > 0 && ONE_CALL[name]),
    ...providerOptions[name],
  };
  return Object.keys(own).length === 0 ? providerOptions : { ...providerOptions, [name]: own };
}

/** Null for a reply that consists of nothing but reasoning of another provider. */
function promptMessage(message: Message, options: RequestOptions): object | null {
  switch (message.role) {
    case 'user':
      return { role: 'user', content: message.content.map((block) => userPart(block, options.version)) };
    case 'assistant': {
      const content = assistantParts(message, options);
      return content.length === 0 ? null : { role: 'assistant', content };
    }
    case 'tool':
      return { role: 'tool', content: message.content.map((result) => toolResult(result, options.version)) };
    default:
      return message satisfies never;
  }
}

function userPart(block: UserBlock, version: AiSdkVersion): object {
  return block.type === 'text' ? { type: 'text', text: block.text.toWellFormed() } : filePart(block, version);
}

function filePart(block: ImageBlock | FileBlock, version: AiSdkVersion): object {
  const { mediaType } = block;
  const filename = fileName(block);
  return { type: 'file', mediaType, ...(filename !== undefined && { filename }), data: fileData(block, version) };
}

/** V4 has a `type` where V3 distinguishes by the class of the value. */
function fileData({ source }: ImageBlock | FileBlock, version: AiSdkVersion): unknown {
  if (source.type === 'url') {
    const url = new URL(source.url);
    return version === 'v3' ? url : { type: 'url', url };
  }
  return version === 'v3' ? source.data : { type: 'data', data: source.data };
}

function fileName(block: ImageBlock | FileBlock): string | undefined {
  return block.type === 'file' ? block.name : undefined;
}

function assistantParts({ content }: AssistantMessage, { protocol }: RequestOptions): object[] {
  const parts: object[] = [];
  let next: ProviderOptions | undefined;
  const add = (part: object, providerOptions = next): void => {
    parts.push(providerOptions === undefined ? part : { ...part, providerOptions });
    next = undefined;
  };
  for (const part of content) {
    switch (part.type) {
      case 'text':
        add({ type: 'text', text: part.text.toWellFormed() });
        break;
      case 'tool-call':
        add({ type: 'tool-call', toolCallId: part.id, toolName: part.name, input: inputOf(part.arguments) });
        break;
      case 'reasoning': {
        const signed = signedOf(part, protocol);
        if (signed === undefined) break;
        if (part.text !== '' || signed.own) add({ type: 'reasoning', text: part.text.toWellFormed() }, signed.own);
        next = signed.next;
        break;
      }
      default:
        part satisfies never;
    }
  }
  return parts;
}

/** Providers accept only an object. The result of an invalid call names the problem. */
function inputOf(json: string): unknown {
  try {
    const input: unknown = JSON.parse(json);
    return typeof input === 'object' && input !== null && !Array.isArray(input) ? input : {};
  } catch {
    return {};
  }
}

function toolResult(result: ToolResult, version: AiSdkVersion): object {
  return {
    type: 'tool-result',
    toolCallId: result.callId,
    toolName: result.name,
    output: resultOutput(result, version),
  };
}

function resultOutput({ content, isError }: ToolResult, version: AiSdkVersion): object {
  if (content.some(({ type }) => type === 'image' || type === 'file')) {
    // Content with media cannot be marked as an error.
    const needsNote = isError && !content.some(({ type }) => type === 'error');
    const parts = content.map((block) => resultPart(block, version));
    return { type: 'content', value: needsNote ? [{ type: 'text', text: 'The call failed.' }, ...parts] : parts };
  }
  return { type: isError ? 'error-text' : 'text', value: textOf(content).toWellFormed() };
}

function resultPart(block: ResultBlock, version: AiSdkVersion): object {
  if (block.type === 'text' || block.type === 'error') {
    const text = block.text.toWellFormed();
    return { type: 'text', text: block.type === 'error' ? `Error: ${text}` : text };
  }
  if (version === 'v4') return filePart(block, version);
  const { mediaType, source, type } = block;
  if (source.type === 'url') {
    return { type: `${type}-url`, url: source.url, ...(type === 'file' && { mediaType }) };
  }
  const filename = fileName(block);
  return { type: `${type}-data`, data: source.data, mediaType, ...(filename !== undefined && { filename }) };
}
