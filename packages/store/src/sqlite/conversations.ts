import type { DatabaseSync } from 'node:sqlite';
import type {
  ConversationFilter,
  ConversationRecord,
  ConversationStore,
  Extension,
  NewConversation,
} from '../ports/conversations.ts';
import {
  checkName,
  conversationExists,
  DELETED,
  indexedText,
  isDeleted,
  toConversation,
  wordsIn,
  type ConversationRow,
} from '../records/conversations.ts';
import { nameKey } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Requests } from './requests.ts';
import { PRUNE_BATCH_ENTRIES } from './runs.ts';
import type { Streams } from './streams.ts';

/** The methods of a `ConversationStore`. Those that only read are synchronous and need a transaction of the caller. */
export interface Conversations extends Pick<
  ConversationStore,
  'create' | 'extend' | 'setText' | 'rename' | 'setMetadata' | 'setInstructions' | 'delete' | 'prune'
> {
  readonly get: (tenant: string, id: string) => ConversationRecord | undefined;
  readonly list: (filter: ConversationFilter) => readonly ConversationRecord[];
  readonly responses: (id: string) => readonly string[];
}

interface ConversationsParts {
  readonly commit: GroupCommit;
  readonly requests: Requests;
  readonly streams: Streams;
}

const COLUMNS = 'id, conversation, tenant, title, created_at, updated_at, head, metadata, instructions';

/** How many conversations are found in one transaction. */
const PRUNE_CONVERSATIONS = 20;
/** How many responses are checked in one transaction. */
const CHECKED_AT_ONCE = 100;

/** Follows all names with `DELETED`. */
const AFTER_DELETED = '\u0001deleted!';

/** How many texts are copied, or parts removed, in one transaction. */
const TEXTS_AT_ONCE = 10;

