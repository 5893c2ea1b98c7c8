import type { ChatBody, ChatConversation, ChatEvent, ChatSummary, ListPage, ServerInfo } from '@treadle/server/wire';
import type { ServerConnection } from '../operate/server-connection.ts';

/** The conversations of a server. Every function throws a `CommandError` that says why the server refuses. */
export interface ChatServer {
  readonly url: string;
  info(): Promise<ServerInfo>;
  /** The newest first. */
  list(): Promise<readonly ChatSummary[]>;
  get(id: string): Promise<ChatConversation>;
  /** Starts an answer, and returns its events until `done`. */
  send(body: ChatBody, signal: AbortSignal): AsyncIterable<ChatEvent>;
  /** The events of the answer in progress. */
  follow(id: string, after: number, signal: AbortSignal): AsyncIterable<ChatEvent>;
  /** Changes the answer in progress. */
  steer(id: string, message: string): Promise<unknown>;
  answer(id: string, body: object): Promise<unknown>;
  cancel(id: string): Promise<unknown>;
  rename(id: string, title: string): Promise<unknown>;
  branch(id: string, message: string): Promise<ChatConversation>;
  markdown(id: string): Promise<string>;
}

const LISTED = 100;

export function chatServer(server: ServerConnection): ChatServer {
  const of = (id: string, rest = ''): string => `/v1/chat/${id}${rest}`;
  return {
    url: server.url,
    info: () => server.get('/v1/server'),
    list: async () => (await server.get<ListPage<ChatSummary>>(`/v1/chat?limit=${LISTED}`)).data,
    get: (id) => server.get(of(id)),
    send: (body, signal) =>
      server.events({ method: 'POST', path: '/v1/chat', body, signal }) as AsyncIterable<ChatEvent>,
    follow: (id, after, signal) =>
      server.events({ method: 'GET', path: of(id, `/stream?after=${after}`), signal }) as AsyncIterable<ChatEvent>,
    steer: (id, message) => server.send('POST', of(id, '/messages'), { message }),
    answer: (id, body) => server.send('POST', of(id, '/answers'), body),
    cancel: (id) => server.send('POST', of(id, '/cancel'), {}),
    rename: (id, title) => server.send('PATCH', of(id), { title }),
    branch: (id, message) => server.send('POST', of(id, '/branch'), { message_id: message }),
    markdown: (id) => server.text(of(id, '/export?format=markdown')),
  };
}
