import './chat.css';
import { signal, useSignal } from '@preact/signals';
import { costText } from '@treadle/core/describe';
import type { MemorySwitch } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { isConnectionLost } from '../api/client.ts';
import { hasScope, serverInfo } from '../api/server-info.ts';
import { countText } from '../format.ts';
import { hrefTo, navigate } from '../router.ts';
import type { ViewProps } from '../routes.ts';
import { Dialog } from '../shell/dialog.tsx';
import { useFollowedEnd } from '../shell/follow-end.ts';
import { Icon } from '../shell/icon.tsx';
import { useShortcuts } from '../shell/shortcuts.tsx';
import * as api from './api.ts';
import { base64Of } from './attachments.ts';
import { Composer } from './composer.tsx';
import { report, type Conversation, type Message, type SendOptions, type UserMessage } from './conversation.ts';
import { loadList, reloadFailed, show, shown } from './conversations.ts';
import { device, useDevices } from './devices.tsx';
import { draftOf, putBack, removeDraft } from './drafts.ts';
import { Guide } from './guide.tsx';
import { AnswerView, saveBlob, textOf, UserView } from './message.tsx';
import { ModelsDialog } from './models.tsx';

export { Side } from './side.tsx';

const model = signal<string | undefined>(undefined);
const areModelsOpen = signal(false);

/** A conversation with an agent goes on with it, and others do not get it. A key that may use no models has only agents. */
function useConversationAgent({ messages }: Conversation, chosen: string | null): void {
  const last = messages.value.findLast((message) => message.role === 'assistant')?.model ?? undefined;
  const { models = [], agents = [] } = serverInfo.value ?? {};
  const first = models.length === 0 ? agents[0]?.model : undefined;
  const isAgent = (name: string | undefined): boolean => agents.some((agent) => agent.model === name);
  useLayoutEffect(() => {
    if (isAgent(last)) model.value = last;
    else if (chosen === null && (isAgent(model.value) || model.value === undefined)) model.value = first;
  }, [messages, last, first, agents.length, chosen]);
}

export function View({ segments, query }: ViewProps): JSX.Element {
  const [id] = segments;
  const chosen = query.get('model');
  const chosenDevice = query.get('device');
  useLayoutEffect(() => {
    if (chosen !== null) model.value = chosen;
    if (chosenDevice !== null) device.value = chosenDevice;
  }, [chosen, chosenDevice]);
  useDevices();
  useLayoutEffect(() => void show(id), [id]);
  useEffect(reloadFailed, [isConnectionLost.value]);
  const conversation = shown.value;
  const { title, messages, state, problem, isBusy } = conversation;
  useConversationAgent(conversation, chosen);
  const name = title.value ?? (id === undefined ? 'New chat' : 'Conversation');
  useEffect(() => {
    document.title = `${name} · Treadle`;
  }, [name]);
  useShortcuts('Chat', [
    {
      keys: 'Mod+k',
      label: 'Search conversations',
      run: () => document.querySelector<HTMLElement>('#search')?.focus(),
    },
    { keys: 'n', label: 'New chat', run: () => navigate(hrefTo('chat')) },
    { keys: '/', label: 'Write a message', run: focusMessage },
    {
      keys: 'Escape',
      label: 'Stop the answer',
      run: () => isBusy.value && !isInOtherField() && void conversation.stop().catch(report),
    },
    { keys: 'c', label: 'Copy the last answer', run: () => copyLast(messages.value) },
    {
      keys: 'a',
      label: 'Go to what waits for you',
      run: () => document.querySelector<HTMLElement>('.ask button')?.focus(),
    },
  ]);

  const send = (text: string, options: SendOptions): Promise<void> => conversation.send(text, options);
  const isDemo = serverInfo.value?.models.find(({ is_default }) => is_default)?.is_demo ?? false;
  const guide = isDemo && (
    <Guide
      isBusy={isBusy.value}
      onModels={() => (areModelsOpen.value = true)}
      onSend={(text) => void sendOrKeep(conversation, { text, attachments: [] }).catch(report)}
    />
  );
  return (
    <div class="chat">
      <Header conversation={conversation} name={name} isDemo={isDemo} />
      {state.value === 'missing' || state.value === 'failed' ? (
        <div class="empty">
          <h2>
            {state.value === 'missing' ? 'There is no such conversation' : 'The conversation could not be loaded'}
          </h2>
          <p class="muted">{problem.value}</p>
          <p>
            {state.value === 'failed' ? (
              <button type="button" class="button" onClick={() => void conversation.load()}>
                Try again
              </button>
            ) : (
              <a class="button" href={hrefTo('chat')}>
                New chat
              </a>
            )}
          </p>
        </div>
      ) : (
        <Messages conversation={conversation}>
          {messages.value.length === 0 && state.value === 'ready' && (
            <div class="welcome">
              <h2>What can I do for you?</h2>
              <Offer />
              {guide}
            </div>
          )}
        </Messages>
      )}
      <div class="dock">
        {messages.value.length > 0 && guide}
        <Narrowings conversation={conversation} />
        <Composer conversation={conversation} draft={draftOf(conversation.id.value)} model={model} onSend={send} />
      </div>
      {areModelsOpen.value && <ModelsDialog onClose={() => (areModelsOpen.value = false)} />}
    </div>
  );
}

