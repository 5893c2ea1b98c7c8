import { TreadleError } from '@treadle/core';
import type { StoredEvent, StreamStore } from '../ports/streams.ts';
import { leaseLost } from '../records/errors.ts';
import { parseChecked, withChecksum } from '../records/json.ts';
import { eventDamaged, numberUsed, STREAM_PAGE_CHARS } from '../records/streams.ts';
import type { Changes } from './changes.ts';
import { bytes, type Database, type Query } from './connection.ts';
import type { Leases } from './leases.ts';

/** A transaction of `prune` deletes at most this many streams. */
const PRUNE_STREAMS = 100;

interface EventsRow {
  readonly first: number;
  readonly events: string;
  readonly sum: number;
}

export interface Streams extends StreamStore {
  /** In a transaction of the caller: does the same as `delete`. */
  readonly removeNow: (query: Query, stream: Buffer) => Promise<void>;
}

export function openStreams(
  db: Database,
  { leases, changes }: { readonly leases: Leases; readonly changes: Changes },
): Streams {
  async function remove(query: Query, ids: readonly number[]): Promise<void> {
    await query('DELETE FROM treadle.stream_events WHERE stream = ANY ($1::bigint[])', [ids]);
    await query('DELETE FROM treadle.streams WHERE id = ANY ($1::bigint[])', [ids]);
  }

  async function removeNow(query: Query, stream: Buffer): Promise<void> {
    const { rows } = await query<{ readonly id: number }>(
      'SELECT id FROM treadle.streams WHERE stream = $1 FOR UPDATE',
      [stream],
    );
    if (rows[0]) await remove(query, [rows[0].id]);
  }

  /** The rows of a page. */
  async function pageRows<Row>(query: Query, columns: string, stream: string, after: number): Promise<readonly Row[]> {
    const { rows } = await query<Row>(
      `SELECT ${columns} FROM (
         SELECT e.*, octet_length(e.events) AS size, sum(octet_length(e.events)) OVER (ORDER BY e.last) - octet_length(e.events) AS before
         FROM treadle.streams s CROSS JOIN LATERAL
           (SELECT * FROM treadle.stream_events e WHERE e.stream = s.id AND e.last > $2 ORDER BY e.last LIMIT 1000) AS e
         WHERE s.stream = $1
       ) AS page WHERE before < ${STREAM_PAGE_CHARS} ORDER BY last`,
      [bytes(stream), after],
    );
    return rows;
  }

  return {
    async append(stream, first, events, lease) {
      if (stream === '' || !stream.isWellFormed() || !Number.isSafeInteger(first) || first < 1) {
        throw new TreadleError('invalid-input', 'A stream has a name, and its events have whole numbers from 1 on.');
      }
      const { text, sum } = withChecksum(events);
      const key = leases.keyOf(lease);
      const { rows } = await db.write((query) =>
        query<{ readonly used: number }>('SELECT treadle.append_events($1, $2, $3, $4, $5, $6, $7, $8) AS used', [
          bytes(stream),
          first,
          first + events.length - 1,
          events.length > 0 ? text : null,
          sum,
          lease ? bytes(lease.runId) : null,
          key?.token ?? null,
          key?.nonce ?? null,
        ]),
      );
      const { used } = rows[0]!;
      if (used === -1) throw leaseLost(lease!.runId, undefined);
      if (used > 0) throw numberUsed(stream, first, used);
      changes.changed(stream);
    },

    read: (stream, after) =>
      db.read(async (query) => {
        const page: StoredEvent[] = [];
        for (const { first, events: json, sum } of await pageRows<EventsRow>(
          query,
          'first, events, sum',
          stream,
          after,
        )) {
          const events = parseChecked(json, sum) as readonly unknown[] | undefined;
          if (!events) throw eventDamaged(stream, first);
          for (const [index, event] of events.entries()) {
            if (first + index > after) page.push({ seq: first + index, event });
          }
        }
        return page;
      }),

    pageSize: (stream, after) =>
      db.read(async (query) => {
        const rows = await pageRows<{ readonly size: number }>(query, 'size', stream, after);
        return rows.reduce((sum, { size }) => sum + size, 0);
      }),

    last: (stream) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly last: number }>('SELECT last FROM treadle.streams WHERE stream = $1', [
          bytes(stream),
        ]);
        return rows[0]?.last ?? 0;
      }),

    watch: changes.watch,
    async delete(stream) {
      const name = bytes(stream);
      if (!name) return;
      await db.write((query) => removeNow(query, name));
      changes.changed(stream);
    },
    removeNow,

    async prune(before) {
      for (let pruned = 0; ;) {
        const count = await db.write(async (query) => {
          const { rows } = await query<{ readonly id: number }>(
            `SELECT id FROM treadle.streams WHERE updated_at < $1 ORDER BY updated_at LIMIT ${PRUNE_STREAMS} FOR UPDATE`,
            [before],
          );
          await remove(
            query,
            rows.map(({ id }) => id),
          );
          return rows.length;
        });
        pruned += count;
        if (count < PRUNE_STREAMS) return pruned;
      }
    },
  };
}
