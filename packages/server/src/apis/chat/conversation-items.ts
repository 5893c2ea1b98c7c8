import type { ConversationRecord, RequestRecord } from '@treadle/store';
import { ApiError, badRequest } from '../../api-error.ts';
import type { ServerStore } from '../../engine/engine.ts';
import { isKeyTaken, type RequestKey } from '../../requests/idempotency.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { isDrivenElsewhere } from '../../requests/interruption.ts';
import type { RequestKind, Requests } from '../../requests/requests.ts';
import type { RunCaller } from '../../engine/tools.ts';
import { newConversationId, newItemsId } from '../../ids.ts';
import { unknownCursor, type PageQuery } from '../../parse/query.ts';
import { givenIds, withIds } from '../responses/parse-input.ts';
import type { InputItem } from '../responses/wire.ts';
import {
  addToConversation,
  conversationBusy,
  findConversation,
  fromRecord,
  headOf,
  isBusy,
} from '../../history/conversation-records.ts';
import {
  isItemsRecord,
  itemsOfRecord,
  searchText,
  textAndTitle,
  type StoredItems,
} from '../../history/record-items.ts';

/*
 * The items of conversations, as the Conversations API has them.
 *
 * 1. Items that a client adds are a record of their own. The next run reads them, whichever API starts it.
 * 2. What a run has read or written is in its journal and is not changed. So only items that no run has read can be deleted.
 * 3. The ids of the items of a conversation are unique.
 */
export interface ConversationItems {
  /** A new conversation, or the one that was created with the key. Rejects with an `ApiError`. */
  create(created: NewItems, caller: ItemCaller, key?: RequestKey): Promise<ConversationRecord>;
  /**
   * Replaces what is given. An empty text removes the instructions. Rejects with a 404 for a conversation of another tenant,
   * like all that follow.
   */
  update(id: string, changes: Partial<Attached>, caller: ItemCaller): Promise<ConversationRecord>;
  list(id: string, page: PageQuery, caller: ItemCaller): Promise<ItemsPage>;
  /** Rejects with a 404 if the conversation has no such item. */
  retrieve(id: string, item: string, caller: ItemCaller): Promise<InputItem>;
  /**
   * Rejects with a 409 while a run is in progress. Resolves to the items with their ids. With a key that was used before, to
   * those that were added with it and are still there.
   */
  add(id: string, items: readonly InputItem[], caller: ItemCaller, key?: RequestKey): Promise<readonly InputItem[]>;
  /** Rejects with a 409 for an item that a run has read or written. */
  delete(id: string, item: string, caller: ItemCaller): Promise<ConversationRecord>;
}

/** `hold` counts the bytes of what is read. */
type ItemCaller = RunCaller & Reader;

/** What a client sets for a conversation. */
interface Attached {
  readonly metadata: Readonly<Record<string, string>>;
  readonly instructions?: string | undefined;
}

export interface NewItems extends Attached {
  /** As a request has them: some ids are incomplete. */
  readonly items: readonly InputItem[];
}

export interface ItemsPage {
  readonly data: readonly InputItem[];
  readonly hasMore: boolean;
}

/** The stored form of a request that adds items. The store's records contain it, so its fields must not change. */
interface AddedItems {
  readonly conversation: string;
  readonly key: string;
}

interface ConversationItemsOptions {
  readonly store: ServerStore;
  readonly stored: Pick<Requests, 'findKey' | 'keyToStore'>;
  /** Replaces references, and rejects with a 400 for what this server cannot read. */
  readonly accept: (items: readonly InputItem[], reader: Reader) => Promise<readonly InputItem[]>;
}

interface FoundItem {
  /** The id of its record. */
  readonly record: string;
  readonly found: InputItem;
  /** The conversation that a client has added it to. Undefined: a run has read or written it. */
  readonly addedTo: string | undefined;
}

/** A page ends before it is longer than this. An item can have images. */
const MAX_PAGE_CHARS = 16_000_000;

