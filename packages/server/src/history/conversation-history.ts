import type { Carried, Message, UserMessage } from '@treadle/core';
import type { ConversationRecord, RequestHead } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import { MAX_CONVERSATION_CHARS, type ConversationBefore, type LastRun } from './conversation.ts';
import type { ServerStore } from '../engine/engine.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import type { RunCaller } from '../engine/tools.ts';
import { requireScope } from '../http/admission.ts';
import { MEDIUM } from '../http/large-work.ts';
import type { ResponseRequest } from '../apis/responses/parse-request.ts';
import type { RestoredHistory, RestoreOptions } from './restore-history.ts';
import type { InputItem } from '../apis/responses/wire.ts';
import { conversationBusy, findConversation, headOf } from './conversation-records.ts';
import { inputOfRecord, isItemsRecord, userItem } from './record-items.ts';
import { checkNewItems, checkUnique } from '../apis/chat/conversation-items.ts';

/*
 * The history of a conversation for its next run, whichever API starts it: what the last run ended with, and the items after
 * it. A run that never started has no history of its own, so its input counts as items.
 */

/** What comes before a new run of a conversation. */
interface ConversationHistory {
  /** What the last run ended with. Absent: no run has started. */
  readonly before?: ConversationBefore;
  /** What no run has read yet. */
  readonly added: readonly InputItem[];
}

/** What the model gets for a message. */
interface MessageHistory {
  /** The last one is the message itself. */
  readonly messages: readonly Message[];
  /** The texts of system and developer messages. */
  readonly system: readonly string[];
  /** What its run takes over of the last run, and that run. */
  readonly carried: Carried | undefined;
  readonly after: LastRun | undefined;
}

/** A conversation as it was read. */
export interface ContinuedConversation {
  readonly conversation: ConversationRecord;
  /** The id of its newest record. Absent: it has none. */
  readonly previous?: string;
}

/** What the model gets for a request of the Responses API. */
interface RequestHistory {
  /** Its `input` is that of the request. */
  readonly restored: RestoredHistory;
  readonly before: ConversationBefore | undefined;
  readonly continues: ContinuedConversation;
}

export interface ConversationHistories {
  /**
   * Rejects with a 404 for a conversation of another tenant, with a 409 while it has an answer in progress, and with a 400 for
   * items that do not fit. `accepted`: the newest record when the request was accepted, if it was accepted before.
   */
  forRequest(
    request: Pick<ResponseRequest, 'conversation' | 'givenIds' | 'input'>,
    caller: RunCaller & Reader,
    accepted?: { readonly previous: string | undefined },
  ): Promise<RequestHistory>;
  /**
   * `upTo`: the id of the last record that counts. Undefined: none does. Rejects with a 409 if calls wait for the client of the
   * Responses API, or if its items do not fit together. `given`: items that the client sends with the message; rejects with a
   * 400 if they do not fit. `hold` counts the bytes of what is read.
   */
  forMessage(
    conversation: Pick<ConversationRecord, 'id' | 'tenant'>,
    upTo: string | undefined,
    message: UserMessage,
    options: { readonly hold: Reader['hold']; readonly given?: readonly InputItem[] },
  ): Promise<MessageHistory>;
}

interface ConversationHistoriesOptions {
  readonly store: ServerStore;
  /** The conversation that a run ended with. Undefined: it never started. */
  readonly readRun: (record: RequestHead, reader: Reader) => Promise<ConversationBefore | undefined>;
  /** The messages of items. */
  readonly restore: (
    items: readonly InputItem[],
    reader: Reader,
    options: Pick<RestoreOptions, 'before' | 'isStored' | 'accepted'>,
  ) => Promise<RestoredHistory>;
}

