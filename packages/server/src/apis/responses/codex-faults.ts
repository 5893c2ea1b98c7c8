import type { IncomingHttpHeaders } from 'node:http';
import { ApiError, errorBody } from '../../api-error.ts';
import { newResponseId } from '../../ids.ts';
import type { EmitEvent, ResponseEvent } from './output-items.ts';
import type { ResponseError } from './projection.ts';

/*
 * Codex decides by the form of an error whether and when it sends a request again, and does not read all statuses as other clients do:
 *
 * 1. It gives up after a 429, and sends a request 30 times in 25 seconds after a 500 or a 503. After `response.failed` with
 *    `rate_limit_exceeded` it waits for the time in the message. So that is how it is told to come again.
 * 2. It also repeats requests that got a 401, a 403 or a 404. After a 400 it stops, and shows the error.
 * 3. If its WebSocket is refused with 426, it sends the request over HTTP at once, and gets the error there.
 */

export function isCodex(headers: IncomingHttpHeaders): boolean {
  return headers['x-codex-window-id'] !== undefined;
}

/** What Codex is told: to come again (`failed`), or that it need not (a 400). */
type CodexFault =
  | { readonly type: 'failed'; readonly event: ResponseEvent }
  | { readonly type: 'refused'; readonly error: ApiError };

export function codexFault(error: ApiError): CodexFault {
  const { type, message, param, code, headers } = error;
  if (code === TOO_LONG) return { type: 'failed', event: failedEvent({ code, message }) };
  if (isTemporary(error)) return { type: 'failed', event: failedEvent(temporaryFailure(error)) };
  const more = { ...(param !== null && { param }), ...(code !== null && { code }), headers };
  return { type: 'refused', error: error.status === 400 ? error : new ApiError(400, type, message, more) };
}

/** Whether the same request may succeed later. */
function isTemporary({ status, headers }: ApiError): boolean {
  if (headers['x-should-retry'] === 'false') return false;
  return status === 408 || status === 409 || status === 429 || status >= 500;
}

function temporaryFailure({ message, status, headers }: ApiError): ResponseError {
  const seconds = Object.entries(headers).find(([name]) => name.toLowerCase() === 'retry-after')?.[1];
  const isLimit = seconds !== undefined || status === 429;
  const when = isLimit && !/try again in/i.test(message) ? ` Try again in ${seconds ?? STANDARD_SECONDS}s.` : '';
  return { code: isLimit ? 'rate_limit_exceeded' : 'server_error', message: message + when };
}

function failedEvent(error: ResponseError): ResponseEvent {
  const response = { id: newResponseId(), object: 'response', status: 'failed', error, output: [], usage: null };
  return { type: 'response.failed', sequence_number: 0, response };
}

const STANDARD_SECONDS = '1';
/** Codex shortens its conversation then. */
const TOO_LONG = 'context_length_exceeded';

/** The answer over HTTP. Undefined for other clients. */
export function codexAnswer(error: ApiError, headers: IncomingHttpHeaders): Response | undefined {
  if (!isCodex(headers)) return undefined;
  const fault = codexFault(error);
  if (fault.type === 'refused') return jsonAnswer(400, error);
  const { event } = fault;
  const body = `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  return new Response(body, { headers: { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' } });
}

/** The answer to the request for a WebSocket. Undefined for other clients. */
export function codexUpgradeAnswer(error: ApiError, headers: IncomingHttpHeaders): Response | undefined {
  return isCodex(headers) ? jsonAnswer(426, error) : undefined;
}

function jsonAnswer(status: number, error: ApiError): Response {
  const headers = { 'Content-Type': 'application/json', ...error.headers };
  return new Response(JSON.stringify(errorBody(error)), { status, headers });
}

/** The beginning of a stream, which is held back until there is output: an error before it is told in another form. */
export interface HeldStart {
  readonly emit: EmitEvent;
  /** Sends what is held back. */
  begin(): void;
  readonly hasBegun: () => boolean;
}

export function heldStart(send: EmitEvent): HeldStart {
  let held: ResponseEvent[] | undefined = [];
  function begin(): void {
    const events = held ?? [];
    held = undefined;
    for (const event of events) void send(event);
  }
  return {
    begin,
    hasBegun: () => held === undefined,
    emit(event) {
      if (!held) return send(event);
      if (event.type === 'response.created' || event.type === 'response.in_progress') return void held.push(event);
      if (event.type === 'error' || event.type === 'response.failed') return;
      begin();
      return send(event);
    },
  };
}
