import { pieces, type CompleteReply } from '../complete-reply.ts';
import { anthropicProblem } from '../rules/anthropic.ts';
import { sseEvent, type Form } from './form.ts';

const FINISH = {
  stop: 'end_turn',
  'tool-calls': 'tool_use',
  length: 'max_tokens',
  'content-filter': 'refusal',
} as const;

const ERRORS: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
  529: 'overloaded_error',
};

/** The first version of the API, and the one that the official client sends today. */
const VERSIONS = ['2023-06-01', '2026-10-21'];

/** Anthropic's Messages. */
export const anthropicForm: Form = {
  endpoint: '/messages',
  mediaType: 'text/event-stream; charset=utf-8',
  rules: anthropicProblem,
  isStreamed: (body) => body['stream'] === true,
  headerProblem: (headers) => {
    if (headers['x-api-key'] === undefined && headers.authorization === undefined)
      return 'x-api-key header is required';
    return VERSIONS.includes(String(headers['anthropic-version']))
      ? undefined
      : 'anthropic-version: header is required';
  },
  frames,
  whole: (reply) => message(reply, content(reply), FINISH[reply.finish], usageOf(reply)),
  copies: 1,
  issued: ({ reasoning, signature }) => ({ signatures: reasoning === undefined ? {} : { [signature]: reasoning } }),
  error: (status, text) => ({
    type: 'error',
    error: { type: ERRORS[status] ?? 'api_error', message: text },
    request_id: 'req_011CSHoEeqs5C35K2UUqR7Fy',
  }),
  errorFrame: sseEvent('error', { error: { type: 'overloaded_error', message: 'Overloaded' } }),
  garbage: 'event: content_block_delta\ndata: {"type": <html>\n\n',
};

type Block = Readonly<Record<string, unknown>>;

function content({ reasoning, signature, text, calls }: CompleteReply): Block[] {
  const blocks: Block[] = [];
  if (reasoning === '') blocks.push({ type: 'redacted_thinking', data: signature });
  else if (reasoning !== undefined) blocks.push({ type: 'thinking', thinking: reasoning, signature });
  if (text !== undefined) blocks.push({ type: 'text', text });
  for (const { id, name, arguments: json } of calls) {
    blocks.push({ type: 'tool_use', id: `toolu_01${id}`, name, input: JSON.parse(json) as unknown });
  }
  return blocks;
}

function message({ id, model }: CompleteReply, blocks: readonly Block[], stop: string | null, usage: object): object {
  return {
    model,
    id: `msg_01${id}`,
    type: 'message',
    role: 'assistant',
    content: blocks,
    stop_reason: stop,
    stop_sequence: null,
    usage,
  };
}

function frames(reply: CompleteReply): string[] {
  const { reasoning, signature, text, calls, usage } = reply;
  const firstUsage = { ...usageOf(reply), output_tokens: 1 };
  const events = [sseEvent('message_start', { message: message(reply, [], null, firstUsage) })];
  let index = 0;
  const addBlock = (opened: object, deltas: readonly object[]): void => {
    events.push(sseEvent('content_block_start', { index, content_block: opened }));
    if (index === 0) events.push(sseEvent('ping'));
    for (const delta of deltas) events.push(sseEvent('content_block_delta', { index, delta }));
    events.push(sseEvent('content_block_stop', { index }));
    index++;
  };
  if (reasoning === '') {
    addBlock({ type: 'redacted_thinking', data: signature }, []);
  } else if (reasoning !== undefined) {
    addBlock({ type: 'thinking', thinking: '', signature: '' }, [
      ...pieces(reasoning).map((piece) => ({ type: 'thinking_delta', thinking: piece })),
      { type: 'signature_delta', signature },
    ]);
  }
  if (text !== undefined) {
    const deltas = pieces(text).map((piece) => ({ type: 'text_delta', text: piece }));
    addBlock({ type: 'text', text: '' }, deltas);
  }
  for (const { id, name, arguments: json } of calls) {
    const deltas = ['', ...pieces(json)].map((piece) => ({ type: 'input_json_delta', partial_json: piece }));
    addBlock({ type: 'tool_use', id: `toolu_01${id}`, name, input: {} }, deltas);
  }
  const delta = { stop_reason: FINISH[reply.finish], stop_sequence: null };
  events.push(sseEvent('message_delta', { delta, usage: { output_tokens: usage.output } }));
  events.push(sseEvent('message_stop'));
  return events;
}

/** This API counts cached tokens separately. */
function usageOf({ usage: { input, output, cached } }: CompleteReply): object {
  return {
    input_tokens: input - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
    output_tokens: output,
    service_tier: 'standard',
  };
}
