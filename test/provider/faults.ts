import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import type { Body, Form } from './forms/form.ts';
import { makeReply } from './made.ts';
import type { FaultName, ScriptedFault, ScriptedReply } from './script.ts';

export interface Answering {
  readonly form: Form;
  readonly body: Body;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Tells replies apart. */
  readonly seed: string;
  /** A text that is repeated was taken once more. */
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

export function answer(answering: Answering, reply: ScriptedReply): void {
  const { form, body, response, seed } = answering;
  begin(response, 200, form.isStreamed(body) ? form.mediaType : JSON_TYPE);
  if (reply.repeat !== undefined) {
    const said = Readable.from(repeated(answering, reply, reply.repeat), { highWaterMark: 1 });
    return void pipeline(said, response, () => {});
  }
  for (const piece of piecesOf(form, body, reply, seed)) response.write(piece);
  response.end();
}

/** The frames of the text are those that an answer without text lacks. */
function* repeated({ form, body, seed, onSaid }: Answering, reply: ScriptedReply, times: number): Generator<string> {
  const made = makeReply(reply, seed, String(body['model']));
  const frames = form.frames(made, body);
  const others = form.frames({ ...made, text: '' }, body);
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

export function refuse({ form, response }: Answering, status: number, message: string): void {
  begin(response, status, JSON_TYPE);
  response.end(JSON.stringify(form.error(status, message)));
}

/** A frame each, or a whole answer cut in four. */
function piecesOf(form: Form, body: Body, reply: ScriptedReply, seed: string): readonly string[] {
  const made = makeReply(reply, seed, String(body['model']));
  if (form.isStreamed(body)) return form.frames(made, body);
  const text = JSON.stringify(form.whole(made, body));
  const size = Math.ceil(text.length / 4);
  // Half of a character would be none.
  const cuts = [0, 1, 2, 3, 4].map((part) => (/[\udc00-\udfff]/.test(text[part * size] ?? '') ? 1 : 0) + part * size);
  return [0, 1, 2, 3].map((part) => text.slice(cuts[part], cuts[part + 1]));
}

function begin(response: ServerResponse, status: number, type: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': type, 'x-request-id': 'req_011CSHoEeqs5C35K2UUqR7Fy', ...headers });
  response.flushHeaders();
}

type Fail = (answering: Answering, fault: ScriptedFault) => void;

/** The first half of a good answer. What follows `then` is up to the fault. */
function half({ form, body, response, seed }: Answering, { reply = SOME_TEXT }: ScriptedFault, then: () => void): void {
  begin(response, 200, form.isStreamed(body) ? form.mediaType : JSON_TYPE);
  const pieces = piecesOf(form, body, reply, seed);
  response.write(pieces.slice(0, pieces.length / 2).join(''), then);
}

const faults: Readonly<Record<FaultName, Fail>> = {
  status: ({ form, response }, { status = 500, retryAfter }) => {
    begin(response, status, JSON_TYPE, retryAfter === undefined ? {} : { 'retry-after': String(retryAfter) });
    response.end(JSON.stringify(form.error(status, MESSAGES[status] ?? 'Something is wrong.')));
  },
  'slow-headers': () => {},
  stall: (answering, fault) => half(answering, fault, () => {}),
  reset: (answering, fault) => half(answering, fault, () => answering.request.socket.resetAndDestroy()),
  'reset-at-once': ({ request }) => void request.socket.resetAndDestroy(),
  close: (answering, fault) => {
    const { form, body, response, seed } = answering;
    half(answering, fault, () => {
      const pieces = piecesOf(form, body, fault.reply ?? SOME_TEXT, seed);
      const broken = pieces[Math.floor(pieces.length / 2)]!;
      response.end(broken.slice(0, broken.length / 2));
    });
  },
  garbage: ({ form, body, response, seed }, { reply = SOME_TEXT }) => {
    const isStreamed = form.isStreamed(body);
    begin(response, 200, isStreamed ? form.mediaType : JSON_TYPE);
    const pieces = piecesOf(form, body, reply, seed);
    const middle = Math.floor(pieces.length / 2);
    response.write(pieces.slice(0, middle).join(''));
    response.end((isStreamed ? form.garbage : '"<html>"') + pieces.slice(middle).join(''));
  },
  'wrong-content-type': ({ form, body, response, seed }, { reply = SOME_TEXT }) => {
    begin(response, 200, 'text/plain');
    response.end(piecesOf(form, body, reply, seed).join(''));
  },
  'web-page': ({ response }) => {
    begin(response, 200, 'text/html');
    response.end('<!doctype html><title>Sign in</title><p>Please sign in to this network.');
  },
  'error-in-200': ({ form, response }, { status = 500 }) => {
    begin(response, 200, JSON_TYPE);
    response.end(JSON.stringify(form.error(status, MESSAGES[status] ?? 'Something is wrong.')));
  },
  'error-in-stream': (answering, fault) =>
    half(answering, fault, () => answering.response.end(answering.form.errorFrame)),
  huge: (answering) => {
    const { form, body } = answering;
    answer(answering, { text: 'x'.repeat(HUGE / (form.isStreamed(body) ? form.copies : 1)) });
  },
  'huge-error': ({ form, response }) => {
    begin(response, 500, JSON_TYPE);
    response.end(JSON.stringify(form.error(500, 'x'.repeat(HUGE))));
  },
};

export function fail(answering: Answering, fault: ScriptedFault): void {
  faults[fault.fault](answering, fault);
}
