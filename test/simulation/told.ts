import type { Disk } from './disk.ts';
import { ensure } from './violation.ts';

/**
 * What clients of servers and programs were told, apart from entries of runs: which requests and conversations exist, how far a
 * request has come, what was created with a key, and the events of streams. All of it must be durable when it is told.
 */
export interface Told {
  readonly onCommit: () => void;
  readonly onPowerFailure: () => void;
  /** A client was told that something has a value, or exists. */
  readonly tell: (kind: Kind, id: string, value?: string | number) => void;
  /** A client was told that something is deleted. */
  readonly tellDeleted: (kind: Kind, id: string) => void;
  /** Somebody was told that something was not stored with a value. */
  readonly tellRefused: (kind: Kind, id: string, value: string) => void;
  /** All requests, with their values. */
  readonly requests: () => ReadonlyMap<string, string | number>;
}

export type Kind = 'request' | 'conversation' | 'stream' | 'key';

interface Version {
  /** Undefined: it does not exist. */
  readonly value: string | number | undefined;
  readonly commit: number;
}

interface Table {
  readonly name: string;
  readonly sql: string;
}

const TABLES: Readonly<Record<Kind, Table>> = {
  request: { name: 'requests', sql: 'SELECT response AS id, status AS value FROM requests' },
  conversation: {
    name: 'conversations',
    sql: `SELECT conversation AS id, coalesce(head, '') AS value FROM conversations WHERE tenant NOT LIKE char(1) || '%'`,
  },
  stream: { name: 'streams', sql: 'SELECT stream AS id, last AS value FROM streams' },
  key: { name: 'idempotency_keys', sql: 'SELECT key AS id, response AS value FROM idempotency_keys' },
};

export function createTold(disk: Disk): Told {
  const tables = Object.entries(TABLES).map(([kind, { name, sql }]) => ({
    kind: kind as Kind,
    name,
    find: disk.prepare(sql),
    versions: new Map<string, Version[]>(),
  }));
  const tableOf = (kind: Kind): Map<string, Version[]> => tables.find((one) => one.kind === kind)!.versions;

  function onCommit(): void {
    const commit = disk.commits();
    for (const { name, find, versions } of tables) {
      if (!disk.wrote(name)) continue;
      const rows = new Map(find.all().map(({ id, value }) => [id as string, value as string | number]));
      for (const [id, known] of versions) {
        if (!rows.has(id) && known.at(-1)?.value !== undefined) known.push({ value: undefined, commit });
      }
      for (const [id, value] of rows) {
        const known = versions.get(id) ?? [];
        versions.set(id, known);
        if (known.at(-1)?.value !== value) known.push({ value, commit });
      }
    }
  }

  return {
    onCommit,
    onPowerFailure() {
      for (const { versions } of tables) {
        for (const known of versions.values()) while ((known.at(-1)?.commit ?? 0) > disk.commits()) known.pop();
      }
    },
    tell(kind, id, value) {
      const known = tableOf(kind).get(id) ?? [];
      const found = known.find((one) =>
        typeof value === 'number'
          ? one.value !== undefined && (one.value as number) >= value
          : one.value !== undefined && (value === undefined || one.value === value),
      );
      const what = `${kind} ${id}${value === undefined ? '' : ` with ${value}`}`;
      ensure(found !== undefined, 'told', () => `somebody was told of ${what}, which is not stored`);
      ensure(found.commit <= disk.durable(), 'told', () => `somebody was told of ${what}, which is not durable`);
    },
    tellDeleted(kind, id) {
      const last = tableOf(kind).get(id)?.at(-1);
      if (!last) return;
      const isGone = last.value === undefined;
      ensure(isGone, 'told', () => `somebody was told that ${kind} ${id} is deleted, and it is not`);
      ensure(last.commit <= disk.durable(), 'told', () => `the deletion of ${kind} ${id} is not durable`);
    },
    tellRefused(kind, id, value) {
      const isStored = tableOf(kind).get(id)?.at(-1)?.value === value;
      ensure(!isStored, 'told', () => `somebody was told that ${kind} ${id} is not stored with ${value}, and it is`);
    },
    requests: () =>
      new Map(
        [...tableOf('request')].flatMap(([id, known]) => {
          const value = known.at(-1)?.value;
          return value === undefined ? [] : [[id, value] as const];
        }),
      ),
  };
}
