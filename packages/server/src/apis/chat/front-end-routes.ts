import type { UserMessage } from '@treadle/core';
import type { Context } from 'hono';
import { badRequest } from '../../api-error.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { readJson } from '../../http/body.ts';
import { EVENTS, route, type Route } from '../../http/routes.ts';
import { follow } from '../../requests/event-log.ts';
import { rejectKey } from '../../requests/idempotency.ts';
import type { AgUiIds } from '@treadle/core/web';
import { agUiEncoder } from './ag-ui.ts';
import { messageText } from './attachments.ts';
import { sendEvents, type Failure } from './chat-streams.ts';
import type { ClientResult, Conversations } from './conversations.ts';
import { FRONT_END_BODIES, parseAgUiRequest, parseUiRequest, type FrontEndRequest } from './front-end-requests.ts';
import type { FrontEndEncoder, FrontEndProtocol } from './front-ends.ts';
import type { StartedChat } from './start-chat.ts';
import { UI_HEADERS, uiEncoder } from './ui-stream.ts';
import type { ChatAnswer, NumberedEvent } from './wire.ts';

/** Conversations in the protocols of front ends. */
export interface FrontEndRoutes {
  readonly routes: readonly Route[];
  /** Answers a request to `/v1/chat` that asks for a protocol. */
  answer(c: Context<Env>, protocol: FrontEndProtocol): Promise<Response>;
  /** Streams the answer in progress from its beginning. `chat`: what the front end calls the conversation. */
  resume(c: Context<Env>, chat: string, protocol: FrontEndProtocol): Promise<Response>;
}

export interface ChatRoutesOptions {
  readonly conversations: Conversations;
  readonly maxBodyBytes: number;
  readonly heartbeatMs: number;
  /** Aborts when the server shuts down: streams end, and are continued at another process or after the restart. */
  readonly stopping: AbortSignal;
}

export function frontEndRoutes(options: ChatRoutesOptions): FrontEndRoutes {
  const { conversations, maxBodyBytes, heartbeatMs, stopping } = options;

  /** Answers a request of a front end: with a new message, or with answers for the calls that wait. */
  async function serveFrontEnd(c: Context<Env>, request: FrontEndRequest, frontEnd: FrontEnd): Promise<Response> {
    const caller = c.get('caller');
    c.env.exchange.openStream();
    const { message, onDisconnect } = request;
    const id = await conversations.idOf(request.chat, caller);
    const { events = [], after = 0 } =
      (request.answersTo && (await conversations.progress(id, caller, { includeEnded: true }))) ?? {};
    const answered = request.answersTo?.(events) ?? { answers: [], expired: [] };
    const { answers, expired } = answered;
    if (answered.isAbandoned) await conversations.cancel(id, caller);
    if (answers.length === 0 && message) return startFrontEnd(c, id, { ...request, message }, frontEnd);
    if (answers.length === 0 && expired.length === 0) {
      throw badRequest('The last message is neither of the user nor an answer to an approval.', 'messages');
    }
    // Rejects if nothing is in progress.
    const input = answered.hasInput && message ? messageText(message) : undefined;
    if (answers.length > 0) await conversations.answer(id, answers, caller, input);
    const settled = new Set([...answers.map((answer) => answer.id), ...expired]);
    const encoder = frontEnd.encoderFor(answers);
    const last = encodeUntilWaiting(encoder, events, settled) ?? after;
    const first = encoder.continueAfter(settled);
    const stream = { ...frontEnd, encoder, first, follow: followFrom(id, caller, last) };
    return streamFrontEnd(c, { id, onDisconnect }, stream);
  }

  async function startFrontEnd(
    c: Context<Env>,
    id: string,
    request: FrontEndRequest & { readonly message: UserMessage },
    frontEnd: FrontEnd,
  ): Promise<Response> {
    const { chat: _, answersTo: __, continues, onDisconnect, ...asked } = request;
    const { run } = await conversations.start(
      {
        ...asked,
        createAs: id,
        ...(continues !== undefined && { continues: true }),
        // Both protocols have approvals.
        approvals: 'ask',
        // The events are stored, because the answer may go on in the stream of another request.
        onDisconnect: 'continue',
      },
      c.get('caller'),
    );
    const encoder = frontEnd.encoderFor([], continues);
    return streamFrontEnd(c, { id, onDisconnect }, { ...frontEnd, encoder, follow: run });
  }

  function followFrom(id: string, caller: Caller, after: number): StartedChat['run'] {
    return (deliver, signal) =>
      follow(conversations.events(id, caller), { after, signal, hold: caller.hold }, ({ event }) => deliver(event));
  }

  /** Encodes events until the run has ended, or waits for answers in the next request. */
  function streamFrontEnd(
    c: Context<Env>,
    { id, onDisconnect }: { readonly id: string } & Pick<FrontEndRequest, 'onDisconnect'>,
    { encoderFor, encoder = encoderFor([]), headers = {}, hasEndMark, first = [], follow: run }: FrontEndStream,
  ): Promise<Response> {
    const caller = c.get('caller');
    const framesOf = (failure: Failure): readonly object[] => [
      ...encoder.encode(failure),
      ...encoder.encode({ type: 'done', status: 'failed' }),
    ];
    for (const [name, value] of Object.entries(headers)) c.env.outgoing.setHeader(name, value);
    return sendEvents(
      c,
      heartbeatMs,
      async (stream, disconnected) => {
        const waits = new AbortController();
        let isDone = false;
        for (const frame of first) void stream.send(undefined, frame);
        await run(
          async (event) => {
            isDone = event.type === 'done';
            for (const frame of encoder.encode(event)) await stream.send(undefined, frame);
            if (encoder.isWaiting()) waits.abort();
          },
          AbortSignal.any([disconnected, stopping, waits.signal]),
        );
        if (waits.signal.aborted) for (const frame of encoder.endWaiting()) void stream.send(undefined, frame);
        // Cancelled or ended meanwhile.
        else if (disconnected.aborted && onDisconnect === 'cancel')
          await conversations.cancel(id, caller).catch(() => {});
        else if (stopping.aborted && !isDone)
          for (const frame of framesOf(STOPPING)) void stream.send(undefined, frame);
      },
      { hasEndMark, framesOf },
    );
  }

  async function answerUi(c: Context<Env>): Promise<Response> {
    rejectKey(c.env.incoming.headers);
    return serveFrontEnd(c, parseUiRequest(await readJson(c, maxBodyBytes)), UI);
  }

  /** Streams the answer in progress from its beginning. `chat`: what the front end calls the conversation. */
  async function resumeFrontEnd(c: Context<Env>, chat: string, protocol: FrontEndProtocol): Promise<Response> {
    const caller = c.get('caller');
    const id = await conversations.idOf(chat, caller);
    const progress = await conversations.progress(id, caller);
    if (!progress) return c.body(null, 204);
    c.env.exchange.openStream();
    const { runId, after } = progress;
    const frontEnd = protocol === 'ag-ui' ? agUi({ threadId: chat, runId }) : RESUMED_UI;
    return streamFrontEnd(c, { id, onDisconnect: 'continue' }, { ...frontEnd, follow: followFrom(id, caller, after) });
  }

  async function answerAgUi(c: Context<Env>): Promise<Response> {
    rejectKey(c.env.incoming.headers);
    const { ids, request } = parseAgUiRequest(await readJson(c, maxBodyBytes));
    return serveFrontEnd(c, request, agUi(ids));
  }

  const routes = [
    route({
      method: 'POST',
      path: '/v1/chat/ui',
      scope: 'chat:write',
      summary: 'Answer a front end with the AI SDK',
      body: FRONT_END_BODIES.ui,
      answers: [EVENTS],
      handle: answerUi,
    }),
    route({
      method: 'GET',
      path: '/v1/chat/ui/:chat/stream',
      scope: 'chat:read',
      summary: 'Resume the stream of a front end with the AI SDK',
      answers: [EVENTS],
      others: { '204': 'Nothing is in progress.' },
      handle: (c) => resumeFrontEnd(c, c.req.param('chat'), 'ui-message-stream'),
    }),
    route({
      method: 'POST',
      path: '/v1/chat/ag-ui',
      scope: 'chat:write',
      summary: 'Answer a front end with AG-UI',
      body: FRONT_END_BODIES.agUi,
      answers: [EVENTS],
      handle: answerAgUi,
    }),
    route({
      method: 'GET',
      path: '/v1/chat/ag-ui/:chat/stream',
      scope: 'chat:read',
      summary: 'Resume the stream of a front end with AG-UI',
      answers: [EVENTS],
      others: { '204': 'Nothing is in progress.' },
      handle: (c) => resumeFrontEnd(c, c.req.param('chat'), 'ag-ui'),
    }),
  ];
  return {
    routes,
    answer: (c, protocol) => (protocol === 'ag-ui' ? answerAgUi(c) : answerUi(c)),
    resume: resumeFrontEnd,
  };
}

