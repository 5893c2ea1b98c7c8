import type { Message, ModelRequest, ToolSpec } from '@treadle/core';
import { allowedOf } from '../allowed-tools.ts';
import { instructionsWithForm } from '../answer-form.ts';
import { histories, perKind, type Histories } from '../body.ts';
import { messagesBody } from '../messages-body.ts';
import { BRIDGE, wireMessage, type WireForm } from './messages.ts';
import type { Quirks } from './quirks.ts';
import { OPENROUTER } from './reasoning-details.ts';

export interface ChatBody extends Quirks {
  readonly model: string;
  readonly stream: boolean;
  /** Whose signatures go back; default `openrouter`, of no host. */
  readonly signer?: string;
}

export function chatBody(body: ChatBody): (request: ModelRequest) => Uint8Array {
  return messagesBody({
    model: body.model,
    histories: historiesFor(body),
    system: (request) =>
      (body.output ?? 'schema') === 'schema' ? request.instructions : instructionsWithForm(request),
    tools: (request) => offered(body, request).tools,
    rest: (request) => restOf(body, request),
  });
}

/** Models whose quirks write messages alike share what has been written. */
function historiesFor(body: ChatBody): Histories<Before> {
  const { reasoning = 'none', callIds = 'any', userAfterResults = true, media = true, signer = OPENROUTER } = body;
  const form: WireForm = { reasoning, callIds, userAfterResults, media, signer };
  return historiesOf(JSON.stringify(form));
}

/** Whose message is the newest. */
interface Before {
  role: Message['role'] | undefined;
}

const historiesOf = perKind((kind) => {
  const form = JSON.parse(kind) as WireForm;
  return histories<Before>({
    start: () => ({ role: undefined }),
    write(message, before) {
      const bridge = !form.userAfterResults && message.role === 'user' && before.role === 'tool' ? `,${BRIDGE}` : '';
      before.role = message.role;
      return bridge + wireMessage(message, form);
    },
    close: () => ']}',
  });
});

/** What is absent is not sent: hosts refuse fields that they do not know. */
function restOf(body: ChatBody, request: ModelRequest): Record<string, unknown> {
  const { settings, parallel } = request;
  const { tools, choice } = offered(body, request);
  const bare = tools.length === 0;
  const byObject = body.reasoning === 'openrouter';
  return {
    stream: body.stream,
    stream_options: body.stream && body.streamUsage !== false ? { include_usage: true } : undefined,
    tool_choice: bare ? undefined : choice,
    parallel_tool_calls: bare || parallel || body.parallelSwitch === false ? undefined : false,
    temperature: settings.temperature,
    [body.maxTokensField ?? 'max_tokens']: settings.maxOutputTokens,
    top_p: settings.topP,
    stop: settings.stop,
    seed: settings.seed,
    reasoning_effort: byObject ? undefined : settings.reasoning,
    reasoning: byObject && settings.reasoning ? { effort: settings.reasoning } : undefined,
    response_format: responseFormat(body, request, bare || choice === 'none'),
  };
}

function responseFormat(
  { output: mode = 'schema' }: Quirks,
  { output, outputForm = {} }: ModelRequest,
  noCalls: boolean,
): unknown {
  if (output === undefined || mode === 'none') return undefined;
  if (mode === 'object') return { type: 'json_object' };
  if (mode === 'schema-without-tools' && !noCalls) return undefined;
  const { name = 'answer', strict } = outputForm;
  return { type: 'json_schema', json_schema: { name, schema: output, ...(strict && { strict }) } };
}

interface Offered {
  readonly tools: readonly ToolSpec[];
  /** Undefined is `auto`, which is what a host does when nothing is said. */
  readonly choice: unknown;
}

const LEVELS = ['auto', 'required', 'named', 'subset'] as const;

/** The tools to send and what to say about them, as far as the host can be told. */
function offered({ toolChoice: most = 'subset' }: Quirks, request: ModelRequest): Offered {
  const { toolChoice, tools } = request;
  const can = (level: (typeof LEVELS)[number]): boolean => LEVELS.indexOf(level) <= LEVELS.indexOf(most);
  const must = can('required') ? 'required' : undefined;
  if (toolChoice === 'none') return { tools, choice: 'none' };
  if (typeof toolChoice === 'object') {
    if (can('named')) return { tools, choice: { type: 'function', function: { name: toolChoice.tool } } };
    return { tools: tools.filter(({ name }) => name === toolChoice.tool), choice: must };
  }
  const allowed = allowedOf(request);
  if (allowed.length === 0) return { tools, choice: 'none' };
  const choice = toolChoice === 'required' ? must : undefined;
  if (allowed.length === tools.length) return { tools, choice };
  // To leave the others out would throw away the host's prompt cache, and leave earlier calls without a tool: the loop
  // refuses calls outside the subset.
  if (!can('subset')) return { tools, choice };
  const names = allowed.map(({ name }) => ({ type: 'function', function: { name } }));
  return { tools, choice: { type: 'allowed_tools', allowed_tools: { mode: toolChoice, tools: names } } };
}
