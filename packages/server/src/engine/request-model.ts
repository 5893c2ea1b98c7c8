import type {
  FileBlock,
  ImageBlock,
  Message,
  Model,
  ModelError,
  ModelReply,
  ModelRequest,
  Settings,
} from '@treadle/core';
import { badRequest, type ApiError } from '../api-error.ts';
import { nextTurn } from '../http/large-work.ts';
import { mergeSameRole } from '../history/conversation.ts';

/** A JSON Schema of the answer, with the options of models that can enforce it. */
export interface AnswerFormat {
  readonly schema: Readonly<Record<string, unknown>>;
  readonly name?: string;
  readonly description?: string;
  readonly strict?: boolean;
  /** Any JSON object is meant. */
  readonly anyObject?: true;
}

/** The fields of a request that apply to every model call. */
interface ModelCallRequest {
  /** Sent to the model. The loop validates the answer if it is strict. */
  readonly format?: AnswerFormat;
  readonly parallel: boolean;
  readonly truncation: 'auto' | 'disabled';
  /** For all replies together. */
  readonly maxOutputTokens?: number;
}

interface ModelCallOptions {
  /** Tokens that were generated before the run was resumed. */
  readonly usedTokens: number;
  /** The last reply before the run was resumed was cut off; default false. */
  readonly isCutOff?: boolean;
  /** The conversation is large: encoding it takes a while. Default false. */
  readonly isLarge?: boolean;
  /** Called when the tokens are used up, or when a reply was cut off: the model is not called again. */
  readonly onSpent: () => void;
}

const SPENT: ModelError = { code: 'cancelled', message: 'max_output_tokens is used up.', retryable: false };

/** The models of one run, with the settings of its request applied to every call. They share its tokens. */
export function requestModels(request: ModelCallRequest, options: ModelCallOptions): (model: Model) => Model {
  const { usedTokens, isCutOff = false } = options;
  const left = { tokens: isCutOff ? 0 : (request.maxOutputTokens ?? Infinity) - usedTokens };
  return (model) => requestModel(model, request, options, left);
}

/** The model with the settings of one request applied to every call. `left`: the tokens that it may still generate. */
function requestModel(
  model: Model,
  request: ModelCallRequest,
  { isLarge = false, onSpent }: ModelCallOptions,
  left: { tokens: number },
): Model {
  const { format, parallel, truncation } = request;
  const { schema: output, ...outputForm } = format ?? {};
  /** How many messages at the beginning of the conversation are no longer sent. */
  let dropped = 0;
  const sentMessages = alternatingMessages();

  /** If the conversation is too long for the model, the older half is dropped and the call is repeated. */
  async function callTruncated(modelRequest: ModelRequest, ...others: Others): Promise<ModelReply> {
    for (;;) {
      if (isLarge) await nextTurn();
      const messages = sentMessages(modelRequest.messages, dropped);
      const reply = await model.reply({ ...modelRequest, messages }, ...others);
      const isTooLong = reply.type === 'failure' && reply.error.code === 'context-length';
      const next = isTooLong && truncation === 'auto' ? nextCut(modelRequest.messages, dropped) : undefined;
      if (next === undefined) return reply;
      dropped = next;
    }
  }

  return {
    ...model,
    async reply(modelRequest, emit, signal) {
      if (left.tokens <= 0) {
        onSpent();
        return { type: 'failure', error: SPENT };
      }
      const { settings: given } = modelRequest;
      // The run of an agent has bounds of its own.
      const maxOutputTokens = Math.min(left.tokens, given.maxOutputTokens ?? Infinity);
      const settings = left.tokens === Infinity ? given : { ...given, maxOutputTokens };
      const reply = await callTruncated(
        {
          ...modelRequest,
          parallel: parallel && modelRequest.parallel,
          settings,
          ...(output && { output, outputForm }),
        },
        emit,
        signal,
      );
      if (reply.type === 'reply') left.tokens = reply.finish === 'length' ? 0 : left.tokens - reply.usage.outputTokens;
      return reply;
    },
  };
}

type Others = Parameters<Model['reply']> extends [unknown, ...infer Rest] ? Rest : never;

/**
 * The messages to send, with alternating roles. Returns the same array whenever possible: protocols cache what they derive from
 * it. A history that only grows is searched only from where the last search ended.
 */
