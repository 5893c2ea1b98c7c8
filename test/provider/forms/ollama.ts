import { pieces, type CompleteReply } from '../complete-reply.ts';
import { ollamaProblem } from '../rules/ollama.ts';
import type { Form } from './form.ts';

/** Ollama's chat: one JSON object per line, no ids, complete calls. It streams by default. */
export const ollamaForm: Form = {
  endpoint: '/api/chat',
  mediaType: 'application/x-ndjson',
  rules: ollamaProblem,
  isStreamed: (body) => body['stream'] !== false,
  headerProblem: () => undefined,
  frames,
  whole: (reply) => last(reply, message(reply)),
  copies: 1,
  issued: () => ({}),
  error: (_status, text) => ({ error: text }),
  errorFrame: `${JSON.stringify({ error: 'an error was encountered while running the model: unexpected EOF' })}\n`,
  garbage: '{"model": <html>\n',
};

function frames(reply: CompleteReply): string[] {
  const line = (content: object): string =>
    `${JSON.stringify({ ...head(reply), message: { role: 'assistant', content: '', ...content }, done: false })}\n`;
  return [
    ...pieces(reply.reasoning ?? '').map((thinking) => line({ thinking })),
    ...pieces(reply.text ?? '').map((content) => line({ content })),
    ...calls(reply).map((call) => line({ tool_calls: [call] })),
    `${JSON.stringify(last(reply, { role: 'assistant', content: '' }))}\n`,
  ];
}

function message(reply: CompleteReply): object {
  const called = calls(reply);
  return {
    role: 'assistant',
    content: reply.text ?? '',
    ...(reply.reasoning && { thinking: reply.reasoning }),
    ...(called.length > 0 && { tool_calls: called }),
  };
}

function calls(reply: CompleteReply): object[] {
  return reply.calls.map(({ name, arguments: json }) => ({
    function: { name, arguments: JSON.parse(json) as unknown },
  }));
}

function head({ model, createdAt }: CompleteReply): object {
  return { model, created_at: new Date(createdAt * 1000).toISOString() };
}

function last(reply: CompleteReply, content: object): object {
  return {
    ...head(reply),
    message: content,
    done: true,
    done_reason: reply.finish === 'length' ? 'length' : 'stop',
    total_duration: 4_883_583_458,
    load_duration: 1_334_875,
    prompt_eval_count: reply.usage.input,
    prompt_eval_duration: 342_546_000,
    eval_count: reply.usage.output,
    eval_duration: 4_535_599_000,
  };
}
