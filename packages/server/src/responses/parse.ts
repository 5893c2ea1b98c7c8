import type { Settings } from '@treadle/core';
import { z } from 'zod';
import { badRequest } from '../api-error.ts';
import type { Echo } from '../wire/response.ts';
import { checked, fieldPath, isObject, missing, unsupported, wrongType, type Body } from './fields.ts';
import type { InputItem } from './input-items.ts';
import { inputItemId } from './ids.ts';
import { DEFAULT_LIMITS, LONGEST, type RequestLimits } from './limits.ts';
import { parseText } from './parse-format.ts';
import { parseInput, type InputContext } from './parse-input.ts';
import { parseToolChoice } from './parse-tool-choice.ts';
import { parseTools, withoutSecrets } from './parse-tools.ts';
import { checkPlain } from './plain-json.ts';
import type { ResponseRequest } from './request.ts';

export interface ParseOptions extends Partial<RequestLimits> {
  /** Labels of servers whose tools every request is offered, so that a choice may name them. */
  readonly labels?: readonly string[];
  /** For input items that come without an id. */
  readonly newId?: (prefix: string) => string;
}

const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
const SUMMARIES = ['auto', 'concise', 'detailed'] as const;
const TIERS = ['auto', 'default', 'flex', 'scale', 'priority'] as const;
/** Of `metadata`. */
const METADATA = { pairs: 16, key: 64, value: 512 } as const;

/** The fields that need no more than a look at themselves. Unknown ones are ignored. */
const plainFields = z.object({
  model: z.string().min(1).max(LONGEST.id).nullish(),
  stream: z.boolean().nullish(),
  store: z.boolean().nullish(),
  background: z.boolean().nullish(),
  previous_response_id: z.string().min(1).max(LONGEST.id).nullish(),
  include: z.array(z.string()).max(64).nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  max_tool_calls: z.int().min(1).nullish(),
  max_output_tokens: z.int().min(16).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  top_logprobs: z.int().min(0).max(20).nullish(),
  truncation: z.enum(['auto', 'disabled']).nullish(),
  service_tier: z.enum(TIERS).nullish(),
  user: z.string().max(LONGEST.id).nullish(),
  safety_identifier: z.string().max(64).nullish(),
  prompt_cache_key: z.string().max(64).nullish(),
  reasoning: z
    .object({
      effort: z.enum(EFFORTS).nullish(),
      summary: z.enum(SUMMARIES).nullish(),
      generate_summary: z.enum(SUMMARIES).nullish(),
    })
    .nullish(),
});

type PlainFields = z.infer<typeof plainFields>;

/** Checks the body of `POST /v1/responses`. Throws an `ApiError` that names the field and what to do. */
export function parseRequest(body: unknown, options: ParseOptions = {}): ResponseRequest {
  const { labels = [], newId = inputItemId, ...given } = options;
  const limits: RequestLimits = { ...DEFAULT_LIMITS, ...given };
  if (!isObject(body)) throw wrongType('object', body, '');
  checkPlain(body, limits.depth);
  const plain = checked(plainFields, body, '');
  refuseUnsupported(body, plain);

  const context: InputContext = { limits, newId };
  const instructions = instructionsOf(body['instructions'], context);
  const tools = parseTools(body['tools'], limits);
  const { choice, echo: choiceEcho } = parseToolChoice(body['tool_choice'], { ...tools, labels });
  const text = parseText(body['text'], limits);
  const metadata = metadataOf(body['metadata']);
  const input = inputOf(body['input'], plain, context);

  return {
    ...(plain.model != null && { model: plain.model }),
    stream: plain.stream ?? false,
    store: plain.store ?? true,
    ...(plain.previous_response_id != null && { previous: plain.previous_response_id }),
    ...(instructions !== null && { instructions }),
    input,
    functions: tools.functions,
    otherTools: tools.others,
    toolChoice: choice,
    parallel: plain.parallel_tool_calls ?? true,
    ...(plain.max_tool_calls != null && { maxToolCalls: plain.max_tool_calls }),
    ...(plain.max_output_tokens != null && { maxOutputTokens: plain.max_output_tokens }),
    settings: settingsOf(plain),
    ...(text.format && { format: text.format }),
    truncation: plain.truncation ?? 'disabled',
    include: plain.include ?? [],
    echo: echoOf(plain, {
      instructions,
      metadata,
      text: text.echo,
      tool_choice: choiceEcho,
      tools: tools.echo,
    }),
  };
}

/** The request as it may be stored: the secrets of its tools stay with the run that needs them. */
export function storable(request: ResponseRequest): ResponseRequest {
  return { ...request, otherTools: request.otherTools.map(withoutSecrets) };
}

