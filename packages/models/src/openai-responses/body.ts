import type { JsonSchema, ModelRequest, ToolSpec } from '@treadle/core';
import { allowedOf } from '../allowed-tools.ts';
import { bodies, listOfMessages, perKind } from '../body.ts';
import { jsonOf } from '../json.ts';
import { keptFor } from '../kept.ts';
import { inputItems } from './input.ts';
import type { Sender } from './reasoning.ts';

export interface ResponsesBody {
  readonly model: string;
  readonly stream: boolean;
  readonly store: boolean;
  readonly encryptedReasoning: boolean;
  readonly reasoningSummary?: 'auto' | 'concise' | 'detailed';
  readonly strict: boolean;
  /** Whose signatures go back. */
  readonly signer: string;
}

const historiesOf = perKind((kind) => {
  const sender = JSON.parse(kind) as Sender;
  return listOfMessages((message) => inputItems(message, sender));
});

export function responsesBody(body: ResponsesBody): (request: ModelRequest) => Uint8Array {
  const { model, strict, signer, store: stored } = body;
  const toolsOf = keptFor((tools: readonly ToolSpec[]) => {
    // Unless told otherwise, the API takes each schema for a strict one.
    const wire = tools.map(({ name, description, parameters, strict: own = strict }) => ({
      type: 'function',
      name,
      description,
      parameters,
      strict: own,
    }));
    return tools.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
  });

  return bodies(historiesOf(JSON.stringify({ signer, stored } satisfies Sender)), {
    write(request) {
      const { instructions, tools } = request;
      const rest = jsonOf({ model, instructions: instructions || undefined, ...restOf(body, request) }).slice(0, -1);
      return `${rest}${toolsOf(tools)},"input":[`;
    },
  });
}

/** What is absent is not sent. The API knows neither stop texts nor a seed. */
function restOf(body: ResponsesBody, request: ModelRequest): Record<string, unknown> {
  const { settings, tools, parallel, output, outputForm } = request;
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
    text: output && { format: formatOf(output, { strict: body.strict, ...outputForm }) },
  };
}

function formatOf(schema: JsonSchema, { name = 'answer', strict }: NonNullable<ModelRequest['outputForm']>): unknown {
  return { type: 'json_schema', name, schema, strict };
}

/** `auto` is what the API does when nothing is said. */
function toolChoice(request: ModelRequest): unknown {
  const { toolChoice, tools } = request;
  if (toolChoice === 'none') return 'none';
  if (typeof toolChoice === 'object') return { type: 'function', name: toolChoice.tool };
  const allowed = allowedOf(request);
  if (allowed.length === 0) return 'none';
  if (allowed.length === tools.length) return toolChoice === 'auto' ? undefined : toolChoice;
  return {
    type: 'allowed_tools',
    mode: toolChoice,
    tools: allowed.map(({ name }) => ({ type: 'function', name })),
  };
}
