import type { DatabaseSync } from 'node:sqlite';
import { TreadleError } from '@treadle/core';
import type { StoredEvent, StreamStore } from '../ports/streams.ts';
import { eventDamaged, numberUsed, STREAM_PAGE_CHARS } from '../records/streams.ts';
import type { Changes } from './changes.ts';
import { nameKey, parseChecked, withChecksum } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';

/** The methods of a `StreamStore`. Those that only read are synchronous and need a transaction of the caller. */
export interface Streams extends Pick<StreamStore, 'append' | 'delete' | 'prune'> {
  readonly read: (stream: string, after: number) => readonly StoredEvent[];
  readonly pageSize: (stream: string, after: number) => number;
  readonly last: (stream: string) => number;
  /** In a transaction of the caller: does the same as `delete`. */
  readonly removeNow: (stream: string) => void;
}

interface StreamRow {
  readonly id: number;
  readonly last: number;
}

interface EventsRow {
  readonly first: number;
  readonly events: string;
  readonly sum: number;
}

/** A transaction of `prune` deletes at most this many streams. */
const PRUNE_STREAMS = 100;

interface StreamsParts {
  readonly commit: GroupCommit;
  readonly leases: Leases;
  readonly changes: Changes;
  readonly now: () => number;
}

export function openStreams(db: DatabaseSync, { commit, leases, changes, now }: StreamsParts): Streams {
  const { write } = commit;
  const findStream = db.prepare('SELECT id, last FROM streams WHERE stream = ?');
  const upsertStream = db.prepare(
    `INSERT INTO streams (stream, last, updated_at) VALUES (?1, ?2, ?3)
     ON CONFLICT (stream) DO UPDATE SET last = ?2, updated_at = ?3 RETURNING id`,
  );
  const insertEvents = db.prepare(
    'INSERT INTO stream_events (stream, last, first, events, sum) VALUES (?, ?, ?, ?, ?)',
  );
  const findEvents = db.prepare(
    'SELECT first, events, sum FROM stream_events WHERE stream = ? AND last > ? ORDER BY last',
  );
  const findSizes = db.prepare(
    'SELECT octet_length(events) AS size FROM stream_events WHERE stream = ? AND last > ? ORDER BY last',
  );
  const findOld = db.prepare(`SELECT id FROM streams WHERE updated_at < ? LIMIT ${PRUNE_STREAMS}`);
  const deleteRows = ['stream_events WHERE stream = ?', 'streams WHERE id = ?'].map((rows) =>
    db.prepare(`DELETE FROM ${rows}`),
  );

  function rowOf(stream: string): StreamRow | undefined {
    return findStream.get(nameKey(stream)) as unknown as StreamRow | undefined;
  }

  function remove(id: number): void {
    for (const statement of deleteRows) statement.run(id);
  }

  function removeNow(stream: string): void {
    const row = rowOf(stream);
    if (row) remove(row.id);
  }

  return {
    async append(stream, first, events, lease) {
      if (stream === '' || !stream.isWellFormed() || !Number.isSafeInteger(first) || first < 1) {
        throw new TreadleError('invalid-input', 'A stream has a name, and its events have whole numbers from 1 on.');
      }
      const { text, sum } = withChecksum(events);
      const last = first + events.length - 1;
      await write(() => {
        if (lease) leases.checkWriter(lease.runId, lease);
        const used = rowOf(stream)?.last ?? 0;
        if (first <= used) throw numberUsed(stream, first, used);
        const { id } = upsertStream.get(stream, last, now()) as unknown as StreamRow;
        if (events.length > 0) insertEvents.run(id, last, first, text, sum);
        changes.changed(stream);
      });
    },

    read(stream, after) {
      const row = rowOf(stream);
      if (!row || row.last <= after) return [];
      const page: StoredEvent[] = [];
      let chars = 0;
      for (const found of findEvents.iterate(row.id, after) as Iterable<unknown>) {
        const { first, events: text, sum } = found as EventsRow;
        const events = parseChecked(text, sum) as readonly unknown[] | undefined;
        if (!events) throw eventDamaged(stream, first);
        for (const [index, event] of events.entries()) {
          if (first + index > after) page.push({ seq: first + index, event });
        }
        chars += text.length;
        if (chars >= STREAM_PAGE_CHARS) break;
      }
      return page;
    },

    pageSize(stream, after) {
      const row = rowOf(stream);
      let size = 0;
      if (!row || row.last <= after) return size;
      for (const found of findSizes.iterate(row.id, after)) {
        size += found['size'] as number;
        if (size >= STREAM_PAGE_CHARS) break;
      }
      return size;
    },

    last: (stream) => rowOf(stream)?.last ?? 0,

    delete: (stream) =>
      write(() => {
        removeNow(stream);
        changes.changed(stream);
      }),
    removeNow,

    async prune(before) {
      for (let pruned = 0; ;) {
        const count = await write(() => {
          const old = findOld.all(before);
          for (const { id } of old) remove(id as number);
          return old.length;
        });
        pruned += count;
        if (count < PRUNE_STREAMS) return pruned;
      }
    },
  };
}
