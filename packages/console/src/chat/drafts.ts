import { effect, signal, type Signal } from '@preact/signals';
import type { NewAttachment } from './api.ts';

/*
 * What the user has written and not sent, one draft for each conversation. Texts are kept in the memory of the tab, over a reload,
 * until the server has them or the key changes (`setKey` removes them). Files are kept until the page is reloaded.
 */

export interface Draft {
  readonly text: Signal<string>;
  readonly attachments: Signal<readonly NewAttachment[]>;
  /** Texts that were sent. Whether the server has them is not known yet. */
  readonly sending: Signal<readonly string[]>;
}

interface KeptDraft extends Draft {
  /** Ends writing it to the memory of the tab, which keeps the last text. */
  readonly stop: () => void;
}

const PREFIX = 'treadle.draft.';
/** In place of the id of a conversation that has none yet. */
const NEW = 'new';
const drafts = new Map<string, KeptDraft>();

/** The draft of a conversation; undefined: of a new one. */
export function draftOf(id: string = NEW): Draft {
  return drafts.get(id) ?? keep(id, { text: signal(storedText(id)), attachments: signal([]), sending: signal([]) });
}

/** What was not sent is a draft again, before what was written since. */
export function putBack(
  { text, attachments }: Draft,
  unsent: { readonly text: string; readonly attachments: readonly NewAttachment[] },
): void {
  text.value = joined([unsent.text, text.value.trim()]);
  attachments.value = [
    ...unsent.attachments,
    ...attachments.value.filter((file) => !unsent.attachments.includes(file)),
  ];
}

function joined(texts: readonly string[]): string {
  return texts.filter(Boolean).join('\n');
}

/** A new conversation has got its id. What was written meanwhile belongs to it. */
export function nameNewDraft(id: string): void {
  const draft = drafts.get(NEW);
  if (!draft) return;
  removeDraft(NEW);
  keep(id, draft);
}

export function removeDraft(id: string): void {
  drafts.get(id)?.stop();
  drafts.delete(id);
  sessionStorage.removeItem(PREFIX + id);
}

function keep(id: string, { text, attachments, sending }: Draft): Draft {
  const stop = effect(() => storeText(id, joined([...sending.value, text.value])));
  const kept: KeptDraft = { text, attachments, sending, stop };
  drafts.set(id, kept);
  return kept;
}

function storedText(id: string): string {
  return sessionStorage.getItem(PREFIX + id) ?? '';
}

function storeText(id: string, text: string): void {
  try {
    if (text === '') sessionStorage.removeItem(PREFIX + id);
    else sessionStorage.setItem(PREFIX + id, text);
  } catch {
    // It is too long for the browser. An older text must not come back.
    sessionStorage.removeItem(PREFIX + id);
  }
}
