import type { Message, ModelRequest, ToolSpec } from '@treadle/core';
import { fragments } from '../fragments.ts';
import { inputItems } from './input.ts';

export interface ResponsesBody {
  readonly model: string;
  readonly stream: boolean;
  readonly store: boolean;
  readonly encryptedReasoning: boolean;
  readonly reasoningSummary?: 'auto' | 'concise' | 'detailed';
  readonly strict: boolean;
}

const storedHistory = fragments((message) => inputItems(message, true));
const statelessHistory = fragments((message) => inputItems(message, false));

/** `{"model":…,"instructions":…,"input":[`, the history, the tools, the rest: only the rest is made each time. */
export function responsesBody(body: ResponsesBody): (request: ModelRequest) => readonly Uint8Array[] {
  const history = body.store ? storedHistory : statelessHistory;
  const heads = new WeakMap<readonly Message[], { instructions: string | undefined; bytes: Uint8Array }>();
  const toolLists = new WeakMap<readonly ToolSpec[], Uint8Array>();

  const headOf = ({ messages, instructions }: ModelRequest): Uint8Array => {
    let head = heads.get(messages);
    if (head === undefined || head.instructions !== instructions) {
      const opening = JSON.stringify({ model: body.model, instructions: instructions?.toWellFormed() || undefined });
      head = { instructions, bytes: Buffer.from(`${opening.slice(0, -1)},"input":[`) };
      heads.set(messages, head);
    }
    return head.bytes;
  };

  const toolsOf = (tools: readonly ToolSpec[]): Uint8Array => {
    let bytes = toolLists.get(tools);
    if (bytes === undefined) {
      // Unless told otherwise, the API takes each schema for a strict one.
      const wire = tools.map(({ name, description, parameters }) => ({
        type: 'function',
        name,
        description,
        parameters,
        strict: body.strict,
      }));
      bytes = Buffer.from(tools.length === 0 ? '],' : `],"tools":${JSON.stringify(wire)},`);
      toolLists.set(tools, bytes);
    }
    return bytes;
  };

  return (request) => [
    headOf(request),
    history(request.messages).subarray(1),
    toolsOf(request.tools),
    Buffer.from(JSON.stringify(restOf(body, request)).slice(1)),
  ];
}

/** What is absent is not sent. The API knows neither stop texts nor a seed. */
function restOf(body: ResponsesBody, request: ModelRequest): Record<string, unknown> {
  const { settings, tools, parallel, output } = request;
  const reasoning = { effort: settings.reasoning, summary: body.reasoningSummary };
  return {
    stream: body.stream,
    store: body.store,
    include: body.encryptedReasoning ? ['reasoning.encrypted_content'] : undefined,
    tool_choice: tools.length === 0 ? undefined : toolChoice(request),
    parallel_tool_calls: tools.length === 0 || parallel ? undefined : false,
    temperature: settings.temperature,
    max_output_tokens: settings.maxOutputTokens,
    top_p: settings.topP,
    reasoning: reasoning.effort === undefined && reasoning.summary === undefined ? undefined : reasoning,
    text: output && { format: { type: 'json_schema', name: 'answer', schema: output, strict: body.strict } },
  };
}

/** `auto` is what the API does when nothing is said. */
function toolChoice({ toolChoice, allowedTools, tools }: ModelRequest): unknown {
  if (toolChoice === 'none') return 'none';
  if (typeof toolChoice === 'object') return { type: 'function', name: toolChoice.tool };
  const allowed = allowedTools === undefined ? tools : tools.filter(({ name }) => allowedTools.includes(name));
  if (allowed.length === 0) return 'none';
  if (allowed.length === tools.length) return toolChoice === 'auto' ? undefined : toolChoice;
  return {
    type: 'allowed_tools',
    mode: toolChoice,
    tools: allowed.map(({ name }) => ({ type: 'function', name })),
  };
}
