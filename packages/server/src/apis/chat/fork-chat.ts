import type { UserMessage } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import type { ServerStore } from '../../engine/engine.ts';
import type { ForkedRun } from '../../requests/requests.ts';
import { newConversationId } from '../../ids.ts';
import { messageText } from './attachments.ts';
import { addToChain, recordIdOf, type StoredMessage } from '../../history/chain.ts';
import { messageTitle } from './titles.ts';

/**
 * Stores a conversation for a fork of the run of a message: what was said before the message, and then the message itself with
 * the answer of the fork. The original conversation does not change. The events of the fork are stored, because nobody
 * waits for them yet.
 */
export async function createFork(
  store: ServerStore,
  original: RequestRecord,
  { runId, model, input }: ForkedRun,
): Promise<RequestRecord> {
  const { conversations: chains } = store;
  const { tenant, previous } = original;
  // Another model may take what that of the original does not.
  const { warnings: _, ...before } = original.request as StoredMessage;
  const conversation = newConversationId();
  const createdAt = Date.now();
  const title = (await chains.get(tenant, before.conversation))?.title ?? '';
  const branchOf = previous !== undefined && { branchOf: { id: before.conversation, upTo: previous } };
  await chains.create({ id: conversation, tenant, title, createdAt, ...branchOf });
  const message: StoredMessage = {
    ...before,
    conversation,
    ...(input !== undefined && { message: withText(before.message, input) }),
    ...(model !== undefined && { model }),
    onDisconnect: 'continue',
    after: 0,
  };
  const record: RequestRecord = {
    id: recordIdOf(runId),
    kind: original.kind,
    tenant,
    runId,
    status: 'in_progress',
    createdAt,
    updatedAt: createdAt,
    ...(previous !== undefined && { previous }),
    request: message,
  };
  const created = await chains.get(tenant, conversation);
  const named = { text: messageText(message.message), title: messageTitle(message.message) };
  await addToChain(store, { record, conversation, before: created, ...named });
  return record;
}

/** The first block of a message is its text, the others are its attachments. */
function withText({ role, content: [, ...attachments] }: UserMessage, text: string): UserMessage {
  return { role, content: [{ type: 'text', text }, ...attachments] };
}
