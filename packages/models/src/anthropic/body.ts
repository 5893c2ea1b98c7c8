import type { JsonSchema, Message, ModelRequest, ToolSpec } from '@treadle/core';
import { growing } from '../fragments.ts';
import { jsonOf } from './json.ts';
import { closing, startConversation, wireMessage, type Conversation } from './messages.ts';
import { answerSchema } from './schema.ts';
import { thinkingOf, type ThinkingForm } from './thinking.ts';

export interface MessagesBody {
  readonly model: string;
  readonly stream: boolean;
  readonly thinking: ThinkingForm;
  /** Marks for the provider's prompt cache. */
  readonly cache: boolean;
}

/** The API demands a number. Every model since Claude 4 takes this one, and hardly an answer is longer. */
const MAX_TOKENS = 32_000;
const MARK = { type: 'ephemeral' } as const;

const history = growing(startConversation, wireMessage);

/**
 * `{"model":…,"system":…,"messages":[`, the history, what closes it, the tools, the rest: only the small ones are made
 * each time. The marks on system and tools never move; the one that moves with the conversation stands in the rest, and
 * the API itself puts it on the last block.
 */
export function messagesBody(body: MessagesBody): (request: ModelRequest) => readonly Uint8Array[] {
  const mark = body.cache ? { cache_control: MARK } : undefined;
  const heads = new WeakMap<readonly Message[], { instructions: string | undefined; bytes: Uint8Array }>();
  const toolLists = new WeakMap<readonly ToolSpec[], Uint8Array>();
  const schemas = new WeakMap<JsonSchema, JsonSchema>();

  const headOf = ({ messages, instructions }: ModelRequest): Uint8Array => {
    let head = heads.get(messages);
    if (head === undefined || head.instructions !== instructions) {
      const said = instructions !== undefined && instructions.trim() !== '';
      const system = said ? [{ type: 'text', text: instructions, ...mark }] : undefined;
      const opening = jsonOf({ model: body.model, system }).slice(0, -1);
      head = { instructions, bytes: Buffer.from(`${opening},"messages":[`) };
      heads.set(messages, head);
    }
    return head.bytes;
  };

  const toolsOf = (tools: readonly ToolSpec[]): Uint8Array => {
    let bytes = toolLists.get(tools);
    if (bytes === undefined) {
      const wire = tools.map(({ name, description, parameters }, index) => ({
        name,
        description,
        input_schema: { ...parameters, type: 'object' },
        ...(index === tools.length - 1 && mark),
      }));
      bytes = Buffer.from(tools.length === 0 ? '' : `"tools":${jsonOf(wire)},`);
      toolLists.set(tools, bytes);
    }
    return bytes;
  };

  const schemaOf = (output: JsonSchema): JsonSchema => {
    let schema = schemas.get(output);
    if (schema === undefined) schemas.set(output, (schema = answerSchema(output)));
    return schema;
  };

  return (request) => {
    const { bytes, state } = history(request.messages);
    const format = request.output && { type: 'json_schema', schema: schemaOf(request.output) };
    const rest = jsonOf({ ...restOf(body, request, state, format), ...mark }).slice(1);
    return [
      headOf(request),
      bytes.subarray(1),
      Buffer.from(`${closing(state)},`),
      toolsOf(request.tools),
      Buffer.from(rest),
    ];
  };
}

/** What is absent is not sent. There is no seed. */
function restOf(
  { stream, thinking: form }: MessagesBody,
  request: ModelRequest,
  { called, thought }: Conversation,
  format: object | undefined,
): Record<string, unknown> {
  const { settings } = request;
  const maxTokens = settings.maxOutputTokens ?? MAX_TOKENS;
  const choice = toolChoice(request);
  const forced = choice?.type === 'any' || choice?.type === 'tool';
  const { reasoning } = settings;
  const { thinking, effort } = thinkingOf({ form, reasoning, maxTokens, forced, unthought: called && !thought });
  // Stops of white space are refused.
  const stops = settings.stop?.filter((stop) => stop.trim() !== '') ?? [];
  return {
    max_tokens: maxTokens,
    stream,
    tool_choice: choice,
    thinking,
    output_config: effort || format ? { effort, format } : undefined,
    ...(thinking === undefined && sampling(settings)),
    stop_sequences: stops.length === 0 ? undefined : stops,
  };
}

/**
 * A thinking model takes neither, and the others only one of the two. The newest models refuse both, and say so. Where
 * others go up to 2 this API ends at 1.
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
 * refuses calls outside the subset. `auto` is what the API does when nothing is said.
 */
function toolChoice({ toolChoice: choice, allowedTools, tools, parallel }: ModelRequest): WireChoice | undefined {
  if (tools.length === 0) return undefined;
  const allowed = allowedTools === undefined ? tools : tools.filter(({ name }) => allowedTools.includes(name));
  if (choice === 'none' || (typeof choice === 'string' && allowed.length === 0)) return { type: 'none' };
  const single = parallel ? undefined : ({ disable_parallel_tool_use: true } as const);
  if (typeof choice === 'object') return { type: 'tool', name: choice.tool, ...single };
  if (choice === 'auto') return single && { type: 'auto', ...single };
  if (allowed.length === 1 && tools.length > 1) return { type: 'tool', name: allowed[0]!.name, ...single };
  return { type: 'any', ...single };
}
