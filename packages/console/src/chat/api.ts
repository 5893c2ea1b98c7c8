import type { Event } from '@treadle/core';
import type {
  ChatAnswer,
  ChatBody,
  ChatConversation,
  ChatSummary,
  ListPage,
  SentAttachment,
  WireEntryPage,
} from '@treadle/server/wire';
import { request, send } from '../api/client.ts';

/** Conversations as `docs/chat.md` describes them. */

/** A file that the user has added to a message. `data`: base64. */
export interface NewAttachment extends SentAttachment {
  readonly name: string;
  readonly media_type: string;
}

export type NewMessage = Omit<ChatBody, 'approvals' | 'on_disconnect'>;

const pathOf = (id: string, ...rest: readonly string[]): string =>
  ['/v1/chat', ...[id, ...rest].map((part) => encodeURIComponent(part))].join('/');

export function listConversations(query: {
  search?: string;
  cursor?: string;
  limit?: number;
}): Promise<ListPage<ChatSummary>> {
  const given = Object.entries(query).flatMap(([name, value]) => (value ? [[name, String(value)]] : []));
  return request('GET', `/v1/chat?${new URLSearchParams(given)}`);
}

export const getConversation = (id: string, signal: AbortSignal): Promise<ChatConversation> =>
  request('GET', pathOf(id), { signal });
export const changeConversation = (
  id: string,
  changes: { readonly title: string } | { readonly instructions: string },
): Promise<ChatConversation> => request('PATCH', pathOf(id), { body: changes });
export const deleteConversation = (id: string): Promise<unknown> => request('DELETE', pathOf(id));
export const branchConversation = (id: string, message: string): Promise<ChatConversation> =>
  request('POST', pathOf(id, 'branch'), { body: { message_id: message } });
export const sendAnswer = (id: string, answer: ChatAnswer): Promise<unknown> =>
  request('POST', pathOf(id, 'answers'), { body: answer });
export const steer = (id: string, message: string): Promise<unknown> =>
  request('POST', pathOf(id, 'messages'), { body: { message } });
export const cancel = (id: string): Promise<unknown> => request('POST', pathOf(id, 'cancel'));

/** Sends a message. The answer goes on if the page is closed. */
export const postMessage = (message: NewMessage): Promise<Response> =>
  send('POST', '/v1/chat', {
    body: { ...message, approvals: 'ask', on_disconnect: 'continue' } satisfies ChatBody,
  });
export const openStream = (id: string, after: number, signal: AbortSignal): Promise<Response> =>
  send('GET', `${pathOf(id, 'stream')}?after=${after}`, { signal });

export async function attachmentBlob(id: string, attachment: string): Promise<Blob> {
  return (await send('GET', pathOf(id, 'attachments', attachment))).blob();
}

export async function exportConversation(id: string, format: 'json' | 'markdown'): Promise<Blob> {
  return (await send('GET', `${pathOf(id, 'export')}?format=${format}`)).blob();
}

/** The number of the journal entry that `matches`, counted from the end of the run. Undefined if there is none. */
export async function entryOf(
  run: string,
  matches: (event: { readonly type: Event['type']; readonly effect?: string }) => boolean,
): Promise<number | undefined> {
  let after = -1;
  let found: number | undefined;
  for (;;) {
    const page: WireEntryPage = await request(
      'GET',
      `/v1/runs/${encodeURIComponent(run)}/events?limit=500&after=${after}`,
    );
    found = page.data.findLast(({ event }) => matches(event))?.seq ?? found;
    after = page.data.at(-1)?.seq ?? after;
    if (!page.has_more) return found;
  }
}
