import type { ModelRequest, ToolSpec } from '@treadle/core';
import { allowedOf } from '../allowed-tools.ts';
import { instructionsWithForm } from '../answer-form.ts';
import { bodies, histories, perKind } from '../body.ts';
import { jsonOf } from '../json.ts';
import { keptFor } from '../kept.ts';
import { closing, startConversation, wireMessage, type Conversation } from './messages.ts';
import type { ModelTraits } from './models.ts';
import { answerSchema } from './schema.ts';
import { thinkingOf, type ThinkingDisplay } from './thinking.ts';

export interface AnthropicBody extends ModelTraits {
  readonly model: string;
  readonly stream: boolean;
  readonly thinkingDisplay?: ThinkingDisplay | undefined;
  /** Marks for the provider's prompt cache. */
  readonly cache: boolean;
  /** Whose signatures go back. */
  readonly signer: string;
}

/** The API demands a number. Every model since Claude 4 takes this one, and hardly an answer is longer. */
const MAX_TOKENS = 32_000;
const MARK = { type: 'ephemeral' } as const;

const historiesOf = perKind((signer) =>
  histories<Conversation>({
    start: () => startConversation(signer),
    write: wireMessage,
    close: (conversation) => `${closing(conversation)}}`,
  }),
);
const schemaOf = keptFor(answerSchema);

/**
 * The marks on system and tools never move; the one that moves with the conversation stands beside them, and the API
 * itself puts it on the last block.
 */
export function anthropicBody(body: AnthropicBody): (request: ModelRequest) => Uint8Array {
  const { model, signer } = body;
  const mark = body.cache ? { cache_control: MARK } : undefined;
  const toolsOf = keptFor((tools: readonly ToolSpec[]) => {
    const wire = tools.map(({ name, description, parameters }, index) => ({
      name,
      description,
      input_schema: { ...parameters, type: 'object' },
      ...(index === tools.length - 1 && mark),
    }));
    return tools.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
  });

  return bodies(historiesOf(signer), {
    hangsOn: isUnthought,
    write(request, conversation) {
      const { schema } = request.output ? schemaOf(request.output) : {};
      // What the API cannot be told of the answer, the model is told.
      const said = (request.output && !schema ? instructionsWithForm(request) : request.instructions) ?? '';
      const system = said.trim() === '' ? undefined : [{ type: 'text', text: said, ...mark }];
      const format = schema && { type: 'json_schema', schema };
      const rest = restOf(body, request, isUnthought(conversation), format);
      return `${jsonOf({ model, system, ...rest, ...mark }).slice(0, -1)}${toolsOf(request.tools)},"messages":[`;
    },
  });
}

/** The newest message of the assistant has a call that no thought led to. */
function isUnthought({ called, thought }: Conversation): boolean {
  return called && !thought;
}

/** What is absent is not sent. There is no seed. */
function restOf(
  body: AnthropicBody,
  request: ModelRequest,
  unthought: boolean,
  format: object | undefined,
): Record<string, unknown> {
  const { settings } = request;
  const { reasoning, maxOutputTokens: maxTokens = MAX_TOKENS } = settings;
  const choice = toolChoice(request, body);
  const { thinking, effort } = thinkingOf({
    form: body.thinking,
    unasked: body.thinksUnasked,
    display: body.thinkingDisplay,
    reasoning,
    maxTokens,
    forced: choice?.type === 'any' || choice?.type === 'tool',
    unthought,
  });
  // Stops of white space are refused.
  const stops = settings.stop?.filter((stop) => stop.trim() !== '') ?? [];
  return {
    max_tokens: maxTokens,
    stream: body.stream,
    tool_choice: choice,
    thinking,
    output_config: effort || format ? { effort, format } : undefined,
    ...(body.sampling && reasoning === undefined && sampling(settings)),
    stop_sequences: stops.length === 0 ? undefined : stops,
  };
}

/**
 * Of the models that take them, most take only one of the two, and none while it thinks. Turns that cannot have a
 * thought go without them too, lest a run be sampled now so and now so. Where others go up to 2 this API ends at 1.
 */
function sampling({ temperature, topP }: ModelRequest['settings']): Record<string, unknown> {
  return temperature === undefined ? { top_p: topP } : { temperature: Math.min(temperature, 1) };
}

interface WireChoice {
  readonly type: 'auto' | 'any' | 'tool' | 'none';
  readonly name?: string;
  readonly disable_parallel_tool_use?: true;
}

/**
 * The API knows no subset of allowed tools. To leave the others out of `tools` would throw away the prompt cache, which
 * begins with them, and would leave earlier calls in the history without a tool. So all are described, and the loop
 * refuses calls outside the subset. Nor can every model be made to call: then the loop sees whether the call came, and
 * asks again. `auto` is what the API does when nothing is said.
 */
function toolChoice(request: ModelRequest, { forcedTools }: AnthropicBody): WireChoice | undefined {
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
