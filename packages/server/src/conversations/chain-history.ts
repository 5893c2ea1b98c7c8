import type { Message, UserMessage } from '@treadle/core';
import type { ConversationRecord, ResponseHead, ResponseRecord } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import type { ConversationBefore } from '../engine/conversation.ts';
import type { ServerStore } from '../engine/engine.ts';
import { inTurn } from '../http/large-work.ts';
import type { RestoredHistory } from '../responses/restore-history.ts';
import type { InputItem } from '../responses/wire.ts';
import { inputOfRecord, isItemsRecord, userItem } from './chain-items.ts';

/*
 * The history of a conversation for its next run, whichever API starts it: what the last run ended with, and the items after
 * it. A run that never started has no history of its own, so its input counts as items.
 */

/** What comes before a new run of a conversation. */
export interface ChainHistory {
  /** What the last run ended with. Absent: no run has started. */
  readonly before?: ConversationBefore;
  /** What no run has read yet. */
  readonly added: readonly InputItem[];
}

/** What the model gets for a message. */
export interface MessageHistory {
  /** The last one is the message itself. */
  readonly messages: readonly Message[];
  /** The texts of system and developer messages. */
  readonly system: readonly string[];
}

export interface ChainHistories {
  /** `upTo`: the id of the last record that counts. Undefined: none does. */
  before(chain: Chain, upTo: string | undefined): Promise<ChainHistory>;
  /** The same for a message of a chat. Rejects with a 409 if calls wait for the client of the Responses API. */
  forMessage(chain: Chain, upTo: string | undefined, message: UserMessage): Promise<MessageHistory>;
}

type Chain = Pick<ConversationRecord, 'id' | 'tenant'>;

interface ChainHistoriesOptions {
  readonly store: ServerStore;
  /** The conversation that a run ended with. Undefined: it never started. */
  readonly readRun: (record: ResponseHead, tenant: string) => Promise<ConversationBefore | undefined>;
  /** The messages of items that were accepted before. */
  readonly restore: (
    items: readonly InputItem[],
    tenant: string,
    before: ConversationBefore | undefined,
  ) => Promise<RestoredHistory>;
}

export function chainHistories({ store, readRun, restore }: ChainHistoriesOptions): ChainHistories {
  const { responses: records, conversations: chains } = store;

  async function historyBefore({ id, tenant }: Chain, upTo: string | undefined): Promise<ChainHistory> {
    const all = upTo === undefined ? [] : await chains.responses(id);
    const added: (readonly InputItem[])[] = [];
    for (const response of all.slice(0, all.indexOf(upTo!) + 1).toReversed()) {
      const head = isItemsRecord(response) ? undefined : await records.head(tenant, response);
      const before = head && (await readRun(head, tenant));
      if (before) return { before, added: added.toReversed().flat() };
      const record: ResponseRecord | undefined = await inTurn(() => records.get(tenant, response));
      if (record) added.push(inputOfRecord(record));
    }
    return { added: added.toReversed().flat() };
  }

  return {
    before: historyBefore,
    async forMessage(chain, upTo, message) {
      const { before, added } = await historyBefore(chain, upTo);
      if (before?.open) throw conversationWaits(chain.id);
      if (added.length === 0) return { messages: [...(before?.messages ?? []), message], system: before?.system ?? [] };
      const items = [...added, userItem('msg_new', message)];
      const { messages, system, open } = await restore(items, chain.tenant, before);
      if (open) throw conversationWaits(chain.id);
      // As an item, an image has no name.
      return { messages: [...messages.slice(0, -1), message], system };
    },
  };
}

function conversationWaits(id: string): ApiError {
  const message = `The conversation ${JSON.stringify(id)} waits for the results of calls, or for approvals. Send them with POST /v1/responses and this conversation.`;
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'conversation_id',
    code: 'conversation_waits',
  });
}