export function openConversations(db: DatabaseSync, parts: ConversationsParts): Conversations {
  const { commit } = parts;
  const sql = prepareStatements(db);

  function addPart(conversation: number, response: string | null, text: string): void {
    sql.texts().insert.run(sql.insertPart.run(conversation, response).lastInsertRowid, indexedText(text));
  }

  function setText(conversation: number, response: string | null, text: string): void {
    const part = sql.findPart.get(conversation, response);
    if (part) sql.texts().update.run(indexedText(text), part['id']!);
  }

  function setTitle(conversation: number, title: string): void {
    sql.updateTitle.run(title, conversation);
    setText(conversation, null, title);
  }

  /** Returns the ids of the new parts, each with that of the original. Their texts are copied later. */
  function copyParts(to: number | bigint, source: ConversationRow, upTo: string): readonly CopiedPart[] {
    const parts = partsOf(sql, source);
    return parts
      .slice(0, parts.findIndex((part) => part.response === upTo) + 1)
      .map(({ id, response }) => ({ to: sql.insertPart.run(to, response).lastInsertRowid, from: id }));
  }

  /**
   * Moves the responses after an earlier one to a new conversation, with copies of those before. False if there is no such
   * response. The parts of a conversation are ordered by their ids, so the copies get lower ones than all parts. Their texts
   * stay where they are: it takes long to copy them, and the next answer would have to wait.
   */
  function keepInBranch(row: ConversationRow, { id, after }: NonNullable<Extension['branch']>, at: number): boolean {
    const parts = partsOf(sql, row);
    const shared = after === undefined ? 0 : parts.findIndex(({ response }) => response === after) + 1;
    if (after !== undefined && shared === 0) return false;
    const { tenant, title, head, instructions } = row;
    const { changes, lastInsertRowid: branch } = sql.insert.run(id, tenant, title, at, at, head, null, instructions);
    if (changes === 0) throw conversationExists(id);
    addPart(Number(branch), null, title);
    const first = Math.min(0, sql.findFirstPart.get()!['id'] as number) - shared;
    for (const [index, part] of parts.entries()) {
      if (index < shared) sql.insertPartAs.run(first + index, branch, part.response);
      else sql.movePart.run(branch, part.id);
    }
    return true;
  }

  /** In several transactions. If the process dies meanwhile, the branch is not found by some of its texts. */
  async function copyTexts(copied: readonly CopiedPart[]): Promise<void> {
    for (let at = 0; at < copied.length; at += TEXTS_AT_ONCE) {
      const some = copied.slice(at, at + TEXTS_AT_ONCE);
      await commit.write(() => {
        for (const { to, from } of some) sql.texts().copy.run(to, from);
      }, 'written');
    }
  }

  return {
    async create({ id, tenant, title, createdAt, metadata, instructions, branchOf }) {
      for (const text of [id, tenant]) checkName(text);
      let copied: readonly CopiedPart[] = [];
      await commit.write(() => {
        const source = branchOf && sourceOf(sql, tenant, branchOf);
        const head = source && branchOf ? branchOf.upTo : null;
        const attached = metadata ? JSON.stringify(metadata) : null;
        const told = instructions ?? null;
        const { changes, lastInsertRowid } = sql.insert.run(
          id,
          tenant,
          title,
          createdAt,
          createdAt,
          head,
          attached,
          told,
        );
        if (changes === 0) throw conversationExists(id);
        addPart(Number(lastInsertRowid), null, title);
        if (source && branchOf) copied = copyParts(lastInsertRowid, source, branchOf.upTo);
      });
      await copyTexts(copied);
    },

    get(tenant, id) {
      const row = rowOf(sql, id);
      return row?.tenant === tenant ? toConversation(row) : undefined;
    },

    list({ tenant, search, limit, after }) {
      const from = [nameKey(tenant), after?.updatedAt ?? Infinity, after?.id ?? '', limit] as const;
      const words = search === undefined ? undefined : matchExpression(search);
      if (words === '') return [];
      const rows = words === undefined ? sql.findPage.all(...from) : sql.texts().findMatching.all(...from, words);
      return (rows as unknown as ConversationRow[]).map(toConversation);
    },

    responses(id) {
      const row = rowOf(sql, id);
      return row ? partsOf(sql, row).map(({ response }) => response) : [];
    },

    async extend(id, { response, head = null, text, title = '', at, branch }) {
      checkName(response);
      return commit.write(() => {
        const row = rowOf(sql, id);
        if (!row || row.head !== head) return false;
        if (branch && !keepInBranch(row, branch, at)) return false;
        sql.updateHead.run(response, at, row.id);
        addPart(row.id, response, text);
        if (row.title === '' && title !== '') setTitle(row.id, title);
        return true;
      });
    },

    async setText(id, response, text) {
      await commit.write(() => {
        const row = rowOf(sql, id);
        if (row) setText(row.id, response, text);
      }, 'written');
    },

    rename: (tenant, id, title, { ifTitle } = {}) =>
      commit.write(() => {
        const row = rowOf(sql, id);
        if (row?.tenant !== tenant || (ifTitle !== undefined && row.title !== ifTitle)) return false;
        setTitle(row.id, title);
        return true;
      }),

    setMetadata: (tenant, id, metadata) =>
      commit.write(() => {
        const row = rowOf(sql, id);
        if (row?.tenant !== tenant) return false;
        sql.updateMetadata.run(JSON.stringify(metadata), row.id);
        return true;
      }),

    setInstructions: (tenant, id, instructions) =>
      commit.write(() => {
        const row = rowOf(sql, id);
        if (row?.tenant !== tenant) return false;
        sql.updateInstructions.run(instructions === '' ? null : instructions, row.id);
        return true;
      }),

    ...conversationRemoval(sql, parts),
  };
}

