import { customInput } from '@treadle/core';
import { pieces, type CompleteReply } from '../complete-reply.ts';
import { responsesProblem } from '../rules/openai-responses.ts';
import { bearerProblem, openAiError, sseEvent, type Body, type Form } from './form.ts';

const INCOMPLETE = { length: 'max_output_tokens', 'content-filter': 'content_filter' } as const;

/** OpenAI's Responses. */
export const openAiResponses: Form = {
  endpoint: '/responses',
  mediaType: 'text/event-stream; charset=utf-8',
  rules: responsesProblem,
  isStreamed: (body) => body['stream'] === true,
  headerProblem: bearerProblem,
  frames,
  whole: (reply, body) => response(reply, body, outputOf(reply, body)),
  copies: 5,
  issued: (reply) => {
    if (reply.reasoning === undefined) return {};
    const reasoning = `rs_${reply.id}`;
    const first = reply.text === undefined ? `fc_${reply.calls[0]?.id}` : `msg_${reply.id}`;
    return { reasoningOf: { [first]: reasoning }, encrypted: { [reasoning]: reply.signature } };
  },
  error: openAiError,
  errorFrame: sseEvent('error', {
    sequence_number: 9,
    code: 'server_error',
    message: 'The server had an error.',
    param: null,
  }),
  garbage: 'event: response.output_text.delta\ndata: {"type": <html>\n\n',
};

interface Item {
  readonly id: string;
  readonly type: string;
  readonly [field: string]: unknown;
}

function outputOf(reply: CompleteReply, body: Body): Item[] {
  const items: Item[] = [];
  const status = reply.finish in INCOMPLETE ? 'incomplete' : 'completed';
  if (reply.reasoning !== undefined) {
    const include = Array.isArray(body['include']) ? body['include'] : [];
    items.push({
      id: `rs_${reply.id}`,
      type: 'reasoning',
      ...(include.includes('reasoning.encrypted_content') && { encrypted_content: reply.signature }),
      summary: reply.reasoning === '' ? [] : [{ type: 'summary_text', text: reply.reasoning }],
    });
  }
  if (reply.text !== undefined) {
    const content = [{ type: 'output_text', annotations: [], logprobs: [], text: reply.text }];
    items.push({ id: `msg_${reply.id}`, type: 'message', status, content, role: 'assistant' });
  }
  for (const { id, name, arguments: json } of reply.calls) {
    if (isCustom(body, name)) {
      const input = customInput(json);
      items.push({ id: `ctc_${id}`, type: 'custom_tool_call', status, input, call_id: `call_${id}`, name });
      continue;
    }
    items.push({ id: `fc_${id}`, type: 'function_call', status, arguments: json, call_id: `call_${id}`, name });
  }
  return items;
}

/** Whether the tool takes a text. A script has it as `{ "input": text }`. */
function isCustom({ tools }: Body, name: string): boolean {
  const declared = (Array.isArray(tools) ? tools : []) as readonly { readonly type: string; readonly name?: string }[];
  return declared.some((tool) => tool.type === 'custom' && tool.name === name);
}

function response(reply: CompleteReply, body: Body, output: readonly Item[] | undefined): object {
  const reason = reply.finish in INCOMPLETE ? INCOMPLETE[reply.finish as keyof typeof INCOMPLETE] : undefined;
  const { input, output: written, cached, reasoning } = reply.usage;
  return {
    id: `resp_${reply.id}`,
    object: 'response',
    created_at: reply.createdAt,
    status: output === undefined ? 'in_progress' : reason === undefined ? 'completed' : 'incomplete',
    background: false,
    error: null,
    incomplete_details: output !== undefined && reason !== undefined ? { reason } : null,
    instructions: body['instructions'] ?? null,
    max_output_tokens: body['max_output_tokens'] ?? null,
    model: reply.model,
    output: output ?? [],
    parallel_tool_calls: body['parallel_tool_calls'] ?? true,
    previous_response_id: null,
    reasoning: { effort: 'medium', summary: null },
    service_tier: 'auto',
    store: body['store'] ?? true,
    temperature: 1,
    text: { format: { type: 'text' }, verbosity: 'medium' },
    tool_choice: body['tool_choice'] ?? 'auto',
    tools: body['tools'] ?? [],
    top_logprobs: 0,
    top_p: 1,
    truncation: 'disabled',
    usage:
      output === undefined
        ? null
        : {
            input_tokens: input,
            input_tokens_details: { cached_tokens: cached, cache_write_tokens: 0 },
            output_tokens: written,
            output_tokens_details: { reasoning_tokens: reasoning },
            total_tokens: input + written,
          },
    user: null,
    metadata: {},
  };
}

function frames(reply: CompleteReply, body: Body): string[] {
  const events: string[] = [];
  let number = 0;
  const add = (type: string, fields: object): void => {
    events.push(sseEvent(type, { sequence_number: number++, ...fields }));
  };
  const started = response(reply, body, undefined);
  add('response.created', { response: started });
  add('response.in_progress', { response: started });
  const output = outputOf(reply, body);
  for (const [output_index, item] of output.entries()) addItem(item, output_index, add);
  const name = reply.finish in INCOMPLETE ? 'response.incomplete' : 'response.completed';
  add(name, { response: response(reply, body, output) });
  return events;
}

type AddEvent = (type: string, fields: object) => void;

function addItem(item: Item, output_index: number, add: AddEvent): void {
  const at = { item_id: item.id, output_index };
  const opened = { ...item, ...(item.type !== 'reasoning' && { status: 'in_progress' }), ...EMPTY[item.type] };
  add('response.output_item.added', { output_index, item: opened });
  if (item.type === 'reasoning') addSummary(item, at, add);
  else if (item.type === 'message') addText(item, at, add);
  else if (item.type === 'custom_tool_call') {
    const input = String(item['input']);
    for (const delta of pieces(input))
      add('response.custom_tool_call_input.delta', { ...at, delta, obfuscation: 'Zk' });
    add('response.custom_tool_call_input.done', { ...at, input });
  } else {
    const json = String(item['arguments']);
    for (const delta of pieces(json))
      add('response.function_call_arguments.delta', { ...at, delta, obfuscation: 'Zk' });
    add('response.function_call_arguments.done', { ...at, arguments: json });
  }
  add('response.output_item.done', { output_index, item });
}

const EMPTY: Readonly<Record<string, object>> = {
  reasoning: { summary: [] },
  message: { content: [] },
  function_call: { arguments: '' },
  custom_tool_call: { input: '' },
};

function addSummary(item: Item, at: object, add: AddEvent): void {
  const [part] = item['summary'] as readonly { readonly text: string }[];
  if (part === undefined) return;
  const position = { ...at, summary_index: 0 };
  add('response.reasoning_summary_part.added', { ...position, part: { type: 'summary_text', text: '' } });
  for (const delta of pieces(part.text)) {
    add('response.reasoning_summary_text.delta', { ...position, delta, obfuscation: 'Zk' });
  }
  add('response.reasoning_summary_text.done', { ...position, text: part.text });
  add('response.reasoning_summary_part.done', { ...position, part });
}

function addText(item: Item, at: object, add: AddEvent): void {
  const [part] = item['content'] as [{ readonly text: string }];
  const position = { ...at, content_index: 0 };
  add('response.content_part.added', { ...position, part: { ...part, text: '' } });
  for (const delta of pieces(part.text)) {
    add('response.output_text.delta', { ...position, delta, logprobs: [], obfuscation: 'Zk' });
  }
  add('response.output_text.done', { ...position, text: part.text, logprobs: [] });
  add('response.content_part.done', { ...position, part });
}