export function conversationItems({ store, stored, accept }: ConversationItemsOptions): ConversationItems {
  const { requests: records, conversations } = store;

  const complete = (given: readonly InputItem[], reader: Reader): Promise<readonly InputItem[]> =>
    accept(withIds(given, newItemsId()), reader);

  /** What `take` returns for the record that was stored with the key; undefined if there is none. */
  async function storedWith<T>(
    key: RequestKey | undefined,
    caller: ItemCaller,
    take: (record: RequestRecord) => T,
  ): Promise<T | undefined> {
    const id = key && (await stored.findKey(caller.tenant, key));
    return id === undefined ? undefined : fromRecord(store, id, caller, take);
  }

  async function createConversation(
    { items: given, metadata, instructions }: NewItems,
    caller: ItemCaller,
    key?: RequestKey,
  ): Promise<ConversationRecord> {
    const { tenant } = caller;
    const conversationOf = ({ request }: RequestRecord): string => (request as AddedItems).conversation;
    const existing = await storedWith(key, caller, conversationOf);
    if (existing !== undefined) return findConversation(store, existing, caller);
    const id = newConversationId();
    const items = await complete(given, caller);
    checkUnique(items);
    // A key is stored with a record.
    if (items.length === 0 && !key) {
      const told = instructions ? { instructions } : {};
      await conversations.create({ id, tenant, title: '', createdAt: Date.now(), metadata, ...told });
      return findConversation(store, id, caller);
    }
    const record = recordOfItems(id, items, caller);
    const added = { record, conversation: id, before: undefined, ...textAndTitle(items), metadata, instructions };
    try {
      await addToConversation(store, { ...added, ...(key && { keys: [stored.keyToStore(key, Date.now())] }) });
    } catch (error) {
      await conversations.delete(tenant, id).catch(() => false);
      // The conversation is new, so another request with the key was first.
      const first = isBusy(error) ? await storedWith(key, caller, conversationOf) : undefined;
      if (first === undefined) throw error;
      return findConversation(store, first, caller);
    }
    return findConversation(store, id, caller);
  }

  async function addItems(
    id: string,
    given: readonly InputItem[],
    caller: ItemCaller,
    key?: RequestKey,
  ): Promise<readonly InputItem[]> {
    const existing = await storedWith(key, caller, itemsOfRecord);
    if (existing) return existing;
    const before = await findConversation(store, id, caller);
    const head = await headOf(store, before);
    if (head?.status === 'in_progress') throw conversationBusy(id);
    const items = await complete(given, caller);
    checkUnique(items);
    await checkNewItems(store, before, givenIds(given), caller);
    const record = { ...recordOfItems(id, items, caller), ...(head && { previous: head.id }) };
    const added = { record, conversation: id, before, ...textAndTitle(items) };
    try {
      await addToConversation(store, { ...added, ...(key && { keys: [stored.keyToStore(key, Date.now())] }) });
    } catch (error) {
      const first = isKeyTaken(error) || isBusy(error) ? await storedWith(key, caller, itemsOfRecord) : undefined;
      if (!first) throw error;
      return first;
    }
    return items;
  }

  async function findItem(id: string, item: string, reader: Reader): Promise<FoundItem> {
    let isLast = true;
    for (const response of (await conversations.responses(id)).toReversed()) {
      const isAdded = isItemsRecord(response);
      const taken = await fromRecord(store, response, reader, (record) => ({
        found: itemsOfRecord(record).find((one) => one.id === item),
        addedTo: isAdded ? (record.request as AddedItems).conversation : undefined,
      }));
      const { found, addedTo } = taken ?? {};
      if (found) return { record: response, found, addedTo: isLast ? addedTo : undefined };
      if (taken && !isAdded) isLast = false;
    }
    const message = `The conversation ${JSON.stringify(id)} has no item ${JSON.stringify(item)}.`;
    throw new ApiError(404, 'not_found_error', message, { param: 'item_id', code: 'item_not_found' });
  }

  async function listItems(id: string, { order, after, limit }: PageQuery, caller: ItemCaller): Promise<ItemsPage> {
    await findConversation(store, id, caller);
    const isDescending = order === 'desc';
    const all = await conversations.responses(id);
    const data: InputItem[] = [];
    let isBefore = after !== undefined;
    let size = 0;

    /** What follows in the page. */
    function pageOf(record: RequestRecord): ItemsPage {
      const items = itemsOfRecord(record);
      const taken: InputItem[] = [];
      for (const item of isDescending ? items.toReversed() : items) {
        if (isBefore) {
          isBefore = item.id !== after;
          continue;
        }
        const count = data.length + taken.length;
        size += JSON.stringify(item).length;
        if (count === limit || (count > 0 && size > MAX_PAGE_CHARS)) return { data: taken, hasMore: true };
        taken.push(item);
      }
      return { data: taken, hasMore: false };
    }

    for (const response of isDescending ? all.toReversed() : all) {
      const page = await fromRecord(store, response, caller, pageOf);
      data.push(...(page?.data ?? []));
      if (page?.hasMore) return { data, hasMore: true };
    }
    if (isBefore) throw unknownCursor(after!);
    return { data, hasMore: false };
  }

  async function replaceItems(id: string, record: string, items: readonly InputItem[]): Promise<void> {
    const response: StoredItems = { items };
    await records.finish(record, { from: 'completed', status: 'completed', response, at: Date.now() });
    await conversations.setText(id, record, searchText(items));
  }

  /**
   * A run that starts meanwhile may have read the item. So the conversation gets a new head, an empty record, and whoever is
   * second gets a 409: the run, or this request, after which the item is there again.
   */
  async function deleteItem(id: string, item: string, caller: ItemCaller): Promise<ConversationRecord> {
    const conversation = await findConversation(store, id, caller);
    const { record, addedTo } = await findItem(id, item, caller);
    // A branch shares it with the conversation in which a run has read it.
    if (addedTo !== id) throw itemInUse(item);
    // Another request must not write the record at the same time. Its id is that of its run, too.
    const lease = await store.acquire(record).catch((error: unknown) => {
      throw isDrivenElsewhere(error) ? conversationBusy(id) : error;
    });
    try {
      const current = await readRecord(store, record, caller);
      const { items } = (current?.response ?? { items: [] }) as StoredItems;
      const others = items.filter((one) => one.id !== item);
      await replaceItems(id, record, others);
      const empty = {
        ...recordOfItems(id, [], caller),
        ...(conversation.head !== undefined && { previous: conversation.head }),
      };
      try {
        await addToConversation(store, { record: empty, conversation: id, before: conversation, text: '', title: '' });
      } catch (error) {
        await replaceItems(id, record, items);
        throw error;
      }
    } finally {
      await lease.release();
    }
    return conversation;
  }

  return {
    create: createConversation,
    async update(id, { metadata, instructions }, caller) {
      await findConversation(store, id, caller);
      if (metadata) await conversations.setMetadata(caller.tenant, id, metadata);
      if (instructions !== undefined) await conversations.setInstructions(caller.tenant, id, instructions);
      return findConversation(store, id, caller);
    },
    list: listItems,
    async retrieve(id, item, caller) {
      await findConversation(store, id, caller);
      return (await findItem(id, item, caller)).found;
    },
    add: addItems,
    delete: deleteItem,
  };
}

