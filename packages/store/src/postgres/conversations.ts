import type {
  ConversationFilter,
  ConversationRecord,
  ConversationStore,
  Extension,
  NewConversation,
} from '../ports/conversations.ts';
import { checkName, conversationExists, searchWords, toConversation } from '../records/conversations.ts';
import { bytes, bytesOrNull, text, type Database, type Query } from './connection.ts';
import { COLUMNS, findConversation, responsesOf, type ConversationRow } from './conversation-rows.ts';
import { conversationRemoval } from './remove-conversations.ts';
import type { Requests } from './requests.ts';
import type { Streams } from './streams.ts';

/*
 * 1. Who extends, branches or deletes a conversation locks its row first. So of two that do so, the second sees what the first did.
 * 2. A conversation is deleted in several transactions, because it may have many runs. The first one marks it, so that it does not
 *    exist for anybody any more. If the process dies after that, the next `prune` deletes the rest.
 * 3. A part is found by its words, which are compared without case and diacritics.
 */

interface ConversationsParts {
  readonly requests: Requests;
  readonly streams: Streams;
}

export function openConversations(db: Database, { requests, streams }: ConversationsParts): ConversationStore {
  /** Changes one column if the conversation exists. */
  function update(tenant: string, id: string, column: string, value: unknown): Promise<boolean> {
    return db.write(async (query) => {
      const { count } = await query(
        `UPDATE treadle.conversations SET ${column} = $3 WHERE conversation = $1 AND tenant = $2 AND NOT is_deleted`,
        [bytes(id), bytes(tenant), value],
      );
      return count > 0;
    });
  }

  async function list({ tenant, search, limit, after }: ConversationFilter): Promise<readonly ConversationRecord[]> {
    const words = search === undefined ? undefined : searchWords(search, 'in order');
    if (words?.length === 0) return [];
    const values: unknown[] = [bytes(tenant), after?.updatedAt ?? Infinity, bytes(after?.id ?? ''), limit];
    if (words) values.push(`${words.map((word) => `'${word}'`).join(' & ')}:*`);
    const matching = words
      ? 'AND c.id IN (SELECT p.conversation FROM treadle.conversation_parts p WHERE p.words @@ $5::tsquery)'
      : '';
    const { rows } = await db.read((query) =>
      query<ConversationRow>(
        `SELECT ${COLUMNS} FROM treadle.conversations c WHERE c.tenant = $1 AND (c.updated_at, c.conversation) < ($2, $3)
           AND NOT c.is_deleted ${matching} ORDER BY c.updated_at DESC, c.conversation DESC LIMIT $4`,
        values,
      ),
    );
    return rows.map(toRecord);
  }

  return {
    async create(given) {
      const { id, tenant, branchOf } = given;
      for (const name of [id, tenant]) checkName(name);
      await db.write(async (query) => {
        const source = branchOf && (await sourceOf(query, tenant, branchOf));
        const head = source && branchOf ? bytes(branchOf.upTo) : null;
        const created = await insert(query, { ...given, head });
        if (!source) return;
        await query(
          `INSERT INTO treadle.conversation_parts (conversation, place, response, words)
           SELECT $1, place, response, words FROM treadle.conversation_parts WHERE conversation = $2 AND place BETWEEN 1 AND $3`,
          [created, source.id, source.place],
        );
      });
    },

    get: (tenant, id) =>
      db.read(async (query) => {
        const row = await findConversation(query, id);
        return row && text(row.tenant) === tenant ? toRecord(row) : undefined;
      }),

    list,

    responses: (id) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly response: Buffer }>(
          `SELECT p.response FROM treadle.conversations c JOIN treadle.conversation_parts p ON p.conversation = c.id
           WHERE c.conversation = $1 AND NOT c.is_deleted AND p.response IS NOT NULL ORDER BY p.place`,
          [bytes(id)],
        );
        return rows.map(({ response }) => text(response));
      }),

    async extend(id, { response, head, text: words, title = '', at, branch }) {
      checkName(response);
      return db.write(async (query) => {
        const row = await findConversation(query, id, 'FOR UPDATE');
        if (!row || (row.head && text(row.head)) !== (head ?? null)) return false;
        if (branch && !(await keepInBranch(query, row, { branch, at }))) return false;
        await query('UPDATE treadle.conversations SET head = $2, updated_at = $3 WHERE id = $1', [
          row.id,
          bytes(response),
          at,
        ]);
        const { rows } = await query<{ readonly last: number }>(
          'SELECT max(place) AS last FROM treadle.conversation_parts WHERE conversation = $1',
          [row.id],
        );
        await addPart(query, row.id, rows[0]!.last + 1, response, words);
        if (row.title.length === 0 && title !== '') await setTitle(query, row.id, title);
        return true;
      });
    },

    async setText(id, response, words) {
      await db.write(
        (query) =>
          query(
            `UPDATE treadle.conversation_parts p SET words = array_to_tsvector($3::text[]) FROM treadle.conversations c
             WHERE c.conversation = $1 AND NOT c.is_deleted AND p.conversation = c.id AND p.response = $2`,
            [bytes(id), bytes(response), searchWords(words)],
          ),
        'written',
      );
    },

    rename: (tenant, id, title, { ifTitle } = {}) =>
      db.write(async (query) => {
        const row = await findConversation(query, id, 'FOR UPDATE');
        if (!row || text(row.tenant) !== tenant || (ifTitle !== undefined && text(row.title) !== ifTitle)) return false;
        await setTitle(query, row.id, title);
        return true;
      }),

    setMetadata: (tenant, id, metadata) => update(tenant, id, 'metadata', JSON.stringify(metadata)),

    setInstructions: (tenant, id, instructions) =>
      update(tenant, id, 'instructions', instructions === '' ? null : bytes(instructions.toWellFormed())),

    ...conversationRemoval(db, { requests, streams }),
  };
}

