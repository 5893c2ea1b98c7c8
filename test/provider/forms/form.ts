import type { IncomingHttpHeaders } from 'node:http';
import type { MadeReply } from '../made.ts';
import type { Given, Rules } from '../rules/given.ts';

/** A request's body after the rules have passed it. */
export type Body = Readonly<Record<string, unknown>>;

/** How one provider speaks. */
export interface Form {
  /** Of the model, below its base URL. */
  readonly endpoint: string;
  /** The content type of a stream. */
  readonly mediaType: string;
  readonly rules: Rules;
  readonly isStreamed: (body: Body) => boolean;
  /** Why a request with these headers is not let in. */
  readonly headerProblem: (headers: IncomingHttpHeaders) => string | undefined;
  /** A streamed answer, frame by frame. */
  readonly frames: (reply: MadeReply, body: Body) => readonly string[];
  /** How often a stream says its text. */
  readonly copies: number;
  readonly whole: (reply: MadeReply, body: Body) => object;
  /** What the provider demands back in later requests. */
  readonly given: (reply: MadeReply) => Given;
  readonly error: (status: number, message: string) => object;
  /** An error after a stream has begun. */
  readonly errorFrame: string;
  /** Bytes that are no frame of this form. */
  readonly garbage: string;
}

export function sseData(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

export function sseEvent(type: string, fields: object = {}): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`;
}

/** What OpenAI calls an error of a status. */
export function openAiError(status: number, message: string): object {
  const [type, code] = OPENAI_ERRORS[status] ?? ['server_error', null];
  return { error: { message, type, param: null, code } };
}

const OPENAI_ERRORS: Readonly<Record<number, readonly [type: string, code: string | null]>> = {
  400: ['invalid_request_error', null],
  401: ['invalid_request_error', 'invalid_api_key'],
  404: ['invalid_request_error', 'model_not_found'],
  429: ['requests', 'rate_limit_exceeded'],
};

export function bearerProblem({ authorization }: IncomingHttpHeaders): string | undefined {
  return authorization?.startsWith('Bearer ')
    ? undefined
    : "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).";
}
