import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import type { Body, Form } from './forms/form.ts';
import { completeReply } from './complete-reply.ts';
import type { FaultName, ScriptedFault, ScriptedReply } from './script.ts';

export interface Answering {
  readonly form: Form;
  readonly body: Body;
  /** The model that the request is for, and whether it asks for a stream. */
  readonly model: string;
  readonly isStreamed: boolean;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The seed of the ids in the reply. */
  readonly seed: string;
  /** Called each time the client has read a repeated text. */
  readonly onSaid?: () => void;
}

const JSON_TYPE = 'application/json';
const HUGE = 50 * 1024 * 1024;
const SOME_TEXT: ScriptedReply = { text: 'The weather in Oslo is fine today.' };
const MESSAGES: Readonly<Record<number, string>> = {
  401: 'Incorrect API key provided: sk-test. Look at your account for the right one.',
  429: 'Rate limit reached for requests. Please try again later.',
  500: 'The server had an error while processing your request. Sorry about that!',
  529: 'Overloaded',
};

export function sendReply(answering: Answering, reply: ScriptedReply): void {
  const { form, isStreamed, response } = answering;
  sendHead(response, 200, isStreamed ? form.mediaType : JSON_TYPE);
  if (reply.repeat !== undefined) {
    const text = Readable.from(repeatedFrames(answering, reply, reply.repeat), { highWaterMark: 1 });
    return void pipeline(text, response, () => {});
  }
  for (const piece of piecesOf(answering, reply)) response.write(piece);
  response.end();
}

/** Finds the frames of the text by comparison with an answer without text. */
function* repeatedFrames(
  { form, body, model, seed, onSaid }: Answering,
  reply: ScriptedReply,
  times: number,
): Generator<string> {
  const complete = completeReply(reply, seed, model);
  const frames = form.frames(complete, body);
  const others = form.frames({ ...complete, text: '' }, body);
  const from = frames.findIndex((frame, at) => frame !== others[at]);
  const to = from + frames.length - others.length;
  const text = frames.slice(from, to).join('');
  yield frames.slice(0, from).join('');
  for (let time = 0; time < times; time++) {
    yield text;
    onSaid?.();
  }
  yield frames.slice(to).join('');
}

export function sendError({ form, response }: Answering, status: number, message: string): void {
  sendHead(response, status, JSON_TYPE);
  response.end(JSON.stringify(form.error(status, message)));
}

/** One piece per frame, or a whole answer in four pieces. */
function piecesOf({ form, body, model, isStreamed, seed }: Answering, reply: ScriptedReply): readonly string[] {
  const complete = completeReply(reply, seed, model);
  if (isStreamed) return form.frames(complete, body);
  const text = JSON.stringify(form.whole(complete, body));
  const size = Math.ceil(text.length / 4);
  // Does not split surrogate pairs.
  const cuts = [0, 1, 2, 3, 4].map((part) => (/[\udc00-\udfff]/.test(text[part * size] ?? '') ? 1 : 0) + part * size);
  return [0, 1, 2, 3].map((part) => text.slice(cuts[part], cuts[part + 1]));
}

function sendHead(response: ServerResponse, status: number, type: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': type, 'x-request-id': 'req_011CSHoEeqs5C35K2UUqR7Fy', ...headers });
  response.flushHeaders();
}

type Fault = (answering: Answering, fault: ScriptedFault) => void;

/** Sends the first half of a valid answer and then calls `then`. */
function sendHalf(answering: Answering, { reply = SOME_TEXT }: ScriptedFault, then: () => void): void {
  const { form, isStreamed, response } = answering;
  sendHead(response, 200, isStreamed ? form.mediaType : JSON_TYPE);
  const pieces = piecesOf(answering, reply);
  response.write(pieces.slice(0, pieces.length / 2).join(''), then);
}

const faults: Readonly<Record<FaultName, Fault>> = {
  status: ({ form, response }, { status = 500, retryAfter }) => {
    const hasHeader = retryAfter !== undefined && !form.hasRetryInBody;
    sendHead(response, status, JSON_TYPE, hasHeader ? { 'retry-after': String(retryAfter) } : {});
    response.end(JSON.stringify(form.error(status, MESSAGES[status] ?? 'Something went wrong.', retryAfter)));
  },
  'slow-headers': () => {},
  stall: (answering, fault) => sendHalf(answering, fault, () => {}),
  reset: (answering, fault) => sendHalf(answering, fault, () => answering.request.socket.resetAndDestroy()),
  'reset-at-once': ({ request }) => void request.socket.resetAndDestroy(),
  close: (answering, fault) => {
    sendHalf(answering, fault, () => {
      const pieces = piecesOf(answering, fault.reply ?? SOME_TEXT);
      const broken = pieces[Math.floor(pieces.length / 2)]!;
      answering.response.end(broken.slice(0, broken.length / 2));
    });
  },
  garbage: (answering, { reply = SOME_TEXT }) => {
    const { form, isStreamed, response } = answering;
    sendHead(response, 200, isStreamed ? form.mediaType : JSON_TYPE);
    const pieces = piecesOf(answering, reply);
    const middle = Math.floor(pieces.length / 2);
    response.write(pieces.slice(0, middle).join(''));
    response.end((isStreamed ? form.garbage : '"<html>"') + pieces.slice(middle).join(''));
  },
  'wrong-content-type': (answering, { reply = SOME_TEXT }) => {
    sendHead(answering.response, 200, 'text/plain');
    answering.response.end(piecesOf(answering, reply).join(''));
  },
  'web-page': ({ response }) => {
    sendHead(response, 200, 'text/html');
    response.end('<!doctype html><title>Sign in</title><p>Please sign in to this network.');
  },
  'error-in-200': ({ form, response }, { status = 500 }) => {
    sendHead(response, 200, JSON_TYPE);
    response.end(JSON.stringify(form.error(status, MESSAGES[status] ?? 'Something went wrong.')));
  },
  'error-in-stream': (answering, fault) =>
    sendHalf(answering, fault, () => answering.response.end(answering.form.errorFrame)),
  huge: (answering) => {
    const { form, isStreamed } = answering;
    // A model reads no more than 8 MB, and a whole reply is made at once.
    sendReply(answering, { text: 'x'.repeat(HUGE / (isStreamed ? form.copies : 3)) });
  },
  'huge-error': ({ form, response }) => {
    sendHead(response, 500, JSON_TYPE);
    response.end(JSON.stringify(form.error(500, 'x'.repeat(HUGE / 5))));
  },
};

export function sendFault(answering: Answering, fault: ScriptedFault): void {
  faults[fault.fault](answering, fault);
}
