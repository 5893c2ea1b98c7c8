import type { ModelRequest, Settings, ToolSpec } from '@treadle/core';
import { bodyWriter, histories, instructionsWithForm, memoized, perKind, type WriteBody } from '../body.ts';
import { allowedOf } from '../calls.ts';
import { jsonOf, sliceableJson } from '../json.ts';
import { anthropicMessage, closeMessages, startConversation, type Conversation } from './messages.ts';
import type { ModelTraits } from './models.ts';
import { answerSchema } from './schema.ts';
import { thinkingOf, type ThinkingDisplay } from './thinking.ts';

export interface AnthropicBody extends ModelTraits {
  readonly model: string;
  readonly stream: boolean;
  readonly thinkingDisplay?: ThinkingDisplay | undefined;
  /** Whether to send marks for the prompt cache of the provider. */
  readonly cache: boolean;
  /** Only reasoning signed under this name is sent back. */
  readonly signer: string;
}

/** The API requires a number. Every model since Claude 4 accepts this one, and hardly any answer is longer. */
const MAX_TOKENS = 32_000;
const CACHE_MARK = { type: 'ephemeral' } as const;

const anthropicHistories = perKind((signer) =>
  histories<Conversation>({
    start: () => startConversation(signer),
    write: anthropicMessage,
    close: (conversation) => `${closeMessages(conversation)}}`,
  }),
);
const schemaOf = memoized(answerSchema);

/**
 * The cache marks on system and tools never move. The mark at the top level moves with the conversation: the API applies
 * it to the last block.
 */
export function anthropicBody(body: AnthropicBody): WriteBody {
  const { model, signer } = body;
  const mark = body.cache ? { cache_control: CACHE_MARK } : undefined;
  const toolsOf = memoized((tools: readonly ToolSpec[]) => {
    const wire = tools.map(({ name, description, parameters }, index) => ({
      name,
      description,
      input_schema: { ...parameters, type: 'object' },
      ...(index === tools.length - 1 && mark),
    }));
    return tools.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
  });

  return bodyWriter(anthropicHistories(signer), {
    dependsOn: calledWithoutThought,
    write(request, conversation) {
      const { schema } = request.output ? schemaOf(request.output) : {};
      // A schema that the API does not support is described in the instructions.
      const text = (request.output && !schema ? instructionsWithForm(request) : request.instructions) ?? '';
      const system = text.trim() === '' ? undefined : [{ type: 'text', text, ...mark }];
      const description = request.outputForm?.description;
      const described = description === undefined ? schema : { description, ...schema };
      const format = schema && { type: 'json_schema', schema: described };
      const rest = anthropicFields(body, request, calledWithoutThought(conversation), format);
      return `${sliceableJson({ model, system, ...rest, ...mark }).slice(0, -1)}${toolsOf(request.tools)},"messages":[`;
    },
  });
}

/** Whether the newest assistant message has a call but does not start with a thought. */
function calledWithoutThought({ hasCall, hasThought }: Conversation): boolean {
  return hasCall && !hasThought;
}

/** Undefined fields are not sent. The API has no seed. */
function anthropicFields(
  body: AnthropicBody,
  request: ModelRequest,
  calledWithoutThought: boolean,
  format: object | undefined,
): Record<string, unknown> {
  const { settings } = request;
  const { reasoning, maxOutputTokens: maxTokens = MAX_TOKENS } = settings;
  const choice = anthropicToolChoice(request, body);
  const { thinking, effort } = thinkingOf({
    form: body.thinking,
    byDefault: body.thinksByDefault,
    display: body.thinkingDisplay,
    reasoning,
    maxTokens,
    forced: choice?.type === 'any' || choice?.type === 'tool',
    calledWithoutThought,
  });
  // The API rejects blank stop sequences.
  const stops = settings.stop?.filter((stop) => stop.trim() !== '') ?? [];
  return {
    max_tokens: maxTokens,
    stream: body.stream,
    tool_choice: choice,
    thinking,
    output_config: effort || format ? { effort, format } : undefined,
    ...(body.sampling && !isReasoning(settings) && samplingFields(settings)),
    stop_sequences: stops.length === 0 ? undefined : stops,
    // `auto` is the default. The API has no other tiers.
    service_tier: settings.serviceTier === 'default' ? 'standard_only' : undefined,
  };
}

/**
 * Most models accept only one of the two, and none while it thinks. With reasoning they are omitted in all turns, also in
 * those that cannot think, so that sampling is consistent within a run. The API accepts temperatures up to 1, which is the
 * default, others up to 2.
 */
function samplingFields({ temperature, topP }: Settings): Record<string, unknown> {
  if (temperature === undefined || (temperature === 1 && topP !== undefined)) return { top_p: topP };
  return { temperature: Math.min(temperature, 1) };
}

/** What `samplingFields` does not send as it is. */
export function omittedSampling(settings: Settings): readonly (keyof Settings)[] {
  if (isReasoning(settings)) return ['temperature', 'topP'];
  const { temperature = 1 } = settings;
  if (temperature > 1) return ['temperature', 'topP'];
  return temperature === 1 ? [] : ['topP'];
}

function isReasoning({ reasoning }: Settings): boolean {
  return reasoning !== undefined && reasoning !== 'none';
}

interface WireChoice {
  readonly type: 'auto' | 'any' | 'tool' | 'none';
  readonly name?: string;
  readonly disable_parallel_tool_use?: true;
}

/**
 * The API has no subset of allowed tools. Leaving the others out of `tools` would invalidate the prompt cache, which
 * starts with them, and leave earlier calls in the history without their tool. So all tools are sent, and the loop rejects
 * calls outside the subset. Some models cannot be forced to call a tool: the loop then asks again if no call came.
 * Undefined means `auto`, the default of the API.
 */
function anthropicToolChoice(request: ModelRequest, { forcedTools }: AnthropicBody): WireChoice | undefined {
  const { toolChoice: choice, tools, parallel } = request;
  if (tools.length === 0) return undefined;
  const allowed = allowedOf(request);
  if (choice === 'none' || (typeof choice === 'string' && allowed.length === 0)) return { type: 'none' };
  const single = parallel ? undefined : ({ disable_parallel_tool_use: true } as const);
  if (choice === 'auto' || !forcedTools) return single && { type: 'auto', ...single };
  if (typeof choice === 'object') return { type: 'tool', name: choice.tool, ...single };
  if (allowed.length === 1 && tools.length > 1) return { type: 'tool', name: allowed[0]!.name, ...single };
  return { type: 'any', ...single };
}
