import type { ScheduleStore, StoredSchedule } from '../ports/schedules.ts';
import { checkScheduleNames, scheduleOf, SCHEDULES, scheduleValues, type ScheduleRow } from '../records/schedules.ts';
import type { Changes } from './changes.ts';
import { bytes, text, type Database } from './connection.ts';

/** What starts runs by itself, as in SQLite. */
export const SCHEDULE_MIGRATION = `
  -- definition and state are plain JSON. Null in due_at: there is nothing to do.
  CREATE TABLE treadle.schedules (
    tenant bytea NOT NULL,
    name bytea NOT NULL,
    definition text NOT NULL,
    state text NOT NULL,
    due_at float8,
    version text NOT NULL,
    PRIMARY KEY (tenant, name)
  ) WITH (fillfactor = 50);
`;

type NamedRow = ScheduleRow & { readonly tenant: Buffer; readonly name: Buffer };

export function openSchedules(db: Database, changes: Changes): ScheduleStore {
  async function written(statement: string, values: readonly unknown[]): Promise<boolean> {
    const { count } = await db.write((query) => query(statement, values));
    if (count > 0) changes.changed(SCHEDULES);
    return count > 0;
  }

  const toSchedule = ({ tenant, name, ...row }: NamedRow): StoredSchedule =>
    scheduleOf({ tenant: text(tenant), name: text(name) }, row);

  return {
    async add({ tenant, name, ...content }) {
      checkScheduleNames({ tenant, name });
      return written(
        `INSERT INTO treadle.schedules (tenant, name, definition, state, due_at, version) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT DO NOTHING`,
        [bytes(tenant), bytes(name), ...scheduleValues(content)],
      );
    },
    async change({ tenant, name, version }, content) {
      return written(
        `UPDATE treadle.schedules SET definition = $4, state = $5, due_at = $6, version = $7
         WHERE tenant = $1 AND name = $2 AND version = $3`,
        [bytes(tenant), bytes(name), version, ...scheduleValues(content)],
      );
    },
    remove: (tenant, name) =>
      written('DELETE FROM treadle.schedules WHERE tenant = $1 AND name = $2', [bytes(tenant), bytes(name)]),
    get: (tenant, name) =>
      db.read(async (query) => {
        const { rows } = await query<NamedRow>('SELECT * FROM treadle.schedules WHERE tenant = $1 AND name = $2', [
          bytes(tenant),
          bytes(name),
        ]);
        return rows[0] && toSchedule(rows[0]);
      }),
    list: () =>
      db.read(async (query) => {
        const { rows } = await query<NamedRow>('SELECT * FROM treadle.schedules ORDER BY tenant, name', []);
        return rows.map(toSchedule);
      }),
    watch: (listener) => changes.watch(SCHEDULES, listener),
  };
}
