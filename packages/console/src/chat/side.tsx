import { useSignal } from '@preact/signals';
import type { ChatSummary } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { hrefTo } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { Icon } from '../shell/icon.tsx';
import { conversations, hasMore, loadList, loadMore, search } from './conversations.ts';

const SEARCH_MS = 150;

/** The list of conversations, with a search. */
export function Side({ segments }: ViewProps): JSX.Element {
  const timer = useRef<number>(0);
  const isLoading = useSignal(false);
  useEffect(() => void loadList(), []);

  function searchFor(text: string): void {
    search.value = text;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void loadList(), SEARCH_MS);
  }

  const found = conversations.value;
  return (
    <>
      <div class="side-tools">
        <a class="button wide" href={hrefTo('chat')}>
          <Icon name="plus" /> New chat
        </a>
        <label class="search">
          <Icon name="search" size={16} />
          <span class="sr-only">Search conversations</span>
          <input
            id="search"
            type="search"
            placeholder="Search"
            value={search.value}
            onInput={({ currentTarget }) => searchFor(currentTarget.value)}
          />
        </label>
      </div>
      <nav class="conversations" aria-label="Conversations">
        {found?.length === 0 && (
          <p class="muted small side-note">{search.value.trim() ? 'Nothing was found.' : 'No conversations yet.'}</p>
        )}
        {groupsOf(found ?? []).map(({ label, entries }) => (
          <section key={label}>
            <h2 class="side-heading">{label}</h2>
            <ul>
              {entries.map(({ id, title }) => (
                <li key={id}>
                  <a
                    href={hrefTo('chat', id)}
                    aria-current={segments[0] === id ? 'page' : undefined}
                    title={title ?? ''}
                  >
                    {title ?? 'Untitled'}
                  </a>
                </li>
              ))}
            </ul>
          </section>
        ))}
        {hasMore() && (
          <button
            type="button"
            class="link-button side-note"
            disabled={isLoading.value}
            onClick={() => {
              isLoading.value = true;
              void loadMore().finally(() => (isLoading.value = false));
            }}
          >
            Show more
          </button>
        )}
      </nav>
    </>
  );
}

const DAY_MS = 24 * 3_600_000;

/** By the day of the last message. */
function groupsOf(
  entries: readonly ChatSummary[],
): readonly { readonly label: string; readonly entries: readonly ChatSummary[] }[] {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const labelOf = ({ updated_at: at }: ChatSummary): string =>
    at >= midnight
      ? 'Today'
      : at >= midnight - DAY_MS
        ? 'Yesterday'
        : at >= midnight - 7 * DAY_MS
          ? 'This week'
          : 'Earlier';
  return [...Map.groupBy(entries, labelOf)].map(([label, some]) => ({ label, entries: some }));
}