/** Deletes conversations in several transactions: see `DELETED`. */
function conversationRemoval(
  sql: Statements,
  { commit, requests, streams }: ConversationsParts,
): Pick<Conversations, 'delete' | 'prune'> {
  /** Whether `is` returns true for one of the responses. Called in several transactions. */
  async function hasResponse(row: ConversationRow, is: (response: string) => boolean): Promise<boolean> {
    const parts = await commit.write(() => partsOf(sql, row), 'written');
    for (let at = 0; at < parts.length; at += CHECKED_AT_ONCE) {
      const some = parts.slice(at, at + CHECKED_AT_ONCE);
      if (await commit.write(() => some.some(({ response }) => is(response)), 'written')) return true;
    }
    return false;
  }

  /** Whether a response is deleted with its conversation: no other one has it. */
  function isLastUse(response: string): boolean {
    return sql.countUses.get(response)!['uses'] === 1;
  }

  /** Whether it was marked; not if the conversation was extended or deleted meanwhile. */
  function markDeleted({ conversation, head }: ConversationRow): boolean {
    const row = rowOf(sql, conversation);
    if (row?.head !== head) return false;
    sql.updateTenant.run(DELETED + row.tenant, row.id);
    return true;
  }

  /** Removes what is left of a deleted conversation, but not the runs that are driven: a later call does. */
  async function removeDeleted({ conversation }: ConversationRow): Promise<void> {
    for (let before: number | undefined = Infinity; before !== undefined;) {
      const position: number = before;
      before = await commit.write(() => removeSomeParts(conversation, position), 'written');
    }
  }

  /**
   * Removes the last parts before this one. Returns the first of them; undefined if there are no more. Finds the row by its name in
   * each transaction: when somebody else has removed it, a new conversation may have its id.
   */
  function removeSomeParts(conversation: string, before: number): number | undefined {
    const row = sql.find.get(nameKey(conversation)) as unknown as ConversationRow | undefined;
    if (!row || !isDeleted(row)) return undefined;
    const { id, tenant } = row;
    let entries = 0;
    let first: number | undefined;
    for (const part of sql.findLastParts.all(id, before) as unknown as readonly ConversationPart[]) {
      if (entries > PRUNE_BATCH_ENTRIES) break;
      first = part.id;
      const response = part.response !== null && isLastUse(part.response) ? part.response : undefined;
      if (response !== undefined && requests.isDriven(response)) continue;
      sql.texts().remove.run(part.id);
      sql.removePart.run(part.id);
      if (response !== undefined) entries += requests.removeNow(tenant.slice(DELETED.length), response) ?? 0;
    }
    if (first !== undefined || sql.findLastParts.get(id, Infinity)) return first;
    streams.removeNow(conversation);
    sql.remove.run(id);
    return undefined;
  }

  return {
    async delete(tenant, id) {
      for (;;) {
        const row = await commit.write(() => rowOf(sql, id), 'written');
        if (row?.tenant !== tenant) return false;
        await hasResponse(row, (response) => {
          if (isLastUse(response)) requests.checkRemovable(response);
          return false;
        });
        if (!(await commit.write(() => markDeleted(row)))) continue;
        await removeDeleted(row);
        return true;
      }
    },

    async prune(before) {
      let pruned = 0;
      const interrupted = await commit.write(() => sql.findDeleted.all(DELETED, AFTER_DELETED), 'written');
      for (const row of interrupted as unknown as ConversationRow[]) await removeDeleted(row);
      for (let position: readonly [number, number] | undefined = [-Infinity, 0]; position;) {
        const after: readonly [number, number] = position;
        const old = await commit.write(
          () => sql.findOld.all(before, ...after) as unknown as ConversationRow[],
          'written',
        );
        for (const row of old) {
          if (isDeleted(row) || (await hasResponse(row, requests.isBusy))) continue;
          if (!(await commit.write(() => markDeleted(row), 'written'))) continue;
          await removeDeleted(row);
          pruned += 1;
        }
        const last = old.at(-1);
        position = last && old.length === PRUNE_CONVERSATIONS ? [last.updated_at, last.id] : undefined;
      }
      return pruned;
    },
  };
}

type Statements = ReturnType<typeof prepareStatements>;

