import { readFile, rename, writeFile } from 'node:fs/promises';
import { carriedFrom, messagesOf, type Carried, type Message, type RunStore, type RunSummary } from '@treadle/core';
import type { Config } from '../config/config.ts';
import type { SessionStore, StoreLocation } from '../config/store.ts';
import { stateAfter } from '../runs/journal.ts';
import { foreignRunReason, hasDefinition } from '../runs/resume.ts';
import { isChild, shortId } from '../runs/store-access.ts';
import { oneLine } from '../terminal/printable.ts';
import { ageText, plural } from '../terminal/quantities.ts';

/* The conversations of a store. Each message is a run. Those of one conversation have its id as a label. */

/** The label with the id of the conversation that a run belongs to. */
export const CONVERSATION = 'conversation';
/** The label that says what a run of the command was for, unless it is a message. */
export const PURPOSE = 'purpose';

export interface StoredConversation {
  readonly id: string;
  /** What the user has called it, or its first message. */
  readonly title: string;
  /** Its newest run, which has everything that was said. */
  readonly newest: RunSummary;
  readonly runs: number;
}

/** What a chat continues. */
export interface FoundConversation {
  readonly id: string;
  readonly run: RunSummary;
  readonly messages: readonly Message[];
  /** What the next message takes over. */
  readonly carried: Carried | undefined;
  /** How long the last request and its reply were. */
  readonly contextTokens: number;
  /** The run has not ended: its process is gone, or it waits for something. It is resumed first. */
  readonly isOpen: boolean;
}

/** The titles that users have given to conversations. */
export interface Titles {
  of(id: string): string | undefined;
  set(id: string, title: string): Promise<void>;
}

/** They are in a file beside the store, which no tool can read. A store in memory keeps them as long as itself. */
export async function openTitles(store: StoreLocation): Promise<Titles> {
  const file = store.type === 'memory' ? undefined : `${store.file}.chat-titles`;
  let titles = file === undefined ? {} : await readTitles(file);
  return {
    of: (id) => (Object.hasOwn(titles, id) ? titles[id] : undefined),
    async set(id, title) {
      // Another chat may have added some.
      titles = { ...(file === undefined ? titles : await readTitles(file)), [id]: title };
      if (file === undefined) return;
      const next = `${file}.${process.pid}`;
      await writeFile(next, `${JSON.stringify(titles)}\n`, { mode: 0o600 });
      await rename(next, file);
    },
  };
}

/** What is not a title is ignored: another program may have changed the file. */
async function readTitles(file: string): Promise<Readonly<Record<string, string>>> {
  try {
    const read: unknown = JSON.parse(await readFile(file, 'utf8'));
    const entries = Object.entries((read ?? {}) as Record<string, unknown>);
    return Object.fromEntries(entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
  } catch {
    return {};
  }
}

/** The newest first. Runs of `treadle run` are conversations of one message. */
export async function listConversations(store: RunStore, titles: Titles): Promise<readonly StoredConversation[]> {
  const found = new Map<string, { readonly newest: RunSummary; oldest: RunSummary; runs: number }>();
  for (const run of await store.list({ limit: Infinity })) {
    if (!isMessage(run)) continue;
    const id = idOf(run);
    const known = found.get(id);
    if (known) {
      known.oldest = run;
      known.runs++;
    } else found.set(id, { newest: run, oldest: run, runs: 1 });
  }
  return [...found].map(([id, { newest, oldest, runs }]) => {
    return { id, title: titles.of(id) ?? oldest.title, newest, runs };
  });
}

/** The conversation of the newest run that the command can continue. One that another process drives is left to that process. */
export async function lastConversation(
  store: RunStore & Pick<SessionStore, 'isDriven'>,
  config: Config,
): Promise<FoundConversation | undefined> {
  for (const run of await store.list({ limit: Infinity })) {
    const found = isMessage(run) ? await conversationOf(run, store, config) : undefined;
    if (found && typeof found !== 'string') return found;
  }
  return undefined;
}

/** The conversation up to a run, or why it cannot be continued. */
export async function conversationOf(
  run: RunSummary,
  store: RunStore & Pick<SessionStore, 'isDriven'>,
  config: Config,
): Promise<FoundConversation | string> {
  const stored = { summary: run, entries: await store.read(run.runId) };
  const state = await stateAfter(stored);
  const reason = hasDefinition(stored) ? 'is a run of an agent' : foreignRunReason(state, config);
  if (reason !== undefined) return `Run ${shortId(run.runId)} ${reason}, so it cannot be continued here.`;
  const isOpen = state.phase.type !== 'ended';
  if (isOpen && (await store.isDriven(run.runId))) {
    return `Another process is working on ${shortId(run.runId)}. Continue when it has ended.`;
  }
  const { history, contextTokens } = state;
  return { id: idOf(run), run, messages: messagesOf(history), carried: carriedFrom(state), contextTokens, isOpen };
}

export function continueText(found: FoundConversation | undefined): string {
  if (!found) return 'The store has no conversation to continue; this is a new one.';
  const { run, messages, isOpen } = found;
  const age = ageText(Date.now() - run.updatedAt);
  const what = isOpen ? 'Resumes' : 'Continues';
  return `${what} ${shortId(run.runId)} with ${plural(messages.length, 'message')}, ${age} ago: ${oneLine(run.title, 60)}`;
}

/** A line of a list. */
export function conversationLine({ title, newest, runs }: StoredConversation, width: number): string {
  const facts = `  ${ageText(Date.now() - newest.updatedAt)} ago, ${plural(runs, 'message')}`;
  return `${oneLine(title, Math.max(10, width - facts.length))}${facts}`;
}

function idOf({ runId, labels }: RunSummary): string {
  return labels?.[CONVERSATION] ?? runId;
}

/** Whether it is a run for a message of the user. */
function isMessage(run: RunSummary): boolean {
  return !isChild(run) && run.runId.startsWith('run_') && run.labels?.[PURPOSE] === undefined;
}
