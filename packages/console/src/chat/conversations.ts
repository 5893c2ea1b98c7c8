import { signal, type ReadonlySignal } from '@preact/signals';
import type { ChatSummary } from '@treadle/server/wire';
import { hrefTo, navigate, place } from '../router.ts';
import { listConversations } from './api.ts';
import { nameNewDraft } from './drafts.ts';
import { openConversation, report, type Conversation } from './conversation.ts';

/** The conversation that is shown, and the list at the side. */

const found = signal<readonly ChatSummary[] | undefined>(undefined);
const next = signal<string | undefined>(undefined);
const current = signal<Conversation>(open(undefined));

/** Undefined until it is loaded. */
export const conversations: ReadonlySignal<readonly ChatSummary[] | undefined> = found;
export const hasMore: () => boolean = () => next.value !== undefined;
export const shown: ReadonlySignal<Conversation> = current;
export const search = signal('');

const LIMIT = 40;
let request = 0;

/** Reads the list again from its start. The answer to an older request is ignored. */
export async function loadList(): Promise<void> {
  const own = ++request;
  try {
    const { data, next_cursor } = await listConversations({ search: search.value.trim(), limit: LIMIT });
    if (own !== request) return;
    found.value = data;
    next.value = next_cursor ?? undefined;
  } catch {
    // The connection is lost, which the page shows, or there is no key.
  }
}

export async function loadMore(): Promise<void> {
  const own = request;
  try {
    const { data, next_cursor } = await listConversations({
      search: search.value.trim(),
      limit: LIMIT,
      ...(next.value !== undefined && { cursor: next.value }),
    });
    if (own !== request) return;
    const known = new Set(found.value?.map(({ id }) => id));
    found.value = [...(found.value ?? []), ...data.filter(({ id }) => !known.has(id))];
    next.value = next_cursor ?? undefined;
  } catch (error) {
    report(error);
  }
}

/** Shows a conversation; undefined begins a new one. */
export function show(id: string | undefined): Conversation {
  if (current.value.id.peek() === id && (id !== undefined || current.value.messages.peek().length === 0)) {
    reloadFailed();
    return current.value;
  }
  current.value.close();
  current.value = open(id);
  void current.value.load();
  return current.value;
}

/** Loads the conversation again if it could not be loaded: there may have been no key, or no connection. */
export function reloadFailed(): void {
  if (current.peek().state.peek() === 'failed') void current.peek().load();
}

addEventListener('focus', () => {
  void loadList();
  // The connection may be lost, which the page shows.
  current.value.refresh().catch(() => {});
});

/** When the page looks for the title that the model writes after the first answer. */
const TITLE_MS = [400, 1_500, 4_000];

function open(id: string | undefined): Conversation {
  const opened = openConversation(id, {
    onCreated(created) {
      nameNewDraft(created);
      const [part = 'chat', shownId] = place.peek().segments;
      // The user may have gone elsewhere.
      if (part === 'chat' && shownId === undefined) navigate(hrefTo('chat', created), { replace: true });
    },
    onChanged: () => void changed(),
  });
  async function changed(): Promise<void> {
    const { title, messages, isBusy } = opened;
    const first = title.value;
    await loadList();
    for (const ms of [...TITLE_MS, undefined]) {
      const entry = found.value?.find((one) => one.id === opened.id.value);
      if (entry?.title) title.value = entry.title;
      const isExpected = title.value === first && messages.value.length <= 2 && !isBusy.value;
      if (ms === undefined || !entry || !isExpected || opened !== current.value) return;
      await new Promise((resolve) => setTimeout(resolve, ms));
      await loadList();
    }
  }
  return opened;
}