function prepareStatements(db: DatabaseSync) {
  let texts: Texts | undefined;
  return {
    insert: db.prepare(
      `INSERT INTO conversations (conversation, tenant, title, created_at, updated_at, head, metadata, instructions)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT DO NOTHING`,
    ),
    find: db.prepare(`SELECT ${COLUMNS} FROM conversations WHERE conversation = ?`),
    findWith: db.prepare(
      `SELECT ${COLUMNS} FROM conversations WHERE tenant = ?
         AND id IN (SELECT conversation FROM conversation_parts WHERE response = ?) LIMIT 1`,
    ),
    findPage: db.prepare(
      `SELECT ${COLUMNS} FROM conversations WHERE tenant = ?1 AND (updated_at, conversation) < (?2, ?3)
       ORDER BY updated_at DESC, conversation DESC LIMIT ?4`,
    ),
    findOld: db.prepare(
      `SELECT ${COLUMNS} FROM conversations WHERE updated_at < ? AND (updated_at, id) > (?, ?)
       ORDER BY updated_at, id LIMIT ${PRUNE_CONVERSATIONS}`,
    ),
    updateHead: db.prepare('UPDATE conversations SET head = ?, updated_at = ? WHERE id = ?'),
    updateTenant: db.prepare('UPDATE conversations SET tenant = ? WHERE id = ?'),
    findDeleted: db.prepare(`SELECT ${COLUMNS} FROM conversations WHERE tenant > ? AND tenant < ?`),
    updateTitle: db.prepare('UPDATE conversations SET title = ? WHERE id = ?'),
    updateMetadata: db.prepare('UPDATE conversations SET metadata = ? WHERE id = ?'),
    updateInstructions: db.prepare('UPDATE conversations SET instructions = ? WHERE id = ?'),
    remove: db.prepare('DELETE FROM conversations WHERE id = ?'),
    // The part without a response is the title.
    insertPart: db.prepare('INSERT INTO conversation_parts (conversation, response) VALUES (?, ?)'),
    findParts: db.prepare(
      'SELECT id, response FROM conversation_parts WHERE conversation = ? AND response IS NOT NULL ORDER BY id',
    ),
    findPart: db.prepare('SELECT id FROM conversation_parts WHERE conversation = ? AND response IS ?'),
    insertPartAs: db.prepare('INSERT INTO conversation_parts (id, conversation, response) VALUES (?, ?, ?)'),
    findFirstPart: db.prepare('SELECT min(id) AS id FROM conversation_parts'),
    movePart: db.prepare('UPDATE conversation_parts SET conversation = ? WHERE id = ?'),
    countUses: db.prepare('SELECT count(*) AS uses FROM conversation_parts WHERE response = ?'),
    findLastParts: db.prepare(
      `SELECT id, response FROM conversation_parts WHERE conversation = ? AND id < ? ORDER BY id DESC LIMIT ${TEXTS_AT_ONCE}`,
    ),
    removePart: db.prepare('DELETE FROM conversation_parts WHERE id = ?'),
    texts: (): Texts => (texts ??= openTexts(db)),
  };
}

/** The conversation that a branch begins with. */
function sourceOf(
  sql: Statements,
  tenant: string,
  { id, upTo }: NonNullable<NewConversation['branchOf']>,
): ConversationRow | undefined {
  const row = rowOf(sql, id);
  if (row && sql.findPart.get(row.id, upTo)) return row;
  return sql.findWith.get(tenant, upTo) as unknown as ConversationRow | undefined;
}

function rowOf(sql: Statements, id: string): ConversationRow | undefined {
  const row = sql.find.get(nameKey(id)) as unknown as ConversationRow | undefined;
  return row && isDeleted(row) ? undefined : row;
}

function partsOf(sql: Statements, row: ConversationRow): readonly { readonly id: number; readonly response: string }[] {
  return sql.findParts.all(row.id) as unknown as { readonly id: number; readonly response: string }[];
}

interface ConversationPart {
  readonly id: number;
  /** Null: it is the title. */
  readonly response: string | null;
}

interface CopiedPart {
  readonly to: number | bigint;
  readonly from: number;
}

type Texts = ReturnType<typeof openTexts>;

/** Not prepared before they are needed: SQLite reads the index then, and one that is damaged must not affect runs. */
function openTexts(db: DatabaseSync) {
  return {
    insert: db.prepare('INSERT INTO conversation_texts (rowid, text) VALUES (?, ?)'),
    update: db.prepare('UPDATE conversation_texts SET text = ? WHERE rowid = ?'),
    // Unless one of the conversations was deleted meanwhile: other parts may have the ids then, and those have texts.
    copy: db.prepare(
      `INSERT INTO conversation_texts (rowid, text) SELECT ?1, text FROM conversation_texts WHERE rowid = ?2
         AND EXISTS (SELECT 1 FROM conversation_parts AS copy JOIN conversation_parts AS source USING (response)
           WHERE copy.id = ?1 AND source.id = ?2)
         AND NOT EXISTS (SELECT 1 FROM conversation_texts WHERE rowid = ?1)`,
    ),
    remove: db.prepare('DELETE FROM conversation_texts WHERE rowid = ?'),
    findMatching: db.prepare(
      `SELECT ${COLUMNS} FROM conversations WHERE tenant = ?1 AND (updated_at, conversation) < (?2, ?3)
         AND id IN (SELECT conversation FROM conversation_parts WHERE id IN
           (SELECT rowid FROM conversation_texts WHERE conversation_texts MATCH ?5))
       ORDER BY updated_at DESC, conversation DESC LIMIT ?4`,
    ),
  };
}

/** An expression of FTS5 that matches all words of a text, the last one also as the beginning of a word. */
function matchExpression(text: string): string {
  const words = wordsIn(text);
  return words.length === 0 ? '' : `${words.map((word) => `"${word}"`).join(' ')}*`;
}
