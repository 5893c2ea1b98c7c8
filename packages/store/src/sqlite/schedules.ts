import type { DatabaseSync } from 'node:sqlite';
import type { ScheduleStore, StoredSchedule } from '../ports/schedules.ts';
import { nameKey } from '../records/json.ts';
import { checkScheduleNames, scheduleOf, SCHEDULES, scheduleValues, type ScheduleRow } from '../records/schedules.ts';
import type { Changes } from './changes.ts';
import type { GroupCommit } from './group-commit.ts';

/** What starts runs by itself. */
export const SCHEDULE_TABLE = `
  -- definition and state are plain JSON. Null in due_at: there is nothing to do.
  CREATE TABLE schedules (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    definition TEXT NOT NULL,
    state TEXT NOT NULL,
    due_at REAL,
    version TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
  ) STRICT, WITHOUT ROWID;
`;

/** The methods of a `ScheduleStore`. Those that only read are synchronous and need a transaction of the caller. */
export interface Schedules extends Omit<ScheduleStore, 'get' | 'list'> {
  readonly get: (tenant: string, name: string) => StoredSchedule | undefined;
  readonly list: () => readonly StoredSchedule[];
}

type NamedRow = ScheduleRow & Pick<StoredSchedule, 'tenant' | 'name'>;

export function openSchedules(
  db: DatabaseSync,
  { commit, changes }: { readonly commit: GroupCommit; readonly changes: Changes },
): Schedules {
  const insert = db.prepare(
    'INSERT INTO schedules (tenant, name, definition, state, due_at, version) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING',
  );
  const update = db.prepare(
    `UPDATE schedules SET definition = ?4, state = ?5, due_at = ?6, version = ?7
     WHERE tenant = ?1 AND name = ?2 AND version = ?3`,
  );
  const remove = db.prepare('DELETE FROM schedules WHERE tenant = ? AND name = ?');
  const find = db.prepare('SELECT * FROM schedules WHERE tenant = ? AND name = ?');
  const findAll = db.prepare('SELECT * FROM schedules ORDER BY tenant, name');

  function written(write: () => { readonly changes: number | bigint }): Promise<boolean> {
    return commit.write(() => {
      const isWritten = write().changes > 0;
      if (isWritten) changes.changed(SCHEDULES);
      return isWritten;
    });
  }

  const toSchedule = ({ tenant, name, ...row }: NamedRow): StoredSchedule => scheduleOf({ tenant, name }, row);

  return {
    async add({ tenant, name, ...content }) {
      checkScheduleNames({ tenant, name });
      const values = scheduleValues(content);
      return written(() => insert.run(tenant, name, ...values));
    },
    async change({ tenant, name, version }, content) {
      const values = scheduleValues(content);
      return written(() => update.run(nameKey(tenant), nameKey(name), version, ...values));
    },
    remove: (tenant, name) => written(() => remove.run(nameKey(tenant), nameKey(name))),
    get(tenant, name) {
      const row = find.get(nameKey(tenant), nameKey(name)) as unknown as NamedRow | undefined;
      return row && toSchedule(row);
    },
    list: () => (findAll.all() as unknown as readonly NamedRow[]).map(toSchedule),
    watch: (listener) => changes.watch(SCHEDULES, listener),
  };
}
