import { carriedFrom, messagesOf, type Carried, type Message, type RunStore, type RunSummary } from '@treadle/core';
import type { Config } from '../config/config.ts';
import type { SessionStore } from '../config/store.ts';
import { stateAfter } from '../runs/journal.ts';
import { foreignRunReason, hasDefinition } from '../runs/resume.ts';
import { isChild, shortId } from '../runs/store-access.ts';
import { oneLine } from '../terminal/printable.ts';
import { ageText, plural } from '../terminal/quantities.ts';
import { PURPOSE } from './conversation.ts';

/** What `--continue` begins with. */
export interface LastConversation {
  readonly run: RunSummary;
  readonly messages: readonly Message[];
  /** What the next message takes over. */
  readonly carried: Carried | undefined;
  /** The run has not ended: its process is gone, or it waits for something. It is resumed first. */
  readonly isOpen: boolean;
}

/** The newest run that the command can continue. One that another process drives is left to that process. */
export async function lastConversation(
  store: RunStore & Pick<SessionStore, 'isDriven'>,
  config: Config,
): Promise<LastConversation | undefined> {
  for (const run of await store.list({ limit: Infinity })) {
    if (isChild(run) || !run.runId.startsWith('run_') || run.labels?.[PURPOSE] !== undefined) continue;
    const stored = { summary: run, entries: await store.read(run.runId) };
    const state = await stateAfter(stored);
    if (foreignRunReason(state, config) !== undefined || hasDefinition(stored)) continue;
    const isOpen = state.phase.type !== 'ended';
    if (isOpen && (await store.isDriven(run.runId))) continue;
    return { run, messages: messagesOf(state.history), carried: carriedFrom(state), isOpen };
  }
  return undefined;
}

export function continueText(last: LastConversation | undefined): string {
  if (!last) return 'The store has no conversation to continue; this is a new one.';
  const { run, messages, isOpen } = last;
  const age = ageText(Date.now() - run.updatedAt);
  const what = isOpen ? 'Resumes' : 'Continues';
  return `${what} ${shortId(run.runId)} with ${plural(messages.length, 'message')}, ${age} ago: ${oneLine(run.title, 60)}`;
}
