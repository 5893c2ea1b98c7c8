import { bytes, type Query } from './connection.ts';

/** A row of `conversations`. */
export interface ConversationRow {
  readonly id: number;
  readonly conversation: Buffer;
  readonly tenant: Buffer;
  readonly title: Buffer;
  readonly created_at: number;
  readonly updated_at: number;
  readonly head: Buffer | null;
  readonly metadata: string | null;
  readonly instructions: Buffer | null;
}

export const COLUMNS: string =
  'c.id, c.conversation, c.tenant, c.title, c.created_at, c.updated_at, c.head, c.metadata, c.instructions';

export async function findConversation(
  query: Query,
  id: string,
  lock: '' | 'FOR UPDATE' | 'FOR SHARE' = '',
): Promise<ConversationRow | undefined> {
  const { rows } = await query<ConversationRow>(
    `SELECT ${COLUMNS} FROM treadle.conversations c WHERE c.conversation = $1 AND NOT c.is_deleted ${lock}`,
    [bytes(id)],
  );
  return rows[0];
}

export async function responsesOf(
  query: Query,
  id: number,
): Promise<readonly { readonly place: number; readonly response: Buffer }[]> {
  const { rows } = await query<{ readonly place: number; readonly response: Buffer }>(
    'SELECT place, response FROM treadle.conversation_parts WHERE conversation = $1 AND response IS NOT NULL ORDER BY place',
    [id],
  );
  return rows;
}
