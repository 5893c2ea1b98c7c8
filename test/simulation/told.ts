import type { Disk } from './disk.ts';
import { ensure } from './violation.ts';

/**
 * What clients of servers were told, apart from entries of runs: which requests and conversations exist, how far a request
 * has come, and the events of streams. All of it must be durable when the bytes leave the server.
 */
export interface Told {
  readonly onCommit: () => void;
  readonly onPowerFailure: () => void;
  /** A client was told that something has a value, or exists. */
  readonly tell: (kind: Kind, id: string, value?: string | number) => void;
  /** A client was told that something is deleted. */
  readonly tellDeleted: (kind: Kind, id: string) => void;
  /** Whether a process has taken a request of another one. */
  readonly hasTaken: () => boolean;
  /** All requests, with their values. */
  readonly requests: () => ReadonlyMap<string, string | number>;
}

export type Kind = 'request' | 'conversation' | 'stream';

interface Version {
  /** Undefined: it does not exist. */
  readonly value: string | number | undefined;
  readonly commit: number;
}

const QUERIES: Readonly<Record<Kind, string>> = {
  request: 'SELECT response AS id, status AS value FROM requests',
  conversation: `SELECT conversation AS id, coalesce(head, '') AS value FROM conversations WHERE tenant NOT LIKE char(1) || '%'`,
  stream: 'SELECT stream AS id, last AS value FROM streams',
};

export function createTold(disk: Disk): Told {
  const tables = Object.entries(QUERIES).map(([kind, sql]) => ({
    kind: kind as Kind,
    find: disk.prepare(sql),
    versions: new Map<string, Version[]>(),
  }));
  const findTaken = disk.prepare('SELECT 1 FROM inbox WHERE is_taken = 1');
  const tableOf = (kind: Kind): Map<string, Version[]> => tables.find((one) => one.kind === kind)!.versions;

  function onCommit(): void {
    const commit = disk.commits();
    for (const { kind, find, versions } of tables) {
      if (!disk.wrote(`${kind}s`)) continue;
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
      ensure(found !== undefined, 'told', () => `a client was told of ${what}, which is not stored`);
      ensure(found.commit <= disk.durable(), 'told', () => `a client was told of ${what}, which is not durable`);
    },
    tellDeleted(kind, id) {
      const last = tableOf(kind).get(id)?.at(-1);
      if (!last) return;
      const isGone = last.value === undefined;
      ensure(isGone, 'told', () => `a client was told that ${kind} ${id} is deleted, and it is not`);
      ensure(last.commit <= disk.durable(), 'told', () => `the deletion of ${kind} ${id} is not durable`);
    },
    hasTaken: () => findTaken.get() !== undefined,
    requests: () =>
      new Map(
        [...tableOf('request')].flatMap(([id, known]) => {
          const value = known.at(-1)?.value;
          return value === undefined ? [] : [[id, value] as const];
        }),
      ),
  };
}