function alternatingMessages(): (messages: readonly Message[], dropped: number) => readonly Message[] {
  let searched: readonly Message[] = [];
  let count = 0;
  let last: Message | undefined;
  return (messages, dropped) => {
    const sent = dropped === 0 ? messages : messages.slice(dropped);
    const from = sent === searched && sent[count - 1] === last ? count : 0;
    for (let index = Math.max(from, 1); index < sent.length; index++) {
      const { role } = sent[index]!;
      if (role !== 'tool' && role === sent[index - 1]!.role) return mergeSameRole(sent);
    }
    searched = sent;
    count = sent.length;
    last = sent.at(-1);
    return sent;
  };
}

/** The index of the user message at which the later half after `dropped` begins; undefined if there is none. */
function nextCut(messages: readonly Message[], dropped: number): number | undefined {
  const starts = messages.flatMap(({ role }, index) => (role === 'user' && index > dropped ? index : []));
  return starts[Math.floor((starts.length - 1) / 2)];
}

// What a request may ask of a model. A setting that the model does not take is refused, because the answer would not be
// what the client asked for. Default values and mere hints are accepted, and ignored by models that do not take them.

/** The names that both APIs have for settings. */
const NAMES = {
  temperature: 'temperature',
  topP: 'top_p',
  stop: 'stop',
  seed: 'seed',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
  logitBias: 'logit_bias',
  serviceTier: 'service_tier',
} as const;

/** The names that differ between the APIs. */
export type SettingNames = Readonly<Record<'reasoning' | 'topLogprobs', string>> &
  Readonly<Partial<Record<keyof typeof NAMES, string>>>;

/** What a model takes that does not say it. */
const USUAL: readonly (keyof Settings)[] = ['temperature', 'maxOutputTokens', 'topP', 'stop', 'seed', 'reasoning'];

/** Throws a 400 for a setting that the model, or one that may reply instead, does not take. */
export function checkSettings(model: Model, name: string, settings: Settings, names: SettingNames): void {
  for (const key in settings) {
    const setting = key as keyof Settings;
    if (isHint(setting, settings[setting]) || takesSetting(model, setting, settings)) continue;
    throw notTaken(name, { ...NAMES, ...names }[setting]);
  }
}

function isHint(
  setting: keyof Settings,
  value: unknown,
): setting is 'promptCacheKey' | 'verbosity' | 'maxOutputTokens' {
  switch (setting) {
    case 'promptCacheKey':
    case 'verbosity':
    case 'maxOutputTokens':
      return true;
    case 'serviceTier':
      return value === 'auto' || value === 'default';
    case 'temperature':
    case 'topP':
      return value === 1;
    default:
      return false;
  }
}

/** Whether the model, and each one that may reply instead, takes a setting as it is. */
export function takesSetting(model: Model, setting: keyof Settings, settings: Settings): boolean {
  if (model.takes) return model.takes.includes(setting) && !model.omits?.(settings).includes(setting);
  const others = (model.asks ?? []).filter((other) => other !== model);
  return others.length > 0 ? others.every((other) => takesSetting(other, setting, settings)) : USUAL.includes(setting);
}

/**
 * Whether the model, and each one that may reply instead, can be sent the image with its detail, or the file by its URL. A model
 * without details sees an image as it is, so only a lower one is not possible.
 */
export function acceptsMedia(model: Model, block: CheckedMedia): boolean {
  const { imageDetail, fileUrls } = model.accepts ?? {};
  if (block.type === 'image' && block.detail === 'low' && imageDetail === false) return false;
  if (block.type === 'file' && block.source.type === 'url') {
    if (fileUrls === false || (fileUrls === 'pdf' && !PDF_OR_UNKNOWN.includes(block.mediaType))) return false;
  }
  return (model.asks ?? []).every((other) => other === model || acceptsMedia(other, block));
}

type CheckedMedia = Pick<ImageBlock, 'type' | 'detail'> | Pick<FileBlock, 'type' | 'mediaType' | 'source'>;

const PDF_OR_UNKNOWN = ['application/pdf', 'application/octet-stream'];

export function notTaken(model: string, param: string, remedy: string = 'Leave it out'): ApiError {
  const message = `The model ${JSON.stringify(model)} does not support '${param}'. ${remedy}, or use another model.`;
  return badRequest(message, param, 'unsupported_parameter');
}