/** For clients whose protocol needs an end. The others continue after their last event. */
const STOPPING: Failure = {
  type: 'error',
  code: 'server_stopping',
  message: 'The server is shutting down. The answer continues after the restart: resume its stream.',
};

/** A protocol of front ends. */
interface FrontEnd {
  /** `answers`: those of the request. `continues`: the id of the answer that the stream adds to. */
  readonly encoderFor: (answers: readonly (ChatAnswer | ClientResult)[], continues?: string) => FrontEndEncoder;
  readonly headers?: Readonly<Record<string, string>>;
  readonly hasEndMark: boolean;
}

interface FrontEndStream extends FrontEnd {
  readonly encoder?: FrontEndEncoder;
  /** The frames before the events. */
  readonly first?: readonly object[];
  readonly follow: StartedChat['run'];
}

const UI: FrontEnd = {
  encoderFor(answers, continues) {
    const denied = answers.filter((answer) => 'approved' in answer && !answer.approved);
    return uiEncoder({ denied: new Set(denied.map(({ id }) => id)), ...(continues && { continues }) });
  },
  headers: UI_HEADERS,
  hasEndMark: true,
};

const RESUMED_UI: FrontEnd = { ...UI, encoderFor: () => uiEncoder({ isResumed: true }) };

function agUi(ids: AgUiIds): FrontEnd {
  return { encoderFor: () => agUiEncoder(ids), hasEndMark: false };
}

/**
 * Encodes the events that the client has: its stream ended when everything waited, after it had got what it answers now
 * (`settled`). Returns the number of the last one.
 */
function encodeUntilWaiting(
  encoder: FrontEndEncoder,
  events: readonly NumberedEvent[],
  settled: ReadonlySet<string>,
): number | undefined {
  const missing = new Set(settled);
  for (const event of events) {
    encoder.encode(event);
    if ('id' in event) missing.delete(event.id);
    if (missing.size === 0 && encoder.isWaiting()) return event.seq;
  }
  return events.at(-1)?.seq;
}
