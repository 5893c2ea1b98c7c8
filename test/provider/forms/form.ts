import type { IncomingHttpHeaders } from 'node:http';
import type { CompleteReply } from '../complete-reply.ts';
import type { Issued, Rules } from '../rules/rules.ts';

/** The body of a request that the rules have accepted. */
export type Body = Readonly<Record<string, unknown>>;

/** The wire form of one provider. */
export interface Form {
  /** The path below the base URL. */
  readonly endpoint: string | RegExp;
  /** The model, if the path contains it instead of the body. */
  readonly modelIn?: (path: string) => string;
  /** The content type of a stream. */
  readonly mediaType: string;
  readonly rules: Rules;
  readonly isStreamed: (body: Body, path: string) => boolean;
  /** Why a request with these headers is rejected; undefined if it is not. */
  readonly headerProblem: (headers: IncomingHttpHeaders) => string | undefined;
  /** A streamed answer, frame by frame. */
  readonly frames: (reply: CompleteReply, body: Body) => readonly string[];
  /** How often a stream contains the text. */
  readonly copies: number;
  readonly whole: (reply: CompleteReply, body: Body) => object;
  /** What the provider requires back in later requests. */
  readonly issued: (reply: CompleteReply) => Issued;
  /** `retryAfter`, in seconds, is in a header, unless the form has it in the body. */
  readonly error: (status: number, message: string, retryAfter?: number) => object;
  readonly hasRetryInBody?: boolean;
  /** An error after a stream has started. */
  readonly errorFrame: string;
  /** Bytes that are not a valid frame of this form. */
  readonly garbage: string;
}

export function sseData(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

export function sseEvent(type: string, fields: object = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
}

/** The error of OpenAI for a status. */
export function openAiError(status: number, message: string): object {
  const [type, code] = OPENAI_ERRORS[status] ?? ['server_error', null];
  return { error: { message, type, param: null, code } };
}

const OPENAI_ERRORS: Readonly<Record<number, readonly [type: string, code: string | null]>> = {
  400: ['invalid_request_error', null],
  401: ['invalid_request_error', 'invalid_api_key'],
  402: ['insufficient_quota', 'insufficient_quota'],
  404: ['invalid_request_error', 'model_not_found'],
  429: ['requests', 'rate_limit_exceeded'],
};

export function bearerProblem({ authorization }: IncomingHttpHeaders): string | undefined {
  return authorization?.startsWith('Bearer ')
    ? undefined
    : "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).";
}
