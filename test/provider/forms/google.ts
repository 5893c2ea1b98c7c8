import { pieces, type CompleteReply } from '../complete-reply.ts';
import { googleProblem, signedPart } from '../rules/google.ts';
import type { Form } from './form.ts';

const FINISH = { stop: 'STOP', 'tool-calls': 'STOP', length: 'MAX_TOKENS', 'content-filter': 'SAFETY' } as const;

const STATUSES: Readonly<Record<number, string>> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  404: 'NOT_FOUND',
  429: 'RESOURCE_EXHAUSTED',
  500: 'INTERNAL',
};

/** Google's Gemini API: the model and whether to stream are in the path, calls arrive complete, lines end with CRLF. */
export const googleForm: Form = {
  endpoint: /\/models\/[^/]+:(streamGenerateContent|generateContent)$/,
  modelIn: (path) => /models\/([^/:]+):/.exec(path)![1]!,
  mediaType: 'text/event-stream',
  rules: googleProblem,
  isStreamed: (_body, path) => path.endsWith(':streamGenerateContent?alt=sse'),
  headerProblem: (headers) =>
    headers['x-goog-api-key'] === undefined
      ? "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API."
      : undefined,
  frames,
  whole: (reply) => chunk(reply, parts(reply), FINISH[reply.finish]),
  copies: 1,
  issued: (reply) => {
    const signed = [...parts(reply), ...streamedParts(reply)].filter((part) => 'thoughtSignature' in part);
    return { signatures: Object.fromEntries(signed.map((part) => [signedPart(part), ''])) };
  },
  error: (code, message, retryAfter) => ({
    error: {
      code,
      message,
      status: STATUSES[code] ?? 'UNAVAILABLE',
      ...(retryAfter !== undefined && {
        details: [
          { '@type': 'type.googleapis.com/google.rpc.Help', links: [{ url: 'https://ai.google.dev/gemini-api/docs' }] },
          { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: `${retryAfter}s` },
        ],
      }),
    },
  }),
  hasRetryInBody: true,
  // Not in a field of an event.
  errorFrame: `${JSON.stringify({ error: { code: 503, message: 'The model is overloaded.', status: 'UNAVAILABLE' } }, null, 2)}\n`,
  garbage: 'data: {"candidates": <html>\r\n\r\n',
};

type Part = Readonly<Record<string, unknown>>;

/** The signature is that of the first call, or of the text if there is none. */
function parts(reply: CompleteReply): Part[] {
  const { reasoning, signature, text, calls } = reply;
  const signed = reasoning === undefined ? {} : { thoughtSignature: signature };
  const textPart = text === undefined ? [] : [{ text, ...(calls.length === 0 && signed) }];
  return [...(reasoning ? [{ text: reasoning, thought: true }] : []), ...textPart, ...callParts(reply)];
}

function callParts({ reasoning, signature, calls }: CompleteReply): Part[] {
  return calls.map(({ id, name, arguments: json }, index) => ({
    functionCall: { name, args: JSON.parse(json) as unknown, id: id.slice(0, 8) },
    ...(reasoning !== undefined && index === 0 && { thoughtSignature: signature }),
  }));
}

/** The signature of a text is in an empty part at its end. */
function streamedParts(reply: CompleteReply): Part[] {
  const { reasoning, signature, text, calls } = reply;
  const isSigned = reasoning !== undefined && calls.length === 0;
  return [
    ...pieces(reasoning ?? '').map((piece) => ({ text: piece, thought: true })),
    ...pieces(text ?? '').map((piece) => ({ text: piece })),
    ...callParts(reply),
    ...(isSigned ? [{ text: '', thoughtSignature: signature }] : []),
  ];
}

function frames(reply: CompleteReply): string[] {
  const sent = streamedParts(reply).map((part) => chunk(reply, [part]));
  return [...sent, chunk(reply, [{ text: '' }], FINISH[reply.finish])].map(
    (data) => `data: ${JSON.stringify(data)}\r\n\r\n`,
  );
}

function chunk(reply: CompleteReply, content: readonly Part[], finishReason?: string): object {
  const { input, output, cached, reasoning } = reply.usage;
  return {
    candidates: [{ content: { parts: content, role: 'model' }, ...(finishReason && { finishReason }), index: 0 }],
    usageMetadata: {
      promptTokenCount: input,
      candidatesTokenCount: output - reasoning,
      totalTokenCount: input + output,
      ...(cached > 0 && { cachedContentTokenCount: cached }),
      promptTokensDetails: [{ modality: 'TEXT', tokenCount: input }],
      ...(reasoning > 0 && { thoughtsTokenCount: reasoning }),
    },
    modelVersion: reply.model,
    responseId: reply.id,
  };
}
