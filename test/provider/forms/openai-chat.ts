import { pieces, type MadeReply } from '../made.ts';
import { isRecord } from '../rules/given.ts';
import { chatProblem } from '../rules/openai-chat.ts';
import { bearerProblem, openAiError, sseData, type Body, type Form } from './form.ts';

const FINISH = {
  stop: 'stop',
  'tool-calls': 'tool_calls',
  length: 'length',
  'content-filter': 'content_filter',
} as const;

/** OpenAI's Chat Completions. Reasoning is sent as the hosts that have it do, since OpenAI sends none. */
export const openAiChat: Form = {
  endpoint: '/chat/completions',
  mediaType: 'text/event-stream; charset=utf-8',
  rules: chatProblem,
  isStreamed: (body) => body['stream'] === true,
  headerProblem: bearerProblem,
  frames,
  whole,
  copies: 1,
  given: () => ({}),
  error: openAiError,
  errorFrame: sseData({
    error: { message: 'The server had an error while processing your request.', type: 'server_error', code: null },
  }),
  garbage: 'data: {"id": <html>\n\n',
};

function frames(reply: MadeReply, body: Body): string[] {
  const head = {
    id: `chatcmpl-${reply.id}`,
    object: 'chat.completion.chunk',
    created: reply.createdAt,
    model: reply.model,
    service_tier: 'default',
    system_fingerprint: 'fp_b547601dbd',
  };
  const options = body['stream_options'];
  const tellsUsage = isRecord(options) && options['include_usage'] === true;
  const chunk = (delta: object, finish: string | null = null): string =>
    sseData({
      ...head,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(tellsUsage && { usage: null }),
      obfuscation: 'bWQxZ',
    });
  const said = [chunk({ role: 'assistant', content: reply.calls.length > 0 ? null : '', refusal: null })];
  for (const piece of pieces(reply.reasoning ?? '')) said.push(chunk({ reasoning_content: piece }));
  for (const piece of pieces(reply.text ?? '')) said.push(chunk({ content: piece }));
  for (const [index, { id, name, arguments: json }] of reply.calls.entries()) {
    const call = { index, id: `call_${id}`, type: 'function', function: { name, arguments: '' } };
    said.push(chunk({ tool_calls: [call] }));
    for (const piece of pieces(json)) said.push(chunk({ tool_calls: [{ index, function: { arguments: piece } }] }));
  }
  said.push(chunk({}, FINISH[reply.finish]));
  if (tellsUsage) said.push(sseData({ ...head, choices: [], usage: usageOf(reply), obfuscation: 'x' }));
  said.push('data: [DONE]\n\n');
  return said;
}

function whole(reply: MadeReply): object {
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
    refusal: null,
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

function usageOf({ usage: { input, output, cached, reasoning } }: MadeReply): object {
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
