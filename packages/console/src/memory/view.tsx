import { useSignal } from '@preact/signals';
import type { ListPage, NoteBody, WireMemory } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { request } from '../api/client.ts';
import { hasScope, serverInfo } from '../api/server-info.ts';
import { hrefTo, navigate } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { agoText } from '../runs/texts.tsx';
import { announce } from '../shell/announce.tsx';
import { Dialog } from '../shell/dialog.tsx';
import { Icon } from '../shell/icon.tsx';
import { useShortcuts } from '../shell/shortcuts.tsx';
import './memory.css';

const TYPES = {
  note: 'Notes',
  llm_response: 'Replies',
  tool_call: 'Calls',
  decision: 'Decisions',
  error: 'Errors',
} as const satisfies Record<WireMemory['event_type'], string>;

const NAMES = {
  note: 'note',
  llm_response: 'reply',
  tool_call: 'call',
  decision: 'decision',
  error: 'error',
} as const satisfies Record<WireMemory['event_type'], string>;

const PAGE = 50;
/** A search waits for the next letter for so long. */
const SEARCH_GAP_MS = 200;

const pathOf = (id: string): string => `/v1/memory/${encodeURIComponent(id)}`;

/** `#/memory`: what runs did and noted. `query` searches, `type` shows only one kind. */
export function View({ query }: ViewProps): JSX.Element {
  const search = query.get('query') ?? '';
  const type = query.get('type') ?? '';
  const items = useSignal<readonly WireMemory[] | undefined>(undefined);
  const cursor = useSignal<string | null>(null);
  const problem = useSignal<string | undefined>(undefined);
  const edited = useSignal<WireMemory | undefined>(undefined);
  const deleted = useSignal<WireMemory | undefined>(undefined);

  function page(after?: string): Promise<ListPage<WireMemory>> {
    const found = search.trim();
    // A search is not filtered.
    const given = found === '' ? { ...(type && { type }), ...(after && { cursor: after }) } : { query: found };
    return request('GET', `/v1/memory?${new URLSearchParams({ ...given, level: 'summary', limit: String(PAGE) })}`);
  }
  useEffect(() => {
    let isLeft = false;
    const timer = setTimeout(
      () =>
        page().then(
          ({ data, next_cursor: next }) => {
            if (isLeft) return;
            [items.value, cursor.value, problem.value] = [data, next, undefined];
          },
          (error: Error) => void (isLeft || (problem.value = error.message)),
        ),
      items.value === undefined ? 0 : SEARCH_GAP_MS,
    );
    return () => {
      isLeft = true;
      clearTimeout(timer);
    };
  }, [search, type]);
  useShortcuts('Memory', [
    { keys: '/', label: 'Search', run: () => document.querySelector<HTMLElement>('#memory-search')?.focus() },
  ]);

  function choose(name: string, value: string): void {
    const next = new URLSearchParams(query);
    next.delete('type');
    if (value === '') next.delete(name);
    else next.set(name, value);
    const text = next.toString();
    navigate(`${hrefTo('memory')}${text && `?${text}`}`, { replace: true });
  }
  async function showOlder(): Promise<void> {
    try {
      const { data, next_cursor: next } = await page(cursor.value!);
      [items.value, cursor.value] = [[...items.value!, ...data], next];
    } catch (error) {
      problem.value = (error as Error).message;
    }
  }
  const mayWrite = hasScope('memory:write');
  return (
    <div class="memory-page">
      <header class="memory-head">
        <h1>Memory</h1>
        <input
          id="memory-search"
          type="search"
          class="input"
          placeholder="Search"
          aria-label="Search what is remembered"
          value={search}
          onInput={({ currentTarget }) => choose('query', currentTarget.value)}
        />
        <select
          class="input"
          aria-label="Kind"
          value={type}
          disabled={search.trim() !== ''}
          onChange={({ currentTarget }) => choose('type', currentTarget.value)}
        >
          <option value="">Everything</option>
          {Object.entries(TYPES).map(([name, label]) => (
            <option key={name} value={name}>
              {label}
            </option>
          ))}
        </select>
      </header>
      {problem.value !== undefined && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {items.value?.length === 0 && <Empty isSearch={search !== '' || type !== ''} />}
      <ul class="memories" aria-label="What is remembered">
        {items.value?.map((item) => (
          <li key={item.id} class="card memory">
            <Item item={item} />
            {mayWrite && (
              <footer>
                {item.event_type === 'note' && (
                  <button type="button" class="button small-button" onClick={() => (edited.value = item)}>
                    Edit
                  </button>
                )}
                <button type="button" class="button small-button danger" onClick={() => (deleted.value = item)}>
                  Delete
                </button>
              </footer>
            )}
          </li>
        ))}
      </ul>
      {cursor.value !== null && (
        <p>
          <button type="button" class="button" onClick={() => void showOlder()}>
            Show older
          </button>
        </p>
      )}
      {deleted.value && (
        <Delete
          item={deleted.value}
          onClose={() => (deleted.value = undefined)}
          onDeleted={({ id }) => (items.value = items.value!.filter((one) => one.id !== id))}
        />
      )}
      {edited.value && (
        <Edit
          item={edited.value}
          onClose={() => (edited.value = undefined)}
          onSaved={(saved) => (items.value = items.value!.map((one) => (one.id === saved.id ? saved : one)))}
        />
      )}
    </div>
  );
}

function Empty({ isSearch }: { readonly isSearch: boolean }): JSX.Element {
  const isOn = serverInfo.value?.has_memory ?? true;
  return (
    <div class="empty">
      <Icon name="brain" size={36} />
      <h2>{isSearch ? 'Nothing was found' : 'Nothing is remembered yet'}</h2>
      {!isSearch && !isOn && (
        <p class="muted">
          Set <code>enabled = true</code> in <code>[memory]</code> of treadle.toml, and start the server again.
        </p>
      )}
    </div>
  );
}

function Item({ item }: { readonly item: WireMemory }): JSX.Element {
  const { event_type: type, key, scope, content, outside, tags, run_id: run, agent_name: agent, subject } = item;
  return (
    <>
      <header class="small">
        <strong>{key ?? NAMES[type]}</strong>
        {key !== null && <span class="chip">note for {scope === 'tenant' ? 'everybody' : scope}</span>}
        {outside && <span class="chip warn">from outside</span>}
        {tags.map((tag) => (
          <span key={tag} class="chip">
            {tag}
          </span>
        ))}
        <span class="muted">
          {[agoText(Date.parse(item.timestamp)), agent, subject].filter(Boolean).join(' · ')}
          {run !== null && (
            <>
              {' · '}
              <a href={hrefTo('runs', run)}>run</a>
            </>
          )}
        </span>
      </header>
      <p>{content}</p>
    </>
  );
}

interface DeleteProps {
  readonly item: WireMemory;
  readonly onClose: () => void;
  readonly onDeleted: (item: WireMemory) => void;
}

function Delete({ item, onClose, onDeleted }: DeleteProps): JSX.Element {
  const problem = useSignal<string | undefined>(undefined);
  async function remove(): Promise<void> {
    try {
      await request('DELETE', pathOf(item.id));
      onDeleted(item);
      announce('Deleted.');
      onClose();
    } catch (error) {
      problem.value = (error as Error).message;
    }
  }
  return (
    <Dialog title="Delete from memory" onClose={onClose}>
      <p>No run is told of it any more. The run that it is from keeps it in its journal.</p>
      <Refused text={problem.value} />
      <button type="button" class="button danger" onClick={() => void remove()}>
        Delete for ever
      </button>
    </Dialog>
  );
}

interface EditProps {
  readonly item: WireMemory;
  readonly onClose: () => void;
  readonly onSaved: (item: WireMemory) => void;
}

function Edit({ item, onClose, onSaved }: EditProps): JSX.Element {
  const text = useSignal<string | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const fail = (error: Error): void => void (problem.value = error.message);
  // The list has a part of it.
  useEffect(
    () => void request<WireMemory>('GET', pathOf(item.id)).then((whole) => (text.value = whole.content), fail),
    [],
  );
  async function save(): Promise<void> {
    const { key, tags, scope, session_id, agent_name, subject } = item;
    const body: NoteBody = { key: key!, text: text.value!, tags, scope, session_id, agent_name, subject };
    try {
      onSaved(await request<WireMemory>('PUT', '/v1/memory', { body }));
      onClose();
    } catch (error) {
      fail(error as Error);
    }
  }
  return (
    <Dialog title={item.key ?? 'Note'} onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <label class="field">
          <span>Text</span>
          <textarea
            rows={8}
            maxLength={8_000}
            disabled={text.value === undefined}
            value={text.value ?? ''}
            onInput={({ currentTarget }) => (text.value = currentTarget.value)}
          />
        </label>
        <Refused text={problem.value} />
        <button type="submit" class="button primary" disabled={!text.value?.trim()}>
          Save
        </button>
      </form>
    </Dialog>
  );
}

function Refused({ text }: { readonly text: string | undefined }): JSX.Element | null {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}