/** Fields that would change what the request means, if they were ignored. */
function refuseUnsupported(fields: Body, { background }: PlainFields): void {
  if (background === true) throw unsupported('background', "Leave it out, and set 'stream' to hear of the progress.");
  if (fields['conversation'] != null)
    throw unsupported('conversation', "Use 'previous_response_id' to go on with a conversation.");
  if (fields['prompt'] != null) throw unsupported('prompt', "Send the text itself as 'instructions' or 'input'.");
}

/** A text, or items whose texts stand for it. */
function instructionsOf(given: unknown, context: InputContext): string | null {
  if (given == null) return null;
  if (typeof given === 'string') return checked(z.string().max(LONGEST.text), given, 'instructions');
  const texts = parseInput(given, 'instructions', context).map((item, index) => {
    if (item.type === 'message') return textIn(item);
    const at = `instructions[${index}]`;
    throw badRequest(
      `Invalid '${at}': instructions are messages, not items of type '${item.type}'.`,
      at,
      'invalid_value',
    );
  });
  return texts.join('\n\n');
}

function textIn(item: Extract<InputItem, { type: 'message' }>): string {
  return item.content
    .map((part) => ('text' in part ? part.text : part.type === 'refusal' ? part.refusal : ''))
    .join('');
}

function inputOf(
  given: unknown,
  { previous_response_id: previous }: PlainFields,
  context: InputContext,
): readonly InputItem[] {
  const input = given == null ? [] : parseInput(given, 'input', context);
  if (input.length > 0 || previous != null) return input;
  if (given == null) throw missing('input');
  throw badRequest(
    "'input' is empty. Say something, or name a 'previous_response_id' to go on with.",
    'input',
    'empty_input',
  );
}

function metadataOf(given: unknown): Readonly<Record<string, string>> {
  if (given == null) return {};
  if (!isObject(given)) throw wrongType('object', given, 'metadata');
  const pairs = Object.entries(given);
  const { pairs: most, key: longestKey, value: longestValue } = METADATA;
  if (pairs.length > most) {
    throw badRequest(
      `Invalid 'metadata': it has ${pairs.length} pairs; expected at most ${most}.`,
      'metadata',
      'object_above_max_properties',
    );
  }
  for (const [key, value] of pairs) {
    if (key.length > longestKey) {
      throw badRequest(
        `Invalid 'metadata': the key '${key.slice(0, longestKey)}…' has ${key.length} characters; expected at most ${longestKey}.`,
        'metadata',
        'string_above_max_length',
      );
    }
    checked(z.string().max(longestValue), value, fieldPath('metadata', [key]));
  }
  return given as Readonly<Record<string, string>>;
}

type Reasoning = NonNullable<Settings['reasoning']>;

/** Core knows three steps; `none` is to say nothing. */
const REASONING: Readonly<Record<(typeof EFFORTS)[number], Reasoning | undefined>> = {
  none: undefined,
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'high',
  max: 'high',
};

function settingsOf({ temperature, top_p: topP, reasoning }: PlainFields): Settings {
  const effort = REASONING[reasoning?.effort ?? 'none'];
  return {
    ...(temperature != null && { temperature }),
    ...(topP != null && { topP }),
    ...(effort && { reasoning: effort }),
  };
}

type ParsedEcho = Pick<Echo, 'instructions' | 'metadata' | 'text' | 'tool_choice' | 'tools'>;

function echoOf(plain: PlainFields, parsed: ParsedEcho): Omit<Echo, 'model'> {
  const { reasoning } = plain;
  return {
    ...parsed,
    background: false,
    frequency_penalty: plain.frequency_penalty ?? 0,
    max_output_tokens: plain.max_output_tokens ?? null,
    max_tool_calls: plain.max_tool_calls ?? null,
    parallel_tool_calls: plain.parallel_tool_calls ?? true,
    presence_penalty: plain.presence_penalty ?? 0,
    previous_response_id: plain.previous_response_id ?? null,
    prompt_cache_key: plain.prompt_cache_key ?? null,
    reasoning: reasoning
      ? { effort: reasoning.effort ?? null, summary: reasoning.summary ?? reasoning.generate_summary ?? null }
      : null,
    safety_identifier: plain.safety_identifier ?? null,
    service_tier: plain.service_tier == null || plain.service_tier === 'auto' ? 'default' : plain.service_tier,
    store: plain.store ?? true,
    temperature: plain.temperature ?? 1,
    top_logprobs: plain.top_logprobs ?? 0,
    top_p: plain.top_p ?? 1,
    truncation: plain.truncation ?? 'disabled',
    ...(plain.user != null && { user: plain.user }),
  };
}
