import { memoryJournal, runLoop, type Principal, type UserMessage } from '@treadle/core';
import type { ConversationRecord } from '@treadle/store';
import { isDemo, modelNamed, servedName, type Engine } from '../../engine/engine.ts';
import { messageText } from './attachments.ts';

/** A conversation that needs a title. */
export interface Untitled {
  readonly conversation: ConversationRecord;
  /** Its latest message. */
  readonly message: UserMessage;
  /** The name of the model that has answered. */
  readonly model?: string;
  /** Who has sent it. */
  readonly caller: Principal;
}

const INSTRUCTIONS =
  'Write a title for a conversation that begins with this message. At most six words, in the language of the message. Reply with the title only.';

/** The beginning of the message is enough. */
const MAX_MESSAGE_CHARS = 2_000;
const MAX_TITLE_CHARS = 80;
const MAX_FIRST_CHARS = 60;
const MAX_TITLE_TOKENS = 64;
const MAX_DURATION_MS = 20_000;
/** Further conversations keep their first title, so that titles never keep the models from answering. */
const MAX_CONCURRENT = 4;

/**
 * Writes titles with small runs, which are not stored and have limits of their own. If the model fails, the first title stays,
 * and so does one that somebody has set meanwhile.
 */
export function titleWriter(
  engine: Pick<Engine, 'models' | 'namedAgents' | 'store' | 'log' | 'metrics' | 'ledgerFor' | 'everyRun'>,
  stopping: AbortSignal,
): (untitled: Untitled) => void {
  const { store, log, metrics } = engine;
  let count = 0;

  async function askModel({ message, model, caller }: Untitled): Promise<string> {
    const ledger = engine.ledgerFor?.(caller);
    const chosen = modelNamed(engine, model);
    const { guardrails } = engine.everyRun ?? {};
    if (isDemo(chosen) || count >= MAX_CONCURRENT || stopping.aborted) return '';
    count += 1;
    try {
      const { text, outcome, usage } = await runLoop({
        model: chosen,
        journal: memoryJournal(),
        ...(ledger && { ledger }),
        ...(guardrails && { guardrails, principal: caller }),
        instructions: INSTRUCTIONS,
        input: messageText(message).slice(0, MAX_MESSAGE_CHARS),
        maxTurns: 1,
        settings: { maxOutputTokens: MAX_TITLE_TOKENS },
        limits: { durationMs: MAX_DURATION_MS },
        signal: stopping,
      });
      metrics?.modelReplied(servedName(engine, model), usage, false);
      return outcome?.type === 'completed' ? text : '';
    } finally {
      count -= 1;
    }
  }

  async function writeTitle(untitled: Untitled): Promise<void> {
    const { id, tenant, title: ifTitle } = untitled.conversation;
    const title = writtenTitle(await askModel(untitled).catch(() => ''));
    if (stopping.aborted || title === '') return;
    await store.conversations.rename(tenant, id, title, { ifTitle });
  }

  return (untitled) =>
    void writeTitle(untitled).catch((error: unknown) => {
      log.warn({ err: error, conversation: untitled.conversation.id }, 'a conversation did not get a title');
    });
}

/** A title without the quotes and the full stop that models like to add. */
function writtenTitle(text: string): string {
  const line = oneLine(text);
  return shortened(line.replace(/^["'“”«*#\s]+/, '').replace(/["'“”»*.\s]+$/, ''), MAX_TITLE_CHARS);
}

/** The title that a conversation begins with: the first words of the message. */
export function messageTitle(message: UserMessage): string {
  const [, attached] = message.content;
  return firstTitle(messageText(message), attached?.type);
}

/** The title that a conversation begins with. `attached`: what a message without a text has instead. */
export function firstTitle(text: string, attached: 'image' | 'file' | 'text' | undefined): string {
  // Only the beginning is processed, because a text may have megabytes.
  const line = oneLine(text.trimStart().slice(0, 10 * MAX_FIRST_CHARS));
  if (line !== '' || !attached) return shortened(line, MAX_FIRST_CHARS);
  return attached === 'image' ? 'Image' : 'File';
}

function oneLine(text: string): string {
  return text.toWellFormed().replaceAll(/\s+/g, ' ').trim();
}

/** Ends with a whole word, if there is one. */
function shortened(line: string, most: number): string {
  if (line.length <= most) return line;
  const cut = line.slice(0, most).replace(/[\ud800-\udbff]$/, '');
  const isWhole = line[cut.length] === ' ';
  return `${(isWhole ? cut : cut.replace(/\s+\S*$/, '')).trimEnd() || cut}…`;
}
