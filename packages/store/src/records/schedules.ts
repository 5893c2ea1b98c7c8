import { randomUUID } from 'node:crypto';
import { TreadleError } from '@treadle/core';
import type { ScheduleContent, StoredSchedule } from '../ports/schedules.ts';

/** The name for listeners. No run or stream of the server has it. */
export const SCHEDULES = '\0schedules';

/** A row without its names. */
export interface ScheduleRow {
  readonly definition: string;
  readonly state: string;
  readonly due_at: number | null;
  readonly version: string;
}

/** The values of a row that is written now. */
export function scheduleValues(content: ScheduleContent): readonly [string, string, number | null, string] {
  const { definition, state, dueAt = null } = content;
  if (dueAt !== null && !Number.isFinite(dueAt)) {
    throw new TreadleError('invalid-options', `A schedule cannot be due at ${dueAt}. Pass milliseconds since 1970.`);
  }
  return [JSON.stringify(definition ?? null), JSON.stringify(state ?? null), dueAt, randomUUID()];
}

export function scheduleOf(names: Pick<StoredSchedule, 'tenant' | 'name'>, row: ScheduleRow): StoredSchedule {
  const { definition, state, due_at: dueAt, version } = row;
  return {
    ...names,
    definition: JSON.parse(definition),
    state: JSON.parse(state),
    ...(dueAt !== null && { dueAt }),
    version,
  };
}

/** A name with unpaired surrogates would be that of another one. */
export function checkScheduleNames({ tenant, name }: Pick<StoredSchedule, 'tenant' | 'name'>): void {
  if (tenant.isWellFormed() && name.isWellFormed()) return;
  throw new TreadleError('invalid-options', 'The name of a schedule has an unpaired surrogate. Use another name.');
}