export function conversationHistories({
  store,
  readRun,
  restore,
}: ConversationHistoriesOptions): ConversationHistories {
  const { requests: records, conversations } = store;

  async function historyBefore(id: string, upTo: string | undefined, reader: Reader): Promise<ConversationHistory> {
    const all = upTo === undefined ? [] : await conversations.responses(id);
    const added: (readonly InputItem[])[] = [];
    let size = 0;
    for (const response of all.slice(0, all.indexOf(upTo!) + 1).toReversed()) {
      const summary = isItemsRecord(response) ? undefined : await records.head(reader.tenant, response);
      const before = summary && (await readRun(summary, reader));
      if (before) return { before, added: added.toReversed().flat() };
      const record = await readRecord(store, response, reader);
      const items: readonly InputItem[] = record ? inputOfRecord(record) : [];
      // They are held together, and any number of them can be added.
      const chars = JSON.stringify(items).length;
      size += chars;
      if (size > MAX_CONVERSATION_CHARS) throw tooMuchAdded(id);
      // Larger ones were counted before they were read.
      if (chars < MEDIUM) reader.hold?.(chars);
      added.push(items);
    }
    return { added: added.toReversed().flat() };
  }

  return {
    async forRequest({ conversation: id = '', givenIds = [], input: own }, caller, accepted) {
      if (!accepted) requireScope(caller, 'chat:write');
      const found = await findConversation(store, id, caller, 'conversation');
      const head = accepted ? undefined : await headOf(store, found, 'conversation');
      if (head?.status === 'in_progress') throw conversationBusy(id, 'conversation');
      const previous = accepted ? accepted.previous : head?.id;
      const { before, added } = await historyBefore(id, previous, caller);
      const options = { before, isStored: accepted !== undefined, accepted: added.length };
      const restored = await restore([...added, ...own], caller, options).catch((error: unknown) => {
        throw error instanceof ApiError ? inOwnInput(error, added.length, 'conversation') : error;
      });
      const input = restored.input.slice(added.length);
      if (!accepted) {
        const chosen = new Set(givenIds);
        const known = input.filter((item, index) => chosen.has(item.id) || item !== own[index]);
        checkUnique(input, 'input');
        await checkNewItems(store, found, new Set(known.map((item) => item.id)), caller, 'input');
      }
      const continues = { conversation: found, ...(previous !== undefined && { previous }) };
      return { restored: { ...restored, input }, before, continues };
    },
    async forMessage(conversation, upTo, message, { hold, given = [] }) {
      const reader = { tenant: conversation.tenant, hold };
      const { before, added: stored } = await historyBefore(conversation.id, upTo, reader);
      if (before?.open) throw conversationWaits(conversation.id);
      const added = [...stored, ...given];
      const { messages: said = [], system: told = [], carried, after } = before ?? {};
      if (added.length === 0) return { messages: [...said, message], system: told, carried, after };
      const items = [...added, userItem('msg_new', message)];
      const { messages, system, open } = await restore(items, reader, { before, isStored: true }).catch(
        (error: unknown) => {
          if (!(error instanceof ApiError && error.status === 400)) throw error;
          throw given.length > 0 ? inList(error) : inConversation(error);
        },
      );
      if (open) throw conversationWaits(conversation.id);
      // As an item, an image has no name.
      return { messages: [...messages.slice(0, -1), message], system, carried, after };
    },
  };
}

function tooMuchAdded(id: string): ApiError {
  const most = MAX_CONVERSATION_CHARS.toLocaleString('en-US');
  const message = `The items that were added to the conversation ${JSON.stringify(id)} since its last answer have more than ${most} characters. Delete some of them.`;
  return new ApiError(413, 'invalid_request_error', message, { param: 'conversation', code: 'input_too_large' });
}

/**
 * An error about one of several items, of which the first `added` ones are not in the request, but in what it continues. `param`:
 * the field that names that.
 */
export function inOwnInput(error: ApiError, added: number, param: string): ApiError {
  const [, index, field] = /^input\[(\d+)\](.*)$/s.exec(error.param ?? '') ?? [];
  if (index === undefined) return error;
  const own = Number(index) - added;
  const about = own < 0 ? param : `input[${own}]${field}`;
  return new ApiError(error.status, error.type, error.message, { param: about, ...codeOf(error) });
}

/** An error about items of the conversation. The message of the chat is not to blame. */
function inConversation(error: ApiError): ApiError {
  return new ApiError(409, error.type, error.message, { param: 'conversation_id', ...codeOf(error) });
}

/** An error about messages of the client before the message of the chat. */
function inList(error: ApiError): ApiError {
  return new ApiError(400, error.type, error.message, { param: 'messages', ...codeOf(error) });
}

function codeOf({ code }: ApiError): { readonly code?: string } {
  return code === null ? {} : { code };
}

function conversationWaits(id: string): ApiError {
  const message = `The conversation ${JSON.stringify(id)} waits for the results of calls, or for approvals. Send them with POST /v1/responses and this conversation.`;
  return new ApiError(409, 'invalid_request_error', message, {
    param: 'conversation_id',
    code: 'conversation_waits',
  });
}
