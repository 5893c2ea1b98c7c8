import { memoryJournal, runLoop, type UserMessage } from '@treadle/core';
import { modelNamed, type Engine } from '../engine/engine.ts';
import { messageText } from './attachments.ts';
import type { ChatDriver, Untitled } from './drive-chat.ts';

const INSTRUCTIONS =
  'Write a title for a conversation that begins with this message. At most six words, in the language of the message. Reply with the title only.';

/** The beginning of the message is enough. */
const MAX_MESSAGE_CHARS = 2_000;
const MAX_TITLE_CHARS = 80;
const MAX_TITLE_TOKENS = 64;
const MAX_DURATION_MS = 20_000;
/** Further titles are taken from the message, so that they never keep the models from answering. */
const MAX_CONCURRENT = 4;

/**
 * Writes titles with small runs, which are not stored and have limits of their own. If the model fails, the title is the
 * beginning of the message. A title that somebody has set meanwhile stays.
 */
export function titleWriter(
  { models, store, log, metrics }: Pick<Engine, 'models' | 'store' | 'log' | 'metrics'>,
  stopping: AbortSignal,
): NonNullable<ChatDriver['onUntitled']> {
  let count = 0;

  async function askModel({ message, model }: Untitled): Promise<string> {
    if (count >= MAX_CONCURRENT || stopping.aborted) return '';
    count += 1;
    try {
      const { text, outcome, usage } = await runLoop({
        model: modelNamed(models, model),
        journal: memoryJournal(),
        instructions: INSTRUCTIONS,
        input: messageText(message).slice(0, MAX_MESSAGE_CHARS),
        maxTurns: 1,
        settings: { maxOutputTokens: MAX_TITLE_TOKENS },
        limits: { durationMs: MAX_DURATION_MS },
        signal: stopping,
      });
      metrics?.modelReplied(model ?? models.default, usage, false);
      return outcome?.type === 'completed' ? text : '';
    } finally {
      count -= 1;
    }
  }

  async function writeTitle(untitled: Untitled): Promise<void> {
    const { id, tenant } = untitled.conversation;
    const written = oneLine(await askModel(untitled).catch(() => ''));
    if (stopping.aborted) return;
    const title = written || firstWords(untitled.message);
    await store.conversations.rename(tenant, id, title, { ifUntitled: true });
  }

  return (untitled) =>
    void writeTitle(untitled).catch((error: unknown) => {
      log.warn({ err: error, conversation: untitled.conversation.id }, 'a conversation did not get a title');
    });
}

/** A title without the quotes and the full stop that models like to add. */
function oneLine(text: string): string {
  const line = text.toWellFormed().replaceAll(/\s+/g, ' ').trim();
  return shortened(line.replace(/^["'“”«*#\s]+/, '').replace(/["'“”»*.\s]+$/, ''));
}

function firstWords(message: UserMessage): string {
  return shortened(messageText(message).toWellFormed().replaceAll(/\s+/g, ' ').trim()) || 'Conversation';
}

function shortened(line: string): string {
  if (line.length <= MAX_TITLE_CHARS) return line;
  const cut = line.slice(0, MAX_TITLE_CHARS).toWellFormed();
  return `${cut.replace(/\s+\S*$/, '') || cut}…`;
}