/** A record of items that a client has added. */
export function recordOfItems(
  conversation: string,
  items: readonly InputItem[],
  { tenant, key }: RunCaller,
): RequestRecord {
  const id = newItemsId();
  const now = Date.now();
  const times = { createdAt: now, updatedAt: now };
  const response: StoredItems = { items };
  const request: AddedItems = { conversation, key };
  const kind: RequestKind = 'items';
  return { id, kind, tenant, runId: id, status: 'completed', ...times, request, response };
}

/** Throws a 400 for items with the same id. */
export function checkUnique(items: readonly InputItem[], param = 'items'): void {
  const ids = new Set<string>();
  for (const { id } of items) {
    if (ids.has(id)) throw duplicateItem(id, param);
    ids.add(id);
  }
}

/** Rejects with a 400 if a conversation has an item with one of these ids. */
export async function checkNewItems(
  store: ServerStore,
  { id }: Pick<ConversationRecord, 'id'>,
  ids: ReadonlySet<string>,
  reader: Reader,
  param = 'items',
): Promise<void> {
  if (ids.size === 0) return;
  for (const response of await store.conversations.responses(id)) {
    const find = (record: RequestRecord) => itemsOfRecord(record).find((item) => ids.has(item.id))?.id;
    const found = await fromRecord(store, response, reader, find);
    if (found !== undefined) throw duplicateItem(found, param);
  }
}

function duplicateItem(id: string, param: string): ApiError {
  const message = `The conversation would have two items ${JSON.stringify(id)}. Remove one from the request, or send it without an id.`;
  return badRequest(message, param, 'duplicate_item');
}

function itemInUse(id: string): ApiError {
  const message = `The item ${JSON.stringify(id)} belongs to the history of a run, which does not change. Delete the conversation, or branch it before the message with POST /v1/chat/{id}/branch.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'item_id', code: 'item_in_use' });
}