/** What narrows the next answer. It is lifted with the next message. */
function Narrowings({ conversation }: { readonly conversation: Conversation }): JSX.Element | null {
  const { narrowedBy, lifted, isBusy } = conversation;
  if (narrowedBy.value.length === 0 || isBusy.value) return null;
  const mayLift = hasScope('runs:write');
  const toggle = (source: string): void => {
    const others = lifted.value.filter((one) => one !== source);
    lifted.value = others.length < lifted.value.length ? others : [...others, source];
  };
  return (
    <ul class="narrowings" aria-label="What limits the next answer">
      {narrowedBy.value.map((source) => {
        const isLifted = lifted.value.includes(source);
        return (
          <li key={source} class="muted small">
            <span>
              {isLifted ? 'Not limited any more by ' : 'Limited by '}
              <code>{source}</code>
              {isLifted && ', from the next message on'}
            </span>
            {mayLift && (
              <button
                type="button"
                class="button small-button"
                aria-label={isLifted ? `Keep the limits of ${source}` : `Lift the limits of ${source}`}
                onClick={() => toggle(source)}
              >
                {isLifted ? 'Keep' : 'Lift'}
              </button>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function focusMessage(): void {
  document.querySelector<HTMLElement>('#message')?.focus();
}

/** Escape leaves a field, such as the search. */
function isInOtherField(): boolean {
  return document.activeElement?.matches('input, textarea:not(#message), select') ?? false;
}

function copyLast(messages: readonly Message[]): void {
  const last = messages.findLast((message) => message.role === 'assistant');
  if (last) void navigator.clipboard?.writeText(textOf(last)).catch(report);
}

function Offer(): JSX.Element | null {
  const { tools = [] } = serverInfo.value ?? {};
  if (device.value !== undefined) {
    return (
      <p class="muted offer">
        The tools of the device <a href={hrefTo('devices', device.value)}>{device.value}</a>
      </p>
    );
  }
  if (tools.length === 0) return null;
  return (
    <p class="muted offer">
      Tools:
      {tools.map(({ name, description }) => (
        <code key={name} title={description}>
          {name}
        </code>
      ))}
    </p>
  );
}

interface MessagesProps {
  readonly conversation: Conversation;
  readonly children: JSX.Element | false;
}

/** How far from the end the page still follows the answer, in pixels. */
const NEAR = 80;

function Messages({ conversation, children }: MessagesProps): JSX.Element {
  const content = useRef<HTMLDivElement>(null);
  const { scroller, isAtEnd, toEnd, onScroll } = useFollowedEnd<HTMLDivElement>(NEAR);
  const { messages } = conversation;
  useEffect(() => {
    const observer = new ResizeObserver(() => isAtEnd.peek() && toEnd());
    observer.observe(content.current!);
    observer.observe(scroller.current!);
    return () => observer.disconnect();
  }, [isAtEnd]);
  // A message of the user is always shown.
  useLayoutEffect(toEnd, [conversation, messages.value.length, isAtEnd]);

  const all = messages.value;
  const older = useOlder(conversation, all.length, scroller);
  return (
    <div class="messages-frame">
      <div ref={scroller} class="messages" role="region" aria-label="Messages" tabIndex={0} onScroll={onScroll}>
        <div ref={content} class="column">
          {children}
          {all.slice(older).map((message, position) => {
            const index = older + position;
            // The other message of its run.
            const other = message.role === 'user' ? all[index + 1] : all[index - 1];
            return <Row key={index} conversation={conversation} message={message} other={other} />;
          })}
        </div>
      </div>
      {!isAtEnd.value && (
        <button
          type="button"
          class="to-end icon-button"
          aria-label="Go to the end"
          title="Go to the end"
          onClick={toEnd}
        >
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}

/** How many messages are rendered when a conversation is opened, and with each step after that. */
const FIRST = 40;
const STEP = 40;

/**
 * How many of the oldest messages are not rendered yet. The last ones are rendered at once, the others while the browser is idle.
 * So the browser finds a text in all of them, and a screen reader reads them. What the user sees stays where it is.
 */
function useOlder(
  conversation: Conversation,
  count: number,
  scroller: { readonly current: HTMLElement | null },
): number {
  const known = useRef({ conversation, count: 0, older: 0 });
  const steps = useSignal(0);
  const anchor = useRef<{ readonly element: HTMLElement; readonly top: number } | undefined>(undefined);
  if (known.current.conversation !== conversation) known.current = { conversation, count: 0, older: 0 };
  const state = known.current;
  if (count - state.count > FIRST) state.older = count - FIRST;
  state.older = Math.min(state.older, Math.max(0, count - FIRST));
  state.count = count;
  void steps.value;

  useEffect(() => {
    if (state.older === 0) return undefined;
    return whenIdle(() => {
      const element = scroller.current?.querySelector<HTMLElement>('.message');
      anchor.current = element ? { element, top: element.getBoundingClientRect().top } : undefined;
      state.older = Math.max(0, state.older - STEP);
      steps.value += 1;
    });
  }, [state, state.older]);
  useLayoutEffect(() => {
    const { element, top } = anchor.current ?? {};
    anchor.current = undefined;
    if (!element || !scroller.current) return;
    // Browsers do the same, but not at the top, and Safari does not.
    const moved = element.getBoundingClientRect().top - top!;
    if (moved !== 0) scroller.current.scrollTop += moved;
  }, [state, state.older]);
  return state.older;
}

/** Returns what cancels it. */
function whenIdle(work: () => void): () => void {
  // Safari has no idle callbacks.
  if (typeof requestIdleCallback === 'undefined') {
    const timer = setTimeout(work, 20);
    return () => clearTimeout(timer);
  }
  const handle = requestIdleCallback(work, { timeout: 100 });
  return () => cancelIdleCallback(handle);
}

interface RowProps {
  readonly conversation: Conversation;
  readonly message: Message;
  /** The answer to it, or the message that it answers. */
  readonly other: Message | undefined;
}

/** A message is rendered again only if it has changed. */
const Row = memo(({ conversation, message, other }: RowProps): JSX.Element => {
  const { id, isBusy } = conversation;
  // What a program has added to the conversation belongs to no run, and cannot begin or end a branch.
  const canBranch = !isBusy.value && runOf(message.role === 'user' ? other : message) !== undefined;
  if (message.role === 'user') {
    return (
      <UserView
        message={message}
        conversation={id.value}
        canEdit={id.value !== undefined && canBranch}
        onEdit={(text) => resend(conversation, message, text)}
      />
    );
  }
  const canRetry = canBranch && other?.role === 'user';
  return (
    <AnswerView
      message={message}
      conversation={conversation}
      onRetry={canRetry ? () => void resend(conversation, other).catch(report) : undefined}
      onBranch={canBranch ? () => void branch(conversation, message.id).catch(report) : undefined}
    />
  );
});

function runOf(message: Message | undefined): string | undefined {
  return message?.role === 'assistant' ? message.run : undefined;
}

/** Shows a new conversation with the same beginning. */
async function branch(conversation: Conversation, message: string): Promise<Conversation> {
  const made = await api.branchConversation(conversation.id.value!, message);
  navigate(hrefTo('chat', made.id));
  const opened = show(made.id);
  void loadList();
  return opened;
}

/** Sends a message again, changed or not, in a branch that ends before it. */
async function resend(conversation: Conversation, message: UserMessage, text = message.text): Promise<void> {
  const from = conversation.id.value!;
  const attachments = await Promise.all(
    message.attachments.map(async ({ name, media_type, id, data }) => ({
      name,
      media_type,
      data: data ?? (await base64Of(await api.attachmentBlob(from, id!))),
    })),
  );
  const opened = await branch(conversation, message.id);
  await opened.load();
  // A branch that ends before the first message knows nothing of it.
  opened.memory.value = conversation.memory.value;
  await sendOrKeep(opened, { text, attachments });
}

/** Sends a message that is not from the composer. If it is not sent, it is a draft, so that it is not lost. */
async function sendOrKeep(
  conversation: Conversation,
  message: { readonly text: string; readonly attachments: readonly api.NewAttachment[] },
): Promise<void> {
  const { text, attachments } = message;
  try {
    await conversation.send(text, { attachments, model: model.value, device: device.value });
  } catch (error) {
    putBack(draftOf(conversation.id.value), message);
    throw error;
  }
}

interface HeaderProps {
  readonly conversation: Conversation;
  readonly name: string;
  readonly isDemo: boolean;
}

function Header({ conversation, name, isDemo }: HeaderProps): JSX.Element {
  const { id, instructions } = conversation;
  const menu = useRef<HTMLDetailsElement>(null);
  const dialog = useSignal<'instructions' | 'rename' | 'delete' | undefined>(undefined);
  const onClose = (): void => void (dialog.value = undefined);
  const isStored = id.value !== undefined;
  const { models = [] } = serverInfo.value ?? {};
  const standard = models.find((one) => one.is_default);

  const choose = (action: () => void) => () => {
    menu.current!.open = false;
    action();
  };
  const save = async (format: 'json' | 'markdown'): Promise<void> => {
    const blob = await api.exportConversation(id.value!, format);
    saveBlob(
      blob,
      `${name.replaceAll(/[^\w -]+/g, '').slice(0, 60) || 'conversation'}.${format === 'json' ? 'json' : 'md'}`,
    );
  };
  return (
    <header class="chat-head">
      <h1>{name}</h1>
      <Totals messages={conversation.messages.value} />
      {standard && (
        <button type="button" class="button small-button" title="Models" onClick={() => (areModelsOpen.value = true)}>
          {isDemo ? 'Demo model' : standard.id}
        </button>
      )}
      {instructions.value !== '' && (
        <button
          type="button"
          class="button small-button"
          title={instructions.value.slice(0, 500)}
          onClick={() => (dialog.value = 'instructions')}
        >
          Instructions
        </button>
      )}
      <MemoryChoice conversation={conversation} />
      <details
        ref={menu}
        class="menu"
        onBlur={({ relatedTarget, currentTarget }) => {
          if (!currentTarget.contains(relatedTarget as Node | null)) currentTarget.open = false;
        }}
      >
        <summary class="icon-button" aria-label="Actions for the conversation">
          <Icon name="more" />
        </summary>
        <div class="menu-items card">
          <button type="button" onClick={choose(() => (dialog.value = 'instructions'))}>
            <Icon name="file" size={16} /> Instructions
          </button>
          {isStored && (
            <>
              <button type="button" onClick={choose(() => (dialog.value = 'rename'))}>
                <Icon name="edit" size={16} /> Rename
              </button>
              <button type="button" onClick={choose(() => void save('markdown').catch(report))}>
                <Icon name="export" size={16} /> Export as Markdown
              </button>
              <button type="button" onClick={choose(() => void save('json').catch(report))}>
                <Icon name="export" size={16} /> Export as JSON
              </button>
              <button type="button" class="danger" onClick={choose(() => (dialog.value = 'delete'))}>
                <Icon name="trash" size={16} /> Delete
              </button>
            </>
          )}
        </div>
      </details>
      {dialog.value === 'instructions' && <Instructions conversation={conversation} onClose={onClose} />}
      {dialog.value === 'rename' && <Rename conversation={conversation} onClose={onClose} />}
      {dialog.value === 'delete' && <Delete conversation={conversation} onClose={onClose} />}
    </header>
  );
}

const MEMORY_CHOICES = {
  on: 'Memory: on',
  off: 'Memory: off',
  incognito: 'Incognito',
} as const satisfies Record<MemorySwitch, string>;

/** Nothing of what was said in an incognito conversation is remembered later. */
function MemoryChoice({
  conversation: { memory, isIncognito },
}: Pick<HeaderProps, 'conversation'>): JSX.Element | null {
  if (!serverInfo.value?.has_memory) return null;
  return (
    <select
      class="input memory-choice"
      aria-label="Memory"
      title="What the conversation uses of the memory, from the next message on"
      value={memory.value}
      disabled={isIncognito.value}
      onChange={({ currentTarget }) => (memory.value = currentTarget.value as MemorySwitch)}
    >
      {Object.entries(MEMORY_CHOICES).map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

function Totals({ messages }: { readonly messages: readonly Message[] }): JSX.Element | null {
  const used = messages.flatMap((message) => (message.role === 'assistant' ? (message.usage.value ?? []) : []));
  if (used.length === 0) return null;
  const tokens = used.reduce((sum, { input_tokens, output_tokens }) => sum + input_tokens + output_tokens, 0);
  const cost = used.every((one) => one.cost !== null) ? used.reduce((sum, one) => sum + one.cost!, 0) : undefined;
  return (
    <span class="totals muted small">
      {countText(tokens)} tokens{cost !== undefined && ` · ${costText(cost)}`}
    </span>
  );
}

interface ConversationDialog {
  readonly conversation: Conversation;
  readonly onClose: () => void;
}

function Instructions({ conversation, onClose }: ConversationDialog): JSX.Element {
  const text = useSignal(conversation.instructions.value);
  async function save(): Promise<void> {
    await conversation.instruct(text.value.trim());
    onClose();
  }
  return (
    <Dialog title="Instructions" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void save().catch(report);
        }}
      >
        <label class="field">
          <span>What the model is told in this conversation</span>
          <textarea
            rows={8}
            maxLength={100_000}
            placeholder="Such as: Answer in French, and briefly."
            value={text.value}
            onInput={({ currentTarget }) => (text.value = currentTarget.value)}
          />
        </label>
        <p class="muted small">It applies from the next message on. Leave it empty for none.</p>
        <button type="submit" class="button primary">
          Save
        </button>
      </form>
    </Dialog>
  );
}

function Rename({ conversation, onClose }: ConversationDialog): JSX.Element {
  const title = useSignal(conversation.title.value ?? '');
  async function rename(): Promise<void> {
    const given = title.value.trim();
    if (given === '') return;
    await api.changeConversation(conversation.id.value!, { title: given });
    conversation.title.value = given;
    void loadList();
    onClose();
  }
  return (
    <Dialog title="Rename the conversation" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void rename().catch(report);
        }}
      >
        <label class="field">
          <span>Title</span>
          <input
            value={title.value}
            maxLength={200}
            required
            onInput={({ currentTarget }) => (title.value = currentTarget.value)}
          />
        </label>
        <button type="submit" class="button primary">
          Rename
        </button>
      </form>
    </Dialog>
  );
}

function Delete({ conversation, onClose }: ConversationDialog): JSX.Element {
  async function remove(): Promise<void> {
    const id = conversation.id.value!;
    await api.deleteConversation(id);
    removeDraft(id);
    onClose();
    navigate(hrefTo('chat'), { replace: true });
    void loadList();
  }
  return (
    <Dialog title="Delete the conversation?" onClose={onClose}>
      <p>Its messages and runs are deleted for good. An answer in progress is stopped. Branches of it stay.</p>
      <div class="ask-actions">
        <button type="button" class="button danger" onClick={() => void remove().catch(report)}>
          Delete
        </button>
        <button type="button" class="button" onClick={onClose}>
          Keep it
        </button>
      </div>
    </Dialog>
  );
}
