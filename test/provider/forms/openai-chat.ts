import { pieces, type CompleteReply } from '../complete-reply.ts';
import { isRecord } from '../rules/rules.ts';
import { chatProblem } from '../rules/openai-chat.ts';
import { bearerProblem, openAiError, sseData, type Body, type Form } from './form.ts';

const FINISH = {
  stop: 'stop',
  'tool-calls': 'tool_calls',
  length: 'length',
  'content-filter': 'content_filter',
} as const;

/** OpenAI's Chat Completions. Reasoning is sent as compatible hosts do, because OpenAI sends none. */
export const openAiChat: Form = {
  endpoint: '/chat/completions',
  mediaType: 'text/event-stream; charset=utf-8',
  rules: chatProblem,
  isStreamed: (body) => body['stream'] === true,
  headerProblem: bearerProblem,
  frames,
  whole,
  copies: 1,
  issued: () => ({}),
  error: openAiError,
  errorFrame: sseData({
    error: { message: 'The server had an error while processing your request.', type: 'server_error', code: null },
  }),
  garbage: 'data: {"id": <html>\n\n',
};

function frames(reply: CompleteReply, body: Body): string[] {
  const head = {
    id: `chatcmpl-${reply.id}`,
    object: 'chat.completion.chunk',
    created: reply.createdAt,
    model: reply.model,
    service_tier: 'default',
    system_fingerprint: 'fp_b547601dbd',
  };
  const options = body['stream_options'];
  const includesUsage = isRecord(options) && options['include_usage'] === true;
  const chunk = (delta: object, finish: string | null = null): string =>
    sseData({
      ...head,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(includesUsage && { usage: null }),
      obfuscation: 'bWQxZ',
    });
  const events = [chunk({ role: 'assistant', content: reply.calls.length > 0 ? null : '', refusal: null })];
  for (const piece of pieces(reply.reasoning ?? '')) events.push(chunk({ reasoning_content: piece }));
  for (const piece of pieces(reply.text ?? '')) events.push(chunk({ content: piece }));
  for (const piece of pieces(reply.refusal ?? '')) events.push(chunk({ refusal: piece }));
  for (const [index, { id, name, arguments: json }] of reply.calls.entries()) {
    const call = { index, id: `call_${id}`, type: 'function', function: { name, arguments: '' } };
    events.push(chunk({ tool_calls: [call] }));
    for (const piece of pieces(json)) events.push(chunk({ tool_calls: [{ index, function: { arguments: piece } }] }));
  }
  events.push(chunk({}, FINISH[reply.finish]));
  if (includesUsage) events.push(sseData({ ...head, choices: [], usage: usageOf(reply), obfuscation: 'x' }));
  events.push('data: [DONE]\n\n');
  return events;
}

function whole(reply: CompleteReply): object {
  const calls = reply.calls.map(({ id, name, arguments: json }) => ({
    id: `call_${id}`,
    type: 'function',
    function: { name, arguments: json },
  }));
  const message = {
    role: 'assistant',
    content: reply.text ?? null,
    ...(reply.reasoning && { reasoning_content: reply.reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
    refusal: reply.refusal ?? null,
    annotations: [],
  };
  return {
    id: `chatcmpl-${reply.id}`,
    object: 'chat.completion',
    created: reply.createdAt,
    model: reply.model,
    choices: [{ index: 0, message, logprobs: null, finish_reason: FINISH[reply.finish] }],
    usage: usageOf(reply),
    service_tier: 'default',
    system_fingerprint: 'fp_b547601dbd',
  };
}

function usageOf({ usage: { input, output, cached, reasoning } }: CompleteReply): object {
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    prompt_tokens_details: { cached_tokens: cached, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoning,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
}