async function insert(query: Query, given: NewConversation & { readonly head: Buffer | null }): Promise<number> {
  const { id, tenant, title, createdAt, metadata, instructions, head } = given;
  const { rows } = await query<{ readonly id: number }>(
    `INSERT INTO treadle.conversations (conversation, tenant, title, created_at, updated_at, head, metadata, instructions)
     VALUES ($1, $2, $3, $4, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING id`,
    [
      bytes(id),
      bytes(tenant),
      bytes(title.toWellFormed()),
      createdAt,
      head,
      metadata ? JSON.stringify(metadata) : null,
      bytesOrNull(instructions?.toWellFormed()),
    ],
  );
  if (!rows[0]) throw conversationExists(id);
  await addPart(query, rows[0].id, 0, null, title);
  return rows[0].id;
}

async function addPart(query: Query, id: number, place: number, response: string | null, words: string): Promise<void> {
  await query(
    'INSERT INTO treadle.conversation_parts (conversation, place, response, words) VALUES ($1, $2, $3, array_to_tsvector($4::text[]))',
    [id, place, bytesOrNull(response), searchWords(words)],
  );
}

async function setTitle(query: Query, id: number, title: string): Promise<void> {
  await query('UPDATE treadle.conversations SET title = $2 WHERE id = $1', [id, bytes(title.toWellFormed())]);
  await query(
    'UPDATE treadle.conversation_parts SET words = array_to_tsvector($2::text[]) WHERE conversation = $1 AND place = 0',
    [id, searchWords(title)],
  );
}

/** The conversation that a branch begins with. */
async function sourceOf(
  query: Query,
  tenant: string,
  { id, upTo }: NonNullable<NewConversation['branchOf']>,
): Promise<{ readonly id: number; readonly place: number } | undefined> {
  const { rows } = await query<{ readonly id: number; readonly place: number }>(
    `SELECT c.id, p.place FROM treadle.conversations c JOIN treadle.conversation_parts p ON p.conversation = c.id
     WHERE p.response = $2 AND NOT c.is_deleted AND (c.conversation = $1 OR c.tenant = $3)
     ORDER BY c.conversation = $1 DESC LIMIT 1 FOR SHARE OF c`,
    [bytes(id), bytes(upTo), bytes(tenant)],
  );
  return rows[0];
}

/** Moves the responses after an earlier one to a new conversation, with copies of those before. False if there is no such one. */
async function keepInBranch(
  query: Query,
  row: ConversationRow,
  { branch: { id, after }, at }: { readonly branch: NonNullable<Extension['branch']>; readonly at: number },
): Promise<boolean> {
  const parts = await responsesOf(query, row.id);
  const shared = after === undefined ? 0 : parts.findIndex(({ response }) => text(response) === after) + 1;
  if (after !== undefined && shared === 0) return false;
  const last = parts[shared - 1]?.place ?? 0;
  const instructions = row.instructions === null ? {} : { instructions: text(row.instructions) };
  const branch = await insert(query, {
    id,
    tenant: text(row.tenant),
    title: text(row.title),
    createdAt: at,
    head: row.head,
    ...instructions,
  });
  await query(
    `INSERT INTO treadle.conversation_parts (conversation, place, response, words)
     SELECT $1, place, response, ''::tsvector FROM treadle.conversation_parts WHERE conversation = $2 AND place BETWEEN 1 AND $3`,
    [branch, row.id, last],
  );
  await query('UPDATE treadle.conversation_parts SET conversation = $1 WHERE conversation = $2 AND place > $3', [
    branch,
    row.id,
    last,
  ]);
  return true;
}

function toRecord({ conversation, tenant, title, head, instructions, ...row }: ConversationRow): ConversationRecord {
  return toConversation({
    ...row,
    conversation: text(conversation),
    tenant: text(tenant),
    title: text(title),
    head: head && text(head),
    instructions: instructions && text(instructions),
  });
}
